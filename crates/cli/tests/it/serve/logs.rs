//! The log: one line for each verdict, with the request id that the ledger has; never an argument or a secret; levels by module.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::client::{Client, Host, Way};
use super::gateway::End;
use super::http;
use super::scene::Scene;
use crate::world::World;

const CONFIG: &str = "[gateway]\nmode = \"execute\"\n\n[[rules]]\nmatch = \"notes:erase_all\"\ndeny = \"canary-reason: notes are kept\"\n\n[[rules]]\nmatch = \"notes:save_note\"\nconfirm = \"none\"\nredact = [\"text\"]\n";

const ARGUMENT: &str = "canary-argument";
const SECRET: &str = "canary-secret";

fn call(tool: &str, operation: &str, extra: &str) -> String {
    format!(
        r#"{{"name":"notes:{tool}","args":{{"id":"{ARGUMENT}"}},"intent":{{"operation_type":"{operation}","reason":"canary-reason"}}{extra}}}"#
    )
}

/// A read, a write that waits, the write that was agreed to, one that a rule denies, and a tool nobody knows.
fn calls(scene: &mut Scene, line: &Client) {
    assert!(scene.call(line, "call_tool_read", &call("get_note", "read", "")).ran());
    let saved = format!(
        r#"{{"name":"notes:save_note","args":{{"id":"{ARGUMENT}","text":"{SECRET}"}},"intent":{{"operation_type":"write"}}}}"#
    );
    assert!(scene.call(line, "call_tool_write", &saved).ran());
    let asked = scene.call(line, "call_tool_write", &call("put_note", "write", ""));
    let token = asked.data()["confirm_token"].as_str().unwrap().to_owned();
    let bring = format!(r#","confirm_token":"{token}","yes":true"#);
    assert!(scene.call(line, "call_tool_write", &call("put_note", "write", &bring)).ran());
    let denied = scene.call(line, "call_tool_destructive", &call("erase_all", "destructive", ""));
    assert_eq!(denied.code(), Some("E_RULE_DENIED"), "{}", denied.text);
    let unknown = scene.call(line, "call_tool_read", &call("no_such", "read", ""));
    assert_eq!(unknown.code(), Some("E_TOOL_NOT_FOUND"), "{}", unknown.text);
}

/// The log's lines as JSON; what is said to people beside them is left out.
fn events(log: &str) -> Vec<Value> {
    log.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn named<'e>(events: &'e [Value], message: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["message"] == message).collect()
}

#[test]
fn a_verdict_is_one_line_with_the_request_id_of_its_row() {
    Way::each(&Way::ALL, |way| {
        let flags = ["--log", "info", "--log-format", "json"];
        let mut scene = Scene::open_with(way, "router", CONFIG, &flags);
        let line = scene.line(Host::None);
        calls(&mut scene, &line);
        let told = scene.gateway().told();
        told.wait_for(0, |line| line.contains("E_TOOL_NOT_FOUND"));
        let events = events(&told.text());
        let verdicts = named(&events, "verdict");
        let said: Vec<(&str, &str, &str)> = verdicts
            .iter()
            .map(|event| {
                let text = |name: &str| event[name].as_str().unwrap_or_default();
                (text("tool"), text("outcome"), text("code"))
            })
            .collect();
        let expect = [
            ("notes:get_note", "allowed", ""),
            ("notes:save_note", "allowed", ""),
            ("notes:put_note", "held", ""),
            ("notes:put_note", "allowed", ""),
            ("notes:erase_all", "refused", "E_RULE_DENIED"),
            ("notes:no_such", "refused", "E_TOOL_NOT_FOUND"),
        ];
        assert_eq!(said, expect, "{way:?}");
        let rows = scene.rows();
        let mut ids = BTreeSet::new();
        for event in &verdicts {
            let id = event["request_id"].as_str().unwrap();
            assert!(id.starts_with("req_") && ids.insert(id), "{event}");
            let row = rows.iter().find(|row| row["request_id"] == id);
            let row = row.unwrap_or_else(|| panic!("{way:?}: no row has {id}: {event}"));
            assert_eq!(row["principal"], event["principal"], "{row}");
            assert_eq!(event["level"], "INFO", "{event}");
            assert!(event["micros"].is_u64(), "{event}");
            assert!(event["host"].is_string(), "{event}");
        }
        let effects: Vec<&Value> = verdicts.iter().map(|event| &event["effect"]).collect();
        assert_eq!(effects[..4], ["read", "write", "write", "write"], "{way:?}");
        assert!(verdicts.iter().take(5).all(|event| event["mode"] == "execute"), "{verdicts:?}");
        assert!(verdicts[1]["rule"].is_string() && verdicts[4]["rule"].is_string(), "{verdicts:?}");
        assert_eq!(verdicts[0].get("rule"), None, "no rule speaks of it");
        for message in ["gateway starting", "upstream up"] {
            assert_eq!(named(&events, message).len(), 1, "{way:?} {message}");
        }
        scene.finish(vec![line]);
    });
}

