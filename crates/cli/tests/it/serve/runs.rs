//! Commands that take a while, as hosts see them: progress while one is waited for, runs that go on, runs as tasks in both eras, and
//! two hundred of them when the gateway is killed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::gateway::{End, Gateway};
use super::http::PATIENCE;
use super::scene::agent_credential;
use crate::world::World;

const CONFIG: &str = r#"
[upstreams.u]
[[upstreams.u.tools]]
name = "count"
effect = "read"
run = ["sh", "-c", "for i in 1 2 3 4; do echo step $i; sleep 0.4; done"]

[[upstreams.u.tools]]
name = "linger"
effect = "read"
run = ["sh", "-c", "echo $$ > lingering; sleep 300"]

[[upstreams.u.tools]]
name = "build"
effect = "read"
background = true
input = { file = { type = "string" } }
run = ["sh", "-c", "echo building; while ! test -e $1; do sleep 0.02; done; echo built", "sh", "{file}"]

[[upstreams.u.tools]]
name = "break"
effect = "read"
background = true
run = ["sh", "-c", "echo breaking; exit 3"]

[[upstreams.u.tools]]
name = "deploy"
effect = "write"
confirm = "simple"
strength = "caller"
background = true
run = ["sh", "-c", "echo deployed"]

[[upstreams.u.tools]]
name = "wait"
effect = "read"
background = true
input = { id = { type = "string" } }
run = ["sh", "-c", "sleep 300 & echo $1 $! $$ >> pids; wait", "sh", "{id}"]

[[upstreams.u.tools]]
name = "slow"
effect = "read"
background = true
timeout = "300ms"
input = { id = { type = "string" } }
run = ["sh", "-c", "sleep 300 & echo $1 $! $$ >> pids; wait", "sh", "{id}"]
"#;

fn open(world: &World, way: Way) -> (Gateway, Client) {
    if way.is_http() {
        let gateway = Gateway::start(world, &["--http", "127.0.0.1:0"]);
        let client = Client::http_as(
            way,
            Host::None,
            &gateway.address(),
            "/mcp/router",
            "s",
            Some(agent_credential(world)),
        );
        return (gateway, client);
    }
    let mut gateway = Gateway::start(world, &["--session", "s"]);
    let (stdin, stdout) = gateway.pipes.take().unwrap();
    (gateway, Client::stdio(way, Host::None, stdin, stdout))
}

fn world() -> World {
    let world = World::new();
    world.write("countersign.toml", CONFIG);
    world
}

/// A call of a tool with this effect, as text.
fn asked(effect: &str, tool: &str, args: &Value) -> Value {
    json!({"name": format!("u:{tool}"), "args": args, "intent": {"operation_type": effect}, "mode": "execute"})
}

fn begin(client: &Client, tool: &str, args: &Value) -> String {
    let reply = client.call("call_tool_read", &asked("read", tool, args).to_string());
    reply.data()["run_id"].as_str().unwrap_or_else(|| panic!("{}", reply.text)).to_owned()
}

fn run(client: &Client, id: &str, more: &Value) -> Value {
    let mut given = json!({"run_id": id});
    given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let reply = client.call("get_run", &given.to_string());
    let data = reply.data();
    let run = data["run"].clone();
    // The run's fields stand in the answer itself as well.
    for (name, value) in run.as_object().unwrap() {
        assert_eq!(&data[name], value, "{data:#}");
    }
    run
}

/// The progress that came for a token, in order.
fn progress(client: &Client, token: &str) -> Vec<(f64, String)> {
    let notes = client.notes().into_iter().filter(|note| note["method"] == "notifications/progress");
    let own = notes.map(|note| note["params"].clone()).filter(|params| params["progressToken"] == token);
    own.map(|params| (params["progress"].as_f64().unwrap(), params["message"].as_str().unwrap().to_owned()))
        .collect()
}

