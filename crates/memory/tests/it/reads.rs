//! What agents read: only what a person stands behind, by scope, bounded, and the same every time.

use countersign_store::memory::content_hash;
use serde_json::{Value, json};

use crate::world::{On, World, agent, at, on_both, person};

on_both!(
    proposed_and_rejected_records_never_appear_in_any_agent_read,
    the_nearest_place_comes_first,
    answers_are_bounded_and_the_same_every_time,
    a_route_has_its_scores_and_every_fetch_ref_resolves,
    exploring_stays_in_the_project,
    storing_says_how_sure_it_is_and_answers_duplicates_cleanly,
    two_agents_on_one_path_are_told,
    a_reviewer_sees_evidence_similar_records_and_contradictions,
    expiry_runs_by_itself
);

const ROOMS: &str = "[[rooms]]\nname = \"auth\"\nsummary = \"Sign-in and session tokens\"\nfiles = [\"src/auth/**\"]\n\
     entry_points = [\"src/auth/mod.rs\"]\n\n[[rooms]]\nname = \"billing\"\nsummary = \"Invoices\"\nfiles = [\"src/billing/**\"]\n";

async fn approved(world: &World, arguments: Value) -> String {
    world.ok(&person(), "store_direct", arguments).await["id"].as_str().unwrap().to_owned()
}

fn contents(data: &Value) -> Vec<&str> {
    data["records"].as_array().unwrap().iter().map(|record| record["content"].as_str().unwrap()).collect()
}

/// Every agent read, with the id put wherever an id goes: what is proposed or rejected is in none of them.
async fn proposed_and_rejected_records_never_appear_in_any_agent_read(on: On) {
    let world = World::on(on).await;
    world.write("rooms.toml", ROOMS).write("src/auth/mod.rs", "fn sign_in() {}\n");
    let mut hidden = Vec::new();
    for (kind, secret) in
        [("decision", "zebra quagga"), ("learning", "zebra okapi"), ("decision", "zebra tapir")]
    {
        let arguments =
            json!({"content": secret, "as": kind, "scope": "file", "scopePath": "src/auth/mod.rs"});
        let data = world.ok(&agent(), "store", arguments).await;
        hidden.push((data["proposal_id"].as_str().unwrap().to_owned(), secret));
    }
    world.ok(&person(), "reject", json!({"proposalId": hidden[2].0})).await;
    let ok = approved(&world, json!({"content": "zebra crossing", "as": "decision"})).await;
    for (id, _) in &hidden {
        for tool in ["recall", "recall_decisions", "recall_ideas"] {
            assert_eq!(world.no(&agent(), tool, json!({"id": id})).await.0, "E_NOT_FOUND", "{tool} {id}");
        }
    }
    let reads = [
        ("recall", json!({"query": "zebra quagga okapi tapir"})),
        ("recall", json!({"scope": "file", "scopePath": "src/auth/mod.rs"})),
        ("recall_decisions", json!({"query": "zebra"})),
        ("recall_decisions", json!({"limit": 50})),
        ("recall_ideas", json!({"query": "zebra"})),
        ("brief", json!({})),
        ("brief", json!({"file": "src/auth/mod.rs"})),
        ("brief_file", json!({"path": "src/auth/mod.rs"})),
        ("explore", json!({"query": "zebra quagga"})),
        ("explore_rooms", json!({"room": "auth"})),
        ("explore_file", json!({"file": "src/auth/mod.rs"})),
        ("explore_context", json!({"query": "zebra quagga okapi"})),
        (
            "get_route",
            json!({"intent": "zebra quagga okapi tapir", "scope": "file", "scopePath": "src/auth/mod.rs"}),
        ),
    ];
    for (tool, arguments) in reads {
        let text = world.ok(&agent(), tool, arguments.clone()).await.to_string();
        for (id, secret) in &hidden {
            let word = secret.split(' ').nth(1).unwrap();
            assert!(!text.contains(id) && !text.contains(word), "{tool} {arguments}: {text}");
        }
        assert!(!text.contains("\"proposed\""), "{tool}: {text}");
    }
    assert_eq!(
        world.ok(&agent(), "recall", json!({"query": "zebra"})).await["records"][0]["id"],
        ok.as_str()
    );
    // A proposal cannot smuggle itself in as an idea's kind, and what is superseded is gone from lists.
    let newer = approved(&world, json!({"content": "zebra crossings are striped", "as": "decision"})).await;
    world
        .ok(&person(), "recall_link", json!({"sourceId": newer, "targetId": ok, "relation": "supersedes"}))
        .await;
    let data = world.ok(&agent(), "recall", json!({"query": "zebra"})).await;
    assert_eq!(contents(&data), ["zebra crossings are striped"]);
}

