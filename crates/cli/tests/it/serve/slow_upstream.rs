//! One upstream hangs while it starts: everything else answers at once, its tools come when it is up, and nothing of it is called
//! before it said itself what it offers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::gateway::End;
use super::http::Answer;
use super::scene::{Scene, python};

/// The moment after the start in which lists wait (100 ms) and seconds for a machine that has much to do.
const AT_ONCE: Duration = Duration::from_secs(4);

/// An upstream that says nothing until there is a file `go`; beside it, `notes` is quick.
fn config(more: &str) -> String {
    let peer = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers/recorder.py");
    let wait = format!("while [ ! -e go ]; do sleep 0.05; done; exec {} -I -S {}", python(), peer.display());
    format!(
        "{more}\n[upstreams.slow]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {wait:?}]\n\
         env = {{ RECORD = \"slow.jsonl\", STATE = \"slow.json\" }}\n"
    )
}

/// Runs something and asserts that it did not wait for the upstream that hangs.
#[track_caller]
fn at_once<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    assert!(start.elapsed() < AT_ONCE, "{what} took {:?}", start.elapsed());
    done
}

/// Listens to changes of the tool list: over HTTP on a stream of its own.
fn listen(line: &Client) -> Option<Answer> {
    if line.way.is_http() {
        return Some(line.notification_stream());
    }
    if let Some(frame) = line.listen_frame() {
        line.send(&frame);
    }
    None
}

#[track_caller]
fn hears_of_new_tools(line: &Client, stream: Option<Answer>) {
    let start = Instant::now();
    if let Some(mut stream) = stream {
        while !stream.event().unwrap().unwrap().contains("notifications/tools/list_changed") {}
        return;
    }
    while !line.notes().iter().any(|note| note["method"] == "notifications/tools/list_changed") {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", line.notes());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn find<'t>(tools: &'t [Value], name: &str) -> Option<&'t Value> {
    tools.iter().find(|tool| tool["name"] == name)
}

fn is_starting(tool: &Value) -> bool {
    tool["_meta"]["countersign/starting"] == true
}

#[test]
fn a_hanging_upstream_delays_nothing_else() {
    for surface in ["router", "direct"] {
        Way::each(&Way::ALL, |way| {
            let mut scene = Scene::open_with(way, surface, &config(""), &[]);
            let line = at_once("opening a session", || scene.line(Host::None));
            let stream = listen(&line);
            let tools = at_once("tools/list", || line.tools());
            assert!(find(&tools, "retrieve_tools").is_some(), "{way:?}");
            let read = at_once("a read", || read_note(&mut scene, &line, surface, "notes"));
            assert!(read.ran(), "{way:?} {}", read.text);
            let query = r#"{"query":"note","limit":100}"#;
            let found = at_once("retrieve_tools", || scene.call(&line, "retrieve_tools", query));
            assert_eq!(found.data()["starting"], serde_json::json!(["slow"]), "{}", found.text);
            // A call of the upstream that hangs waits for it, and is answered when it is up.
            let waiting = std::thread::scope(|scope| {
                let waiting =
                    scope.spawn(|| line.call(&call_name(surface, "slow"), &arguments(surface, "slow")));
                std::thread::sleep(Duration::from_millis(200));
                assert!(!waiting.is_finished(), "{way:?}");
                scene.world.write("go", "");
                waiting.join().unwrap()
            });
            assert!(scene.heed(waiting).ran(), "{way:?}");
            hears_of_new_tools(&line, stream);
            if surface == "direct" {
                let tools = line.tools();
                let slow = find(&tools, "slow__get_note").unwrap();
                assert!(!is_starting(slow) && find(&tools, "notes__get_note").is_some(), "{way:?}");
            }
            let found = scene.call(&line, "retrieve_tools", query);
            assert_eq!(found.data()["starting"], serde_json::json!([]), "{}", found.text);
            scene.finish(vec![line]);
        });
    }
}

fn call_name(surface: &str, upstream: &str) -> String {
    if surface == "direct" { format!("{upstream}__get_note") } else { "call_tool_read".to_owned() }
}

fn arguments(surface: &str, upstream: &str) -> String {
    match surface {
        "direct" => r#"{"id":"a"}"#.to_owned(),
        _ => format!(
            r#"{{"name":"{upstream}:get_note","args":{{"id":"a"}},"intent":{{"operation_type":"read"}}}}"#
        ),
    }
}

fn read_note(scene: &mut Scene, line: &Client, surface: &str, upstream: &str) -> Reply {
    scene.call(line, &call_name(surface, upstream), &arguments(surface, upstream))
}

#[test]
fn tools_that_were_accepted_before_are_listed_while_their_upstream_starts() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open_with(way, "direct", &config(""), &[]);
        scene.world.write("go", "");
        let line = scene.line(Host::None);
        assert!(read_note(&mut scene, &line, "direct", "slow").ran());
        assert!(read_note(&mut scene, &line, "direct", "notes").ran());
        let before = line.tools();
        std::fs::remove_file(scene.world.work().join("go")).unwrap();
        let line = restart(&mut scene, line);
        let stream = listen(&line);
        let tools = at_once("tools/list", || line.tools());
        assert_eq!(names(&tools), names(&before), "{way:?}");
        assert!(is_starting(find(&tools, "slow__get_note").unwrap()), "{way:?}");
        // What people decided of a tool still holds: it is listed as it was accepted, and searched for as well.
        let found = scene.call(&line, "retrieve_tools", r#"{"query":"get note","upstream":"slow"}"#);
        assert_eq!(found.data()["tools"][0]["name"], "slow:get_note", "{}", found.text);
        assert!(found.data()["starting"].as_array().unwrap().contains(&"slow".into()), "{}", found.text);
        scene.world.write("go", "");
        assert!(read_note(&mut scene, &line, "direct", "slow").ran(), "{way:?}");
        hears_of_new_tools(&line, stream);
        assert!(!is_starting(find(&line.tools(), "slow__get_note").unwrap()), "{way:?}");
        scene.finish(vec![line]);
    });
}

