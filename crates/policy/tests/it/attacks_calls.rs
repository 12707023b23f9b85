//! Attacks on the distance between the call that is judged and the call that is sent: previews turned into the real call,
//! names that other readers fold, rules that are asked about other arguments than those that go out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_policy::call::{Arguments, CatalogStatus, ToolCall};
use countersign_policy::confirm::{
    Approval, ApprovalStrength, ConfirmInput, Kind, PendingPlan, PlanState, RecordedChannel,
};
use countersign_policy::gate::{
    NoLimits, NoSchema, Permit, PolicySnapshot, SentMeta, Verdict, draft_step, freeze_series, settle_series,
};
use countersign_policy::grant::{Allowed, Grant};
use countersign_policy::ids::PlanId;
use countersign_policy::intent::{CallEntryPoint, CallToolVariant};
use countersign_policy::mode::Mode;
use countersign_policy::plan::{Plan, Preview, PreviewSource};
use countersign_policy::preview::PreviewStyle;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::rules::{Condition, Rule};
use countersign_policy::tool::Tool;
use serde_json::{Value, json};

use crate::world::{World, agent, at, call, router, short};

const TOKEN: &str = "2f1b6a0e-7b9c-4c3e-9a55-0d6d4f8c1b2a";

/// A tool that says of its `dry_run` that it changes nothing.
fn sync() -> Arc<Tool> {
    let definition = json!({"name": "sync_notes", "inputSchema": {"type": "object", "properties": {
        "id": {"type": "string"}, "secret": {}, "inner": {"properties": {"scope": {}}},
        "dry_run": {"type": "boolean", "description": "If true, no changes are made"}}}});
    Arc::new(Tool::read("github".into(), definition.as_object().unwrap().clone()).unwrap())
}

fn rule(when: &str) -> Rule {
    let mut rule = Rule::named("r", &["github:*"]);
    rule.when = Some(Condition::compile(when).unwrap());
    rule
}

fn ask(arguments: &str) -> ToolCall {
    call(&sync(), router(CallToolVariant::Write), arguments)
}

fn refusal(verdict: Verdict) -> Refusal {
    match verdict {
        Verdict::Refuse(refused) => refused.refusal,
        other @ (Verdict::Go(_)
        | Verdict::Redeem(_)
        | Verdict::Hold(_)
        | Verdict::Preview(_)
        | Verdict::Explain(_)) => panic!("{other:?}"),
    }
}

fn previewed() -> Preview {
    Preview::new(PreviewSource::Argument, json!("one note"), &json!("one note"))
}

fn pending_plan(plan: Plan) -> PendingPlan {
    let approval = Some(Approval::over(RecordedChannel::Page, "ann".into(), at(0)));
    PendingPlan {
        token_expires: plan.expires,
        plan,
        state: PlanState::Approved,
        approval,
        note: None,
        ended: None,
        credential_expires: None,
    }
}

fn confirm_input() -> ConfirmInput {
    ConfirmInput { token: Some(TOKEN.into()), yes: Some(true), text: None }
}

