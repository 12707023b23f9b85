//! Who may know whom, and what may not be said where: the invariants *pure law*, *blind wire* and *mute rooms*.

use crate::files;
use crate::graph::{Graph, Kind};
use crate::none;
use crate::tokens::{self, Token};

/// A room and the rooms it may know. `cli → desk → gateway → {store → core, wire}`; `pack` and `memory` know `core`
/// and `store`; `tidy` reads files and knows nobody.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("wire", &[]),
    ("store", &["core"]),
    ("gateway", &["store", "core", "wire"]),
    ("desk", &["gateway", "store", "core"]),
    ("pack", &["core", "store"]),
    ("memory", &["core", "store"]),
    ("cli", &["desk", "gateway", "store", "core", "wire", "pack", "memory"]),
    ("tidy", &[]),
];

/// Whatever brings an executor, a socket, a clock or dice: none of it may be near the law.
const IMPURE_CRATES: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "mio",
    "hyper",
    "reqwest",
    "axum",
    "rusqlite",
    "rand",
    "fastrand",
    "getrandom",
    "uuid",
    "ulid",
];

const IMPURE_WORDS: &[&str] = &[
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::os",
    "io::stdin",
    "io::stdout",
    "io::stderr",
    "SystemTime",
    "Instant",
    "::now",
    "TimeZone::system",
    "tokio",
    "async",
    ".await",
    "rand",
    "getrandom",
    "RandomState",
];

const GOVERNANCE_WORDS: &[&str] = &[
    "Verdict",
    "Permit",
    "Refusal",
    "Mode",
    "Effect",
    "Intent",
    "Rule",
    "Rules",
    "Policy",
    "Strength",
    "Confirm",
    "Plan",
    "Approval",
    "Grant",
    "Ledger",
    "countersign_core",
    "countersign_store",
];

const LOUD_WORDS: &[&str] = &[
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
    "std::env",
    "env::var",
    "env::vars",
    "env::args",
    "process::exit",
    "process::abort",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "io::stdin()",
    "io::stdout()",
    "io::stderr()",
];

fn package_of(room: &str) -> String {
    if room == "cli" { "countersign".to_owned() } else { format!("countersign-{room}") }
}

fn room_of(package: &str) -> String {
    if package == "countersign" {
        "cli".to_owned()
    } else {
        package.trim_start_matches("countersign-").to_owned()
    }
}

fn said(room: &str, words: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, tokens) in tokens::of_room(room) {
        for word in words {
            for line in lines(&tokens, word) {
                findings.push(format!("{}:{line}: `{word}`", files::shown(&path)));
            }
        }
    }
    findings
}

fn lines(tokens: &[Token], word: &str) -> Vec<usize> {
    let mut lines = tokens::find(tokens, word);
    lines.dedup();
    lines
}

#[test]
fn rooms_know_only_the_rooms_below_them() {
    let graph = Graph::get();
    let mut findings = Vec::new();
    for id in &graph.members {
        let room = room_of(&graph.packages[id].name);
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(name, _)| *name == room) else {
            findings.push(format!(
                "`{room}` is a new room: say in crates/tidy/tests/it/rooms.rs whom it may know"
            ));
            continue;
        };
        for (to, kind) in graph.edges[id].iter().filter(|(to, _)| graph.members.contains(to)) {
            let other = room_of(&graph.packages[to].name);
            let exempt = *kind == Kind::Test && room != "core" || other == room;
            if !exempt && !allowed.contains(&other.as_str()) {
                findings.push(format!("`{room}` may not know `{other}` ({kind:?})"));
            }
        }
    }
    none("dependencies between rooms point one way", &findings);
}

#[test]
fn every_room_is_a_package_of_its_own_name() {
    let graph = Graph::get();
    let strangers = |room: &String| graph.member(&package_of(room)).is_none();
    let findings: Vec<String> = files::rooms().into_iter().filter(strangers).collect();
    none("a folder in crates/ is the package `countersign-<folder>`", &findings);
}

#[test]
fn invariant_pure_law() {
    let graph = Graph::get();
    let core = graph.member("countersign-core").unwrap();
    let mut findings = said("core", IMPURE_WORDS);
    let direct = graph.edges[core].iter().filter(|(_, kind)| *kind != Kind::Test);
    for name in direct.map(|(to, _)| graph.packages[to].name.as_str()) {
        if IMPURE_CRATES.contains(&name) {
            findings.push(format!("depends on `{name}`"));
        }
    }
    // Further down, features we never call may drag in dice (a hasher's seed); an executor or a socket may not be there at all.
    for id in graph.reach([core], |kind| kind == Kind::Product) {
        let name = graph.packages[id].name.as_str();
        if ["tokio", "async-std", "smol", "mio", "hyper", "reqwest", "axum"].contains(&name) {
            findings.push(format!("`{name}` is among what it depends on"));
        }
    }
    none("the law knows no I/O, clock, randomness or async", &findings);
}

#[test]
fn invariant_blind_wire() {
    let graph = Graph::get();
    let wire = graph.member("countersign-wire").unwrap();
    let mut findings = said("wire", GOVERNANCE_WORDS);
    for id in graph.reach([wire], |kind| kind != Kind::Test) {
        let name = &graph.packages[id].name;
        if id != wire && graph.member(name).is_some() {
            findings.push(format!("depends on `{name}`"));
        }
    }
    none("the wire knows no verdict, mode or rule", &findings);
}

#[test]
fn invariant_mute_rooms() {
    let rooms = files::rooms();
    let quiet = rooms.iter().filter(|room| *room != "cli" && *room != "tidy");
    let findings: Vec<String> = quiet.flat_map(|room| said(room, LOUD_WORDS)).collect();
    none("only `cli` prints, reads the environment or exits", &findings);
}
