//! A host that can open the plan's page: it is asked to where a person is needed, and opening decides nothing. What is decided
//! elsewhere releases the call; a host that never opens anything, or gives up, loses nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::scene::Scene;

const CONFIG: &str = "[gateway]\nmode = \"execute\"\n[desk]\nurl = \"https://desk.example.com/\"\n[[rules]]\nmatch = \"notes:erase_all\"\nstrength = \"human\"\n";

fn erase(id: &str, extra: &str) -> String {
    format!(
        r#"{{"name":"notes:erase_all","args":{{"id":"{id}"}},"intent":{{"operation_type":"destructive"}}{extra}}}"#
    )
}

/// The question, once the host has it.
fn asked(line: &Client) -> Value {
    let start = Instant::now();
    loop {
        if let Some(question) = line.asked.lock().unwrap().first() {
            return question.clone();
        }
        assert!(start.elapsed() < Duration::from_secs(20), "the host was not asked");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn plan_of(question: &Value) -> String {
    let url = question["params"]["url"].as_str().unwrap_or_else(|| panic!("{question}"));
    url.strip_prefix("https://desk.example.com/plans/").unwrap_or_else(|| panic!("{url}")).to_owned()
}

/// Calls while a person does something with the plan whose page was opened.
fn meanwhile(line: &Client, arguments: &str, act: impl FnOnce(&str)) -> Reply {
    std::thread::scope(|scope| {
        let call = scope.spawn(|| line.call("call_tool_destructive", arguments));
        act(&plan_of(&asked(line)));
        call.join().unwrap()
    })
}

#[test]
fn opening_the_page_decides_nothing_and_deciding_there_releases_the_call() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::Opens);
        let reply = meanwhile(&line, &erase("a", ""), |plan| {
            // The host has said yes to opening it, and that is all it said.
            std::thread::sleep(Duration::from_millis(700));
            let row = scene.world.run(&["plans", "show", plan, "--json"]);
            assert_eq!(row.envelope()["data"]["plan"]["state"], "pending", "{way:?} {row}");
            scene.approve(plan);
        });
        assert!(reply.ran(), "{way:?} {}", reply.text);
        scene.heed(reply);
        let question = asked(&line);
        assert_eq!(
            (&question["method"], &question["params"]["mode"]),
            (&json!("elicitation/create"), &json!("url"))
        );
        assert_eq!(question["params"]["elicitationId"].is_string(), !way.is_modern(), "{question}");
        assert!(question["params"]["message"].as_str().unwrap().contains("notes:erase_all"));
        assert_eq!(scene.reached().len(), 1);
        if way == Way::StdioLegacy {
            let notes = line.notes();
            let done = notes.iter().find(|note| note["method"] == "notifications/elicitation/complete");
            let done = done.unwrap_or_else(|| panic!("{notes:?}"));
            assert_eq!(done["params"]["elicitationId"], question["params"]["elicitationId"]);
        }
        scene.finish(vec![line]);
    });
}

#[test]
fn a_rejection_on_the_page_is_told_with_its_note() {
    Way::each(&[Way::StdioLegacy, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::Opens);
        let reply = meanwhile(&line, &erase("a", ""), |plan| scene.reject(plan));
        assert_eq!(reply.code(), Some("E_APPROVAL_REJECTED"), "{way:?} {}", reply.text);
        assert!(reply.text.contains("no"));
        scene.heed(reply);
        assert_eq!(scene.reached(), []);
        scene.finish(vec![line]);
    });
}

#[test]
fn a_decline_to_open_it_rejects_the_plan() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::KeepsShut);
        let reply = scene.call(&line, "call_tool_destructive", &erase("a", ""));
        assert_eq!(reply.code(), Some("E_APPROVAL_REJECTED"), "{way:?} {}", reply.text);
        assert_eq!(scene.reached(), []);
        scene.finish(vec![line]);
    });
}

/// Closing the question does not reject the plan.
#[test]
fn a_question_that_is_closed_decides_nothing() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::LooksAway);
        let reply = scene.call(&line, "call_tool_destructive", &erase("a", ""));
        assert_eq!(reply.data()["status"], "confirmation_required", "{way:?} {}", reply.text);
        let plan = reply.data()["plan_id"].as_str().unwrap().to_owned();
        assert_eq!(reply.data()["approve_url"], format!("https://desk.example.com/plans/{plan}"));
        let look = json!({"plan_id": plan}).to_string();
        assert_eq!(scene.call(&line, "get_plan", &look).data()["plan"]["state"], "pending");
        scene.approve(&plan);
        let bring = format!(r#","confirm_token":{},"yes":true"#, reply.data()["confirm_token"]);
        assert!(scene.call(&line, "call_tool_destructive", &erase("a", &bring)).ran());
        scene.finish(vec![line]);
    });
}

/// A host that never opens the page leaves the other channels open, at once.
#[test]
fn a_page_that_is_never_opened_leaves_the_other_channels() {
    Way::each(&[Way::StdioLegacy, Way::HttpLegacy], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::NeverOpens);
        let start = Instant::now();
        let reply = meanwhile(&line, &erase("a", ""), |plan| scene.approve(plan));
        assert!(reply.ran(), "{way:?} {}", reply.text);
        assert!(start.elapsed() < Duration::from_secs(20), "{way:?} {:?}", start.elapsed());
        scene.heed(reply);
        scene.finish(vec![line]);
    });
}

