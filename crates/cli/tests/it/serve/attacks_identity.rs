//! Attacks on who is who: a program that answers its own confirmation, connections without a credential, credentials that
//! ended, and what is left in the ledger of each.

use std::time::Duration;

use countersign_policy::ids::CredentialId;
use countersign_policy::role::Role;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::http;
use super::scene::{Scene, VOUCHES};

const HTTP: [Way; 2] = [Way::HttpLegacy, Way::HttpModern];

/// Destructive calls need the host.
const NEEDS_HOST: &str =
    "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"notes:erase_all\"\nstrength = \"host\"\n";
/// They need no more than the caller's own word.
const NEEDS_CALLER: &str =
    "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"notes:erase_all\"\nstrength = \"caller\"\n";
const ERASE: &str = r#"{"name":"notes:erase_all","args":{"id":"a"},"intent":{"operation_type":"destructive"},"wait_seconds":0}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;

fn erase(client: &Client) -> Reply {
    client.call("call_tool_destructive", ERASE)
}

/// Rows about decisions on plans.
fn approvals(scene: &Scene) -> Vec<Value> {
    scene.rows().into_iter().filter(|row| row["kind"] == "approval").collect()
}

/// What a request without a session gets: status, headers as far as asked, and text.
fn post(scene: &Scene, bearer: Option<&str>) -> (u16, Option<String>, String) {
    let mut headers = vec![
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Accept".to_owned(), "application/json, text/event-stream".to_owned()),
    ];
    headers.extend(bearer.map(|bearer| ("Authorization".to_owned(), format!("Bearer {bearer}"))));
    let answer = http::send(&scene.gateway().address(), "POST", "/mcp", &headers, LIST).unwrap();
    let challenge = answer.header("www-authenticate").map(str::to_owned);
    (answer.status, challenge, answer.text().unwrap())
}

#[test]
fn attack_07_http_needs_a_credential_unless_it_is_opened() {
    let scene = Scene::open(Way::HttpModern, "");
    let (status, challenge, text) = post(&scene, None);
    assert_eq!((status, challenge.as_deref()), (401, Some("Bearer realm=\"countersign\"")), "{text}");
    assert!(text.contains("countersign token create --role agent"), "{text}");
    let told = scene.gateway().told().text();
    assert!(told.contains("countersign token create --role agent"), "{told}");
    let open = Scene::open(Way::HttpModern, "[gateway]\nagent_auth = \"loopback-open\"\n");
    assert!(!open.line_as(Host::None, None).tools().is_empty());
    let told = open.gateway().told().text();
    assert!(told.contains("every program on this machine may call as an agent"), "{told}");
}

#[test]
fn attack_07_a_local_program_can_not_answer_its_own_question() {
    Way::each(&HTTP, |way| {
        let open = NEEDS_HOST.replace("[gateway]\n", "[gateway]\nagent_auth = \"loopback-open\"\n");
        let mut scene = Scene::open(way, &open);
        let secret = scene.credential("plain", Role::Agent, "{}");
        for bearer in [None, Some(secret)] {
            let line = scene.line_as(Host::Accepts, bearer);
            let held = erase(&line);
            assert_eq!(held.data()["status"], "confirmation_required", "{way:?} {}", held.text);
            assert!(line.asked.lock().unwrap().is_empty(), "its answer would not be enough: it is not asked");
            let token = &held.data()["confirm_token"];
            let bring =
                ERASE.replace(r#""wait_seconds":0"#, &format!(r#""confirm_token":{token},"yes":true"#));
            let again = line.call("call_tool_destructive", &bring);
            assert_eq!(again.code(), Some("E_APPROVAL_PENDING"), "{way:?} {}", again.text);
        }
        assert_eq!(scene.reached(), [], "{way:?}");
        assert_eq!(approvals(&scene), Vec::<Value>::new(), "{way:?}");
        scene.finish(vec![]);
    });
}

#[test]
fn attack_07_a_host_that_may_vouch_answers_and_its_row_says_host() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, NEEDS_HOST);
        // Over stdio the host started the gateway; over HTTP the scene's credential may vouch.
        let line = scene.line(Host::Accepts);
        let reply = erase(&line);
        assert!(reply.ran(), "{way:?} {}", reply.text);
        assert_eq!(scene.reached().len(), 1);
        let rows = approvals(&scene);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0]["role"], "host", "{way:?} {}", rows[0]);
        assert_eq!(rows[0]["approval"]["strength"], "host", "{way:?} {}", rows[0]);
        let asked = scene.world.run(&["activity", "list", "--role", "human", "--json"]).envelope();
        let people = asked["data"]["activities"].as_array().unwrap().clone();
        assert!(people.iter().all(|row| row["kind"] != "approval"), "{people:?}");
        scene.finish(vec![line]);
    });
}

