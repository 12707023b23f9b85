//! The ledger as a person and as a program reads it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use countersign_policy::ids::LedgerId;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::Entry;
use jiff::Timestamp;

use crate::ledger::{open, wait, write};
use crate::mask::mask;
use crate::world::{World, all};

fn world() -> (World, Vec<LedgerId>) {
    let world = World::new();
    let ids = write(&world.work().join("countersign.db"));
    (world, ids)
}

#[test]
fn lists_newest_first() {
    let (world, _) = world();
    insta::assert_snapshot!(mask(&world.run(&["activity", "list"]).to_string()));
}

#[test]
fn every_filter_filters() {
    let (world, ids) = world();
    let rows = |args: &[&str]| {
        let envelope = world.run(&[&["activity", "list", "--json"], args].concat()).envelope();
        envelope["data"]["activities"].as_array().unwrap().len()
    };
    let plan = format!("pln_{}", LedgerId::mint(crate::ledger::start(), 7));
    let check = |args: &[&str], expect| assert_eq!(rows(args), expect, "{args:?}");
    check(&[], 8);
    check(&["--type", "call"], 5);
    check(&["--type", "mode"], 1);
    check(&["--status", "refused"], 2);
    check(&["--server", "github"], 5);
    check(&["--tool", "delete_repo"], 5);
    check(&["--tool", "github:delete_repo", "--status", "success", "--type", "call"], 1);
    check(&["--tool", "notes:delete_repo"], 0);
    check(&["--intent-type", "write"], 1);
    check(&["--session", "stdio-1"], 7);
    check(&["--principal", "ada"], 1);
    check(&["--role", "human"], 1);
    check(&["--plan", &plan], 4);
    check(&["--code", "E_MODE_ASK"], 1);
    check(&["--q", "SITE MOVED"], 4);
    check(&["--q", "%"], 0);
    check(&["--since", "2026-11-14T09:06:00Z"], 2);
    check(&["--until", "2026-11-14T09:02:00Z"], 2);
    check(&["--since", "2026-11-15"], 0);
    check(&["--limit", "3"], 3);
    check(&["--cursor", ids[2].as_str()], 3);
}

