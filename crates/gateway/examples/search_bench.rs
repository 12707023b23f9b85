//! How long tool search takes: builds an index of generated tools (5,000, or the number given as the first
//! argument) and prints the median and the 99th percentile of a mix of queries, and of hostile ones.
//! `cargo run --release -p countersign-gateway --example search_bench [TOOLS]`
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use countersign_gateway::search::{Document, Index, SearchQuery};
use serde_json::{Value, json};

const VERBS: &[&str] = &[
    "create", "delete", "list", "get", "update", "search", "send", "run", "stop", "restart", "export",
    "import", "approve", "assign", "merge", "archive", "restore", "rename", "share", "validate",
];
const NOUNS: &[&str] = &[
    "repository",
    "branch",
    "issue",
    "pull_request",
    "file",
    "directory",
    "event",
    "calendar",
    "table",
    "index",
    "pod",
    "deployment",
    "namespace",
    "email",
    "thread",
    "label",
    "order",
    "payment",
    "shipment",
    "coupon",
    "channel",
    "message",
    "user",
    "team",
    "secret",
    "token",
    "policy",
    "bucket",
    "object",
    "instance",
    "record",
    "metric",
    "alert",
    "dashboard",
    "contact",
    "deal",
    "ticket",
    "employee",
    "invoice",
    "page",
];
const PLACES: &[&str] =
    &["project", "workspace", "account", "region", "tenant", "folder", "queue", "archive"];
const QUERIES: &[&str] = &[
    "delete branch",
    "list pods",
    "send an email",
    "remove a repository",
    "create pull request",
    "find invoices",
    "make a new folder",
    "restart the deployment",
    "who is in the team",
    "export dashboard",
    "approve a PR",
    "alerts",
    "change the label of a ticket in a project",
    "github:delete_branch_7",
    "labelSelector",
    "invoice_id region",
    "delte brnach",
    "calender event",
    "show me all orders of a customer and their shipments",
    "rotate secret token",
];

struct Tool {
    upstream: String,
    name: String,
    description: String,
    schema: Value,
}

fn pick<'a>(from: &[&'a str], at: usize) -> &'a str {
    from.get(at % from.len()).copied().unwrap_or_default()
}

fn generate(count: usize) -> Vec<Tool> {
    let make = |n: usize| {
        let (verb, noun, place) = (pick(VERBS, n), pick(NOUNS, n / VERBS.len()), pick(PLACES, n / 7));
        let words = noun.replace('_', " ");
        let description = format!(
            "{verb} a {words} of a {place}. Use it when a {words} has to be handled as a whole; for several at once \
             see the batch variant {n}. Answers the {words} with its id, owner, state and the time of its last change."
        );
        let id = format!("{noun}_id");
        let schema = json!({"type": "object", "properties": {
            id: {"type": "string", "description": format!("Identifier of the {words}")},
            place: {"type": "string", "description": format!("The {place} it belongs to")},
            "labelSelector": {"type": "string", "description": "Only those with these labels"},
            "dry_run": {"type": "boolean", "description": "Say what would happen, change nothing"},
        }});
        Tool {
            upstream: format!("service{}", n / 40),
            name: format!("{verb}_{noun}_{n}"),
            description,
            schema,
        }
    };
    (0..count).map(make).collect()
}

fn measure(name: &str, index: &Index, queries: &[&str], rounds: usize) {
    let mut times = Vec::with_capacity(rounds * queries.len());
    for round in 0..rounds + 1 {
        for text in queries {
            let start = Instant::now();
            black_box(index.search(&SearchQuery::new(black_box(text), 15)));
            // The first round warms up.
            if round > 0 {
                times.push(start.elapsed());
            }
        }
    }
    times.sort_unstable();
    let at = |share: f64| {
        let place = ((times.len() as f64 - 1.0) * share) as usize;
        times.get(place).copied().unwrap_or_default().as_secs_f64() * 1e6
    };
    println!(
        "{name:10} {:7} searches   p50 {:9.1} µs   p99 {:9.1} µs   max {:9.1} µs",
        times.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

fn main() {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5_000);
    let tools = generate(count);
    let start = Instant::now();
    let index = Index::build(tools.iter().map(|tool| Document {
        upstream: &tool.upstream,
        name: &tool.name,
        title: "",
        description: &tool.description,
        input_schema: &tool.schema,
    }));
    let built: Duration = start.elapsed();
    println!("{} tools indexed in {:.1} ms", index.len(), built.as_secs_f64() * 1e3);
    measure("mixed", &index, QUERIES, 500);
    measure("one word", &index, &["branch", "delete", "alerts", "invoice"], 1_000);
    measure("empty", &index, &[""], 1_000);
    // Every word common and with synonyms; every word unknown and close to many; a flood.
    let common = VERBS.join(" ") + " " + &NOUNS.join(" ");
    let unknown = "serviceq1 searhc shaer sotp creaet cahnnel cuopon caledar".to_owned();
    let flood = "delete 知识库 \u{0} zzzz ".repeat(50_000);
    measure("hostile", &index, &[&common, &unknown, &flood], 100);
}
