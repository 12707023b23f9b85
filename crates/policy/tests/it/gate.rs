//! Other decisions: standing of tools, scopes, modes, rules, grants, records, and the pages generated from the
//! registry.

use std::collections::BTreeMap;
use std::time::Duration;

use countersign_policy::call::{Arguments, CatalogStatus};
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::digest::Digest;
use countersign_policy::duration::RateLimit;
use countersign_policy::effect::Effect;
use countersign_policy::gate::{RuleUsage, Verdict};
use countersign_policy::grant::{Allowed, Grant};
use countersign_policy::ids::{PlanId, PrincipalId};
use countersign_policy::intent::{CallEntryPoint, CallToolVariant};
use countersign_policy::mode::Mode;
use countersign_policy::plan::PlanHashInput;
use countersign_policy::preview::PreviewStyle;
use countersign_policy::refusal::{Code, registry_markdown};
use countersign_policy::rules::{Condition, Rule, RuleName, RuleSet, UnlistedToolPolicy};
use countersign_policy::tool::Tool;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use crate::world::{World, at, call, router, short, tool};

fn code(verdict: &Verdict) -> Code {
    match verdict {
        Verdict::Refuse(refused) => refused.refusal.code,
        other => panic!("expected a refusal, got {}", short(other)),
    }
}

#[test]
fn invariant_closed_by_default() {
    let world = World::new();
    let known = tool("sync_notes", json!({}));
    let mut unknown = call(&known, router(CallToolVariant::Write), "{}");
    unknown.catalog_status = CatalogStatus::Unknown(vec!["github:sync_note".into()]);
    assert_eq!(code(&world.judge(unknown, at(0))), Code::ToolNotFound);
    let mut unlisted = call(&known, router(CallToolVariant::Write), "{}");
    unlisted.catalog_status = CatalogStatus::Unlisted("it exits at once".into());
    assert_eq!(code(&world.judge(unlisted, at(0))), Code::UpstreamUnavailable);
    let mut changed = call(&known, router(CallToolVariant::Write), "{}");
    changed.catalog_status = CatalogStatus::Changed(known.clone());
    assert_eq!(code(&world.judge(changed, at(0))), Code::ToolChanged);
    let mut new = call(&known, router(CallToolVariant::Write), "{}");
    new.catalog_status = CatalogStatus::Quarantined(known.clone(), "tool_new");
    assert_eq!(code(&world.judge(new, at(0))), Code::ToolQuarantined);
    let mut rule = Rule::named("r", &["*"]);
    rule.when = Some(Condition::compile("args.amount > 1").unwrap());
    rule.confirm = Some(Kind::None);
    let erring = World::with_rules(vec![rule]);
    assert_eq!(
        code(&erring.judge(call(&known, router(CallToolVariant::Write), "{}"), at(0))),
        Code::RuleError
    );
}