#[test]
fn pages_follow_one_another() {
    let (world, _) = world();
    let mut seen = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut args = vec!["activity", "list", "--json", "--limit", "3"];
        args.extend(cursor.iter().flat_map(|cursor| ["--cursor", cursor.as_str()]));
        let envelope = world.run(&args).envelope();
        let rows = envelope["data"]["activities"].as_array().unwrap().clone();
        seen.extend(rows.iter().map(|row| row["sequence"].as_u64().unwrap()));
        cursor = envelope["data"]["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, [8, 7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn one_row_is_shown_whole_and_harmless() {
    let (world, ids) = world();
    let show = |at: usize| world.run(&["activity", "show", ids[at].as_str()]);
    let ugly = show(6);
    assert!(!ugly.stdout.contains('\u{202e}') && !ugly.stdout.contains('\u{1b}'), "{ugly}");
    let shown = all([show(0), show(5), ugly, world.run(&["activity", "show", "01JUNK"])]);
    insta::assert_snapshot!(mask(&shown));
    let lower = world.run(&["activity", "show", &ids[0].as_str().to_lowercase(), "--json"]).envelope();
    assert_eq!(lower["data"]["activity"]["id"], ids[0].as_str());
}

#[test]
fn exports_are_what_the_store_holds() {
    let (world, _) = world();
    let jsonl = world.run(&["activity", "export"]);
    let rows: Vec<serde_json::Value> =
        jsonl.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sequence: Vec<u64> = rows.iter().map(|row| row["sequence"].as_u64().unwrap()).collect();
    assert_eq!((sequence, jsonl.stderr.as_str()), ((1..=8).collect(), ""));
    let csv = world.run(&["activity", "export", "--format", "csv", "--status", "refused"]);
    assert!(
        csv.stdout.starts_with("id,time,writer,") && csv.stdout.matches("E_RULE_DENIED").count() == 1,
        "{csv}"
    );
    assert!(csv.stdout.contains("wipe\u{1b}[2J"), "data in a pipe is not touched: {csv:?}", csv = csv.stdout);
    insta::assert_snapshot!(all([
        world
            .run(&["activity", "export", "--out", "rows.jsonl"])
            .masked(&[(&jsonl.stdout.len().to_string(), "<bytes>")]),
        world.run(&["activity", "export", "--out", "rows.jsonl"]),
        world.run(&["activity", "export", "--out", "no/where.jsonl"]),
        world.run(&["activity", "export", "--json"]),
        world.run(&["activity", "export", "--format", "xml"]),
    ]));
    assert_eq!(world.read("rows.jsonl"), jsonl.stdout);
    let envelope =
        world.run(&["activity", "export", "--format", "csv", "--out", "rows.csv", "--json"]).envelope();
    assert_eq!((&envelope["data"]["rows"], &envelope["data"]["out"]), (&8.into(), &"rows.csv".into()));
}

#[test]
fn a_pipe_that_closes_early_ends_an_export_quietly() {
    let (world, _) = world();
    wait(async {
        let store = open(&world.work().join("countersign.db")).await;
        for _ in 0..400 {
            store.append(Entry::new(RowKind::System, RowStatus::Success), Timestamp::now()).await.unwrap();
        }
    });
    let mut export = world.countersign(&["activity", "export"]);
    let mut child = export.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    // `head -1`: one line, then the pipe is closed. 400 rows are more than a pipe holds.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
    assert!(first.contains("\"sequence\":1"), "{first}");
}

#[test]
fn watching_shows_what_comes() {
    let (world, _) = world();
    let args = ["activity", "watch", "--format", "jsonl", "--tail", "1", "--count", "2"];
    let mut watch = world.countersign(&args);
    let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The last row is there at once; only then the next one is written.
    assert!(lines.next().unwrap().unwrap().contains("\"sequence\":8"));
    let path = world.work().join("countersign.db");
    let id = wait(async {
        let store = open(&path).await;
        store.append(Entry::new(RowKind::System, RowStatus::Success), Timestamp::now()).await.unwrap()
    });
    assert!(lines.next().unwrap().unwrap().contains(id.as_str()));
    assert!(lines.next().is_none());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn watching_ends_when_told() {
    let (world, _) = world();
    let quiet = world.run(&["activity", "watch", "--tail", "0", "--for", "50ms"]);
    assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()), (Some(0), "", ""));
    let envelope =
        world.run(&["activity", "watch", "--for", "400ms", "--status", "refused", "--json"]).envelope();
    assert_eq!(envelope["data"]["activities"].as_array().unwrap().len(), 2);
    insta::assert_snapshot!(mask(&world.run(&["activity", "watch", "--count", "3"]).to_string()));
}