#[test]
fn attack_no_argument_and_no_secret_is_in_the_log() {
    Way::each(&Way::ALL, |way| {
        for (level, argument_is_there) in [("debug", false), ("trace", true)] {
            let mut scene = Scene::open_with(way, "router", CONFIG, &["--log", level]);
            let line = scene.line(Host::None);
            calls(&mut scene, &line);
            let told = scene.gateway().told();
            told.wait_for(0, |line| line.contains("E_TOOL_NOT_FOUND"));
            let log = told.text();
            for stage in ["stage=\"gate\"", "stage=\"ledger\"", "stage=\"tools/call\"", "session opened"] {
                assert!(log.contains(stage), "{way:?} {stage}:\n{log}");
            }
            assert!(log.contains("protocol negotiated with an upstream"), "{log}");
            assert_eq!(log.contains(ARGUMENT), argument_is_there, "{way:?} {level}:\n{log}");
            let bearer = if way.is_http() { scene.bearer() } else { SECRET.to_owned() };
            for secret in [SECRET, "canary-reason", &bearer] {
                assert!(!log.contains(secret), "{way:?} {level}: `{secret}` is in the log:\n{log}");
            }
            scene.finish(vec![line]);
        }
    });
}

#[test]
fn modules_have_levels_of_their_own() {
    for (filter, by_variable) in [("gateway=debug", false), ("gateway=debug", true), ("wire=debug", false)] {
        let mut world = World::new();
        let flags = if by_variable { vec![] } else { vec!["--log", filter] };
        if by_variable {
            world.set("COUNTERSIGN_LOG", filter.to_owned());
        }
        let mut scene = Scene::open_in(world, Way::StdioLegacy, "router", CONFIG, &flags);
        let line = scene.line(Host::None);
        calls(&mut scene, &line);
        line.call("get_status", "{}");
        let log = scene.gateway().told().text();
        let of_gateway = filter.starts_with("gateway");
        assert_eq!(log.contains("countersign_gateway"), of_gateway, "{filter}:\n{log}");
        assert_eq!(log.contains("countersign_mcp"), !of_gateway, "{filter}:\n{log}");
        scene.finish(vec![line]);
    }
}

/// As it always was: a gateway that is asked for nothing says nothing of what goes well.
#[test]
fn without_being_asked_a_gateway_logs_warnings_only() {
    let mut scene = Scene::open(Way::StdioLegacy, CONFIG);
    let line = scene.line(Host::None);
    calls(&mut scene, &line);
    let log = scene.gateway().told().text();
    assert!(!log.contains(" INFO ") && !log.contains("verdict"), "{log}");
    scene.finish(vec![line]);
}

#[test]
fn a_decision_is_in_the_log_of_the_channel_that_made_it() {
    let mut scene =
        Scene::open(Way::StdioLegacy, "[gateway]\nmode = \"execute\"\n[confirm]\nprofile = \"team\"\n");
    let line = scene.line(Host::None);
    let asked = scene.call(&line, "call_tool_write", &call("put_note", "write", ""));
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    let args = ["reject", &plan, "--note", "canary-reason", "--log", "info", "--log-format", "json"];
    let said = scene.world.run(&args);
    assert_eq!(said.code, Some(0), "{said}");
    let events = events(&said.stderr);
    let decided = named(&events, "plan decided");
    assert_eq!(decided.len(), 1, "{said}");
    let facts = (&decided[0]["plan_id"], &decided[0]["decision"], &decided[0]["channel"]);
    assert_eq!(facts, (&Value::from(plan), &Value::from("rejected"), &Value::from("cli")), "{said}");
    assert!(decided[0]["by"].is_string() && !said.stderr.contains("canary-reason"), "{said}");
    scene.finish(vec![line]);
}

#[test]
fn what_is_no_level_is_a_usage_error_that_names_the_levels() {
    let world = World::new();
    for args in
        [&["--log", "loud", "version"][..], &["serve", "--log", "gateway=loud"], &["version", "--log", ""]]
    {
        let said = world.run(args);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said}");
        for level in ["error", "warn", "info", "debug", "trace"] {
            assert!(said.stderr.contains(level), "{said}");
        }
    }
    for args in [&["version"][..], &["serve"]] {
        let said = world.run_with(&[("COUNTERSIGN_LOG", "hyper=debug")], args);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said}");
        assert!(said.stderr.contains("COUNTERSIGN_LOG") && said.stderr.contains("gateway"), "{said}");
    }
    let format = world.run(&["version", "--log-format", "xml"]);
    assert_eq!(format.code, Some(2), "{format}");
    // The log is never where the answer is.
    let version = world.run(&["version", "--log", "trace", "--json"]);
    assert!(version.envelope()["ok"] == true, "{version}");
}