#[test]
fn attack_07_an_answer_without_vouching_counts_as_caller() {
    Way::each(&HTTP, |way| {
        let mut scene = Scene::open(way, NEEDS_CALLER);
        let secret = scene.credential("plain", Role::Agent, "{}");
        let line = scene.line_as(Host::Accepts, Some(secret));
        let reply = erase(&line);
        assert!(reply.ran(), "{way:?} {}", reply.text);
        let rows = approvals(&scene);
        assert_eq!((&rows[0]["role"], &rows[0]["approval"]["strength"]), (&json!("host"), &json!("caller")));
        assert_eq!(scene.reached().len(), 1);
        scene.finish(vec![line]);
    });
}

#[test]
fn attack_07_a_decline_rejects_whatever_an_accept_is_worth() {
    Way::each(&HTTP, |way| {
        let mut scene = Scene::open(way, NEEDS_HOST);
        let secret = scene.credential("plain", Role::Agent, "{}");
        let line = scene.line_as(Host::KeepsShut, Some(secret));
        let reply = erase(&line);
        assert_eq!(reply.code(), Some("E_APPROVAL_REJECTED"), "{way:?} {}", reply.text);
        let rows = approvals(&scene);
        assert_eq!((&rows[0]["role"], &rows[0]["detail"]["action"]), (&json!("host"), &json!("reject")));
        assert_eq!(line.asked.lock().unwrap()[0]["params"]["mode"], "url", "it was asked to open the page");
        assert_eq!(scene.reached(), []);
        scene.finish(vec![line]);
    });
}

#[test]
fn attack_07_a_card_without_vouching_can_reject_and_not_approve() {
    Way::each(&HTTP, |way| {
        let mut scene = Scene::open(way, NEEDS_HOST);
        let plain = scene.credential("plain", Role::Agent, "{}");
        let vouches = scene.credential("vouches", Role::Agent, VOUCHES);
        for (bearer, approved) in [(plain, false), (vouches, true)] {
            let line = scene.line_as(Host::Cards, Some(bearer));
            let held = erase(&line);
            let card = &held.result()["_meta"]["countersign/card"];
            assert!(card["nonce"].is_string(), "{}", held.text);
            let press = |answer: &str| {
                let mut asked = card.clone();
                asked["answer"] = answer.into();
                line.call("answer_plan", &asked.to_string())
            };
            let pressed = press("approve");
            if approved {
                assert_eq!(pressed.data()["plan"]["approval"]["strength"], "host", "{}", pressed.text);
            } else {
                assert_eq!(pressed.code(), Some("E_APPROVAL_PENDING"), "{}", pressed.text);
                assert_eq!(press("reject").data()["plan"]["state"], "rejected");
            }
        }
        let rows = approvals(&scene);
        assert!(rows.len() == 2 && rows.iter().all(|row| row["role"] == "host"), "{rows:?}");
        assert_eq!(scene.reached(), []);
        scene.finish(vec![]);
    });
}