fn restart(scene: &mut Scene, line: Client) -> Client {
    let how = if scene.way.is_http() { End::Asked } else { End::Closed };
    scene.restart(line, Host::None, how)
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// A tool that is listed from memory is not called as it was accepted if its upstream comes up with another one.
#[test]
fn attack_a_tool_that_changes_while_its_upstream_starts_is_refused() {
    let mut scene = Scene::open_with(Way::StdioLegacy, "direct", &config(""), &[]);
    scene.world.write("go", "");
    let line = scene.line(Host::None);
    assert!(read_note(&mut scene, &line, "direct", "slow").ran());
    let calls = scene.world.read("slow.jsonl").lines().count();
    std::fs::remove_file(scene.world.work().join("go")).unwrap();
    let line = restart(&mut scene, line);
    assert!(find(&line.tools(), "slow__get_note").is_some());
    scene.world.write("slow.json", r#"{"change":"get_note"}"#);
    let refused = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| line.call("slow__get_note", r#"{"id":"a"}"#));
        scene.world.write("go", "");
        waiting.join().unwrap()
    });
    assert_eq!(scene.heed(refused).code(), Some("E_TOOL_CHANGED"));
    assert!(find(&line.tools(), "slow__get_note").is_none());
    assert_eq!(scene.world.read("slow.jsonl").lines().count(), calls, "nothing reached it");
    scene.finish(vec![line]);
}

/// An upstream that does not come up again leaves its tools listed; a call of one says what is wrong, and the next one tries again.
#[test]
fn a_call_of_an_upstream_that_failed_says_so_and_tries_again() {
    let failing = "[ -e fail ] && exit 3; exec ";
    let config = config("").replace("while [ ! -e go ]; do sleep 0.05; done; exec ", failing);
    let mut scene = Scene::open_with(Way::StdioLegacy, "direct", &config, &[]);
    let line = scene.line(Host::None);
    assert!(read_note(&mut scene, &line, "direct", "slow").ran());
    scene.world.write("fail", "");
    let line = restart(&mut scene, line);
    assert!(find(&line.tools(), "slow__get_note").is_some());
    let refused = read_note(&mut scene, &line, "direct", "slow");
    assert_eq!(refused.code(), Some("E_UPSTREAM_UNAVAILABLE"), "{}", refused.text);
    std::fs::remove_file(scene.world.work().join("fail")).unwrap();
    let start = Instant::now();
    while !read_note(&mut scene, &line, "direct", "slow").ran() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(500));
    }
    scene.finish(vec![line]);
}

/// A peer that records its own start in a file.
fn peer(name: &str, more: &str) -> String {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers/recorder.py");
    let start = format!("touch {name}.started; exec {} -I -S {}", python(), script.display());
    format!(
        "[upstreams.{name}]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {start:?}]\n{more}\n\
         env = {{ RECORD = \"{name}.jsonl\", STATE = \"{name}.json\" }}\n"
    )
}

