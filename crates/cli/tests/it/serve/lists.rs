//! What a host is shown: our tools and the upstream's, their annotations, and what a search says of each.

use serde_json::{Value, json};

use super::client::{Client, Host, Way};
use super::scene::Scene;

const CONFIG: &str = "[[rules]]\nmatch = \"notes:store_direct\"\nrole = \"human\"\n";

fn named<'t>(tools: &'t [Value], name: &str) -> &'t Value {
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no `{name}` in {tools:?}"))
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// `readOnlyHint`, `destructiveHint`, `openWorldHint`: all three said, none left to a default.
fn hints(tool: &Value) -> [Option<bool>; 3] {
    ["readOnlyHint", "destructiveHint", "openWorldHint"].map(|hint| tool["annotations"][hint].as_bool())
}

#[test]
fn the_router_lists_its_call_tools_and_ours_with_explicit_annotations() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        // The list names the upstream's tools: this waits for them.
        let read = r#"{"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#;
        assert!(scene.call(&line, "call_tool_read", read).ran());
        let tools = line.tools();
        assert_eq!(hints(named(&tools, "call_tool_read")), [Some(true), Some(false), Some(true)], "{way:?}");
        assert_eq!(hints(named(&tools, "call_tool_write")), [Some(false), Some(false), Some(true)]);
        assert_eq!(hints(named(&tools, "call_tool_destructive")), [Some(false), Some(true), Some(true)]);
        for read in ["retrieve_tools", "get_status", "get_plan", "list_runs", "get_run"] {
            assert_eq!(hints(named(&tools, read)), [Some(true), Some(false), Some(false)], "{read}");
        }
        for act in ["set_mode", "cancel_plan"] {
            assert_eq!(hints(named(&tools, act))[..2], [Some(false), Some(false)], "{act}");
        }
        for tool in &tools {
            assert!(tool["title"].is_string() && tool["inputSchema"]["type"] == "object", "{tool}");
            assert!(!hints(tool).contains(&None), "{tool}");
            assert!(!tool["name"].as_str().unwrap().contains("notes"), "{tool}");
        }
        assert_eq!(tools, line.tools(), "the list is stable");
        scene.finish(vec![line]);
    });
}

#[test]
fn the_direct_surface_shows_the_governed_effect() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open_with(way, "direct", CONFIG, &[]);
        let line = scene.line(Host::None);
        line.wait_for_upstreams();
        let tools = line.tools();
        for (name, read_only, destructive) in [
            ("notes__get_note", true, false),
            ("notes__put_note", false, false),
            ("notes__save_note", false, false),
            ("notes__erase_all", false, true),
            ("notes__wipe_notes", false, true),
            ("notes__delete_view", false, true),
        ] {
            let tool = named(&tools, name);
            assert_eq!(hints(tool)[..2], [Some(read_only), Some(destructive)], "{way:?} {tool}");
            let ours = &tool["inputSchema"]["properties"]["countersign"];
            assert_eq!(ours["type"] == "object", !read_only, "nothing of ours on reads: {tool}");
            let required = tool["inputSchema"]["required"].as_array();
            assert!(required.is_none_or(|all| !all.contains(&json!("countersign"))), "{tool}");
        }
        let exact = named(&tools, "notes__exact_note");
        assert_eq!(exact["annotations"]["vendorHint"], "kept", "{exact}");
        assert!(
            !names(&tools).contains(&"notes__store_direct"),
            "a tool for people is not in an agent's list"
        );
        assert!(names(&tools).contains(&"set_mode") && !names(&tools).contains(&"call_tool_read"));
        scene.finish(vec![line]);
    });
}

