//! `countersign demo` from its first line to its last, as CI plays it, and by hand over the desk's own address.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::people::kit::typed;
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
            "ran: reading needs no approval",
            "I delete it.",
            "held: nothing has changed",
            "− supplier         Brightspoke GmbH",
            "warning: an order that is deleted cannot be brought back",
            "I say yes myself.",
            "refused: this needs a person",
            "SO-1043",
            "held: nothing has changed",
            "held: one plan of 3 steps",
            "approved: Delete PO-1041 (played)",
            "ran: Deletion of PO-1041",
            "refused: it ran already; an approval works once",
            "PO-1041 is gone",
            "rejected: Delete SO-1043 “ask the customer first” (played)",
            "refused: you rejected it",
            "SO-1043 is still there",
            "approved: Restock chains and brakes (played)",
            "ran: 3 of 3 steps",
            "✓ unchanged since they were written",
            "countersign init",
        ],
    );
    assert_eq!(played.stderr, "");
    assert_nothing_left(&world);
}

/// What a newcomer can't know yet is not shown: neither the codes of refusals nor ids.
#[test]
fn it_shows_neither_codes_nor_long_ids() {
    let played = world().run(&["demo", "--hands-off"]).stdout;
    let codes = regex::Regex::new(r"\bE_[A-Z]+|\b[a-z]{3}_[0-9A-Z]{10}").unwrap();
    assert!(!codes.is_match(&played), "{played}");
    let long = played.split_whitespace().find(|word| word.chars().count() >= 30);
    assert_eq!(long, None, "{played}");
}

#[test]
fn played_noes_change_nothing_and_say_why() {
    let world = world();
    let played = world.run(&["demo", "--hands-off", "--reject"]);
    assert_eq!(played.code, Some(0), "{played}");
    let story = [
        "rejected: Delete PO-1041 “ask the customer first”",
        "refused: you rejected it",
        "PO-1041 is still there",
        "rejected: Restock chains and brakes",
        "refused: you rejected it",
    ];
    assert_in_order(&played.stdout, &story);
    assert!(!played.stdout.contains("3 of 3 steps"), "{played}");
    assert_nothing_left(&world);
}

#[test]
fn for_programs_it_is_one_envelope() {
    let envelope = world().run(&["demo", "--hands-off", "--json"]).envelope();
    let plans = envelope["data"]["plans"].as_array().unwrap();
    let decisions: Vec<&Value> = plans.iter().map(|plan| &plan["decision"]).collect();
    assert_eq!(decisions, ["approved", "rejected", "approved"]);
    assert_eq!(envelope["data"]["verified"], true);
    let said = envelope["data"]["said"].as_array().unwrap();
    let refused: Vec<&str> = said.iter().filter_map(|line| line["refused"].as_str()).collect();
    assert_eq!(refused, ["E_APPROVAL_PENDING", "E_CONFIRM_TOKEN_USED", "E_APPROVAL_REJECTED"]);
}

#[test]
#[cfg(unix)]
fn on_a_narrow_terminal_lines_are_wrapped() {
    let mut world = world();
    world.set("TERMINAL_COLUMNS", "60".to_owned());
    let played = typed(&world, &["demo", "--hands-off"], &[]);
    assert_eq!(played.code, Some(0), "{played}");
    let widest = played.stdout.lines().map(|line| line.trim_end().chars().count()).max();
    assert!((50..=60).contains(&widest.unwrap()), "{played}");
    assert!(played.stdout.contains("cannot be brought\n        back"), "{played}");
}

