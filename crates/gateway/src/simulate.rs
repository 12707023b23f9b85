//! Replays the ledger against a policy that is not in force: what would have been decided differently. Reads rows and pins,
//! calls nothing and writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use countersign_config::{
    CallRoute, Config, DecisionChange, ExplainInput, IntentInput, PastCall, RecordedVerdict, ReplayResult,
    VerdictWord, replay,
};
use countersign_policy::call::Arguments;
use countersign_policy::ids::{FullName, LedgerId, PlanId, PrincipalId, UpstreamId};
use countersign_policy::intent::CallToolVariant;
use countersign_policy::mode::Mode;
use countersign_policy::record::{ActorRole, RowKind, RowStatus};
use countersign_policy::refusal::Code;
use countersign_policy::role::Role;
use countersign_store::ledger::{LedgerFilter, LedgerRow};
use countersign_store::{Store, StoreFault};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The upstream our own tools are recorded under: no rule speaks of them.
const OURS: &str = "countersign";

/// A call that would be decided differently, or can't be told.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayedCall {
    pub ledger_id: LedgerId,
    pub time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalId>,
    pub tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// With which arguments, as the ledger keeps them.
    pub arguments: Value,
}

#[derive(Clone, Debug, Serialize)]
pub struct ChangedDecision {
    #[serde(flatten)]
    pub call: ReplayedCall,
    /// What was decided and what would be.
    #[serde(flatten)]
    pub change: DecisionChange,
}

/// A call nobody can tell about: a rule looks at an argument that was kept out of the ledger.
#[derive(Clone, Debug, Serialize)]
pub struct Undecidable {
    #[serde(flatten)]
    pub call: ReplayedCall,
    /// The rule that looks.
    pub rule: String,
    pub redacted: Vec<String>,
}

/// What the other policy would have decided.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Simulation {
    pub replayed: u64,
    /// How many would have been decided as they were.
    pub unchanged: u64,
    /// How many were not put to it, because something else than rules decided: an unknown tool, a token, a limit.
    pub left_out: u64,
    /// Those that would have been decided differently, newest first.
    pub changes: Vec<ChangedDecision>,
    /// Calls that can't be replayed, newest first.
    pub undecidable: Vec<Undecidable>,
}

/// Replays the calls since a moment.
pub async fn simulate(
    store: &Store,
    present: &Config,
    new: &Config,
    since: Timestamp,
) -> Result<Simulation, StoreFault> {
    let mut work = SimulationRun { present, new, tools: BTreeMap::new(), done: Simulation::default() };
    let mut steps = PlanStepRows::default();
    let mut filter = LedgerFilter {
        kind: Some(RowKind::Call),
        start_time: Some(since),
        limit: Some(1000),
        ..LedgerFilter::default()
    };
    loop {
        let page = store.activity(filter.clone()).await?;
        for row in page.rows {
            match RowMeaning::of(&row) {
                RowMeaning::Decided(recorded) => work.replay(store, &row, recorded).await?,
                RowMeaning::Series => steps.belongs(row.entry.plan_id),
                RowMeaning::Step => steps.keep(row),
                RowMeaning::LeftOut => work.done.left_out += 1,
                RowMeaning::Told => {}
            }
        }
        match page.next_cursor {
            Some(cursor) => filter.cursor = Some(cursor),
            None => break,
        }
    }
    for row in steps.of_series() {
        let recorded = RecordedVerdict { verdict: VerdictWord::Hold, code: None, effect: row.effect };
        work.replay(store, &row, recorded).await?;
    }
    work.done.changes.sort_by(|one, other| other.call.ledger_id.cmp(&one.call.ledger_id));
    work.done.undecidable.sort_by(|one, other| other.call.ledger_id.cmp(&one.call.ledger_id));
    Ok(work.done)
}

enum RowMeaning {
    /// Rules decided this.
    Decided(RecordedVerdict),
    /// The row of a whole plan of several steps.
    Series,
    /// A call that ran under a plan: its decision has a row of its own, unless it is a step of several.
    Step,
    /// Something else than rules decided.
    LeftOut,
    /// Another row has this call's decision.
    Told,
}

impl RowMeaning {
    fn of(row: &LedgerRow) -> Self {
        if row.upstream.as_ref().is_none_or(|upstream| upstream.as_str() == OURS) {
            return if row.plan_id.is_some() { RowMeaning::Series } else { RowMeaning::Told };
        }
        let decided = |verdict: VerdictWord, code: Option<&str>| {
            RowMeaning::Decided(RecordedVerdict {
                verdict,
                code: code.map(str::to_owned),
                effect: row.effect,
            })
        };
        let detail = row.detail.as_ref().map(|detail| detail.value());
        let granted = row
            .approval
            .as_ref()
            .is_some_and(|approval| approval.value().get("grant").is_some_and(|grant| !grant.is_null()));
        match row.status {
            RowStatus::Pending => decided(VerdictWord::Hold, None),
            // Without the grant it would have been held.
            RowStatus::Allowed if granted => decided(VerdictWord::Hold, None),
            RowStatus::Allowed if row.plan_id.is_some() => RowMeaning::Step,
            RowStatus::Allowed => decided(VerdictWord::Go, None),
            RowStatus::Success if detail.is_some_and(|detail| detail.get("preview_digest").is_some()) => {
                decided(VerdictWord::Preview, None)
            }
            RowStatus::Success | RowStatus::Error => RowMeaning::Told,
            RowStatus::Refused => match row.code.as_deref() {
                Some(code) if code == Code::ModeAsk.as_str() && row.plan_id.is_none() => {
                    decided(VerdictWord::Explain, Some(code))
                }
                Some(code) if is_of_rules(code) => decided(VerdictWord::Refuse, Some(code)),
                Some(_) | None => RowMeaning::LeftOut,
            },
        }
    }
}

