//! The house: every MCP server behind one gate. Sessions, catalogue, previews, dispatch, surfaces.
//! The law is `core`'s, the records are `store`'s, the bytes are `wire`'s; here they meet, once per call.

pub mod answer;
pub mod asked;
pub mod assemble;
pub mod cards;
pub mod catalog;
pub mod conduct;
pub mod failed_credentials;
pub mod house;
pub mod http;
pub mod law;
pub mod limits;
pub mod line;
pub mod metrics;
mod modes;
pub mod notify;
pub mod passthrough;
pub mod relist;
pub mod replicas;
pub mod runs;
pub mod schema;
pub mod search;
pub mod service;
pub mod simulate;
mod suggested;
pub mod surfaces;
pub mod tasks;
pub mod trace;
pub mod upstreams;
pub mod waiting;

pub use countersign_core::visible_text as escape;

/// Whether a tool has a boolean `preview` argument of its own.
pub(crate) fn preview_argument(tool: &countersign_core::tool::Tool) -> bool {
    let properties = tool.definition.get("inputSchema").and_then(|schema| schema.get("properties"));
    properties.is_some_and(|all| all.get("preview").is_some())
}
