//! The configuration changes while it is served: what takes effect, what keeps the old one, and what is said about it.

use super::client::{Client, Host, Way};
use super::scene::Scene;

#[test]
fn a_bad_configuration_keeps_the_old_one_and_says_so() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, "[gateway]\nmode = \"plan\"\n");
        let line = scene.line(Host::None);
        assert_eq!(scene.call(&line, "get_status", "{}").data()["mode"], "plan");
        let told = scene.reconfigure("[gateway]\nmdoe = \"execute\"\n");
        assert!(told.starts_with("configuration not reloaded, the old one goes on"), "{told}");
        assert_eq!(scene.call(&line, "get_status", "{}").data()["mode"], "plan", "{way:?}");
        let told = scene.reconfigure("[gateway]\nmode = \"execute\"\n");
        assert_eq!(told, "configuration reloaded");
        assert_eq!(scene.call(&line, "get_status", "{}").data()["mode"], "execute", "{way:?}");
        let rows = scene.rows();
        let config: Vec<&str> = rows
            .iter()
            .filter(|row| row["kind"] == "config")
            .map(|row| row["status"].as_str().unwrap())
            .collect();
        assert_eq!(config, ["refused", "success"], "{way:?}");
        scene.finish(vec![line]);
    });
}

/// A highest mode that is lowered holds from then on, also for sessions that are open and above it.
#[test]
fn a_lowered_highest_mode_takes_effect() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, "[gateway]\nmode = \"execute\"\n");
        let line = scene.line(Host::None);
        scene.call(&line, "set_mode", r#"{"mode":"execute"}"#);
        let write = r#"{"name":"notes:put_note","args":{"id":"a"},"intent":{"operation_type":"write"}}"#;
        let asked = scene.call(&line, "call_tool_write", write);
        let token = asked.data()["confirm_token"].as_str().unwrap().to_owned();
        scene.reconfigure("[gateway]\nmode = \"ask\"\nmax_mode = \"plan\"\n");
        let bring = format!(r#"{},"confirm_token":"{token}","yes":true}}"#, &write[..write.len() - 1]);
        let refused = scene.call(&line, "call_tool_write", &bring);
        assert_eq!(refused.code(), Some("E_MODE_FORBIDDEN"), "{way:?} {}", refused.text);
        assert_eq!(scene.call(&line, "set_mode", r#"{"mode":"execute"}"#).code(), Some("E_MODE_FORBIDDEN"));
        assert_eq!(scene.reached(), [], "{way:?}");
        scene.finish(vec![line]);
    });
}

/// Lines that were open to everyone on this machine are not any more.
#[test]
fn credentials_can_be_asked_for_while_serving() {
    const OPEN: &str = "[gateway]\nagent_auth = \"loopback-open\"\n";
    let scene = Scene::open(Way::HttpLegacy, OPEN);
    let line =
        Client::http_as(Way::HttpLegacy, Host::None, &scene.gateway().address(), scene.path(), "", None);
    scene.reconfigure("");
    let params = r#"{"name":"get_status","arguments":{}}"#;
    assert_eq!(line.request("tools/call", Some("get_status"), params).status, Some(401));
    scene.reconfigure(OPEN);
    assert_eq!(line.request("tools/call", Some("get_status"), params).status, Some(200));
    scene.finish(vec![line]);
}

/// A rule that takes a tool away takes it from the list, and the host hears of it.
#[test]
fn lists_follow_the_rules() {
    Way::each(&[Way::StdioLegacy, Way::HttpModern], |way| {
        let mut scene = Scene::open_with(way, "direct", "", &[]);
        let line = scene.line(Host::None);
        line.wait_for_upstreams();
        let lists = |line: &Client| line.tools().iter().any(|tool| tool["name"] == "notes__put_note");
        assert!(lists(&line));
        scene.reconfigure("[[rules]]\nmatch = \"notes:put_note\"\nrole = \"human\"\n");
        assert!(!lists(&line), "{way:?}");
        if !way.is_http() {
            let told = line.notes().iter().any(|note| note["method"] == "notifications/tools/list_changed");
            assert!(told, "{:?}", line.notes());
        }
        scene.finish(vec![line]);
    });
}

/// Another name for one of our own tools is news like any other.
#[test]
fn lists_follow_the_aliases() {
    let mut scene = Scene::open_with(Way::StdioLegacy, "router", "", &[]);
    let line = scene.line(Host::None);
    let lists = |line: &Client| line.tools().iter().any(|tool| tool["name"] == "our_mode");
    assert!(!lists(&line));
    scene.reconfigure("[gateway]\naliases = { our_mode = \"set_mode\" }\n");
    assert!(lists(&line));
    let told =
        line.notes().iter().filter(|note| note["method"] == "notifications/tools/list_changed").count();
    // A second one is about the upstream, if it came up after the session opened.
    assert!((1..=2).contains(&told), "{:?}", line.notes());
    scene.finish(vec![line]);
}
