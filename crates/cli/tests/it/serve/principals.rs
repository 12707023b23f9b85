//! Who a connection belongs to: one host's pauses are not another's, and a credential may have one session for all its connections.

use countersign_policy::role::Role;

use super::client::{Host, Way};
use super::scene::Scene;

const CONFIG: &str = "[gateway]\nmode = \"execute\"\n[confirm]\nhold = \"0s\"\n";

fn put(id: &str, more: &str) -> String {
    format!(
        r#"{{"name":"notes:put_note","args":{{"id":"{id}","text":"t"}},"intent":{{"operation_type":"write"}}{more}}}"#
    )
}

/// Three declines in one host pause that host, in that folder, and nobody else.
#[test]
fn one_hosts_declines_do_not_pause_another_host() {
    let mut scene = Scene::open(Way::StdioLegacy, CONFIG);
    let declining = scene.line_of(Host::None, "copilot");
    for n in 0..3 {
        let asked = scene.call(&declining, "call_tool_write", &put(&n.to_string(), ""));
        scene.reject(asked.data()["plan_id"].as_str().unwrap());
    }
    let paused = scene.call(&declining, "call_tool_write", &put("next", ""));
    assert_eq!(paused.code(), Some("E_PRINCIPAL_PAUSED"), "{}", paused.text);
    let other = scene.line_of(Host::None, "claude-code");
    let asked = scene.call(&other, "call_tool_write", &put("next", ""));
    assert_eq!(asked.data()["status"], "confirmation_required", "{}", asked.text);
    // Without a name it is the one it always was.
    let plain = scene.line(Host::None);
    let asked = scene.call(&plain, "call_tool_write", &put("next", ""));
    assert_eq!(asked.data()["status"], "confirmation_required", "{}", asked.text);
    let principals: std::collections::BTreeSet<String> = scene
        .rows()
        .iter()
        .filter(|row| row["kind"] == "call")
        .map(|row| row["principal"].as_str().unwrap().to_owned())
        .collect();
    let begins: Vec<&str> = principals.iter().map(|one| one.split('@').next().unwrap()).collect();
    assert_eq!(begins, ["claude-code", "copilot", "local-agent"], "{principals:?}");
    assert_eq!(principals.iter().filter(|one| one.ends_with("/work")).count(), 2, "{principals:?}");
    scene.finish(vec![declining, other, plain]);
}

/// Rows name the host program: by the configuration's word, else by the client's own; its version; its folder where it is known.
#[test]
fn rows_name_the_host_program_its_version_and_folder() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let plain = scene.line(Host::Accepts);
        let asked = scene.call(&plain, "call_tool_write", &put("a", ""));
        assert!(asked.ran() || asked.data()["status"] == "confirmation_required", "{}", asked.text);
        scene.call(&plain, "set_mode", r#"{"mode":"plan"}"#);
        // What commands print shows the temporary folder as this.
        let folder = "<room>/work";
        let of_connection = |row: &&serde_json::Value| row["kind"] == "call" || row["kind"] == "mode";
        let rows = scene.rows();
        let rows: Vec<_> = rows.iter().filter(of_connection).collect();
        assert!(rows.iter().any(|row| row["kind"] == "mode"), "{rows:?}");
        for row in rows {
            assert_eq!(row["host"]["program"], "transcript", "{way:?} {row}");
            assert_eq!(row["host"]["version"], "1", "{way:?} {row}");
            // Over HTTP nobody knows where the client works.
            assert_eq!(row["host"]["folder"].as_str(), (!way.is_http()).then_some(folder), "{row}");
        }
        let mut lines = vec![plain];
        if !way.is_http() {
            let named = scene.line_of(Host::None, "codex");
            scene.call(&named, "call_tool_write", &put("b", ""));
            let rows = scene.rows();
            let row = rows.iter().rfind(|row| row["kind"] == "call").unwrap();
            assert_eq!((&row["host"]["program"], &row["host"]["version"]), (&"codex".into(), &"1".into()));
            let shown = scene.world.run(&["activity", "show", row["id"].as_str().unwrap()]);
            assert!(shown.stdout.contains(&format!("codex 1 in {folder}")), "{}", shown.stdout);
            lines.push(named);
        }
        scene.finish(lines);
    });
}

