//! What recalling costs in a large memory: 100,000 approved records in a SQLite file (and a PostgreSQL where
//! `COUNTERSIGN_BENCH_POSTGRES` names one), words from rare to in every record. Prints tables; fails where a bound is broken.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark stops at the first failure and prints what it measured"
)]

use std::time::{Duration, Instant};

use countersign_memory::{Memory, RecordDraft, proposal_body};
use countersign_policy::memory::{DecisionOutcome, RecordKind, RecordStatus, Scope};
use countersign_policy::record::Source;
use countersign_policy::role::Role;
use countersign_store::memory::{MemoryActor, NewRecord, Origin};
use countersign_store::{ConnectOptions, Store, StoreUrl};
use jiff::Timestamp;
use serde_json::{Value, json};

const RECORDS: usize = 100_000;
const CALLS: usize = 400;

/// Words from common to rare, as a language has them: the nth is in about one of n records.
const WORDS: &[&str] = &[
    "service",
    "request",
    "token",
    "session",
    "cache",
    "queue",
    "payment",
    "invoice",
    "retry",
    "timeout",
    "schema",
    "migration",
    "replica",
    "cluster",
    "deploy",
    "rollback",
    "ledger",
    "audit",
    "approval",
    "proposal",
    "gateway",
    "upstream",
    "protocol",
    "transport",
    "stream",
    "buffer",
    "parser",
    "compiler",
    "linker",
    "binary",
    "release",
    "signing",
    "certificate",
    "password",
    "passkey",
    "cookie",
    "header",
    "proxy",
    "balancer",
    "socket",
    "thread",
    "mutex",
    "channel",
    "future",
    "executor",
    "scheduler",
    "timer",
    "clock",
    "calendar",
    "timezone",
    "locale",
];

/// A number that looks random and is the same every time.
fn dice(seed: usize) -> usize {
    let mut x = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def0);
    x ^= x >> 31;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    usize::try_from((x ^ (x >> 29)) >> 8).unwrap_or_default()
}

fn sentence(number: usize) -> String {
    let mut words: Vec<String> = vec!["we".into(), "use".into(), "the".into()];
    for at in 0..14 {
        let roll = dice(number * 31 + at);
        // Half of all words come from the first six.
        let range = if roll.is_multiple_of(2) { 6 } else { WORDS.len() };
        words.push(WORDS[(roll / 2) % range].to_owned());
    }
    words.push(format!("case{number}"));
    words.push(format!("group{}", number % 997));
    words.join(" ")
}

fn record(number: usize) -> NewRecord {
    let kind = if number.is_multiple_of(2) { RecordKind::Decision } else { RecordKind::Learning };
    let place = match number % 4 {
        0 => Some((Scope::File, format!("src/{}.rs", number % 500))),
        1 => Some((Scope::Room, format!("room{}", number % 20))),
        _ => None,
    };
    let wording = RecordDraft {
        content: sentence(number),
        rationale: sentence(number + 7),
        place,
        ..RecordDraft::default()
    };
    NewRecord {
        kind,
        body: proposal_body(wording),
        confidence: 900,
        source: "import".into(),
        session_id: String::new(),
        status: RecordStatus::Active,
        outcome: DecisionOutcome::Unknown,
        outcome_note: String::new(),
        outcome_at: None,
        id: None,
        created: None,
    }
}

fn person() -> MemoryActor {
    MemoryActor {
        principal: "ada".into(),
        role: Role::Human,
        session: None,
        source: Source::Cli,
        named: None,
    }
}

fn arguments(tool: &str, call: usize) -> Value {
    let word = |roll: usize| WORDS[dice(call * 7 + roll) % WORDS.len()];
    let (one, two, three) = (word(1), word(2), word(3));
    match (tool, call % 6) {
        ("get_route", 0) => {
            json!({"intent": format!("change the {one} of the {two} and its {three} with care")})
        }
        ("get_route", 1) => json!({"intent": "service request token session cache queue"}),
        ("get_route", _) => json!({"intent": format!("{one} {two} group{}", call % 997)}),
        (_, 0) => json!({"query": one}),
        (_, 1) => json!({"query": format!("{one} {two} {three}")}),
        (_, 2) => json!({"query": format!("group{} {one}", call % 997)}),
        (_, 3) => json!({"query": "service request token session"}),
        (_, 4) => json!({"query": one, "scope": "file", "scopePath": format!("src/{}.rs", call % 500)}),
        (_, _) => json!({"scope": "room", "scopePath": format!("room{}", call % 20), "limit": 50}),
    }
}

/// The time half of the calls, 99 of 100, and the slowest took.
async fn measure(memory: &Memory, tool: &str) -> (Duration, Duration, Duration) {
    let mut took = Vec::new();
    for call in 0..CALLS {
        let given = arguments(tool, call);
        let from = Instant::now();
        let answer =
            memory.call(tool, given.as_object().unwrap(), &person(), Timestamp::now()).await.unwrap();
        took.push(from.elapsed());
        assert!(answer.ok, "{given}");
    }
    took.sort();
    (took[CALLS / 2], took[CALLS * 99 / 100], took[CALLS - 1])
}

async fn run(name: &str, url: &StoreUrl, key: std::path::PathBuf) {
    let options = ConnectOptions { key_file: Some(key), ..ConnectOptions::default() };
    let store = Store::connect(url, options).await.unwrap();
    let from = Instant::now();
    let mut number = 0;
    while number < RECORDS {
        let batch: Vec<NewRecord> = (number..number + 5000).map(record).collect();
        store.import_records(batch, Origin::Direct, person(), Timestamp::now()).await.unwrap();
        number += 5000;
    }
    println!(
        "{name}: {RECORDS} records, each with its audit row, written in {:.1} s",
        from.elapsed().as_secs_f64()
    );
    let memory = Memory::new(store, ".");
    for (tool, bound) in [("recall", 20), ("get_route", 50)] {
        measure(&memory, tool).await;
        let (p50, p99, slowest) = measure(&memory, tool).await;
        let ms = |span: Duration| span.as_secs_f64() * 1000.0;
        println!(
            "{name}: {tool:<10} p50 {:>6.2} ms   p99 {:>6.2} ms   slowest {:>6.2} ms   (bound {bound} ms)",
            ms(p50),
            ms(p99),
            ms(slowest)
        );
        assert!(p99 <= Duration::from_millis(bound), "{tool} is slower than its bound");
    }
}

#[tokio::main]
async fn main() {
    let room = tempfile::tempdir().unwrap();
    run("sqlite", &StoreUrl::file(room.path().join("memory.db")), room.path().join("memory.key")).await;
    if let Ok(server) = std::env::var("COUNTERSIGN_BENCH_POSTGRES") {
        run("postgres", &server.parse().unwrap(), room.path().join("pg.key")).await;
    }
}