#[test]
fn a_lazy_upstream_starts_with_the_first_client_and_an_eager_one_with_the_gateway() {
    let config = format!("{}{}", peer("early", "start = \"eager\""), peer("late", ""));
    let mut scene = Scene::open_with(Way::HttpLegacy, "direct", &config, &[]);
    let has_started = |scene: &Scene, name: &str| scene.world.work().join(format!("{name}.started")).exists();
    let wait_for = |scene: &Scene, name: &str| {
        let start = Instant::now();
        while !has_started(scene, name) {
            assert!(start.elapsed() < Duration::from_secs(30), "{name}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(&scene, "early");
    assert!(!has_started(&scene, "late"), "nothing needed it yet");
    let line = scene.line(Host::None);
    wait_for(&scene, "late");
    scene.finish(vec![line]);
}

#[test]
fn an_unknown_tool_of_an_upstream_that_cannot_be_listed_says_why() {
    let config = "[upstreams.broken]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"exit 3\"]\n";
    let mut scene = Scene::open_with(Way::StdioLegacy, "direct", config, &[]);
    let line = scene.line(Host::None);
    let refused = scene.call(&line, "broken__anything", "{}");
    assert_eq!(refused.code(), Some("E_UPSTREAM_UNAVAILABLE"), "{}", refused.text);
    let unknown = scene.call(&line, "nobody__anything", "{}");
    assert_eq!(unknown.code(), Some("E_TOOL_NOT_FOUND"), "{}", unknown.text);
    scene.finish(vec![line]);
}

/// Upstreams come up side by side: each begins before any other is done.
#[test]
fn several_slow_upstreams_start_in_parallel() {
    let names = ["one", "two", "three", "four"];
    let config: String = names
        .iter()
        .map(|name| {
            let slow = format!("touch {name}.started; sleep 2; touch {name}.woke; exec ");
            peer(name, "").replace(&format!("touch {name}.started; exec "), &slow)
        })
        .collect();
    let mut scene = Scene::open_with(Way::StdioLegacy, "direct", &config, &[]);
    let line = at_once("opening a session", || scene.line(Host::None));
    for name in names {
        assert!(read_note(&mut scene, &line, "direct", name).ran(), "{name}");
    }
    let when = |name: &str, what: &str| {
        let file = scene.world.work().join(format!("{name}.{what}"));
        file.metadata().unwrap().modified().unwrap()
    };
    let last_start = names.iter().map(|name| when(name, "started")).max();
    let first_wake = names.iter().map(|name| when(name, "woke")).min();
    assert!(last_start < first_wake, "{last_start:?} {first_wake:?}");
    scene.finish(vec![line]);
}

/// The first start, with an empty store: we say what can be said without the upstream, and `list_changed` brings the rest.
#[test]
fn a_hanging_upstream_under_its_own_names_that_was_never_seen_delays_nothing() {
    Way::each(&[Way::StdioLegacy, Way::StdioModern], |way| {
        let mut scene = Scene::open_with(way, "direct", "", &[]);
        let bare = config("").replace("[upstreams.slow]\n", "[upstreams.slow]\nprefix = false\n");
        scene.world.write("countersign.toml", &bare);
        let line = at_once("opening a session", || scene.line(Host::None));
        let stream = listen(&line);
        if line.meta().is_some() {
            let said = at_once("server/discover", || ask(&line, "server/discover", json!({})));
            for capability in ["tools", "resources", "prompts"] {
                let declared = &said.result()["capabilities"][capability];
                assert_eq!(declared["listChanged"], true, "{}", said.text);
            }
        }
        let tools = at_once("tools/list", || line.tools());
        assert!(tools.is_empty(), "{way:?}");
        for (method, member) in [("resources/list", "resources"), ("prompts/list", "prompts")] {
            let listed = at_once(method, || ask(&line, method, json!({})));
            assert_eq!(listed.result()[member], json!([]), "{}", listed.text);
        }
        scene.world.write("go", "");
        hears_of_new_tools(&line, stream);
        assert!(find(&line.tools(), "get_note").is_some_and(|tool| !is_starting(tool)), "{way:?}");
        // We declared prompts before we knew that it has none.
        let listed = ask(&line, "prompts/list", json!({}));
        assert_eq!(listed.result()["prompts"], json!([]), "{}", listed.text);
        scene.finish(vec![line]);
    });
}

/// Under its own names as well: what it said of itself the last time is said at once, its capabilities included.
#[test]
fn a_hanging_upstream_under_its_own_names_answers_from_memory() {
    Way::each(&[Way::StdioLegacy, Way::StdioModern], |way| {
        let mut scene = Scene::open_with(way, "direct", "", &[]);
        let bare = config("").replace("[upstreams.slow]\n", "[upstreams.slow]\nprefix = false\n");
        scene.world.write("countersign.toml", &bare);
        scene.world.write("slow.json", r#"{"capabilities":{"prompts":{"vendor":7}}}"#);
        scene.world.write("go", "");
        let line = scene.line(Host::None);
        assert!(scene.call(&line, "get_note", r#"{"id":"a"}"#).ran(), "{way:?}");
        let before = line.tools();
        std::fs::remove_file(scene.world.work().join("go")).unwrap();
        let line = at_once("opening a session", || restart(&mut scene, line));
        if let Some(meta) = line.meta() {
            let params = json!({"_meta": meta}).to_string();
            let said = at_once("server/discover", || line.request("server/discover", None, &params));
            assert_eq!(said.result()["capabilities"]["prompts"], json!({"vendor": 7}), "{}", said.text);
        }
        let stream = listen(&line);
        let tools = at_once("tools/list", || line.tools());
        assert_eq!(names(&tools), names(&before), "{way:?}");
        assert!(is_starting(find(&tools, "get_note").unwrap()), "{way:?}");
        scene.world.write("go", "");
        assert!(scene.call(&line, "get_note", r#"{"id":"a"}"#).ran(), "{way:?}");
        hears_of_new_tools(&line, stream);
        scene.finish(vec![line]);
    });
}

/// An upstream with resources and prompts; one that waits for a file `go`, if it is to.
fn resource_peer(scene: &Scene, name: &str, wait: &str, mut plan: Value) -> String {
    plan["name"] = json!(name);
    scene.world.write(&format!("{name}.plan"), &plan.to_string());
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers/hostile.py");
    let start = format!("{wait}exec {} -I -S {}", python(), script.display());
    format!(
        "[upstreams.{name}]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {start:?}]\n\
         env = {{ PLAN = \"{name}.plan\", RECORD = \"{name}.record\" }}\n"
    )
}

fn ask(line: &Client, method: &str, mut params: Value) -> Reply {
    if let Some(meta) = line.meta() {
        params["_meta"] = meta;
    }
    line.request(method, None, &params.to_string())
}

/// What is listed is read at once; what an upstream that is starting may own is not given to another one's template.
#[test]
fn attack_a_template_takes_nothing_of_an_upstream_that_is_starting() {
    Way::each(&[Way::StdioLegacy, Way::StdioModern], |way| {
        let mut scene = Scene::open(way, "");
        let greedy =
            json!({"resources": ["known://x"], "templates": ["{+everything}"], "prompts": ["greet"]});
        let vault = json!({"resources": ["note://1"], "templates": ["note://{id}"]});
        let greedy = resource_peer(&scene, "greedy", "", greedy);
        let vault = resource_peer(&scene, "vault", "while [ ! -e go ]; do sleep 0.05; done; ", vault);
        scene.configure(&format!("{greedy}{vault}"));
        let line = scene.line(Host::None);
        line.wait_for_upstreams_but(&["vault"]);
        let read = |uri: &str| ask(&line, "resources/read", json!({"uri": uri}));
        let text = |reply: &Reply| reply.result()["contents"][0]["text"].clone();
        assert_eq!(text(&at_once("a listed resource", || read("known://x"))), "read by greedy", "{way:?}");
        let complete = |reference: Value| {
            let params = json!({"ref": reference, "argument": {"name": "a", "value": "b"}});
            ask(&line, "completion/complete", params)
        };
        let prompt = json!({"type": "ref/prompt", "name": "greedy__greet"});
        let done = at_once("a named prompt", || complete(prompt));
        assert_eq!(done.result()["completion"]["values"], json!(["greedy"]), "{}", done.text);
        let template = |uri: &str| complete(json!({"type": "ref/resource", "uri": uri}));
        let done = at_once("a listed template", || template("{+everything}"));
        assert_eq!(done.result()["completion"]["values"], json!(["greedy"]), "{}", done.text);
        for refused in
            [at_once("a URI", || read("note://1")), at_once("a template", || template("note://{id}"))]
        {
            let refused = scene.heed(refused);
            assert_eq!(refused.code(), Some("E_UPSTREAM_UNAVAILABLE"), "{way:?} {}", refused.text);
            let details = &refused.frame["error"]["data"]["details"];
            assert_eq!(details["starting"], json!(["vault"]), "{}", refused.text);
            assert_eq!(details["retryable"], true, "{}", refused.text);
        }
        scene.world.write("go", "");
        let start = Instant::now();
        let mut answer = read("note://1");
        while answer.is_refusal() {
            assert_eq!(scene.heed(answer).code(), Some("E_UPSTREAM_UNAVAILABLE"), "{way:?}");
            assert!(start.elapsed() < Duration::from_secs(30), "{way:?}");
            std::thread::sleep(Duration::from_millis(50));
            answer = read("note://1");
        }
        assert_eq!(text(&answer), "read by vault", "{way:?}");
        assert_eq!(text(&read("other://y")), "read by greedy", "{way:?}");
        assert!(!scene.world.read("greedy.record").contains("note://1"), "{way:?}");
        scene.finish(vec![line]);
    });
}
