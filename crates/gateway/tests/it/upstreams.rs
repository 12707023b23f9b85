//! MCP upstreams with real child processes and sockets that misbehave: each fault is reported as what it was and says
//! whether anything may have happened; other upstreams are not affected, and no process outlives its upstream.

mod http;
pub(crate) mod peer;
mod stdio;
