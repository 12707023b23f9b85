//! Plans of several steps: judged one by one, hashed in order, agreed to once, changed in nothing.

use std::time::Duration;

use countersign_policy::confirm::{
    Approval, ApprovalStrength, ConfirmInput, Kind, PendingPlan, PlanState, RecordedChannel,
};
use countersign_policy::gate::{
    CallDraft, NoLimits, NoSchema, PendingStep, Permit, PolicySnapshot, ReachedStep, SeriesPurpose,
    StepPermit, check_series, draft_step, freeze_series, settle_series,
};
use countersign_policy::ids::PlanId;
use countersign_policy::intent::CallToolVariant;
use countersign_policy::mode::Mode;
use countersign_policy::plan::{Plan, Preview, PreviewSource};
use countersign_policy::preview::PreviewStyle;
use countersign_policy::refusal::Code;
use countersign_policy::rules::Rule;
use serde_json::json;

use crate::world::{World, agent, at, call, router, tool};

const TOKEN: &str = "2f1b6a0e-7b9c-4c3e-9a55-0d6d4f8c1b2a";

fn snapshot(world: &World) -> PolicySnapshot<'_> {
    PolicySnapshot {
        rules: &world.rules,
        strictness: world.strictness,
        configured_mode: world.configured_mode,
        session_mode: world.session_mode,
        pending_plan: None,
        grants: &[],
        usage: &NoLimits,
        writes: world.writes,
        schema: &NoSchema,
        redactor: &world.redactor,
    }
}

