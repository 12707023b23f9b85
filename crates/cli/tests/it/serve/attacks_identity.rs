//! Attacks on who is who: a program that answers its own confirmation, connections without a credential, credentials that
//! ended, and what is left in the ledger of each.

use countersign_core::role::Role;
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
