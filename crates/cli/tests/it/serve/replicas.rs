//! Two gateways on one real PostgreSQL: plans, tokens, grants, modes, sessions and ledger are shared; a decision on
//! one releases a wait on the other; any race has exactly one effect, also when one gateway dies in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use countersign_policy::role::Role;
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use super::client::{Client, Host, Reply, Way};
use super::http;
use super::scene::Scene;
use crate::ledger::wait;

/// A schema of its own in the PostgreSQL that the environment names, gone at the end of the test.
pub(crate) struct Schema {
    server: String,
    name: String,
    /// Where the key is that seals the plans.
    key: tempfile::TempDir,
}

impl Schema {
    pub(crate) fn new() -> Option<Self> {
        let server = std::env::var("COUNTERSIGN_TEST_POSTGRES").ok()?;
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("r_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let schema = Self { server, name, key: tempfile::tempdir().unwrap() };
        schema.run(&format!("DROP SCHEMA IF EXISTS {0} CASCADE; CREATE SCHEMA {0}", schema.name));
        Some(schema)
    }

    pub(crate) fn url(&self) -> String {
        let join = if self.server.contains('?') { '&' } else { '?' };
        let key = self.key.path().join("seal").to_str().unwrap().replace('/', "%2F");
        format!("{}{join}options=-c%20search_path%3D{}&sealkey={key}", self.server, self.name)
    }

    fn run(&self, sql: &str) {
        wait(async {
            let (client, connection) = tokio_postgres::connect(&self.server, NoTls).await.unwrap();
            let driver = tokio::spawn(connection);
            client.batch_execute(sql).await.unwrap();
            drop(client);
            driver.await.unwrap().unwrap();
        });
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        self.run(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name));
    }
}

/// Two gateways before one recording upstream each, which write one record.
struct Pair {
    scene: Scene,
    addresses: [String; 2],
    // Dropped last: the gateways are gone then.
    _schema: Schema,
}

impl Pair {
    fn open(rules: &str) -> Option<Self> {
        let schema = Schema::new()?;
        let config = format!("[gateway]\nmode = \"execute\"\nstore = {:?}\n{rules}", schema.url());
        let mut scene = Scene::open_with(Way::HttpModern, "router", &config, &[]);
        scene.elsewhere = Some(schema.url().parse().unwrap());
        let addresses = [scene.gateway().address(), scene.replica("two")];
        Some(Self { scene, addresses, _schema: schema })
    }

    /// A line into one of them. Without sessions of the protocol the name is the session.
    fn line(&self, at: usize, host: Host, session: &str, bearer: Option<&str>) -> Client {
        let bearer = Some(bearer.map_or_else(|| self.scene.bearer(), str::to_owned));
        Client::http_as(Way::HttpModern, host, &self.addresses[at], "/mcp/router", session, bearer)
    }

    /// A person agrees at the desk of one of them; gives the status.
    fn agree(&self, at: usize, secret: &str, plan: &str, body: &str) -> u16 {
        agree(&self.addresses[at], secret, plan, body).unwrap()
    }
}

fn agree(address: &str, secret: &str, plan: &str, body: &str) -> std::io::Result<u16> {
    let headers = [
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Authorization".to_owned(), format!("Bearer {secret}")),
    ];
    let answer = http::send(address, "POST", &format!("/api/v1/plans/{plan}/approve"), &headers, body)?;
    Ok(answer.status)
}

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

