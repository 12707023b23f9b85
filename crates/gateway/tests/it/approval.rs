//! The one decider: every channel through the same table of cases, on a real store and without a gateway.

use countersign_gateway::approval::grants::{GrantLimit, GrantTerms, LONGEST_LIFE, MOST_USES};
use countersign_gateway::approval::{ApprovalChannel, ApprovalInput, PlanDecider};
use countersign_policy::call::{Arguments, Caller, CallerScopes, HostVouching};
use countersign_policy::confirm::{ApprovalStrength, ConfirmRequirement, Kind, PlanState, RecordedChannel};
use countersign_policy::digest::Digest;
use countersign_policy::effect::Effect;
use countersign_policy::ids::{PlanId, PrincipalId};
use countersign_policy::intent::CallToolVariant;
use countersign_policy::plan::{Plan, Preview, PreviewSource};
use countersign_policy::record::{ActorRole, CallRecord, RowKind, RowStatus, Source};
use countersign_policy::role::Role;
use countersign_store::{ConnectOptions, LedgerFilter, ShownPlan, Store, StoreUrl};
use jiff::{Timestamp, ToSpan as _};
use serde_json::json;

/// A channel, and what the audit log says of its decisions.
const CHANNELS: [(ApprovalChannel, RecordedChannel, Source, ActorRole); 5] = [
    (ApprovalChannel::Page, RecordedChannel::Page, Source::Page, ActorRole::Human),
    (ApprovalChannel::Rest, RecordedChannel::Page, Source::Api, ActorRole::Human),
    (ApprovalChannel::CommandLine, RecordedChannel::Cli, Source::Cli, ActorRole::Human),
    (ApprovalChannel::Card(HostVouching::Allowed), RecordedChannel::Card, Source::Mcp, ActorRole::Host),
    (
        ApprovalChannel::Elicitation(HostVouching::Allowed),
        RecordedChannel::Elicitation,
        Source::Mcp,
        ActorRole::Host,
    ),
];

/// What is wrong with an approval.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    Nothing,
    OtherHash,
    ShownTimeOver,
    DecidedAlready,
    LongNote,
    TimeOver,
}

/// A case: the plan's kind, the flaw, the typed text, and the code and reason that people's channels and hosts' channels get.
type Case = (&'static str, Kind, Flaw, Option<&'static str>, [Option<(&'static str, &'static str)>; 2]);

const CHANGED: Option<(&str, &str)> = Some(("E_PLAN_DECIDED", "plan_changed"));
const EXPIRED: Option<(&str, &str)> = Some(("E_PLAN_DECIDED", "plan_expired"));
const PENDING: Option<(&str, &str)> = Some(("E_APPROVAL_PENDING", "approval_pending"));
const MISTYPED: Option<(&str, &str)> = Some(("E_CONFIRM_TEXT_MISMATCH", "confirm_text_mismatch"));
const MISSING: Option<(&str, &str)> = Some(("E_CONFIRM_TEXT_MISMATCH", "confirm_text_required"));

const CASES: [Case; 10] = [
    ("approve", Kind::Preview, Flaw::Nothing, None, [None, None]),
    ("other_hash", Kind::Preview, Flaw::OtherHash, None, [CHANGED, CHANGED]),
    ("shown_expiry", Kind::Preview, Flaw::ShownTimeOver, None, [EXPIRED, EXPIRED]),
    ("decided", Kind::Preview, Flaw::DecidedAlready, None, [Some(("E_PLAN_DECIDED", "plan_decided")); 2]),
    ("note", Kind::Preview, Flaw::LongNote, None, [Some(("E_ARGUMENTS_INVALID", "arguments_invalid")); 2]),
    ("typed", Kind::Type, Flaw::Nothing, Some("Prod-1"), [None, PENDING]),
    ("mistyped", Kind::Type, Flaw::Nothing, Some("prod-1"), [MISTYPED, PENDING]),
    ("not_typed", Kind::Type, Flaw::Nothing, None, [MISSING, PENDING]),
    ("typed_other_hash", Kind::Type, Flaw::OtherHash, Some("prod-1"), [CHANGED, CHANGED]),
    // Last: it is decided in the future, and the store's clock does not go back.
    ("expired", Kind::Preview, Flaw::TimeOver, None, [EXPIRED, EXPIRED]),
];