#[test]
fn whoever_waits_hears_how_it_goes() {
    let world = world();
    let (gateway, client) = open(&world, Way::StdioLegacy);
    let call = |tool: &str, arguments: &Value, token: &str| {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": token}});
        client.request("tools/call", Some(tool), &params.to_string())
    };
    let done = call("call_tool_read", &asked("read", "count", &json!({})), "p1");
    assert_eq!(done.result()["isError"], false, "{}", done.text);
    let told = progress(&client, "p1");
    assert!(told.len() >= 2 && told.windows(2).all(|pair| pair[0].0 < pair[1].0), "{told:?}");
    assert!(told.iter().any(|(_, message)| message.starts_with("step ")), "{told:?}");
    // Without a progress token no progress is sent.
    let before = client.notes().len();
    client.call("call_tool_read", &asked("read", "count", &json!({})).to_string());
    assert_eq!(client.notes().len(), before);
    // A run is waited for by who wants to know.
    let id = begin(&client, "build", &json!({"file": "go"}));
    let waited = call("get_run", &json!({"run_id": id, "wait_seconds": 2.5}), "p2");
    assert_eq!(waited.data()["run"]["state"], "running");
    let told = progress(&client, "p2");
    assert!(told.iter().any(|(_, message)| message == "building"), "{told:?}");
    world.write("go", "");
    assert_eq!(run(&client, &id, &json!({"wait_seconds": 60}))["state"], "success");
    drop(client);
    gateway.end(End::Closed);
}

