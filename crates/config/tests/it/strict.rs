//! A rule set never yields a verdict weaker than its strictest matching deny, and a condition that fails refuses:
//! over generated rules, globs, conditions, calls, tokens and grants, against an oracle that knows nothing of the engine.

use std::collections::BTreeMap;
use std::time::Duration;

use countersign_config::{self as config, Source};
use countersign_policy::confirm::{Approval, ConfirmInput, PendingPlan, PlanState, RecordedChannel};
use countersign_policy::gate::Verdict;
use countersign_policy::grant::{Allowed, Grant};
use countersign_policy::ids::PlanId;
use countersign_policy::intent::{CallEntryPoint, CallToolVariant, IntentStrictness};
use countersign_policy::mode::Mode;
use countersign_policy::role::Role;
use countersign_policy::rules::{Rule, RuleSet, UnlistedToolPolicy};
use proptest::prelude::*;
use serde_json::json;

use crate::world::{World, at, call, tool};

/// What a condition says of a call with this amount: true, false, or nothing because it fails.
type Oracle = fn(Option<i64>) -> Option<bool>;

const CONDITIONS: [(&str, Oracle); 8] = [
    ("args.amount > 10", |amount| amount.map(|amount| amount > 10)),
    ("args.amount < 5", |amount| amount.map(|amount| amount < 5)),
    ("has(args.amount) && args.amount == 7", |amount| Some(amount == Some(7))),
    ("!has(args.amount)", |amount| Some(amount.is_none())),
    ("args.missing == 1", |_| None),
    ("args.missing == 1 || true", |_| Some(true)),
    ("tool.upstream == 'github'", |_| Some(true)),
    ("'not a truth' + tool.name", |_| None),
];

const GLOBS: [&str; 9] = [
    "*",
    "*:*",
    "github:*",
    "github:delete_*",
    "*_repo",
    "github:get_repo",
    "docs:*",
    "g?thub:[a-z]*",
    "{docs,github}:create_*",
];

pub(super) const TOOLS: [&str; 4] = ["delete_repo", "get_repo", "create_issue", "note"];

/// Whether a glob matches, by plain recursion over the few forms used above.
fn matches(glob: &str, name: &str) -> bool {
    if let Some((head, rest)) = glob.split_once('{') {
        let (choices, tail) = rest.split_once('}').unwrap();
        return choices.split(',').any(|choice| matches(&format!("{head}{choice}{tail}"), name));
    }
    let Some(first) = glob.chars().next() else { return name.is_empty() };
    let rest = &glob[first.len_utf8()..];
    match first {
        '*' => (0..=name.len()).any(|skip| matches(rest, &name[skip..])),
        '?' => !name.is_empty() && matches(rest, &name[1..]),
        '[' => {
            name.starts_with(|one: char| one.is_ascii_lowercase())
                && matches(&glob["[a-z]".len()..], &name[1..])
        }
        literal => name.starts_with(literal) && matches(rest, &name[1..]),
    }
}

#[derive(Clone, Debug)]
pub(super) struct Made {
    globs: Vec<usize>,
    when: Option<usize>,
    denies: bool,
    fields: Vec<&'static str>,
}

impl Made {
    pub(super) fn text(&self) -> String {
        let globs: Vec<String> = self.globs.iter().map(|glob| format!("\"{}\"", GLOBS[*glob])).collect();
        let mut text = format!("[[rules]]\nmatch = [{}]\n", globs.join(", "));
        if let Some(when) = self.when {
            text.push_str(&format!("when = \"{}\"\n", CONDITIONS[when].0));
        }
        if self.denies {
            text.push_str("deny = \"not here\"\n");
        }
        self.fields.iter().for_each(|field| text.push_str(&format!("{field}\n")));
        text
    }

    /// Whether its condition fails for some call.
    pub(super) fn may_fail(&self) -> bool {
        self.when.is_some_and(|when| {
            [None, Some(1), Some(7), Some(100)].into_iter().any(|amount| CONDITIONS[when].1(amount).is_none())
        })
    }

    fn matches(&self, name: &str) -> bool {
        self.globs.iter().any(|glob| matches(GLOBS[*glob], name))
    }
}

fn field() -> impl Strategy<Value = Vec<&'static str>> {
    let one_of =
        |choices: &'static [&'static str]| prop::option::weighted(0.4, prop::sample::select(choices));
    (
        one_of(&["effect = \"read\"", "effect = \"write\"", "effect = \"destructive\""]),
        one_of(&[
            "confirm = \"none\"",
            "confirm = \"simple\"",
            "confirm = \"preview\"",
            "confirm = \"type\"",
        ]),
        one_of(&["strength = \"caller\"", "strength = \"host\"", "strength = \"human\""]),
        one_of(&["allow = true", "allow = false"]),
        one_of(&["preview = false", "preview = { arg = \"dry_run\" }", "preview = { tool = \"plan\" }"]),
        one_of(&[
            "role = \"human\"",
            "role = \"agent\"",
            "type_field = \"amount\"",
            "limit = \"1/s\"",
            "redact = \"amount\"",
            "timeout = \"1s\"",
        ]),
    )
        .prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f].into_iter().flatten().collect())
}

