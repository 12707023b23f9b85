//! Pending plans and people: waiting, limits of pending plans, pauses, principals.

use std::time::{Duration, Instant};

use countersign_policy::role::Role;
use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::scene::Scene;

const CONFIG: &str = "[gateway]\nmode = \"execute\"\n";

fn put(id: &str, extra: &str) -> String {
    format!(
        r#"{{"name":"notes:put_note","args":{{"id":"{id}"}},"intent":{{"operation_type":"write"}}{extra}}}"#
    )
}

fn erase(id: &str, extra: &str) -> String {
    format!(
        r#"{{"name":"notes:erase_all","args":{{"id":"{id}"}},"intent":{{"operation_type":"destructive"}}{extra}}}"#
    )
}

fn text(reply: &Reply, field: &str) -> String {
    reply.data()[field].as_str().unwrap_or_else(|| panic!("{}", reply.text)).to_owned()
}

/// Calls on one thread while a person acts on another; gives the reply and how long it took from the act on.
fn meanwhile(line: &Client, tool: &str, arguments: &str, act: impl FnOnce()) -> (Reply, Duration) {
    std::thread::scope(|scope| {
        let call = scope.spawn(|| line.call(tool, arguments));
        // Long enough to be waiting; if it is not yet, it finds the decision made, which is as good.
        std::thread::sleep(Duration::from_millis(300));
        act();
        let start = Instant::now();
        (call.join().unwrap(), start.elapsed())
    })
}

#[test]
fn get_plan_waits_for_a_decision() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let asked = scene.call(&line, "call_tool_destructive", &erase("a", ""));
        let plan = text(&asked, "plan_id");
        let wait = |seconds: f64| format!(r#"{{"plan_id":"{plan}","wait_seconds":{seconds}}}"#);
        let still = scene.call(&line, "get_plan", &wait(0.2));
        assert_eq!(still.data()["plan"]["state"], "pending");
        let (reply, took) = meanwhile(&line, "get_plan", &wait(30.0), || scene.approve(&plan));
        assert_eq!(scene.heed(reply).data()["plan"]["state"], "approved", "{way:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        for bad in ["-1", "601", "\"5\""] {
            let reply =
                scene.call(&line, "get_plan", &format!(r#"{{"plan_id":"{plan}","wait_seconds":{bad}}}"#));
            assert_eq!(reply.code(), Some("E_ARGUMENTS_INVALID"), "{bad}");
        }
        scene.finish(vec![line]);
    });
}

/// A waiting caller gets progress before the reply.
#[test]
fn waiting_tells_progress() {
    let mut scene = Scene::open(Way::StdioLegacy, CONFIG);
    let line = scene.line(Host::None);
    let plan = text(&scene.call(&line, "call_tool_destructive", &erase("a", "")), "plan_id");
    let params = format!(
        r#"{{"name":"get_plan","arguments":{{"plan_id":"{plan}","wait_seconds":0.5}},"_meta":{{"progressToken":"p1"}}}}"#
    );
    let reply = line.request("tools/call", Some("get_plan"), &params);
    assert_eq!(scene.heed(reply).data()["plan"]["state"], "pending");
    let notes = line.notes();
    let told = notes.iter().find(|note| note["method"] == "notifications/progress");
    assert_eq!(told.unwrap_or_else(|| panic!("{notes:?}"))["params"]["progressToken"], "p1");
    scene.finish(vec![line]);
}

#[test]
fn a_call_may_wait_for_its_own_approval() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let plan = text(&scene.call(&line, "call_tool_destructive", &erase("a", "")), "plan_id");
        let waiting = erase("a", r#","wait_seconds":30"#);
        let (reply, _) = meanwhile(&line, "call_tool_destructive", &waiting, || scene.approve(&plan));
        assert!(scene.heed(reply).ran(), "{way:?}");
        assert_eq!(scene.reached().len(), 1);
        let plan = text(&scene.call(&line, "call_tool_destructive", &erase("b", "")), "plan_id");
        let waiting = erase("b", r#","wait_seconds":30"#);
        let (reply, _) = meanwhile(&line, "call_tool_destructive", &waiting, || scene.reject(&plan));
        assert_eq!(scene.heed(reply).code(), Some("E_APPROVAL_REJECTED"), "{way:?}");
        assert_eq!(scene.reached(), []);
        scene.finish(vec![line]);
    });
}

