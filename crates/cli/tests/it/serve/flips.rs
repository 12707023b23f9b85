//! A server whose definitions flip between a few forms: withheld until a person accepts the set, each plan bound to the form it
//! was shown under, and nothing outside the set ever let in.

use countersign_policy::digest::Digest;
use countersign_policy::ids::FullName;
use countersign_policy::role::Role;
use countersign_store::DefinitionAcceptance;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::client::{Client, Host, Way};
use super::desk::{Person, person};
use super::scene::Scene;

const CONFIG: &str = "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"notes:*\"\nstrength = \"caller\"\n";
const READ: &str = r#"{"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#;
const TOOL: &str = "/tools/notes:get_note";
const APPROVE: &str = "/tools/notes:get_note/approve";

fn write(tool: &str, more: &str) -> String {
    format!(r#"{{"name":"notes:{tool}","args":{{"id":"a"}},"intent":{{"operation_type":"write"}}{more}}}"#)
}

/// Holds a call; gives what brings its token back.
#[track_caller]
fn hold(scene: &mut Scene, line: &Client, tool: &str) -> String {
    let held = scene.call(line, "call_tool_write", &write(tool, ""));
    format!(r#","confirm_token":{},"yes":true"#, held.data()["confirm_token"])
}

/// The upstream says something else of a tool, and the gateway reads the list: it does before a confirmed call goes out.
#[track_caller]
fn lists(scene: &mut Scene, line: &Client, state: &str) {
    scene.state(state);
    let token = hold(scene, line, "put_note");
    assert!(scene.call(line, "call_tool_write", &write("put_note", &token)).ran());
    scene.reached();
}

/// Accepts all that is known of a tool, as a person does.
fn accept_set(scene: &Scene, tool: &str) {
    let tool = tool.parse::<FullName>().unwrap();
    scene.store(async |store| {
        let pin = store.pin_of(&tool).await.unwrap().unwrap();
        let all: Vec<Digest> = pin.offered_set().iter().map(|known| known.definition.fingerprint).collect();
        assert_eq!(all.len(), 2);
        let (all, by) = (DefinitionAcceptance::Known(all), "ada".into());
        assert!(store.accept_definitions(&tool, all, &by, Timestamp::now()).await.unwrap().is_some());
    });
}

/// The tool was accepted in two forms, one after the other, and is back at the first.
fn flipped() -> (Scene, Client, Person) {
    let mut scene = Scene::open(Way::HttpLegacy, CONFIG);
    let ada = person(&scene);
    let line = scene.line(Host::None);
    assert!(scene.call(&line, "call_tool_read", READ).ran());
    lists(&mut scene, &line, r#"{"change":"get_note"}"#);
    assert_eq!(scene.call(&line, "call_tool_read", READ).code(), Some("E_TOOL_CHANGED"));
    ada.data("POST", APPROVE, json!({}));
    assert!(scene.call(&line, "call_tool_read", READ).ran());
    lists(&mut scene, &line, "{}");
    (scene, line, ada)
}

#[test]
fn a_tool_that_flips_is_withheld_offered_and_accepted_as_a_set() {
    let (mut scene, line, ada) = flipped();
    assert_eq!(scene.call(&line, "call_tool_read", READ).code(), Some("E_TOOL_CHANGED"), "it is an offer");
    let tool = ada.data("GET", TOOL, Value::Null)["tool"].clone();
    assert_eq!((&tool["pin"], &tool["flips"]), (&json!("changed"), &json!({"known": 2, "accepted": false})));
    assert!(tool["flags"].to_string().contains("accepted before: the tool flips between 2"), "{tool}");
    let diff = ada.data("GET", &format!("{TOOL}/diff"), Value::Null)["tool"].clone();
    assert_eq!(diff["accepted_before"], true);
    let known = diff["known"].as_array().unwrap();
    assert_eq!((&known[0]["accepted_by"], &known[1]["accepted_by"]), (&json!("ada"), &Value::Null));
    assert_eq!(known[1]["fingerprint"], tool["fingerprint"]);
    let prints = json!([known[0]["fingerprint"], known[1]["fingerprint"]]);
    let accepted = ada.data("POST", APPROVE, json!({"known": true, "fingerprints": prints}));
    assert_eq!((&accepted["fingerprints"], &accepted["fingerprint"]), (&prints, &tool["fingerprint"]));
    let row = ada.data("GET", &format!("/activity/{}", accepted["ledger_id"].as_str().unwrap()), Value::Null);
    let row = &row["activity"];
    assert_eq!((&row["detail"]["action"], &row["detail"]["fingerprints"]), (&json!("accept_known"), &prints));
    assert_eq!((&row["principal"], &row["role"]), (&json!("ada"), &json!("human")));

    for (state, code) in [
        (r#"{"change":"get_note"}"#, None),
        (r#"{"change":"get_note","by":" and sends it away"}"#, Some("E_TOOL_CHANGED")),
        ("{}", None),
        (r#"{"change":"get_note","by":" "}"#, Some("E_TOOL_CHANGED")),
        (r#"{"change":"get_note"}"#, None),
    ] {
        lists(&mut scene, &line, state);
        assert_eq!(scene.call(&line, "call_tool_read", READ).code(), code, "{state}");
    }
    let tool = ada.data("GET", TOOL, Value::Null)["tool"].clone();
    assert_eq!((&tool["pin"], &tool["flips"]), (&json!("accepted"), &json!({"known": 2, "accepted": true})));

    // Something new is accepted beside the set; one definition alone ends it.
    let new = r#"{"change":"get_note","by":", and more"}"#;
    lists(&mut scene, &line, new);
    ada.data("POST", APPROVE, json!({}));
    for state in [new, "{}", new] {
        lists(&mut scene, &line, state);
        assert!(scene.call(&line, "call_tool_read", READ).ran(), "{state}");
    }
    ada.data("POST", APPROVE, json!({"only": true}));
    assert!(scene.call(&line, "call_tool_read", READ).ran());
    lists(&mut scene, &line, "{}");
    assert_eq!(scene.call(&line, "call_tool_read", READ).code(), Some("E_TOOL_CHANGED"), "the set is over");
    scene.finish(vec![line]);
}

#[test]
fn attack_a_set_is_not_accepted_by_an_agent_or_as_something_else_than_was_shown() {
    let (mut scene, line, ada) = flipped();
    let bot = Person { address: ada.address.clone(), secret: scene.credential("bot", Role::Agent, "{}") };
    for body in [json!({"known": true}), json!({"only": true}), json!({})] {
        assert_eq!(bot.ask("POST", APPROVE, body.clone()).0, 403, "{body}");
    }
    let of_bot = |row: &&Value| row["principal"] == "bot" && row["code"] == "E_ROLE_FORBIDDEN";
    assert_eq!(scene.rows().iter().filter(of_bot).count(), 3, "each try is a row");
    let known = ada.data("GET", &format!("{TOOL}/diff"), Value::Null)["tool"]["known"].clone();
    let (one, other) = (&known[0]["fingerprint"], &known[1]["fingerprint"]);
    for (status, body) in [
        (409, json!({"known": true, "fingerprints": [one]})),
        (409, json!({"known": true, "fingerprints": [one, other, "0".repeat(64)]})),
        (409, json!({"known": true, "fingerprints": []})),
        (400, json!({"known": true, "fingerprints": ["x"]})),
        (400, json!({"known": true, "fingerprint": one})),
        (400, json!({"known": true, "only": true})),
        (400, json!({"fingerprints": [one, other]})),
        (400, json!({"known": "yes"})),
        (409, json!({"only": true, "fingerprint": "0".repeat(64)})),
    ] {
        assert_eq!(ada.ask("POST", APPROVE, body.clone()).0, status, "{body}");
    }
    assert_eq!(scene.call(&line, "call_tool_read", READ).code(), Some("E_TOOL_CHANGED"), "nothing happened");
    // A tool that was accepted once has no set, and one that is as it was has nothing to end.
    assert_eq!(ada.ask("POST", "/tools/notes:put_note/approve", json!({"known": true})).0, 400);
    assert_eq!(ada.ask("POST", "/tools/notes:put_note/approve", json!({"only": true})).0, 409);
    scene.finish(vec![line]);
}

#[test]
fn attack_a_plan_made_on_one_member_does_not_run_on_another() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        lists(&mut scene, &line, "{}");
        lists(&mut scene, &line, r#"{"change":"save_note"}"#);
        scene.accept("notes:save_note");
        accept_set(&scene, "notes:save_note");
        // Both members run as they are.
        for state in ["{}", r#"{"change":"save_note"}"#] {
            lists(&mut scene, &line, state);
            let token = hold(&mut scene, &line, "save_note");
            let ran = scene.call(&line, "call_tool_write", &write("save_note", &token));
            assert!(ran.ran(), "{way:?} {}", ran.text);
        }
        scene.reached();
        let token = hold(&mut scene, &line, "save_note");
        scene.state("{}");
        let refused = scene.call(&line, "call_tool_write", &write("save_note", &token));
        assert_eq!(refused.code(), Some("E_CONFIRM_TOKEN_MISMATCH"), "{way:?} {}", refused.text);
        let details = &refused.envelope().unwrap()["errors"][0]["details"];
        assert_eq!(details["reason_code"], "tool_changed", "{way:?} {}", refused.text);
        // The same call on the other member is another plan.
        let other = hold(&mut scene, &line, "save_note");
        assert_ne!(token, other);
        assert_eq!(scene.reached().len(), 0, "{way:?}");
        assert!(scene.call(&line, "call_tool_write", &write("save_note", &other)).ran());
        scene.finish(vec![line]);
    });
}
