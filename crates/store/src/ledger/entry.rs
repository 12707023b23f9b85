//! What is to become a row: everything but its place in a chain. An entry holds no secrets: its arguments come redacted.

use std::sync::Arc;

use countersign_policy::confirm::Approval;
use countersign_policy::digest::Digest;
use countersign_policy::effect::Effect;
use countersign_policy::ids::{PlanId, PrincipalId, RequestId, SessionId, ToolName, UpstreamId};
use countersign_policy::intent::{CallToolVariant, DeclaredIntent};
use countersign_policy::mode::Mode;
use countersign_policy::plan::Plan;
use countersign_policy::record::{ActorRole, CallRecord, HostInfo, RowKind, RowStatus, Source};
use countersign_policy::refusal::Refusal;
use serde_json::{Map, Value, json};

use super::row::{Json, LedgerRow};

/// What is to become a row. Every field but `kind` and `status` may be empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub kind: RowKind,
    pub status: RowStatus,
    pub principal: Option<PrincipalId>,
    pub role: Option<ActorRole>,
    pub session: Option<SessionId>,
    pub request_id: Option<RequestId>,
    pub source: Option<Source>,
    /// JSON of a [`HostInfo`]: the program on the other end of the connection.
    pub host: Option<Json>,
    pub upstream: Option<UpstreamId>,
    pub tool: Option<ToolName>,
    pub variant: Option<CallToolVariant>,
    pub effect: Option<Effect>,
    pub mode: Option<Mode>,
    pub intent: Option<DeclaredIntent>,
    /// Arguments with secrets replaced.
    pub arguments: Option<Json>,
    /// The digest of the arguments as they were.
    pub arguments_digest: Option<Digest>,
    pub plan_id: Option<PlanId>,
    pub plan_hash: Option<Digest>,
    /// JSON of an [`Approval`].
    pub approval: Option<Json>,
    /// The code of a refusal or of a failed call.
    pub code: Option<String>,
    pub duration_us: Option<u64>,
    pub result_digest: Option<Digest>,
    /// Facts of other kinds of rows; no secrets.
    pub detail: Option<Json>,
}

impl Entry {
    pub fn new(kind: RowKind, status: RowStatus) -> Self {
        Self {
            kind,
            status,
            principal: None,
            role: None,
            session: None,
            request_id: None,
            source: None,
            host: None,
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

    pub fn of_call(record: &CallRecord, status: RowStatus) -> Self {
        Self {
            principal: Some(record.principal.clone()),
            role: Some(record.role.into()),
            session: Some(record.session.clone()),
            request_id: record.request_id.clone(),
            source: Some(record.source),
            host: record.host.as_deref().map(Json::of_host),
            upstream: Some(record.tool.upstream.clone()),
            tool: Some(record.tool.tool.clone()),
            variant: record.variant,
            effect: record.effect,
            mode: record.mode,
            intent: record.intent.clone(),
            arguments: Some(stored_arguments(&record.arguments)),
            arguments_digest: Some(record.arguments_digest),
            plan_id: record.plan_id.clone(),
            plan_hash: record.plan_hash,
            approval: record.approval.as_ref().map(approval_json),
            ..Self::new(RowKind::Call, status)
        }
    }

    /// A row about a call that was refused. The message stays out: it may quote what the call said.
    pub fn refused(record: &CallRecord, refusal: &Refusal) -> Self {
        let row = Self {
            code: Some(refusal.code.as_str().to_owned()),
            ..Self::of_call(record, RowStatus::Refused)
        };
        let row = row.with_fact("reason_code", refusal.reason_code);
        match refusal.details.get("rule").filter(|rule| rule.is_string()) {
            Some(rule) => row.with_fact("rule", rule.clone()),
            None => row,
        }
    }

    /// A row about a plan, in the name of the person or agent who acted on it.
    pub fn of_plan(
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

    /// A row about something that is neither a call nor a plan.
    pub(crate) fn about(kind: RowKind, action: &str, entity_type: &str, id: impl ToString) -> Self {
        let detail = json!({"action": action, "entity_type": entity_type, "entity_id": id.to_string()});
        Self::new(kind, RowStatus::Success).with_detail(&detail)
    }

    #[must_use]
    pub(crate) fn by(mut self, principal: &PrincipalId, role: ActorRole) -> Self {
        self.principal = Some(principal.clone());
        self.role = Some(role);
        self
    }

    /// A row about a checkpoint that could not be kept outside the store.
    pub(crate) fn not_kept_outside(why: &str) -> Self {
        Self::new(RowKind::System, RowStatus::Error)
            .with_detail(&json!({"action": "checkpoint_not_kept_outside", "why": why}))
    }

    /// Sets the program on the other end of the connection.
    pub fn set_host(&mut self, host: Option<&Arc<HostInfo>>) {
        self.host = host.map(|host| Json::of_host(host));
    }

    /// Replaces all facts.
    #[must_use]
    pub fn with_detail(mut self, detail: &Value) -> Self {
        self.detail = Some(Json::of(detail));
        self
    }

    /// Adds one fact.
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

    #[must_use]
    pub fn with_approval(mut self, approval: &Approval) -> Self {
        self.approval = Some(approval_json(approval));
        self
    }

    /// What a finished row takes over from the row that let the call out.
    pub(crate) fn repeated(row: LedgerRow, status: RowStatus) -> Self {
        Self { status, code: None, duration_us: None, result_digest: None, detail: None, ..row.entry }
    }
}

/// The longest arguments a row holds, in bytes of their canonical text.
const MOST_ARGUMENTS: usize = 64 << 10;

/// The one member of arguments that were too large for a row.
pub const OMITTED: &str = "countersign_omitted";

/// The arguments as a row holds them: larger ones by size and digest, so that no call grows the ledger by its size.
fn stored_arguments(arguments: &Value) -> Json {
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
