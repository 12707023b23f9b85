//! The memory's inbox over REST: agents propose over MCP, people see similar records and decide; an agent's
//! credential gets nothing there, and every attempt is an audit row.

use countersign_policy::role::Role;
use serde_json::{Value, json};

use super::client::{Host, Way};
use super::scene::Scene;

const CONFIG: &str = "[gateway]\nmode = \"execute\"\n[upstreams.memory]\nkind = \"memory\"\n";

/// Status and answer of a request with this credential.
fn rest(scene: &Scene, method: &str, path: &str, secret: Option<&str>, body: &Value) -> (u16, Value) {
    let mut headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    headers.extend(secret.map(|secret| ("Authorization".to_owned(), format!("Bearer {secret}"))));
    let path = format!("/api/v1{path}");
    let body = if method == "GET" { String::new() } else { body.to_string() };
    let answer = super::http::send(&scene.gateway().address(), method, &path, &headers, &body).unwrap();
    let status = answer.status;
    (status, serde_json::from_str(&answer.text().unwrap()).unwrap_or_default())
}

#[test]
fn people_decide_proposals_over_rest_and_agents_do_not() {
    let mut scene = Scene::open(Way::HttpModern, CONFIG);
    let line = scene.line(Host::None);
    let mut ids = Vec::new();
    for content in ["Retry failed payments twice", "Buttons are blue", "Use tabs", "Use four spaces"] {
        let call = json!({
            "name": "memory:store",
            "args": {"content": content, "as": "decision", "evidence": {"explanation": "seen in the log"}},
            "intent": {"operation_type": "write"},
        });
        let stored = scene.call(&line, "call_tool_write", &call.to_string());
        ids.push(stored.data()["proposal_id"].as_str().unwrap().to_owned());
    }
    let (human, agent) =
        (scene.credential("ada", Role::Human, "{}"), scene.credential("bot", Role::Agent, "{}"));
    let approve = format!("/memory/proposals/{}/approve", ids[0]);
    for (method, path) in [("GET", "/memory/proposals"), ("POST", approve.as_str())] {
        assert_eq!(rest(&scene, method, path, None, &json!({})).0, 401);
        assert_eq!(rest(&scene, method, path, Some(&agent), &json!({})).0, 403, "an agent decides nothing");
    }
    let (status, listed) = rest(&scene, "GET", "/memory/proposals", Some(&human), &json!({}));
    assert_eq!((status, listed["data"]["proposals"].as_array().unwrap().len()), (200, 4), "{listed}");
    assert_eq!(listed["data"]["proposals"][3]["evidence"]["explanation"], "seen in the log");
    let (status, decided) = rest(&scene, "POST", &approve, Some(&human), &json!({"note": "yes"}));
    assert_eq!(
        (status, &decided["data"]["status"], &decided["data"]["by"]),
        (200, &json!("approved"), &json!("ada"))
    );
    let (status, again) = rest(&scene, "POST", &approve, Some(&human), &json!({}));
    assert_eq!((status, &again["error"]["code"]), (409, &json!("E_PROPOSAL_DECIDED")));
    assert_eq!(rest(&scene, "POST", "/memory/proposals/prop_none/reject", Some(&human), &json!({})).0, 404);
    assert_eq!(rest(&scene, "GET", "/memory/proposals?status=maybe", Some(&human), &json!({})).0, 400);
    // What contradicts what is true stands beside it.
    let call = json!({
        "name": "memory:store",
        "args": {"content": "Never retry failed payments", "as": "decision"},
        "intent": {"operation_type": "write"},
    });
    let stored = scene.call(&line, "call_tool_write", &call.to_string());
    let path = format!("/memory/proposals/{}", stored.data()["proposal_id"].as_str().unwrap());
    let (_, shown) = rest(&scene, "GET", &path, Some(&human), &json!({}));
    assert_eq!(shown["data"]["proposal"]["contradictions"][0]["id"], decided["data"]["id"], "{shown}");
    assert_eq!(shown["data"]["proposal"]["similar"][0]["id"], decided["data"]["id"]);
    // A person may reword; a burst is decided one by one.
    let reworded = json!({"content": "Buttons are green"});
    rest(&scene, "POST", &format!("/memory/proposals/{}/approve", ids[1]), Some(&human), &reworded);
    let (_, kept) = rest(&scene, "GET", &format!("/memory/proposals/{}", ids[1]), Some(&human), &json!({}));
    let kept = &kept["data"]["proposal"];
    assert_eq!(
        (&kept["content"], &kept["reworded"]),
        (&json!("Buttons are blue"), &json!("Buttons are green"))
    );
    let burst = json!({"decisions": [
        {"proposal_id": ids[2], "decision": "reject", "note": "no"},
        {"proposal_id": ids[3], "decision": "approve"},
        {"proposal_id": ids[0], "decision": "reject"},
    ]});
    let (_, results) = rest(&scene, "POST", "/memory/decide", Some(&human), &burst);
    let results: Vec<&Value> =
        results["data"]["results"].as_array().unwrap().iter().map(|one| &one["success"]).collect();
    assert_eq!(results, [&json!(true), &json!(true), &json!(false)]);
    let audit = scene.world.run(&["memory", "audit", "--json"]).envelope();
    let rows: Vec<&str> = audit["data"]["audit"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["action"].as_str().unwrap())
        .collect();
    assert_eq!(rows, ["approve", "reject", "approve", "approve"], "one row for each decision");
    let denied = scene
        .rows()
        .into_iter()
        .filter(|row| row["principal"] == "bot" && row["status"] == "refused")
        .count();
    assert_eq!(denied, 2, "each try with an agent's credential is a row");
    scene.finish(vec![line]);
}
