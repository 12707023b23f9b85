//! What `policy check` says about configurations that can be read.

use countersign_config::{self as config, DiagnosticKind};
use countersign_policy::intent::{CallEntryPoint, CallToolVariant};
use countersign_policy::mode::Mode;
use countersign_policy::role::Role;
use countersign_policy::rules::{Rule, RuleSet, UnlistedToolPolicy};
use proptest::prelude::*;
use serde_json::json;

use super::strict::{Made, TOOLS, made};
use super::{good, sheet};
use crate::world::{World, at, call, short, tool};

fn said(cases: &[(&str, &str)]) -> String {
    sheet(cases, |text| config::lint(&good(text)))
}

#[test]
fn rules_that_never_match() {
    let cases = [
        (
            "two rules that can never match",
            "
[[rules]]
match = \"delete_repo\"
deny = true

[[rules]]
match = \"GitHub:*\"
confirm = \"type\"
",
        ),
        (
            "no colon, one upstream",
            "[upstreams.github]\ncommand = \"x\"\n[[rules]]\nmatch = [\"delete_*\", \"github\"]\ndeny = true\n",
        ),
        (
            "an upstream that is not declared",
            "[upstreams.github]\ncommand = \"x\"\n[[rules]]\nmatch = [\"gitub:*\", \"slack:*\", \"{a,b}:*\"]\ndeny = true\n",
        ),
        (
            "a tool that a command upstream does not have",
            "
[[upstreams.infra.tools]]
name = \"apply\"
description = \"d\"
run = [\"a\"]
[[rules]]
match = [\"infra:aply\", \"infra:destroy*\", \"infra:a*\"]
confirm = \"type\"
",
        ),
        (
            "conditions that never change",
            "
[[rules]]
match = \"a:*\"
when = \"1 > 2\"
deny = true
[[rules]]
match = \"a:*\"
when = \"args.x == 1 && false\"
deny = true
[[rules]]
match = \"a:*\"
when = \"true || args.x\"
deny = true
[[rules]]
match = \"a:*\"
when = \"'yes'\"
deny = true
",
        ),
    ];
    insta::assert_snapshot!(said(&cases));
}

#[test]
fn rules_that_never_decide() {
    let cases = [
        (
            "everything is decided before",
            "
[[rules]]
match = \"github:*\"
confirm = \"preview\"
strength = \"host\"
[[rules]]
match = \"github:delete_*\"
confirm = \"type\"
strength = \"human\"
",
        ),
        (
            "by two rules together",
            "
[[rules]]
match = \"*\"
effect = \"write\"
[[rules]]
match = \"a:*\"
confirm = \"simple\"
[[rules]]
match = [\"a:x\", \"a:y\"]
when = \"args.n > 1\"
effect = \"read\"
confirm = \"none\"
",
        ),
        (
            "behind a deny",
            "[[rules]]\nmatch = \"shell:*\"\ndeny = true\n[[rules]]\nmatch = \"shell:ls\"\nallow = true\nlimit = \"1/s\"\n",
        ),
        (
            "the same rule twice",
            "[[rules]]\nmatch = \"a:*\"\nlimit = \"1/s\"\n[[rules]]\nmatch = \"a:*\"\nlimit = \"1/s\"\n",
        ),
        ("nothing at all", "[[rules]]\nmatch = \"a:*\"\n"),
        (
            "redaction of the same paths",
            "[[rules]]\nmatch = \"*:*\"\nredact = [\"a\", \"b\"]\n[[rules]]\nmatch = \"a:*\"\nredact = \"a\"\n",
        ),
    ];
    insta::assert_snapshot!(said(&cases));
}

#[test]
fn fields_that_say_something_else() {
    let cases = [
        ("allow beside deny", "[[rules]]\nmatch = \"a:*\"\nallow = true\ndeny = \"no\"\n"),
        (
            "destructive without a second step",
            "[[rules]]\nmatch = \"a:*\"\neffect = \"destructive\"\nconfirm = \"none\"\nstrength = \"human\"\n",
        ),
        ("typed by the agent", "[[rules]]\nmatch = \"a:*\"\nconfirm = \"type\"\nstrength = \"caller\"\n"),
        (
            "a field to type, and nothing typed",
            "[[rules]]\nmatch = \"a:x*\"\ntype_field = \"repo\"\n[[rules]]\nmatch = \"a:y*\"\nconfirm = \"type\"\n",
        ),
        (
            "a field to type beside another confirm",
            "[[rules]]\nmatch = \"a:*\"\ntype_field = \"repo\"\nconfirm = \"preview\"\n",
        ),
        (
            "command tools",
            "[[upstreams.a.tools]]\nname = \"x\"\nrun = [\"x\"]\ninput = { n = {} }\neffect = \"destructive\"\nconfirm = \"none\"\n",
        ),
    ];
    insta::assert_snapshot!(said(&cases));
}

#[test]
fn good_rules_are_left_alone() {
    for text in [
        include_str!("../data/contract.toml"),
        include_str!("../../../../examples/first/countersign.toml"),
        // Conditional rules decide nothing for certain.
        "[[rules]]\nmatch = \"a:*\"\nwhen = \"args.x == 1\"\nconfirm = \"none\"\n[[rules]]\nmatch = \"a:b\"\nconfirm = \"type\"\n",
        // One field is still open.
        "[[rules]]\nmatch = \"a:*\"\nconfirm = \"none\"\n[[rules]]\nmatch = \"a:b\"\nconfirm = \"type\"\nlimit = \"1/s\"\n",
        // A narrower rule first.
        "[[rules]]\nmatch = \"a:b\"\nconfirm = \"type\"\n[[rules]]\nmatch = \"a:*\"\nconfirm = \"none\"\n",
        // Redaction adds up.
        "[[rules]]\nmatch = \"*\"\nredact = \"a\"\n[[rules]]\nmatch = \"a:*\"\nredact = \"b\"\n",
        // Typed by another rule that may match the same tool.
        "[[rules]]\nmatch = \"a:*\"\ntype_field = \"repo\"\n[[rules]]\nmatch = \"*:delete_*\"\nconfirm = \"type\"\n",
        // Rules only, as presets have them: no upstream is declared, so none is missing.
        "[[rules]]\nmatch = \"anything:*\"\ndeny = true\n",
        // A deny does not make an effect or a role needless.
        "[[rules]]\nmatch = \"a:*\"\ndeny = true\n[[rules]]\nmatch = \"a:b\"\nrole = \"human\"\n",
        // What is not understood is left alone.
        "[[rules]]\nmatch = \"a:[x-]/**/b\"\ndeny = true\n",
    ] {
        let found: Vec<_> = config::lint(&good(text))
            .into_iter()
            .filter(|finding| !finding.message.contains("no upstream `shell`"))
            .collect();
        assert_eq!(super::show(&found), "", "{text}");
    }
}

/// What the rules make of every tool, amount, mode and role.
fn verdicts(rules: RuleSet) -> Vec<String> {
    let world = World { rules, ..World::new() };
    let mut verdicts = Vec::new();
    for name in TOOLS {
        let tool = tool(name, json!({}));
        for arguments in ["{}", r#"{"amount":1}"#, r#"{"amount":7}"#, r#"{"amount":100}"#] {
            for (mode, role) in
                Mode::ALL.iter().flat_map(|mode| Role::ALL.iter().map(move |role| (mode, role)))
            {
                let mut call = call(&tool, CallEntryPoint::Router(CallToolVariant::Destructive), arguments);
                call.mode = Some(mode.as_str().to_owned());
                call.caller.role = *role;
                verdicts.push(short(&world.judge(call, at(1))));
            }
        }
    }
    verdicts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_that_never_decide_can_go_without_a_change(
        rules in prop::collection::vec(made().prop_filter("conditions that fail refuse", |rule| !rule.may_fail()), 2..7),
    ) {
        let text: String = rules.iter().map(Made::text).collect();
        let config = good(&text);
        let needless: Vec<String> = config::lint(&config)
            .iter()
            .filter(|finding| matches!(finding.code, DiagnosticKind::NeverDecides | DiagnosticKind::DuplicateRule | DiagnosticKind::EmptyRule))
            .map(|finding| format!("{}:{}", finding.file, finding.line))
            .collect();
        let rest: Vec<Rule> = config.rules.rules().iter().filter(|rule| !needless.contains(&rule.name.0)).cloned().collect();
        let without = RuleSet::compile(rest, UnlistedToolPolicy::Govern).unwrap();
        prop_assert_eq!(verdicts(config.rules), verdicts(without), "{:?} of\n{}", needless, text);
    }
}

#[test]
fn startswith_on_a_path_is_warned_about_and_on_other_texts_is_not() {
    let said = |when: &str| {
        let text = format!("[[rules]]\nmatch = \"a:b\"\nwhen = \"{when}\"\nconfirm = \"preview\"\n");
        super::show(&config::lint(&super::good(&text)))
    };
    for when in ["args.path.startsWith('/srv')", "!(args.mode == 'x' || args.filePath.startsWith('/srv'))"] {
        assert!(said(when).contains("write `under(args."), "{when}: {}", said(when));
    }
    for when in ["tool.name.startsWith('get')", "under(args.path, '/srv')", "args.path.under('/srv')"] {
        assert_eq!(said(when), "", "{when}");
    }
}
