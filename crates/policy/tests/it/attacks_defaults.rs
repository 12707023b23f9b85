//! Issue 14, point 20: who has to agree by default. No profile accepts the agent's own token.

use std::time::Duration;

use countersign_policy::confirm::{ApprovalStrength, ConfirmInput, Kind, PendingPlan, PlanState};
use countersign_policy::effect::Effect;
use countersign_policy::gate::{Verdict, outlook};
use countersign_policy::ids::PlanId;
use countersign_policy::intent::{CallEntryPoint, CallToolVariant};
use countersign_policy::mode::Mode;
use countersign_policy::profile::{ConfirmProfile, StrengthDefaults};
use countersign_policy::refusal::Code;
use countersign_policy::rules::{ConditionFacts, Rule, RuleSet, UnlistedToolPolicy};
use serde_json::json;

use crate::world::{World, agent, at, call, router, short, tool};

/// The contract's table (section 6), with `human` where `gesture` is to come.
fn expected(profile: ConfirmProfile, kind: Kind) -> ApprovalStrength {
    let row = match kind {
        Kind::None => return ApprovalStrength::Caller,
        Kind::Simple => ["host", "human", "human"],
        Kind::Preview => ["host", "human", "human"],
        Kind::Type => ["human", "human", "human"],
    };
    let column = ConfirmProfile::ALL.iter().position(|one| *one == profile).unwrap();
    row[column].parse().unwrap()
}

fn options<T: Copy>(all: &[T]) -> Vec<Option<T>> {
    std::iter::once(None).chain(all.iter().copied().map(Some)).collect()
}

fn strength_of(rules: &RuleSet, effect: Effect) -> (Kind, ApprovalStrength) {
    let hints = match effect {
        Effect::Read => json!({"readOnlyHint": true}),
        Effect::Write => json!({}),
        Effect::Destructive => json!({"destructiveHint": true}),
    };
    let tool = tool("sync_notes", hints);
    let (name, arguments) = (tool.full_name(), serde_json::Map::new());
    let facts = ConditionFacts {
        name: &name,
        tool: Some(&tool),
        arguments: &arguments,
        caller: &agent(),
        intent: None,
        mode: Mode::Execute,
        now: at(0),
    };
    let (classified, kind, strength) = outlook(&tool, &rules.resolve(&facts));
    assert_eq!(classified.effect, effect);
    (kind, strength)
}

#[test]
fn attack_20_strengths_over_profile_kind_override_and_rule() {
    let mut seen = 0;
    for profile in ConfirmProfile::ALL.iter().copied() {
        for effect in Effect::ALL.iter().copied() {
            for ruled_kind in options(Kind::ALL) {
                for written in options(ApprovalStrength::ALL) {
                    for ruled in options(ApprovalStrength::ALL) {
                        let mut rule = Rule::named("r", &["*"]);
                        (rule.confirm, rule.strength) = (ruled_kind, ruled);
                        let (mut write, mut destructive) = (None, None);
                        match effect {
                            // What is written for another effect changes nothing.
                            Effect::Read | Effect::Write => write = written,
                            Effect::Destructive => destructive = written,
                        }
                        let rules = RuleSet::compile(vec![rule], UnlistedToolPolicy::Govern)
                            .unwrap()
                            .with_strengths(StrengthDefaults { profile, write, destructive });
                        let (kind, got) = strength_of(&rules, effect);
                        let by_profile = expected(profile, kind);
                        let expect = match (ruled, written, kind) {
                            (Some(ruled), _, _) => ruled,
                            (None, None, _) | (None, _, Kind::None) => by_profile,
                            (None, Some(_), _) if effect == Effect::Read => by_profile,
                            (None, Some(written), Kind::Type) => written.max(by_profile),
                            (None, Some(written), Kind::Simple | Kind::Preview) => written,
                        };
                        let case = format!("{profile} {effect} {ruled_kind:?} {written:?} {ruled:?}");
                        assert_eq!(got, expect, "{case}");
                        let nobody_wrote_it = ruled.is_none() && written.is_none();
                        assert!(
                            got > ApprovalStrength::Caller || kind == Kind::None || !nobody_wrote_it,
                            "{case}"
                        );
                        seen += 1;
                    }
                }
            }
        }
    }
    assert_eq!(seen, 3 * 3 * 5 * 4 * 4);
}

#[test]
fn attack_20_without_a_word_of_the_operator_a_token_runs_no_change() {
    for profile in ConfirmProfile::ALL.iter().copied() {
        for kind in Kind::ALL.iter().copied().filter(|kind| *kind != Kind::None) {
            assert!(profile.strength(kind) >= ApprovalStrength::Host, "{profile} {kind}");
        }
        for (name, hints) in [("sync_notes", json!({})), ("wipe_notes", json!({}))] {
            let mut world = World::new();
            let strengths = StrengthDefaults { profile, ..StrengthDefaults::default() };
            world.rules = world.rules.with_strengths(strengths);
            let tool = tool(name, hints);
            for entry_point in [router(CallToolVariant::Destructive), CallEntryPoint::Direct] {
                let mut call = call(&tool, entry_point, "{}");
                world.pending_plan = None;
                let Verdict::Hold(draft) = world.judge(call.clone(), at(0)) else { panic!("it is held") };
                let id = PlanId::new("pln_1");
                let plan = draft.freeze(id, draft.computed_preview(), at(0), Duration::from_secs(300));
                world.pending_plan = Some(PendingPlan {
                    token_expires: plan.expires,
                    plan,
                    state: PlanState::Pending,
                    approval: None,
                    note: None,
                    ended: None,
                    credential_expires: None,
                });
                call.confirm_input =
                    ConfirmInput { token: Some("t".into()), yes: Some(true), text: Some("x".into()) };
                assert_eq!(short(&world.judge(call, at(1))), "approval_pending", "{profile} {name}");
            }
        }
    }
}

#[test]
fn attack_20_a_plan_made_under_a_softer_profile_ends_with_it() {
    let soft = StrengthDefaults { write: Some(ApprovalStrength::Caller), ..StrengthDefaults::default() };
    let stricter = [
        StrengthDefaults::default(),
        StrengthDefaults { profile: ConfirmProfile::Team, ..StrengthDefaults::default() },
        StrengthDefaults { write: Some(ApprovalStrength::Human), ..StrengthDefaults::default() },
    ];
    for now in stricter {
        let mut world = World::new();
        world.rules = world.rules.with_strengths(soft);
        let tool = tool("sync_notes", json!({}));
        let mut call = call(&tool, router(CallToolVariant::Write), "{}");
        let Verdict::Hold(draft) = world.judge(call.clone(), at(0)) else { panic!() };
        let plan =
            draft.freeze(PlanId::new("pln_1"), draft.computed_preview(), at(0), Duration::from_secs(300));
        let token_expires = plan.expires;
        let state = PlanState::Pending;
        world.pending_plan = Some(PendingPlan {
            token_expires,
            plan,
            state,
            approval: None,
            note: None,
            ended: None,
            credential_expires: None,
        });
        call.confirm_input = ConfirmInput { token: Some("t".into()), yes: Some(true), text: None };
        assert_eq!(short(&world.judge(call.clone(), at(1))), "redeem", "under the rules it was made under");
        world.rules = world.rules.with_strengths(now);
        let Verdict::Refuse(refused) = world.judge(call, at(1)) else { panic!("{now:?}") };
        assert_eq!(
            (refused.refusal.code, refused.refusal.reason_code),
            (Code::ConfirmTokenMismatch, "policy_changed"),
            "{now:?}"
        );
    }
}