fn drafts(world: &World) -> Vec<CallDraft> {
    let write = tool("sync_notes", json!({}));
    let wipe = tool("wipe_notes", json!({}));
    let read = tool("get_notes", json!({"readOnlyHint": true}));
    [
        call(&write, router(CallToolVariant::Write), r#"{"id":1}"#),
        call(&read, router(CallToolVariant::Read), "{}"),
        call(&wipe, router(CallToolVariant::Destructive), r#"{"all":true}"#),
    ]
    .into_iter()
    .map(|call| draft_step(call, &snapshot(world), at(0)).unwrap())
    .collect()
}

fn plan_of(drafts: Vec<CallDraft>) -> Plan {
    let steps: Vec<(CallDraft, Preview)> = drafts
        .into_iter()
        .map(|draft| {
            let preview = draft.computed_preview();
            (draft, preview)
        })
        .collect();
    let purpose = SeriesPurpose { title: "tidy up".into(), reason: Some("spring".into()) };
    freeze_series(PlanId::new("pln_1"), &agent(), &purpose, &steps, at(0), Duration::from_secs(300))
}

fn pending_plan(plan: Plan) -> PendingPlan {
    PendingPlan {
        token_expires: plan.expires,
        plan,
        state: PlanState::Pending,
        approval: None,
        note: None,
        ended: None,
        credential_expires: None,
    }
}

fn yes() -> ConfirmInput {
    ConfirmInput { token: Some(TOKEN.into()), yes: Some(true), text: None }
}

/// The permit of a step that has one.
pub(crate) fn ready(step: &StepPermit) -> &Permit {
    match step {
        StepPermit::Ready(permit) => permit,
        StepPermit::WhenReached(_) => panic!("it has no permit yet"),
    }
}

#[test]
fn the_whole_needs_the_strictest_of_its_steps() {
    let plan = plan_of(drafts(&World::new()));
    assert_eq!((plan.requirement.kind, plan.requirement.strength), (Kind::Preview, ApprovalStrength::Host));
    assert_eq!(plan.steps.len(), 3);
    assert_eq!(plan.preview.shown["steps"][2]["tool"], "github:wipe_notes");
    assert_eq!(plan.tool.to_string(), "countersign:run_plan");
}

#[test]
fn the_hash_covers_the_steps_in_order() {
    let world = World::new();
    let there = plan_of(drafts(&world));
    let mut turned = drafts(&world);
    turned.swap(0, 2);
    assert_ne!(there.hash, plan_of(turned).hash);
    let mut fewer = drafts(&world);
    fewer.pop();
    assert_ne!(there.hash, plan_of(fewer).hash);
    assert_eq!(there.hash, plan_of(drafts(&world)).hash);
}

#[test]
fn a_step_gets_the_no_it_would_get_alone() {
    let mut deny = Rule::named("r", &["*:wipe_*"]);
    deny.deny = Some("never".into());
    let world = World::with_rules(vec![deny]);
    let wipe = tool("wipe_notes", json!({}));
    let refused =
        draft_step(call(&wipe, router(CallToolVariant::Destructive), "{}"), &snapshot(&world), at(0))
            .unwrap_err();
    assert_eq!(refused.refusal.code, Code::RuleDenied);
    let mut asking = World::new();
    asking.session_mode = Some(Mode::Ask);
    let refused =
        draft_step(call(&wipe, router(CallToolVariant::Destructive), "{}"), &snapshot(&asking), at(0))
            .unwrap_err();
    assert_eq!(refused.refusal.code, Code::ModeAsk);
}

#[test]
fn the_token_is_checked_in_the_usual_order_and_only_for_its_own_plan() {
    let pending_plan = pending_plan(plan_of(drafts(&World::new())));
    let check = |confirm_input: &ConfirmInput, plan: &str, second: i64| {
        check_series(confirm_input, Some(&pending_plan), &agent(), &PlanId::new(plan), at(second))
            .map(|_| ())
            .map_err(|no| no.code)
    };
    assert_eq!(check(&ConfirmInput { yes: None, ..yes() }, "pln_1", 1), Err(Code::ConfirmRequired));
    assert_eq!(check(&ConfirmInput { token: None, ..yes() }, "pln_1", 1), Err(Code::ConfirmTokenRequired));
    assert_eq!(check(&yes(), "pln_2", 1), Err(Code::ConfirmTokenMismatch));
    assert_eq!(check(&yes(), "pln_1", 300), Err(Code::ConfirmTokenExpired));
    assert_eq!(check(&yes(), "pln_1", 1), Ok(()));
    let mut other = agent();
    other.session = "s2".into();
    let foreign =
        check_series(&yes(), Some(&pending_plan), &other, &PlanId::new("pln_1"), at(1)).unwrap_err();
    assert_eq!(foreign.code, Code::ConfirmTokenMismatch);
}

#[test]
fn permits_come_only_when_nothing_has_changed_and_someone_strong_enough_agreed() {
    let world = World::new();
    let mut pending_plan = pending_plan(plan_of(drafts(&world)));
    let settle = |pending_plan: &PendingPlan, drafts: Vec<CallDraft>| {
        settle_series(pending_plan, drafts, &[None, None, None], &yes(), &agent(), at(1))
            .map_err(|no| (no.code, no.reason_code))
    };
    let pending = settle(&pending_plan, drafts(&world)).unwrap_err();
    assert_eq!(pending, (Code::ApprovalPending, "approval_pending"));
    pending_plan.approval = Some(Approval::over(RecordedChannel::Cli, "ann".into(), at(1)));
    let permits = settle(&pending_plan, drafts(&world)).unwrap();
    assert_eq!(permits.steps.len(), 3);
    assert!(permits.whole.spend().is_some(), "the whole spends the token");
    let steps: Vec<&Permit> = permits.steps.iter().map(ready).collect();
    assert!(steps.iter().all(|permit| permit.spend().is_none()), "its steps spend nothing");
    assert_eq!(steps[0].arguments(), r#"{"id":1}"#);
    assert_eq!(steps[2].record().approval.as_ref().unwrap().by.as_str(), "ann");

    let mut ruled = Rule::named("r", &["*:sync_*"]);
    ruled.strength = Some(ApprovalStrength::Human);
    let changed = settle(&pending_plan, drafts(&World::with_rules(vec![ruled]))).unwrap_err();
    assert_eq!(changed, (Code::ConfirmTokenMismatch, "policy_changed"));
    let mut other = drafts(&world);
    other[0].tool = tool("sync_notes", json!({"title": "another"}));
    assert_eq!(settle(&pending_plan, other).unwrap_err(), (Code::ConfirmTokenMismatch, "tool_changed"));
    let mut planning = World::new();
    planning.session_mode = Some(Mode::Plan);
    assert_eq!(settle(&pending_plan, drafts(&planning)).unwrap_err().0, Code::ModeAsk);
}

#[test]
fn a_step_whose_preview_drifted_stops_the_whole() {
    let mut rule = Rule::named("r", &["*"]);
    rule.preview =
        Some(PreviewStyle::Argument { arg: "dry_run".into(), preview: true.into(), apply: false.into() });
    let world = World::with_rules(vec![rule]).writes_by_caller();
    let write = tool("sync_notes", json!({}));
    let draft = || {
        draft_step(call(&write, router(CallToolVariant::Write), r#"{"id":1}"#), &snapshot(&world), at(0))
            .unwrap()
    };
    let shown = |count: u32| Preview::new(PreviewSource::Argument, json!(count), &json!(count));
    let steps = vec![(draft(), shown(1))];
    let purpose = SeriesPurpose { title: "t".into(), reason: None };
    let plan =
        freeze_series(PlanId::new("pln_1"), &agent(), &purpose, &steps, at(0), Duration::from_secs(300));
    let pending_plan = pending_plan(plan);
    let settle = |fresh: Option<Preview>| {
        settle_series(&pending_plan, vec![draft()], &[fresh], &yes(), &agent(), at(1))
    };
    let settled = settle(Some(shown(1))).unwrap();
    assert_eq!(ready(&settled.steps[0]).arguments(), r#"{"dry_run":false,"id":1}"#);
    let drifted = settle(Some(shown(2))).unwrap_err();
    assert_eq!((drifted.code, drifted.reason_code), (Code::ConfirmTokenMismatch, "plan_drifted"));
    assert_eq!(settle(None).unwrap_err().reason_code, "plan_drifted");
}

/// A write, then a step of this confirm that could not be previewed, agreed to by its caller.
fn with_marked(kind: Kind) -> (World, PendingPlan) {
    let mut rule = Rule::named("r", &["*:sync_*"]);
    rule.preview =
        Some(PreviewStyle::Argument { arg: "dry_run".into(), preview: true.into(), apply: false.into() });
    rule.confirm = Some(kind);
    rule.strength = Some(ApprovalStrength::Caller);
    let world = World::with_rules(vec![rule]).writes_by_caller();
    let steps: Vec<(CallDraft, Preview)> = marked_drafts(&world)
        .into_iter()
        .enumerate()
        .map(|(index, draft)| {
            let preview = if index == 0 { draft.computed_preview() } else { draft.preview_when_reached() };
            (draft, preview)
        })
        .collect();
    let purpose = SeriesPurpose { title: "make, then edit".into(), reason: None };
    let life = Duration::from_secs(300);
    (world, pending_plan(freeze_series(PlanId::new("pln_1"), &agent(), &purpose, &steps, at(0), life)))
}

fn marked_drafts(world: &World) -> Vec<CallDraft> {
    let (make, edit) = (tool("make_note", json!({})), tool("sync_notes", json!({})));
    [
        call(&make, router(CallToolVariant::Write), r#"{"id":1}"#),
        call(&edit, router(CallToolVariant::Write), r#"{"id":1}"#),
    ]
    .into_iter()
    .map(|call| draft_step(call, &snapshot(world), at(0)).unwrap())
    .collect()
}

fn pending(world: &World, pending_plan: &PendingPlan) -> PendingStep {
    let settled =
        settle_series(pending_plan, marked_drafts(world), &[None, None], &yes(), &agent(), at(1)).unwrap();
    match settled.steps.into_iter().nth(1).unwrap() {
        StepPermit::WhenReached(step) => *step,
        StepPermit::Ready(_) => panic!("it has a permit before it was reached"),
    }
}

fn now_shown(text: &str) -> Preview {
    let shown = json!({"content": [{"type": "text", "text": text}]});
    Preview::new(PreviewSource::Argument, shown.clone(), &shown)
}

#[test]
fn the_hash_covers_that_a_step_is_previewed_when_reached() {
    let (world, pending_plan) = with_marked(Kind::Simple);
    let computed = plan_of(marked_drafts(&world));
    assert_ne!(pending_plan.plan.hash, computed.hash);
    assert_ne!(pending_plan.plan.identity(), computed.identity());
    assert_eq!(pending_plan.plan.preview.shown["steps"][1]["previewed"], "when_reached");
}

#[test]
fn a_marked_step_runs_when_reached_if_a_yes_is_all_it_needs() {
    let (world, pending_plan) = with_marked(Kind::Simple);
    let draft = marked_drafts(&world).pop().unwrap();
    let reached = pending(&world, &pending_plan).settle(draft, &now_shown("2 notes would change")).unwrap();
    let ReachedStep::Run(permit) = reached else { panic!("{reached:?}") };
    assert_eq!(permit.arguments(), r#"{"dry_run":false,"id":1}"#);
    assert_eq!(permit.record().plan_id, Some(PlanId::new("pln_1")));
    assert!(permit.record().approval.is_some() && permit.spend().is_none());
}

#[test]
fn attack_a_marked_step_whose_preview_has_to_be_seen_gets_no_permit() {
    let (world, pending_plan) = with_marked(Kind::Preview);
    let draft = marked_drafts(&world).pop().unwrap();
    let reached = pending(&world, &pending_plan).settle(draft, &now_shown("2 notes would change")).unwrap();
    assert!(matches!(reached, ReachedStep::AskAgain), "{reached:?}");
}

#[test]
fn attack_a_marked_step_that_changed_or_is_forbidden_when_reached_gets_no_permit() {
    let (world, pending_plan) = with_marked(Kind::Simple);
    let settle = |change: &dyn Fn(&mut CallDraft), shown: &str| {
        let mut draft = marked_drafts(&world).pop().unwrap();
        change(&mut draft);
        pending(&world, &pending_plan).settle(draft, &now_shown(shown)).unwrap_err().reason_code
    };
    let other = marked_drafts(&world).remove(0);
    assert_eq!(settle(&|_| {}, "BLOCK: closed"), "preview_blocked");
    assert_eq!(settle(&|draft| draft.mode = Mode::Plan, "x"), "mode_ask");
    assert_eq!(settle(&|draft| draft.tool = tool("sync_notes", json!({"title": "b"})), "x"), "tool_changed");
    assert_eq!(settle(&|draft| draft.call.name = other.call.name.clone(), "x"), "plan_drifted");
    assert_eq!(settle(&|draft| draft.call.arguments = other.call.arguments.clone(), "x"), "plan_drifted");
    assert_eq!(settle(&|draft| draft.policy_digest = other.tool.fingerprint, "x"), "policy_changed");
    assert_eq!(settle(&|draft| draft.requirement.kind = Kind::Preview, "x"), "policy_changed");
    assert_eq!(settle(&|draft| draft.requirement.strength = ApprovalStrength::Human, "x"), "policy_changed");
}

#[test]
fn a_chained_preview_runs_only_as_it_was_shown_and_its_mark_is_hashed() {
    let (world, _) = with_marked(Kind::Preview);
    let plan = |preview: Preview| {
        let mut drafts = marked_drafts(&world).into_iter();
        let (make, edit) = (drafts.next().unwrap(), drafts.next().unwrap());
        let made = make.computed_preview();
        let purpose = SeriesPurpose { title: "t".into(), reason: None };
        let steps = [(make, made), (edit, preview)];
        freeze_series(PlanId::new("pln_1"), &agent(), &purpose, &steps, at(0), Duration::from_secs(300))
    };
    let chained = pending_plan(plan(now_shown("2 notes").chained()));
    assert_ne!(chained.plan.hash, plan(now_shown("2 notes")).hash);
    let reach = |shown: &str| {
        let draft = marked_drafts(&world).pop().unwrap();
        pending(&world, &chained).settle(draft, &now_shown(shown)).unwrap()
    };
    assert!(matches!(reach("2 notes"), ReachedStep::Run(_)));
    assert!(matches!(reach("3 notes"), ReachedStep::AskAgain));
}
