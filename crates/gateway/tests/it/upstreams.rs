//! MCP upstreams against real children and real sockets that misbehave: each fault is told as what it was, with the truth about
//! whether anything may have happened; others go on undisturbed, and nothing outlives its upstream.

mod http;
pub(crate) mod peer;
mod stdio;
