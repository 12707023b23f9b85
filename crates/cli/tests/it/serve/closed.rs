//! One test for each way in which others fail open: each must end in a refusal, with nothing at the upstream.

use rusqlite::Connection;

use super::client::{Client, Host, Way};
use super::gateway::{End, Gateway};
use super::scene::Scene;
use crate::world::World;

const CONFIG: &str =
    "[gateway]\nmode = \"execute\"\n\n[[rules]]\nmatch = \"notes:save_note\"\nconfirm = \"none\"\n";

fn call(tool: &str, extra: &str) -> String {
    format!(r#"{{"name":"notes:{tool}","args":{{"id":"a"}},"intent":{{"operation_type":"write"}}{extra}}}"#)
}

/// The ledger takes no more rows: nothing that changes anything runs, whatever was agreed before.
#[test]
fn a_ledger_that_can_not_be_written_refuses_writes() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let asked = scene.call(&line, "call_tool_write", &call("put_note", ""));
        let token = asked.data()["confirm_token"].as_str().unwrap();
        let bring = format!(r#","confirm_token":"{token}","yes":true"#);
        let store = Connection::open(scene.world.work().join("countersign.db")).unwrap();
        store
            .execute_batch(
                "CREATE TRIGGER stuck BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'no room'); END",
            )
            .unwrap();
        for (what, arguments) in [
            ("at once", call("save_note", "")),
            ("phase 1", call("put_note", "")),
            ("phase 2", call("put_note", &bring)),
            ("preview", call("put_note", r#","mode":"plan""#)),
        ] {
            let reply = line.call("call_tool_write", &arguments);
            let code = reply.code().unwrap_or_else(|| panic!("{way:?} {what}: {}", reply.text));
            assert!(
                ["E_LEDGER_UNAVAILABLE", "E_STORE_UNAVAILABLE"].contains(&code),
                "{way:?} {what}: {code}"
            );
            let details = &reply.envelope().unwrap()["errors"][0]["details"];
            assert!(
                details["reason_code"].is_string() && details["next_actions"].is_array(),
                "{}",
                reply.text
            );
        }
        assert_eq!(scene.reached(), [], "{way:?}");
        let mode = line.call("set_mode", r#"{"mode":"plan"}"#);
        assert!(mode.code().is_some(), "a mode that is not recorded is not set: {}", mode.text);
        store.execute_batch("DROP TRIGGER stuck").unwrap();
        assert_eq!(scene.call(&line, "get_status", "{}").data()["mode"], "execute");
        let reply = scene.call(&line, "call_tool_write", &call("put_note", &bring));
        assert!(reply.ran(), "it goes on when the ledger does: {}", reply.text);
        assert_eq!(scene.reached().len(), 1);
        scene.finish(vec![line]);
    });
}

/// The store's tables are gone under a running gateway.
#[test]
fn a_store_that_is_gone_refuses_everything_it_can_not_look_up() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let asked = scene.call(&line, "call_tool_write", &call("put_note", ""));
        let token = asked.data()["confirm_token"].as_str().unwrap();
        let store = Connection::open(scene.world.work().join("countersign.db")).unwrap();
        store
            .execute_batch("ALTER TABLE plans RENAME TO gone; ALTER TABLE tokens RENAME TO gone_too")
            .unwrap();
        for extra in [String::new(), format!(r#","confirm_token":"{token}","yes":true"#)] {
            let reply = line.call("call_tool_write", &call("put_note", &extra));
            assert!(!reply.ran() && reply.code().is_some(), "{way:?} {}", reply.text);
        }
        assert_eq!(scene.reached(), [], "{way:?}");
        store
            .execute_batch("ALTER TABLE gone RENAME TO plans; ALTER TABLE gone_too RENAME TO tokens")
            .unwrap();
        scene.finish(vec![line]);
    });
}

#[test]
fn a_store_that_can_not_be_opened_is_no_start() {
    let world = World::new();
    world.write("countersign.toml", "[gateway]\nstore = \"sqlite:no/such/folder/x.db\"\n");
    world.write("no", "a file where a folder should be");
    let said = world.run(&["serve"]);
    assert_ne!(said.code, Some(0), "{said}");
    assert_eq!(said.stdout, "", "{said}");
}

