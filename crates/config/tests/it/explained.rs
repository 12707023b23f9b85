//! `policy test` and `policy explain` over configurations.

use countersign_config::{
    self as config, CallRoute, Config, ExplainInput, IntentInput, Outcome, VerdictWord,
};
use countersign_policy::call::Arguments;
use countersign_policy::mode::Mode;
use countersign_policy::role::Role;
use jiff::Timestamp;
use serde_json::json;

use super::good;

const CONTRACT: &str = include_str!("../data/contract.toml");

fn ask(tool: &str, arguments: &str, mode: Mode) -> ExplainInput {
    let mut input = ExplainInput::of(tool.parse().unwrap(), Timestamp::UNIX_EPOCH);
    input.arguments = Arguments::parse(arguments.as_bytes()).unwrap();
    input.mode = Some(mode);
    input
}

#[test]
fn which_rule_decided_each_field() {
    let config = good(CONTRACT);
    let explained =
        config::explain(&config, &ask("github:delete_repo", r#"{"repo":"acme/site"}"#, Mode::Execute));
    insta::assert_snapshot!(serde_json::to_string_pretty(&explained).unwrap());
}

#[test]
fn a_command_tool_previews_with_its_command() {
    let config = good(CONTRACT);
    let explained = config::explain(&config, &ask("infra:apply", r#"{"workspace":"prod"}"#, Mode::Plan));
    assert_eq!(explained.preview, json!({"from": "tool", "tool": "apply#preview", "digest": []}));
    assert_eq!(
        (explained.verdict, explained.rule.as_deref()),
        (VerdictWord::Preview, Some("countersign.toml:22"))
    );
    assert_eq!(explained.variant, CallRoute::Destructive);
}

#[test]
fn refusals_name_their_rule() {
    let config = good(&format!("{CONTRACT}\n[[rules]]\nmatch = \"docs:secret_*\"\nrole = \"human\"\n"));
    let check = |input: &ExplainInput, verdict, code: Option<&str>, rule: Option<&str>| {
        let explained = config::explain(&config, input);
        assert_eq!((explained.verdict, explained.code, explained.rule.as_deref()), (verdict, code, rule));
        explained
    };
    let denied = ask("shell:run", "{}", Mode::Execute);
    let explained = check(&denied, VerdictWord::Refuse, Some("E_RULE_DENIED"), Some("countersign.toml:47"));
    assert_eq!(explained.message.as_deref(), Some("`shell:run` is denied: no shell through this gateway"));
    assert_eq!(explained.warnings, ["upstream `shell` is not declared"]);
    // A condition that fails refuses: there is no amount.
    let faulty = ask("github:create_issue", "{}", Mode::Execute);
    check(&faulty, VerdictWord::Refuse, Some("E_RULE_ERROR"), Some("countersign.toml:41"));
    let plenty = ask("github:create_issue", r#"{"amount": 20000}"#, Mode::Execute);
    check(&plenty, VerdictWord::Hold, None, Some("countersign.toml:41"));
    let little = ask("github:create_issue", r#"{"amount": 2}"#, Mode::Execute);
    check(&little, VerdictWord::Hold, None, None);
    let human_only = ask("docs:secret_x", "{}", Mode::Ask);
    check(&human_only, VerdictWord::Refuse, Some("E_ROLE_FORBIDDEN"), Some("countersign.toml:51"));
    let mut wrong_way = ask("github:delete_repo", r#"{"repo":"x"}"#, Mode::Execute);
    wrong_way.way = Some(CallRoute::Read);
    check(&wrong_way, VerdictWord::Refuse, Some("E_INTENT_SERVER_MISMATCH"), Some("countersign.toml:34"));
}

#[test]
fn attack_01_an_explanation_shows_the_arguments_that_would_be_sent() {
    let config =
        good("[[rules]]\nmatch = \"a:*\"\nwhen = \"args.dry_run == false\"\ndeny = \"not for real\"\n");
    let mut input = ask("a:sync", r#"{"id":"x"}"#, Mode::Execute);
    let tool = json!({"name": "sync", "inputSchema": {"properties": {
        "dry_run": {"type": "boolean", "description": "no changes are made"}}}});
    input.describe(tool.as_object().unwrap());
    let explained = config::explain(&config, &input);
    assert_eq!(explained.effective_arguments, Some(json!({"id": "x", "dry_run": false})));
    assert_eq!(explained.code, Some("E_RULE_DENIED"));
    input.arguments = countersign_policy::call::Arguments::parse(br#"{"id":"x","dry_run":true}"#).unwrap();
    for mode in [Mode::Ask, Mode::Plan, Mode::Execute] {
        input.mode = Some(mode);
        let explained = config::explain(&config, &input);
        assert_eq!((explained.verdict, explained.effective_arguments), (VerdictWord::Preview, None));
    }
}

#[test]
fn intents_and_annotations_are_judged_as_sent() {
    let config = good("");
    let mut input = ask("a:get_x", "{}", Mode::Execute);
    input.annotations = json!({"readOnlyHint": true}).as_object().cloned();
    assert_eq!(config::explain(&config, &input).verdict, VerdictWord::Go);
    input.intent = IntentInput::Missing;
    assert_eq!(config::explain(&config, &input).code, Some("E_INTENT_REQUIRED"));
    input.intent = IntentInput::Given(json!({"operation_type": "write"}).as_object().unwrap().clone());
    assert_eq!(config::explain(&config, &input).code, Some("E_INTENT_MISMATCH"));
    input.intent = IntentInput::Given(json!({"banana": 1}).as_object().unwrap().clone());
    assert_eq!(config::explain(&config, &input).code, Some("E_ARGUMENTS_INVALID"));
    input.way = Some(CallRoute::Direct);
    input.intent = IntentInput::Suited;
    assert_eq!(config::explain(&config, &input).verdict, VerdictWord::Go);
    let mut lying = ask("a:delete_x", "{}", Mode::Execute);
    lying.annotations = json!({"readOnlyHint": true}).as_object().cloned();
    let explained = config::explain(&config, &lying);
    assert_eq!(explained.verdict, VerdictWord::Hold);
    assert_eq!(
        explained.warnings,
        [
            "the annotations of `a:delete_x` contradict its name or input schema; a rule with `effect` settles it"
        ]
    );
}

#[test]
fn the_highest_mode_binds_agents() {
    let config = good("[gateway]\nmax_mode = \"plan\"\n");
    let mut input = ask("a:write_x", "{}", Mode::Execute);
    assert_eq!(config::explain(&config, &input).code, Some("E_MODE_FORBIDDEN"));
    input.role = Role::Human;
    assert_eq!(config::explain(&config, &input).verdict, VerdictWord::Hold);
    input.mode = None;
    assert_eq!(config::explain(&config, &input).mode, Mode::Ask, "the configured default");
}

fn run(config: &Config) -> Vec<(String, String, Outcome, Vec<String>)> {
    let run = |case| {
        let outcome = config::run_case(config, case);
        let differences =
            outcome.differences.iter().map(|it| format!("{}: {} not {}", it.field, it.got, it.expected));
        (outcome.name, outcome.at, outcome.outcome, differences.collect())
    };
    config.tests.iter().map(run).collect()
}

#[test]
fn cases_pass_and_fail() {
    let rules = r#"
[[rules]]
match = "bank:pay"
when = "args.amount > 100 || now > timestamp('2026-06-01T00:00:00Z') || caller.principal == 'eve'"
confirm = "type"
type_field = "to"
[[rules]]
match = "bank:close"
deny = true

[[tests]]
name = "small payments"
tool = "bank:pay"
args = { amount = 5, to = "bob" }
mode = "execute"
expect = { verdict = "hold", effect = "destructive", confirm = "preview", strength = "host" }

[[tests]]
name = "large payments"
tool = "bank:pay"
args = { amount = 500, to = "bob" }
mode = "execute"
variant = "write"
intent = { operation_type = "write", reason = "the bill" }
expect = { verdict = "hold", confirm = "type", strength = "human", rule = "countersign.toml:1" }

[[tests]]
name = "late payments"
tool = "bank:pay"
args = { amount = 5, to = "bob" }
now = 2026-07-01T00:00:00Z
mode = "execute"
expect = { confirm = "type" }

[[tests]]
name = "eve"
tool = "bank:pay"
args = { amount = 5, to = "bob" }
principal = "eve"
mode = "plan"
expect = { verdict = "preview", confirm = "type" }

[[tests]]
tool = "bank:close"
role = "human"
variant = "direct"
expect = { verdict = "refuse", code = "E_RULE_DENIED", reason_code = "rule_denied" }

[[tests]]
name = "this one is wrong"
tool = "bank:balance"
annotations = { readOnlyHint = true }
description = "How much there is"
intent = false
expect = { verdict = "go", effect = "write", code = "E_RULE_DENIED", rule = "x" }
"#;
    let outcomes = run(&good(rules.trim_start()));
    let (last, others) = outcomes.split_last().unwrap();
    assert!(others.iter().all(|outcome| outcome.2 == Outcome::Passed), "{others:?}");
    assert_eq!((others[4].0.as_str(), others[4].1.as_str()), ("bank:close", "countersign.toml:42"));
    let expect = [
        "verdict: refuse not go",
        "code: E_INTENT_REQUIRED not E_RULE_DENIED",
        "effect: read not write",
        "rule:  not x",
    ];
    assert_eq!((last.2, last.3.as_slice()), (Outcome::Failed, expect.map(str::to_owned).as_slice()));
}
