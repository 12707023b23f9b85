//! Tools, pins, upstreams and background runs as REST and `--json` return them.

use countersign_config::{
    self as config, Config, ExplainInput, PolicyExplanation, Upstream as Written, UpstreamKind,
};
use countersign_gateway::catalog::{Listed, ToolStanding};
use countersign_gateway::upstreams::{Condition, UpstreamHealth};
use countersign_policy::intent::CallToolVariant;
use countersign_policy::rules::RuleField;
use countersign_policy::words::words;
use countersign_store::{BackgroundRun, KnownDefinition, PinState, ToolDefinition, ToolPin};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::exact;

/// A tool, what a call of it needs, and why.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
pub struct ToolView {
    /// `upstream:tool`.
    pub name: String,
    /// The upstream.
    pub server: String,
    /// As the upstream lists it.
    pub description: String,
    /// read, write or destructive
    pub effect: String,
    /// Why it has this effect.
    pub because: Value,
    /// The kind of confirmation: none, simple, preview, type.
    pub confirm: String,
    /// Who has to approve: caller, host, human.
    pub strength: String,
    /// Whether a rule with a condition matches: the arguments of a call may change all of this.
    pub conditional: bool,
    /// The call tool for its effect.
    pub call_with: String,
    /// The rule behind its most important setting.
    pub rule: Option<String>,
    /// Why a rule denies it.
    pub denied: Option<String>,
    /// Who may call it, if a rule limits that.
    pub role: Option<String>,
    /// accepted, changed, new, withheld
    pub pin: String,
    /// Why it is withheld: `{reason_code, why}`.
    pub withheld: Option<Value>,
    /// Warnings about its definition.
    pub flags: Vec<String>,
    /// The digest of its definition.
    pub fingerprint: String,
    /// Set if its definition is one of several known ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flips: Option<FlipView>,
    /// The rank in a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Map<String, Value>>,
}

/// A tool whose upstream alternates between definitions that were all accepted.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolFlips")]
pub struct FlipView {
    /// How many definitions are known.
    pub known: usize,
    /// Whether they were accepted as a set; otherwise `POST /tools/{name}/approve {known: true}` does that.
    pub accepted: bool,
}

words! {
    /// Whether a tool's definition was accepted.
    pub enum ToolState("tool state") {
        Accepted = "accepted",
        New = "new",
        Changed = "changed",
        Withheld = "withheld",
    }
}

pub fn tool_state(listed: &Listed) -> ToolState {
    match &listed.standing {
        ToolStanding::Accepted => ToolState::Accepted,
        ToolStanding::Changed(_) => ToolState::Changed,
        ToolStanding::Quarantined(withheld) if withheld.reason == "tool_new" => ToolState::New,
        ToolStanding::Quarantined(_) => ToolState::Withheld,
    }
}

/// Explains a call of the tool, as far as the policy decides without arguments.
pub fn explained(listed: &Listed, config: &Config) -> PolicyExplanation {
    let mut input = ExplainInput::of(listed.tool.full_name(), Timestamp::now());
    input.describe(&listed.tool.definition);
    config::explain(config, &input)
}

/// The rule behind the most important setting of a tool.
pub fn deciding_rule(explained: &PolicyExplanation) -> Option<String> {
    let rule = |field: RuleField| {
        let decided = explained.decided.iter().find(|decided| decided.field == field);
        decided.and_then(|decided| decided.rule.clone())
    };
    [RuleField::Deny, RuleField::Confirm, RuleField::Strength, RuleField::Effect, RuleField::Role]
        .into_iter()
        .find_map(rule)
}

pub fn tool(listed: &Listed, explained: &PolicyExplanation, score: Option<f64>) -> ToolView {
    let withheld = match &listed.standing {
        ToolStanding::Quarantined(withheld) => {
            Some(json!({"reason_code": withheld.reason, "why": withheld.why}))
        }
        ToolStanding::Accepted | ToolStanding::Changed(_) => None,
    };
    ToolView {
        name: listed.tool.full_name().to_string(),
        server: listed.tool.upstream.to_string(),
        description: listed.tool.description().to_owned(),
        effect: listed.outlook.effect.to_string(),
        because: json!(listed.outlook.because),
        confirm: listed.outlook.kind.to_string(),
        strength: listed.outlook.strength.to_string(),
        conditional: listed.outlook.conditional,
        call_with: CallToolVariant::for_effect(listed.outlook.effect).call_tool().to_owned(),
        rule: deciding_rule(explained),
        denied: listed.outlook.denied.clone(),
        role: listed.outlook.role.map(|role| role.to_string()),
        pin: tool_state(listed).to_string(),
        withheld,
        flags: listed.flags.clone(),
        fingerprint: listed.tool.fingerprint.hex(),
        flips: listed.flips.map(|flips| FlipView { known: flips.known, accepted: flips.is_set }),
        score,
        definition: None,
    }
}

/// A definition and its fingerprint.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PinDefinition {
    /// The digest of its definition.
    pub fingerprint: String,
    pub definition: Map<String, Value>,
}

/// A definition that was accepted at some time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "KnownDefinition")]
pub struct KnownView {
    /// The digest of its definition.
    pub fingerprint: String,
    pub definition: Map<String, Value>,
    /// The last time.
    pub accepted_at: String,
    /// Null if it was trusted on first use.
    pub accepted_by: Option<String>,
    /// Whether it belongs to the set that a person accepted.
    pub in_set: bool,
}