/// What a proxy reads in a header must be what we run.
#[test]
fn a_header_that_disagrees_with_the_body_is_refused() {
    let mut scene = Scene::open(Way::HttpModern, CONFIG);
    let line = scene.line(Host::None);
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let frame = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"call_tool_write","arguments":{},"_meta":{meta}}}}}"#,
        call("save_note", "")
    );
    for (method, name) in
        [("tools/call", "call_tool_read"), ("tools/list", "call_tool_write"), ("", "call_tool_write")]
    {
        let reply = line.post_with(method, name, &frame);
        assert_eq!(reply.frame["error"]["code"], -32020, "{method} {name}: {}", reply.text);
        assert_eq!(reply.status, Some(400));
    }
    let other = frame.replace("2026-07-28", "2025-11-25");
    let reply = line.post_with("tools/call", "call_tool_write", &other);
    assert!(reply.frame["error"]["code"].is_number(), "a version that disagrees: {}", reply.text);
    assert_eq!(scene.reached(), []);
    let reply = line.post_with("tools/call", "call_tool_write", &frame);
    assert!(scene.heed(reply).ran());
    scene.finish(vec![line]);
}

#[test]
fn a_line_lives_on_after_malformed_frames() {
    Way::each(&[Way::StdioLegacy, Way::StdioModern], |way| {
        let mut scene = Scene::open(way, &format!("{CONFIG}\n[limits]\nframe = \"8KiB\"\n"));
        let line = scene.line(Host::None);
        scene.call(&line, "get_status", "{}");
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":901,"method":"tools/call","params":{}1{}}}"#,
            "[".repeat(70),
            "]".repeat(70)
        );
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":902,"method":"tools/list","params":{{"x":"{}"}}}}"#,
            "x".repeat(9000)
        );
        for (frame, id, code) in [
            ("this is no JSON", "null", -32700),
            (r#"{"jsonrpc":"2.0","id":"#, "null", -32700),
            (r#"{"jsonrpc":"2.0","id":903}"#, "903", -32600),
            (r#"{"jsonrpc":"1.0","id":904,"method":"tools/list"}"#, "904", -32600),
            (r#"["x"]"#, "null", -32600),
            (r"[]", "null", -32600),
            (&deep, "901", -32600),
            (&long, "902", -32600),
        ] {
            let reply = line.raw(frame.as_bytes(), id);
            let got = reply.frame["error"]["code"].as_i64().unwrap();
            assert_eq!(got, code, "{way:?} {}", reply.text);
            let alive = scene.call(&line, "get_status", "{}");
            assert_eq!(alive.data()["mode"], "execute", "{frame}");
        }
        let reply = line.raw(b"{\"jsonrpc\":\"2.0\",\"id\":905,\"method\":\"\xff\xfe\"}", "905");
        assert_eq!(reply.frame["error"]["code"], -32700, "{}", reply.text);
        assert_eq!(scene.call(&line, "get_status", "{}").data()["mode"], "execute");
        assert_eq!(scene.reached(), []);
        scene.finish(vec![line]);
    });
}

/// Over HTTP a broken body fails only its request; a foreign origin or name is refused before anything is read.
#[test]
fn broken_and_foreign_requests_stop_at_the_door() {
    let scene = Scene::open(Way::HttpModern, CONFIG);
    let address = scene.gateway().address();
    let bearer = format!("Bearer {}", scene.bearer());
    let post = |extra: &[(&str, &str)], body: &str| {
        let mut headers = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("Authorization", bearer.as_str()),
        ];
        headers.extend(extra);
        let headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        super::http::send(&address, "POST", "/mcp", &headers, body).unwrap().status
    };
    assert_eq!(post(&[], "no JSON"), 400);
    assert_eq!(post(&[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#), 400, "neither era");
    assert_eq!(post(&[("Origin", "https://evil.example")], "{}"), 403);
    assert_eq!(
        post(&[("Mcp-Session-Id", "nobody")], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
        404
    );
    let line = Client::http_as(Way::HttpModern, Host::None, &address, "/mcp", "s", Some(scene.bearer()));
    assert!(!line.tools().is_empty(), "and the next one is served");
    scene.finish(vec![line]);
}

/// The caller leaves or the gateway is killed while the upstream works: recorded as unknown, never run again.
#[test]
fn a_write_under_way_when_the_gateway_dies_is_never_repeated() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let asked = scene.call(&line, "call_tool_write", &call("slow_note", ""));
        let field = |name: &str| asked.data()[name].as_str().unwrap().to_owned();
        let (plan, token) = (field("plan_id"), field("confirm_token"));
        let bring = call("slow_note", &format!(r#","confirm_token":"{token}","yes":true"#));
        line.start_call("call_tool_write", &bring);
        while scene.reached().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let line = scene.restart(line, Host::None, End::Killed);
        let became = scene.call(&line, "get_plan", &format!(r#"{{"plan_id":"{plan}"}}"#));
        assert_eq!(became.data()["plan"]["state"], "outcome_unknown", "{way:?} {}", became.text);
        let again = scene.call(&line, "call_tool_write", &bring);
        assert_eq!(again.code(), Some("E_CONFIRM_TOKEN_USED"), "{way:?} {}", again.text);
        assert_eq!(scene.reached(), [], "never by itself, never again");
        scene.finish(vec![line]);
    });
}

/// Expiry can't be judged by a clock that stood later before.
#[test]
fn a_clock_that_was_set_back_refuses_writes() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let asked = scene.call(&line, "call_tool_write", &call("put_note", ""));
        let token = asked.data()["confirm_token"].as_str().unwrap().to_owned();
        scene.record_at(jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1));
        for (what, extra) in
            [("phase 1", String::new()), ("phase 2", format!(r#","confirm_token":"{token}","yes":true"#))]
        {
            let reply = line.call("call_tool_write", &call("put_note", &extra));
            assert_eq!(reply.code(), Some("E_CLOCK_UNTRUSTED"), "{way:?} {what}: {}", reply.text);
        }
        assert_eq!(scene.reached(), [], "{way:?}");
        scene.finish(vec![line]);
    });
}

/// `trust = "review"`: even what is listed first is withheld until a person accepts it, and so is what changed.
#[test]
fn tools_nobody_accepted_are_withheld() {
    Way::each(&Way::ALL, |way| {
        let config = format!("{CONFIG}\n[upstreams.notes]\ntrust = \"review\"");
        let mut scene = Scene::open(way, &config);
        let line = scene.line(Host::None);
        let read = r#"{"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#;
        for mode in ["ask", "plan", "execute"] {
            let call = format!(r#"{},"mode":"{mode}"}}"#, &read[..read.len() - 1]);
            let reply = scene.call(&line, "call_tool_read", &call);
            assert_eq!(reply.code(), Some("E_TOOL_QUARANTINED"), "{way:?} {}", reply.text);
            assert_eq!(reply.envelope().unwrap()["errors"][0]["details"]["reason_code"], "tool_new");
        }
        let found = scene.call(&line, "retrieve_tools", r#"{"query":"note"}"#);
        assert_eq!(found.data()["total"], 0, "{}", found.text);
        scene.accept("notes:get_note");
        assert!(scene.call(&line, "call_tool_read", read).ran(), "{way:?}");
        let other = scene.call(&line, "call_tool_write", &call("save_note", ""));
        assert_eq!(other.code(), Some("E_TOOL_QUARANTINED"), "one acceptance is for one tool");
        assert_eq!(scene.reached().len(), 1);
        scene.finish(vec![line]);
    });
}

/// Tokens are kept hashed, and nobody's answers list them.
#[test]
fn a_token_is_nowhere_but_in_its_answer() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let asked = scene.call(&line, "call_tool_write", &call("put_note", ""));
        let token = asked.data()["confirm_token"].as_str().unwrap().to_owned();
        assert_eq!((token.len(), token.as_bytes()[14]), (36, b'4'), "a UUID, version 4: {token}");
        let plan = format!(r#"{{"plan_id":{}}}"#, asked.data()["plan_id"]);
        let bring = format!(r#","confirm_token":"{token}","yes":true"#);
        let answers = [
            scene.call(&line, "get_plan", &plan),
            scene.call(&line, "get_status", "{}"),
            scene.call(&line, "call_tool_write", &call("fail_note", &bring)),
            scene.call(&line, "call_tool_write", &call("put_note", &bring)),
            scene.call(&line, "call_tool_write", &call("put_note", &bring)),
        ];
        assert!(answers.iter().all(|reply| !reply.text.contains(&token)), "{way:?}");
        assert!(!scene.store_holds(&token), "{way:?}");
        assert!(scene.store_holds("put_note"), "the look itself works");
        scene.finish(vec![line]);
    });
}

/// Whatever is wrong with the start, stdout stays the protocol's.
#[test]
fn starts_that_fail_say_so_on_stderr() {
    let world = World::new();
    world.write("countersign.toml", "[gateway]\nmode = \"execute\"\n");
    let said = world.run(&["serve", "--role", "admin"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said}");
    assert!(
        said.stderr.contains("agent") && said.stderr.contains("human") && said.stderr.contains("admin"),
        "{said}"
    );
    for flags in [["--mode", "yolo"], ["--surface", "both"], ["--http", "nowhere"]] {
        let said = world.run(&[&["serve"], &flags[..]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said}");
    }
    world.write("countersign.toml", "[gateway]\nmdoe = \"execute\"\n");
    let said = world.run(&["serve"]);
    assert!(said.code != Some(0) && said.stdout.is_empty() && said.stderr.contains("mode"), "{said}");
}

#[test]
fn the_banner_names_the_role() {
    for (role, banner) in [
        ("agent", "MCP server starting in AGENT mode (restricted)"),
        ("human", "MCP server starting in HUMAN mode (full access)"),
    ] {
        let world = World::new();
        world.write("countersign.toml", "");
        let gateway = Gateway::start(&world, &["--role", role]);
        gateway.told().wait_for(0, |line| line == banner);
        gateway.end(End::Closed);
    }
}