async fn the_nearest_place_comes_first(on: On) {
    let world = World::on(on).await;
    world.write("rooms.toml", ROOMS);
    approved(&world, json!({"content": "tokens live an hour", "as": "decision", "scope": "file", "scopePath": "src/auth/token.rs"})).await;
    approved(
        &world,
        json!({"content": "tokens are opaque", "as": "decision", "scope": "room", "scopePath": "auth"}),
    )
    .await;
    approved(&world, json!({"content": "tokens are never logged", "as": "decision"})).await;
    approved(
        &world,
        json!({"content": "tokens of invoices", "as": "decision", "scope": "room", "scopePath": "billing"}),
    )
    .await;
    let chain = ["tokens live an hour", "tokens are opaque", "tokens are never logged"];
    for arguments in [
        json!({"scopePath": "./src//auth/token.rs"}),
        json!({"scopePath": "src/auth/token.rs", "query": "tokens"}),
    ] {
        let data = world.ok(&agent(), "recall", arguments).await;
        assert_eq!(contents(&data), chain);
    }
    let data = world.ok(&agent(), "recall", json!({"scope": "room", "scopePath": "auth"})).await;
    assert_eq!(contents(&data), chain[1..]);
    let data = world.ok(&agent(), "recall", json!({"scope": "palace"})).await;
    assert_eq!(contents(&data), chain[2..]);
    let data = world.ok(&agent(), "recall", json!({"query": "tokens", "limit": 50})).await;
    assert_eq!(contents(&data).len(), 4, "everywhere, if no place is named");
    let brief = world.ok(&agent(), "brief_file", json!({"path": "src/auth/token.rs"})).await;
    let brief: Vec<&str> =
        brief["decisions"].as_array().unwrap().iter().map(|one| one["content"].as_str().unwrap()).collect();
    assert_eq!(brief, chain);
}

async fn answers_are_bounded_and_the_same_every_time(on: On) {
    let world = World::on(on).await;
    world.write("rooms.toml", ROOMS).write("src/auth/mod.rs", "fn sign_in() {}\n");
    for number in 0..30 {
        let content = format!("token rule {number} {}", "x".repeat(600));
        let kind = if number % 3 == 0 { "learning" } else { "decision" };
        approved(&world, json!({"content": content, "as": kind, "rationale": "session security"})).await;
    }
    let reads = [
        ("recall", json!({"query": "token session"})),
        ("recall", json!({})),
        ("brief", json!({})),
        ("get_route", json!({"intent": "change the sign-in token session"})),
        ("explore_context", json!({"query": "sign in token"})),
    ];
    for (tool, arguments) in reads {
        let first = world.ok(&agent(), tool, arguments.clone()).await;
        for _ in 0..3 {
            assert_eq!(world.ok(&agent(), tool, arguments.clone()).await, first, "{tool}");
        }
        for list in ["records", "decisions", "learnings", "nodes"] {
            let items = first[list].as_array().cloned().unwrap_or_default();
            assert!(items.len() <= 10, "{tool} {list}: {}", items.len());
            for content in items.iter().filter_map(|item| item["content"].as_str()) {
                assert!(content.chars().count() <= 500 && content.ends_with("..."), "{tool}");
            }
        }
    }
    let route = world.ok(&agent(), "get_route", json!({"intent": "token session"})).await;
    let id = route["nodes"].as_array().unwrap().iter().find(|node| node["kind"] == "decision").unwrap()["id"]
        .clone();
    let whole = world.ok(&agent(), "recall_decisions", json!({"id": id})).await;
    assert!(whole["record"]["content"].as_str().unwrap().len() > 600, "by id it comes whole");
}

