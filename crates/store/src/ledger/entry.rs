//! What is to become a row: everything but its place in a chain. Free text is made storable here, once, for both databases.

use countersign_core::canonical;
use countersign_core::confirm::Approval;
use countersign_core::digest::Digest;
use countersign_core::effect::Effect;
use countersign_core::ids::{PlanId, PrincipalId, SessionId, ToolName, UpstreamId};
use countersign_core::intent::{DeclaredIntent, Variant};
use countersign_core::mode::Mode;
use countersign_core::plan::Plan;
use countersign_core::record::{ActorRole, CallRecord, RowKind, RowStatus, Source};
use countersign_core::refusal::Refusal;
use serde_json::{Map, Value, json};

use super::row::{Json, Row};

/// What is to become a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// What it is about.
    pub kind: RowKind,
    /// How the matter stands.
    pub status: RowStatus,
    /// Who.
    pub principal: Option<PrincipalId>,
    /// In which role.
    pub role: Option<ActorRole>,
    /// In which session.
    pub session: Option<SessionId>,
    /// Through which door.
    pub source: Option<Source>,
    /// Of which upstream.
    pub upstream: Option<UpstreamId>,
    /// Which tool.
    pub tool: Option<ToolName>,
    /// Through which call tool.
    pub variant: Option<Variant>,
    /// What the tool does.
    pub effect: Option<Effect>,
    /// The mode in force.
    pub mode: Option<Mode>,
    /// What was declared.
    pub intent: Option<DeclaredIntent>,
    /// Arguments with secrets replaced.
    pub arguments: Option<Json>,
    /// The digest of the arguments as they were.
    pub arguments_digest: Option<Digest>,
    /// The plan.
    pub plan_id: Option<PlanId>,
    /// The plan's hash.
    pub plan_hash: Option<Digest>,
    /// Who agreed, as JSON of an [`Approval`].
    pub approval: Option<Json>,
    /// The code of a refusal or of a failed call.
    pub code: Option<String>,
    /// How long the call took.
    pub duration_us: Option<u64>,
    /// The digest of what came back.
    pub result_digest: Option<Digest>,
    /// Facts of other kinds of rows; no secrets.
    pub detail: Option<Json>,
}

impl Entry {
    /// A row of a kind, empty so far.
    pub fn new(kind: RowKind, status: RowStatus) -> Self {
        Self {
            kind,
            status,
            principal: None,
            role: None,
            session: None,
            source: None,
            upstream: None,
            tool: None,
            variant: None,
            effect: None,
            mode: None,
            intent: None,
            arguments: None,
            arguments_digest: None,
            plan_id: None,
            plan_hash: None,
            approval: None,
            code: None,
            duration_us: None,
            result_digest: None,
            detail: None,
        }
    }

    /// A row about a call.
    pub fn of_call(record: &CallRecord, status: RowStatus) -> Self {
        Self {
            principal: Some(record.principal.clone()),
            role: Some(record.role.into()),
            session: Some(record.session.clone()),
            source: Some(record.source),
            upstream: Some(record.tool.upstream.clone()),
            tool: Some(record.tool.tool.clone()),
            variant: record.variant,
            effect: record.effect,
            mode: record.mode,
            intent: record.intent.clone(),
            arguments: Some(kept_arguments(&record.arguments)),
            arguments_digest: Some(record.arguments_digest),
            plan_id: record.plan_id.clone(),
            plan_hash: record.plan_hash,
            approval: record.approval.as_ref().map(approval_json),
            ..Self::new(RowKind::Call, status)
        }
    }

    /// A row about a call that was refused. The message stays out: it may quote what the call said.
    pub fn refused(record: &CallRecord, refusal: &Refusal) -> Self {
        let mut detail = Map::new();
        detail.insert("reason_code".into(), refusal.reason_code.into());
        if let Some(rule) = refusal.details.get("rule").filter(|rule| rule.is_string()) {
            detail.insert("rule".into(), rule.clone());
        }
        Self {
            code: Some(refusal.code.as_str().to_owned()),
            detail: Some(Json::of(&Value::Object(detail))),
            ..Self::of_call(record, RowStatus::Refused)
        }
    }

