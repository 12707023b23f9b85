//! Phase 2, check by check, in the contract's order: the first failure wins.

use std::time::Duration;

use countersign_policy::call::{CatalogStatus, HostVouching};
use countersign_policy::confirm::{
    Approval, ApprovalStrength, ConfirmInput, ConfirmRequirement, Kind, PendingPlan, PlanState,
    RecordedChannel,
};
use countersign_policy::gate::{CallDraft, Verdict, WriteStatus, token_digest};
use countersign_policy::ids::PlanId;
use countersign_policy::intent::CallToolVariant;
use countersign_policy::mode::Mode;
use countersign_policy::plan::{Preview, PreviewSource};
use countersign_policy::preview::PreviewStyle;
use countersign_policy::refusal::Code;
use countersign_policy::rules::Rule;
use serde_json::json;

use crate::world::{World, at, call, router, short, tool};

const TOKEN: &str = "2f1b6a0e-7b9c-4c3e-9a55-0d6d4f8c1b2a";

fn held_for(draft: &CallDraft) -> PendingPlan {
    let plan = draft.freeze(PlanId::new("pln_1"), draft.computed_preview(), at(0), Duration::from_secs(300));
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

/// A write tool held by a first call, and the call that brings it back.
struct Story {
    world: World,
    call: countersign_policy::call::ToolCall,
}

impl Story {
    fn new(rules: Vec<Rule>) -> Self {
        let mut world = World::with_rules(rules).writes_by_caller();
        let tool = tool("sync_notes", json!({}));
        let mut call = call(&tool, router(CallToolVariant::Write), r#"{"id":7}"#);
        let Verdict::Hold(draft) = world.judge(call.clone(), at(0)) else { panic!("phase 1 holds") };
        world.pending_plan = Some(held_for(&draft));
        call.confirm_input = ConfirmInput { token: Some(TOKEN.into()), yes: Some(true), text: None };
        Self { world, call }
    }

    fn pending_plan(&mut self) -> &mut PendingPlan {
        self.world.pending_plan.as_mut().unwrap()
    }

    fn refusal(&self, second: i64) -> (Code, &'static str) {
        match self.world.judge(self.call.clone(), at(second)) {
            Verdict::Refuse(refused) => (refused.refusal.code, refused.refusal.reason_code),
            other => panic!("expected a refusal, got {}", short(&other)),
        }
    }
}

#[test]
fn the_happy_path_spends_the_plan_that_was_shown() {
    let story = Story::new(Vec::new());
    let Verdict::Redeem(redemption) = story.world.judge(story.call.clone(), at(10)) else { panic!() };
    let permit = redemption.settle(None).unwrap();
    let spend = permit.spend().unwrap();
    assert_eq!(spend.plan.as_str(), "pln_1");
    assert_eq!(spend.token, token_digest(TOKEN));
    assert_eq!(
        (spend.approval.channel, spend.approval.strength),
        (RecordedChannel::Chat, ApprovalStrength::Caller)
    );
    assert_eq!(permit.arguments(), r#"{"id":7}"#);
    assert_eq!(permit.record().plan_id.as_ref().unwrap().as_str(), "pln_1");
}

#[test]
fn each_check_refuses_in_its_place() {
    let mut story = Story::new(Vec::new());
    story.call.confirm_input.yes = None;
    assert_eq!(story.refusal(1), (Code::ConfirmRequired, "confirm_required"));
    story.call.confirm_input.yes = Some(false);
    assert_eq!(story.refusal(1), (Code::ConfirmRequired, "confirm_required"));

    let mut story = Story::new(Vec::new());
    story.call.confirm_input.token = None;
    assert_eq!(story.refusal(1), (Code::ConfirmTokenRequired, "confirm_token_required"));

    for (state, expect) in [
        (PlanState::Executing, (Code::ConfirmTokenUsed, "confirm_token_used")),
        (PlanState::Done, (Code::ConfirmTokenUsed, "confirm_token_used")),
        (PlanState::Failed, (Code::ConfirmTokenUsed, "confirm_token_used")),
        (PlanState::OutcomeUnknown, (Code::ConfirmTokenUsed, "confirm_token_used")),
        (PlanState::Cancelled, (Code::PlanCancelled, "plan_cancelled")),
        (PlanState::Rejected, (Code::ApprovalRejected, "approval_rejected")),
        (PlanState::Expired, (Code::ConfirmTokenExpired, "confirm_token_expired")),
    ] {
        let mut story = Story::new(Vec::new());
        story.pending_plan().state = state;
        assert_eq!(story.refusal(1), expect, "{state}");
    }
    let story = Story::new(Vec::new());
    assert_eq!(story.refusal(300), (Code::ConfirmTokenExpired, "confirm_token_expired"));
    assert_eq!(short(&story.world.judge(story.call.clone(), at(299))), "redeem");
}

#[test]
fn unknown_and_foreign_tokens_look_the_same() {
    let expect = (Code::ConfirmTokenMismatch, "confirm_token_mismatch");
    let mut unknown = Story::new(Vec::new());
    unknown.world.pending_plan = None;
    assert_eq!(unknown.refusal(1), expect);
    let mut messages = vec![];
    let changes: [fn(&mut Story); 4] = [
        |story| story.call.caller.principal = "other".into(),
        |story| story.call.caller.session = "s2".into(),
        |story| story.call.arguments = countersign_policy::call::Arguments::parse(br#"{"id":8}"#).unwrap(),
        |story| story.pending_plan().plan.tool = countersign_policy::ids::FullName::new("github", "other"),
    ];
    for change in changes {
        let mut story = Story::new(Vec::new());
        change(&mut story);
        assert_eq!(story.refusal(1), expect);
        if let Verdict::Refuse(refused) = story.world.judge(story.call.clone(), at(1)) {
            messages.push(refused.refusal.message);
        }
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "one message for all of them");
}

#[test]
fn invariant_sent_hashed_shown() {
    let mut story = Story::new(Vec::new());
    story.call.arguments = countersign_policy::call::Arguments::parse(br#" { "id" : 7.0 } "#).unwrap();
    let Verdict::Redeem(redemption) = story.world.judge(story.call.clone(), at(1)) else { panic!() };
    assert_eq!(redemption.settle(None).unwrap().arguments(), r#"{"id":7}"#, "the plan's own text is sent");
}

/// The earliest end counts: of the token, of the plan that was shown, of the credential that asked. Each is over at its moment.
#[test]
fn a_plan_ends_with_its_token_its_expiry_and_its_credential() {
    let ends: [(fn(&mut PendingPlan), &str); 3] = [
        (|pending| pending.token_expires = at(10), "confirm_token_expired"),
        (|pending| pending.plan.expires = at(10), "confirm_token_expired"),
        (|pending| pending.credential_expires = Some(at(10)), "credential_expired"),
    ];
    for (end, reason) in ends {
        let mut story = Story::new(Vec::new());
        end(story.pending_plan());
        assert_eq!(short(&story.world.judge(story.call.clone(), at(9))), "redeem", "{reason}");
        assert_eq!(story.refusal(10).1, reason);
        assert_eq!(story.refusal(11).1, reason);
    }
}

#[test]
fn a_plan_whose_preview_forbids_it_is_redeemed_by_nobody() {
    let mut story = Story::new(Vec::new());
    let shown = json!({"content": [{"type": "text", "text": "BLOCK: the supplier is closed"}]});
    story.pending_plan().plan.preview = Preview::new(PreviewSource::Argument, shown.clone(), &shown);
    story.pending_plan().approval = Some(Approval::over(RecordedChannel::Page, "ada".into(), at(1)));
    assert_eq!(story.refusal(2), (Code::PreviewFailed, "preview_blocked"));
}

#[test]
fn a_host_that_may_not_vouch_is_worth_the_callers_word() {
    let answer =
        |vouching| Approval::by_host(RecordedChannel::Elicitation, vouching, "host".into(), at(0)).strength;
    assert_eq!(answer(HostVouching::Allowed), ApprovalStrength::Host);
    assert_eq!(answer(HostVouching::Denied), ApprovalStrength::Caller);
}

/// The words of the seed, which hosts and agents rely on.
#[test]
fn each_kind_asks_in_its_own_words() {
    let tool = countersign_policy::ids::FullName::new("github", "sync_notes");
    let asks =
        |kind| ConfirmRequirement { kind, strength: ApprovalStrength::Host, typed: None }.prompt(&tool);
    assert_eq!(asks(Kind::Simple), "Proceed with github:sync_notes? [Yes/No]");
    assert_eq!(asks(Kind::Preview), "Execute?");
    assert_eq!(asks(Kind::Type), "Type the name of the resource to confirm");
    assert_eq!(asks(Kind::None), "");
}

/// Either is enough: rules that changed without asking for more, or a stored requirement that somebody lowered.
#[test]
fn a_changed_policy_and_a_lowered_requirement_each_end_the_plan() {
    let changed = (Code::ConfirmTokenMismatch, "policy_changed");
    let mut story = Story::new(Vec::new());
    story.pending_plan().plan.policy_digest = countersign_policy::digest::Digest::plain(b"other rules");
    assert_eq!(story.refusal(1), changed);

    let mut rule = Rule::named("r", &["*"]);
    rule.confirm = Some(Kind::Preview);
    rule.strength = Some(ApprovalStrength::Human);
    let lowered: [fn(&mut PendingPlan); 2] = [
        |pending| pending.plan.requirement.kind = Kind::Simple,
        |pending| pending.plan.requirement.strength = ApprovalStrength::Caller,
    ];
    for lower in lowered {
        let mut story = Story::new(vec![rule.clone()]);
        assert_eq!(story.refusal(1).0, Code::ApprovalPending, "as it was stored, it only lacks its approval");
        lower(story.pending_plan());
        assert_eq!(story.refusal(1), changed);
    }
}

#[test]
fn mode_rules_and_fingerprint_are_checked_after_the_token() {
    let mut story = Story::new(Vec::new());
    story.world.session_mode = Some(Mode::Ask);
    assert_eq!(short(&story.world.judge(story.call.clone(), at(1))), "explain");
    story.pending_plan().state = PlanState::Done;
    assert_eq!(story.refusal(1).0, Code::ConfirmTokenUsed, "a session's mode comes after the token checks");

    let mut story = Story::new(Vec::new());
    story.call.mode = Some("plan".into());
    assert_eq!(short(&story.world.judge(story.call.clone(), at(1))), "preview", "judged by its own mode");
    story.call.mode = Some("ask".into());
    assert_eq!(short(&story.world.judge(story.call.clone(), at(1))), "explain");

    let mut story = Story::new(Vec::new());
    let CatalogStatus::Accepted(tool) = story.call.catalog_status.clone() else { panic!() };
    story.call.catalog_status = CatalogStatus::Changed(tool);
    assert_eq!(story.refusal(1), (Code::ConfirmTokenMismatch, "tool_changed"));

    let mut story = Story::new(Vec::new());
    story.pending_plan().plan.fingerprint = countersign_policy::digest::Digest::plain(b"other");
    assert_eq!(story.refusal(1), (Code::ConfirmTokenMismatch, "tool_changed"));

    let story = Story::new(Vec::new());
    let mut rule = Rule::named("r", &["*"]);
    rule.strength = Some(ApprovalStrength::Human);
    let pending_plan = story.world.pending_plan.clone();
    let mut world = World::with_rules(vec![rule]);
    world.pending_plan = pending_plan;
    let story = Story { world, call: story.call };
    assert_eq!(story.refusal(1), (Code::ConfirmTokenMismatch, "policy_changed"));

    let mut deny = Rule::named("r", &["*"]);
    deny.deny = Some("closed".into());
    let mut world = World::with_rules(vec![deny]);
    world.pending_plan = story.world.pending_plan.clone();
    let story = Story { world, call: story.call };
    assert_eq!(story.refusal(1), (Code::RuleDenied, "rule_denied"));
}

#[test]
fn invariant_agents_never_approve() {
    let rule = |kind, strength| {
        let mut rule = Rule::named("r", &["*"]);
        rule.confirm = Some(kind);
        rule.strength = Some(strength);
        vec![rule]
    };
    for requirement in [ApprovalStrength::Host, ApprovalStrength::Human] {
        let mut story = Story::new(rule(Kind::Preview, requirement));
        assert_eq!(story.refusal(1), (Code::ApprovalPending, "approval_pending"), "{requirement}");
        for channel in RecordedChannel::ALL {
            story.pending_plan().approval = Some(Approval::over(*channel, "x".into(), at(1)));
            story.pending_plan().state = PlanState::Approved;
            let got = short(&story.world.judge(story.call.clone(), at(2)));
            let expect = if channel.strength() >= requirement { "redeem" } else { "approval_pending" };
            assert_eq!(got, expect, "{requirement} by {channel}");
        }
    }
}

#[test]
fn a_typed_name_is_exact_and_never_echoed() {
    let mut rule = Rule::named("r", &["*"]);
    rule.confirm = Some(Kind::Type);
    rule.type_field = Some("repo".into());
    rule.strength = Some(ApprovalStrength::Caller);
    let mut world = World::with_rules(vec![rule]);
    let tool = tool("delete_repo", json!({"destructiveHint": true}));
    let mut call = call(&tool, router(CallToolVariant::Destructive), r#"{"repo":"Acme Site "}"#);
    let Verdict::Hold(draft) = world.judge(call.clone(), at(0)) else { panic!() };
    assert_eq!(draft.requirement.typed.as_deref(), Some("Acme Site "));
    world.pending_plan = Some(held_for(&draft));
    for (text, expect) in [
        (None, "confirm_text_mismatch"),
        (Some("acme site "), "confirm_text_mismatch"),
        (Some("Acme Site"), "confirm_text_mismatch"),
        (Some("Acme Site "), "redeem"),
    ] {
        call.confirm_input =
            ConfirmInput { token: Some(TOKEN.into()), yes: Some(true), text: text.map(str::to_owned) };
        let verdict = world.judge(call.clone(), at(1));
        assert_eq!(short(&verdict), expect, "{text:?}");
        if let Verdict::Refuse(refused) = verdict {
            assert!(
                !refused.refusal.message.contains("Acme")
                    && !refused.refusal.details_value().to_string().contains("Acme")
            );
        }
    }
}

#[test]
fn a_preview_that_drifted_refuses_and_shows_both() {
    let mut rule = Rule::named("r", &["*"]);
    rule.preview =
        Some(PreviewStyle::Argument { arg: "dry_run".into(), preview: true.into(), apply: false.into() });
    let mut world = World::with_rules(vec![rule]).writes_by_caller();
    let tool = tool("sync_notes", json!({}));
    let mut call = call(&tool, router(CallToolVariant::Write), r#"{"id":7}"#);
    let Verdict::Hold(draft) = world.judge(call.clone(), at(0)) else { panic!() };
    assert_eq!(draft.dry_run().unwrap().arguments, r#"{"dry_run":true,"id":7}"#);
    let shown =
        |count: u32| Preview::new(PreviewSource::Argument, json!({"count": count}), &json!({"count": count}));
    let plan = draft.freeze(PlanId::new("pln_1"), shown(3), at(0), Duration::from_secs(300));
    assert_eq!(plan.arguments.canonical(), r#"{"dry_run":false,"id":7}"#, "what is frozen is what applies");
    world.pending_plan = Some(PendingPlan {
        token_expires: plan.expires,
        plan,
        state: PlanState::Pending,
        approval: None,
        note: None,
        ended: None,
        credential_expires: None,
    });
    call.confirm_input = ConfirmInput { token: Some(TOKEN.into()), yes: Some(true), text: None };
    let again = |fresh: Option<&Preview>| {
        let Verdict::Redeem(redemption) = world.judge(call.clone(), at(1)) else { panic!() };
        assert!(redemption.dry_run().is_some());
        redemption.settle(fresh)
    };
    assert_eq!(again(Some(&shown(3))).unwrap().arguments(), r#"{"dry_run":false,"id":7}"#);
    let drifted = again(Some(&shown(4))).unwrap_err().refusal;
    assert_eq!((drifted.code, drifted.reason_code), (Code::ConfirmTokenMismatch, "plan_drifted"));
    assert_eq!(drifted.details["reviewed"]["count"], 3);
    assert_eq!(drifted.details["now"]["count"], 4);
    assert_eq!(
        again(None).unwrap_err().refusal.reason_code,
        "plan_drifted",
        "a preview that was not made again refuses"
    );
}

/// A permit that could be copied could be dispatched twice: of the two answers below, a type that is `Clone` gives the first.
#[test]
fn invariant_one_gate() {
    trait CanCopy {
        fn copies(&self) -> bool;
    }
    struct Of<T>(std::marker::PhantomData<T>);
    impl<T: Clone> CanCopy for Of<T> {
        fn copies(&self) -> bool {
            true
        }
    }
    impl CanCopy for &Of<countersign_policy::gate::Permit> {
        fn copies(&self) -> bool {
            false
        }
    }
    let permit = Of::<countersign_policy::gate::Permit>(std::marker::PhantomData);
    assert!(!(&permit).copies(), "a permit is not `Clone`");
    // And no source but the gate's own makes one: its constructors are private to `core::gate`.
    let source = include_str!("../../src/gate/permit.rs");
    let made: Vec<&str> =
        source.lines().filter(|line| line.contains("-> Self") && line.contains("pub fn")).collect();
    assert!(made.is_empty(), "public constructors: {made:?}");
}

#[test]
fn paused_writes_are_refused_and_reads_go_on() {
    let mut world = World::new();
    world.writes = WriteStatus::Paused;
    let write = tool("sync_notes", json!({}));
    assert_eq!(
        short(&world.judge(call(&write, router(CallToolVariant::Write), "{}"), at(0))),
        "principal_paused"
    );
    let read = tool("get_notes", json!({"readOnlyHint": true}));
    assert_eq!(short(&world.judge(call(&read, router(CallToolVariant::Read), "{}"), at(0))), "go");
}