/// A card's button agrees until the time its card shows, even where the agent asked again and the plan was given more.
#[test]
fn attack_09_a_cards_approval_ends_at_the_expiry_on_the_card() {
    let config = format!("{NEEDS_HOST}[confirm]\nttl = \"3s\"\n");
    Way::each(&[Way::StdioLegacy, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, &config);
        let line = scene.line(Host::Cards);
        let ask = || {
            let held = erase(&line);
            let meta = &held.result()["_meta"];
            let expires: Timestamp =
                meta["countersign/view"]["expires_at"].as_str().unwrap().parse().unwrap();
            (meta["countersign/card"].clone(), expires)
        };
        let press = |card: &Value| {
            let mut asked = card.clone();
            asked["answer"] = "approve".into();
            line.call("answer_plan", &asked.to_string())
        };
        let (old, shown) = ask();
        std::thread::sleep(Duration::from_millis(1500));
        let (new, later) = ask();
        assert!(old["plan_id"] == new["plan_id"] && later > shown, "the same plan, with more time");
        while Timestamp::now() <= shown {
            std::thread::sleep(Duration::from_millis(50));
        }
        let (newest, latest) = ask();
        let refused = press(&old);
        assert_eq!(refused.code(), Some("E_PLAN_DECIDED"), "{way:?} {}", refused.text);
        assert_eq!(refused.envelope().unwrap()["errors"][0]["details"]["reason_code"], "plan_expired");
        assert_eq!(old["plan_id"], newest["plan_id"]);
        let pressed = press(&newest);
        assert_eq!(pressed.data()["plan"]["state"], "approved", "{way:?} {}", pressed.text);
        let until: Timestamp = pressed.data()["plan"]["expires_at"].as_str().unwrap().parse().unwrap();
        assert_eq!(until, latest, "{way:?}");
        scene.finish(vec![line]);
    });
}

/// Two credentials of one name are one principal; the one that may not vouch can't answer in the other's session.
#[test]
fn attack_07_a_credential_that_can_not_vouch_is_no_part_of_a_session_that_can() {
    let scene = Scene::open(Way::HttpLegacy, NEEDS_HOST);
    let line = scene.line_as(Host::Silent, Some(scene.bearer()));
    let address = scene.gateway().address();
    let weak = scene.namesake("local-agent", "weak", "{}");
    let headers = [
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ("Authorization".to_owned(), format!("Bearer {weak}")),
        ("Mcp-Session-Id".to_owned(), line.session()),
    ];
    let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"action":"accept","content":{}}}"#;
    let status = http::send(&address, "POST", scene.path(), &headers, answer).unwrap().status;
    assert_eq!(status, 404, "it is somebody else's session");
}

#[test]
fn attack_07_doctor_flags_an_open_gateway() {
    let scene = Scene::open(Way::StdioLegacy, "[gateway]\nagent_auth = \"loopback-open\"\n");
    let said = scene.world.run(&["doctor", "--json", "--no-start"]).envelope();
    let checks = said["data"]["checks"].as_array().unwrap();
    let open = checks.iter().find(|check| check["message"].as_str().unwrap().contains("loopback-open"));
    let open = open.unwrap_or_else(|| panic!("{checks:#?}"));
    assert_eq!(open["state"], "look");
    assert!(open["fix"].as_str().unwrap().contains("token create --role agent"), "{open}");
}

#[test]
fn attack_07_token_create_prints_what_to_paste() {
    let scene = Scene::open(Way::StdioLegacy, "[gateway]\nlisten = \"127.0.0.1:7999\"\n");
    let create = |more: &[&str]| {
        scene.world.run(&[&["token", "create", "--role", "agent", "--may-vouch"], more].concat())
    };
    let made = create(&["--name", "one", "--json"]).envelope();
    let (data, secret) = (&made["data"], made["data"]["secret"].as_str().unwrap());
    assert_eq!(data["credential"]["scopes"], json!({"may_vouch": true}));
    let connect = &data["connect"];
    assert_eq!(connect["url"], "http://127.0.0.1:7999/mcp");
    assert_eq!(connect["header"], format!("Authorization: Bearer {secret}"));
    assert_eq!(connect["environment"], format!("export COUNTERSIGN_TOKEN={secret}"));
    let command = connect["claude_code"].as_str().unwrap();
    assert!(
        command.starts_with("claude mcp add --transport http countersign http://127.0.0.1:7999/mcp --header")
    );
    assert!(command.contains(secret), "{command}");
    // In a pipe the secret is on stdout alone: stderr may end in a log.
    let piped = create(&["--name", "two"]);
    assert!(piped.stderr.contains("Authorization: Bearer $COUNTERSIGN_TOKEN"), "{piped}");
    assert!(!piped.stderr.contains(piped.stdout.trim_end()), "{piped}");
}