    /// A row about a plan, in the name of whoever acted on it.
    pub(crate) fn of_plan(
        kind: RowKind,
        plan: &Plan,
        action: &str,
        by: Option<&PrincipalId>,
        role: Option<ActorRole>,
    ) -> Self {
        let detail = json!({
            "action": action,
            "entity_type": "plan",
            "entity_id": plan.id,
            "requested_by": plan.principal,
            "requested_in": plan.session,
        });
        Self {
            principal: by.cloned(),
            role,
            upstream: Some(plan.tool.upstream.clone()),
            tool: Some(plan.tool.tool.clone()),
            variant: plan.variant,
            effect: Some(plan.effect),
            intent: plan.intent.clone().map(Into::into),
            arguments_digest: Some(plan.recorded_digest()),
            plan_id: Some(plan.id.clone()),
            plan_hash: Some(plan.hash),
            detail: Some(Json::of(&detail)),
            ..Self::new(kind, RowStatus::Success)
        }
    }

    /// A row about a checkpoint that could not be kept outside the store.
    pub(crate) fn not_kept_outside(why: &str) -> Self {
        let why = storable(why);
        Self::new(RowKind::System, RowStatus::Error)
            .with_detail(&json!({"action": "checkpoint_not_kept_outside", "why": why}))
    }

    /// The same entry with facts.
    #[must_use]
    pub fn with_detail(mut self, detail: &Value) -> Self {
        self.detail = Some(Json::of(detail));
        self
    }

    /// The same entry with one more fact.
    #[must_use]
    pub fn with_fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        let mut detail = match self.detail.take().map(|detail| detail.value()) {
            Some(Value::Object(members)) => members,
            Some(_) | None => Map::new(),
        };
        detail.insert(name.to_owned(), value.into());
        self.detail = Some(Json::of(&Value::Object(detail)));
        self
    }

    /// The same entry with an approval.
    #[must_use]
    pub fn with_approval(mut self, approval: &Approval) -> Self {
        self.approval = Some(approval_json(approval));
        self
    }

    /// What a finished row takes over from the row that let the call out.
    pub(crate) fn again(row: Row, status: RowStatus) -> Self {
        Self {
            kind: row.kind,
            status,
            principal: row.principal,
            role: row.role,
            session: row.session,
            source: row.source,
            upstream: row.upstream,
            tool: row.tool,
            variant: row.variant,
            effect: row.effect,
            mode: row.mode,
            intent: row.intent,
            arguments: row.arguments,
            arguments_digest: row.arguments_digest,
            plan_id: row.plan_id,
            plan_hash: row.plan_hash,
            approval: row.approval,
            code: None,
            duration_us: None,
            result_digest: None,
            detail: None,
        }
    }
}

/// The longest arguments a row holds, in bytes of their canonical text.
const MOST_ARGUMENTS: usize = 64 << 10;

/// The one member of arguments that were too large for a row.
pub const OMITTED: &str = "countersign_omitted";

/// The arguments as a row holds them: larger ones by size and digest, so that no call grows the ledger by its size.
fn kept_arguments(arguments: &Value) -> Json {
    let kept = Json::of(arguments);
    let size = kept.text().len();
    if size <= MOST_ARGUMENTS {
        return kept;
    }
    let digest = Digest::plain(kept.text().as_bytes());
    Json::of(&json!({OMITTED: {"size": size, "sha256": digest.hex()}}))
}

fn approval_json(approval: &Approval) -> Json {
    // An approval is names and words: it always has a JSON form.
    Json::of(&serde_json::to_value(approval).unwrap_or(Value::Null))
}

/// PostgreSQL keeps no U+0000 in text: its visible sign stands for it, in both databases alike.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{2400}")
}

/// The canonical text of a value; never holds U+0000, which JSON writes as an escape.
pub(super) fn canonical_text(value: &Value) -> String {
    canonical::to_string(value)
}