/// What happens besides calls: start, reload, sign-in, a person's decision and the run it starts, an upstream that dies, stop.
#[test]
fn what_happens_to_the_gateway_is_in_the_log() {
    let flags = ["--log", "info", "--log-format", "json"];
    let config = "[gateway]\nmode = \"execute\"\n[confirm]\nprofile = \"team\"\n";
    let mut scene = Scene::open_with(Way::HttpLegacy, "router", config, &flags);
    let ada = super::desk::person(&scene);
    let told = Arc::clone(scene.gateway().told());
    let line = scene.line(Host::None);
    let asked = scene.call(&line, "call_tool_write", &call("put_note", "write", ""));
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    let origin = format!("http://{}", ada.address);
    let headers = [
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Origin".to_owned(), origin),
        ("Sec-Fetch-Site".to_owned(), "same-origin".to_owned()),
    ];
    for (with, secret, status) in
        [("credential", SECRET, 401), ("code", SECRET, 401), ("credential", ada.secret.as_str(), 200)]
    {
        let body = json!({with: secret}).to_string();
        let answer = http::send(&ada.address, "POST", "/api/v1/session", &headers, &body).unwrap();
        assert_eq!(answer.status, status, "{with}");
    }
    ada.data("POST", &format!("/plans/{plan}/approve"), json!({"run": true}));
    scene.reconfigure(&format!("{config}\n[limits]\nsessions = 50\n"));
    told.wait_for(0, |line| line.contains("configuration reload"));
    assert_eq!(line.noise(), Vec::<String>::new());
    scene.take_gateway().end(End::Asked);
    told.wait_for(0, |line| line.contains("gateway stopped"));
    let log = told.text();
    let events = events(&log);
    let outcomes: Vec<&Value> = named(&events, "sign-in").iter().map(|event| &event["outcome"]).collect();
    assert_eq!(outcomes, ["refused", "signed in"], "{log}");
    assert_eq!(named(&events, "credential refused").len(), 1, "{log}");
    let decided = named(&events, "plan decided");
    assert_eq!(decided.len(), 1, "{log}");
    assert_eq!((&decided[0]["by"], &decided[0]["channel"]), (&json!("ada"), &json!("page")), "{log}");
    // The run is a verdict of its own, for the agent, with a request id that is in its row.
    let ran = named(&events, "verdict").pop().unwrap();
    assert_eq!((&ran["outcome"], &ran["plan_id"]), (&json!("allowed"), &json!(plan)), "{log}");
    assert!(scene.rows().iter().any(|row| row["request_id"] == ran["request_id"]), "{log}");
    for (message, count) in [("gateway starting", 1), ("upstream up", 1), ("upstream closed", 1)] {
        assert_eq!(named(&events, message).len(), count, "{message}: {log}");
    }
    assert!(!log.contains(SECRET) && !log.contains(&ada.secret) && !log.contains(ARGUMENT), "{log}");
}

#[test]
fn an_upstream_that_can_not_be_started_is_down_in_the_log() {
    let world = World::new();
    world.write("countersign.toml", "[upstreams.gone]\ncommand = \"no-such-program\"\n");
    let said = world.run(&["upstreams", "test", "gone", "--log", "info", "--log-format", "json"]);
    let events = events(&said.stderr);
    let down = named(&events, "upstream down");
    assert!(!down.is_empty() && down[0]["upstream"] == "gone", "{said}");
}

#[test]
fn a_slow_transaction_is_in_the_log() {
    let flags = ["--log", "store=debug"];
    let mut scene = Scene::open_with(Way::StdioLegacy, "router", CONFIG, &flags);
    let line = scene.line(Host::None);
    assert!(scene.call(&line, "call_tool_read", &call("get_note", "read", "")).ran());
    let other = rusqlite::Connection::open(scene.world.work().join("countersign.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let holding = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(400));
        other.execute_batch("COMMIT").unwrap();
    });
    assert!(scene.call(&line, "call_tool_write", &call("save_note", "write", "")).ran());
    holding.join().unwrap();
    scene.gateway().told().wait_for(0, |line| line.contains("slow transaction"));
    scene.finish(vec![line]);
}

/// Hosts do not show what a server writes to stderr: the same lines are in a file that a command shows.
#[test]
fn the_log_of_a_gateway_is_kept_and_shown() {
    let world = World::new();
    let none = world.run(&["logs"]);
    assert!(none.code == Some(0) && none.stderr.contains("no gateway has kept a log"), "{none}");
    let mut scene = Scene::open_with(Way::StdioLegacy, "router", CONFIG, &["--log", "info"]);
    let line = scene.line(Host::None);
    assert!(scene.call(&line, "call_tool_read", &call("get_note", "read", "")).ran());
    scene.gateway().told().wait_for(0, |line| line.contains("verdict"));
    let shown = scene.world.run(&["logs"]);
    assert!(shown.code == Some(0) && shown.stdout.contains("verdict"), "{shown}");
    let last = scene.world.run(&["logs", "--lines", "1", "--json"]).envelope();
    assert_eq!(last["data"]["lines"].as_array().unwrap().len(), 1, "{last}");
    scene.finish(vec![line]);
}
