//! Commands as tools: real processes, through the gate and the upstream.

mod bench;
mod ends;
mod git;
mod house;
mod presets;
mod runs;
mod words;
