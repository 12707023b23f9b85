//! Plans of several steps: judged one by one, hashed in order, agreed to once, changed in nothing.

use std::time::Duration;

use countersign_core::confirm::{Approval, Brought, Held, Kind, PlanState, Rail, Strength};
use countersign_core::gate::{
    Draft, NoLimits, NoSchema, Purpose, Snapshot, check_series, draft_step, freeze_series, settle_series,
};
use countersign_core::ids::PlanId;
use countersign_core::intent::Variant;
use countersign_core::mode::Mode;
use countersign_core::plan::{Plan, Preview, PreviewSource};
use countersign_core::preview::Style;
use countersign_core::refusal::Code;
use countersign_core::rules::Rule;
use serde_json::json;

use crate::world::{World, agent, at, call, router, tool};

const TOKEN: &str = "2f1b6a0e-7b9c-4c3e-9a55-0d6d4f8c1b2a";

fn snapshot(world: &World) -> Snapshot<'_> {
    Snapshot {
        rules: &world.rules,
        strictness: world.strictness,
        configured_mode: world.configured_mode,
        session_mode: world.session_mode,
        held: None,
        grants: &[],
        usage: &NoLimits,
        writes: world.writes,
        schema: &NoSchema,
        redactor: &world.redactor,
    }
}

