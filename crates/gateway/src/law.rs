//! The configured law as the house holds it: read once, swapped whole on reload, never half new.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_core::config::{AgentAuth, Config};
use countersign_core::ids::FullName;
use countersign_core::intent::Strictness;
use countersign_core::mode::Mode;
use countersign_core::rules::RuleSet;

use crate::notify::Hooks;
use crate::upstreams::command::Looks;

/// What the configuration says about deciding.
#[derive(Debug)]
pub struct Law {
    /// The operator's rules.
    pub rules: RuleSet,
    /// Whether annotations that contradict the intent refuse.
    pub strictness: Strictness,
    /// The default mode.
    pub mode: Mode,
    /// The highest mode of a line without a credential.
    pub max_mode: Mode,
    /// Whether HTTP lines on this machine need a credential.
    pub agent_auth: AgentAuth,
    /// How long a confirm token lives.
    pub ttl: Duration,
    /// How long a first call waits for somebody to decide.
    pub hold: Duration,
    /// How long a call may take where no rule says.
    pub timeout: Duration,
    /// The configuration it was read from, for whoever explains it.
    pub config: Arc<Config>,
    /// Whom to tell of a plan that waits.
    pub hooks: Hooks,
    /// Where the commands of rules run.
    pub looks: Looks,
    /// Where a person decides, for `approve_url`; none without a desk.
    pub desk_url: Option<String>,
    /// Other names of our own tools.
    pub aliases: Vec<(String, &'static str)>,
    /// What should be thought of before a tool is used.
    pub suggest: HashMap<FullName, Vec<FullName>>,
}