pub(super) fn made() -> impl Strategy<Value = Made> {
    (
        prop::collection::vec(0..GLOBS.len(), 1..3),
        prop::option::of(0..CONDITIONS.len()),
        prop::bool::weighted(0.3),
        field(),
    )
        .prop_map(|(globs, when, denies, fields)| Made { globs, when, denies, fields })
}

fn compile(rules: &[Made], unlisted: &str) -> RuleSet {
    let rules: String = rules.iter().map(Made::text).collect();
    let text = format!("[gateway]\nunlisted = \"{unlisted}\"\n{rules}");
    config::parse(&[Source::new("a.toml", text)]).unwrap_or_else(|found| panic!("{found:?}")).rules
}

/// The same rules before anybody denied anything.
fn lenient(rules: &RuleSet) -> RuleSet {
    let undenied = |rule: &Rule| Rule { deny: None, ..rule.clone() };
    RuleSet::compile(rules.rules().iter().map(undenied).collect(), UnlistedToolPolicy::Govern).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariant_no_verdict_is_weaker_than_a_matching_deny(
        rules in prop::collection::vec(made(), 1..7),
        unlisted in prop::sample::select(vec!["govern", "deny"]),
        name in prop::sample::select(TOOLS.to_vec()),
        amount in prop::option::of(prop::sample::select(vec![1i64, 7, 100])),
        mode in prop::sample::select(Mode::ALL.to_vec()),
        role in prop::sample::select(Role::ALL.to_vec()),
        entry_point in prop::sample::select(vec![CallEntryPoint::Direct, CallEntryPoint::Router(CallToolVariant::Read), CallEntryPoint::Router(CallToolVariant::Write), CallEntryPoint::Router(CallToolVariant::Destructive)]),
        strictness in prop::sample::select(vec![IntentStrictness::Strict, IntentStrictness::Lenient]),
        hints in prop::sample::select(vec![json!({}), json!({"readOnlyHint": true}), json!({"destructiveHint": true})]),
    ) {
        let arguments = amount.map_or_else(|| "{}".to_owned(), |amount| json!({"amount": amount}).to_string());
        let tool = tool(name, hints);
        let ask = |confirm_input: ConfirmInput| {
            let mut call = call(&tool, entry_point, &arguments);
            call.caller.role = role;
            call.mode = Some(mode.as_str().to_owned());
            call.confirm_input = confirm_input;
            call
        };
        // A lenient past: without denies the call may have been planned, approved and granted.
        let policy = compile(&rules, unlisted);
        let mut world = World { rules: lenient(&policy), strictness, ..World::new() };
        let now = at(1_000);
        let mut confirm_input = ConfirmInput::default();
        if let Verdict::Hold(draft) = world.judge(ask(ConfirmInput::default()), now) {
            let plan = draft.freeze(PlanId::mint(now, 1), draft.computed_preview(), now, Duration::from_secs(60));
            let approval = Some(Approval::over(RecordedChannel::Page, "alice".into(), now));
            world.pending_plan = Some(PendingPlan { plan, state: PlanState::Approved, approval, token_expires: at(2_000), note: None, ended: None, credential_expires: None });
            confirm_input = ConfirmInput { token: Some("token".into()), yes: Some(true), text: None };
        }
        world.grants = vec![Grant {
            id: "grt_1".into(),
            principal: "agent".into(),
            tool: tool.full_name().to_string(),
            fingerprint: tool.fingerprint,
            arguments: BTreeMap::from([("amount".to_owned(), Allowed::Any), ("dry_run".to_owned(), Allowed::Any)]),
            uses_left: 1,
            expires: at(2_000),
            by: "alice".into(),
        }];
        world.rules = policy;

        let full_name = tool.full_name().to_string();
        let says = |rule: &&Made| rule.when.map_or(Some(true), |when| CONDITIONS[when].1(amount));
        let matching: Vec<&Made> = rules.iter().filter(|rule| rule.matches(&full_name)).collect();
        let denied = matching.iter().any(|rule| rule.denies && says(rule) == Some(true));
        let failed = matching.iter().any(|rule| says(rule).is_none());
        let allows = matching.iter().find(|rule| says(rule) == Some(true) && rule.fields.iter().any(|field| field.starts_with("allow")));
        let disallowed = match allows {
            Some(rule) => rule.fields.contains(&"allow = false"),
            None => world.rules.unlisted() == UnlistedToolPolicy::Deny,
        };

        for confirm_input in [ConfirmInput::default(), confirm_input] {
            let verdict = world.judge(ask(confirm_input), at(1_001));
            if denied || failed || disallowed {
                prop_assert!(matches!(verdict, Verdict::Refuse(_)), "{verdict:?}");
            }
            // The engine agrees with the oracle on what matches, or the above would prove nothing.
            let found: Vec<String> = world.rules.matching(&tool.full_name()).iter().map(|index| world.rules.rules()[*index].name.0.clone()).collect();
            let expect: Vec<String> = world.rules.rules().iter().zip(&rules).filter(|(_, rule)| rule.matches(&full_name)).map(|(rule, _)| rule.name.0.clone()).collect();
            prop_assert_eq!(found, expect);
        }
    }
}