/// Codes of refusals that a change of rules can bring or take away.
fn is_of_rules(code: &str) -> bool {
    [Code::RuleDenied, Code::RuleError, Code::RoleForbidden, Code::IntentServerMismatch]
        .iter()
        .any(|of_rules| of_rules.as_str() == code)
}

/// Calls that ran under plans, until it is known which plans had several steps.
#[derive(Default)]
struct PlanStepRows {
    series: BTreeSet<PlanId>,
    kept: Vec<LedgerRow>,
}

impl PlanStepRows {
    fn belongs(&mut self, plan: Option<PlanId>) {
        self.series.extend(plan);
    }

    fn keep(&mut self, row: LedgerRow) {
        self.kept.push(row);
    }

    fn of_series(self) -> Vec<LedgerRow> {
        let Self { series, kept } = self;
        kept.into_iter()
            .filter(|row| row.plan_id.as_ref().is_some_and(|plan| series.contains(plan)))
            .collect()
    }
}

struct SimulationRun<'c> {
    present: &'c Config,
    new: &'c Config,
    /// Definitions as they are pinned, by upstream and tool.
    tools: BTreeMap<UpstreamId, BTreeMap<String, Map<String, Value>>>,
    done: Simulation,
}

impl SimulationRun<'_> {
    async fn replay(
        &mut self,
        store: &Store,
        row: &LedgerRow,
        recorded: RecordedVerdict,
    ) -> Result<(), StoreFault> {
        let Some(past) = self.past(store, row, recorded).await? else {
            self.done.left_out += 1;
            return Ok(());
        };
        self.done.replayed += 1;
        let outcome = replay(self.present, self.new, &past);
        let call = || ReplayedCall {
            ledger_id: past.id.clone(),
            time: past.time,
            principal: row.principal.clone(),
            tool: past.input.tool.to_string(),
            mode: row.mode,
            arguments: past.arguments.clone(),
        };
        match outcome {
            ReplayResult::Same => self.done.unchanged += 1,
            ReplayResult::Changed(change) => {
                self.done.changes.push(ChangedDecision { call: call(), change: *change })
            }
            ReplayResult::Undecidable { rule, arguments } => {
                self.done.undecidable.push(Undecidable { call: call(), rule, redacted: arguments });
            }
        }
        Ok(())
    }

    /// The call of a row; none where too little of it was kept.
    async fn past(
        &mut self,
        store: &Store,
        row: &LedgerRow,
        recorded: RecordedVerdict,
    ) -> Result<Option<PastCall>, StoreFault> {
        let (Some(upstream), Some(tool)) = (&row.upstream, &row.tool) else { return Ok(None) };
        if !self.tools.contains_key(upstream) {
            let pins = store.pins(upstream).await?;
            let known =
                pins.into_iter().map(|pin| (pin.tool.as_str().to_owned(), pin.pinned.definition)).collect();
            self.tools.insert(upstream.clone(), known);
        }
        let definition = self.tools.get(upstream).and_then(|tools| tools.get(tool.as_str()));
        let arguments = row.arguments.as_ref().map(|arguments| arguments.value());
        let arguments = arguments.filter(|value| !value.is_null()).unwrap_or_else(|| json!({}));
        // Arguments too large for a row can't be judged again.
        if arguments.get(countersign_store::OMITTED).is_some() {
            return Ok(None);
        }
        let parsed = Arguments::parse(arguments.to_string().as_bytes()).unwrap_or_else(|_| Arguments::none());
        let mut input =
            ExplainInput::of(FullName { upstream: upstream.clone(), tool: tool.clone() }, row.time);
        input.arguments = parsed;
        input.mode = row.mode;
        input.role = match row.role {
            Some(ActorRole::Human) => Role::Human,
            Some(ActorRole::Agent | ActorRole::Host) | None => Role::Agent,
        };
        input.way = Some(way(row.variant));
        input.intent = match &row.intent {
            Some(intent) => IntentInput::Given(members(json!(intent))),
            None => IntentInput::Missing,
        };
        if let Some(definition) = definition {
            input.describe(definition);
        }
        input.principal = row.principal.as_ref().map(|principal| principal.as_str().to_owned());
        input.session = row.session.as_ref().map(|session| session.as_str().to_owned());
        Ok(Some(PastCall { id: row.id.clone(), time: row.time, input, arguments, recorded }))
    }
}

fn way(variant: Option<CallToolVariant>) -> CallRoute {
    match variant {
        Some(CallToolVariant::Read) => CallRoute::Read,
        Some(CallToolVariant::Write) => CallRoute::Write,
        Some(CallToolVariant::Destructive) => CallRoute::Destructive,
        None => CallRoute::Direct,
    }
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
