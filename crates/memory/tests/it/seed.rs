//! The seed's tests and acceptance criteria, by their names.

use countersign_config::{self as config, Source};
use countersign_memory::tools;
use countersign_policy::effect::Effect;
use countersign_policy::record::{ActorRole, RowStatus};
use countersign_policy::role::Role;
use countersign_store::LedgerFilter;
use countersign_store::memory::{AuditFilter, content_hash};
use serde_json::{Value, json};

use crate::world::{On, World, agent, at, on_both, person, said};

on_both!(
    test_mcp_tools_list_filtering_by_mode,
    test_mcp_tool_call_mode_enforcement,
    test_mcp_store_direct_human_mode,
    test_mcp_approve_reject_human_mode,
    test_mcp_server_mode_getter,
    test_add_audit_log_and_get_audit_logs,
    a_person_may_reword_and_both_texts_are_kept
);

/// What the seed's matrix says is for people only.
const ADMIN: [&str; 7] =
    ["store_direct", "list_proposals", "approve", "reject", "recall_outcome", "recall_link", "recall_unlink"];
/// What it says is for agents as well.
const OPEN: [&str; 14] = [
    "store",
    "recall",
    "recall_decisions",
    "recall_ideas",
    "brief",
    "brief_file",
    "explore",
    "explore_rooms",
    "explore_file",
    "explore_context",
    "get_route",
    "session_start",
    "session_log",
    "session_end",
];

#[test]
fn test_mcp_mode_enum_validation() {
    assert_eq!("agent".parse(), Ok(Role::Agent));
    assert_eq!("human".parse(), Ok(Role::Human));
    for bad in ["", "Agent", "admin", "human "] {
        assert!(bad.parse::<Role>().is_err(), "{bad}");
    }
}

/// Every tool has a class, and the policy lets agents call exactly those: a tool without one fails here.
#[test]
fn test_mcp_admin_only_tools_filtering() {
    let page = "[upstreams.memory]\nkind = \"memory\"\n";
    let rules = config::parse(&[Source::new("t.toml", page)]).unwrap().rules;
    let ruled = |tool: &str| {
        let matching = rules.matching(&format!("memory:{tool}").parse().unwrap());
        let all: Vec<_> = matching.into_iter().map(|index| &rules.rules()[index]).collect();
        (all.iter().find_map(|rule| rule.role).unwrap(), all.iter().find_map(|rule| rule.effect).unwrap())
    };
    let mut seen = Vec::new();
    for definition in tools::definitions() {
        let name = definition["name"].as_str().unwrap().to_owned();
        let class = tools::class(&name).expect("a tool without a class");
        assert_eq!((class.role, class.effect), ruled(&name), "{name}: the law and the table agree");
        assert_eq!(class.role == Role::Human, ADMIN.contains(&name.as_str()), "{name}");
        assert_eq!(definition["annotations"]["readOnlyHint"], class.effect == Effect::Read, "{name}");
        assert_eq!(definition["inputSchema"]["type"], "object", "{name}");
        seen.push(name);
    }
    let mut expected: Vec<&str> = ADMIN.iter().chain(&OPEN).copied().collect();
    seen.sort();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    assert_eq!(ruled("brand_new_tool").0, Role::Human, "until someone says otherwise");
}