/// Scores are those of the rule, and every `fetch_ref` leads to what it names.
async fn a_route_has_its_scores_and_every_fetch_ref_resolves(on: On) {
    let world = World::on(on).await;
    world
        .write("rooms.toml", ROOMS)
        .write("src/auth/mod.rs", "fn sign_in() {}\n")
        .write("src/auth/x y.rs", "// x\n");
    let decision = approved(
        &world,
        json!({"content": "auth tokens are opaque", "as": "decision", "rationale": "tokens leak"}),
    )
    .await;
    let learning =
        approved(&world, json!({"content": "tokens expire early", "as": "learning", "confidence": 0.9}))
            .await;
    approved(&world, json!({"content": "tokens maybe", "as": "learning", "confidence": 0.5})).await;
    let arguments = json!({"intent": "auth tokens", "scope": "file", "scopePath": "src/auth/x y.rs"});
    let route = world.ok(&agent(), "get_route", arguments).await;
    let nodes: Vec<(&str, &str, f64)> = route["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            (node["kind"].as_str().unwrap(), node["id"].as_str().unwrap(), node["score"].as_f64().unwrap())
        })
        .collect();
    assert_eq!(
        nodes,
        [
            ("decision", decision.as_str(), 1.9),
            ("room", "auth", 1.5),
            ("file", "src/auth/mod.rs", 1.2),
            ("learning", learning.as_str(), 0.96),
            ("file", "src/auth/x y.rs", 0.5),
        ]
    );
    assert_eq!(route["meta"], json!({"rule_version": "v1.0", "node_count": 5}));
    for (at, node) in route["nodes"].as_array().unwrap().iter().enumerate() {
        assert_eq!(node["order"], at + 1);
        let text = node["fetch_ref"].as_str().unwrap();
        let (tool, arguments) = match text.split_once(" --") {
            None => (text, json!({})),
            Some((tool, rest)) => {
                let (name, value) = rest.split_once(' ').unwrap();
                (tool, json!({name: value}))
            }
        };
        let fetched = world.ok(&agent(), tool, arguments).await.to_string();
        assert!(fetched.contains(node["id"].as_str().unwrap()), "{text}: {fetched}");
        let fetch = &node["fetch"];
        world.ok(&agent(), fetch["tool"].as_str().unwrap(), fetch["arguments"].clone()).await;
    }
    assert_eq!(
        world.no(&agent(), "get_route", json!({"intent": "x", "scope": "file"})).await.0,
        "E_ARGUMENTS_INVALID"
    );
    assert_eq!(world.no(&agent(), "get_route", json!({})).await.1, "intent is required");
}

async fn exploring_stays_in_the_project(on: On) {
    let world = World::on(on).await;
    world
        .write("rooms.toml", ROOMS)
        .write("src/auth/mod.rs", "// sign-in\nfn sign_in() {}\n")
        .write(".env", "KEY=1\n");
    std::fs::write(world.room.path().join("outside.txt"), "secret").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(
        world.room.path().join("outside.txt"),
        world.room.path().join("project/link.txt"),
    )
    .unwrap();
    for file in ["../outside.txt", "/etc/passwd", "link.txt", ".env", "nowhere.rs", "src"] {
        let (code, _) = world.no(&agent(), "explore_file", json!({"file": file})).await;
        assert!(["E_ARGUMENTS_INVALID", "E_NOT_FOUND"].contains(&code.as_str()), "{file}: {code}");
    }
    let file = world.ok(&agent(), "explore_file", json!({"file": "src/auth/mod.rs"})).await;
    assert_eq!(
        (&file["file"]["room"], &file["file"]["outline"]),
        (&json!("auth"), &json!(["fn sign_in() {}"]))
    );
    let found = world.ok(&agent(), "explore", json!({"query": "sign in"})).await;
    assert_eq!(found["rooms"][0]["name"], "auth");
    assert_eq!(
        (&found["files"][0]["path"], &found["files"][0]["line"]),
        (&json!("src/auth/mod.rs"), &json!(1))
    );
    let room = world.ok(&agent(), "explore_rooms", json!({"room": "auth"})).await;
    assert_eq!(room["room"]["paths"], json!(["src/auth/mod.rs"]));
    assert_eq!(world.no(&agent(), "explore_rooms", json!({"room": "cellar"})).await.0, "E_NOT_FOUND");
    world.write("rooms.toml", "rooms = 3\n");
    let broken = world.at(at(10), &agent(), "brief", json!({})).await;
    assert!(broken["warnings"][0].as_str().unwrap().contains("rooms.toml"), "{broken}");
}

