//! How plans, rows, tools, upstreams, grants, credentials and runs are told to programs: the one place for REST and for the
//! command line's `--json`. Leaves out what must not be shown; adds nothing.

mod activity;
mod catalog;
mod grants;
mod plan;
mod policy;

pub use activity::{Activity, ActivityMetadata, activity};
pub use catalog::{
    PinDefinition, PinView, RunView, ToolView, UpstreamView, condition, deciding_rule, explained, pin,
    run_view, runs_as, stands, tool, upstream, why_down,
};
pub use grants::{
    CredentialView, GrantView, credential, credential_state, grant, grant_arguments, grant_state,
};
pub use plan::{ConfirmView, PlanView, PreviewView, StepView, plan, plan_state, step_arguments};
pub use policy::{RuleView, rules};

use jiff::Timestamp;

/// A moment to the millisecond, in UTC.
pub fn exact(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