#[test]
fn at_most_twenty_plans_wait() {
    Way::each(&[Way::StdioLegacy, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let first = scene.call(&line, "call_tool_write", &put("0", ""));
        for n in 1..20 {
            let reply = scene.call(&line, "call_tool_write", &put(&n.to_string(), ""));
            assert_eq!(reply.data()["status"], "confirmation_required", "{n}");
        }
        let over = scene.call(&line, "call_tool_write", &put("20", ""));
        assert_eq!(over.code(), Some("E_LIMIT_EXCEEDED"), "{}", over.text);
        assert_eq!(over.envelope().unwrap()["errors"][0]["details"]["reason_code"], "too_many_pending");
        let joined = scene.call(&line, "call_tool_write", &put("0", ""));
        assert_eq!(joined.data()["plan_id"], first.data()["plan_id"], "joining takes no place");
        let other = scene.line(Host::None);
        let over = scene.call(&other, "call_tool_write", &put("x", ""));
        assert_eq!(over.code(), Some("E_LIMIT_EXCEEDED"), "the principal is counted, not the session");
        let cancel = format!(r#"{{"plan_id":"{}"}}"#, text(&first, "plan_id"));
        scene.call(&line, "cancel_plan", &cancel);
        let again = scene.call(&line, "call_tool_write", &put("20", ""));
        assert_eq!(again.data()["status"], "confirmation_required");
        assert_eq!(scene.reached(), []);
        scene.finish(vec![line, other]);
    });
}

#[test]
fn three_rejections_pause_writes_and_nothing_else() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let kept = scene.call(&line, "call_tool_write", &put("kept", ""));
        for n in 0..3 {
            let asked = scene.call(&line, "call_tool_write", &put(&n.to_string(), ""));
            scene.reject(&text(&asked, "plan_id"));
        }
        let paused = scene.call(&line, "call_tool_write", &put("next", ""));
        assert_eq!(paused.code(), Some("E_PRINCIPAL_PAUSED"), "{way:?} {}", paused.text);
        let bring = format!(r#","confirm_token":"{}","yes":true"#, text(&kept, "confirm_token"));
        let paused = scene.call(&line, "call_tool_write", &put("kept", &bring));
        assert_eq!(paused.code(), Some("E_PRINCIPAL_PAUSED"), "an open plan waits too");
        let read = r#"{"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#;
        assert!(scene.call(&line, "call_tool_read", read).ran());
        let planned = scene.call(&line, "call_tool_write", &put("next", r#","mode":"plan""#));
        assert_eq!(planned.data()["status"], "preview", "looking is no writing");
        scene.resume("local-agent");
        assert!(scene.call(&line, "call_tool_write", &put("kept", &bring)).ran());
        scene.finish(vec![line]);
    });
}

/// Two principals that choose the same session name share neither mode nor plans nor tokens.
#[test]
fn principals_share_nothing() {
    let mut scene = Scene::open(Way::HttpModern, "");
    let address = scene.gateway().address();
    let (ann, bob) = (
        scene.credential("ann", Role::Agent, "{}"),
        scene.credential("bob", Role::Agent, r#"{"max_mode":"plan"}"#),
    );
    let line = |secret: String| {
        Client::http_as(Way::HttpModern, Host::None, &address, "/mcp/router", "same", Some(secret))
    };
    let (ann, bob) = (line(ann), line(bob));
    scene.call(&ann, "set_mode", r#"{"mode":"execute"}"#);
    let status = scene.call(&bob, "get_status", "{}");
    assert_eq!((&status.data()["mode"], &status.data()["principal"]), (&"ask".into(), &"bob".into()));
    let refused = scene.call(&bob, "set_mode", r#"{"mode":"execute"}"#);
    assert_eq!(refused.code(), Some("E_MODE_FORBIDDEN"), "the credential's highest mode");
    let asked = scene.call(&ann, "call_tool_write", &put("a", ""));
    let plan = format!(r#"{{"plan_id":"{}"}}"#, text(&asked, "plan_id"));
    assert_eq!(scene.call(&bob, "get_plan", &plan).code(), Some("E_PLAN_NOT_FOUND"));
    assert_eq!(scene.call(&bob, "cancel_plan", &plan).code(), Some("E_PLAN_NOT_FOUND"));
    let bring = format!(r#","confirm_token":"{}","yes":true"#, text(&asked, "confirm_token"));
    let foreign = scene.call(&bob, "call_tool_write", &put("a", &bring));
    assert_eq!(foreign.code(), Some("E_CONFIRM_TOKEN_MISMATCH"));
    assert_eq!(scene.reached(), []);
    assert!(scene.call(&ann, "call_tool_write", &put("a", &bring)).ran());
    scene.finish(vec![ann, bob]);
}

#[test]
fn a_credential_is_needed_where_the_configuration_says_so() {
    let scene = Scene::open(Way::HttpModern, "[gateway]\nagent_auth = \"required\"\n");
    let address = scene.gateway().address();
    let secret = scene.credential("ann", Role::Agent, "{}");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let post = |bearer: Option<&str>| {
        let mut headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        headers.extend(bearer.map(|bearer| ("Authorization".to_owned(), format!("Bearer {bearer}"))));
        super::http::send(&address, "POST", "/mcp", &headers, body).unwrap().status
    };
    assert_eq!(post(None), 401);
    assert_eq!(post(Some("wrong")), 401);
    let line = Client::http_as(Way::HttpModern, Host::None, &address, "/mcp", "s", Some(secret));
    assert!(!line.tools().is_empty());
    scene.finish(vec![line]);
}

/// Every look through `draft_plan` that reached an upstream is a row, and so is every step that ran.
#[test]
fn plans_of_several_steps_leave_their_rows() {
    Way::each(&[Way::StdioLegacy, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let step = |id: &str| {
            format!(
                r#"{{"name":"notes:sync_notes","args":{{"id":"{id}"}},"intent":{{"operation_type":"write"}}}}"#
            )
        };
        let draft = format!(r#"{{"title":"two","steps":[{},{}]}}"#, step("a"), step("b"));
        let rows_of = |scene: &Scene, status: &str| {
            let is_step = |row: &&serde_json::Value| {
                row["kind"] == "call" && row["tool"] == "sync_notes" && row["status"] == status
            };
            scene.rows().iter().filter(is_step).count()
        };
        scene.call(&line, "set_mode", r#"{"mode":"plan"}"#);
        assert_eq!(scene.call(&line, "draft_plan", &draft).data()["status"], "preview");
        assert_eq!(rows_of(&scene, "success"), 2, "{way:?}: a preview that ran is recorded");
        scene.call(&line, "set_mode", r#"{"mode":"execute"}"#);
        let asked = scene.call(&line, "draft_plan", &draft);
        let run = format!(
            r#"{{"plan_id":"{}","confirm_token":"{}","yes":true}}"#,
            text(&asked, "plan_id"),
            text(&asked, "confirm_token")
        );
        assert_eq!(scene.call(&line, "run_plan", &run).data()["status"], "done");
        assert_eq!((rows_of(&scene, "allowed"), rows_of(&scene, "success")), (2, 4), "{way:?}");
        scene.finish(vec![line]);
    });
}

/// A credential that names no highest mode has the gateway's; one that does says otherwise.
#[test]
fn a_credential_without_a_highest_mode_has_the_gateways() {
    let mut scene = Scene::open(Way::HttpModern, "[gateway]\nmax_mode = \"plan\"\n");
    let address = scene.gateway().address();
    for (name, scopes, expect) in [
        ("plain", "{}", "plan"),
        ("more", r#"{"max_mode":"execute"}"#, "execute"),
        ("less", r#"{"max_mode":"ask"}"#, "ask"),
    ] {
        let secret = scene.credential(name, Role::Agent, scopes);
        let line = Client::http_as(Way::HttpModern, Host::None, &address, "/mcp/router", "s", Some(secret));
        assert_eq!(scene.call(&line, "get_status", "{}").data()["max_mode"], expect, "{name}");
        let set = scene.call(&line, "set_mode", r#"{"mode":"execute"}"#);
        assert_eq!(set.code(), (expect != "execute").then_some("E_MODE_FORBIDDEN"), "{name}");
    }
    scene.finish(Vec::new());
}

/// A token does not change what a mode means: in plan mode the steps are shown again, in ask mode nothing is.
#[test]
fn run_plan_is_judged_by_the_mode() {
    Way::each(&[Way::StdioLegacy, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let step = r#"{"name":"notes:save_note","args":{"id":"a"},"intent":{"operation_type":"write"}}"#;
        let asked = scene.call(&line, "draft_plan", &format!(r#"{{"title":"one","steps":[{step}]}}"#));
        let run = format!(
            r#"{{"plan_id":"{}","confirm_token":"{}","yes":true}}"#,
            text(&asked, "plan_id"),
            text(&asked, "confirm_token")
        );
        scene.call(&line, "set_mode", r#"{"mode":"plan"}"#);
        let looked = scene.call(&line, "run_plan", &run);
        assert_eq!(looked.data()["status"], "preview", "{way:?} {}", looked.text);
        assert!(looked.data()["execute_hint"].as_str().unwrap().contains("run_plan"));
        scene.call(&line, "set_mode", r#"{"mode":"ask"}"#);
        assert_eq!(scene.call(&line, "run_plan", &run).code(), Some("E_MODE_ASK"), "{way:?}");
        assert_eq!(scene.reached(), []);
        scene.call(&line, "set_mode", r#"{"mode":"execute"}"#);
        assert_eq!(
            scene.call(&line, "run_plan", &run).data()["status"],
            "done",
            "the token was not used up by looking"
        );
        assert_eq!(scene.reached().len(), 1);
        scene.finish(vec![line]);
    });
}

/// Phase 2 of a single call needs its plan, token and yes, not its arguments: `run_plan` runs it as the call itself would.
#[test]
fn run_plan_runs_a_single_calls_plan_exactly_as_held() {
    let config =
        "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"notes:erase_all\"\nstrength = \"caller\"\n";
    Way::each(&Way::ALL, |way| {
        for surface in ["router", "direct"] {
            let mut scene = Scene::open_with(way, surface, config, &[]);
            let line = scene.line(Host::None);
            let (tool, arguments) = match surface {
                "direct" => ("notes__erase_all", r#"{"id":"solo"}"#.to_owned()),
                _ => ("call_tool_destructive", r#"{"name":"notes:erase_all","args":{"id":"solo"},"intent":{"operation_type":"destructive","reason":"tidy"}}"#.to_owned()),
            };
            let held = scene.call(&line, tool, &arguments);
            assert_eq!(held.data()["status"], "confirmation_required", "{way:?} {surface} {}", held.text);
            let text = held.result()["content"][0]["text"].as_str().unwrap();
            assert!(text.len() <= 600 && !text.contains("solo"), "arguments are not repeated: {text}");
            let (plan, token) = (held.data()["plan_id"].clone(), held.data()["confirm_token"].clone());
            let run = |yes: bool, plan: &Value| {
                json!({"plan_id": plan, "confirm_token": token, "yes": yes}).to_string()
            };
            let early = scene.call(&line, "run_plan", &run(false, &plan));
            assert_eq!(early.code(), Some("E_CONFIRM_REQUIRED"), "{}", early.text);
            let other = scene.call(&line, "run_plan", &run(true, &"pln_01KAAAAAAAAAAAAAAAAAAAAAAA".into()));
            assert_eq!(other.code(), Some("E_CONFIRM_TOKEN_MISMATCH"), "{}", other.text);
            assert_eq!(scene.reached(), []);
            let ran = scene.call(&line, "run_plan", &run(true, &plan));
            assert!(ran.ran(), "{way:?} {surface} {}", ran.text);
            let reached = scene.reached();
            assert_eq!(reached.len(), 1);
            assert!(format!("{reached:?}").contains("solo"), "exactly the held arguments: {reached:?}");
            assert_eq!(scene.call(&line, "run_plan", &run(true, &plan)).code(), Some("E_CONFIRM_TOKEN_USED"));
            assert_eq!(scene.reached(), []);
            scene.finish(vec![line]);
        }
    });
}