fn bring(token: &str) -> String {
    format!(r#","confirm_token":"{token}","yes":true"#)
}

#[test]
fn a_decision_here_releases_a_wait_there() {
    let Some(pair) = Pair::open("") else { return };
    let (waits, decides) = (pair.line(1, Host::None, "s", None), pair.line(0, Host::Accepts, "s", None));
    let plan = text(&waits.call("call_tool_destructive", &erase("a", "")), "plan_id");
    let look = format!(r#"{{"plan_id":"{plan}","wait_seconds":60}}"#);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| (waits.call("get_plan", &look), Instant::now()));
        std::thread::sleep(Duration::from_millis(700));
        // The same call at the other gateway joins the plan, and its host's user agrees there.
        let ran = decides.call("call_tool_destructive", &erase("a", ""));
        let decided = Instant::now();
        assert!(ran.ran(), "{}", ran.text);
        let (reply, woken) = waiting.join().unwrap();
        assert_ne!(reply.data()["plan"]["state"], "pending");
        assert_eq!(reply.data()["plan"]["approval"]["rail"], "elicitation", "{}", reply.text);
        let late = woken.saturating_duration_since(decided);
        // Looking now and then would find it after five seconds.
        assert!(late < Duration::from_secs(4), "{late:?}");
    });
    // And the first call itself, which waits for a person with a credential at a terminal.
    let waiting = erase("b", r#","wait_seconds":60"#);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| waits.call("call_tool_destructive", &waiting));
        let start = Instant::now();
        let plan = loop {
            let status = decides.call("get_status", "{}");
            if let Some(plan) = status.data()["pending_plans"][0]["plan_id"].as_str() {
                break plan.to_owned();
            }
            assert!(start.elapsed() < Duration::from_secs(20), "never pending");
        };
        pair.scene.approve(&plan);
        let decided = Instant::now();
        assert!(call.join().unwrap().ran());
        assert!(decided.elapsed() < Duration::from_secs(4), "{:?}", decided.elapsed());
    });
    let mut scene = pair.scene;
    assert_eq!(scene.reached().len(), 2);
    scene.finish(vec![waits, decides]);
}

