//! The running gateway: sessions, the catalogue of tools, the call pipeline, approvals, surfaces, upstreams. Decisions are made
//! in `policy`, records are kept in `store`, the protocol is spoken by `mcp`.

mod active_policy;
pub mod answer;
pub mod approval;
pub mod assemble;
mod call_log;
mod cards;
pub mod catalog;
pub mod catalog_refresh;
mod decision_wait;
mod demand;
pub mod failed_credentials;
mod file_paths;
pub mod http;
mod instructions;
mod limits;
mod members;
mod metrics;
mod modes;
mod news_queue;
mod notify;
mod own_marks;
mod passthrough;
mod pipeline;
pub mod principal;
pub mod replicas;
pub mod runs;
pub mod schema;
pub mod search;
pub mod service;
pub mod simulate;
pub mod standalone;
mod startup;
pub mod state;
mod suggestions;
pub mod surfaces;
mod tasks;
pub mod trace;
mod upstream_questions;
pub mod upstreams;

pub use countersign_policy::visible_text as escape;
pub use pipeline::approve_and_run::run_approved;
pub use pipeline::request;

/// Whether a tool has a boolean `preview` argument of its own.
pub(crate) fn preview_argument(tool: &countersign_policy::tool::Tool) -> bool {
    let properties = tool.definition.get("inputSchema").and_then(|schema| schema.get("properties"));
    properties.is_some_and(|all| all.get("preview").is_some())
}