#[cfg(unix)]
#[test]
fn watching_ends_cleanly_with_an_interrupt() {
    let (world, _) = world();
    let mut watch = world.countersign(&["activity", "watch", "--tail", "1", "--format", "jsonl"]);
    let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Once a row is seen, the signal is listened for.
    lines.next().unwrap().unwrap();
    let told = world.command("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn a_store_that_is_not_there_is_never_made() {
    let world = World::new();
    world
        .write("text.db", "hello, I am not a database at all\n")
        .write("sub/countersign.toml", "[gateway]\nstore = \"sqlite:own.db\"\n");
    insta::assert_snapshot!(all([
        world.run(&["activity", "list"]),
        world.run(&["activity", "verify"]),
        world.run(&["activity", "export"]),
        world.run(&["activity", "checkpoint"]),
        world.run(&["activity", "list", "--config", "sub/countersign.toml"]),
        world.run(&["activity", "list", "--store", "sqlite:text.db"]),
        world.run(&["activity", "list", "--store", "mysql://x"]),
        world.run(&["activity", "list", "--store", "sqlite::memory:"]),
        world.run(&["activity", "list", "--limit", "0"]),
        world.run(&["activity", "list", "--since", "yesterday"]),
        world.run(&["activity", "list", "--type", "cal"]),
        world.run(&["activity", "list", "--cursor", "x"]),
    ]));
    let mut left: Vec<_> =
        std::fs::read_dir(world.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["sub", "text.db"]);
}

#[test]
fn the_configuration_says_where_the_store_is() {
    let world = World::new();
    world.write("etc/countersign.toml", "[gateway]\nstore = \"sqlite:${env:LEDGER}\"\n");
    write(&world.work().join("etc/main.db"));
    let run = |value: &str| {
        world.run_with(
            &[("LEDGER", value)],
            &["activity", "list", "--limit", "1", "--json", "--config", "etc/countersign.toml"],
        )
    };
    assert_eq!(
        run("main.db").envelope()["data"]["activities"].as_array().unwrap().len(),
        1,
        "relative to the file's folder"
    );
    let absolute = world.work().join("etc/main.db");
    assert_eq!(run(absolute.to_str().unwrap()).code, Some(0));
    let unset = world.run(&["activity", "list", "--config", "etc/countersign.toml"]);
    assert!(
        unset.code == Some(3) && unset.stderr.contains("`${env:LEDGER}` could not be looked up"),
        "{unset}"
    );
}

/// A folder that may be read and not written, by somebody who is not root: as root, nothing is forbidden.
#[cfg(unix)]
#[test]
fn a_folder_that_can_not_be_written_is_said_to_be() {
    use std::os::unix::fs::PermissionsExt as _;

    let (world, _) = world();
    let (work, path) = (world.work(), world.work().join("countersign.db"));
    let allow = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(&path, 0o444);
    allow(&work, 0o555);
    let run = |args: &[&str]| world.run_as_anybody(args);
    let said = all([
        run(&["activity", "checkpoint"]),
        run(&["activity", "checkpoint", "--out", "head.json"]),
        run(&["activity", "checkpoint", "--json"]),
    ]);
    let inside = run(&["activity", "checkpoint", "--verbose"]);
    allow(&work, 0o755);
    insta::assert_snapshot!(mask(&said));
    assert!(inside.stderr.contains("\ninside: ReadOnly while Opening: "), "{inside}");
}

/// A copy of the ledger in a folder where nothing can be made, read by somebody whose it is not: all of it can be looked at, and
/// nothing is left beside it.
#[cfg(unix)]
#[test]
fn a_copy_that_cannot_be_written_is_read_by_anyone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (world, ids) = world();
    let copy = world.work().join("copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(world.work().join("countersign.db"), copy.join("ledger.db")).unwrap();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for folder in [world.work(), world.home()] {
        mode(&folder, 0o755);
    }
    mode(&copy.join("ledger.db"), 0o444);
    mode(&copy, 0o555);
    // Who may read the copy need not be able to read the key file: the public half was given along.
    world.write("ledger.pem", &world.run(&["activity", "key"]).stdout);
    let run = |args: &[&str]| {
        world.run_as_anybody(&[&["activity"], args, &["--store", "sqlite:copy/ledger.db"]].concat())
    };
    let listed = run(&["list", "--json"]);
    assert_eq!(listed.code, Some(0), "{listed}");
    assert_eq!(listed.envelope()["data"]["activities"].as_array().unwrap().len(), 8);
    for args in [&["show", ids[2].as_str()][..], &["export"], &["verify", "--key", "ledger.pem"]] {
        let done = run(args);
        assert_eq!(done.code, Some(0), "{done}");
    }
    let refused = run(&["checkpoint", "--json"]);
    assert_eq!(refused.envelope()["errors"][0]["code"], "E_STORE_UNAVAILABLE", "what would write: {refused}");
    assert_eq!(std::fs::read_dir(&copy).unwrap().count(), 1, "nothing is left beside it");
    mode(&copy, 0o755);
}

#[test]
fn a_store_of_another_version_is_not_read() {
    let (world, _) = world();
    let database = rusqlite::Connection::open(world.work().join("countersign.db")).unwrap();
    database.execute_batch("INSERT INTO schema_migrations VALUES (999, 'later', 0)").unwrap();
    let newer = world.run(&["activity", "list"]);
    database.execute_batch("DELETE FROM schema_migrations WHERE version > 4").unwrap();
    let older = world.run(&["activity", "verify"]);
    insta::assert_snapshot!(mask(&all([newer, older])));
    let left: i64 =
        database.query_row("SELECT MAX(version) FROM schema_migrations", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 4, "nothing was brought up to date");
}