/// A client that declares pages and answers the question with an error is treated like one without: its call is held open, then
/// answers pending, and it is not asked again.
#[test]
fn an_error_instead_of_opening_the_page_holds_the_call_as_usual() {
    Way::each(&[Way::StdioLegacy, Way::HttpLegacy], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::CannotOpen);
        let reply = meanwhile(&line, &erase("a", r#","wait_seconds":30"#), |plan| {
            std::thread::sleep(Duration::from_millis(700));
            scene.approve(plan);
        });
        assert!(reply.ran(), "{way:?} {}", reply.text);
        scene.heed(reply);
        let held = scene.call(&line, "call_tool_destructive", &erase("b", r#","wait_seconds":1"#));
        assert_eq!(held.data()["status"], "confirmation_required", "{way:?} {}", held.text);
        assert_eq!(line.asked.lock().unwrap().len(), 1, "{way:?} it is not asked again");
        scene.finish(vec![line]);
    });
}

/// In the stateless era such a client fails its call and never comes back. Its next calls are held.
#[test]
fn a_stateless_client_that_never_comes_back_is_not_asked_to_open_pages_again() {
    Way::each(&[Way::StdioModern, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::CannotOpen);
        let failed = line.call("call_tool_destructive", &erase("a", ""));
        assert_eq!(failed.result()["resultType"], "input_required", "{way:?} {}", failed.text);
        let held = scene.call(&line, "call_tool_destructive", &erase("b", r#","wait_seconds":1"#));
        assert_eq!(held.data()["status"], "confirmation_required", "{way:?} {}", held.text);
        assert_eq!(line.asked.lock().unwrap().len(), 1, "{way:?} it is not asked again");
        scene.finish(vec![line]);
    });
}

#[test]
fn copilot_is_held_from_its_first_call_on() {
    let mut scene = Scene::open(Way::StdioModern, CONFIG);
    let line = scene.line_of(Host::CannotOpen, "copilot");
    let held = scene.call(&line, "call_tool_destructive", &erase("a", r#","wait_seconds":1"#));
    assert_eq!(held.data()["status"], "confirmation_required", "{}", held.text);
    assert_eq!(line.asked.lock().unwrap().len(), 0);
    scene.finish(vec![line]);
}

/// A host that gives up on the call has not lost the plan: it is found, joined and run.
#[test]
fn a_hosts_time_limit_never_loses_the_plan() {
    let mut scene = Scene::open(Way::StdioLegacy, CONFIG);
    let line = scene.line(Host::NeverOpens);
    line.start_call("call_tool_destructive", &erase("a", r#","wait_seconds":60"#));
    let plan = plan_of(&asked(&line));
    line.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"alone","reason":"too slow"}}"#);
    let status = scene.call(&line, "get_status", "{}");
    assert_eq!(status.data()["pending_plans"][0]["plan_id"], plan.as_str(), "{}", status.text);
    let look = format!(r#"{{"plan_id":"{plan}","wait_seconds":30}}"#);
    let reply = std::thread::scope(|scope| {
        let waits = scope.spawn(|| line.call("get_plan", &look));
        std::thread::sleep(Duration::from_millis(300));
        scene.approve(&plan);
        waits.join().unwrap()
    });
    assert_eq!(scene.heed(reply).data()["plan"]["state"], "approved");
    // The same call again runs the plan that was approved meanwhile.
    let again = scene.call(&line, "call_tool_destructive", &erase("a", ""));
    assert!(again.ran(), "{}", again.text);
    assert_eq!(again.result()["_meta"]["countersign"]["plan_id"], plan.as_str(), "{}", again.text);
    assert_eq!(scene.reached().len(), 1);
    scene.finish(vec![line]);
}

/// The first call itself waits with progress, in order and before its answer.
#[test]
fn the_first_call_tells_progress_while_it_waits() {
    for way in [Way::StdioLegacy, Way::StdioModern] {
        let mut scene = Scene::open(way, "[gateway]\nmode = \"execute\"\n");
        let line = scene.line(Host::None);
        let meta = r#""_meta":{"progressToken":"p7","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        let params = format!(
            r#"{{"name":"call_tool_destructive","arguments":{},{meta}}}"#,
            erase("a", r#","wait_seconds":6"#)
        );
        let reply = line.request("tools/call", Some("call_tool_destructive"), &params);
        assert_eq!(scene.heed(reply).data()["status"], "confirmation_required", "{way:?}");
        let notes = line.notes();
        let told: Vec<f64> = notes
            .iter()
            .filter(|note| note["method"] == "notifications/progress")
            .map(|note| {
                assert_eq!(note["params"]["progressToken"], "p7");
                // Where a host has no dialog, this is what its user sees of the plan.
                assert_eq!(note["params"]["message"], "waiting for a person to decide: Erase all a?");
                note["params"]["progress"].as_f64().unwrap()
            })
            .collect();
        assert!(told.len() >= 2 && told.is_sorted(), "{way:?} {told:?}");
        scene.finish(vec![line]);
    }
}