#[test]
fn a_human_line_sees_and_calls_what_is_for_people() {
    Way::each(&[Way::StdioLegacy, Way::StdioModern], |way| {
        let config = format!("[gateway]\nmode = \"execute\"\n{CONFIG}");
        let mut scene = Scene::open_with(way, "direct", &config, &["--role", "human"]);
        let line = scene.line(Host::None);
        line.wait_for_upstreams();
        assert!(names(&line.tools()).contains(&"notes__store_direct"));
        let status = scene.call(&line, "get_status", "{}");
        assert_eq!(status.data()["role"], "human");
        let asked = scene.call(&line, "notes__store_direct", r#"{"id":"a"}"#);
        assert_eq!(asked.data()["status"], "confirmation_required");
        scene.finish(vec![line]);
    });
}

#[test]
fn both_surfaces_are_served_by_path_and_the_plain_one_as_configured() {
    for (surface, own) in [("router", "call_tool_read"), ("direct", "notes__get_note")] {
        for way in [Way::HttpLegacy, Way::HttpModern] {
            let scene = Scene::open(way, &format!("[gateway]\nsurface = \"{surface}\"\n"));
            let address = scene.gateway().address();
            let at = |path| Client::http_as(way, Host::None, &address, path, "s", Some(scene.bearer()));
            let lines = [at("/mcp"), at("/mcp/router"), at("/mcp/direct")];
            lines[0].wait_for_upstreams();
            let [plain, router, direct] = lines.each_ref().map(Client::tools);
            assert!(names(&plain).contains(&own), "{way:?} {surface}");
            assert!(
                names(&router).contains(&"call_tool_read") && !names(&router).contains(&"notes__get_note")
            );
            assert!(
                names(&direct).contains(&"notes__get_note") && !names(&direct).contains(&"call_tool_read")
            );
            scene.finish(lines.into());
        }
    }
}

#[test]
fn a_search_says_how_to_call_what_it_finds() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        line.wait_for_upstreams();
        let all = scene.call(&line, "retrieve_tools", r#"{"query":"","limit":100,"detail":"full"}"#);
        let tools = all.data()["tools"].as_array().unwrap();
        assert_eq!(all.data()["total"], tools.len());
        assert!(all.data()["usage_instructions"].as_str().unwrap().contains("call_tool_read"));
        for tool in tools {
            for field in [
                "name",
                "description",
                "inputSchema",
                "score",
                "server",
                "annotations",
                "effect",
                "confirm",
                "call_with",
            ] {
                assert!(!tool[field].is_null(), "{field}: {tool}");
            }
        }
        for (name, effect, confirm, call_with) in [
            ("notes:get_note", "read", "none", "call_tool_read"),
            ("notes:put_note", "write", "simple", "call_tool_write"),
            ("notes:erase_all", "destructive", "preview", "call_tool_destructive"),
            ("notes:wipe_notes", "destructive", "preview", "call_tool_destructive"),
            ("notes:delete_view", "destructive", "preview", "call_tool_destructive"),
        ] {
            let tool = named(tools, name);
            let said = (&tool["effect"], &tool["confirm"], &tool["call_with"], &tool["server"]);
            assert_eq!(
                said,
                (&json!(effect), &json!(confirm), &json!(call_with), &json!("notes")),
                "{way:?}"
            );
        }
        assert_eq!(named(tools, "notes:delete_view")["annotations"], json!({"readOnlyHint": true}));
        assert!(!names(tools).contains(&"notes:store_direct"));
        bounds_of_a_search(&mut scene, &line);
        assert_eq!(scene.reached(), [], "a search reaches nothing");
        scene.finish(vec![line]);
    });
}

fn bounds_of_a_search(scene: &mut Scene, line: &Client) {
    let found = |scene: &mut Scene, arguments: &str| {
        let reply = scene.call(line, "retrieve_tools", arguments);
        reply.data()["tools"].as_array().unwrap().clone()
    };
    assert_eq!(found(scene, r#"{"query":"erase everything","limit":1}"#)[0]["name"], "notes:erase_all");
    assert_eq!(found(scene, r#"{"query":"note","limit":2}"#).len(), 2);
    let destructive = found(scene, r#"{"query":"","effect":"destructive"}"#);
    assert!(!destructive.is_empty() && destructive.iter().all(|tool| tool["effect"] == "destructive"));
    assert!(found(scene, r#"{"query":"note","upstream":"other"}"#).is_empty());
    for (arguments, field) in [
        (r#"{"query":"x","limit":0}"#, "limit"),
        (r#"{"query":"x","limit":101}"#, "limit"),
        (r#"{"query":"x","effect":"bad"}"#, "effect"),
        (r#"{"query":7}"#, "query"),
    ] {
        let reply = scene.call(line, "retrieve_tools", arguments);
        assert_eq!(reply.code(), Some("E_ARGUMENTS_INVALID"));
        assert_eq!(reply.envelope().unwrap()["errors"][0]["details"]["field"], field);
    }
}
