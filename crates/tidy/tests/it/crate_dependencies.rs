//! Checks which crate may depend on which, and which words its sources may not contain: I/O in `policy`, policy in `mcp`,
//! printing outside `cli` and `terminal`, and approvals outside `gateway/src/approval`.

use crate::dependency_graph::{self, Kind};
use crate::files;
use crate::none;
use crate::tokens::{self, Token};

/// A crate and the crates of this workspace it may depend on. A new crate needs a row here and in docs/ARCHITECTURE.md.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("policy", &[]),
    ("config", &["policy"]),
    ("mcp", &[]),
    ("store", &["policy"]),
    ("gateway", &["store", "config", "policy", "mcp"]),
    ("web", &["gateway", "memory", "store", "config", "policy"]),
    ("pack", &["gateway", "mcp", "config", "policy", "store"]),
    ("memory", &["gateway", "mcp", "config", "policy", "store"]),
    ("demo", &["policy", "store"]),
    ("host-config", &["policy"]),
    ("telemetry", &["gateway", "mcp", "policy"]),
    ("terminal", &["host-config", "store", "config", "policy"]),
    ("pack-cli", &["pack", "terminal", "mcp", "store", "policy"]),
    ("memory-cli", &["memory", "terminal", "mcp", "store", "policy"]),
    (
        "cli",
        &[
            "web",
            "host-config",
            "telemetry",
            "terminal",
            "pack-cli",
            "memory-cli",
            "gateway",
            "store",
            "config",
            "policy",
            "mcp",
            "pack",
            "memory",
            "demo",
        ],
    ),
    ("tidy", &[]),
    // An MCP server for tests. Only dev-dependencies may name it.
    ("fixture", &[]),
];

/// Async runtimes, sockets and HTTP. None of them may be a dependency of `policy`, not even an indirect one.
const EXECUTORS: &[&str] = &["tokio", "async-std", "smol", "mio", "socket2", "hyper", "reqwest", "axum"];

/// Randomness and databases. `policy` may not depend on them directly.
const RANDOMNESS_AND_DATABASES: &[&str] =
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