/// Destructive calls need a person.
const NEEDS_HUMAN: &str =
    "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"notes:erase_all\"\nstrength = \"human\"\n";

/// A person's request to the desk: status and envelope.
fn desk(scene: &Scene, secret: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let headers = [
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Authorization".to_owned(), format!("Bearer {secret}")),
    ];
    let path = format!("/api/v1{path}");
    let answer = http::send(&scene.gateway().address(), method, &path, &headers, body).unwrap();
    (answer.status, serde_json::from_str(&answer.text().unwrap()).unwrap_or_default())
}

fn revoke(scene: &Scene, id: &str) {
    let id = CredentialId::new(id);
    scene.store(async |store| {
        store.revoke_credential(&id, &"ada".into(), Timestamp::now()).await.unwrap().unwrap();
    });
}

#[test]
fn attack_16_a_revoked_agents_plan_can_not_be_approved_and_run() {
    let mut scene = Scene::open(Way::HttpModern, NEEDS_HUMAN);
    let ada = scene.credential("ada", Role::Human, "{}");
    let line = scene.line_as(Host::None, Some(scene.credential("bot", Role::Agent, "{}")));
    let held = erase(&line);
    let plan = held.data()["plan_id"].as_str().unwrap().to_owned();
    revoke(&scene, "crd_bot");
    let (status, answer) = desk(&scene, &ada, "POST", &format!("/plans/{plan}/approve"), r#"{"run":true}"#);
    let error = &answer["error"];
    assert_eq!((status, error["code"].as_str()), (409, Some("E_PLAN_CANCELLED")), "{answer}");
    assert_eq!(error["details"]["reason_code"], "credential_revoked", "{answer}");
    let (_, shown) = desk(&scene, &ada, "GET", &format!("/plans/{plan}"), "");
    assert_eq!(shown["data"]["plan"]["state"], "cancelled", "{shown}");
    let typed = scene.world.run(&["approve", &plan, "--yes", "--json"]);
    assert_ne!(typed.code, Some(0), "{typed}");
    assert_eq!(scene.reached(), []);
    scene.finish(vec![line]);
}

/// Approved while the credential worked, and brought back with another one of the same name.
#[test]
fn attack_16_an_approval_ends_with_the_credential_of_the_plan() {
    let mut scene = Scene::open(Way::HttpModern, NEEDS_HUMAN);
    let line = scene.line_as(Host::None, Some(scene.credential("bot", Role::Agent, "{}")));
    let held = erase(&line);
    scene.approve(held.data()["plan_id"].as_str().unwrap());
    revoke(&scene, "crd_bot");
    let other = scene.line_as(Host::None, Some(scene.namesake("bot", "bot-2", "{}")));
    let token = &held.data()["confirm_token"];
    let bring = ERASE.replace(r#""wait_seconds":0"#, &format!(r#""confirm_token":{token},"yes":true"#));
    let refused = scene.call(&other, "call_tool_destructive", &bring);
    assert_eq!(refused.code(), Some("E_PLAN_CANCELLED"), "{}", refused.text);
    let details = &refused.envelope().unwrap()["errors"][0]["details"];
    assert_eq!(details["reason_code"], "credential_revoked", "{}", refused.text);
    // And a new call is a new plan, not the one that ended.
    let again = erase(&other);
    assert_ne!(again.data()["plan_id"], held.data()["plan_id"], "{}", again.text);
    assert_eq!(scene.reached(), []);
    scene.finish(vec![line, other]);
}

#[test]
fn attack_16_failed_credentials_leave_rows_and_a_flood_leaves_few() {
    let scene = Scene::open(Way::HttpModern, "");
    let ended = scene.credential("gone", Role::Agent, "{}");
    revoke(&scene, "crd_gone");
    for _ in 0..30 {
        assert_eq!(post(&scene, Some("csg_agent_made-up")).0, 401);
    }
    assert_eq!(post(&scene, Some(&ended)).0, 401);
    assert_eq!(desk(&scene, "csg_human_made-up", "GET", "/plans", "").0, 401);
    let rows: Vec<Value> =
        scene.rows().into_iter().filter(|row| row["detail"]["action"] == "failed_credential").collect();
    let said = |row: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&row["source"]), text(&row["detail"]["why"]), text(&row["principal"]))
    };
    let expected = [("mcp", "unknown", ""), ("mcp", "revoked", "gone"), ("api", "unknown", "")];
    let expected = expected.map(|(source, why, who)| (source.to_owned(), why.to_owned(), who.to_owned()));
    assert_eq!(rows.iter().map(said).collect::<Vec<_>>(), expected, "{rows:#?}");
    for row in &rows {
        assert_eq!((&row["status"], &row["code"]), (&json!("refused"), &json!("E_CREDENTIAL_REQUIRED")));
        assert_eq!(row["detail"]["peer"], "127.0.0.1", "{row}");
        assert_eq!(row["detail"]["digest"].as_str().map(str::len), Some(12), "{row}");
    }
    assert!(!scene.store_holds("made-up"), "no secret is kept");
    scene.finish(vec![]);
}

