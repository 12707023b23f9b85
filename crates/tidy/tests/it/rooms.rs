//! Who may know whom, and what may not be said where: the invariants *pure law*, *blind wire* and *mute rooms*.

use crate::files;
use crate::graph::{self, Kind};
use crate::none;
use crate::tokens::{self, Token};

/// A room and the rooms it may know. `cli → desk → gateway → {store → core, wire}`; `pack`, `memory` and `demo` know
/// `core` and `store`; `tidy` reads files and knows nobody.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("wire", &[]),
    ("store", &["core"]),
    ("gateway", &["store", "core", "wire"]),
    ("desk", &["gateway", "memory", "store", "core"]),
    ("pack", &["core", "store"]),
    ("memory", &["core", "store"]),
    ("demo", &["core", "store"]),
    ("cli", &["desk", "gateway", "store", "core", "wire", "pack", "memory", "demo"]),
    ("tidy", &[]),
    // A peer for tests: it knows nobody, and nobody but tests may know it.
    ("fixture", &[]),
];

/// Whatever runs, waits or talks: none of it may be near the law, however far down.
const EXECUTORS: &[&str] = &["tokio", "async-std", "smol", "mio", "socket2", "hyper", "reqwest", "axum"];

/// What the law may not use itself.
const DICE_AND_RECORDS: &[&str] =
    &["rand", "fastrand", "getrandom", "uuid", "ulid", "ring", "rusqlite", "tokio-postgres"];

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

/// Words that look impure and are not, with the file they stand in and why.
const PURE_ALL_THE_SAME: &[(&str, &str, &str)] = &[
    ("config/sections.rs", "std::net", "addresses are read as values, never connected to"),
    ("config/outside.rs", "std::net", "addresses are read as values, never connected to"),
    (
        "rules/condition.rs",
        "std::thread",
        "the parser of conditions needs a deeper stack; joined before anything goes on",
    ),
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
    "io::stderr",
];

/// The two handles that carry the protocol: the wire may take them, and only the wire.
const PROTOCOL_HANDLES: &[&str] = &["io::stdin", "io::stdout"];

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
            let shown = files::shown(&path);
            if PURE_ALL_THE_SAME.iter().any(|(file, known, _)| known == word && shown.ends_with(file)) {
                continue;
            }
            for line in lines(&tokens, word) {
                findings.push(format!("{shown}:{line}: `{word}`"));
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
    let members = graph::members();
    let mut findings = Vec::new();
    for member in &members {
        let room = room_of(&member.name);
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(name, _)| *name == room) else {
            findings.push(format!(
                "`{room}` is a new room: say in crates/tidy/tests/it/rooms.rs whom it may know"
            ));
            continue;
        };
        for (name, kind) in member.wants.iter().filter(|(name, _)| members.iter().any(|m| m.name == *name)) {
            let other = room_of(name);
            // Tests may look into any room; only the law stays alone even there.
            let exempt = other == room || *kind == Kind::Test && room != "core";
            if !exempt && !allowed.contains(&other.as_str()) {
                findings.push(format!("`{room}` may not know `{other}` ({kind:?})"));
            }
        }
    }
    none("dependencies between rooms point one way", &findings);
}

#[test]
fn every_room_is_a_package_of_its_own_name() {
    let rooms: Vec<String> = graph::members().iter().map(|member| room_of(&member.name)).collect();
    let findings: Vec<String> = files::rooms().into_iter().filter(|folder| !rooms.contains(folder)).collect();
    none("a folder in crates/ is the package `countersign-<folder>`", &findings);
}

#[test]
fn invariant_pure_law() {
    let mut findings = said("core", IMPURE_WORDS);
    let members = graph::members();
    let core = members.iter().find(|member| member.name == "countersign-core").unwrap();
    for (name, _) in core.wants.iter().filter(|(_, kind)| *kind != Kind::Test) {
        if EXECUTORS.contains(&name.as_str()) || DICE_AND_RECORDS.contains(&name.as_str()) {
            findings.push(format!("depends on `{name}`"));
        }
    }
    // Further down a hasher may bring dice we never throw; an executor or a socket may not be there at all.
    for found in graph::reach(Some("countersign-core"), "normal") {
        if EXECUTORS.contains(&found.name.as_str()) {
            findings.push(format!("`{}` is among what it depends on", found.name));
        }
    }
    none("the law knows no I/O, clock, randomness or async", &findings);
}

#[test]
fn invariant_blind_wire() {
    let mut findings = said("wire", GOVERNANCE_WORDS);
    for found in graph::reach(Some("countersign-wire"), "normal,build") {
        if found.name.starts_with("countersign") && found.name != "countersign-wire" {
            findings.push(format!("depends on `{}`", found.name));
        }
    }
    none("the wire knows no verdict, mode or rule", &findings);
}

#[test]
fn invariant_mute_rooms() {
    let rooms = files::rooms();
    let quiet = rooms.iter().filter(|room| *room != "cli" && *room != "tidy");
    let words = |room: &str| match room {
        "wire" => LOUD_WORDS.to_vec(),
        _ => [LOUD_WORDS, PROTOCOL_HANDLES].concat(),
    };
    let findings: Vec<String> = quiet.flat_map(|room| said(room, &words(room))).collect();
    none("only `cli` prints, reads the environment or exits", &findings);
}
