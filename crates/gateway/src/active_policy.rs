//! The policy in force: built once from the configuration, and replaced as a whole on reload.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_config::{AgentAuth, Config};
use countersign_policy::ids::FullName;
use countersign_policy::intent::IntentStrictness;
use countersign_policy::mode::Mode;
use countersign_policy::rules::RuleSet;

use crate::notify::Hooks;
use crate::upstreams::command::PreviewRunner;

#[derive(Debug)]
pub struct ActivePolicy {
    pub rules: RuleSet,
    /// Whether annotations that contradict the intent refuse.
    pub strictness: IntentStrictness,
    pub mode: Mode,
    /// The highest mode of a connection without a credential.
    pub max_mode: Mode,
    /// Whether HTTP callers on this machine need a credential.
    pub agent_auth: AgentAuth,
    /// The life of a confirm token.
    pub ttl: Duration,
    /// How long a call is held open.
    pub hold: Duration,
    /// Answers of a host's dialog that come faster than this are a program's.
    pub automatic_below: Duration,
    /// How long a call may take where no rule says.
    pub timeout: Duration,
    /// The configuration it was built from, for explanations.
    pub config: Arc<Config>,
    /// Who is notified of pending plans.
    pub(crate) hooks: Hooks,
    /// Runs the preview commands of rules.
    pub(crate) looks: PreviewRunner,
    /// The address of the approvals page, for `approve_url`.
    pub desk_url: Option<String>,
    /// The person's home: paths below it are shown with `~`.
    pub home: Option<String>,
    /// Aliases of our own tools.
    pub aliases: Vec<(String, &'static str)>,
    /// Tools to suggest before another one.
    pub suggest: HashMap<FullName, Vec<FullName>>,
    /// Whether calls are held even where a grant would let them run.
    pub ignores_grants: bool,
}
