//! The desk through the real binary: a person approves, runs and rejects over REST what an agent asked for over MCP, signs in with
//! `countersign open`, and finds the desk at an address of its own where the configuration says so.

use std::time::Duration;

use countersign_policy::role::Role;
use serde_json::{Value, json};

use super::client::{Host, Way};
use super::http;
use super::scene::Scene;

const CONFIG: &str =
    "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"notes:erase_all\"\nstrength = \"human\"\n";

fn erase(id: &str, extra: &str) -> String {
    format!(
        r#"{{"name":"notes:erase_all","args":{{"id":"{id}"}},"intent":{{"operation_type":"destructive"}}{extra}}}"#
    )
}

/// A person with a credential, at a desk.
pub(crate) struct Person {
    pub(crate) address: String,
    pub(crate) secret: String,
}

impl Person {
    pub(crate) fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let headers = [
            ("Authorization".to_owned(), format!("Bearer {}", self.secret)),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = http::send(&self.address, method, &format!("/api/v1{path}"), &headers, &body).unwrap();
        (answer.status, serde_json::from_str(&answer.text().unwrap()).unwrap_or_default())
    }

    #[track_caller]
    pub(crate) fn data(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, mut answer) = self.ask(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer["data"].take()
    }
}

pub(crate) fn person(scene: &Scene) -> Person {
    Person { address: scene.gateway().address(), secret: scene.credential("ada", Role::Human, "{}") }
}

