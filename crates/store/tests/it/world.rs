//! A small world to judge calls in: one upstream, its tools, a caller. Permits come from the gate and from nowhere else.

use std::sync::Arc;

use countersign_policy::call::{Arguments, Caller, CallerScopes, CatalogStatus, ToolCall};
use countersign_policy::confirm::{ApprovalStrength, ConfirmInput, Kind, PendingPlan};
use countersign_policy::digest::Digest;
use countersign_policy::gate::{
    CallDraft, NoLimits, NoSchema, Permit, PolicySnapshot, Verdict, WriteStatus, judge, token_digest,
};
use countersign_policy::grant::Grant;
use countersign_policy::ids::{FullName, PlanId};
use countersign_policy::intent::{CallEntryPoint, CallToolVariant, IntentStrictness, UncheckedIntent};
use countersign_policy::mode::Mode;
use countersign_policy::plan::Plan;
use countersign_policy::profile::StrengthDefaults;
use countersign_policy::record::{CallRecord, Source};
use countersign_policy::redact::Redactor;
use countersign_policy::role::Role;
use countersign_policy::rules::{Rule, RuleSet, UnlistedToolPolicy};
use countersign_policy::tool::Tool;
use countersign_store::{Holding, Store};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Seconds after a fixed moment.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// How long plans and tokens live here, in seconds.
pub(crate) const LIFE: i64 = 300;

pub(crate) fn tool(name: &str) -> Arc<Tool> {
    let read_only = name.starts_with("get");
    let definition = json!({
        "name": name, "description": "a tool", "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": read_only},
    });
    Arc::new(Tool::read("files".into(), definition.as_object().unwrap().clone()).unwrap())
}

/// A call through the call tool that fits.
pub(crate) fn call(principal: &str, name: &str, arguments: &str, brought: ConfirmInput) -> ToolCall {
    let tool = tool(name);
    let variant = match name {
        _ if name.starts_with("get") => CallToolVariant::Read,
        _ if name.starts_with("delete") => CallToolVariant::Destructive,
        _ => CallToolVariant::Write,
    };
    let said = json!({"intent": {"operation_type": variant.operation(), "reason": "because"}});
    ToolCall {
        caller: Caller {
            principal: principal.into(),
            credential: None,
            role: Role::Agent,
            session: "s1".into(),
            request_id: Some("req_0123456789abcdef".into()),
            source: Source::Mcp,
            host: None,
            scopes: CallerScopes::all(),
        },
        name: FullName::new("files", name),
        catalog_status: CatalogStatus::Accepted(tool),
        arguments: Arguments::parse(arguments.as_bytes()).unwrap(),
        entry_point: CallEntryPoint::Router(variant),
        intent: UncheckedIntent::read(said.as_object().unwrap()).unwrap(),
        mode: None,
        confirm_input: brought,
    }
}

fn rules() -> RuleSet {
    let mut free = Rule::named("free", &["files:free_*"]);
    free.confirm = Some(Kind::None);
    // The store is tested with plans that need no more than their token.
    let strengths = StrengthDefaults { write: Some(ApprovalStrength::Caller), ..StrengthDefaults::default() };
    RuleSet::compile(vec![free], UnlistedToolPolicy::Govern).unwrap().with_strengths(strengths)
}

/// Judges in execute mode.
pub(crate) fn verdict(
    call: ToolCall,
    held: Option<&PendingPlan>,
    grants: &[Grant],
    now: Timestamp,
) -> Verdict {
    verdict_under(&rules(), b"salt", call, held, grants, now)
}

fn verdict_under(
    rules: &RuleSet,
    key: &[u8],
    call: ToolCall,
    held: Option<&PendingPlan>,
    grants: &[Grant],
    now: Timestamp,
) -> Verdict {
    let law = PolicySnapshot {
        rules,
        strictness: IntentStrictness::Strict,
        configured_mode: Mode::Execute,
        session_mode: None,
        pending_plan: held,
        grants,
        usage: &NoLimits,
        writes: WriteStatus::Open,
        schema: &NoSchema,
        redactor: &Redactor::new(key),
    };
    judge(call, &law, now)
}

/// A permit that needs no plan: a read, or a write that a rule lets through.
pub(crate) fn permit_at_once(name: &str, arguments: &str, now: Timestamp) -> Permit {
    match verdict(call("agent", name, arguments, ConfirmInput::default()), None, &[], now) {
        Verdict::Go(permit) => permit,
        other => panic!("{other:?}"),
    }
}

