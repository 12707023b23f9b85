//! Durable ledger rows per second: one commit per row against group commit, with 1, 8 and 64 callers, in one run on one
//! file system, both with `synchronous = FULL`; the same on a PostgreSQL where `COUNTERSIGN_TEST_POSTGRES` names one.
//! Prints tables and JSON lines.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark stops at the first failure and prints what it measured"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::ledger::verify;
use countersign_store::{ConnectOptions, Entry, Store, StoreUrl};
use jiff::Timestamp;
use serde_json::json;

/// How long each cell is measured, after a warm-up of a fifth of it.
const SPAN: Duration = Duration::from_secs(4);
const CALLERS: [usize; 3] = [1, 8, 64];

/// How rows are committed.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    OneByOne,
    Group,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::OneByOne => "one commit per row",
            Way::Group => "group commit",
        }
    }
    fn options(self) -> ConnectOptions {
        let group = match self {
            Way::OneByOne => 1,
            Way::Group => ConnectOptions::default().group,
        };
        ConnectOptions { group, ..ConnectOptions::default() }
    }
}

struct Measured {
    database: &'static str,
    way: Way,
    callers: usize,
    rows_per_second: f64,
    p50: Duration,
    p99: Duration,
}

fn entry() -> Entry {
    // About as much as the row of a usual call.
    let detail = json!({
        "arguments": {"path": "notes/2026/plan.md", "content": "x".repeat(300)},
        "reason": "the user asked to add the meeting notes to the plan",
    });
    let mut entry = Entry::new(RowKind::Call, RowStatus::Allowed).with_detail(&detail);
    entry.principal = Some("agent".into());
    entry.session = Some("01ARYZ6S410000000000000000".into());
    entry.upstream = Some("files".into());
    entry.tool = Some("write_file".into());
    entry
}

/// Appends from so many callers at once for a while; how many rows and how long each took.
async fn append_for(store: &Store, callers: usize, span: Duration) -> (Duration, Vec<Duration>) {
    let began = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut took = Vec::new();
                while began.elapsed() < span {
                    let from = Instant::now();
                    store.append(entry(), Timestamp::now()).await.unwrap();
                    took.push(from.elapsed());
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.unwrap());
    }
    (began.elapsed(), took)
}

async fn measure(place: &Place, way: Way, callers: usize) -> Measured {
    let store = Store::connect(&place.url(way, callers).await, way.options()).await.unwrap();
    append_for(&store, callers, SPAN / 5).await;
    let (span, mut took) = append_for(&store, callers, SPAN).await;
    took.sort_unstable();
    let at = |share: f64| took.get((took.len() as f64 * share) as usize).copied().unwrap_or_default();
    let report = verify(&store, None).await.unwrap();
    assert!(report.is_clean() && report.rows > took.len() as u64);
    let rows_per_second = took.len() as f64 / span.as_secs_f64();
    Measured { database: place.name(), way, callers, rows_per_second, p50: at(0.5), p99: at(0.99) }
}

/// Where the stores of a run are.
enum Place {
    /// A folder on the disk the build is on: a file system in memory would measure nothing.
    Folder(PathBuf),
    /// A server, in a schema of this process for each store.
    Server(String),
}

impl Place {
    fn name(&self) -> &'static str {
        match self {
            Place::Folder(_) => "SQLite",
            Place::Server(_) => "PostgreSQL",
        }
    }

    async fn url(&self, way: Way, callers: usize) -> StoreUrl {
        match self {
            Place::Folder(folder) => {
                StoreUrl::file(folder.join(format!("{}-{callers}.db", way.name().replace(' ', "-"))))
            }
            Place::Server(server) => {
                let schema = format!("bench_{}_{callers}_{}", std::process::id(), way.name().len());
                run_on(server, &format!("CREATE SCHEMA {schema}")).await;
                let join = if server.contains('?') { '&' } else { '?' };
                format!("{server}{join}options=-c%20search_path%3D{schema}").parse().unwrap()
            }
        }
    }

    async fn clean_up(self) {
        match self {
            Place::Folder(folder) => std::fs::remove_dir_all(folder).unwrap(),
            Place::Server(server) => {
                let mine = format!(
                    "DO $$ DECLARE s TEXT; BEGIN
                       FOR s IN SELECT nspname FROM pg_namespace WHERE nspname LIKE 'bench\\_{}\\_%' LOOP
                         EXECUTE 'DROP SCHEMA ' || s || ' CASCADE';
                       END LOOP; END $$",
                    std::process::id()
                );
                run_on(&server, &mine).await;
            }
        }
    }
}

async fn run_on(server: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
    drop(client);
    driver.await.unwrap().unwrap();
}

async fn table(place: &Place) -> Vec<Measured> {
    println!("\n{}:\n", place.name());
    println!("| callers | one commit per row | group commit | ratio | p50 / p99 of a row, group |");
    println!("|---|---|---|---|---|");
    let mut all = Vec::new();
    for callers in CALLERS {
        let one = measure(place, Way::OneByOne, callers).await;
        let group = measure(place, Way::Group, callers).await;
        let millis = |span: Duration| span.as_secs_f64() * 1000.0;
        println!(
            "| {callers} | {:.0} rows/s | {:.0} rows/s | {:.1}× | {:.1} / {:.1} ms |",
            one.rows_per_second,
            group.rows_per_second,
            group.rows_per_second / one.rows_per_second,
            millis(group.p50),
            millis(group.p99),
        );
        all.extend([one, group]);
    }
    all
}

#[tokio::main]
async fn main() {
    // `cargo test` builds and starts benchmarks too; it wants no measurement.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ledger-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let server = std::env::var("COUNTERSIGN_TEST_POSTGRES").ok();
    let mut all = Vec::new();
    for place in [Some(Place::Folder(folder)), server.map(Place::Server)].into_iter().flatten() {
        all.extend(table(&place).await);
        place.clean_up().await;
    }
    println!();
    for one in all {
        let line = json!({
            "benchmark": "ledger",
            "database": one.database,
            "way": one.way.name(),
            "callers": one.callers,
            "rows_per_second": one.rows_per_second.round(),
            "p50_us": one.p50.as_micros() as u64,
            "p99_us": one.p99.as_micros() as u64,
        });
        println!("{line}");
    }
}
