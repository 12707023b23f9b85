//! The Model Context Protocol: JSON-RPC frames kept as the bytes they arrived in, stdio and streamable HTTP on both sides, both
//! protocol eras and the bridge between them. It makes no policy decision: the gateway decides what may pass.

pub mod client;
pub mod era;
pub mod fault;
mod framing;
pub mod jsonrpc;
mod log_severity;
pub mod mirrored_headers;
pub mod oauth;
mod one_shot_flag;
pub mod post_endpoint;
pub mod raw;
pub mod server;
