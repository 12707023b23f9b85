//! Issue 14, point 20: who has to agree by default. No profile accepts the agent's own token.

use std::time::Duration;

use countersign_core::call::Arguments;
use countersign_core::config::{self, Config, ExplainInput, Source};
use countersign_core::confirm::{Brought, Held, Kind, PlanState, Strength};
use countersign_core::effect::Effect;
use countersign_core::gate::{Verdict, outlook};
use countersign_core::ids::PlanId;
use countersign_core::intent::{Door, Variant};
use countersign_core::mode::Mode;
use countersign_core::profile::{Profile, StrengthDefaults, StrengthOrigin};
use countersign_core::refusal::Code;
use countersign_core::rules::{Facts, Rule, RuleSet, Unlisted};
use jiff::Timestamp;
use serde_json::json;

use crate::world::{World, agent, at, call, router, short, tool};

/// The contract's table (section 6), with `human` where `gesture` is to come.
fn expected(profile: Profile, kind: Kind) -> Strength {
    let row = match kind {
        Kind::None => return Strength::Caller,
        Kind::Simple => ["host", "human", "human"],
        Kind::Preview => ["host", "human", "human"],
        Kind::Type => ["human", "human", "human"],
    };
    let column = Profile::ALL.iter().position(|one| *one == profile).unwrap();
    row[column].parse().unwrap()
}

fn options<T: Copy>(all: &[T]) -> Vec<Option<T>> {
    std::iter::once(None).chain(all.iter().copied().map(Some)).collect()
}

