//! The JSON shapes of plans, rows, tools, upstreams, grants, credentials and runs, for REST and the command line's `--json`.
//! Leaves out what must not be shown; adds nothing.

mod activity;
mod catalog;
mod grants;
mod plan;
mod policy;

pub use activity::{Activity, ActivityMetadata, activity};
pub use catalog::{
    FlipView, KnownView, PinDefinition, PinView, RunView, ToolState, ToolView, UpstreamState, UpstreamView,
    deciding_rule, explained, pin, run_view, runs_as, tool, tool_state, upstream, upstream_state, why_down,
};
pub use grants::{
    CredentialState, CredentialView, GrantState, GrantView, credential, credential_state, grant,
    grant_arguments, grant_state,
};
pub use plan::{ConfirmView, PlanView, PreviewView, StepView, plan, plan_state, step_arguments};
pub use policy::{RuleView, rules};

use jiff::Timestamp;

/// A time in UTC, to the millisecond.
pub fn exact(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