async fn test_mcp_tools_list_filtering_by_mode(on: On) {
    let world = World::on(on).await;
    let names = async |role| -> Vec<String> {
        let listed = world.server(role).await.request("tools/list", &json!({})).await.unwrap();
        let listed: Value = serde_json::from_str(listed.get()).unwrap();
        let all = listed["tools"].as_array().unwrap();
        all.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let (for_agents, for_people) = (names(Role::Agent).await, names(Role::Human).await);
    assert!(ADMIN.iter().all(|tool| !for_agents.contains(&(*tool).to_owned())), "{for_agents:?}");
    assert!(ADMIN.iter().all(|tool| for_people.contains(&(*tool).to_owned())), "{for_people:?}");
    assert_eq!((for_agents.len(), for_people.len()), (OPEN.len(), OPEN.len() + ADMIN.len()));
}

/// Acceptance: an agent that calls `store_direct` gets an explicit error, and the attempt is in the ledger.
async fn test_mcp_tool_call_mode_enforcement(on: On) {
    let world = World::on(on).await;
    let line = world.server(Role::Agent).await;
    for tool in ADMIN {
        let denied =
            said(&line, tool, json!({"content": "x", "as": "decision", "role": "human", "mode": "human"}))
                .await;
        assert_eq!(denied.unwrap_err(), format!("Tool \"{tool}\" not available in agent mode"));
    }
    assert!(said(&line, "drop_everything", json!({})).await.unwrap_err().contains("no tool"));
    let refused = LedgerFilter { status: Some(RowStatus::Refused), ..LedgerFilter::default() };
    let rows = world.rows(refused).await;
    assert_eq!(rows.len(), ADMIN.len() + 1, "denied calls are rows");
    assert!(rows.iter().skip(1).all(|row| row.code.as_deref() == Some("E_ROLE_FORBIDDEN")));
    assert!(rows.iter().all(|row| row.role == Some(ActorRole::Agent)));
    // Even past the gate.
    let (code, message) = world.no(&agent(), "approve", json!({"proposalId": "prop_x"})).await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("E_ROLE_FORBIDDEN", "Tool \"approve\" not available in agent mode")
    );
    assert!(world.memory.store().memory_audit(AuditFilter::default()).await.unwrap().is_empty());
}

/// Acceptance: direct records have `authority=approved` and an empty `promoted_from_proposal_id`; always audited.
async fn test_mcp_store_direct_human_mode(on: On) {
    let world = World::on(on).await;
    let line = world.server(Role::Human).await;
    let arguments = json!({"content": "Releases are signed", "as": "decision", "scope": "room", "scopePath": "ci", "actorId": "ada"});
    let answer = said(&line, "store_direct", arguments).await.unwrap();
    assert_eq!(answer["ok"], true, "{answer}");
    let id = answer["data"]["id"].as_str().unwrap();
    assert_eq!(answer["data"]["message"], format!("✅ decision created: {id} (direct write, audited)"));
    let read = said(&world.server(Role::Agent).await, "recall_decisions", json!({"id": id})).await.unwrap();
    let record = &read["data"]["record"];
    assert_eq!(
        (&record["authority"], &record["promoted_from_proposal_id"]),
        (&json!("approved"), &json!(""))
    );
    assert_eq!((&record["source"], &record["scope_path"]), (&json!("human"), &json!("ci")));
    let audit = world.memory.store().memory_audit(AuditFilter::default()).await.unwrap();
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].action.as_str(), audit[0].actor_id.as_str()), ("direct_write", "ada"));
    assert_eq!((audit[0].entity_type.as_str(), audit[0].entity_id.as_str()), ("decision", id));
    assert_eq!(audit[0].metadata["content_hash"], content_hash("Releases are signed"));
    let learning = world.ok(&person(), "store_direct", json!({"content": "x y z", "as": "learning"})).await;
    let read = world.ok(&agent(), "recall", json!({"id": learning["id"]})).await;
    assert_eq!(read["record"]["confidence"], 0.7);
    let check = async |arguments, expect: &str| {
        assert_eq!(
            world.no(&person(), "store_direct", arguments).await,
            ("E_ARGUMENTS_INVALID".into(), expect.into())
        );
    };
    check(json!({"as": "decision"}), "content is required").await;
    check(json!({"content": "x"}), "as must be 'decision' or 'learning'").await;
    check(json!({"content": "x", "as": "idea"}), "as must be 'decision' or 'learning'").await;
    assert_eq!(
        world.memory.store().memory_audit(AuditFilter::default()).await.unwrap().len(),
        2,
        "nothing else"
    );
}

