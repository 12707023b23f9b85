//! Every channel a plan can be decided over, through the real binary and one table of cases: page, REST, `approve` and `reject`,
//! `call`, card, form and URL elicitation. What no machine can do over a channel (show an old plan in a terminal) is left out
//! here; `approval` in the gateway's tests has those cases for each channel.

use std::time::{Duration, Instant};

use countersign_policy::role::Role;
use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::http::{self, PATIENCE};
use super::scene::{Scene, VOUCHES};
use crate::people::kit::typed;

const CONFIG: &str = r#"[gateway]
mode = "execute"

[[rules]]
match = "notes:erase_all"
strength = "host"

[[rules]]
match = "notes:wipe_notes"
confirm = "type"
type_field = "id"
strength = "human"
"#;

/// Over which a plan is decided that an agent asked for earlier.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Channel {
    Page,
    Rest,
    CommandLine,
    Card,
}

const CHANNELS: [Channel; 4] = [Channel::Page, Channel::Rest, Channel::CommandLine, Channel::Card];

/// The code and the reason of a refusal; none where the plan was decided.
type Refusal = Option<(String, String)>;

/// A person who signed in on the page and whose credential is on this machine.
struct Desk {
    address: String,
    secret: String,
    cookie: String,
    proof: String,
}

impl Desk {
    fn open(scene: &Scene) -> Self {
        let address = scene.gateway().address();
        let told = scene.world.run(&["open", "--json"]);
        let data = told.envelope()["data"].clone();
        let link = data["link"].as_str().unwrap_or_else(|| panic!("{told}"));
        let code = link.split_once("#code=").unwrap().1;
        let headers = [
            ("Origin".to_owned(), format!("http://{address}")),
            ("Sec-Fetch-Site".to_owned(), "same-origin".to_owned()),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ];
        let body = json!({"code": code}).to_string();
        let session = http::send(&address, "POST", "/api/v1/session", &headers, &body).unwrap();
        let cookie = session.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let session: Value = serde_json::from_str(&session.text().unwrap()).unwrap();
        let proof = session["data"]["csrf_token"].as_str().unwrap_or_else(|| panic!("{session}")).to_owned();
        let file = scene.world.home().join(".config/countersign/human.credential");
        let secret = std::fs::read_to_string(file).unwrap().trim().to_owned();
        Self { address, secret, cookie, proof }
    }

    fn post(&self, channel: Channel, path: &str, body: &Value) -> Refusal {
        let mut headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        if channel == Channel::Page {
            headers.push(("Origin".to_owned(), format!("http://{}", self.address)));
            headers.push(("Sec-Fetch-Site".to_owned(), "same-origin".to_owned()));
            headers.push(("Cookie".to_owned(), self.cookie.clone()));
            headers.push(("X-CSRF-Token".to_owned(), self.proof.clone()));
        } else {
            headers.push(("Authorization".to_owned(), format!("Bearer {}", self.secret)));
        }
        let answer =
            http::send(&self.address, "POST", &format!("/api/v1{path}"), &headers, &body.to_string());
        let answer: Value = serde_json::from_str(&answer.unwrap().text().unwrap()).unwrap();
        refusal(&answer["error"])
    }
}

fn refusal(error: &Value) -> Refusal {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    error["code"].is_string().then(|| (text(&error["code"]), text(&error["details"]["reason_code"])))
}

/// A plan an agent asked for, as it was shown.
struct Shown {
    id: String,
    hash: String,
    card: Value,
}

fn arguments(tool: &str, id: &str, more: &str) -> String {
    format!(
        r#"{{"name":"notes:{tool}","args":{{"id":"{id}"}},"intent":{{"operation_type":"destructive"}}{more}}}"#
    )
}

fn ask(line: &Client, tool: &str, id: &str) -> Shown {
    let held = line.call("call_tool_destructive", &arguments(tool, id, r#","wait_seconds":0"#));
    let text = |name: &str| held.data()[name].as_str().unwrap_or_else(|| panic!("{}", held.text)).to_owned();
    let (id, hash) = (text("plan_id"), text("confirm_plan_hash"));
    Shown { id, hash, card: held.result()["_meta"]["countersign/card"].clone() }
}

/// What a channel is asked to do.
#[derive(Clone, Copy, Debug, Default)]
struct Decision<'a> {
    rejects: bool,
    text: Option<&'a str>,
    /// The plan that was shown, where it is not the one that is decided.
    shown: Option<&'a Shown>,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.id)
    }
}