/// The pinned definition of a tool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Pin")]
pub struct PinView {
    /// `upstream:tool`.
    pub name: String,
    /// accepted, pending, changed
    pub pin: String,
    pub accepted: Option<PinDefinition>,
    /// The definition that waits for a person.
    pub candidate: Option<PinDefinition>,
    pub first_seen_at: String,
    pub changed_at: String,
    pub decided_at: Option<String>,
    pub decided_by: Option<String>,
    /// Whether the waiting definition was accepted before: the tool flips between known definitions.
    pub accepted_before: bool,
    /// All known definitions, newest first, if there are two or more: they can be accepted as a set.
    pub known: Vec<KnownView>,
}

pub fn pin(pin: &ToolPin) -> PinView {
    let of = |one: &ToolDefinition| PinDefinition {
        fingerprint: one.fingerprint.hex(),
        definition: one.definition.clone(),
    };
    let now = pin.candidate.as_ref().unwrap_or(&pin.pinned);
    PinView {
        name: format!("{}:{}", pin.upstream, pin.tool),
        pin: pin.state.as_str().to_owned(),
        accepted: (pin.state != PinState::Pending).then(|| of(&pin.pinned)),
        candidate: (pin.state != PinState::Accepted).then(|| of(now)),
        first_seen_at: exact(pin.first_seen),
        changed_at: exact(pin.changed),
        decided_at: pin.decided.map(exact),
        decided_by: pin.decided_by.as_ref().map(ToString::to_string),
        accepted_before: pin.flipped_to().is_some(),
        known: pin.offered_set().iter().map(known_view).collect(),
    }
}

fn known_view(known: &KnownDefinition) -> KnownView {
    KnownView {
        fingerprint: known.definition.fingerprint.hex(),
        definition: known.definition.definition.clone(),
        accepted_at: exact(known.accepted),
        accepted_by: known.accepted_by.as_ref().map(ToString::to_string),
        in_set: known.in_set,
    }
}

/// An upstream and its health.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Upstream")]
pub struct UpstreamView {
    /// The name in the configuration.
    pub name: String,
    /// Its command or address; references to secrets are not resolved.
    pub runs: String,
    /// idle, starting, up, down
    pub state: String,
    /// Why it is not up.
    pub why: Option<String>,
    /// How many of its tools may be called.
    pub tools: usize,
    /// How many of its tools are withheld.
    pub withheld: usize,
    pub restarts: u32,
    /// The era of its protocol: legacy or modern.
    pub era: Option<String>,
    /// The negotiated protocol version.
    pub protocol: Option<String>,
    /// Its `serverInfo`.
    pub server: Option<Value>,
    pub stderr_tail: String,
    /// Durations of the last calls in microseconds, oldest first.
    pub recent_us: Vec<u64>,
}

/// The command or address of an upstream; references to secrets are not resolved.
pub fn runs_as(written: &Written) -> String {
    match &written.kind {
        UpstreamKind::Stdio { command, args, .. } => {
            let words: Vec<String> = std::iter::once(command).chain(args).map(|word| word.shown()).collect();
            words.join(" ")
        }
        UpstreamKind::Http { url, .. } => url.shown(),
        UpstreamKind::Command { tools, .. } => match tools.len() {
            1 => "1 command tool".to_owned(),
            many => format!("{many} command tools"),
        },
        UpstreamKind::Native { kind, .. } => format!("native {kind}"),
    }
}

words! {
    /// Whether an upstream answers.
    pub enum UpstreamState("upstream state") {
        Idle = "idle",
        Starting = "starting",
        Up = "up",
        Down = "down",
    }
}

pub fn upstream_state(health: &UpstreamHealth) -> UpstreamState {
    match health.condition {
        Condition::Idle => UpstreamState::Idle,
        Condition::Starting => UpstreamState::Starting,
        Condition::Up => UpstreamState::Up,
        Condition::Down(_) => UpstreamState::Down,
    }
}

pub fn why_down(health: &UpstreamHealth) -> Option<String> {
    match &health.condition {
        Condition::Down(why) => Some(why.clone()),
        Condition::Starting => Some("it has not answered in time".to_owned()),
        Condition::Idle | Condition::Up => None,
    }
}

/// `counts` are the tools that may be called and those withheld.
pub fn upstream(name: &str, runs: String, health: &UpstreamHealth, counts: (usize, usize)) -> UpstreamView {
    UpstreamView {
        name: name.to_owned(),
        runs,
        state: upstream_state(health).to_string(),
        why: why_down(health),
        tools: counts.0,
        withheld: counts.1,
        restarts: health.restarts,
        era: health.era.map(str::to_owned),
        protocol: health.version.clone(),
        server: health.server_info.clone(),
        stderr_tail: health.stderr_tail.clone(),
        recent_us: health.recent_us.clone(),
    }
}

/// A call that runs in the background.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub struct RunView {
    pub run_id: String,
    /// `upstream:tool`.
    pub tool: String,
    /// queued, running, success, failed, cancelled, outcome_unknown
    pub state: String,
    pub principal: String,
    /// The row of its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    pub started_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    pub log_tail: Vec<String>,
}

/// A run with at most `tail` of its last lines.
pub fn run_view(run: &BackgroundRun, tail: usize) -> RunView {
    let skipped = run.log_tail.len().saturating_sub(tail);
    RunView {
        run_id: run.id.to_string(),
        tool: run.tool.clone(),
        state: run.state.as_str().to_owned(),
        principal: run.principal.to_string(),
        ledger_id: run.ledger_id.as_ref().map(ToString::to_string),
        exit_code: run.exit_code,
        started_at: run.started.to_string(),
        ended_at: run.ended.map(|ended| ended.to_string()),
        log_tail: run.log_tail.iter().skip(skipped).cloned().collect(),
    }
}