/// Plans say who asks in the words of people, wherever they are read; the principal stays what it was.
#[test]
fn plans_name_the_host_and_its_folder() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = if way.is_http() {
            let secret = scene.credential("shop-agent", Role::Agent, "{}");
            scene.line_as(Host::None, Some(secret))
        } else {
            scene.line_of(Host::None, "claude-code")
        };
        let asked = scene.call(&line, "call_tool_write", &put("a", ""));
        let id = asked.data()["plan_id"].as_str().unwrap().to_owned();
        let shown = scene.world.run(&["plans", "show", &id, "--json"]).envelope();
        let plan = &shown["data"]["plan"];
        let principal = plan["principal"].as_str().unwrap();
        let who = if way.is_http() {
            // Over HTTP nobody knows the folder; the credential says whose connection it is.
            format!("transcript, as {principal}")
        } else {
            assert_eq!(plan["host"]["program"], "claude-code", "{plan}");
            assert!(principal.starts_with("claude-code@"), "{principal}");
            "Claude Code in <room>/work".to_owned()
        };
        assert_eq!(plan["asked_by"], who, "{way:?}");
        assert_eq!(plan["host"]["version"], "1", "{plan}");
        for args in [["plans", "list"].as_slice(), &["plans", "show", &id], &["activity", "list"]] {
            let told = scene.world.run(args);
            assert!(told.stdout.contains(&who), "{way:?} {told}");
        }
        scene.finish(vec![line]);
    });
}

/// A call that is held open is said to wait, and its approval leads to its own result; afterwards nothing is said to wait.
#[test]
fn an_approval_says_whether_the_agents_call_still_waits() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let plan = scene.call(&line, "call_tool_write", &put("w", "")).data()["plan_id"].clone();
        let plan = plan.as_str().unwrap().to_owned();
        let waits = |scene: &Scene| {
            let shown = scene.world.run(&["plans", "show", &plan, "--json"]).envelope();
            shown["data"]["plan"]["call_waits_until"].is_string()
        };
        assert!(!waits(&scene), "{way:?} it was answered at once");
        let reply = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| line.call("call_tool_write", &put("w", r#","wait_seconds":60"#)));
            while !waits(&scene) {
                assert!(!waiting.is_finished(), "{way:?}");
            }
            let ran = scene.world.run(&["approve", &plan, "--yes", "--run", "--json"]).envelope();
            assert_eq!(
                (&ran["data"]["call_waits"], &ran["data"]["state"]),
                (&true.into(), &"done".into()),
                "{ran:#}"
            );
            waiting.join().unwrap()
        });
        assert!(scene.heed(reply).ran());
        assert_eq!(scene.reached().len(), 1, "once, by the call itself");
        scene.finish(vec![line]);
    });
}

