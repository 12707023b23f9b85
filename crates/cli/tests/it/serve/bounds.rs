//! Denial of service against the real binary, mostly without a credential: memory, connections, sessions, waits and notices
//! stay within their bounds. Memory is what the kernel says of the process; nothing is judged by time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use countersign_policy::role::Role;
use serde_json::{Value, json};

use super::client::{Host, Way};
use super::http::{self, PATIENCE};
use super::scene::Scene;

const OPEN: &str = "[gateway]\nmode = \"execute\"\nagent_auth = \"loopback-open\"\n";
const MIB: u64 = 1 << 20;

/// A figure of the gateway's process from `/proc`, in bytes: `VmHWM` is the most it ever had, `VmRSS` what it has.
fn memory(scene: &Scene, name: &str) -> u64 {
    let path = format!("/proc/{}/status", scene.gateway().process());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kib: u64 = line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").trim().parse().unwrap();
    kib << 10
}

/// How large the store is on disk, with what is not merged yet.
fn store_size(scene: &Scene) -> u64 {
    ["countersign.db", "countersign.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(scene.world.work().join(name)).ok())
        .map(|file| file.len())
        .sum()
}

fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#;

fn initialize(address: &str, bearer: Option<&str>) -> http::Answer {
    let mut all =
        headers(&[("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]);
    all.extend(bearer.map(|secret| ("Authorization".to_owned(), format!("Bearer {secret}"))));
    http::send(address, "POST", "/mcp", &all, INITIALIZE).unwrap()
}

#[test]
fn attack_06_sign_in_attempts_take_no_memory_beyond_one_hash() {
    let scene = Scene::open(Way::HttpLegacy, OPEN);
    let address = scene.gateway().address();
    let before = memory(&scene, "VmHWM");
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..30)
            .map(|thread| {
                let address = &address;
                scope.spawn(move || {
                    let origin = format!("http://{address}");
                    let all = headers(&[
                        ("Content-Type", "application/json"),
                        ("Origin", &origin),
                        ("Sec-Fetch-Site", "same-origin"),
                    ]);
                    (0..20)
                        .map(|number| {
                            let body =
                                json!({"name": format!("n-{thread}-{number}"), "passphrase": "guessed it"});
                            let path = "/api/v1/session";
                            let answer = http::send(address, "POST", path, &all, &body.to_string()).unwrap();
                            assert!(answer.status != 429 || answer.header("retry-after").is_some());
                            answer.status
                        })
                        .collect::<Vec<u16>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(statuses.len(), 600);
    let tried = statuses.iter().filter(|status| **status == 401).count();
    assert!((1..=60).contains(&tried), "{tried} attempts were hashed");
    assert!(statuses.iter().all(|status| [401, 429].contains(status)));
    let grown = memory(&scene, "VmHWM") - before;
    // One hash takes 19 MiB; 600 at once took 10.5 GiB.
    assert!(grown < 200 * MIB, "{} MiB", grown / MIB);
    let rows = scene.rows();
    assert!(rows.len() < 100, "{} rows", rows.len());
    scene.finish(Vec::new());
}

#[test]
fn attack_06_anonymous_sessions_lock_nobody_out() {
    let scene = Scene::open(Way::HttpLegacy, OPEN);
    let address = scene.gateway().address();
    let secret = scene.credential("bot", Role::Agent, "{}");
    let first = initialize(&address, Some(&secret));
    let session = first.header("mcp-session-id").unwrap().to_owned();
    for _ in 0..40 {
        initialize(&address, None);
    }
    let (before, store) = (memory(&scene, "VmRSS"), store_size(&scene));
    let sessions = if std::env::var_os("COUNTERSIGN_TEST_LONG").is_some() { 10_000 } else { 2_000 };
    for _ in 0..sessions {
        assert_eq!(initialize(&address, None).status, 200);
    }
    assert_eq!(initialize(&address, Some(&secret)).status, 200, "a credential opens a session");
    let all = headers(&[
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("Authorization", &format!("Bearer {secret}")),
        ("Mcp-Session-Id", &session),
    ]);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(http::send(&address, "POST", "/mcp", &all, ping).unwrap().status, 200, "and keeps it");
    let grown = memory(&scene, "VmRSS").saturating_sub(before);
    assert!(grown < 100 * MIB, "{} MiB", grown / MIB);
    let kept = store_size(&scene).saturating_sub(store);
    assert!(kept < 8 * MIB, "{kept} bytes of store for sessions that are gone");
    scene.finish(Vec::new());
}

#[test]
fn attack_06_half_sent_heads_starve_neither_hosts_nor_people() {
    let config = format!(
        "{OPEN}[limits]\nheader_timeout = \"300ms\"\nidle_timeout = \"300ms\"\nconnections = 16\n[desk]\nlisten = \"127.0.0.1:0\"\n"
    );
    let scene = Scene::open(Way::HttpLegacy, &config);
    let hosts = scene.gateway().address();
    let desk = scene.gateway().told().wait_for(0, |line| line.starts_with("desk at http://"));
    let desk = desk.trim_start_matches("desk at http://").split('/').next().unwrap().to_owned();
    assert_ne!(hosts, desk);
    for (address, path) in [(&hosts, "/healthz"), (&desk, "/sign-in")] {
        let half: Vec<TcpStream> = (0..64)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half");
                stream
            })
            .collect();
        for _ in 0..4 {
            assert_eq!(http::send(address, "GET", path, &[], "").unwrap().status, 200, "{path}");
        }
        for mut stream in half {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut rest = Vec::new();
            let ended = stream.read_to_end(&mut rest);
            let is_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
            assert!(ended.is_ok() || ended.as_ref().is_err_and(is_reset), "it stays open: {ended:?}");
        }
    }
    scene.finish(Vec::new());
}

/// Arguments of many small values, which take many times their text once they are read.
fn many_values(bytes: u64) -> String {
    format!(r#"{{"id":"a","many":[{}0]}}"#, "0,".repeat(usize::try_from(bytes / 2).unwrap()))
}

#[test]
fn attack_06_a_huge_call_is_refused_before_it_is_copied_and_leaves_a_small_row() {
    for way in [Way::HttpLegacy, Way::HttpModern, Way::StdioLegacy] {
        let mut scene = Scene::open(way, OPEN);
        let line = scene.line(Host::None);
        line.wait_for_upstreams();
        let (before, store) = (memory(&scene, "VmHWM"), store_size(&scene));
        let args = many_values(15 * MIB);
        let huge =
            format!(r#"{{"name":"notes:open_note","args":{args},"intent":{{"operation_type":"write"}}}}"#);
        for _ in 0..3 {
            let refused = scene.call(&line, "call_tool_write", &huge);
            assert_eq!(refused.code(), Some("E_ARGUMENTS_INVALID"), "{way:?}");
            assert!(refused.text.contains("arguments_too_large"), "{way:?}: {:.300}", refused.text);
        }
        let grown = memory(&scene, "VmHWM") - before;
        // One such call took 2 GiB.
        assert!(grown < 300 * MIB, "{way:?}: {} MiB", grown / MIB);
        let kept = store_size(&scene).saturating_sub(store);
        assert!(kept < MIB, "{way:?}: {kept} bytes of ledger");
        let row = scene.rows().into_iter().find(|row| row["code"] == "E_ARGUMENTS_INVALID").unwrap();
        assert_eq!((&row["upstream"], &row["tool"]), (&json!("notes"), &json!("open_note")), "{way:?}");
        assert!(row["arguments_digest"].is_string(), "{row}");
        assert_eq!(scene.reached(), []);
        scene.finish(vec![line]);
    }
}

#[test]
fn attack_06_the_limit_of_arguments_is_configured() {
    let config = format!(
        "{OPEN}[limits]\narguments = \"2KiB\"\n[[rules]]\nmatch = \"notes:*\"\nstrength = \"caller\"\n"
    );
    let mut scene = Scene::open(Way::HttpLegacy, &config);
    let line = scene.line(Host::None);
    let get = |text: &str| {
        format!(
            r#"{{"name":"notes:get_note","args":{{"id":"{text}"}},"intent":{{"operation_type":"read"}}}}"#
        )
    };
    assert!(scene.call(&line, "call_tool_read", &get(&"x".repeat(1_000))).ran());
    assert_eq!(
        scene.call(&line, "call_tool_read", &get(&"x".repeat(3_000))).code(),
        Some("E_ARGUMENTS_INVALID")
    );
    assert_eq!(scene.reached().len(), 1);
    scene.finish(vec![line]);
}

#[test]
fn attack_06_large_arguments_are_rows_by_size_and_digest() {
    let config = format!("{OPEN}[[rules]]\nmatch = \"notes:forbidden_note\"\ndeny = \"no\"\n");
    let mut scene = Scene::open(Way::HttpLegacy, &config);
    let line = scene.line(Host::None);
    let text = "x".repeat(900 << 10);
    let call = |tool: &str, kind: &str, text: &str| {
        format!(
            r#"{{"name":"notes:{tool}","args":{{"id":"{text}"}},"intent":{{"operation_type":"{kind}"}}}}"#
        )
    };
    line.wait_for_upstreams();
    let (before, store) = (memory(&scene, "VmHWM"), store_size(&scene));
    let denied = scene.call(&line, "call_tool_write", &call("forbidden_note", "write", &text));
    assert_eq!(denied.code(), Some("E_RULE_DENIED"));
    let read = scene.call(&line, "call_tool_read", &call("get_note", "read", &text));
    assert!(read.ran(), "{:.300}", read.text);
    scene.store(async |store| store.flush().await.unwrap());
    let rows = scene.rows();
    for (tool, status) in [("forbidden_note", "refused"), ("get_note", "success")] {
        let is_wanted =
            |row: &&Value| row["kind"] == "call" && row["tool"] == tool && row["status"] == status;
        let row = rows.iter().find(is_wanted);
        let row = row.unwrap_or_else(|| panic!("no row of {tool}"));
        let omitted = &row["arguments"]["countersign_omitted"];
        assert!(omitted["size"].as_u64().unwrap() > 900 << 10, "{row}");
        assert_eq!(omitted["sha256"].as_str().unwrap().len(), 64);
        assert!(row["arguments_digest"].is_string());
    }
    let kept = store_size(&scene).saturating_sub(store);
    assert!(kept < MIB / 2, "{kept} bytes of ledger");
    let grown = memory(&scene, "VmHWM") - before;
    assert!(grown < 200 * MIB, "{} MiB", grown / MIB);
    assert_eq!(scene.reached().len(), 1, "what is sent is what was judged, whole");
    let verified = scene.world.run(&["activity", "verify", "--json"]);
    assert_eq!(verified.code, Some(0), "{verified}");
    scene.finish(vec![line]);
}

/// An upstream that says 200 MiB of log messages outside of any request, and as many list changes.
const FLOOD: &str = r#"import json, sys
def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
line = "x" * 2000
for request in map(json.loads, sys.stdin):
    method, id = request.get("method"), request.get("id")
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}, "logging": {}}, "serverInfo": {"name": "flood", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]}
    elif method == "tools/call":
        for number in range(100000):
            say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": line}})
            say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            say({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a://%d" % (number % 7)}})
        open("flooded", "w").close()
        result = {"content": []}
    else:
        continue
    if id is not None:
        say({"jsonrpc": "2.0", "id": id, "result": result})
        sys.stdout.flush()
"#;

#[test]
fn attack_06_a_flood_of_notifications_does_not_grow_memory() {
    let mut scene = Scene::open(
        Way::StdioLegacy,
        &format!("{OPEN}[upstreams.flood]\ncommand = \"python3\"\nargs = [\"flood.py\"]\n"),
    );
    scene.world.write("flood.py", FLOOD);
    let line = scene.line(Host::None);
    scene.call(&line, "get_status", "{}");
    // The scene's own client reads everything; this one asks and never reads again.
    let mut deaf = scene.world.countersign(&["serve", "--stdio", "--mode", "execute"]);
    deaf.stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null());
    let mut deaf = deaf.spawn().unwrap();
    let mut to = deaf.stdin.take().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{}/status", deaf.id())).unwrap();
    let figure = |name: &str| -> u64 {
        let status = status();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
    };
    for frame in [
        INITIALIZE.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"call_tool_read","arguments":{"name":"flood:look","intent":{"operation_type":"read"}}}}"#.to_owned(),
    ] {
        writeln!(to, "{frame}").unwrap();
    }
    let start = Instant::now();
    while !scene.world.work().join("flooded").exists() {
        assert!(start.elapsed() < 4 * PATIENCE, "the upstream is held up for good");
        std::thread::sleep(Duration::from_millis(50));
    }
    let most = figure("VmHWM");
    assert!(most < 250 * MIB, "{} MiB", most / MIB);
    drop(to);
    let _ = deaf.kill();
    let _ = deaf.wait();
    scene.finish(vec![line]);
}

const HUMAN: &str = "[[rules]]\nmatch = \"notes:erase_all\"\nstrength = \"human\"\n";

fn erase(id: usize, more: &str) -> String {
    format!(
        r#"{{"name":"notes:erase_all","args":{{"id":"{id}"}},"intent":{{"operation_type":"destructive"}}{more}}}"#
    )
}

#[test]
fn attack_06_waiting_calls_starve_no_other_agent_and_are_bounded() {
    let mut scene = Scene::open(Way::HttpModern, &format!("{OPEN}{HUMAN}"));
    let line = scene.line_as(Host::None, None);
    let asked = scene.call(&line, "call_tool_destructive", &erase(1, r#","wait_seconds":0"#));
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    let (address, path) = (scene.gateway().address(), scene.path());
    let wait = json!({"plan_id": plan, "wait_seconds": 60}).to_string();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..300)
            .map(|_| {
                let (address, wait) = (&address, &wait);
                scope.spawn(move || {
                    let client =
                        super::client::Client::http_as(Way::HttpModern, Host::None, address, path, "", None);
                    let start = Instant::now();
                    loop {
                        let reply = client.call("get_plan", wait);
                        // One principal has a share of all open requests: a client that meets that bound tries again.
                        if reply.status != Some(429) || start.elapsed() > PATIENCE {
                            return reply.data()["plan"]["state"].clone();
                        }
                        std::thread::sleep(Duration::from_millis(50));
                    }
                })
            })
            .collect();
        // All but 32 are answered at once, with the plan's current state.
        let start = Instant::now();
        while threads.iter().filter(|thread| thread.is_finished()).count() < 300 - 32 {
            assert!(start.elapsed() < PATIENCE, "more than 32 calls wait");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(threads.iter().any(|thread| !thread.is_finished()), "some do wait");
        for _ in 0..4 {
            let status = scene.call(&line, "get_status", "{}");
            assert_eq!(status.data()["principal"], "local-agent");
        }
        scene.reject(&plan);
        let states: Vec<Value> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let rejected = states.iter().filter(|state| **state == "rejected").count();
        assert!((1..=32).contains(&rejected), "{rejected} heard of the decision");
        assert_eq!(states.iter().filter(|state| **state == "pending").count(), 300 - rejected);
    });
    scene.finish(vec![line]);
}

#[test]
fn attack_13_asking_and_withdrawing_over_and_over_notifies_a_few_times() {
    let hook = "import sys\nsys.stdin.read()\nopen('told', 'a').write('x')\n";
    let config = format!(
        "{OPEN}[notify]\ncommand = [\"python3\", \"hook.py\"]\n[limits]\ndrafts = \"50/min\"\nnotices = \"5/min\"\n{HUMAN}"
    );
    let mut scene = Scene::open(Way::StdioLegacy, &config);
    scene.world.write("hook.py", hook);
    let line = scene.line(Host::None);
    let mut made = 0;
    for number in 0..120 {
        let asked = scene.call(&line, "call_tool_destructive", &erase(number, r#","wait_seconds":0"#));
        match asked.code() {
            None => {
                made += 1;
                let cancel = json!({"plan_id": asked.data()["plan_id"]}).to_string();
                scene.call(&line, "cancel_plan", &cancel);
            }
            Some(code) => {
                assert_eq!(code, "E_LIMIT_EXCEEDED");
                assert!(asked.text.contains("retry_after_ms"), "{}", asked.text);
            }
        }
    }
    assert_eq!(made, 50, "withdrawing makes no room");
    std::thread::sleep(Duration::from_secs(1));
    let told = std::fs::read_to_string(scene.world.work().join("told")).unwrap_or_default().len();
    assert!(told <= 5, "told {told} times");
    scene.finish(vec![line]);
}
