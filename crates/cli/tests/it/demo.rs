//! `countersign demo` from its first line to its last, as CI plays it, and by hand over the desk's own address.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::World;

/// A world whose temporary files can be looked at.
fn world() -> World {
    let mut world = World::new();
    let temporary = world.work().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    world.set("TMPDIR", temporary.display().to_string());
    world
}

/// Nothing is left of it: no file, no credential, no configuration.
fn assert_nothing_left(world: &World) {
    let left =
        |folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    assert_eq!(left(world.work().join("tmp")), Vec::<std::path::PathBuf>::new());
    assert_eq!(left(world.home()), Vec::<std::path::PathBuf>::new());
}

/// Where each part of the story stands; they come in this order.
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut from = 0;
    for part in parts {
        let at = text[from..].find(part).unwrap_or_else(|| panic!("`{part}` is not in the rest of\n{text}"));
        from += at + part.len();
    }
}

#[test]
fn played_for_ci_it_shows_the_whole_story_and_leaves_nothing() {
    let world = world();
    let played = world.run(&["demo", "--hands-off"]);
    assert_eq!(played.code, Some(0), "{played}");
    assert_in_order(
        &played.stdout,
        &[
            "What is on order?",
            "PO-1041  Brightspoke GmbH",
            "I delete it.",
            "refused E_MODE_ASK:",
            "What would that change?",
            "nothing has changed",
            "− supplier         Brightspoke GmbH",
            "warning: an order that is deleted cannot be brought back",
            "held: pln_",
            "I say yes myself.",
            "refused E_APPROVAL_PENDING:",
            "approve it (played)",
            "approved by",
            "ran: Deletion of PO-1041",
            "refused E_CONFIRM_TOKEN_USED:",
            "PO-1041 is gone",
            "✓ every row is as it was written",
        ],
    );
    assert_eq!(played.stderr, "");
    assert_nothing_left(&world);
}

#[test]
fn a_played_no_changes_nothing_and_says_why() {
    let world = world();
    let played = world.run(&["demo", "--hands-off", "--reject"]);
    assert_eq!(played.code, Some(0), "{played}");
    let story = [
        "rejected: “check with Brightspoke first”",
        "refused E_APPROVAL_REJECTED:",
        "PO-1041 is still there",
    ];
    assert_in_order(&played.stdout, &story);
    assert_nothing_left(&world);
}

#[test]
fn for_programs_it_is_one_envelope() {
    let envelope = world().run(&["demo", "--hands-off", "--json"]).envelope();
    assert_eq!(envelope["data"]["decision"], "approved");
    assert_eq!(envelope["data"]["verified"], true);
    let said = envelope["data"]["said"].as_array().unwrap();
    let refused: Vec<&str> = said.iter().filter_map(|line| line["refused"].as_str()).collect();
    assert_eq!(refused, ["E_MODE_ASK", "E_APPROVAL_PENDING", "E_CONFIRM_TOKEN_USED"]);
}

#[test]
fn what_is_kept_can_be_looked_at_and_served_again() {
    let world = world();
    let played = world.run(&["demo", "--hands-off", "--keep", "kept"]);
    assert_eq!(played.code, Some(0), "{played}");
    assert!(played.stdout.contains("kept in kept: countersign serve"), "{played}");
    let config = ["--config", "kept/countersign.toml"];
    assert!(world.run(&[&["policy", "check"], &config[..]].concat()).code == Some(0));
    let verified = world.run(&[&["activity", "verify", "--json"], &config[..]].concat()).envelope();
    assert_eq!(verified["ok"], true);
    let gone =
        ["call", "tool-read", "--tool-name=orders:get_order", "--json_args", r#"{"number":"PO-1041"}"#];
    assert!(world.run(&[&gone[..], &config[..]].concat()).code != Some(0), "the order stays deleted");
    let again = world.run(&["demo", "--hands-off", "--keep", "kept"]);
    assert_eq!(again.code, Some(2), "a folder that holds something is not written into: {again}");
}

/// A request of the page, with the cookie and the proof it has.
fn page(
    host: &str,
    method: &str,
    path: &str,
    session: Option<(&str, &str)>,
    body: &Value,
) -> (String, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let proof = session
        .map(|(cookie, csrf)| format!("Cookie: {cookie}\r\nX-CSRF-Token: {csrf}\r\n"))
        .unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n{proof}\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn a_person_decides_over_the_printed_link() {
    let world = world();
    let mut child = world.countersign(&["demo", "--print"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    let mut link = String::new();
    while !link.contains("#code=") {
        link.clear();
        assert!(told.read_line(&mut link).unwrap() > 0, "it ended before it asked anybody");
    }
    let link = link.trim().strip_prefix("http://").unwrap();
    let (address, code) = link.split_once("#code=").unwrap();
    let (host, plan) = address.split_once("/plans/").unwrap();
    let (head, signed) = page(host, "POST", "/api/v1/session", None, &json!({"code": code}));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let csrf = signed["data"]["csrf"].as_str().or(signed["data"]["csrf_token"].as_str()).unwrap_or_default();
    let decided = page(
        host,
        "POST",
        &format!("/api/v1/plans/{plan}/approve"),
        Some((cookie, csrf)),
        &json!({"run": true}),
    );
    assert!(decided.0.starts_with("HTTP/1.1 200"), "{decided:?} {signed}");
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    assert_in_order(
        &rest,
        &["approved by", "You ran it yourself", "ran: Deletion of PO-1041", "PO-1041 is gone"],
    );
    assert_nothing_left(&world);
}

#[test]
#[cfg(unix)]
fn told_to_stop_while_it_waits_it_leaves_nothing() {
    let world = world();
    let mut child = world.countersign(&["demo", "--print"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("#code=") {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0);
    }
    let sent = world.command("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_nothing_left(&world);
}

#[test]
fn the_guide_shows_what_it_says() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/demo.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- output: demo --hands-off -->\n```text\n").unwrap();
    let (shown, after) = rest.split_once("```\n").unwrap();
    let plan = regex::Regex::new("pln_[0-9A-Z]+").unwrap();
    let seconds = regex::Regex::new("(?m)^[0-9]+ s, no").unwrap();
    let played = world().run(&["demo", "--hands-off"]).stdout;
    let played = plan.replace_all(played.trim_start(), "pln_…");
    let played = seconds.replace_all(&played, "2 s, no");
    if std::env::var_os("COUNTERSIGN_BLESS").is_some() {
        std::fs::write(
            &page,
            format!("{before}<!-- output: demo --hands-off -->\n```text\n{played}```\n{after}"),
        )
        .unwrap();
        return;
    }
    assert_eq!(shown, played, "COUNTERSIGN_BLESS=1 writes the page anew");
}