fn decide(
    scene: &Scene,
    desk: &Desk,
    line: &Client,
    channel: Channel,
    plan: &Shown,
    decision: Decision<'_>,
) -> Refusal {
    let word = if decision.rejects { "reject" } else { "approve" };
    let shown = decision.shown.unwrap_or(plan);
    match channel {
        Channel::Page | Channel::Rest => {
            let path = format!("/plans/{}/{word}", plan.id);
            let body = match decision.rejects {
                true => json!({}),
                false => json!({"plan_hash": shown.hash, "confirm_text": decision.text}),
            };
            desk.post(channel, &path, &body)
        }
        Channel::CommandLine => {
            let mut args = vec![word, &plan.id, "--json"];
            args.extend((!decision.rejects).then_some("--yes"));
            args.extend(decision.text.map(|text| ["--confirm-text", text]).into_iter().flatten());
            refusal(&scene.world.run(&args).envelope()["errors"][0])
        }
        Channel::Card => {
            let press = json!({"plan_id": plan.id, "nonce": shown.card["nonce"], "answer": word});
            let pressed = line.call("answer_plan", &press.to_string());
            refusal(&pressed.envelope().unwrap_or_else(|| panic!("{}", pressed.text))["errors"][0])
        }
    }
}

fn refused(code: &str, reason: &str) -> Refusal {
    Some((code.to_owned(), reason.to_owned()))
}

/// Rows of decisions and of tries on a plan, without what differs from plan to plan.
fn rows_of(scene: &Scene, plan: &str) -> Vec<Value> {
    scene.rows().into_iter().filter(|row| row["kind"] == "approval" && row["plan_id"] == plan).collect()
}

#[test]
fn plans_are_decided_alike_over_every_channel() {
    let scene = Scene::open(Way::HttpModern, CONFIG);
    let desk = Desk::open(&scene);
    let mut late = Vec::new();
    let mut mistyped_rows = Vec::new();
    for channel in CHANNELS {
        let name = format!("{channel:?}").to_lowercase();
        let line = scene.line_as(Host::Cards, Some(scene.credential(&name, Role::Agent, VOUCHES)));
        let plan = |tool: &str, id: &str| ask(&line, tool, &format!("{name}-{id}"));
        let act = |plan: &Shown, decision| decide(&scene, &desk, &line, channel, plan, decision);
        let approve = Decision::default();
        let reject = Decision { rejects: true, ..approve };

        let approved = plan("erase_all", "approve");
        assert_eq!(act(&approved, approve), None, "{channel:?} approve");
        let again = act(&approved, approve);
        assert_eq!(again.map(|(code, _)| code).as_deref(), Some("E_PLAN_DECIDED"), "{channel:?} decided");
        let after = act(&approved, reject);
        assert_eq!(after.map(|(code, _)| code).as_deref(), Some("E_PLAN_DECIDED"), "{channel:?} decided");
        let rows = rows_of(&scene, &approved.id);
        assert_eq!(rows.len(), 1, "{channel:?} {rows:?}");
        assert_eq!(rows[0]["plan_hash"], approved.hash.as_str(), "{channel:?}");

        let rejected = plan("erase_all", "reject");
        assert_eq!(act(&rejected, reject), None, "{channel:?} reject");
        assert_eq!(rows_of(&scene, &rejected.id)[0]["detail"]["action"], "reject", "{channel:?}");

        // The command line shows the plan it decides on: nobody can show it another.
        let other = Decision { shown: Some(&approved), ..approve };
        let stale = plan("erase_all", "hash");
        match channel {
            Channel::Page | Channel::Rest => {
                assert_eq!(act(&stale, other), refused("E_PLAN_DECIDED", "plan_changed"), "{channel:?}");
            }
            Channel::Card => {
                let code = act(&stale, other).map(|(code, _)| code);
                assert_eq!(code.as_deref(), Some("E_CONFIRM_TOKEN_MISMATCH"), "the nonce is the hash's");
            }
            Channel::CommandLine => {}
        }
        assert_eq!(rows_of(&scene, &stale.id), Vec::<Value>::new(), "{channel:?}");

        let to_type = plan("wipe_notes", "Type");
        let right = format!("{name}-Type");
        if channel == Channel::Card {
            let pressed = act(&to_type, approve).map(|(code, _)| code);
            assert_eq!(pressed.as_deref(), Some("E_APPROVAL_PENDING"), "a button types nothing");
        } else {
            let wrong = Decision { text: Some("something else"), ..approve };
            let mistyped = act(&to_type, wrong).map(|(code, _)| code);
            assert_eq!(mistyped.as_deref(), Some("E_CONFIRM_TEXT_MISMATCH"), "{channel:?}");
            let rows = rows_of(&scene, &to_type.id);
            assert_eq!(rows.len(), 1, "{channel:?}: {rows:?}");
            mistyped_rows.extend(rows);
            let right = Decision { text: Some(&right), ..approve };
            assert_eq!(act(&to_type, right), None, "{channel:?} typed");
        }
        late.push((channel, line, name));
    }
    mistyped_rows.push(mistyped_in_call(&scene));
    for row in &mistyped_rows {
        assert_eq!((&row["status"], &row["role"]), (&json!("refused"), &json!("human")), "{row}");
        assert_eq!(row["code"], "E_CONFIRM_TEXT_MISMATCH", "{row}");
        assert_eq!(row["detail"]["action"], "approve", "{row}");
        assert!(row["plan_hash"].is_string() && !row.to_string().contains("something else"), "{row}");
        assert_eq!(row["principal"], mistyped_rows[0]["principal"], "{row}");
    }
    assert_eq!(mistyped_rows.len(), 4, "page, REST, `approve`, `call`");

    scene.reconfigure(&format!("{CONFIG}\n[confirm]\nttl = \"2s\"\n"));
    for (channel, line, name) in &late {
        let plan = ask(line, "erase_all", &format!("{name}-late"));
        std::thread::sleep(Duration::from_millis(2100));
        let said = decide(&scene, &desk, line, *channel, &plan, Decision::default());
        assert_eq!(said, refused("E_PLAN_DECIDED", "plan_expired"), "{channel:?}");
    }
    drop(late);
    scene.finish(vec![]);
}