fn strength_of(rules: &RuleSet, effect: Effect) -> (Kind, Strength) {
    let hints = match effect {
        Effect::Read => json!({"readOnlyHint": true}),
        Effect::Write => json!({}),
        Effect::Destructive => json!({"destructiveHint": true}),
    };
    let tool = tool("sync_notes", hints);
    let (name, arguments) = (tool.full_name(), serde_json::Map::new());
    let facts = Facts {
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
    for profile in Profile::ALL.iter().copied() {
        for effect in Effect::ALL.iter().copied() {
            for ruled_kind in options(Kind::ALL) {
                for written in options(Strength::ALL) {
                    for ruled in options(Strength::ALL) {
                        let mut rule = Rule::named("r", &["*"]);
                        (rule.confirm, rule.strength) = (ruled_kind, ruled);
                        let (mut write, mut destructive) = (None, None);
                        match effect {
                            // What is written for another effect changes nothing.
                            Effect::Read | Effect::Write => write = written,
                            Effect::Destructive => destructive = written,
                        }
                        let rules = RuleSet::compile(vec![rule], Unlisted::Govern)
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
                        assert!(got > Strength::Caller || kind == Kind::None || !nobody_wrote_it, "{case}");
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
    for profile in Profile::ALL.iter().copied() {
        for kind in Kind::ALL.iter().copied().filter(|kind| *kind != Kind::None) {
            assert!(profile.strength(kind) >= Strength::Host, "{profile} {kind}");
        }
        for (name, hints) in [("sync_notes", json!({})), ("wipe_notes", json!({}))] {
            let mut world = World::new();
            let strengths = StrengthDefaults { profile, ..StrengthDefaults::default() };
            world.rules = world.rules.with_strengths(strengths);
            let tool = tool(name, hints);
            for door in [router(Variant::Destructive), Door::Direct] {
                let mut call = call(&tool, door, "{}");
                world.held = None;
                let Verdict::Hold(draft) = world.judge(call.clone(), at(0)) else { panic!("it is held") };
                let id = PlanId::new("pln_1");
                let plan = draft.freeze(id, draft.computed_preview(), at(0), Duration::from_secs(300));
                world.held = Some(Held {
                    token_expires: plan.expires,
                    plan,
                    state: PlanState::Pending,
                    approval: None,
                    note: None,
                    ended: None,
                    credential_expires: None,
                });
                call.brought = Brought { token: Some("t".into()), yes: Some(true), text: Some("x".into()) };
                assert_eq!(short(&world.judge(call, at(1))), "approval_pending", "{profile} {name}");
            }
        }
    }
}

#[test]
fn attack_20_a_plan_made_under_a_softer_profile_ends_with_it() {
    let soft = StrengthDefaults { write: Some(Strength::Caller), ..StrengthDefaults::default() };
    let stricter = [
        StrengthDefaults::default(),
        StrengthDefaults { profile: Profile::Team, ..StrengthDefaults::default() },
        StrengthDefaults { write: Some(Strength::Human), ..StrengthDefaults::default() },
    ];
    for now in stricter {
        let mut world = World::new();
        world.rules = world.rules.with_strengths(soft);
        let tool = tool("sync_notes", json!({}));
        let mut call = call(&tool, router(Variant::Write), "{}");
        let Verdict::Hold(draft) = world.judge(call.clone(), at(0)) else { panic!() };
        let plan =
            draft.freeze(PlanId::new("pln_1"), draft.computed_preview(), at(0), Duration::from_secs(300));
        let token_expires = plan.expires;
        let state = PlanState::Pending;
        world.held = Some(Held {
            token_expires,
            plan,
            state,
            approval: None,
            note: None,
            ended: None,
            credential_expires: None,
        });
        call.brought = Brought { token: Some("t".into()), yes: Some(true), text: None };
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

fn read(text: &str) -> Result<Config, String> {
    config::parse(&[Source::new("countersign.toml", text)])
        .map_err(|found| found.iter().map(|finding| format!("{finding}\n")).collect())
}

#[test]
fn attack_20_the_configuration_says_profile_strength_and_hold() {
    let plain = read("").unwrap().confirm;
    assert_eq!(plain.strengths, StrengthDefaults::default());
    assert_eq!((plain.strengths.profile, plain.hold), (Profile::Solo, Duration::from_secs(50)));
    let said = read(
        "[confirm]\nprofile = \"team\"\nstrength = { write = \"host\", destructive = \"human\" }\nhold = \"0s\"\n",
    );
    let said = said.unwrap();
    assert_eq!(
        said.confirm.strengths,
        StrengthDefaults {
            profile: Profile::Team,
            write: Some(Strength::Host),
            destructive: Some(Strength::Human)
        }
    );
    assert_eq!(said.rules.strengths(), said.confirm.strengths, "what is written is what judges");
    assert_eq!(said.confirm.hold, Duration::ZERO);
    assert_eq!(read("[confirm]\nhold = \"600s\"\n").unwrap().confirm.hold, Duration::from_secs(600));
    for (text, expect) in [
        ("profile = \"sole\"", "did you mean `solo`?"),
        ("profil = \"solo\"", "did you mean `profile`?"),
        ("strength = { write = \"humann\" }", "did you mean `human`?"),
        ("strength = { wirte = \"human\" }", "did you mean `write`?"),
        ("strength = \"human\"", "strength"),
        ("hold = \"601s\"", "at most ten minutes"),
        ("hold = 50", "hold"),
    ] {
        let found = read(&format!("[confirm]\n{text}\n")).unwrap_err();
        assert!(found.contains(expect), "{text}: {found}");
    }
}

#[test]
fn attack_20_policy_explain_says_where_a_strength_comes_from() {
    let because = |text: &str, tool: &str| {
        let mut input = ExplainInput::of(tool.parse().unwrap(), Timestamp::UNIX_EPOCH);
        input.arguments = Arguments::none();
        let explained = config::explain(&read(text).unwrap(), &input);
        let decided = explained.decided.iter().find(|one| one.field.as_str() == "strength").unwrap();
        format!("{} {}: {}", explained.confirm, explained.strength, decided.because)
    };
    for (text, tool, expect) in [
        ("", "a:sync", "simple host: profile solo"),
        ("", "a:wipe", "preview host: profile solo"),
        (
            "[[rules]]\nmatch = \"a:*\"\neffect = \"read\"\n",
            "a:sync",
            "none caller: no second step: nobody is asked",
        ),
        ("[confirm]\nprofile = \"team\"\n", "a:sync", "simple human: profile team"),
        (
            "[confirm]\nprofile = \"regulated\"\n",
            "a:wipe",
            "preview human: profile regulated; human until gesture is there",
        ),
        ("[confirm]\nprofile = \"regulated\"\n", "a:sync", "simple human: profile regulated"),
        ("[confirm]\nstrength = { write = \"caller\" }\n", "a:sync", "simple caller: confirm.strength.write"),
        ("[confirm]\nstrength = { write = \"caller\" }\n", "a:wipe", "preview host: profile solo"),
        (
            "[[rules]]\nmatch = \"a:*\"\nstrength = \"human\"\n",
            "a:sync",
            "simple human: rule `countersign.toml:1`",
        ),
    ] {
        assert_eq!(because(text, tool), expect, "{text}");
    }
    let defaults = StrengthDefaults::default();
    assert_eq!(defaults.strength(Effect::Write, Kind::Simple).1, StrengthOrigin::Profile);
}
