//! Commands as tools: real processes, through the gate and the upstream.

mod bench;
mod ends;
mod gateway;
mod git;
mod paths;
mod presets;
mod runs;
mod words;