/// A token is for its principal: the same call of another host does not spend it.
#[test]
fn one_hosts_token_fits_no_other_host() {
    let mut scene = Scene::open(Way::StdioLegacy, CONFIG);
    let (one, other) = (scene.line_of(Host::None, "codex"), scene.line_of(Host::None, "gemini"));
    let asked = scene.call(&one, "call_tool_write", &put("a", ""));
    scene.approve(asked.data()["plan_id"].as_str().unwrap());
    let token = asked.data()["confirm_token"].as_str().unwrap();
    let bring = put("a", &format!(r#","confirm_token":"{token}","yes":true"#));
    let foreign = scene.call(&other, "call_tool_write", &bring);
    assert_eq!(foreign.code(), Some("E_CONFIRM_TOKEN_MISMATCH"), "{}", foreign.text);
    assert!(scene.call(&one, "call_tool_write", &bring).ran());
    scene.finish(vec![one, other]);
}

/// A grant is for the principal whose call a person looked at.
#[test]
fn one_hosts_grant_serves_no_other_host() {
    let mut scene = Scene::open(Way::StdioLegacy, CONFIG);
    let (one, other) = (scene.line_of(Host::None, "codex"), scene.line_of(Host::None, "gemini"));
    let asked = scene.call(&one, "call_tool_write", &put("a", ""));
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    let granted = scene.world.run(&["approve", &plan, "--yes", "--grant", "--uses", "9", "--json"]);
    assert_eq!(granted.code, Some(0), "{granted}");
    // The approved plan is one call; what follows it needs the grant.
    for _ in 0..3 {
        let reply = scene.call(&one, "call_tool_write", &put("a", ""));
        assert!(reply.ran(), "{}", reply.text);
    }
    let foreign = scene.call(&other, "call_tool_write", &put("a", ""));
    assert_eq!(foreign.data()["status"], "confirmation_required", "{}", foreign.text);
    assert_eq!(scene.reached().len(), 3);
    scene.finish(vec![one, other]);
}

const LIMITED: &str = "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"notes:save_note\"\nconfirm = \"none\"\nlimit = \"1/min\"\n";

/// What one principal used up is still there for another, in one gateway and in one for each host.
#[test]
fn one_hosts_limit_is_not_used_up_by_another() {
    let save = r#"{"name":"notes:save_note","args":{"id":"a"},"intent":{"operation_type":"write"}}"#;
    for way in [Way::StdioLegacy, Way::HttpLegacy] {
        let mut scene = Scene::open(way, LIMITED);
        let lines = ["codex", "gemini"].map(|name| {
            if way.is_http() {
                let bearer = scene.credential(name, Role::Agent, "{}");
                scene.line_as(Host::None, Some(bearer))
            } else {
                scene.line_of(Host::None, name)
            }
        });
        for line in &lines {
            let first = scene.call(line, "call_tool_write", save);
            assert!(first.ran(), "{way:?} {}", first.text);
            let second = scene.call(line, "call_tool_write", save);
            assert_eq!(second.code(), Some("E_LIMIT_EXCEEDED"), "{way:?} {}", second.text);
        }
        scene.finish(lines.into());
    }
}

/// LangChain's adapters open a session for each call: with such a credential a token is valid in the next session,
/// once, and for no other credential.
#[test]
fn a_token_of_an_any_session_credential_fits_every_session_of_it_once() {
    Way::each(&[Way::HttpLegacy, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let any = scene.credential("adapters", Role::Agent, r#"{"any_session":true}"#);
        let usual = scene.credential("usual", Role::Agent, "{}");
        let namesake = scene.namesake("adapters", "two", r#"{"any_session":true}"#);
        let address = scene.gateway().address();
        let line = |bearer: &str, name: &str| {
            super::client::Client::http_as(
                way,
                Host::None,
                &address,
                "/mcp/router",
                name,
                Some(bearer.to_owned()),
            )
        };
        let (first, second, others) = (line(&any, "one"), line(&any, "two"), line(&usual, "one"));
        let same_name = line(&namesake, "one");
        let asked = scene.call(&first, "call_tool_write", &put("a", ""));
        scene.approve(asked.data()["plan_id"].as_str().unwrap());
        let token = asked.data()["confirm_token"].as_str().unwrap();
        let bring = put("a", &format!(r#","confirm_token":"{token}","yes":true"#));
        for foreign in [&others, &same_name] {
            let refused = scene.call(foreign, "call_tool_write", &bring);
            assert_eq!(refused.code(), Some("E_CONFIRM_TOKEN_MISMATCH"), "{way:?} {}", refused.text);
        }
        assert!(scene.call(&second, "call_tool_write", &bring).ran(), "{way:?}");
        let again = scene.call(&first, "call_tool_write", &bring);
        assert_eq!(again.code(), Some("E_CONFIRM_TOKEN_USED"), "{way:?} {}", again.text);
        // Without it a session is a session.
        let asked = scene.call(&others, "call_tool_write", &put("b", ""));
        scene.approve(asked.data()["plan_id"].as_str().unwrap());
        let token = asked.data()["confirm_token"].as_str().unwrap();
        let elsewhere = line(&usual, "two");
        let bring = put("b", &format!(r#","confirm_token":"{token}","yes":true"#));
        let refused = scene.call(&elsewhere, "call_tool_write", &bring);
        assert_eq!(refused.code(), Some("E_CONFIRM_TOKEN_MISMATCH"), "{way:?} {}", refused.text);
        scene.finish(vec![first, second, others, same_name, elsewhere]);
    });
}

/// The page of a configuration is where it was: a bookmark and an open tab go on working. A second gateway says where it is instead.
#[test]
fn the_page_beside_a_stdio_connection_keeps_its_port() {
    let config = format!("{CONFIG}[[rules]]\nmatch = \"notes:*\"\nstrength = \"human\"\n");
    let mut scene = Scene::open(Way::StdioLegacy, &config);
    let mut asked = 0;
    let mut page = |scene: &mut Scene, line: &super::client::Client| {
        asked += 1;
        let held = scene.call(line, "call_tool_write", &put(&asked.to_string(), ""));
        let url = held.data()["approve_url"].as_str().unwrap_or_else(|| panic!("{}", held.text)).to_owned();
        url.split('/').nth(2).unwrap().to_owned()
    };
    let line = scene.line(Host::None);
    let first = page(&mut scene, &line);
    let port: u16 = first.rsplit(':').next().unwrap().parse().unwrap();
    assert!((20_000..30_000).contains(&port), "{first}");
    let other = scene.line(Host::None);
    assert_ne!(page(&mut scene, &other), first);
    let said = scene.gateway().told().text();
    assert!(said.contains(&format!("port {port}")) && said.contains("is taken"), "{said}");
    drop(other);
    scene.take_gateway().end(super::gateway::End::Closed);
    let line = scene.restart(line, Host::None, super::gateway::End::Asked);
    assert_eq!(page(&mut scene, &line), first, "the same after a restart");
    scene.finish(vec![line]);
}
