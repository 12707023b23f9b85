//! Tools, their pins, upstreams and runs as programs are told of them.

use countersign_core::config::{self, Config, ExplainInput, Explained, Upstream as Written, UpstreamKind};
use countersign_core::intent::Variant;
use countersign_core::rules::Field;
use countersign_gateway::catalog::{Listed, Stand};
use countersign_gateway::upstreams::{Condition, Health};
use countersign_store::{Definition, Pin, PinState, Run};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::exact;

/// A tool with what a call of it needs, and why.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
pub struct ToolView {
    /// `upstream:tool`.
    pub name: String,
    /// Its upstream.
    pub server: String,
    /// What its upstream says it does.
    pub description: String,
    /// read, write or destructive.
    pub effect: String,
    /// Why that is believed.
    pub because: Value,
    /// Which second step it needs.
    pub confirm: String,
    /// Who has to agree.
    pub strength: String,
    /// Whether a rule with a condition matches, so that arguments may change all of this.
    pub conditional: bool,
    /// The call tool that suits it.
    pub call_with: String,
    /// The rule that decided what a person would ask about first.
    pub rule: Option<String>,
    /// Why it is denied, where it is.
    pub denied: Option<String>,
    /// Who may call it, where a rule says.
    pub role: Option<String>,
    /// accepted, changed, new, withheld.
    pub pin: String,
    /// Why it is withheld: `{reason_code, why}`.
    pub withheld: Option<Value>,
    /// What is odd about it, a line each.
    pub flags: Vec<String>,
    /// What it is pinned by.
    pub fingerprint: String,
    /// How well it suits a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Its whole definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Map<String, Value>>,
}

/// Where a tool stands, in a word.
pub fn stands(listed: &Listed) -> &'static str {
    match &listed.standing {
        Stand::Accepted => "accepted",
        Stand::Changed(_) => "changed",
        Stand::Quarantined(withheld) if withheld.reason == "tool_new" => "new",
        Stand::Quarantined(_) => "withheld",
    }
}

/// What the law makes of a call of it, as far as that is known without arguments.
pub fn explained(listed: &Listed, config: &Config) -> Explained {
    let mut input = ExplainInput::of(listed.tool.full_name(), Timestamp::now());
    input.describe(&listed.tool.definition);
    config::explain(config, &input)
}

/// The rule that decided what a person would ask about first.
pub fn deciding_rule(explained: &Explained) -> Option<String> {
    let rule = |field: Field| {
        let decided = explained.decided.iter().find(|decided| decided.field == field);
        decided.and_then(|decided| decided.rule.clone())
    };
    [Field::Deny, Field::Confirm, Field::Strength, Field::Effect, Field::Role].into_iter().find_map(rule)
}

/// A tool for programs.
pub fn tool(listed: &Listed, explained: &Explained, score: Option<f64>) -> ToolView {
    let withheld = match &listed.standing {
        Stand::Quarantined(withheld) => Some(json!({"reason_code": withheld.reason, "why": withheld.why})),
        Stand::Accepted | Stand::Changed(_) => None,
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
        call_with: Variant::for_effect(listed.outlook.effect).call_tool().to_owned(),
        rule: deciding_rule(explained),
        denied: listed.outlook.denied.clone(),
        role: listed.outlook.role.map(|role| role.to_string()),
        pin: stands(listed).to_owned(),
        withheld,
        flags: listed.flags.clone(),
        fingerprint: listed.tool.fingerprint.hex(),
        score,
        definition: None,
    }
}

/// A definition and its fingerprint.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PinDefinition {
    /// What it is pinned by.
    pub fingerprint: String,
    /// The whole definition as listed.
    pub definition: Map<String, Value>,
}

/// A tool as it is pinned.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Pin")]
pub struct PinView {
    /// `upstream:tool`.
    pub name: String,
    /// accepted, pending, changed.
    pub pin: String,
    /// What was accepted.
    pub accepted: Option<PinDefinition>,
    /// What its upstream says now, where a person has to look at it.
    pub candidate: Option<PinDefinition>,
    /// When it was first seen.
    pub first_seen_at: String,
    /// When it last changed.
    pub changed_at: String,
    /// When someone accepted it.
    pub decided_at: Option<String>,
    /// Who did.
    pub decided_by: Option<String>,
}

/// A pin for programs.
pub fn pin(pin: &Pin) -> PinView {
    let of = |one: &Definition| PinDefinition {
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
    }
}

/// An upstream and how it is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Upstream")]
pub struct UpstreamView {
    /// Our name of it.
    pub name: String,
    /// How it runs, with what stands for a secret left standing.
    pub runs: String,
    /// idle, starting, up, down.
    pub state: String,
    /// Why it does not answer.
    pub why: Option<String>,
    /// How many tools may be called.
    pub tools: usize,
    /// How many are withheld.
    pub withheld: usize,
    /// How often it was restarted.
    pub restarts: u32,
    /// The era it speaks.
    pub era: Option<String>,
    /// The protocol version.
    pub protocol: Option<String>,
    /// What it calls itself.
    pub server: Option<Value>,
    /// The tail of its stderr.
    pub stderr_tail: String,
    /// The last calls' durations in microseconds, oldest first.
    pub recent_us: Vec<u64>,
}

/// How an upstream runs, with what stands for a secret left standing.
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

/// How an upstream is, in a word.
pub fn condition(health: &Health) -> &'static str {
    match health.condition {
        Condition::Idle => "idle",
        Condition::Starting => "starting",
        Condition::Up => "up",
        Condition::Down(_) => "down",
    }
}

/// Why an upstream does not answer, where it does not.
pub fn why_down(health: &Health) -> Option<String> {
    match &health.condition {
        Condition::Down(why) => Some(why.clone()),
        Condition::Starting => Some("it has not answered in time".to_owned()),
        Condition::Idle | Condition::Up => None,
    }
}

/// An upstream for programs; `counts` are its tools that may be called and those withheld.
pub fn upstream(name: &str, runs: String, health: &Health, counts: (usize, usize)) -> UpstreamView {
    UpstreamView {
        name: name.to_owned(),
        runs,
        state: condition(health).to_owned(),
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

/// A call that goes on in the background.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub struct RunView {
    /// Its id.
    pub run_id: String,
    /// `upstream:tool`.
    pub tool: String,
    /// queued, running, success, failed, cancelled, outcome_unknown.
    pub state: String,
    /// Who asked for it.
    pub principal: String,
    /// The row that let it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_id: Option<String>,
    /// What its program returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// When it began.
    pub started_at: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// The last lines it wrote.
    pub log_tail: Vec<String>,
}

/// A run for programs, with this many of its last lines.
pub fn run_view(run: &Run, tail: usize) -> RunView {
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
