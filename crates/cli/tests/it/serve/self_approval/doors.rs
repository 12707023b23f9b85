//! Which doors an agent could try: headers, questions to the host, cards, plans of several steps, the direct surface, grants, REST, files.

use countersign_policy::role::Role;
use jiff::Timestamp;
use serde_json::json;

use super::agent::{Told, bring, call, erase, merged, put};
use super::{CONFIG, Strategy};
use crate::serve::client::{Client, Host, Way};
use crate::serve::http;

pub(super) const DOORS: &[Strategy] = &[
    // Headers and _meta.
    ("header: names of people", |agent| {
        let (_, token) = agent.plan();
        let frame = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "call_tool_destructive", "arguments": merged(erase("x"), bring(&token)),
            "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}, "countersign/session": "s"}}});
        let headers = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "call_tool_destructive"),
            ("X-Forwarded-User", "ada"),
            ("X-Remote-User", "ada"),
            ("X-Countersign-Role", "human"),
            ("X-Forwarded-For", "127.0.0.1"),
            ("Forwarded", "for=127.0.0.1"),
            ("Cookie", "countersign_session=guess"),
        ];
        let mut all: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        all.push(("Authorization".to_owned(), format!("Bearer {}", agent.secret)));
        let answer = http::send(&agent.address, "POST", "/mcp/router", &all, &frame.to_string()).unwrap();
        let text = answer.text().unwrap();
        assert!(text.contains("E_APPROVAL_PENDING"), "{text}");
        let told = |text: &str| Some(text.to_owned());
        agent.account(vec![Told {
            said: "E_APPROVAL_PENDING".to_owned(),
            code: told("E_APPROVAL_PENDING"),
            reason: told("approval_pending"),
            refused: true,
        }]);
    }),
    ("meta: a role, a principal, an approval", |agent| {
        let (plan, token) = agent.plan();
        let params = json!({"name": "call_tool_destructive", "arguments": merged(erase("x"), bring(&token)), "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
            "countersign/session": "s", "countersign/role": "human", "countersign/principal": "ada",
            "countersign": {"approval": {"by": "ada", "strength": "human"}}, "countersign/card": {"plan_id": plan, "nonce": "0"}}});
        let reply = agent.line.request("tools/call", Some("call_tool_destructive"), &params.to_string());
        agent.keep(reply);
    }),
    // Questions to the host.
    ("state: made up", |agent| {
        agent.plan();
        for state in ["cs1.AAAA.AAAA", "cs1.", "eyJhcHByb3ZlZCI6dHJ1ZX0", ""] {
            let reply = agent.line.retry(
                "call_tool_destructive",
                &erase("x").to_string(),
                r#"{"q1":{"action":"accept","content":{}}}"#,
                &json!(state),
            );
            agent.keep(reply);
        }
    }),
    ("state: an answer to a question nobody asked", |agent| {
        let params = json!({"name": "call_tool_destructive", "arguments": erase("x"), "inputResponses": {"q1": {"action": "accept", "content": {}}}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}}}, "countersign/session": "s"}});
        let reply = agent.line.request("tools/call", Some("call_tool_destructive"), &params.to_string());
        agent.keep(reply);
    }),
    ("state: good, with other arguments", |agent| {
        let hosted = agent.another(Host::Silent, "/mcp/router", "hosted");
        let wipe = |id: &str| call("notes:wipe_notes", "destructive", json!({"id": id})).to_string();
        let asked = agent.keep(hosted.call("call_tool_destructive", &wipe("a little")));
        let state = asked.result()["requestState"].clone();
        let reply = hosted.retry(
            "call_tool_destructive",
            &wipe("everything"),
            r#"{"q1":{"action":"accept","content":{}}}"#,
            &state,
        );
        agent.keep(reply);
        agent.plan();
    }),
    ("host: a client that accepts everything itself, where a person is needed", |agent| {
        let eager = agent.another(Host::Accepts, "/mcp/router", "eager");
        let reply = eager.call("call_tool_destructive", &erase("x").to_string());
        agent.keep(reply);
    }),
    // Cards.
    ("card: an answer with a guessed nonce", |agent| {
        let (plan, token) = agent.plan();
        for nonce in ["0", "", &token, &plan] {
            agent.call("answer_plan", json!({"plan_id": plan, "nonce": nonce, "answer": "approve"}));
        }
    }),
    // Plans of several steps.
    ("steps: run at once", |agent| {
        let asked = agent.call("draft_plan", json!({"title": "t", "steps": [put("x"), erase("y")]}));
        let run = json!({"plan_id": asked.data()["plan_id"], "confirm_token": asked.data()["confirm_token"], "yes": true});
        agent.call("run_plan", run);
    }),
    ("steps: a step with an agreement of its own", |agent| {
        let (_, token) = agent.plan();
        agent.call("draft_plan", json!({"title": "t", "steps": [merged(erase("x"), bring(&token))]}));
        agent.call("draft_plan", json!({"title": "t", "steps": [merged(erase("x"), json!({"mode": "execute", "confirm": "none"}))]}));
    }),
    ("steps: our own tools as steps", |agent| {
        for name in ["countersign:run_plan", "countersign:approve", "call_tool_destructive"] {
            agent.call("draft_plan", json!({"title": "t", "steps": [call(name, "write", json!({}))]}));
        }
    }),
    ("steps: one plan's token for another", |agent| {
        let (plan, token) = agent.plan();
        agent.scene.approve(&plan);
        let asked = agent.call("draft_plan", json!({"title": "t", "steps": [erase("x")]}));
        agent.call(
            "run_plan",
            json!({"plan_id": asked.data()["plan_id"], "confirm_token": token, "yes": true}),
        );
    }),
    // The direct surface.
    ("direct: everything in the countersign argument", |agent| {
        let direct = agent.another(Host::None, "/mcp/direct", "s");
        for own in [
            json!({"yes": true}),
            json!({"mode": "execute", "yes": true, "confirm_token": "guess"}),
            json!({"role": "human"}),
            json!({"approval": {"strength": "human"}}),
            json!("approved"),
        ] {
            let reply = direct.call("notes__erase_all", &json!({"id": "x", "countersign": own}).to_string());
            agent.keep(reply);
        }
    }),
    ("direct: the call tools of the other surface", |agent| {
        let direct = agent.another(Host::None, "/mcp/direct", "s");
        let reply = direct.call("call_tool_destructive", &erase("x").to_string());
        agent.keep(reply);
    }),
    // Grants.
    ("grant: values that look like the granted one", |agent| {
        agent.grant(&[("id", json!("report"))], 5);
        for id in [
            json!("rep\u{043e}rt"),
            json!("report "),
            json!("Report"),
            json!("report\u{200b}"),
            json!(["report"]),
            json!({"any": true}),
        ] {
            agent.call("call_tool_write", call("notes:put_note", "write", json!({"id": id})));
        }
    }),
    ("grant: one more argument", |agent| {
        agent.grant(&[("id", json!("report"))], 5);
        agent.call(
            "call_tool_write",
            call("notes:put_note", "write", json!({"id": "report", "text": "all of it"})),
        );
    }),
    ("grant: one use more than given", |agent| {
        agent.grant(&[("id", json!("report"))], 1);
        assert!(agent.call("call_tool_write", put("report")).ran());
        agent.honest();
        agent.call("call_tool_write", put("report"));
    }),
    ("grant: of somebody else", |agent| {
        agent.grant(&[("id", json!("theirs"))], 5);
        let secret = agent.scene.credential(&format!("{}-thief", agent.name), Role::Agent, "{}");
        let thief =
            Client::http_as(Way::HttpModern, Host::None, &agent.address, "/mcp/router", "s", Some(secret));
        let reply = thief.call("call_tool_write", &put("theirs").to_string());
        agent.keep(reply);
        agent.plan();
    }),
    // REST with the agent's credential.
    ("rest: approve, reject, steps, burst", |agent| {
        let (plan, _) = agent.plan();
        assert_eq!(
            agent.rest("POST", &format!("/api/v1/plans/{plan}/approve"), json!({"run": true}), &[]),
            403
        );
        assert_eq!(agent.rest("POST", &format!("/api/v1/plans/{plan}/reject"), json!({}), &[]), 403);
        assert_eq!(
            agent.rest(
                "POST",
                "/api/v1/plans/decide",
                json!({"decisions": [{"plan_id": plan, "answer": "approve"}]}),
                &[]
            ),
            403
        );
    }),
    ("rest: as if it were the page", |agent| {
        let (plan, _) = agent.plan();
        let origin = format!("http://{}", agent.address);
        let page = [
            ("Origin", origin.as_str()),
            ("Sec-Fetch-Site", "same-origin"),
            ("X-CSRF-Token", "guess"),
            ("Cookie", "countersign_session=guess"),
        ];
        agent.rest("POST", &format!("/api/v1/plans/{plan}/approve"), json!({}), &page);
    }),
    ("rest: make a person, a grant, a session", |agent| {
        let (plan, _) = agent.plan();
        for (path, body) in [
            ("/api/v1/credentials".to_owned(), json!({"role": "human", "name": "ada"})),
            ("/api/v1/grants".to_owned(), json!({"plan_id": plan, "uses": 5, "expires_in": "1h"})),
            ("/api/v1/tools/notes:erase_all/approve".to_owned(), json!({})),
            (format!("/api/v1/pauses/{}/resume", agent.name), json!({})),
        ] {
            agent.rest("POST", &path, body, &[]);
        }
    }),
    // Files.
    ("files: the database says approved, the ledger does not", |agent| {
        let (plan, token) = agent.plan();
        let approval =
            json!({"by": "ada", "rail": "page", "strength": "human", "at": Timestamp::now().to_string()});
        let database = rusqlite::Connection::open(agent.scene.world.work().join("countersign.db")).unwrap();
        database.busy_timeout(std::time::Duration::from_secs(20)).unwrap();
        let changed = database.execute(
            "UPDATE plans SET state = 'approved', approval = ?1 WHERE plan_id = ?2",
            [approval.to_string(), plan],
        );
        assert_eq!(changed.unwrap(), 1);
        let told = agent.erase(bring(&token));
        assert_eq!(told.code(), Some("E_APPROVAL_PENDING"), "{}", told.text);
        assert!(told.text.contains("approval_unproven"), "{}", told.text);
    }),
    ("files: the database needs less than was asked", |agent| {
        let (plan, token) = agent.plan();
        let database = rusqlite::Connection::open(agent.scene.world.work().join("countersign.db")).unwrap();
        database.busy_timeout(std::time::Duration::from_secs(20)).unwrap();
        let sql = "UPDATE plans SET strength = 1, body = replace(body, '\"strength\":\"human\"', '\"strength\":\"caller\"') WHERE plan_id = ?1";
        assert_eq!(database.execute(sql, [plan]).unwrap(), 1);
        agent.erase(bring(&token));
    }),
    ("files: the rules are softer when the token comes back", |agent| {
        let (_, token) = agent.plan();
        let soft = CONFIG.replace("strength = \"human\"", "strength = \"caller\"");
        assert!(agent.scene.reconfigure(&soft).contains("reloaded"), "the change is said");
        let told = agent.erase(bring(&token));
        assert!(told.text.contains("policy_changed"), "{}", told.text);
        agent.scene.reconfigure(CONFIG);
    }),
];
