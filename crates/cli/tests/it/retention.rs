//! Old rows are archived and removed by a person, or by the gateway where the configuration says how long they are kept.

use std::time::{Duration, Instant};

use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::{Entry, Store};
use jiff::{Timestamp, ToSpan as _};

use crate::ledger;
use crate::serve::gateway::{End, Gateway};
use crate::world::{Transcript, World};

/// A world with ten rows, one for each of the last ten days.
fn world() -> World {
    let world = World::new();
    let now = Timestamp::now();
    ledger::wait(async {
        let url = countersign_store::StoreUrl::file(world.work().join("countersign.db"));
        let first = now - (24 * 20).hours();
        let options = countersign_store::ConnectOptions { now: first, ..Default::default() };
        let store = Store::connect(&url, options).await.unwrap();
        for day in 0..10_i64 {
            let entry = Entry::new(RowKind::Config, RowStatus::Success).with_fact("day", day);
            store.append(entry, now - (24 * (10 - day)).hours()).await.unwrap();
        }
    });
    world
}

fn rows(world: &World) -> usize {
    let listed = world.run(&["activity", "list", "--json", "--limit", "1000"]);
    listed.envelope()["data"]["activities"].as_array().unwrap().len()
}

fn verified(world: &World, more: &[&str]) -> Transcript {
    world.run(&[&["activity", "verify", "--json"], more].concat())
}

#[test]
fn a_person_looks_then_archives_and_removes_old_rows() {
    let world = world();
    let looked = world.run(&["activity", "prune", "--keep", "5d", "--dry-run", "--json"]);
    let data = looked.envelope()["data"].clone();
    // The row of the signing key and those of the first five or six days: one is about to be five days old.
    let old = data["prunable"].as_u64().unwrap();
    assert!((6..=7).contains(&old), "{looked}");
    assert_eq!((&data["rows"], &data["archive"], rows(&world)), (&0.into(), &serde_json::Value::Null, 11));
    // Off a terminal, nothing without a yes.
    let refused = world.run(&["activity", "prune", "--keep", "5d"]);
    assert_eq!((refused.code, rows(&world)), (Some(2), 11), "{refused}");
    let done = world.run(&["activity", "prune", "--keep", "5d", "--out", "old.jsonl", "--yes", "--json"]);
    assert_eq!((done.code, &done.envelope()["data"]["rows"]), (Some(0), &data["prunable"]), "{done}");
    assert_eq!(world.read("old.jsonl").lines().count() as u64, old);
    let whole = verified(&world, &["--archive", "old.jsonl"]);
    assert_eq!((whole.code, &whole.envelope()["data"]["pruned"]), (Some(0), &old.into()), "{whole}");
    // Who did it is a row.
    let listed = world.run(&["activity", "list", "--json", "--type", "system"]);
    let shown = listed.envelope()["data"]["activities"].clone();
    let row = shown.as_array().unwrap().iter().find(|row| row["detail"]["action"] == "prune").unwrap();
    assert_eq!((&row["role"], &row["detail"]["archive"]["file"]), (&"human".into(), &"old.jsonl".into()));
    // An archive that was changed, and one that no tombstone knows.
    let bent = world.read("old.jsonl").replacen("\"day\":2", "\"day\":7", 1);
    world.write("old.jsonl", &bent);
    world.write("other.jsonl", "{}\n");
    for file in ["old.jsonl", "other.jsonl"] {
        let told = verified(&world, &["--archive", file]);
        assert_eq!(told.code, Some(3), "{told}");
        assert_eq!(told.envelope()["errors"][0]["details"]["reason_code"], "archive_changed");
    }
}

#[test]
fn what_can_not_be_archived_stays_and_mistakes_are_said() {
    let world = world();
    world.write("mine.jsonl", "mine\n");
    let there = world.run(&["activity", "prune", "--keep", "5d", "--out", "mine.jsonl", "--yes"]);
    assert!(there.code != Some(0) && there.stderr.contains("mine.jsonl"), "{there}");
    assert_eq!(world.read("mine.jsonl"), "mine\n");
    let unsaid = world.run(&["activity", "prune", "--yes"]);
    assert!(unsaid.code == Some(2) && unsaid.stderr.contains("--keep 365d"), "{unsaid}");
    let future = world.run(&["activity", "prune", "--before", "2999-01-01", "--yes"]);
    assert!(future.code == Some(2) && future.stderr.contains("in the future"), "{future}");
    // The credential that was made to prove who is there is a row too.
    assert!(rows(&world) >= 11);
    assert_eq!(verified(&world, &[]).envelope()["data"]["pruned"], 0);
    // With nothing else said, the configuration counts, and the archive lies beside the store.
    world.write("countersign.toml", "[ledger]\nkeep = \"5d\"\n");
    let done = world.run(&["activity", "prune", "--yes"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(std::fs::read_dir(world.work().join("ledger-archive")).unwrap().count(), 1);
    assert_eq!(verified(&world, &[]).code, Some(0));
}

#[test]
fn a_gateway_keeps_rows_as_long_as_it_is_configured() {
    let world = world();
    world.write("countersign.toml", "[ledger]\nkeep = \"5d\"\n");
    let gateway = Gateway::start(&world, &["--http", "127.0.0.1:0"]);
    gateway.address();
    let (start, folder) = (Instant::now(), world.work().join("ledger-archive"));
    while verified(&world, &[]).envelope()["data"]["pruned"].as_u64().is_none_or(|pruned| pruned < 6) {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing was pruned");
        std::thread::sleep(Duration::from_millis(200));
    }
    gateway.end(End::Asked);
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let whole = verified(&world, &["--archive", file.to_str().unwrap()]);
    assert_eq!(whole.code, Some(0), "{whole}");
}
