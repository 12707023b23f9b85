//! The protocol room: MCP frames kept as the bytes they came, stdio and streamable HTTP on both sides, both eras and the
//! bridge between them. It knows no verdict, no mode and no rule: what may pass is decided elsewhere.

pub mod era;
pub mod fault;
pub mod frame;
mod line;
pub mod mirror;
pub mod post;
pub mod raw;
pub mod serve;
mod severity;
mod signal;
pub mod upstream;