/// The newest row of a call, after a refusal with this code.
#[track_caller]
fn refused_row(scene: &Scene, reply: &Reply, code: &str) -> Value {
    assert_eq!(reply.code(), Some(code), "{}", reply.text);
    scene.rows().into_iter().rfind(|row| row["kind"] == "call").unwrap()
}

#[test]
fn attack_18_the_row_of_a_refused_intent_has_what_was_declared() {
    let mut scene = Scene::open(Way::StdioLegacy, "");
    let line = scene.line(Host::None);
    let long = "x".repeat(2000);
    for (intent, code, expected) in [
        (
            json!({"operation_type": "cleanup", "data_sensitivity": "private", "reason": "tidy"}),
            "E_INTENT_OPERATION_INVALID",
            json!({"operation_type": "cleanup", "data_sensitivity": "private", "reason": "tidy"}),
        ),
        (
            json!({"operation_type": "write", "reason": "because"}),
            "E_INTENT_MISMATCH",
            json!({"operation_type": "write", "reason": "because"}),
        ),
        (json!({"reason": "only this"}), "E_INTENT_OPERATION_REQUIRED", json!({"reason": "only this"})),
        (
            json!({"operation_type": "read", "data_sensitivity": "secret"}),
            "E_ARGUMENTS_INVALID",
            json!({"operation_type": "read", "data_sensitivity": "secret"}),
        ),
        (
            json!({"operation_type": "read", "reason": long}),
            "E_ARGUMENTS_INVALID",
            json!({"operation_type": "read", "reason": format!("{}…", "x".repeat(1000))}),
        ),
        (
            json!({"operation_type": "read", "made_up": 1}),
            "E_ARGUMENTS_INVALID",
            json!({"operation_type": "read"}),
        ),
    ] {
        let asked = json!({"name": "notes:get_note", "args": {"id": "a"}, "intent": intent});
        let reply = scene.call(&line, "call_tool_read", &asked.to_string());
        let row = refused_row(&scene, &reply, code);
        assert_eq!(row["intent"], expected, "{row}");
        assert_eq!(
            (&row["upstream"], &row["tool"], &row["variant"]),
            (&json!("notes"), &json!("get_note"), &json!("read"))
        );
    }
    let server = json!({"name": "notes:erase_all", "args": {"id": "a"}, "intent": {"operation_type": "write", "reason": "r"}});
    let reply = scene.call(&line, "call_tool_write", &server.to_string());
    let row = refused_row(&scene, &reply, "E_INTENT_SERVER_MISMATCH");
    assert_eq!(row["intent"], json!({"operation_type": "write", "reason": "r"}), "{row}");
    let flat = r#"{"name":"notes:get_note","args":{"id":"a"},"intent_operation_type":"write","intent":{"operation_type":"read"}}"#;
    let reply = scene.call(&line, "call_tool_read", flat);
    let row = refused_row(&scene, &reply, "E_ARGUMENTS_INVALID");
    assert_eq!(row["intent"], json!({"operation_type": "read"}), "{row}");
    scene.finish(vec![line]);
}