fn drafts(world: &World) -> Vec<Draft> {
    let write = tool("sync_notes", json!({}));
    let wipe = tool("wipe_notes", json!({}));
    let read = tool("get_notes", json!({"readOnlyHint": true}));
    [
        call(&write, router(Variant::Write), r#"{"id":1}"#),
        call(&read, router(Variant::Read), "{}"),
        call(&wipe, router(Variant::Destructive), r#"{"all":true}"#),
    ]
    .into_iter()
    .map(|call| draft_step(call, &snapshot(world), at(0)).unwrap())
    .collect()
}

fn plan_of(drafts: Vec<Draft>) -> Plan {
    let steps: Vec<(Draft, Preview)> = drafts
        .into_iter()
        .map(|draft| {
            let preview = draft.computed_preview();
            (draft, preview)
        })
        .collect();
    let purpose = Purpose { title: "tidy up".into(), reason: Some("spring".into()) };
    freeze_series(PlanId::new("pln_1"), &agent(), &purpose, &steps, at(0), Duration::from_secs(300))
}

fn held(plan: Plan) -> Held {
    Held {
        token_expires: plan.expires,
        plan,
        state: PlanState::Pending,
        approval: None,
        note: None,
        ended: None,
        credential_expires: None,
    }
}

fn yes() -> Brought {
    Brought { token: Some(TOKEN.into()), yes: Some(true), text: None }
}

#[test]
fn the_whole_needs_the_strictest_of_its_steps() {
    let plan = plan_of(drafts(&World::new()));
    assert_eq!((plan.need.kind, plan.need.strength), (Kind::Preview, Strength::Host));
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
        draft_step(call(&wipe, router(Variant::Destructive), "{}"), &snapshot(&world), at(0)).unwrap_err();
    assert_eq!(refused.refusal.code, Code::RuleDenied);
    let mut asking = World::new();
    asking.session_mode = Some(Mode::Ask);
    let refused =
        draft_step(call(&wipe, router(Variant::Destructive), "{}"), &snapshot(&asking), at(0)).unwrap_err();
    assert_eq!(refused.refusal.code, Code::ModeAsk);
}

#[test]
fn the_token_is_checked_in_the_usual_order_and_only_for_its_own_plan() {
    let held = held(plan_of(drafts(&World::new())));
    let check = |brought: &Brought, plan: &str, second: i64| {
        check_series(brought, Some(&held), &agent(), &PlanId::new(plan), at(second))
            .map(|_| ())
            .map_err(|no| no.code)
    };
    assert_eq!(check(&Brought { yes: None, ..yes() }, "pln_1", 1), Err(Code::ConfirmRequired));
    assert_eq!(check(&Brought { token: None, ..yes() }, "pln_1", 1), Err(Code::ConfirmTokenRequired));
    assert_eq!(check(&yes(), "pln_2", 1), Err(Code::ConfirmTokenMismatch));
    assert_eq!(check(&yes(), "pln_1", 300), Err(Code::ConfirmTokenExpired));
    assert_eq!(check(&yes(), "pln_1", 1), Ok(()));
    let mut other = agent();
    other.session = "s2".into();
    let foreign = check_series(&yes(), Some(&held), &other, &PlanId::new("pln_1"), at(1)).unwrap_err();
    assert_eq!(foreign.code, Code::ConfirmTokenMismatch);
}

#[test]
fn permits_come_only_when_nothing_has_changed_and_someone_strong_enough_agreed() {
    let world = World::new();
    let mut held = held(plan_of(drafts(&world)));
    let settle = |held: &Held, drafts: Vec<Draft>| {
        settle_series(held, drafts, &[None, None, None], &yes(), &agent(), at(1))
            .map_err(|no| (no.code, no.reason_code))
    };
    let pending = settle(&held, drafts(&world)).unwrap_err();
    assert_eq!(pending, (Code::ApprovalPending, "approval_pending"));
    held.approval = Some(Approval::over(Rail::Cli, "ann".into(), at(1)));
    let permits = settle(&held, drafts(&world)).unwrap();
    assert_eq!(permits.steps.len(), 3);
    assert!(permits.whole.spend().is_some(), "the whole spends the token");
    assert!(permits.steps.iter().all(|permit| permit.spend().is_none()), "its steps spend nothing");
    assert_eq!(permits.steps[0].arguments(), r#"{"id":1}"#);
    assert_eq!(permits.steps[2].record().approval.as_ref().unwrap().by.as_str(), "ann");

    let mut ruled = Rule::named("r", &["*:sync_*"]);
    ruled.strength = Some(Strength::Human);
    let changed = settle(&held, drafts(&World::with_rules(vec![ruled]))).unwrap_err();
    assert_eq!(changed, (Code::ConfirmTokenMismatch, "policy_changed"));
    let mut other = drafts(&world);
    other[0].tool = tool("sync_notes", json!({"title": "another"}));
    assert_eq!(settle(&held, other).unwrap_err(), (Code::ConfirmTokenMismatch, "tool_changed"));
    let mut planning = World::new();
    planning.session_mode = Some(Mode::Plan);
    assert_eq!(settle(&held, drafts(&planning)).unwrap_err().0, Code::ModeAsk);
}

#[test]
fn a_step_whose_preview_drifted_stops_the_whole() {
    let mut rule = Rule::named("r", &["*"]);
    rule.preview = Some(Style::Argument { arg: "dry_run".into(), preview: true.into(), apply: false.into() });
    let world = World::with_rules(vec![rule]).writes_by_caller();
    let write = tool("sync_notes", json!({}));
    let draft =
        || draft_step(call(&write, router(Variant::Write), r#"{"id":1}"#), &snapshot(&world), at(0)).unwrap();
    let shown = |count: u32| Preview::new(PreviewSource::Argument, json!(count), &json!(count));
    let steps = vec![(draft(), shown(1))];
    let purpose = Purpose { title: "t".into(), reason: None };
    let plan =
        freeze_series(PlanId::new("pln_1"), &agent(), &purpose, &steps, at(0), Duration::from_secs(300));
    let held = held(plan);
    let settle =
        |fresh: Option<Preview>| settle_series(&held, vec![draft()], &[fresh], &yes(), &agent(), at(1));
    assert_eq!(settle(Some(shown(1))).unwrap().steps[0].arguments(), r#"{"dry_run":false,"id":1}"#);
    let drifted = settle(Some(shown(2))).unwrap_err();
    assert_eq!((drifted.code, drifted.reason_code), (Code::ConfirmTokenMismatch, "plan_drifted"));
    assert_eq!(settle(None).unwrap_err().reason_code, "plan_drifted");
}