/// `call` asks its own person at the terminal; gives the row of the mistyped text.
fn mistyped_in_call(scene: &Scene) -> Value {
    let args =
        ["call", "tool-destructive", "--tool-name=notes:wipe_notes", "--json_args", r#"{"id":"diary"}"#];
    let wrong = typed(&scene.world, &args, &[("to confirm: ", "something else\n")]);
    assert_eq!(wrong.code, Some(3), "{wrong}");
    let rows: Vec<Value> = scene.rows().into_iter().filter(|row| row["kind"] == "approval").collect();
    let row = rows.last().unwrap().clone();
    let right = typed(&scene.world, &args, &[("to confirm: ", "diary\n")]);
    assert_eq!(right.code, Some(0), "{right}");
    row
}

#[test]
fn a_hosts_dialog_and_its_page_decide_alike() {
    let scene = Scene::open(Way::HttpModern, CONFIG);
    let desk = Desk::open(&scene);
    let line = |name: &str, host| scene.line_as(host, Some(scene.credential(name, Role::Agent, VOUCHES)));
    let call = |line: &Client, tool: &str, more: &str| {
        line.call("call_tool_destructive", &arguments(tool, "x", more))
    };
    // A form: the host's own answer.
    assert!(call(&line("form-yes", Host::Accepts), "erase_all", "").ran());
    let rejected = call(&line("form-no", Host::Declines), "erase_all", "");
    assert_eq!(rejected.code(), Some("E_APPROVAL_REJECTED"), "{}", rejected.text);
    // An address: the page decides, with the text a person types there.
    let shut = call(&line("url-no", Host::KeepsShut), "wipe_notes", "");
    assert_eq!(shut.code(), Some("E_APPROVAL_REJECTED"), "{}", shut.text);
    let opens = line("url-yes", Host::Opens);
    let reply: Reply = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| call(&opens, "wipe_notes", r#","wait_seconds":30"#));
        let plan = opened_plan(&opens);
        let path = format!("/plans/{plan}/approve");
        let other =
            desk.post(Channel::Page, &path, &json!({"plan_hash": "0".repeat(64), "confirm_text": "x"}));
        assert_eq!(other, refused("E_PLAN_DECIDED", "plan_changed"));
        let wrong = desk.post(Channel::Page, &path, &json!({"confirm_text": "X"}));
        assert_eq!(wrong.map(|(code, _)| code).as_deref(), Some("E_CONFIRM_TEXT_MISMATCH"));
        assert_eq!(desk.post(Channel::Page, &path, &json!({"confirm_text": "x"})), None);
        waiting.join().unwrap()
    });
    assert!(reply.ran(), "{}", reply.text);
    let rows: Vec<Value> = scene.rows().into_iter().filter(|row| row["kind"] == "approval").collect();
    let told: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row["role"].as_str().unwrap_or_default(), row["status"].as_str().unwrap_or_default()))
        .collect();
    let host = ("host", "success");
    assert_eq!(told, [host, host, host, ("human", "refused"), ("human", "success")]);
    assert!(rows.iter().all(|row| row["plan_hash"].is_string()));
    scene.finish(vec![]);
}

/// The plan whose page a host was asked to open.
fn opened_plan(line: &Client) -> String {
    let start = Instant::now();
    loop {
        if let Some(question) = line.asked.lock().unwrap().first() {
            let url = question["params"]["url"].as_str().unwrap_or_else(|| panic!("{question}"));
            return url.rsplit_once('/').unwrap().1.to_owned();
        }
        assert!(start.elapsed() < PATIENCE, "the host was not asked");
        std::thread::sleep(Duration::from_millis(20));
    }
}
