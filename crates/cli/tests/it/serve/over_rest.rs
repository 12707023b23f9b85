//! What a person does at the desk besides deciding, through the real binary: a run is stopped while it runs, a changed tool is
//! compared and accepted, other rules are tried on what happened, upstreams and runs tell how they stand, and a desk that closes
//! answers whom it was answering.

use std::process::Command;
use std::time::{Duration, Instant};

use countersign_policy::role::Role;
use serde_json::{Value, json};

use super::client::{Host, Way};
use super::desk::{Person, person};
use super::gateway::End;
use super::http::{self, PATIENCE};
use super::scene::Scene;

const CONFIG: &str = r#"[gateway]
mode = "execute"

[[rules]]
match = "notes:erase_all"
strength = "human"

[upstreams.u]
[[upstreams.u.tools]]
name = "wait"
effect = "read"
background = true
run = ["sh", "-c", "echo begun; sleep 300"]
"#;

fn events(ada: &Person) -> http::Answer {
    let headers = [("Authorization".to_owned(), format!("Bearer {}", ada.secret))];
    let answer = http::send(&ada.address, "GET", "/api/v1/events", &headers, "").unwrap();
    assert!(answer.is_stream());
    answer
}

/// The next event of this kind; others pass.
#[track_caller]
fn heard(stream: &mut http::Answer, wanted: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    while let Some(data) = stream.event().unwrap() {
        let event: Value = serde_json::from_str(&data).unwrap();
        if wanted(&event) {
            return event;
        }
        assert!(start.elapsed() < PATIENCE, "never heard");
    }
    panic!("the stream ended")
}

fn begin(scene: &mut Scene, line: &super::client::Client) -> String {
    let call = r#"{"name":"u:wait","args":{},"intent":{"operation_type":"read"}}"#;
    let begun = scene.call(line, "call_tool_read", call);
    begun.data()["run_id"].as_str().unwrap_or_else(|| panic!("{}", begun.text)).to_owned()
}

