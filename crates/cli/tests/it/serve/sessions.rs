//! Sessions: whose they are, when they end, and that nothing sent over a line changes who is on it.

use countersign_policy::role::Role;

use super::client::{Client, Host, Way};
use super::gateway::End;
use super::scene::Scene;

/// The start flag is for the stdio connection. An HTTP caller without a credential is an agent.
#[test]
fn a_human_flag_makes_no_human_of_an_http_line() {
    Way::each(&[Way::HttpLegacy, Way::HttpModern], |way| {
        let config =
            "[gateway]\nmode = \"execute\"\n\n[[rules]]\nmatch = \"notes:store_direct\"\nrole = \"human\"\n";
        let mut scene = Scene::open_with(way, "direct", config, &["--role", "human"]);
        let line = scene.line(Host::None);
        assert_eq!(scene.call(&line, "get_status", "{}").data()["role"], "agent", "{way:?}");
        let refused = scene.call(&line, "notes__store_direct", r#"{"id":"a"}"#);
        assert_eq!(refused.frame["error"]["code"], -32602, "{}", refused.text);
        assert_eq!(refused.frame["error"]["message"], "Tool \"store_direct\" not available in agent mode");
        let secret = scene.credential("ada", Role::Human, "{}");
        let address = scene.gateway().address();
        let human = Client::http_as(way, Host::None, &address, "/mcp/direct", "h", Some(secret));
        assert_eq!(scene.call(&human, "get_status", "{}").data()["role"], "human");
        let asked = scene.call(&human, "notes__store_direct", r#"{"id":"a"}"#);
        assert_eq!(asked.data()["status"], "confirmation_required");
        scene.finish(vec![line, human]);
    });
}

/// What a request with this session and this credential gets.
fn status(scene: &Scene, method: &str, session: &str, secret: Option<&str>) -> u16 {
    let mut headers = vec![
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ("Mcp-Session-Id".to_owned(), session.to_owned()),
    ];
    headers.extend(secret.map(|secret| ("Authorization".to_owned(), format!("Bearer {secret}"))));
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    super::http::send(&scene.gateway().address(), method, "/mcp", &headers, body).unwrap().status
}

#[test]
fn a_session_is_its_principals_and_ends_for_good() {
    let way = Way::HttpLegacy;
    let mut scene = Scene::open(way, "");
    let [ann, bob] = ["ann", "bob"].map(|name| scene.credential(name, Role::Agent, "{}"));
    let address = scene.gateway().address();
    let line = Client::http_as(way, Host::None, &address, "/mcp", "", Some(ann.clone()));
    let session = line.session();
    scene.call(&line, "set_mode", r#"{"mode":"plan"}"#);
    assert_eq!(status(&scene, "POST", &session, Some(&ann)), 200);
    assert_eq!(status(&scene, "POST", &session, Some(&bob)), 404, "another's session looks like none");
    assert_eq!(status(&scene, "POST", &session, None), 401);
    assert_eq!(status(&scene, "DELETE", &session, Some(&bob)), 404);
    let line = scene.restart(line, Host::None, End::Asked);
    assert_eq!(status(&scene, "POST", &session, Some(&bob)), 404, "nor after a restart");
    assert_eq!(scene.call(&line, "get_status", "{}").data()["mode"], "plan");
    assert_eq!(status(&scene, "DELETE", &session, Some(&ann)), 204);
    assert_eq!(status(&scene, "POST", &session, Some(&ann)), 404);
    let line = scene.restart(line, Host::None, End::Asked);
    assert_eq!(status(&scene, "POST", &session, Some(&ann)), 404, "what was ended does not come back");
    scene.finish(vec![line]);
}

/// The name a stateless client gives its session is part of the session, not of the principal.
#[test]
fn stateless_sessions_are_told_apart_by_name() {
    let mut scene = Scene::open(Way::HttpModern, "");
    let lines = ["one", "two", ""].map(|name| scene.line_named(Host::None, name));
    scene.call(&lines[0], "set_mode", r#"{"mode":"execute"}"#);
    for (line, mode) in lines.iter().zip(["execute", "ask", "ask"]) {
        assert_eq!(scene.call(line, "get_status", "{}").data()["mode"], mode);
    }
    scene.finish(lines.into());
}

/// A session that was restored after a restart gets change notifications like any other.
#[test]
fn a_restored_session_hears_of_changed_lists() {
    let mut scene = Scene::open_with(Way::HttpLegacy, "direct", "", &[]);
    let line = scene.line(Host::None);
    let line = scene.restart(line, Host::None, End::Asked);
    let headers = [
        ("Accept".to_owned(), "text/event-stream".to_owned()),
        ("Mcp-Session-Id".to_owned(), line.session()),
        ("MCP-Protocol-Version".to_owned(), "2025-11-25".to_owned()),
        ("Authorization".to_owned(), format!("Bearer {}", scene.bearer())),
    ];
    let mut stream =
        super::http::send(&scene.gateway().address(), "GET", "/mcp/direct", &headers, "").unwrap();
    assert_eq!((stream.status, stream.is_stream()), (200, true));
    // Before the first lists are there, nothing changes.
    assert!(!line.tools().is_empty());
    scene.reconfigure("[[rules]]\nmatch = \"notes:put_note\"\nrole = \"human\"\n");
    let told = stream.event().unwrap().unwrap();
    assert!(told.contains("notifications/tools/list_changed"), "{told}");
    drop(stream);
    scene.finish(vec![line]);
}

/// A name that cannot be kept is refused: it must not become the session of those without a name.
#[test]
fn a_session_name_that_is_too_long_is_refused() {
    let mut scene = Scene::open(Way::HttpModern, "");
    let fits = scene.line_named(Host::None, &"n".repeat(256));
    let long = scene.line_named(Host::None, &"n".repeat(257));
    let unnamed = scene.line_named(Host::None, "");
    let refused = scene.call(&long, "set_mode", r#"{"mode":"execute"}"#);
    assert_eq!(refused.frame["error"]["code"], -32602, "{}", refused.text);
    assert_eq!(refused.frame["error"]["data"]["field"], "_meta.countersign/session");
    scene.call(&fits, "set_mode", r#"{"mode":"execute"}"#);
    for (line, mode) in [(&fits, "execute"), (&unnamed, "ask")] {
        assert_eq!(scene.call(line, "get_status", "{}").data()["mode"], mode);
    }
    scene.finish(vec![fits, long, unnamed]);
}

/// Hosts keep a stream open for as long as they live: a gateway that stops does not wait for them.
#[test]
fn a_host_that_listens_does_not_keep_the_gateway() {
    let mut scene = Scene::open(Way::HttpLegacy, "");
    let line = scene.line(Host::None);
    let headers = [
        ("Accept".to_owned(), "text/event-stream".to_owned()),
        ("Mcp-Session-Id".to_owned(), line.session()),
        ("MCP-Protocol-Version".to_owned(), "2025-11-25".to_owned()),
        ("Authorization".to_owned(), format!("Bearer {}", scene.bearer())),
    ];
    let stream = super::http::send(&scene.gateway().address(), "GET", scene.path(), &headers, "").unwrap();
    assert_eq!((stream.status, stream.is_stream()), (200, true));
    let line = scene.restart(line, Host::None, End::Asked);
    assert_eq!(scene.call(&line, "get_status", "{}").data()["role"], "agent", "the session goes on");
    drop(stream);
    scene.finish(vec![line]);
}