/// 2025-11-25: a call that asks for a task gets one, whatever it was; a run is followed, cancelled and fetched as one.
#[test]
fn runs_are_tasks_where_a_call_asks_for_one() {
    for way in [Way::StdioLegacy, Way::HttpLegacy] {
        let world = world();
        let (gateway, client) = open(&world, way);
        let tools = client.tools();
        let call_read = tools.iter().find(|tool| tool["name"] == "call_tool_read").unwrap();
        assert_eq!(call_read["execution"]["taskSupport"], "optional");
        let create = |tool: &str, arguments: Value| {
            let params = json!({"name": tool, "arguments": arguments, "task": {"ttl": 60000}});
            let reply = client.request("tools/call", Some(tool), &params.to_string());
            reply.result()["task"].clone()
        };
        let about =
            |method: &str, id: &Value| client.request(method, None, &json!({"taskId": id}).to_string());
        let task = create("call_tool_read", asked("read", "build", &json!({"file": "go"})));
        let id = &task["taskId"];
        assert_eq!(task["status"], "working", "{task}");
        assert!(task["createdAt"].is_string() && task["pollInterval"].is_u64(), "{task}");
        assert_eq!(about("tasks/get", id).result()["status"], "working");
        let listed = client.request("tasks/list", None, "{}");
        assert_eq!(&listed.result()["tasks"][0]["taskId"], id);
        world.write("go", "");
        let result = about("tasks/result", id);
        assert_eq!(result.data()["run"]["state"], "success", "{}", result.text);
        assert_eq!(&result.result()["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], id);
        assert_eq!(about("tasks/get", id).result()["status"], "completed");
        assert_eq!(about("tasks/cancel", id).frame["error"]["code"], -32602);
        // One that goes wrong, and one that is cancelled.
        let broken = create("call_tool_read", asked("read", "break", &json!({})));
        let result = about("tasks/result", &broken["taskId"]);
        assert_eq!(
            (&result.result()["isError"], &result.data()["run"]["exit_code"]),
            (&json!(true), &json!(3))
        );
        assert_eq!(about("tasks/get", &broken["taskId"]).result()["status"], "failed");
        let endless = create("call_tool_read", asked("read", "wait", &json!({"id": "x"})));
        let cancelled = about("tasks/cancel", &endless["taskId"]);
        assert_eq!(cancelled.result()["status"], "cancelled", "{}", cancelled.text);
        // What asks for confirmation begins nothing: its task is done, and its result is the question.
        let held = create("call_tool_write", asked("write", "deploy", &json!({})));
        assert_eq!(held["status"], "completed", "{held}");
        let question = about("tasks/result", &held["taskId"]);
        assert_eq!(question.data()["status"], "confirmation_required", "{}", question.text);
        assert_eq!(about("tasks/get", &json!("run_nobodys")).frame["error"]["code"], -32602);
        drop(client);
        gateway.end(if way.is_http() { End::Asked } else { End::Closed });
    }
}

/// 2025-11-25: a call that takes its time answers at once with its task, tells when it is over, and can be called off.
#[test]
fn a_call_that_takes_its_time_is_a_task_at_once() {
    let world = world();
    let (gateway, client) = open(&world, Way::StdioLegacy);
    let create = |arguments: Value| {
        let params = json!({"name": "call_tool_read", "arguments": arguments, "task": {}});
        let start = Instant::now();
        let reply = client.request("tools/call", Some("call_tool_read"), &params.to_string());
        assert!(start.elapsed() < Duration::from_millis(1_400), "{:?}", start.elapsed());
        let task = reply.result()["task"].clone();
        assert_eq!(task["status"], "working", "{}", reply.text);
        task["taskId"].as_str().unwrap().to_owned()
    };
    let about = |method: &str, id: &str| client.request(method, None, &json!({"taskId": id}).to_string());
    let told = |id: &str| -> Vec<Value> {
        let notes = client.notes().into_iter();
        let own = notes.filter(|note| note["method"] == "notifications/tasks/status");
        own.map(|note| note["params"].clone()).filter(|task| task["taskId"] == id).collect()
    };
    // The command writes for 1.6 seconds.
    let id = create(asked("read", "count", &json!({})));
    assert_eq!(about("tasks/get", &id).result()["status"], "working");
    let listed = client.request("tasks/list", None, "{}");
    assert_eq!(listed.result()["tasks"][0]["taskId"], id, "{}", listed.text);
    assert_eq!(told(&id), Vec::<Value>::new());
    let result = about("tasks/result", &id);
    assert!(result.text.contains("step 4"), "{}", result.text);
    assert_eq!(result.result()["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], id);
    assert_eq!(about("tasks/get", &id).result()["status"], "completed");
    let start = Instant::now();
    while told(&id).is_empty() && start.elapsed() < PATIENCE {
        client.call("get_status", "{}");
    }
    assert_eq!(told(&id)[0]["status"], "completed");
    // Called off: it ends as that, and nothing of it is left.
    let id = create(asked("read", "linger", &json!({})));
    let cancelled = about("tasks/cancel", &id);
    assert_eq!(cancelled.result()["status"], "cancelled", "{}", cancelled.text);
    assert_eq!(about("tasks/get", &id).result()["status"], "cancelled");
    assert_eq!(about("tasks/cancel", &id).frame["error"]["code"], -32602);
    assert!(about("tasks/result", &id).frame["error"].is_object());
    let pid = world.read("lingering").trim().to_owned();
    let start = Instant::now();
    while is_alive(&pid) && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!is_alive(&pid));
    // A run tells when it is over as well; and what was refused has failed.
    let begun = begin_task(&client, "break");
    let start = Instant::now();
    while told(&begun).is_empty() && start.elapsed() < PATIENCE {
        client.call("get_status", "{}");
    }
    assert_eq!(told(&begun)[0]["status"], "failed");
    let params =
        json!({"name": "call_tool_read", "arguments": asked("read", "nowhere", &json!({})), "task": {}});
    let refused = client.request("tools/call", Some("call_tool_read"), &params.to_string());
    assert_eq!(refused.result()["task"]["status"], "failed", "{}", refused.text);
    drop(client);
    gateway.end(End::Closed);
}

fn begin_task(client: &Client, tool: &str) -> String {
    let params = json!({"name": "call_tool_read", "arguments": asked("read", tool, &json!({})), "task": {}});
    let reply = client.request("tools/call", Some("call_tool_read"), &params.to_string());
    reply.result()["task"]["taskId"].as_str().unwrap().to_owned()
}

/// The stateless era: a client that declares the extension gets its run as a task, anyone else the run's id.
#[test]
fn runs_are_tasks_for_clients_that_know_the_extension() {
    for way in [Way::StdioModern, Way::HttpModern] {
        let world = world();
        let (gateway, client) = open(&world, way);
        let meta = |capabilities: Value| {
            json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": capabilities,
                "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
                "countersign/session": "s",
            })
        };
        let knows = meta(json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
        let call = |arguments: Value, meta: &Value| -> Reply {
            let params = json!({"name": "call_tool_read", "arguments": arguments, "_meta": meta});
            client.request("tools/call", Some("call_tool_read"), &params.to_string())
        };
        let about = |method: &str, id: &Value| {
            let params = json!({"taskId": id, "_meta": knows});
            client.request(method, id.as_str(), &params.to_string())
        };
        let discovered = client.request("server/discover", None, &json!({"_meta": knows}).to_string());
        let offered = &discovered.result()["capabilities"]["extensions"];
        assert!(offered["io.modelcontextprotocol/tasks"].is_object(), "{}", discovered.text);
        let plain = call(asked("read", "break", &json!({})), &meta(json!({})));
        assert!(plain.data()["run_id"].is_string(), "{}", plain.text);
        let created = call(asked("read", "build", &json!({"file": "go"})), &knows);
        let task = created.result();
        assert_eq!(
            (&task["resultType"], &task["status"]),
            (&json!("task"), &json!("working")),
            "{}",
            created.text
        );
        assert!(task.get("ttlMs").is_some() && task["pollIntervalMs"].is_u64(), "{task}");
        let id = &task["taskId"];
        world.write("go", "");
        let start = Instant::now();
        let done = loop {
            let told = about("tasks/get", id);
            if told.result()["status"] != "working" || start.elapsed() > PATIENCE {
                break told;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        assert_eq!(done.result()["status"], "completed", "{}", done.text);
        assert_eq!(
            done.result()["result"]["structuredContent"]["data"]["run"]["state"],
            "success",
            "{}",
            done.text
        );
        let endless = call(asked("read", "wait", &json!({"id": "x"})), &knows).result()["taskId"].clone();
        let cancelled = about("tasks/cancel", &endless);
        assert!(cancelled.frame.get("error").is_none(), "{}", cancelled.text);
        assert_eq!(about("tasks/get", &endless).result()["status"], "cancelled");
        drop(client);
        gateway.end(if way.is_http() { End::Asked } else { End::Closed });
    }
}

fn is_alive(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // One that waits to be fetched does nothing any more.
    !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

/// Two hundred at once: some time out, some are cancelled, and the gateway is killed over the rest. What each of them was is what
/// the records say afterwards, and nothing is left running.
#[test]
fn two_hundred_runs_killed_with_the_gateway() {
    let world = world();
    let (gateway, client) = open(&world, Way::StdioLegacy);
    let late: Vec<String> =
        (0..10).map(|number| begin(&client, "slow", &json!({"id": format!("late{number}")}))).collect();
    for id in &late {
        assert_eq!(run(&client, id, &json!({"wait_seconds": 60}))["state"], "failed");
    }
    let begun: Vec<(String, String)> = (0..190)
        .map(|number| (format!("n{number}"), begin(&client, "wait", &json!({"id": format!("n{number}")}))))
        .collect();
    let cancelled: Vec<&String> = begun.iter().step_by(10).map(|(_, id)| id).collect();
    for id in &cancelled {
        let reply = client.request("tasks/cancel", None, &json!({"taskId": id}).to_string());
        assert_eq!(reply.result()["status"], "cancelled", "{}", reply.text);
    }
    // Everyone who has a place has begun.
    let start = Instant::now();
    let places = || begun.iter().filter(|(_, id)| run(&client, id, &json!({}))["state"] == "running").count();
    while places() < 32 || world.read("pids").lines().count() < late.len() + 32 {
        assert!(start.elapsed() < PATIENCE, "{} run", places());
    }
    gateway.signal(End::Killed);
    drop(client);
    gateway.end(End::Killed);
    let pids = world.read("pids");
    let start = Instant::now();
    let left = || pids.lines().flat_map(|line| line.split(' ').skip(1)).filter(|pid| is_alive(pid)).count();
    while left() > 0 {
        assert!(start.elapsed() < PATIENCE, "{} processes are left", left());
        std::thread::sleep(Duration::from_millis(50));
    }
    let (gateway, client) = open(&world, Way::StdioLegacy);
    let started: Vec<&str> = pids.lines().map(|line| line.split(' ').next().unwrap()).collect();
    for id in &late {
        assert_eq!(run(&client, id, &json!({}))["state"], "failed");
    }
    let mut unknown = 0;
    for (name, id) in &begun {
        let run = run(&client, id, &json!({}));
        let expected = match (cancelled.contains(&id), started.contains(&name.as_str())) {
            (true, _) => "cancelled",
            (false, true) => "outcome_unknown",
            (false, false) => "cancelled",
        };
        assert_eq!(run["state"], expected, "{name}: {run}");
        unknown += usize::from(expected == "outcome_unknown");
    }
    assert!((32..=40).contains(&unknown), "{unknown} of unknown outcome");
    drop(client);
    gateway.end(End::Closed);
    let proven = world.run(&["activity", "verify"]);
    assert_eq!(proven.code, Some(0), "{proven}");
}