async fn storing_says_how_sure_it_is_and_answers_duplicates_cleanly(on: On) {
    let world = World::on(on).await;
    let data = world.ok(&agent(), "store", json!({"content": "Decision: we use tabs"})).await;
    assert_eq!((&data["as"], &data["classification"]["confidence"]), (&json!("decision"), &json!(0.95)));
    let data = world.ok(&agent(), "store", json!({"content": "We use spaces", "as": "decision"})).await;
    assert_eq!(data["classification"], json!({"as": "decision", "confidence": 1.0, "signals": ["explicit"]}));
    let idea = world.ok(&agent(), "store", json!({"content": "blue buttons"})).await;
    assert_eq!((&idea["as"], &idea["classification"]["confidence"]), (&json!("idea"), &json!(0.3)));
    let ideas = world.ok(&agent(), "recall_ideas", json!({"query": "buttons"})).await;
    assert_eq!((&ideas["records"][0]["id"], &ideas["records"][0]["authority"]), (&idea["id"], &Value::Null));
    let again = json!({"content": " WE use\tspaces\n", "as": "decision"});
    let refused = world.at(at(10), &agent(), "store", again.clone()).await;
    assert_eq!(refused["errors"][0]["code"], "E_DUPLICATE");
    assert_eq!(refused["errors"][0]["details"]["existing_id"], data["proposal_id"]);
    world.ok(&person(), "reject", json!({"proposalId": data["proposal_id"], "note": "tabs it is"})).await;
    let anew = world.at(at(11), &agent(), "store", again).await;
    assert_eq!((&anew["ok"], &anew["data"]["rejected_before"]["note"]), (&json!(true), &json!("tabs it is")));
    assert_eq!(anew["warnings"][0], "the same text was rejected before by ada: tabs it is");
    assert_eq!(
        world.no(&agent(), "store", json!({"content": "x", "direct": true})).await.0,
        "E_ARGUMENTS_INVALID"
    );
    assert_eq!(world.no(&agent(), "store", json!({})).await.1, "content is required");
    assert_eq!(content_hash("abc").len(), 64);
}

async fn two_agents_on_one_path_are_told(on: On) {
    let world = World::on(on).await;
    let mut other = agent();
    other.principal = "agent-2".into();
    let first = world.ok(&agent(), "session_start", json!({"agentType": "codex", "goal": "tokens"})).await;
    let second = world.ok(&other, "session_start", json!({"agentType": "claude"})).await;
    let edit = |session: &Value| json!({"sessionId": session["session_id"], "kind": "file_edit", "target": "src/a.rs"});
    world.ok(&agent(), "session_log", edit(&first)).await;
    let mut spelled = edit(&second);
    spelled["target"] = "./src//a.rs".into();
    let told = world.at(at(10), &other, "session_log", spelled).await;
    assert_eq!(told["data"]["conflicts"][0]["session_id"], first["session_id"]);
    assert!(told["warnings"][0].as_str().unwrap().contains("codex"), "{told}");
    let brief = world.at(at(10), &agent(), "brief_file", json!({"path": "src/a.rs"})).await;
    assert_eq!(brief["warnings"].as_array().unwrap().len(), 2, "both who edit are named");
    assert_eq!(world.no(&agent(), "session_log", edit(&second)).await.0, "E_NOT_FOUND", "another's session");
    world.ok(&agent(), "session_end", json!({"sessionId": first["session_id"], "outcome": "partial"})).await;
    assert_eq!(world.no(&agent(), "session_log", edit(&first)).await.0, "E_NOT_FOUND");
    let kind = json!({"sessionId": first["session_id"], "kind": "dance", "target": "x"});
    assert_eq!(world.no(&agent(), "session_log", kind).await.0, "E_ARGUMENTS_INVALID");
}

async fn a_reviewer_sees_evidence_similar_records_and_contradictions(on: On) {
    let world = World::on(on).await;
    let pro = approved(&world, json!({"content": "Retry failed payments twice", "as": "decision"})).await;
    approved(&world, json!({"content": "Buttons are blue", "as": "decision"})).await;
    let arguments = json!({"content": "Never retry failed payments", "as": "decision", "evidence": {"explanation": "double charge"}});
    world.ok(&agent(), "store", arguments).await;
    let reviews = countersign_memory::inbox::pending(&world.memory, 10, at(11)).await.unwrap();
    assert_eq!(reviews.len(), 1);
    let shown = countersign_memory::inbox::json(&reviews[0]);
    assert_eq!(shown["evidence"]["explanation"], "double charge");
    assert_eq!(shown["similar"][0]["id"], pro.as_str());
    assert_eq!(shown["similar"].as_array().unwrap().len(), 1);
    assert_eq!(shown["contradictions"][0]["id"], pro.as_str());
    assert!(shown["contradictions"][0]["why"].as_str().unwrap().contains("never"));
}

async fn expiry_runs_by_itself(on: On) {
    let world = World::on(on).await;
    let data = world.ok(&agent(), "store", json!({"content": "use tabs", "as": "decision"})).await;
    let late = at(10).checked_add(countersign_memory::PROPOSAL_LIFE).unwrap();
    // Any call will do: nobody has to ask for it.
    world.at(late, &agent(), "brief", json!({})).await;
    let id = data["proposal_id"].as_str().unwrap();
    let kept = world.memory.store().proposal(id, at(10)).await.unwrap().unwrap();
    assert_eq!(kept.status.as_str(), "expired", "in the table, not only by the clock");
    let anew = world.at(late, &agent(), "store", json!({"content": "use tabs", "as": "decision"})).await;
    assert_eq!(anew["ok"], true, "{anew}");
}