#[test]
fn modes_tokens_and_pending_plans_are_one() {
    let Some(mut pair) = Pair::open("") else { return };
    let (one, two) = (pair.line(0, Host::None, "s", None), pair.line(1, Host::None, "s", None));
    // Back and forth at once: no gateway goes by what it knew a moment ago.
    for round in 0..20 {
        let (sets, reads) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        for mode in ["plan", "ask", "execute"] {
            sets.call("set_mode", &format!(r#"{{"mode":"{mode}"}}"#));
            assert_eq!(reads.call("get_status", "{}").data()["mode"], mode, "round {round}");
        }
    }
    let token = text(&one.call("call_tool_write", &put("a", "")), "confirm_token");
    assert!(pair.scene.call(&two, "call_tool_write", &put("a", &bring(&token))).ran());
    let again = pair.scene.call(&one, "call_tool_write", &put("a", &bring(&token)));
    assert_eq!(again.code(), Some("E_CONFIRM_TOKEN_USED"));
    // Twenty may wait, wherever they were asked for; an equal one joins.
    let first = text(&one.call("call_tool_write", &put("0", "")), "plan_id");
    for n in 1..20 {
        let line = if n % 2 == 0 { &one } else { &two };
        assert_eq!(
            line.call("call_tool_write", &put(&n.to_string(), "")).data()["status"],
            "confirmation_required"
        );
    }
    let over = pair.scene.call(&two, "call_tool_write", &put("20", ""));
    assert_eq!(over.code(), Some("E_LIMIT_EXCEEDED"));
    assert_eq!(text(&two.call("call_tool_write", &put("0", "")), "plan_id"), first);
    // Three noes pause the principal everywhere.
    for n in ["1", "2", "3"] {
        let plan = text(&one.call("call_tool_write", &put(n, "")), "plan_id");
        pair.scene.reject(&plan);
    }
    for line in [&one, &two] {
        let paused = pair.scene.call(line, "call_tool_write", &put("x", ""));
        assert_eq!(paused.code(), Some("E_PRINCIPAL_PAUSED"));
    }
    pair.scene.finish(vec![one, two]);
}

/// A session of the older protocol goes on at the other gateway; a grant's uses are counted once for both.
#[test]
fn sessions_move_and_grants_are_counted_once() {
    let Some(mut pair) = Pair::open("") else { return };
    let line = Client::http_as(
        Way::HttpLegacy,
        Host::None,
        &pair.addresses[0],
        "/mcp/router",
        "",
        Some(pair.scene.bearer()),
    );
    line.call("set_mode", r#"{"mode":"plan"}"#);
    let (_, session) = (line.moved(&pair.addresses[1]), line.session());
    assert_eq!(line.call("get_status", "{}").data()["mode"], "plan", "session {session}");
    line.call("set_mode", r#"{"mode":"execute"}"#);
    let plan = text(&line.call("call_tool_write", &put("g", "")), "plan_id");
    let granted = pair.scene.world.run(&["approve", &plan, "--yes", "--grant", "--uses", "5", "--json"]);
    assert_eq!(granted.code, Some(0), "{granted}");
    let lines: Vec<Client> = (0..8).map(|n| pair.line(n % 2, Host::None, &format!("g{n}"), None)).collect();
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let calls: Vec<_> =
            lines.iter().map(|line| scope.spawn(|| line.call("call_tool_write", &put("g", "")))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let ran = replies.iter().filter(|reply| reply.ran()).count();
    assert_eq!(ran, 5, "{:?}", replies.iter().map(|reply| &reply.text).collect::<Vec<_>>());
    assert_eq!(pair.scene.reached().len(), 5);
    for reply in replies {
        pair.scene.heed(reply);
    }
    pair.scene.finish(vec![line]);
}

/// A question of the stateless era is answered at either gateway: the state the client carries says what was asked, about which
/// call. It decides that plan, once; with other arguments, or brought again, it decides nothing.
#[test]
fn a_question_asked_here_is_answered_there() {
    let Some(mut pair) = Pair::open("") else { return };
    let (asks, other) = (pair.line(0, Host::Silent, "s", None), pair.line(1, Host::Silent, "s", None));
    let accept = r#"{"q1":{"action":"accept","content":{}}}"#;
    let ask = |id: &str| {
        let asked = asks.call("call_tool_destructive", &erase(id, ""));
        assert_eq!(asked.result()["resultType"], "input_required", "{}", asked.text);
        asked.result()["requestState"].clone()
    };
    let state = ask("a");
    let wrong =
        pair.scene.heed(other.retry("call_tool_destructive", &erase("everything", ""), accept, &state));
    assert_eq!(wrong.code(), Some("E_ARGUMENTS_INVALID"), "{}", wrong.text);
    assert_eq!(wrong.frame["error"]["data"]["details"]["reason_code"], "request_state_invalid");
    assert_eq!(pair.scene.reached(), []);
    let right = other.retry("call_tool_destructive", &erase("a", ""), accept, &state);
    assert!(right.ran(), "{}", right.text);
    assert_eq!(pair.scene.reached().len(), 1);
    let approvals = |scene: &Scene| {
        let rows = scene.rows();
        let told = rows.iter().filter(|row| row["kind"] == "approval");
        told.map(|row| row["approval"]["rail"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(approvals(&pair.scene), ["elicitation"]);
    // The same answer again, there and here: the next plan is another question.
    let again = other.retry("call_tool_destructive", &erase("a", ""), accept, &state);
    assert_eq!(again.result()["resultType"], "input_required", "{}", again.text);
    let here = asks.retry("call_tool_destructive", &erase("a", ""), accept, &state);
    assert!(here.ran() || here.code().is_some(), "what it got or a no, for the one it asked: {}", here.text);
    assert_eq!(pair.scene.reached(), [], "nothing ran again");
    // A no counts there as well.
    let state = ask("b");
    let decline = r#"{"q1":{"action":"decline"}}"#;
    let no = other.retry("call_tool_destructive", &erase("b", ""), decline, &state);
    assert_eq!(no.code(), Some("E_APPROVAL_REJECTED"), "{}", no.text);
    assert_eq!(pair.scene.reached(), []);
    pair.scene.finish(vec![asks, other]);
}

/// How often each note reached the upstream.
fn effects(scene: &mut Scene) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    for (_, arguments) in scene.reached() {
        *seen.entry(arguments["id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    seen
}

/// Both replicas' people agree to every plan at the same moment, then both replicas get its token at the same moment.
#[test]
fn approvals_raced_from_both_replicas_run_each_plan_once() {
    let plans = match std::env::var_os("COUNTERSIGN_TEST_LONG") {
        Some(_) => 10_000,
        None if std::env::var_os("COUNTERSIGN_TEST_QUICK").is_some() => return,
        None => 200,
    };
    let rules = "[[rules]]\nmatch = \"notes:put_note\"\nstrength = \"human\"\n";
    let Some(mut pair) = Pair::open(rules) else { return };
    const AGENTS: usize = 8;
    let secrets: Vec<String> =
        (0..AGENTS).map(|n| pair.scene.credential(&format!("agent{n}"), Role::Agent, "{}")).collect();
    let ada = pair.scene.credential("ada", Role::Human, "{}");
    let (approved, ran) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (agent, secret) in secrets.iter().enumerate() {
            let (pair, ada, approved, ran) = (&pair, &ada, &approved, &ran);
            scope.spawn(move || {
                let lines = [0, 1].map(|at| pair.line(at, Host::None, "s", Some(secret)));
                for n in (agent..plans).step_by(AGENTS) {
                    let (id, here) = (format!("n{n}"), &lines[n / AGENTS % 2]);
                    let asked = here.call("call_tool_write", &put(&id, ""));
                    let (plan, token) = (text(&asked, "plan_id"), text(&asked, "confirm_token"));
                    let statuses = race(|at| pair.agree(at, ada, &plan, "{}"));
                    let won = statuses.iter().filter(|status| **status == 200).count();
                    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
                    approved.fetch_add(won, Ordering::Relaxed);
                    let replies = race(|at| lines[at].call("call_tool_write", &put(&id, &bring(&token))));
                    let went = replies.iter().filter(|reply| reply.ran()).count();
                    let used =
                        replies.iter().filter(|reply| reply.code() == Some("E_CONFIRM_TOKEN_USED")).count();
                    assert_eq!((went, used), (1, 1), "{:?}", replies.map(|reply| reply.text));
                    ran.fetch_add(went, Ordering::Relaxed);
                }
            });
        }
    });
    let took = start.elapsed();
    assert_eq!((approved.into_inner(), ran.into_inner()), (plans, plans));
    let effects = effects(&mut pair.scene);
    assert_eq!(effects.len(), plans);
    assert!(effects.values().all(|times| *times == 1), "some ran twice: {effects:?}");
    println!("{plans} plans, each approved from both replicas and brought to both, in {took:.1?}");
    pair.scene.finish(Vec::new());
}

/// The same thing at both sides at once.
fn race<T: Send>(act: impl Fn(usize) -> T + Sync) -> [T; 2] {
    let gate = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let (gate, act) = (&gate, &act);
        let run = |at: usize| {
            scope.spawn(move || {
                gate.wait();
                act(at)
            })
        };
        let (one, two) = (run(0), run(1));
        [one.join().unwrap(), two.join().unwrap()]
    })
}

/// One replica dies with plans decided, undecided and under way: the other goes on with all of them, and none runs twice.
#[test]
fn a_replica_that_dies_loses_and_doubles_nothing() {
    let Some(mut pair) = Pair::open("") else { return };
    let lines = [0, 1].map(|at| pair.line(at, Host::None, "s", None));
    let asked: Vec<(String, String)> = (0..12)
        .map(|n| {
            let asked = lines[n % 2].call("call_tool_write", &put(&format!("n{n}"), ""));
            (text(&asked, "plan_id"), text(&asked, "confirm_token"))
        })
        .collect();
    let slow = r#"{"name":"notes:slow_note","args":{"id":"slow"},"intent":{"operation_type":"write"}"#;
    let waits = lines[0].call("call_tool_write", &format!("{slow}}}"));
    let (slow_plan, slow_token) = (text(&waits, "plan_id"), text(&waits, "confirm_token"));
    lines[0].start_call("call_tool_write", &format!("{slow}{}}}", bring(&slow_token)));
    let look = |line: &Client, plan: &str| {
        line.call("get_plan", &json!({"plan_id": plan}).to_string()).data()["plan"]["state"].clone()
    };
    let start = Instant::now();
    while look(&lines[1], &slow_plan) != "executing" {
        assert!(start.elapsed() < Duration::from_secs(20), "never executing");
    }
    // Everybody brings every token to the first replica, and as soon as some have run it is killed.
    let mut seen = effects(&mut pair.scene);
    for (n, (_, token)) in asked.iter().enumerate() {
        lines[0].start_call("call_tool_write", &put(&format!("n{n}"), &bring(token)));
    }
    while seen.len() < 3 {
        seen.extend(effects(&mut pair.scene));
    }
    pair.scene.kill_first();
    pair.scene.state(r#"{"go":true}"#);
    // The other gateway reports the unknown outcome without being asked.
    let start = Instant::now();
    while look(&lines[1], &slow_plan) != "outcome_unknown" {
        assert!(start.elapsed() < Duration::from_secs(30), "{}", look(&lines[1], &slow_plan));
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for (n, (plan, token)) in asked.iter().enumerate() {
        let state = look(&lines[1], plan);
        let reply = pair.scene.call(&lines[1], "call_tool_write", &put(&format!("n{n}"), &bring(token)));
        match state.as_str().unwrap() {
            "pending" => assert!(reply.ran(), "what was not begun can be done: {}", reply.text),
            "done" | "outcome_unknown" | "executing" => {
                assert_eq!(reply.code(), Some("E_CONFIRM_TOKEN_USED"), "{state}")
            }
            other => panic!("{other}"),
        }
        *ends.entry(look(&lines[1], plan).as_str().unwrap().to_owned()).or_default() += 1;
    }
    for (note, times) in effects(&mut pair.scene) {
        *seen.entry(note).or_default() += times;
    }
    let effects = seen;
    assert!(effects.values().all(|times| *times == 1), "some ran twice: {effects:?}");
    let certain = ends.get("done").copied().unwrap_or_default();
    assert!(
        certain <= effects.len() && ends.keys().all(|state| state == "done" || state == "outcome_unknown"),
        "{ends:?}"
    );
    println!("after the death of a replica: {ends:?}, {} effects", effects.len());
    let rows = pair.scene.rows();
    let writers: std::collections::BTreeSet<&str> =
        rows.iter().filter_map(|row: &Value| row["writer"].as_str()).collect();
    assert_eq!(writers.into_iter().collect::<Vec<_>>(), ["main", "two"], "one chain for each writer");
    pair.scene.finish(Vec::new());
}

/// One replica is killed while people approve and run plans there: each plan is approved once and run at most once, and what
/// was not decided is decided at the other.
#[test]
fn a_replica_that_dies_while_approving_loses_and_doubles_nothing() {
    let rules = "[[rules]]\nmatch = \"notes:put_note\"\nstrength = \"human\"\n";
    let Some(mut pair) = Pair::open(rules) else { return };
    let ada = pair.scene.credential("ada", Role::Human, "{}");
    let lines = [0, 1].map(|at| pair.line(at, Host::None, "s", None));
    let asked: Vec<(String, String)> = (0..16)
        .map(|n| {
            let asked = lines[n % 2].call("call_tool_write", &put(&format!("n{n}"), ""));
            (text(&asked, "plan_id"), text(&asked, "confirm_token"))
        })
        .collect();
    let mut seen = BTreeMap::new();
    for (plan, _) in &asked {
        let (address, ada, plan) = (pair.addresses[0].clone(), ada.clone(), plan.clone());
        // A caller of a gateway that dies gets no answer.
        std::thread::spawn(move || agree(&address, &ada, &plan, r#"{"run":true}"#));
    }
    let start = Instant::now();
    while seen.len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing ran");
        seen.extend(effects(&mut pair.scene));
    }
    pair.scene.kill_first();
    let state = |plan: &str| {
        let reply = lines[1].call("get_plan", &json!({"plan_id": plan}).to_string());
        reply.data()["plan"]["state"].as_str().unwrap().to_owned()
    };
    let start = Instant::now();
    while asked.iter().any(|(plan, _)| state(plan) == "executing") {
        assert!(start.elapsed() < Duration::from_secs(40), "nobody closed what the dead one had begun");
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for (n, (plan, token)) in asked.iter().enumerate() {
        let before = state(plan);
        *found.entry(before.clone()).or_default() += 1;
        let expect = if before == "pending" { 200 } else { 409 };
        assert_eq!(pair.agree(1, &ada, plan, "{}"), expect, "{before}");
        let reply = pair.scene.call(&lines[1], "call_tool_write", &put(&format!("n{n}"), &bring(token)));
        match before.as_str() {
            "pending" | "approved" => assert!(reply.ran(), "{before}: {}", reply.text),
            _ => assert_eq!(reply.code(), Some("E_CONFIRM_TOKEN_USED"), "{before}"),
        }
    }
    for (note, times) in effects(&mut pair.scene) {
        *seen.entry(note).or_default() += times;
    }
    assert!(seen.values().all(|times| *times == 1), "some ran twice: {seen:?}");
    let rows = pair.scene.rows();
    for (plan, _) in &asked {
        let is_approval = |row: &&Value| {
            row["kind"] == "approval" && row["plan_id"] == plan.as_str() && row["status"] == "success"
        };
        assert_eq!(rows.iter().filter(is_approval).count(), 1, "each is approved once: {plan}");
    }
    println!("after the death of the approving replica: {found:?}, {} effects", seen.len());
    pair.scene.finish(Vec::new());
}
