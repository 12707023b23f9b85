//! What one judgement costs: `judge` plus plan hash for a 1 KiB call under 200 rules, as a ratio to hashing the
//! same arguments alone, measured in one run. Prints a table and a JSON line.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints and may fail loudly")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_policy::call::{Arguments, Caller, CallerScopes, CatalogStatus, ToolCall};
use countersign_policy::confirm::{ApprovalStrength, ConfirmInput};
use countersign_policy::gate::{NoLimits, NoSchema, PolicySnapshot, Verdict, WriteStatus, judge};
use countersign_policy::ids::{FullName, PlanId};
use countersign_policy::intent::{CallEntryPoint, CallToolVariant, IntentStrictness, UncheckedIntent};
use countersign_policy::mode::Mode;
use countersign_policy::record::Source;
use countersign_policy::redact::Redactor;
use countersign_policy::role::Role;
use countersign_policy::rules::{Condition, Rule, RuleSet, UnlistedToolPolicy};
use countersign_policy::tool::Tool;
use serde_json::json;

fn rules() -> RuleSet {
    let rules = (0..200)
        .map(|number| {
            let glob = match number % 4 {
                0 => format!("github:delete_{number}*"),
                1 => format!("*:create_{number}"),
                2 => format!("up{number}:*"),
                _ => format!("{{docs,files}}{number}:*_x"),
            };
            let mut rule = Rule::named(format!("rule {number}"), &[&glob]);
            rule.strength = Some(ApprovalStrength::Human);
            rule
        })
        .chain(std::iter::once_with(|| {
            let mut rule = Rule::named("amount", &["github:create_*"]);
            rule.when = Some(Condition::compile("args.amount > 10000").unwrap());
            rule.strength = Some(ApprovalStrength::Human);
            rule
        }))
        .collect();
    RuleSet::compile(rules, UnlistedToolPolicy::Govern).unwrap()
}

fn arguments() -> String {
    let lines: Vec<_> = (0..14)
        .map(|n| json!({"sku": format!("SKU-{n:04}"), "quantity": n, "price": 12.5, "note": "as agreed"}))
        .collect();
    json!({"supplier": "Acme & Söhne", "amount": 12_500, "lines": lines}).to_string()
}

fn percentiles(mut samples: Vec<Duration>) -> (Duration, Duration) {
    samples.sort_unstable();
    let at = |share: usize| samples.get(samples.len() * share / 100).copied().unwrap_or_default();
    (at(50), at(99))
}

fn measure(rounds: usize, mut work: impl FnMut()) -> (Duration, Duration) {
    for _ in 0..rounds / 10 {
        work();
    }
    let samples = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    percentiles(samples)
}

fn main() {
    let rules = rules();
    let redactor = Redactor::new(*b"salt");
    let definition = json!({"name": "create_order", "description": "Create an order"});
    let tool = Arc::new(Tool::read("github".into(), definition.as_object().unwrap().clone()).unwrap());
    let text = arguments();
    let snapshot = PolicySnapshot {
        rules: &rules,
        strictness: IntentStrictness::Strict,
        configured_mode: Mode::Execute,
        session_mode: None,
        pending_plan: None,
        grants: &[],
        usage: &NoLimits,
        writes: WriteStatus::Open,
        schema: &NoSchema,
        redactor: &redactor,
    };
    let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    let call = |arguments: Arguments| ToolCall {
        caller: Caller {
            principal: "agent".into(),
            credential: None,
            role: Role::Agent,
            session: "s".into(),
            request_id: None,
            source: Source::Mcp,
            host: None,
            scopes: CallerScopes::all(),
        },
        name: FullName::new("github", "create_order"),
        catalog_status: CatalogStatus::Accepted(Arc::clone(&tool)),
        arguments,
        entry_point: CallEntryPoint::Router(CallToolVariant::Write),
        intent: UncheckedIntent::read(json!({"intent": {"operation_type": "write"}}).as_object().unwrap())
            .unwrap(),
        mode: None,
        confirm_input: ConfirmInput::default(),
    };
    let rounds = 20_000;
    let alone = measure(rounds, || {
        black_box(Arguments::parse(black_box(text.as_bytes())).unwrap().digest());
    });
    let whole = measure(rounds, || {
        let arguments = Arguments::parse(black_box(text.as_bytes())).unwrap();
        let Verdict::Hold(draft) = judge(call(arguments), &snapshot, now) else { unreachable!() };
        let preview = draft.computed_preview();
        black_box(draft.freeze(PlanId::new("pln_1"), preview, now, Duration::from_secs(300)).hash);
    });
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    let ratio = micros(whole.0) / micros(alone.0);
    println!("arguments: {} bytes, rules: 201, rounds: {rounds}", text.len());
    println!("{:34} {:>9} {:>9}", "", "p50 µs", "p99 µs");
    println!("{:34} {:>9.1} {:>9.1}", "strict parse + canonical + digest", micros(alone.0), micros(alone.1));
    println!("{:34} {:>9.1} {:>9.1}", "the same + judge + plan hash", micros(whole.0), micros(whole.1));
    println!("ratio {ratio:.1}");
    println!(
        "{}",
        json!({"bench": "judge", "bytes": text.len(), "parse_p50_us": micros(alone.0), "judge_p50_us": micros(whole.0),
            "judge_p99_us": micros(whole.1), "ratio": ratio})
    );
}