#[test]
fn attack_18_the_row_of_an_unknown_tool_has_its_name_and_the_intent() {
    for surface in ["router", "direct"] {
        let mut scene = Scene::open_with(Way::StdioLegacy, surface, "", &[]);
        let line = scene.line(Host::None);
        let intent = json!({"operation_type": "destructive", "reason": "told to"});
        let huge = "n".repeat(1000);
        for (name, kept) in
            [("drop_tables", "drop_tables".to_owned()), (&huge, format!("{}…", "n".repeat(256)))]
        {
            let (tool, asked) = match surface {
                "router" => (
                    "call_tool_destructive".to_owned(),
                    json!({"name": format!("notes:{name}"), "args": {}, "intent": intent}),
                ),
                _ => (format!("notes__{name}"), json!({"countersign": {"intent": intent}})),
            };
            let reply = scene.call(&line, &tool, &asked.to_string());
            let row = refused_row(&scene, &reply, "E_TOOL_NOT_FOUND");
            assert_eq!(row["intent"], intent, "{surface} {row}");
            let named = row["tool"].as_str().unwrap();
            assert!(named.chars().count() <= 257, "{row}");
            if surface == "router" {
                assert_eq!((&row["upstream"], named), (&json!("notes"), kept.as_str()));
                assert_eq!(row["variant"], "destructive");
            } else {
                assert!(named.starts_with("notes__"), "{row}");
            }
        }
        scene.finish(vec![line]);
    }
}

#[test]
fn attack_18_a_plan_whose_tool_changed_says_so_however_it_was_noticed() {
    Way::each(&Way::ALL, |way| {
        let config = "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"notes:*\"\nstrength = \"caller\"\n";
        let mut scene = Scene::open(way, config);
        let line = scene.line(Host::None);
        let call = |tool: &str, more: &str| {
            format!(
                r#"{{"name":"notes:{tool}","args":{{"id":"a"}},"intent":{{"operation_type":"write"}}{more}}}"#
            )
        };
        let mut hold = |tool: &str| {
            let held = scene.call(&line, "call_tool_write", &call(tool, ""));
            format!(r#","confirm_token":{},"yes":true"#, held.data()["confirm_token"])
        };
        let (changed, noticing) = (hold("save_note"), hold("put_note"));
        scene.state(r#"{"change":"save_note"}"#);
        // Before this one runs the list is read again: the change is noticed here, and ends the other plan.
        let ran = scene.call(&line, "call_tool_write", &call("put_note", &noticing));
        assert!(ran.ran(), "{way:?} {}", ran.text);
        let refused = scene.call(&line, "call_tool_write", &call("save_note", &changed));
        assert_eq!(refused.code(), Some("E_CONFIRM_TOKEN_MISMATCH"), "{way:?} {}", refused.text);
        let details = &refused.envelope().unwrap()["errors"][0]["details"];
        assert_eq!(details["reason_code"], "tool_changed", "{way:?} {}", refused.text);
        assert_eq!(scene.reached().len(), 1);
        scene.finish(vec![line]);
    });
}