#[test]
fn what_is_kept_can_be_looked_at_and_served_again() {
    let world = world();
    let played = world.run(&["demo", "--hands-off", "--keep", "kept"]);
    assert_eq!(played.code, Some(0), "{played}");
    let again = "  countersign serve --config kept/countersign.toml --http\n";
    assert!(played.stdout.contains(again), "{played}");
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

/// A demo that waits for a person, what it says, and the link it gave.
struct WaitingDemo {
    child: std::process::Child,
    told: BufReader<std::process::ChildStdout>,
    host: String,
    code: String,
}

impl WaitingDemo {
    fn start(world: &World) -> Self {
        let mut child = world.countersign(&["demo", "--print"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap());
        let link = line_with(&mut told, "#code=");
        let link = link.trim().strip_prefix("http://").unwrap();
        assert!(link.len() < 40, "the link fits a line: {link}");
        let (host, code) = link.split_once("/#code=").unwrap();
        let (host, code) = (host.to_owned(), code.to_owned());
        Self { child, told, host, code }
    }

    /// Ctrl-C, and everything that was still to be said.
    fn interrupt(mut self, world: &World) -> String {
        let sent = world.command("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut rest = String::new();
        self.told.read_to_string(&mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{rest}");
        rest
    }
}

/// Reads to the first line with these words.
fn line_with(told: &mut impl std::io::BufRead, words: &str) -> String {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0, "it ended before it said `{words}`");
    }
    line
}

#[test]
#[cfg(unix)]
fn a_person_decides_three_plans_on_the_page_and_it_stays_until_ctrl_c() {
    let world = world();
    let mut demo = WaitingDemo::start(&world);
    let host = demo.host.clone();
    let (head, signed) = page(&host, "POST", "/api/v1/session", None, &json!({"code": demo.code}));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let csrf = signed["data"]["csrf"].as_str().or(signed["data"]["csrf_token"].as_str()).unwrap_or_default();
    let session = Some((cookie, csrf));
    let (_, waiting) = page(&host, "GET", "/api/v1/plans?state=pending", session, &Value::Null);
    let mut ids: Vec<&str> = waiting["data"]["plans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plan| plan["plan_id"].as_str().unwrap())
        .collect();
    // An id begins with its time: the first plan comes first.
    ids.sort_unstable();
    let decisions = [
        (
            "approve",
            json!({"run": true}),
            vec!["approved: Delete PO-1041", "You ran it for me", "PO-1041 is gone"],
        ),
        (
            "reject",
            json!({"note": "ask them"}),
            vec!["rejected: Delete SO-1043 “ask them”", "SO-1043 is still there"],
        ),
        (
            "approve",
            json!({}),
            vec!["approved: Restock chains and brakes", "Then I run it.", "ran: 3 of 3 steps"],
        ),
    ];
    assert_eq!(ids.len(), decisions.len(), "{waiting}");
    for (id, (verb, body, story)) in ids.into_iter().zip(decisions) {
        let (head, decided) = page(&host, "POST", &format!("/api/v1/plans/{id}/{verb}"), session, &body);
        assert!(head.starts_with("HTTP/1.1 200"), "{head} {decided}");
        for words in story {
            line_with(&mut demo.told, words);
        }
    }
    let stays = line_with(&mut demo.told, "Ctrl-C ends it");
    assert!(stays.contains("look around") && stays.contains(&host), "{stays}");
    let (head, _) = page(&host, "GET", "/api/v1/plans", session, &Value::Null);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let last = demo.interrupt(&world);
    assert!(last.contains("nothing left behind"), "{last}");
    assert_nothing_left(&world);
}

#[test]
#[cfg(unix)]
fn told_to_stop_while_it_waits_it_leaves_nothing() {
    let world = world();
    WaitingDemo::start(&world).interrupt(&world);
    assert_nothing_left(&world);
}

/// The same whatever time it took.
fn timeless(played: &str) -> String {
    let seconds = regex::Regex::new("(?m)^[0-9]+ s, no").unwrap();
    seconds.replace_all(played, "2 s, no").into_owned()
}

#[test]
fn the_guide_shows_what_it_says() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/demo.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- output: demo --hands-off -->\n```text\n").unwrap();
    let (shown, after) = rest.split_once("```\n").unwrap();
    let played = timeless(world().run(&["demo", "--hands-off"]).stdout.trim_start());
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

/// The lines that the picture of the README draws, without their colours.
fn drawn(picture: &str) -> Vec<String> {
    let tags = regex::Regex::new("<[^>]*>").unwrap();
    let texts = picture.lines().filter(|line| line.starts_with("<text "));
    let plain = |line: &str| tags.replace_all(line, "").replace("&amp;", "&").replace("&lt;", "<");
    texts.map(plain).collect()
}

#[test]
fn the_moving_picture_shows_what_it_says() {
    let picture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/demo.svg");
    let picture = std::fs::read_to_string(picture).unwrap();
    let played = timeless(&world().run(&["demo", "--hands-off"]).stdout);
    let played: Vec<&str> = played.lines().filter(|line| !line.is_empty()).collect();
    let shown = timeless(&drawn(&picture).join("\n"));
    assert_eq!(shown.lines().collect::<Vec<_>>(), played, "docs/images/record-demo draws it anew");
}