#[test]
fn attack_01_a_rule_denies_the_call_that_would_be_sent() {
    let mut deny = rule("args.dry_run == false");
    deny.deny = Some("not the real one".into());
    let world = World::with_rules(vec![deny]);
    for arguments in [r#"{"id":"a"}"#, r#"{"id":"a","dry_run":false}"#, r#"{"id":"a","dry_run":null}"#] {
        assert_eq!(short(&world.judge(ask(arguments), at(0))), "rule_denied", "{arguments}");
    }
    assert_eq!(short(&world.judge(ask(r#"{"id":"a","dry_run":true}"#), at(0))), "preview");
}

#[test]
fn attack_01_a_rule_escalates_the_call_that_would_be_sent() {
    let mut escalate = rule("args.dry_run == false");
    (escalate.confirm, escalate.strength) = (Some(Kind::Preview), Some(ApprovalStrength::Human));
    let world = World::with_rules(vec![escalate]);
    assert_eq!(short(&world.judge(ask(r#"{"id":"a"}"#), at(0))), "hold preview/human");
}

#[test]
fn attack_01_an_explicit_preview_is_a_preview_in_every_mode() {
    let explicit = r#"{"id":"a","dry_run":true}"#;
    let mut world = World::new();
    for (mode, entry_point) in [Mode::Ask, Mode::Plan, Mode::Execute]
        .into_iter()
        .flat_map(|mode| [(mode, router(CallToolVariant::Write)), (mode, CallEntryPoint::Direct)])
    {
        world.session_mode = Some(mode);
        let Verdict::Preview(draft) = world.judge(call(&sync(), entry_point, explicit), at(0)) else {
            panic!("{mode}")
        };
        assert_eq!(draft.dry_run().unwrap().arguments, r#"{"dry_run":true,"id":"a"}"#);
        assert_eq!(draft.record.arguments, json!({"id": "a", "dry_run": true}));
        assert_eq!(draft.record.arguments_digest, Arguments::parse(explicit.as_bytes()).unwrap().digest());
    }
    // A line that may only ask gets no dry run either.
    world.session_mode = Some(Mode::Ask);
    let mut asking = ask(explicit);
    asking.caller.scopes.max_mode = Mode::Ask;
    assert_eq!(short(&world.judge(asking, at(0))), "explain");
}

#[test]
fn attack_01_an_explicit_preview_with_a_token_spends_nothing_and_stays_a_preview() {
    let mut world = World::new();
    let Verdict::Hold(draft) = world.judge(ask(r#"{"id":"a"}"#), at(0)) else { panic!() };
    let plan = draft.freeze(PlanId::new("pln_1"), previewed(), at(0), Duration::from_secs(300));
    assert_eq!(plan.arguments.canonical(), r#"{"dry_run":false,"id":"a"}"#);
    assert_eq!(plan.arguments.digest(), draft.record.arguments_digest);
    assert_eq!(draft.record.arguments, json!({"id": "a", "dry_run": false}));
    world.pending_plan = Some(pending_plan(plan));
    let mut preview = ask(r#"{"id":"a","dry_run":true}"#);
    preview.confirm_input = confirm_input();
    assert_eq!(short(&world.judge(preview.clone(), at(1))), "preview");
    preview.catalog_status = CatalogStatus::Changed(sync());
    assert_eq!(refusal(world.judge(preview, at(1))).code, Code::ToolChanged);
    for arguments in [r#"{"id":"a"}"#, r#"{"id":"a","dry_run":false}"#] {
        let mut real = ask(arguments);
        real.confirm_input = confirm_input();
        let Verdict::Redeem(redemption) = world.judge(real, at(1)) else { panic!("{arguments}") };
        let permit = redemption.settle(Some(&previewed())).unwrap();
        assert_eq!(permit.arguments(), r#"{"dry_run":false,"id":"a"}"#);
        assert_eq!(permit.record().arguments, json!({"id": "a", "dry_run": false}));
        assert_eq!(
            permit.record().arguments_digest,
            Arguments::parse(permit.arguments().as_bytes()).unwrap().digest()
        );
    }
}

#[test]
fn attack_01_a_grant_covers_what_is_sent_and_never_a_preview() {
    let mut world = World::new();
    world.grants = vec![Grant {
        id: "grt_1".into(),
        principal: "agent".into(),
        tool: "github:sync_notes".into(),
        fingerprint: sync().fingerprint,
        arguments: BTreeMap::from([
            ("id".to_owned(), Allowed::Any),
            ("dry_run".to_owned(), Allowed::Exact(json!(true))),
        ]),
        uses_left: 1,
        expires: at(100),
        by: "ann".into(),
    }];
    assert_eq!(short(&world.judge(ask(r#"{"id":"a","dry_run":true}"#), at(1))), "preview");
    assert_eq!(short(&world.judge(ask(r#"{"id":"a"}"#), at(1))), "hold simple/host");
    world.grants[0].arguments.remove("dry_run");
    let Verdict::Go(permit) = world.judge(ask(r#"{"id":"a"}"#), at(1)) else { panic!() };
    assert_eq!(permit.record().arguments, json!({"id": "a", "dry_run": false}));
    assert_eq!(*permit.meta(), SentMeta::OfPlan(None), "nobody agreed to a `_meta`");
}

#[test]
fn attack_01_a_preview_step_of_a_series_stays_a_preview() {
    let world = World::new();
    let policy = PolicySnapshot {
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
    };
    let draft = |arguments: &str| draft_step(ask(arguments), &policy, at(0)).unwrap();
    let drafts = || vec![draft(r#"{"id":"a","dry_run":true}"#), draft(r#"{"id":"b"}"#)];
    let steps: Vec<_> = drafts().into_iter().map(|draft| (draft, previewed())).collect();
    let purpose = countersign_policy::gate::SeriesPurpose { title: "t".into(), reason: None };
    let plan =
        freeze_series(PlanId::new("pln_1"), &agent(), &purpose, &steps, at(0), Duration::from_secs(300));
    let fresh = [Some(previewed()), Some(previewed())];
    let permits =
        settle_series(&pending_plan(plan), drafts(), &fresh, &confirm_input(), &agent(), at(1)).unwrap();
    let steps: Vec<&Permit> = permits.steps.iter().map(crate::series::ready).collect();
    let sent: Vec<&str> = steps.iter().map(|permit| permit.arguments()).collect();
    assert_eq!(sent, [r#"{"dry_run":true,"id":"a"}"#, r#"{"dry_run":false,"id":"b"}"#]);
    for permit in steps {
        let recorded = permit.record().arguments.clone();
        assert_eq!(recorded, serde_json::from_str::<Value>(permit.arguments()).unwrap());
    }
}

#[test]
fn attack_01_rules_that_name_another_preview_for_the_real_call_refuse() {
    let mut first = rule("!has(args.force)");
    first.preview =
        Some(PreviewStyle::Argument { arg: "force".into(), preview: false.into(), apply: true.into() });
    let mut second = rule("has(args.force)");
    second.preview = Some(PreviewStyle::Computed);
    second.redact = vec!["secret".into()];
    let world = World::with_rules(vec![first, second]);
    let Verdict::Refuse(refused) = world.judge(ask(r#"{"id":"a","secret":"s3cr3t"}"#), at(0)) else {
        panic!()
    };
    assert_eq!(refused.refusal.code, Code::RuleError);
    assert!(!refused.record.arguments.to_string().contains("s3cr3t"));
}

#[test]
fn attack_01_a_value_that_means_neither_is_refused() {
    let world = World::new();
    for arguments in
        [r#"{"dry_run":"true"}"#, r#"{"dry_run":1}"#, r#"{"dry_run":"yes"}"#, r#"{"dry_run":[]}"#]
    {
        let refusal = refusal(world.judge(ask(arguments), at(0)));
        assert_eq!(refusal.code, Code::ArgumentsInvalid, "{arguments}");
        assert_eq!(refusal.details["field"], "dry_run");
    }
}

#[test]
fn attack_01_redaction_follows_the_arguments_that_are_sent() {
    let mut redact = rule("args.dry_run == false");
    redact.redact = vec!["secret".into()];
    let world = World::with_rules(vec![redact]);
    let Verdict::Hold(draft) = world.judge(ask(r#"{"secret":"s3cr3t"}"#), at(0)) else { panic!() };
    assert!(!draft.record.arguments.to_string().contains("s3cr3t"));
}

#[test]
fn attack_01_a_boolean_by_name_alone_is_sent_as_it_came() {
    let definition = json!({"name": "sync_notes", "inputSchema": {"type": "object", "properties": {
        "dry_run": {"type": "boolean"}, "preview": {"type": "boolean", "description": "no changes are made"}}}});
    let bare = Arc::new(Tool::read("github".into(), definition.as_object().unwrap().clone()).unwrap());
    for (arguments, frozen) in [
        (r#"{}"#, r#"{}"#),
        (r#"{"dry_run":true}"#, r#"{"dry_run":true}"#),
        (r#"{"preview":true}"#, r#"{"preview":true}"#),
    ] {
        let Verdict::Hold(draft) =
            World::new().judge(call(&bare, router(CallToolVariant::Write), arguments), at(0))
        else {
            panic!("{arguments}")
        };
        assert!(draft.dry_run().is_none(), "nothing is sent to see what it would do");
        assert_eq!(draft.call.arguments.canonical(), frozen);
    }
}

#[test]
fn attack_02_meta_is_frozen_with_the_plan_and_equal_calls_share_an_identity() {
    let Verdict::Hold(mut draft) = World::new().judge(ask(r#"{"id":"a"}"#), at(0)) else { panic!() };
    let freeze = |draft: &countersign_policy::gate::CallDraft| {
        draft.freeze(PlanId::new("pln_1"), previewed(), at(0), Duration::from_secs(300))
    };
    let plain = freeze(&draft);
    draft.meta = Some(Arguments::parse(br#"{"tenant": "a"}"#).unwrap());
    let with = freeze(&draft);
    assert_ne!(plain.hash, with.hash);
    assert_eq!(plain.identity(), with.identity());
    assert_eq!(plain.identity(), plain.hash);
    // A plan that was kept before there was `meta` loads, and hashes as it did.
    let kept = serde_json::to_value(&plain).unwrap();
    assert!(kept.get("meta").is_none());
    assert_eq!(serde_json::from_value::<Plan>(kept).unwrap(), plain);
    assert_eq!(serde_json::from_value::<Plan>(serde_json::to_value(&with).unwrap()).unwrap(), with);
    let mut world = World::new();
    world.pending_plan = Some(pending_plan(with));
    let mut again = ask(r#"{"id":"a"}"#);
    again.confirm_input = confirm_input();
    let Verdict::Redeem(redemption) = world.judge(again, at(1)) else { panic!() };
    let permit = redemption.settle(Some(&previewed())).unwrap();
    let SentMeta::OfPlan(Some(meta)) = permit.meta() else { panic!() };
    assert_eq!(meta.canonical(), r#"{"tenant":"a"}"#);
}

#[test]
fn attack_03_names_that_fold_together_or_onto_a_property_are_refused_before_rules_see_them() {
    let mut deny = rule("has(args.id) && args.id == 'forbidden'");
    deny.deny = Some("no".into());
    deny.redact = vec!["secret".into()];
    let world = World::with_rules(vec![deny]);
    for arguments in [
        r#"{"Id":"forbidden"}"#,
        r#"{"id":"fine","ID":"forbidden"}"#,
        "{\"id\":\"fine\",\"id\\u0000\":\"forbidden\"}",
        "{\"id\":\"fine\",\"\u{131}d\":\"forbidden\"}",
        r#"{"inner":{"Scope":"x"}}"#,
        "{\"inner\":{\"\u{17f}cope\":\"x\"}}",
        r#"{"free":{"a":1,"A":2}}"#,
        r#"{"Secret":"s3cr3t"}"#,
    ] {
        let read = serde_json::from_value::<Arguments>(json!(arguments)).unwrap();
        let early = Arguments::parse(arguments.as_bytes());
        let mut call = ask("{}");
        call.arguments = read;
        let Verdict::Refuse(refused) = world.judge(call, at(0)) else { panic!("{arguments}") };
        assert_eq!(refused.refusal.code, Code::ArgumentsInvalid, "{arguments}");
        assert_eq!(refused.refusal.reason_code, "arguments_not_strict", "{arguments}");
        assert!(!refused.record.arguments.to_string().contains("s3cr3t"), "{arguments}");
        let collides = !arguments.starts_with(r#"{"Id"#)
            && !arguments.starts_with(r#"{"inner"#)
            && !arguments.starts_with(r#"{"Secret"#);
        assert_eq!(early.is_err(), collides, "{arguments}");
    }
}