fn plan(id: &str, kind: Kind) -> Plan {
    let now = Timestamp::now();
    let typed = (kind == Kind::Type).then(|| "Prod-1".to_owned());
    let strength = if kind == Kind::Type { ApprovalStrength::Human } else { ApprovalStrength::Host };
    Plan {
        id: PlanId::new(format!("pln_{id}")),
        hash: Digest::plain(id.as_bytes()),
        principal: "bot".into(),
        credential: None,
        role: Role::Agent,
        session: "s1".into(),
        host: None,
        tool: "infra:wipe".parse().unwrap(),
        fingerprint: Digest::plain(b"definition"),
        meta: None,
        preview: Preview::new(PreviewSource::Computed, json!({"summary": "it would be gone"}), &json!(id)),
        policy_digest: Digest::plain(b"policy"),
        effect: Effect::Destructive,
        requirement: ConfirmRequirement { kind, strength, typed },
        variant: Some(CallToolVariant::Destructive),
        intent: None,
        rule: None,
        redact: Vec::new(),
        hidden: None,
        steps: Vec::new(),
        created: now,
        expires: now + 5.minutes(),
        arguments: Arguments::parse(br#"{"workspace":"Prod-1"}"#).unwrap(),
    }
}

async fn hold(store: &Store, plan: &Plan) {
    let caller = Caller {
        principal: plan.principal.clone(),
        credential: None,
        role: Role::Agent,
        session: plan.session.clone(),
        source: Source::Mcp,
        scopes: CallerScopes::all(),
        host: None,
        request_id: None,
    };
    let record =
        CallRecord::unread(&caller, plan.tool.clone(), plan.variant, plan.arguments.text().as_bytes());
    store
        .hold(plan, Digest::plain(plan.id.as_str().as_bytes()), plan.expires, record, plan.created)
        .await
        .unwrap();
}

async fn approve(
    decider: &PlanDecider<'_>,
    plan: &Plan,
    flaw: Flaw,
    typed: Option<&str>,
) -> Option<(String, String)> {
    let long = "n".repeat(4001);
    let mut now = Timestamp::now();
    let mut input = ApprovalInput { typed, ..ApprovalInput::of(ShownPlan::from(plan)) };
    match flaw {
        Flaw::Nothing => {}
        Flaw::OtherHash => input.shown.hash = Digest::plain(b"another plan"),
        Flaw::ShownTimeOver => input.shown.expires = now - 1.second(),
        Flaw::DecidedAlready => drop(decider.approve_plan(&plan.id, input, now).await.unwrap()),
        Flaw::LongNote => input.note = Some(&long),
        Flaw::TimeOver => now = plan.expires + 1.second(),
    }
    let refusal = decider.approve_plan(&plan.id, input, now).await.err()?.refusal();
    Some((refusal.code.as_str().to_owned(), refusal.reason_code.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_channel_passes_the_same_table_of_cases() {
    for (channel, recorded, source, role) in CHANNELS {
        let folder = tempfile::tempdir().unwrap();
        let url = StoreUrl::file(folder.path().join("c.db"));
        let store = Store::connect(&url, ConnectOptions::default()).await.unwrap();
        let by: PrincipalId = "ada".into();
        let decider = PlanDecider { store: &store, channel, by: &by, program: None };
        for (name, kind, flaw, typed, expected) in CASES {
            let held = plan(name, kind);
            hold(&store, &held).await;
            let expected = expected[usize::from(role == ActorRole::Host)];
            let got = approve(&decider, &held, flaw, typed).await;
            let shown = got.as_ref().map(|(code, reason)| (code.as_str(), reason.as_str()));
            assert_eq!(shown, expected, "{channel:?} {name}");
            let row = store.plan(&held.id).await.unwrap().unwrap();
            let is_approved = expected.is_none() || matches!(flaw, Flaw::DecidedAlready);
            let state = if is_approved { PlanState::Approved } else { PlanState::Pending };
            assert_eq!(row.state, state, "{channel:?} {name}");
            store.flush().await.unwrap();
            let filter = LedgerFilter {
                kind: Some(RowKind::Approval),
                plan_id: Some(held.id.clone()),
                ..LedgerFilter::default()
            };
            let rows = store.activity(filter).await.unwrap().rows;
            let is_recorded = is_approved || expected == MISTYPED || expected == MISSING;
            assert_eq!(rows.len(), usize::from(is_recorded), "{channel:?} {name}");
            for row in rows {
                assert_eq!((row.source, row.role), (Some(source), Some(role)), "{channel:?} {name}");
                assert_eq!((row.principal.clone(), row.plan_hash), (Some(by.clone()), Some(held.hash)));
                let status = if is_approved { RowStatus::Success } else { RowStatus::Refused };
                let code = expected.filter(|_| !is_approved).map(|(code, _)| code);
                assert_eq!((row.status, row.code.as_deref()), (status, code), "{channel:?} {name}");
            }
            assert_eq!(row.approval.map(|approval| approval.channel), is_approved.then_some(recorded));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_channel_rejects_once() {
    for (channel, _, source, role) in CHANNELS {
        let folder = tempfile::tempdir().unwrap();
        let url = StoreUrl::file(folder.path().join("c.db"));
        let store = Store::connect(&url, ConnectOptions::default()).await.unwrap();
        let by: PrincipalId = "ada".into();
        let decider = PlanDecider { store: &store, channel, by: &by, program: None };
        let held = plan("reject", Kind::Type);
        hold(&store, &held).await;
        let now = Timestamp::now();
        let long = "n".repeat(4001);
        let refusal = decider.reject_plan(&held.id, None, Some(&long), now).await.unwrap_err().refusal();
        assert_eq!(refusal.code.as_str(), "E_ARGUMENTS_INVALID");
        // Bound to what was shown, like an approval.
        let other = Some(Digest::plain(b"another"));
        let changed = decider.reject_plan(&held.id, other, None, now).await.unwrap_err().refusal();
        assert_eq!((changed.code.as_str(), changed.reason_code), ("E_PLAN_DECIDED", "plan_changed"));
        decider.reject_plan(&held.id, Some(held.hash), Some("not today"), now).await.unwrap();
        let row = store.plan(&held.id).await.unwrap().unwrap();
        assert_eq!((row.state, row.note.as_deref()), (PlanState::Rejected, Some("not today")));
        let again = decider.reject_plan(&held.id, None, None, now).await.unwrap_err().refusal();
        assert_eq!(again.code.as_str(), "E_PLAN_DECIDED");
        let input = ApprovalInput { typed: Some("Prod-1"), ..ApprovalInput::of((&held).into()) };
        let late = decider.approve_plan(&held.id, input, now).await.unwrap_err().refusal();
        let expected = if role == ActorRole::Host { "E_APPROVAL_PENDING" } else { "E_PLAN_DECIDED" };
        assert_eq!(late.code.as_str(), expected);
        let unknown =
            decider.reject_plan(&PlanId::new("pln_none"), None, None, now).await.unwrap_err().refusal();
        assert_eq!(unknown.code.as_str(), "E_PLAN_NOT_FOUND");
        store.flush().await.unwrap();
        let filter = LedgerFilter { kind: Some(RowKind::Approval), ..LedgerFilter::default() };
        let rows = store.activity(filter).await.unwrap().rows;
        assert_eq!(rows.len(), 1, "{channel:?}");
        assert_eq!((rows[0].source, rows[0].role), (Some(source), Some(role)), "{channel:?}");
    }
}

#[test]
fn a_host_that_may_not_vouch_is_worth_the_callers_word() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let url = StoreUrl::file(folder.path().join("c.db"));
        let store = Store::connect(&url, ConnectOptions::default()).await.unwrap();
        let by: PrincipalId = "host:bot".into();
        let held = plan("weak", Kind::Preview);
        hold(&store, &held).await;
        for channel in
            [ApprovalChannel::Card(HostVouching::Denied), ApprovalChannel::Elicitation(HostVouching::Denied)]
        {
            let decider = PlanDecider { store: &store, channel, by: &by, program: None };
            let refused = approve(&decider, &held, Flaw::Nothing, None).await;
            assert_eq!(refused.unwrap().0, "E_APPROVAL_PENDING", "{channel:?}");
        }
    });
}

#[test]
fn a_grant_has_the_same_limits_everywhere() {
    let second = std::time::Duration::from_secs(1);
    assert!(GrantTerms::new(1, LONGEST_LIFE).is_ok() && GrantTerms::new(MOST_USES, second).is_ok());
    for (uses, life, limit) in [
        (0, second, GrantLimit::Uses),
        (MOST_USES + 1, second, GrantLimit::Uses),
        (1, std::time::Duration::ZERO, GrantLimit::Life),
        (1, LONGEST_LIFE + second, GrantLimit::Life),
    ] {
        assert_eq!(GrantTerms::new(uses, life).unwrap_err(), limit);
    }
    assert_eq!(LONGEST_LIFE.as_secs(), 90 * 24 * 3600);
}