/// Uses of such words that do no I/O: file, word, reason.
const PURE_EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("config/src/sections.rs", "std::net", "addresses are read as values, never connected to"),
    ("config/src/remote_access.rs", "std::net", "addresses are read as values, never connected to"),
    (
        "rules/condition.rs",
        "std::thread",
        "the CEL parser needs a deeper stack; the thread is joined before the function returns",
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
    "ApprovalStrength",
    "Confirm",
    "Plan",
    "Approval",
    "Grant",
    "Ledger",
    "countersign_policy",
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

/// Crates that print and read the environment.
const LOUD_CRATES: &[&str] = &["cli", "terminal"];

/// Standard input and output carry the protocol over stdio. Besides the loud crates, only these may use them: `mcp` speaks the
/// protocol, and the front ends hand it the handles when they serve.
const STDIO_CRATES: &[&str] = &["mcp", "pack-cli", "memory-cli"];
const PROTOCOL_HANDLES: &[&str] = &["io::stdin", "io::stdout"];

fn folder_of(package: &str) -> String {
    if package == "countersign" {
        "cli".to_owned()
    } else {
        package.trim_start_matches("countersign-").to_owned()
    }
}

fn uses_of(krate: &str, words: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, tokens) in tokens::of_crate(krate) {
        for word in words {
            let shown = files::shown(&path);
            if PURE_EXCEPTIONS.iter().any(|(file, known, _)| known == word && shown.ends_with(file)) {
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
fn crates_depend_only_on_listed_crates() {
    let members = dependency_graph::members();
    let mut findings = Vec::new();
    for member in &members {
        let krate = folder_of(&member.name);
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(name, _)| *name == krate) else {
            findings.push(format!(
                "`{krate}` is new: add it to MAY_KNOW in crates/tidy/tests/it/crate_dependencies.rs"
            ));
            continue;
        };
        for (name, kind) in member.wants.iter().filter(|(name, _)| members.iter().any(|m| m.name == *name)) {
            let other = folder_of(name);
            // Tests may use any crate, except those of `policy`: it must build without the others.
            let exempt = other == krate || *kind == Kind::Test && krate != "policy";
            if !exempt && !allowed.contains(&other.as_str()) {
                findings.push(format!("`{krate}` may not depend on `{other}` ({kind:?})"));
            }
        }
    }
    none("crates depend only on the crates listed in MAY_KNOW", &findings);
}

#[test]
fn every_folder_is_the_package_of_its_name() {
    let crate_names: Vec<String> =
        dependency_graph::members().iter().map(|member| folder_of(&member.name)).collect();
    let findings: Vec<String> =
        files::crate_names().into_iter().filter(|folder| !crate_names.contains(folder)).collect();
    none("a folder in crates/ is the package `countersign-<folder>`", &findings);
}

#[test]
fn invariant_policy_is_pure() {
    let mut findings = Vec::new();
    let members = dependency_graph::members();
    for package in ["countersign-policy", "countersign-config"] {
        findings.extend(uses_of(package.trim_start_matches("countersign-"), IMPURE_WORDS));
        let member = members.iter().find(|member| member.name == package).unwrap();
        for (name, _) in member.wants.iter().filter(|(_, kind)| *kind != Kind::Test) {
            if EXECUTORS.contains(&name.as_str()) || RANDOMNESS_AND_DATABASES.contains(&name.as_str()) {
                findings.push(format!("`{package}` depends on `{name}`"));
            }
        }
        // An indirect dependency may link a random hasher. A runtime or a socket is never acceptable.
        for found in dependency_graph::reach(Some(package), "normal") {
            if EXECUTORS.contains(&found.name.as_str()) {
                findings.push(format!("`{}` is an indirect dependency of `{package}`", found.name));
            }
        }
    }
    none("`policy` has no I/O, clock, randomness or async", &findings);
}

#[test]
fn invariant_mcp_knows_no_policy() {
    let mut findings = uses_of("mcp", GOVERNANCE_WORDS);
    for found in dependency_graph::reach(Some("countersign-mcp"), "normal,build") {
        if found.name.starts_with("countersign") && found.name != "countersign-mcp" {
            findings.push(format!("depends on `{}`", found.name));
        }
    }
    none("`mcp` names no verdict, mode or rule", &findings);
}

/// The store's methods that decide a plan or give a grant.
const DECIDING_METHODS: &[&str] = &["approve", "approve_shown", "reject", "reject_from", "grant"];

#[test]
fn invariant_one_decider() {
    let (mut findings, mut deciding) = (Vec::new(), 0);
    for krate in files::crate_names().iter().filter(|krate| *krate != "store" && *krate != "tidy") {
        for (path, tokens) in tokens::of_crate(krate) {
            let shown = files::shown(&path);
            let is_call = |call: &&[Token]| {
                call[0].text == "."
                    && DECIDING_METHODS.contains(&call[1].text.as_str())
                    && call[2].text == "("
            };
            for call in tokens.windows(3).filter(is_call) {
                match shown.contains("gateway/src/approval") {
                    true => deciding += 1,
                    false => findings.push(format!("{shown}:{}: `.{}(`", call[1].line, call[1].text)),
                }
            }
        }
    }
    // Without this count, a method renamed in `store` would make the test pass by finding nothing.
    assert_eq!(deciding, 3, "gateway/src/approval approves, rejects and grants once each");
    none("only `gateway/src/approval` approves, rejects or grants", &findings);
}

#[test]
fn invariant_only_the_command_line_prints() {
    let crate_names = files::crate_names();
    let is_quiet = |krate: &&String| !LOUD_CRATES.contains(&krate.as_str()) && *krate != "tidy";
    let quiet = crate_names.iter().filter(is_quiet);
    let words = |krate: &str| match STDIO_CRATES.contains(&krate) {
        true => LOUD_WORDS.to_vec(),
        false => [LOUD_WORDS, PROTOCOL_HANDLES].concat(),
    };
    let mut findings: Vec<String> = quiet.flat_map(|krate| uses_of(krate, &words(krate))).collect();
    findings.extend(uses_of("terminal", &["process::exit", "process::abort"]));
    none("only `cli` and `terminal` print or read the environment, and only `cli` exits", &findings);
}