#[test]
fn approve_and_run_executes_the_frozen_plan_and_the_agent_finds_the_result() {
    let mut scene = Scene::open(Way::HttpLegacy, CONFIG);
    let ada = person(&scene);
    let line = scene.line(Host::None);
    let asked = scene.call(&line, "call_tool_destructive", &erase("a", ""));
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    let link = asked.data()["approve_url"].as_str().unwrap();
    assert_eq!(link, format!("http://{}/plans/{plan}", ada.address));
    let done = ada.data("POST", &format!("/plans/{plan}/approve"), json!({"run": true}));
    assert_eq!((&done["state"], &done["approval"]["rail"]), (&json!("done"), &json!("page")), "{done}");
    assert_eq!(scene.reached(), [("erase_all".to_owned(), json!({"id": "a"}))]);
    let found = scene.call(&line, "get_plan", &format!(r#"{{"plan_id":"{plan}"}}"#));
    assert_eq!(found.data()["plan"]["state"], "done");
    assert!(found.data()["plan"]["result"]["content"].is_array(), "{}", found.text);
    // The token of the agent is as spent as any.
    let token = asked.data()["confirm_token"].as_str().unwrap();
    let again = erase("a", &format!(r#","confirm_token":"{token}","yes":true"#));
    assert_eq!(scene.call(&line, "call_tool_destructive", &again).code(), Some("E_CONFIRM_TOKEN_USED"));
    assert!(scene.reached().is_empty(), "it ran once");
    scene.finish(vec![line]);
}

#[test]
fn a_call_that_waits_gets_the_result_of_the_plan_that_was_run_from_the_desk() {
    let mut scene = Scene::open(Way::HttpLegacy, CONFIG);
    let ada = person(&scene);
    let line = scene.line(Host::None);
    let plan = scene.call(&line, "call_tool_destructive", &erase("w", "")).data()["plan_id"].clone();
    let path = format!("/plans/{}/approve", plan.as_str().unwrap());
    let reply = std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| line.call("call_tool_destructive", &erase("w", r#","wait_seconds":30"#)));
        std::thread::sleep(Duration::from_millis(400));
        let done = ada.data("POST", &path, json!({"run": true}));
        assert_eq!(done["state"], "done", "{done}");
        waiting.join().unwrap()
    });
    assert!(scene.heed(reply).ran());
    assert_eq!(scene.reached().len(), 1, "once, whoever was first");
    scene.finish(vec![line]);
}

/// A client that gave up and tries again must not change the same thing twice.
#[test]
fn an_equal_call_after_a_person_ran_the_plan_gets_its_result_once() {
    Way::each(&[Way::HttpLegacy, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let ada = person(&scene);
        let line = scene.line(Host::None);
        let held = scene.call(&line, "call_tool_destructive", &erase("a", ""));
        let plan = held.data()["plan_id"].clone();
        ada.data("POST", &format!("/plans/{}/approve", plan.as_str().unwrap()), json!({"run": true}));
        assert_eq!(scene.reached().len(), 1);
        let other = scene.call(&line, "call_tool_destructive", &erase("b", ""));
        assert_eq!(
            other.data()["status"],
            "confirmation_required",
            "{way:?} other arguments are another call"
        );
        let again = scene.call(&line, "call_tool_destructive", &erase("a", ""));
        assert!(again.ran(), "{way:?} {}", again.text);
        let meta = &again.result()["_meta"]["countersign"];
        assert_eq!(meta["plan_id"], plan, "{way:?} {}", again.text);
        assert!(meta["warnings"][0].as_str().unwrap().contains("nothing ran again"), "{meta}");
        assert!(scene.reached().is_empty(), "{way:?} nothing ran again");
        let further = scene.call(&line, "call_tool_destructive", &erase("a", ""));
        assert_eq!(further.data()["status"], "confirmation_required", "{way:?} {}", further.text);
        assert_ne!(further.data()["plan_id"], plan, "{way:?} it is a new plan");
        scene.finish(vec![line]);
    });
}

/// Seen is delivered: who read the result with `get_plan` and calls again wants a second change.
#[test]
fn an_equal_call_after_get_plan_showed_the_result_is_a_new_plan() {
    let mut scene = Scene::open(Way::HttpLegacy, CONFIG);
    let ada = person(&scene);
    let line = scene.line(Host::None);
    let held = scene.call(&line, "call_tool_destructive", &erase("a", ""));
    let plan = held.data()["plan_id"].clone();
    ada.data("POST", &format!("/plans/{}/approve", plan.as_str().unwrap()), json!({"run": true}));
    let seen = scene.call(&line, "get_plan", &json!({"plan_id": plan}).to_string());
    assert_eq!(seen.data()["plan"]["state"], "done", "{}", seen.text);
    let again = scene.call(&line, "call_tool_destructive", &erase("a", ""));
    assert_eq!(again.data()["status"], "confirmation_required", "{}", again.text);
    assert_ne!(again.data()["plan_id"], plan);
    assert_eq!(scene.reached().len(), 1);
    scene.finish(vec![line]);
}

/// Request ids lead from an answer to the log and the audit log.
#[test]
fn every_answer_names_its_request() {
    let mut scene = Scene::open(Way::HttpLegacy, CONFIG);
    let line = scene.line(Host::None);
    let read = r#"{"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#;
    let refused = r#"{"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"write"}}"#;
    for (tool, arguments) in [
        ("call_tool_read", read.to_owned()),
        ("call_tool_read", refused.to_owned()),
        ("call_tool_destructive", erase("a", "")),
        ("get_status", "{}".to_owned()),
        ("no_such_tool", "{}".to_owned()),
    ] {
        let reply = scene.call(&line, tool, &arguments);
        let id = reply.result()["_meta"]["countersign"]["request_id"].as_str().unwrap_or_default();
        assert!(id.starts_with("req_"), "{tool}: {}", reply.text);
    }
    scene.finish(vec![line]);
}

#[test]
fn steps_are_taken_out_and_the_agent_is_told() {
    let mut scene = Scene::open(Way::HttpLegacy, CONFIG);
    let ada = person(&scene);
    let line = scene.line(Host::None);
    let step = |id: &str| {
        format!(
            r#"{{"name":"notes:erase_all","args":{{"id":"{id}"}},"intent":{{"operation_type":"destructive"}}}}"#
        )
    };
    let series = format!(r#"{{"title":"tidy up","steps":[{},{},{}]}}"#, step("1"), step("2"), step("3"));
    let asked = scene.call(&line, "draft_plan", &series);
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    for bad in
        [json!({"remove": []}), json!({"remove": [0]}), json!({"remove": [4]}), json!({"remove": [1, 2, 3]})]
    {
        assert_eq!(ada.ask("POST", &format!("/plans/{plan}/steps"), bad.clone()).0, 400, "{bad}");
    }
    let before = ada.data("GET", &format!("/plans/{plan}"), Value::Null)["plan"]["plan_hash"].clone();
    let left = ada.data("POST", &format!("/plans/{plan}/steps"), json!({"remove": [2]}));
    assert_eq!(left["plan"]["steps"].as_array().unwrap().len(), 2);
    assert_ne!(left["plan"]["plan_hash"], before);
    let stale = ada.ask("POST", &format!("/plans/{plan}/approve"), json!({"plan_hash": before}));
    assert_eq!(stale.0, 409, "what was looked at is no more: {}", stale.1);
    ada.data("POST", &format!("/plans/{plan}/approve"), json!({"plan_hash": left["plan"]["plan_hash"]}));
    let token = asked.data()["confirm_token"].as_str().unwrap();
    let run = format!(r#"{{"plan_id":"{plan}","confirm_token":"{token}","yes":true}}"#);
    let ran = scene.call(&line, "run_plan", &run);
    assert_eq!(ran.data()["removed_steps"], json!([{"step": 2, "tool": "notes:erase_all"}]), "{}", ran.text);
    let ids: Vec<Value> = scene.reached().into_iter().map(|(_, args)| args["id"].clone()).collect();
    assert_eq!(ids, [json!("1"), json!("3")]);
    scene.finish(vec![line]);
}

#[test]
fn a_rejection_reaches_the_agent_and_an_agents_credential_decides_nothing() {
    let mut scene = Scene::open(Way::HttpModern, CONFIG);
    let ada = person(&scene);
    let bot = Person { address: ada.address.clone(), secret: scene.credential("bot", Role::Agent, "{}") };
    let line = scene.line(Host::None);
    let asked = scene.call(&line, "call_tool_destructive", &erase("r", ""));
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    for word in ["approve", "reject"] {
        let (status, answer) = bot.ask("POST", &format!("/plans/{plan}/{word}"), Value::Null);
        assert_eq!((status, &answer["error"]["code"]), (403, &json!("E_ROLE_FORBIDDEN")));
    }
    ada.data("POST", &format!("/plans/{plan}/reject"), json!({"note": "archive it instead"}));
    let token = asked.data()["confirm_token"].as_str().unwrap();
    let again = erase("r", &format!(r#","confirm_token":"{token}","yes":true"#));
    let refused = scene.call(&line, "call_tool_destructive", &again);
    assert_eq!(refused.code(), Some("E_APPROVAL_REJECTED"));
    assert!(refused.text.contains("archive it instead"), "{}", refused.text);
    let tries = scene.rows().iter().filter(|row| row["code"] == "E_ROLE_FORBIDDEN").count();
    assert_eq!(tries, 2, "each try is a row");
    assert!(scene.reached().is_empty());
    scene.finish(vec![line]);
}

/// The files of the store, its journal included, are their owner's alone, and hold none of these secrets.
fn assert_not_in_the_store(scene: &Scene, secrets: &[&str]) {
    let mut files = 0;
    for entry in std::fs::read_dir(scene.world.work()).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_string_lossy().starts_with("countersign.db") {
            continue;
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}: {mode:o}", path.display());
        }
        let bytes = std::fs::read(&path).unwrap();
        files += 1;
        for secret in secrets {
            assert!(secret.len() > 10, "{secret}");
            let is_here = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!is_here, "{} holds a secret", path.display());
        }
    }
    assert!(files > 1, "{files} files");
}

#[test]
fn open_gives_a_link_that_signs_in_once() {
    let scene = Scene::open(Way::HttpLegacy, CONFIG);
    let address = scene.gateway().address();
    let told = scene.world.run(&["open", "--json", "--path", "/activity"]);
    let data = told.envelope()["data"].clone();
    let link = data["link"].as_str().unwrap_or_else(|| panic!("{told}"));
    let code =
        link.strip_prefix(&format!("http://{address}/activity#code=")).unwrap_or_else(|| panic!("{link}"));
    let headers: Vec<(String, String)> = [
        ("Origin", format!("http://{address}")),
        ("Sec-Fetch-Site", "same-origin".to_owned()),
        ("Content-Type", "application/json".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    let body = json!({"code": code}).to_string();
    let exchange = || http::send(&address, "POST", "/api/v1/session", &headers, &body).unwrap();
    let first = exchange();
    let cookie = first.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert_eq!((first.status, exchange().status), (200, 401));
    let session = cookie.split_once('=').unwrap().1.to_owned();
    let me = http::send(&address, "GET", "/api/v1/me", &[("Cookie".to_owned(), cookie)], "").unwrap();
    assert_eq!(me.status, 200);
    assert_not_in_the_store(&scene, &[code, &session, &scene.credential("ada", Role::Human, "{}")]);
    let page = http::send(&address, "GET", "/plans/pln_x", &[], "").unwrap();
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    scene.finish(vec![]);
}

#[test]
fn desk_listen_moves_page_and_rest() {
    let config = format!("{CONFIG}[desk]\nlisten = \"127.0.0.1:0\"\n");
    let mut scene = Scene::open(Way::HttpLegacy, &config);
    let hosts = scene.gateway().address();
    let told = scene.gateway().told().text();
    let desk = told
        .lines()
        .find_map(|line| line.strip_prefix("desk at http://"))
        .unwrap_or_else(|| panic!("{told}"));
    let desk = desk.split('/').next().unwrap().to_owned();
    assert_ne!(desk, hosts);
    let ada = Person { address: desk.clone(), secret: scene.credential("ada", Role::Human, "{}") };
    assert_eq!(ada.ask("GET", "/me", Value::Null).0, 200);
    let elsewhere = Person { address: hosts, secret: ada.secret.clone() };
    assert_eq!(elsewhere.ask("GET", "/me", Value::Null).0, 404);
    assert_eq!(http::send(&desk, "POST", "/mcp", &[], "{}").unwrap().status, 404);
    assert_eq!(http::send(&desk, "GET", "/healthz", &[], "").unwrap().status, 200);
    let line = scene.line(Host::None);
    let asked = scene.call(&line, "call_tool_destructive", &erase("d", ""));
    assert!(asked.data()["approve_url"].as_str().unwrap().starts_with(&format!("http://{desk}/plans/")));
    scene.finish(vec![line]);
}

/// The page is there wherever agents ask: beside a stdio line at an address nobody had to think of.
#[test]
fn a_stdio_line_has_its_desk_too() {
    let mut scene = Scene::open(Way::StdioLegacy, CONFIG);
    let line = scene.line(Host::None);
    let asked = scene.call(&line, "call_tool_destructive", &erase("s", ""));
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    let link = asked.data()["approve_url"].as_str().unwrap_or_else(|| panic!("{}", asked.text));
    let (address, path) = link.strip_prefix("http://").unwrap().split_once('/').unwrap();
    assert!(address.starts_with("127.0.0.1:") && path == format!("plans/{plan}"), "{link}");
    assert_eq!(http::send(address, "POST", "/mcp", &[], "{}").unwrap().status, 404, "no line for agents");
    let nobody = Person { address: address.to_owned(), secret: "nothing".to_owned() };
    assert_eq!(nobody.ask("GET", "/plans", Value::Null).0, 401);
    let ada = Person { address: address.to_owned(), secret: scene.credential("ada", Role::Human, "{}") };
    let done = ada.data("POST", &format!("/plans/{plan}/approve"), json!({"run": true}));
    assert_eq!(done["state"], "done");
    assert_eq!(scene.reached(), [("erase_all".to_owned(), json!({"id": "s"}))]);
    scene.finish(vec![line]);
    // Where people are said to decide elsewhere, nothing is opened.
    let mut scene =
        Scene::open(Way::StdioLegacy, &format!("{CONFIG}[desk]\nurl = \"https://desk.example.com\"\n"));
    let line = scene.line(Host::None);
    let asked = scene.call(&line, "call_tool_destructive", &erase("e", ""));
    assert!(asked.data()["approve_url"].as_str().unwrap().starts_with("https://desk.example.com/plans/"));
    scene.finish(vec![line]);
}