async fn test_mcp_approve_reject_human_mode(on: On) {
    let world = World::on(on).await;
    let propose = async |content: &str| {
        let data = world.ok(&agent(), "store", json!({"content": content, "as": "decision"})).await;
        data["proposal_id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (propose("use tabs").await, propose("use spaces").await);
    let approved = world
        .ok(&person(), "approve", json!({"proposalId": first, "by": "ada", "note": "say \"yes\""}))
        .await;
    let record = approved["id"].as_str().unwrap();
    assert_eq!(approved["message"], format!("✅ Approved: {record}"));
    let rejected = world.ok(&person(), "reject", json!({"proposalId": second, "note": "no"})).await;
    assert_eq!(rejected["message"], "❌ Proposal rejected");
    let read = world.ok(&agent(), "recall_decisions", json!({"id": record})).await;
    assert_eq!(read["record"]["promoted_from_proposal_id"], first.as_str());
    for (tool, id) in [("approve", &first), ("reject", &first), ("approve", &second)] {
        assert_eq!(world.no(&person(), tool, json!({"proposalId": id})).await.0, "E_PROPOSAL_DECIDED");
    }
    let missing = world.no(&person(), "approve", json!({"proposalId": ""})).await;
    assert_eq!(missing, ("E_ARGUMENTS_INVALID".into(), "proposalId is required".into()));
    assert_eq!(world.no(&person(), "reject", json!({"proposalId": "prop_none"})).await.0, "E_NOT_FOUND");
    let audit = world.memory.store().memory_audit(AuditFilter::default()).await.unwrap();
    let rows: Vec<_> = audit
        .iter()
        .map(|row| (row.action.as_str(), row.entity_id.as_str(), row.actor_id.as_str()))
        .collect();
    assert_eq!(rows, [("reject", second.as_str(), "ada"), ("approve", first.as_str(), "ada")]);
    assert_eq!(audit[0].metadata["reason"], "no");
    assert_eq!(audit[1].metadata["promoted_to"], record);
    assert_eq!(audit[1].metadata["note"], "say \"yes\"");
}

async fn test_mcp_server_mode_getter(on: On) {
    let world = World::on(on).await;
    assert_eq!(world.server(Role::Agent).await.role(), Role::Agent);
    assert_eq!(world.server(Role::Human).await.role(), Role::Human);
}

async fn test_add_audit_log_and_get_audit_logs(on: On) {
    let world = World::on(on).await;
    let store = world.memory.store();
    let mut ids = Vec::new();
    for (kind, content) in [("decision", "a b"), ("learning", "c d"), ("decision", "e f")] {
        let data = world.ok(&person(), "store_direct", json!({"content": content, "as": kind})).await;
        ids.push(data["id"].as_str().unwrap().to_owned());
    }
    let count = async |filter| store.memory_audit(filter).await.unwrap().len();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(count(AuditFilter { action: some("direct_write"), ..AuditFilter::default() }).await, 3);
    assert_eq!(count(AuditFilter { action: some("approve"), ..AuditFilter::default() }).await, 0);
    assert_eq!(count(AuditFilter { entity_type: some("decision"), ..AuditFilter::default() }).await, 2);
    assert_eq!(count(AuditFilter { limit: Some(1), ..AuditFilter::default() }).await, 1);
    let newest = store.memory_audit(AuditFilter::default()).await.unwrap();
    assert_eq!(newest[0].entity_id, ids[2], "newest first");
    // For one entity.
    let one = AuditFilter {
        entity_type: some("learning"),
        entity_id: Some(ids[1].clone()),
        ..AuditFilter::default()
    };
    assert_eq!(count(one).await, 1);
}

async fn a_person_may_reword_and_both_texts_are_kept(on: On) {
    let world = World::on(on).await;
    let data = world
        .ok(&agent(), "store", json!({"content": "use pg", "as": "learning", "rationale": "replicas"}))
        .await;
    let arguments = json!({"proposalId": data["proposal_id"], "content": "We use PostgreSQL"});
    let approved = world.ok(&person(), "approve", arguments).await;
    assert_eq!(
        (&approved["content"], &approved["proposed_content"]),
        (&json!("We use PostgreSQL"), &json!("use pg"))
    );
    let found = world.ok(&agent(), "recall", json!({"query": "postgresql replicas"})).await;
    assert_eq!(
        found["records"][0]["content"], "We use PostgreSQL",
        "found by the new words and the old reasons"
    );
    let id = data["proposal_id"].as_str().unwrap();
    let kept = world.memory.store().proposal(id, at(20)).await.unwrap().unwrap();
    assert_eq!((kept.body.content.as_str(), kept.reworded.as_deref()), ("use pg", Some("We use PostgreSQL")));
}
