//! `doctor` beside a gateway that runs: who answers where, tools without annotations, tools that are not what was accepted, a ledger
//! somebody changed, a clock that went back, hosts that say their version.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use serde_json::Value;

use super::client::Way;
use super::gateway::{End, Gateway};
use super::scene::Scene;

/// Every finding, and how it ended.
fn checks(scene: &Scene, args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let said = scene.world.run(&[&["doctor", "--json"], args].concat());
    let envelope: Value =
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (said.code, envelope["data"]["checks"].as_array().unwrap().clone())
}

#[track_caller]
fn find<'a>(checks: &'a [Value], text: &str) -> &'a Value {
    let mut found = checks.iter().filter(|check| check["message"].as_str().unwrap().contains(text));
    let one = found.next().unwrap_or_else(|| panic!("no `{text}`: {checks:#?}"));
    assert!(found.next().is_none(), "`{text}` twice: {checks:#?}");
    one
}

/// A gateway that listens where its configuration says.
fn listening() -> (Scene, Gateway) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let scene = Scene::open(Way::StdioLegacy, &format!("[gateway]\nlisten = \"{free}\"\n"));
    let gateway = Gateway::start(&scene.world, &["--http"]);
    gateway.address();
    (scene, gateway)
}

#[test]
fn the_gateway_and_its_page_are_found_where_they_listen() {
    let (scene, gateway) = listening();
    let (_, found) = checks(&scene, &["--no-start"]);
    assert_eq!(find(&found, "the gateway answers at http://127.0.0.1:")["state"], "good");
    assert_eq!(find(&found, "the page answers at http://127.0.0.1:")["state"], "good");
    gateway.end(End::Asked);
    let (_, found) = checks(&scene, &["--no-start"]);
    assert_eq!(find(&found, "is free: the gateway does not listen there now")["state"], "good");
}

#[test]
fn tools_without_annotations_and_tools_that_changed_are_named() {
    let (scene, gateway) = listening();
    let (code, found) = checks(&scene, &[]);
    let bare = find(&found, "without annotations, governed as write or destructive: put_note");
    assert_eq!((code, bare["state"].as_str()), (Some(0), Some("look")), "{found:#?}");
    assert_eq!(bare["fix"], "countersign tools classify --upstream notes", "{bare}");
    scene.state(r#"{"change":"get_note"}"#);
    let (code, found) = checks(&scene, &[]);
    let changed = find(&found, "`notes:get_note` is not the tool that was accepted");
    assert_eq!((code, changed["state"].as_str()), (Some(1), Some("bad")));
    assert_eq!(changed["fix"], "countersign tools diff notes:get_note");
    gateway.end(End::Asked);
}

#[test]
fn a_changed_ledger_and_a_clock_that_went_back_are_seen() {
    let (scene, gateway) = listening();
    gateway.end(End::Asked);
    scene.record_at(Timestamp::now());
    let (_, found) = checks(&scene, &["--no-start"]);
    assert_eq!(find(&found, "written")["area"], "records");
    assert_eq!(find(&found, "the clock is ahead of every row")["state"], "good");
    scene.record_at(Timestamp::now() + SignedDuration::from_hours(3));
    let (code, found) = checks(&scene, &["--no-start"]);
    assert_eq!(
        (code, find(&found, "the clock is behind the ledger")["state"].as_str()),
        (Some(1), Some("bad"))
    );
    let connection = Connection::open(scene.world.work().join("countersign.db")).unwrap();
    connection.execute_batch("DROP TRIGGER ledger_no_update").unwrap();
    connection.execute_batch("UPDATE ledger SET principal = 'nobody' WHERE sequence = 1").unwrap();
    drop(connection);
    let (code, found) = checks(&scene, &["--no-start"]);
    let changed = find(&found, "the ledger was changed: row 1");
    assert_eq!((code, changed["fix"].as_str()), (Some(1), Some("countersign activity verify")));
}

#[test]
fn hosts_that_are_installed_say_their_version() {
    let (mut scene, gateway) = listening();
    gateway.end(End::Asked);
    let bin = scene.world.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for (name, script) in
        [("claude", "echo '2.1.325 (Claude Code)'"), ("codex", "exec sleep 60"), ("gemini", "exit 3")]
    {
        std::fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    scene.world.set("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let (_, found) = checks(&scene, &[]);
    assert_eq!(find(&found, "Claude Code 2.1.325 (Claude Code)")["state"], "good");
    // One that hangs, or says nothing, keeps nobody waiting and is no finding.
    assert!(
        !found.iter().any(|check| check["message"].as_str().unwrap().starts_with("Codex ")),
        "{found:#?}"
    );
}