#[test]
fn a_run_is_stopped_while_it_runs() {
    let mut scene = Scene::open(Way::HttpLegacy, CONFIG);
    let ada = person(&scene);
    let line = scene.line(Host::None);
    let run = begin(&mut scene, &line);
    let state = |ada: &Person| ada.data("GET", &format!("/runs/{run}"), Value::Null)["run"].clone();
    let until = |wanted: &dyn Fn(&Value) -> bool| {
        let start = Instant::now();
        loop {
            let is = state(&ada);
            if wanted(&is) {
                return is;
            }
            assert!(start.elapsed() < PATIENCE, "{is}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(&|run| run["state"] == "running" && run["log_tail"] == json!(["begun"]));
    let agent = Person { address: ada.address.clone(), secret: scene.credential("bot", Role::Agent, "{}") };
    assert_eq!(agent.ask("POST", &format!("/runs/{run}/stop"), json!({})).0, 403);
    assert_eq!(state(&ada)["state"], "running", "an agent's credential stops nothing");
    let stopped = ada.data("POST", &format!("/runs/{run}/stop"), json!({}));
    assert_eq!(stopped["stopping"], true, "{stopped}");
    let ended = until(&|run| run["state"] != "running");
    assert_eq!(ended["state"], "cancelled", "{ended}");
    assert_eq!(ada.ask("POST", &format!("/runs/{run}/stop"), json!({})).0, 409, "once is enough");
    let told = scene.call(&line, "get_run", &json!({"run_id": run}).to_string());
    assert_eq!(told.data()["run"]["state"], "cancelled", "the agent is told: {}", told.text);
    let rows = scene.rows();
    let is_stop = |row: &&Value| row["detail"]["action"] == "stop_run" && row["principal"] == "ada";
    assert_eq!(rows.iter().filter(is_stop).count(), 1, "who stopped it is in the ledger");
    scene.finish(vec![line]);
}

#[test]
fn a_changed_tool_is_compared_and_accepted_and_runs_again() {
    let mut scene = Scene::open(Way::HttpLegacy, CONFIG);
    let ada = person(&scene);
    let line = scene.line(Host::None);
    let read = r#"{"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#;
    assert!(scene.call(&line, "call_tool_read", read).ran());
    let pin = |ada: &Person| ada.data("GET", "/tools/notes:get_note", Value::Null)["tool"].clone();
    let before = pin(&ada);
    assert_eq!((&before["pin"], &before["withheld"]), (&json!("accepted"), &Value::Null), "{before}");
    scene.state(r#"{"change":"get_note"}"#);
    // A confirmed call reads the list again before it goes out.
    let put = r#"{"name":"notes:put_note","args":{"id":"a"},"intent":{"operation_type":"write"}"#;
    let asked = scene.call(&line, "call_tool_write", &format!("{put}}}"));
    let token = asked.data()["confirm_token"].as_str().unwrap().to_owned();
    let bring = format!(r#"{put},"confirm_token":"{token}","yes":true}}"#);
    assert!(scene.call(&line, "call_tool_write", &bring).ran());
    assert_eq!(scene.call(&line, "call_tool_read", read).code(), Some("E_TOOL_CHANGED"));
    assert_eq!(pin(&ada)["pin"], "changed");
    let diff = ada.data("GET", "/tools/notes:get_note/diff", Value::Null);
    let (accepted, candidate) = (&diff["tool"]["accepted"], &diff["tool"]["candidate"]);
    assert_eq!(accepted["fingerprint"], before["fingerprint"], "{diff}");
    let description = |of: &Value| of["definition"]["description"].as_str().unwrap().to_owned();
    assert_eq!(description(candidate), format!("{} and of everything else", description(accepted)));
    // What was not looked at is not accepted.
    let stale = json!({"fingerprint": accepted["fingerprint"]});
    assert_eq!(ada.ask("POST", "/tools/notes:get_note/approve", stale).0, 409);
    assert_eq!(scene.call(&line, "call_tool_read", read).code(), Some("E_TOOL_CHANGED"));
    let looked_at = json!({"fingerprint": candidate["fingerprint"]});
    ada.data("POST", "/tools/notes:get_note/approve", looked_at);
    assert!(scene.call(&line, "call_tool_read", read).ran(), "it is what a person accepted");
    let after = pin(&ada);
    assert_eq!((&after["pin"], &after["fingerprint"]), (&json!("accepted"), &candidate["fingerprint"]));
    scene.finish(vec![line]);
}

#[test]
fn other_rules_are_tried_on_what_happened() {
    let mut scene = Scene::open(Way::HttpLegacy, CONFIG);
    let ada = person(&scene);
    let line = scene.line(Host::None);
    let read = r#"{"name":"notes:get_note","args":{"id":"secret"},"intent":{"operation_type":"read"}}"#;
    assert!(scene.call(&line, "call_tool_read", read).ran());
    let same = "[[rules]]\nmatch = \"notes:erase_all\"\nstrength = \"human\"\n";
    let tried = |rules: &str| ada.data("POST", "/policy/simulate", json!({"rules": rules, "since": "1h"}));
    // The row of a read comes a moment after its answer.
    let start = Instant::now();
    let same = loop {
        let same_rules = tried(same);
        if same_rules["replayed"] == 1 {
            break same_rules;
        }
        assert!(start.elapsed() < PATIENCE, "{same_rules}");
    };
    assert_eq!((&same["changes"], &same["unchanged"]), (&json!([]), &json!(1)), "{same}");
    let denied = tried(
        "[[rules]]\nmatch = \"notes:get_note\"\nwhen = \"args.id == 'secret'\"\ndeny = \"not these\"\n",
    );
    let change = &denied["changes"][0];
    assert_eq!(
        (&change["tool"], &change["before"]["verdict"], &change["after"]["code"]),
        (&json!("notes:get_note"), &json!("go"), &json!("E_RULE_DENIED")),
        "{denied}"
    );
    assert_eq!(denied["changes"].as_array().unwrap().len(), 1);
    assert!(scene.call(&line, "call_tool_read", read).ran(), "nothing was changed by trying");
    scene.finish(vec![line]);
}

#[test]
fn upstreams_and_runs_tell_how_they_stand() {
    let mut scene = Scene::open(Way::HttpLegacy, CONFIG);
    let ada = person(&scene);
    let line = scene.line(Host::None);
    let read = r#"{"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#;
    assert!(scene.call(&line, "call_tool_read", read).ran());
    let mut stream = events(&ada);
    // How everything stands is looked at once before anything can have changed since.
    std::thread::sleep(Duration::from_millis(1500));
    let run = begin(&mut scene, &line);
    let begun = heard(&mut stream, |event| event["kind"] == "run.running");
    assert_eq!((&begun["run_id"], &begun["state"]), (&json!(run), &json!("running")));
    ada.data("POST", &format!("/runs/{run}/stop"), json!({}));
    let ended = heard(&mut stream, |event| event["kind"] == "run.cancelled");
    assert_eq!(ended["run_id"], json!(run));
    // The upstream dies and comes back.
    let children = Command::new("ps")
        .args(["-o", "pid=,args=", "--ppid", &scene.gateway().process().to_string()])
        .output()
        .unwrap();
    let children = String::from_utf8(children.stdout).unwrap();
    let recorder = children.lines().find(|line| line.contains("recorder.py")).unwrap();
    let process = recorder.split_whitespace().next().unwrap();
    assert!(Command::new("kill").args(["-KILL", process]).status().unwrap().success());
    let changed = heard(&mut stream, |event| event["kind"] == "upstream.changed");
    assert_eq!(changed["name"], "notes", "{changed}");
    assert!(changed["state"].is_string() && changed["restarts"].is_u64(), "{changed}");
    scene.finish(vec![line]);
}

/// On shutdown the page's event stream ends, and a decision in progress is answered.
#[test]
fn a_desk_of_its_own_closes_with_the_gateway_and_finishes_its_answers() {
    let config = CONFIG.replace("notes:erase_all", "notes:slow_note");
    let config = config.replace("[upstreams.u]", "[desk]\nlisten = \"127.0.0.1:0\"\n\n[upstreams.u]");
    let mut scene = Scene::open(Way::HttpLegacy, &config);
    // The address for hosts is said last.
    scene.gateway().address();
    let told = scene.gateway().told().text();
    let desk = told.lines().find_map(|line| line.strip_prefix("desk at http://")).unwrap();
    let ada = Person {
        address: desk.split('/').next().unwrap().to_owned(),
        secret: scene.credential("ada", Role::Human, "{}"),
    };
    let line = scene.line(Host::None);
    let slow = r#"{"name":"notes:slow_note","args":{"id":"s"},"intent":{"operation_type":"write"}}"#;
    let asked = scene.call(&line, "call_tool_write", slow);
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    let mut stream = events(&ada);
    std::thread::scope(|scope| {
        let approving =
            scope.spawn(|| ada.ask("POST", &format!("/plans/{plan}/approve"), json!({"run": true})));
        heard(&mut stream, |event| event["kind"] == "plan.executing");
        let listening = scope.spawn(move || while stream.event().unwrap().is_some() {});
        let gateway = scene.take_gateway();
        let address = ada.address.clone();
        let ending = scope.spawn(move || gateway.end(End::Asked));
        listening.join().unwrap();
        assert!(!approving.is_finished(), "the call still runs");
        // Nobody new comes in.
        let start = Instant::now();
        while std::net::TcpStream::connect(&address).is_ok() {
            assert!(start.elapsed() < PATIENCE, "it still listens");
            std::thread::sleep(Duration::from_millis(20));
        }
        scene.state(r#"{"go":true}"#);
        let (status, answer) = approving.join().unwrap();
        assert_eq!((status, &answer["data"]["state"]), (200, &json!("done")), "{answer}");
        ending.join().unwrap();
    });
    assert_eq!(scene.reached().len(), 1);
    scene.finish(vec![]);
}