/// A permit that rests on a grant.
pub(crate) fn permit_granted(grant: &Grant, arguments: &str, now: Timestamp) -> Option<Permit> {
    match verdict(
        call("agent", "write_it", arguments, ConfirmInput::default()),
        None,
        std::slice::from_ref(grant),
        now,
    ) {
        Verdict::Go(permit) => Some(permit),
        _ => None,
    }
}

/// Phase 1 as far as the store: a draft that has to be held.
pub(crate) fn draft(principal: &str, name: &str, arguments: &str, now: Timestamp) -> CallDraft {
    match verdict(call(principal, name, arguments, ConfirmInput::default()), None, &[], now) {
        Verdict::Hold(draft) => draft,
        other => panic!("{other:?}"),
    }
}

fn hiding(paths: &[&str]) -> RuleSet {
    let mut hides = Rule::named("hides", &["files:*"]);
    hides.redact = paths.iter().map(|path| (*path).to_owned()).collect();
    RuleSet::compile(vec![hides], UnlistedToolPolicy::Govern).unwrap()
}

/// The permit for a token of a plan that was drafted so.
pub(crate) async fn permit_redacting(
    store: &Store,
    token: &str,
    arguments: &str,
    paths: &[&str],
    now: Timestamp,
) -> Permit {
    let held = store.held(token_digest(token)).await.unwrap().expect("the token is known");
    let brought = ConfirmInput { token: Some(token.into()), yes: Some(true), text: None };
    let call = call("agent", held.plan.tool.tool.as_str(), arguments, brought);
    match verdict_under(&hiding(paths), store.salt(), call, Some(&held), &[], now) {
        Verdict::Redeem(redemption) => redemption.settle(None).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The same under a rule that keeps arguments out of records.
pub(crate) fn draft_redacting(
    name: &str,
    arguments: &str,
    paths: &[&str],
    key: &[u8],
    now: Timestamp,
) -> CallDraft {
    let rules = hiding(paths);
    match verdict_under(&rules, key, call("agent", name, arguments, ConfirmInput::default()), None, &[], now)
    {
        Verdict::Hold(draft) => draft,
        other => panic!("{other:?}"),
    }
}

/// A plan of its own id for a draft.
pub(crate) fn freeze(draft: &CallDraft, id: u128, now: Timestamp) -> (Plan, CallRecord) {
    let life = std::time::Duration::from_secs(LIFE.unsigned_abs());
    let plan = draft.freeze(PlanId::mint(now, id), draft.computed_preview(), now, life);
    (plan, draft.record.clone())
}

/// A call held under a token, without looking at the outcome.
pub(crate) async fn hold_as(
    store: &Store,
    who: &str,
    what: (&str, &str),
    token: &str,
    now: Timestamp,
) -> Result<Holding, countersign_store::HoldRefused> {
    let draft = draft(who, what.0, what.1, now);
    let (plan, record) = freeze(&draft, hash_number(token), now);
    let expires = now.checked_add(SignedDuration::from_secs(LIFE)).unwrap();
    store.hold(&plan, token_digest(token), expires, record, now).await
}

/// A write held under a token.
pub(crate) async fn hold(store: &Store, token: &str, number: u64, now: Timestamp) -> Holding {
    let arguments = json!({"number": number}).to_string();
    hold_as(store, "agent", ("write_it", &arguments), token, now).await.unwrap()
}

fn hash_number(text: &str) -> u128 {
    let digest = Digest::plain(text.as_bytes());
    u128::from_le_bytes(digest.bytes()[..16].try_into().unwrap())
}

/// Phase 2: the permit for a call that brings its token back, as the gate gives it.
pub(crate) fn redeem(held: &PendingPlan, token: &str, now: Timestamp) -> Result<Permit, String> {
    let plan = &held.plan;
    let brought = ConfirmInput { token: Some(token.into()), yes: Some(true), text: None };
    let call = call(plan.principal.as_str(), plan.tool.tool.as_str(), plan.arguments.canonical(), brought);
    match verdict(call, Some(held), &[], now) {
        Verdict::Redeem(redemption) => redemption.settle(None).map_err(|refused| refused.refusal.to_string()),
        Verdict::Refuse(refused) => Err(refused.refusal.to_string()),
        other => panic!("{other:?}"),
    }
}

/// The permit for a token of the store.
pub(crate) async fn permit_for(store: &Store, token: &str, now: Timestamp) -> Permit {
    let held = store.held(token_digest(token)).await.unwrap().expect("the token is known");
    redeem(&held, token, now).unwrap()
}

/// What the ledger keeps of a call.
pub(crate) fn record(arguments: &Value, now: Timestamp) -> CallRecord {
    permit_at_once("free_it", &arguments.to_string(), now).record().clone()
}
