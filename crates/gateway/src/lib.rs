//! The running gateway: sessions, the catalogue of tools, the call pipeline, approvals, surfaces, upstreams. Decisions are made
//! in `policy`, records are kept in `store`, the protocol is spoken by `mcp`.

pub mod active_policy;
pub mod answer;
pub mod approval;
pub mod assemble;
mod call_log;
pub mod cards;
pub mod catalog;
pub mod catalog_refresh;
pub mod decision_wait;
pub mod demand;
pub mod failed_credentials;
mod file_paths;
pub mod http;
pub mod instructions;
pub mod limits;
pub mod members;
pub mod metrics;
mod modes;
pub mod news_queue;
pub mod notify;
pub mod own_marks;
pub mod passthrough;
pub mod pipeline;
pub mod principal;
pub mod replicas;
pub mod runs;
pub mod schema;
pub mod search;
pub mod service;
pub mod simulate;
pub mod standalone;
pub mod startup;
pub mod state;
mod suggestions;
pub mod surfaces;
pub mod tasks;
pub mod trace;
pub mod upstream_questions;
pub mod upstreams;

pub use countersign_policy::visible_text as escape;
pub use pipeline::request;

/// Whether a tool has a boolean `preview` argument of its own.
pub(crate) fn preview_argument(tool: &countersign_policy::tool::Tool) -> bool {
    let properties = tool.definition.get("inputSchema").and_then(|schema| schema.get("properties"));
    properties.is_some_and(|all| all.get("preview").is_some())
}