#[test]
fn the_same_call_gives_the_same_verdict_twice() {
    let world = World::new();
    let tool = tool("wipe_notes", json!({}));
    let once =
        format!("{:?}", world.judge(call(&tool, router(CallToolVariant::Destructive), r#"{"a":1}"#), at(5)));
    let twice =
        format!("{:?}", world.judge(call(&tool, router(CallToolVariant::Destructive), r#"{"a":1}"#), at(5)));
    assert_eq!(once, twice);
}

#[test]
fn modes_resolve_call_then_session_then_default_and_bad_ones_change_nothing() {
    let tool = tool("sync_notes", json!({}));
    let mut world = World::new();
    world.session_mode = None;
    assert_eq!(
        short(&world.judge(call(&tool, router(CallToolVariant::Write), "{}"), at(0))),
        "explain",
        "default is ask"
    );
    let mut planned = call(&tool, router(CallToolVariant::Write), "{}");
    planned.mode = Some("plan".into());
    assert_eq!(short(&world.judge(planned, at(0))), "preview");
    world.session_mode = Some(Mode::Execute);
    let mut bad = call(&tool, router(CallToolVariant::Write), "{}");
    bad.mode = Some("yolo".into());
    let verdict = world.judge(bad, at(0));
    let Verdict::Refuse(refused) = verdict else { panic!() };
    assert_eq!(refused.refusal.code, Code::ModeInvalid);
    assert_eq!(refused.refusal.message, "unknown mode `yolo`: must be ask, plan, or execute");
    let mut capped = call(&tool, router(CallToolVariant::Write), "{}");
    capped.caller.scopes.max_mode = Mode::Plan;
    assert_eq!(code(&world.judge(capped, at(0))), Code::ModeForbidden);
}

#[test]
fn ask_mode_explains_and_says_how_to_go_on() {
    let mut world = World::new();
    world.session_mode = Some(Mode::Ask);
    let tool = tool("delete_repo", json!({"destructiveHint": true}));
    let verdict =
        world.judge(call(&tool, router(CallToolVariant::Destructive), r#"{"repo":"acme/site"}"#), at(0));
    let Verdict::Explain(explanation) = verdict else { panic!() };
    assert_eq!(explanation.refusal.code, Code::ModeAsk);
    assert_eq!(explanation.explain["effect"], "destructive");
    assert_eq!(explanation.explain["confirm"], "preview");
    assert_eq!(explanation.explain["strength"], "host");
    assert_eq!(explanation.explain["target"]["repo"], "acme/site");
    assert!(explanation.explain["how_to_go_on"].as_array().unwrap().len() >= 2);
}

#[test]
fn scopes_bind_the_line() {
    let world = World::new();
    let tool = tool("sync_notes", json!({}));
    let mut elsewhere = call(&tool, router(CallToolVariant::Write), "{}");
    elsewhere.caller.scopes.upstreams = Some(vec!["docs".into()]);
    assert_eq!(code(&world.judge(elsewhere, at(0))), Code::ScopeForbidden);
    let mut reader = call(&tool, router(CallToolVariant::Write), "{}");
    reader.caller.scopes.effects = Some(vec![Effect::Read]);
    assert_eq!(code(&world.judge(reader, at(0))), Code::ScopeForbidden);
}

#[test]
fn the_first_match_per_field_wins_and_every_deny_denies() {
    let mut first = Rule::named("first", &["github:*"]);
    first.confirm = Some(Kind::Preview);
    let mut second = Rule::named("second", &["*"]);
    second.confirm = Some(Kind::None);
    second.strength = Some(ApprovalStrength::Human);
    let world = World::with_rules(vec![first.clone(), second.clone()]);
    let tool = tool("sync_notes", json!({}));
    assert_eq!(
        short(&world.judge(call(&tool, router(CallToolVariant::Write), "{}"), at(0))),
        "hold preview/human"
    );
    let mut allow = Rule::named("allow", &["github:sync_notes"]);
    allow.allow = Some(true);
    let mut deny = Rule::named("deny", &["github:*"]);
    deny.deny = Some("not today".into());
    let world = World::with_rules(vec![allow, first, deny]);
    let Verdict::Refuse(refused) = world.judge(call(&tool, router(CallToolVariant::Write), "{}"), at(0))
    else {
        panic!()
    };
    assert_eq!(refused.refusal.code, Code::RuleDenied);
    assert_eq!(refused.refusal.message, "`github:sync_notes` is denied: not today");
    assert_eq!(refused.refusal.details["rule"], "deny");
}

#[test]
fn unlisted_tools_are_denied_where_the_operator_says_so() {
    let mut allow = Rule::named("allow", &["github:get_*"]);
    allow.allow = Some(true);
    let mut world = World::new();
    world.rules = RuleSet::compile(vec![allow], UnlistedToolPolicy::Deny).unwrap();
    let read = tool("get_notes", json!({"readOnlyHint": true}));
    assert_eq!(short(&world.judge(call(&read, router(CallToolVariant::Read), "{}"), at(0))), "go");
    let other = tool("sync_notes", json!({}));
    assert_eq!(
        code(&world.judge(call(&other, router(CallToolVariant::Write), "{}"), at(0))),
        Code::RuleDenied
    );
}

#[test]
fn conditions_see_args_tool_caller_intent_mode_and_now() {
    let tool = tool("create_order", json!({}));
    for (condition, expect) in [
        ("args.amount > 10000", "hold simple/human"),
        ("args.amount < 10000.5", "hold simple/host"),
        ("tool.name == 'create_order' && tool.upstream == 'github'", "hold simple/human"),
        ("tool.full_name.startsWith('github:')", "hold simple/human"),
        ("caller.role == 'agent' && caller.principal == 'agent'", "hold simple/human"),
        ("intent.operation_type == 'write'", "hold simple/human"),
        ("mode == 'execute'", "hold simple/human"),
        ("now > timestamp('1970-01-01T00:00:00Z')", "hold simple/human"),
        ("now.getDayOfWeek() == 5", "hold simple/host"),
        ("args.items.exists(i, i.sku == 'x')", "hold simple/human"),
        ("has(args.missing) && args.missing > 1", "hold simple/host"),
        ("args.missing > 1", "rule_error"),
        ("args.amount", "rule_error"),
        ("args.amount > 'text'", "rule_error"),
        ("1 / 0 > 1", "rule_error"),
    ] {
        let mut rule = Rule::named("r", &["*:create_*"]);
        rule.when = Some(Condition::compile(condition).unwrap());
        rule.strength = Some(ApprovalStrength::Human);
        let world = World::with_rules(vec![rule]);
        let call = call(&tool, router(CallToolVariant::Write), r#"{"amount":20000,"items":[{"sku":"x"}]}"#);
        assert_eq!(short(&world.judge(call, at(100))), expect, "{condition}");
    }
    for bad in ["args.", "foo > 1", "arg.amount > 1", "", "args.items.all(x, y > 1) &&", &"a".repeat(5000)] {
        assert!(Condition::compile(bad).is_err(), "{bad}");
    }
}

#[cfg(unix)]
#[test]
fn a_path_is_under_a_folder_by_whole_names_or_the_call_is_refused() {
    let tool = tool("create_file", json!({}));
    for (condition, path, expect) in [
        ("under(args.path, '/a/b')", json!("/a/b/c"), "hold simple/human"),
        ("args.path.under('/a/b')", json!("/a/b/c"), "hold simple/human"),
        ("args.path.under('/a/b/')", json!("/a/b"), "hold simple/human"),
        ("under(args.path, '/a/b')", json!("/a/bc"), "hold simple/host"),
        ("under(args.path, '/a/b')", json!("/a/b/../../etc/passwd"), "hold simple/host"),
        ("args.path.under('/a/b')", json!("/a/b/../../etc/passwd"), "hold simple/host"),
        ("has(args.path) && !under(args.path, '/a')", json!("/b"), "hold simple/human"),
        ("['/x', '/a'].exists(dir, under(args.path, dir))", json!("/a/b"), "hold simple/human"),
        ("under(args.path, '/a')", json!(7), "rule_error"),
        ("under(args.path, '/a')", json!(["/a"]), "rule_error"),
        ("under(args.path, '/a')", json!(null), "rule_error"),
        ("under(args.path, 7)", json!("/a"), "rule_error"),
        ("under(args.path)", json!("/a"), "rule_error"),
        ("under(args.missing, '/a')", json!("/a"), "rule_error"),
        ("under(args.path, '/a')", json!("/a/\u{0}/../.."), "rule_error"),
        ("under(args.path, '/a')", json!("b"), "rule_error"),
        ("under(args.path, 'a')", json!("/a/b"), "rule_error"),
        ("under(args.path, '~')", json!("/a/b"), "rule_error"),
        ("!under(args.path, '/a')", json!("~/b"), "rule_error"),
        ("!under(args.path, '/a')", json!("file:///b"), "rule_error"),
    ] {
        let mut rule = Rule::named("r", &["*:create_*"]);
        rule.when = Some(Condition::compile(condition).unwrap());
        rule.strength = Some(ApprovalStrength::Human);
        let world = World::with_rules(vec![rule]);
        let call = call(&tool, router(CallToolVariant::Write), &json!({"path": path}).to_string());
        assert_eq!(short(&world.judge(call, at(100))), expect, "{condition} {path}");
    }
}

struct Always(u64);

impl RuleUsage for Always {
    fn wait(&self, _: &RuleName, _: &PrincipalId, _: RateLimit, _: Timestamp) -> Option<Duration> {
        Some(Duration::from_millis(self.0))
    }
}

#[test]
fn limits_refuse_with_the_time_to_wait() {
    let mut rule = Rule::named("r", &["*"]);
    rule.limit = Some("20/min".parse().unwrap());
    let world = World::with_rules(vec![rule]);
    let tool = tool("get_notes", json!({"readOnlyHint": true}));
    let snapshot = countersign_policy::gate::PolicySnapshot {
        rules: &world.rules,
        strictness: world.strictness,
        configured_mode: world.configured_mode,
        session_mode: world.session_mode,
        pending_plan: None,
        grants: &[],
        usage: &Always(1500),
        writes: world.writes,
        schema: &countersign_policy::gate::NoSchema,
        redactor: &world.redactor,
    };
    let verdict =
        countersign_policy::gate::judge(call(&tool, router(CallToolVariant::Read), "{}"), &snapshot, at(0));
    let Verdict::Refuse(refused) = verdict else { panic!() };
    assert_eq!(refused.refusal.code, Code::LimitExceeded);
    assert_eq!(refused.refusal.details["retry_after_ms"], 1500);
}

#[test]
fn a_grant_lets_exactly_its_calls_through_and_never_what_must_be_typed() {
    let tool = tool("delete_branch", json!({"destructiveHint": true}));
    let grant = Grant {
        id: "grt_1".into(),
        principal: "agent".into(),
        tool: "github:delete_branch".into(),
        fingerprint: tool.fingerprint,
        arguments: BTreeMap::from([("branch".to_owned(), Allowed::Exact(json!("old")))]),
        uses_left: 1,
        expires: at(100),
        by: "ann".into(),
    };
    let mut world = World::new();
    world.grants = vec![grant];
    let entry_point = router(CallToolVariant::Destructive);
    let Verdict::Go(permit) = world.judge(call(&tool, entry_point, r#"{"branch":"old"}"#), at(1)) else {
        panic!()
    };
    assert_eq!(permit.grant().unwrap().as_str(), "grt_1");
    let approval = permit.record().approval.as_ref().unwrap();
    assert_eq!((approval.by.as_str(), approval.strength), ("ann", ApprovalStrength::Human));
    assert_eq!(
        short(&world.judge(call(&tool, entry_point, r#"{"branch":"main"}"#), at(1))),
        "hold preview/host"
    );
    let mut rule = Rule::named("r", &["*"]);
    rule.confirm = Some(Kind::Type);
    rule.type_field = Some("branch".into());
    rule.strength = Some(ApprovalStrength::Host);
    world.rules = RuleSet::compile(vec![rule], UnlistedToolPolicy::Govern).unwrap();
    assert_eq!(short(&world.judge(call(&tool, entry_point, r#"{"branch":"old"}"#), at(1))), "hold type/host");
}

#[test]
fn a_grant_need_not_list_what_says_apply() {
    let definition = json!({"name": "modify_item", "annotations": {"destructiveHint": true},
        "inputSchema": {"type": "object", "properties": {"id": {}, "name": {}, "preview": {"type": "boolean"}}}});
    let tool = Tool::read("github".into(), definition.as_object().unwrap().clone()).unwrap();
    let tool = std::sync::Arc::new(tool);
    let mut rule = Rule::named("r", &["*"]);
    rule.preview =
        Some(PreviewStyle::Argument { arg: "preview".into(), preview: true.into(), apply: false.into() });
    let mut world = World::with_rules(vec![rule]);
    world.grants = vec![Grant {
        id: "grt_1".into(),
        principal: "agent".into(),
        tool: "github:modify_item".into(),
        fingerprint: tool.fingerprint,
        arguments: BTreeMap::from([
            ("id".to_owned(), Allowed::Exact(json!(1))),
            ("name".to_owned(), Allowed::Any),
        ]),
        uses_left: 1,
        expires: at(100),
        by: "ann".into(),
    }];
    let entry_point = router(CallToolVariant::Destructive);
    for arguments in [r#"{"id":1,"name":"x"}"#, r#"{"id":1,"name":"x","preview":false}"#] {
        let Verdict::Go(permit) = world.judge(call(&tool, entry_point, arguments), at(1)) else {
            panic!("{arguments}")
        };
        assert_eq!(permit.arguments(), r#"{"id":1,"name":"x","preview":false}"#);
    }
    let other = call(&tool, entry_point, r#"{"id":2,"name":"x"}"#);
    assert_eq!(short(&world.judge(other, at(1))), "hold preview/host");
    let preview = call(&tool, entry_point, r#"{"id":1,"name":"x","preview":true}"#);
    assert_eq!(short(&world.judge(preview, at(1))), "preview");
}

#[test]
fn an_explicit_dry_run_is_never_made_real() {
    let mut rule = Rule::named("r", &["*"]);
    rule.preview =
        Some(PreviewStyle::Argument { arg: "dry_run".into(), preview: true.into(), apply: false.into() });
    rule.confirm = Some(Kind::None);
    let world = World::with_rules(vec![rule]);
    let tool = tool("sync_notes", json!({}));
    let Verdict::Preview(draft) =
        world.judge(call(&tool, CallEntryPoint::Direct, r#"{"dry_run":true}"#), at(0))
    else {
        panic!()
    };
    assert_eq!(draft.dry_run().unwrap().arguments, r#"{"dry_run":true}"#);
}

#[test]
fn refused_calls_keep_their_record_without_secrets() {
    let mut rule = Rule::named("r", &["*"]);
    rule.redact = vec!["password".into()];
    rule.deny = Some("no".into());
    let world = World::with_rules(vec![rule]);
    let tool = tool("sync_notes", json!({}));
    let verdict =
        world.judge(call(&tool, router(CallToolVariant::Write), r#"{"password":"hunter2","id":1}"#), at(0));
    let Verdict::Refuse(refused) = verdict else { panic!() };
    assert!(!refused.record.arguments.to_string().contains("hunter2"));
    assert_eq!(refused.record.arguments["id"], 1);
    assert_eq!(refused.record.effect, Some(Effect::Write));
}

#[test]
fn docs_refusals_is_what_the_registry_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/refusals.md");
    if std::env::var_os("COUNTERSIGN_BLESS").is_some() {
        std::fs::write(path, registry_markdown()).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(page == registry_markdown(), "docs/refusals.md is stale: run with COUNTERSIGN_BLESS=1");
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (-9_007_199_254_740_991i64..=9_007_199_254_740_991).prop_map(Into::into),
        any::<f64>()
            .prop_filter("finite, no minus zero", |x| x.is_finite() && (*x != 0.0 || x.is_sign_positive()))
            .prop_map(Into::into),
        ".{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::Array),
            prop::collection::vec((".{0,4}", inner), 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn hash(arguments: &Arguments) -> Digest {
    let zero = Digest::from_bytes([0; 32]);
    PlanHashInput {
        principal: &"p".into(),
        session: &"s".into(),
        upstream: &"u".into(),
        tool: &"t".into(),
        fingerprint: zero,
        arguments,
        meta: None,
        preview_digest: zero,
        policy_digest: zero,
        hash_salt: None,
    }
    .hash()
}

proptest! {
    /// Equal canonical bytes, equal plan hash, and the other way round.
    #[test]
    fn equal_canonical_bytes_mean_equal_plan_hash(left in json_value(), right in json_value()) {
        let wrap = |value: &serde_json::Value| Arguments::parse(json!({"v": value}).to_string().as_bytes());
        if let (Ok(left), Ok(right)) = (wrap(&left), wrap(&right)) {
            prop_assert_eq!(left.canonical() == right.canonical(), hash(&left) == hash(&right));
            let spaced = left.canonical().replace("\":", "\" : ");
            if let Ok(again) = Arguments::parse(spaced.as_bytes())
                && again.value() == left.value()
            {
                prop_assert_eq!(hash(&again), hash(&left));
            }
        }
    }
}

#[test]
fn a_plan_survives_its_stored_form() {
    let world = World::new();
    let tool = tool("delete_repo", json!({"destructiveHint": true}));
    let Verdict::Hold(draft) =
        world.judge(call(&tool, router(CallToolVariant::Destructive), r#"{"repo":"x","n":1.0}"#), at(0))
    else {
        panic!()
    };
    let plan = draft.freeze(PlanId::new("pln_1"), draft.computed_preview(), at(0), Duration::from_secs(300));
    let text = serde_json::to_string(&plan).unwrap();
    let back: countersign_policy::plan::Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(back, plan);
}
