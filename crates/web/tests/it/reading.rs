//! What each route tells, and what it does with what can't be read.

use countersign_policy::confirm::Kind;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::{BackgroundRun, Entry, LedgerFilter, RunState};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kit::{HOST, Scene, plan};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_plans_have_no_gap_and_no_double() {
    let scene = Scene::open().await;
    for number in 0..17 {
        let mut one = plan(&format!("{number:026}"), Kind::Preview, json!({"workspace": number.to_string()}));
        one.principal = format!("bot-{number}").into();
        scene.hold(&one).await;
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = scene.get(&format!("/plans?state=pending&limit=5{cursor}")).await;
        seen.extend(
            page["plans"].as_array().unwrap().iter().map(|plan| plan["plan_id"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    sorted.reverse();
    assert_eq!((seen.len(), &seen), (17, &sorted));
    assert!(scene.get("/plans?state=approved").await["plans"].as_array().unwrap().is_empty());
    assert_eq!(scene.get("/plans?principal=bot-3").await["plans"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_says_in_words_what_it_does_and_compares_with_the_same_target_only() {
    let scene = Scene::open().await;
    let hold = async |id: &str, workspace: &str, who: &str| {
        let mut one = plan(id, Kind::Preview, json!({"workspace": workspace, "note": null}));
        one.principal = who.to_owned().into();
        scene.hold(&one).await;
        scene.get(&format!("/plans/pln_{id}")).await["plan"].clone()
    };
    let first = hold("A", "shop", "bot").await;
    assert_eq!(first["title"], "Wipe shop");
    assert_eq!(first["call_waits_until"], Value::Null);
    let names: Vec<&str> = first["arguments"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!((names, &first["defaults"]), (vec!["workspace", "note"], &json!(["note"])));
    scene.ask("post", "/plans/pln_A/approve", None).await.data();
    for (id, workspace, who, wanted) in
        [("B", "shop", "bot", true), ("C", "site", "bot", false), ("D", "shop", "other", false)]
    {
        let later = hold(id, workspace, who).await;
        assert_eq!(later["previous_approval"]["plan_id"] == "pln_A", wanted, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_count_the_rows_that_their_filters_find() {
    let scene = Scene::open().await;
    for id in ["A", "B", "C"] {
        scene.hold(&plan(id, Kind::Preview, json!({"workspace": id}))).await;
    }
    scene.ask("post", "/plans/pln_A/approve", None).await.data();
    scene.ask("post", "/plans/pln_B/reject", None).await.data();
    scene.store.flush().await.unwrap();
    let chart = scene.get("/activity/chart?parts=12").await;
    assert_eq!(chart["parts"].as_array().unwrap().len(), 12);
    let sum = |list: &str, fits: &dyn Fn(&Value) -> bool| -> u64 {
        let all = chart[list].as_array().unwrap().iter();
        all.filter(|one| fits(one)).map(|one| one["count"].as_u64().unwrap()).sum()
    };
    assert_eq!(sum("over_time", &|one| one["kind"] == "call" && one["status"] == "pending"), 3);
    assert_eq!(sum("over_time", &|one| one["kind"] == "approval"), 2);
    assert_eq!(sum("by_principal", &|one| one["name"] == "bot"), 3);
    assert_eq!(sum("by_tool", &|one| one["name"] == "infra:wipe"), 3);
    assert_eq!(sum("by_rule", &|one| one["name"] == "test.toml:9" && one["status"] == "pending"), 3);
    assert_eq!(sum("decisions", &|one| one["median_us"].as_i64().unwrap() >= 0), 2);
    let found = scene.get("/activity?type=call&status=pending&q=test.toml:9").await;
    assert_eq!(found["activities"].as_array().unwrap().len(), 3, "a rule's bar leads to its rows");
    for wrong in ["parts=0", "parts=201", "start_time=x", "start_time=2030-01-01T00:00:00Z"] {
        assert_eq!(scene.ask("get", &format!("/activity/chart?{wrong}"), None).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn activity_filters_pages_and_exports() {
    let scene = Scene::open().await;
    scene.hold(&plan("X", Kind::Preview, json!({"workspace": "x"}))).await;
    scene.ask("post", "/plans/pln_X/approve", None).await.data();
    let count = async |query: &str| {
        scene.get(&format!("/activity?{query}")).await["activities"].as_array().unwrap().len()
    };
    assert_eq!(count("plan_id=pln_X").await, 2);
    assert_eq!(count("type=approval&status=success").await, 1);
    assert_eq!(count("tool=infra:wipe&principal=bot").await, 1);
    assert_eq!(count("tool=infra%3Awipe&server=other").await, 0);
    assert_eq!(count("q=WIPE&limit=1").await, 1);
    assert_eq!(count("end_time=2020-01-01T00:00:00Z").await, 0);
    let one = scene.get("/activity?type=approval").await["activities"][0].clone();
    assert_eq!(
        one["metadata"],
        json!({"intent": {"operation_type": "destructive", "reason": "no longer needed"}, "tool_variant": "call_tool_destructive"})
    );
    let id = one["id"].as_str().unwrap();
    assert_eq!(scene.get(&format!("/activity/{id}")).await["activity"], one);
    assert_eq!(scene.ask("get", "/activity/none", None).await.status, 404);
    assert!(scene.get("/activity/summary?period=7d").await["total"].as_u64().unwrap() >= 2);
    let lines = scene.ask("get", "/activity/export?format=jsonl&plan_id=pln_X", None).await;
    assert_eq!(
        (lines.headers["content-type"].to_str().unwrap(), lines.text.lines().count()),
        ("application/jsonl", 2)
    );
    let table = scene.ask("get", "/activity/export?format=csv&plan_id=pln_X", None).await;
    assert!(table.text.starts_with("id,time,") && table.text.lines().count() == 3, "{}", table.text);
}

#[tokio::test]
async fn what_cant_be_read_is_named() {
    let scene = Scene::open().await;
    for query in [
        "/plans?state=maybe",
        "/plans?limit=0",
        "/plans?limit=1001",
        "/plans?limit=x",
        "/plans?cursor=%00",
        "/plans?stat=pending",
        "/plans?state=done&state=failed",
        "/activity?type=x",
        "/activity?start_time=yesterday",
        "/activity?cursor=x",
        "/activity/summary?period=x",
        "/activity/export?format=xml",
        "/grants?all=1",
        "/tools?limit=-1",
    ] {
        let reply = scene.ask("get", query, None).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (400, "E_ARGUMENTS_INVALID"), "{query}");
    }
    let send = async |body: &str, kind: &str| {
        let request = axum::http::Request::builder()
            .method("POST")
            .uri("/api/v1/plans/pln_none/approve")
            .header("host", HOST)
            .header("authorization", format!("bearer {}", scene.ada))
            .header("content-type", kind);
        scene.send(request.body(axum::body::Body::from(body.to_owned())).unwrap()).await.status.as_u16()
    };
    assert_eq!(send("{\"note\":\"a\",\"note\":\"b\"}", "application/json").await, 400, "a name given twice");
    assert_eq!(send("{\"yes\":true}", "application/json").await, 400, "an unknown name");
    assert_eq!(send("[]", "application/json").await, 400);
    assert_eq!(send("{", "application/json; charset=utf-8").await, 400);
    assert_eq!(
        send("note=a", "application/x-www-form-urlencoded").await,
        415,
        "what a form of another page can send"
    );
    assert_eq!(send("{}", "text/plain").await, 415);
    assert_eq!(send(&format!("{{\"note\":\"{}\"}}", "x".repeat(1 << 20)), "application/json").await, 413);
    assert_eq!(send("{}", "application/json").await, 404);
    assert_eq!(send("", "application/json").await, 404, "nothing is an empty object");
}

#[tokio::test]
async fn tools_upstreams_policy_and_what_if() {
    let scene = Scene::open().await;
    let tools = scene.get("/tools").await;
    assert_eq!((&tools["total"], &tools["tools"][0]["name"]), (&json!(1), &json!("infra:wipe")));
    assert_eq!(scene.get("/tools?q=wipe").await["tools"][0]["confirm"], "preview");
    let one = scene.get("/tools/infra:wipe").await;
    assert_eq!(
        (&one["tool"]["strength"], &one["tool"]["definition"]["name"]),
        (&json!("human"), &json!("wipe"))
    );
    assert_eq!(scene.get("/tools/infra:wipe/diff").await["tool"]["pin"], "accepted");
    assert_eq!(scene.ask("get", "/tools/nothing", None).await.status, 404);
    assert_eq!(scene.ask("post", "/tools/infra:wipe/approve", None).await.status, 409);
    assert_eq!(scene.get("/upstreams").await["upstreams"][0]["state"], "up");
    let policy = scene.get("/policy").await;
    assert_eq!(
        policy["rules"][0]["says"],
        json!({"confirm": "preview", "strength": "human", "redact": ["token"]})
    );
    let asked = json!({"tool": "infra:wipe", "args": {"workspace": "x"}, "mode": "execute"});
    let answer = scene.ask("post", "/policy/explain", Some(asked)).await.data();
    assert_eq!(
        (&answer["explained"]["verdict"], &answer["explained"]["strength"]),
        (&json!("hold"), &json!("human"))
    );
    assert_eq!(scene.ask("post", "/policy/explain", Some(json!({"tool": "x"}))).await.status, 400);
    let rules = json!({"rules": "[[rules]]\nmatch = \"infra:*\"\ndeny = \"no\"\n", "since": "7d"});
    let simulated = scene.ask("post", "/policy/simulate", Some(rules)).await.data();
    assert!(simulated["changes"].as_array().is_some());
    let broken = scene.ask("post", "/policy/simulate", Some(json!({"rules": "[[rules]]\nmach = 1\n"}))).await;
    assert_eq!((broken.status.as_u16(), broken.code().as_str()), (400, "E_CONFIG_INVALID"));
    assert!(scene.get("/runs").await["runs"].as_array().unwrap().is_empty());
    assert_eq!(scene.ask("post", "/runs/none/stop", None).await.status, 404);
}

/// A run of another gateway on the same records: it can't be stopped from here, and nothing says that it was.
#[tokio::test]
async fn a_stop_that_can_t_be_is_not_recorded_as_one() {
    let scene = Scene::open().await;
    let run = BackgroundRun {
        id: "run_elsewhere".into(),
        principal: "bot".into(),
        session: "s".into(),
        tool: "infra:deploy".into(),
        state: RunState::Running,
        ledger_id: None,
        started: Timestamp::now(),
        ended: None,
        exit_code: None,
        log_tail: Vec::new(),
    };
    scene.store.begin_run(&run).await.unwrap();
    let refused = scene.ask("post", "/runs/run_elsewhere/stop", None).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (409, "E_PLAN_DECIDED"));
    let rows = scene.rows(LedgerFilter { kind: Some(RowKind::Decision), ..LedgerFilter::default() }).await;
    assert!(rows.iter().all(|row| row.status != RowStatus::Success), "{rows:?}");
}

#[tokio::test]
async fn a_secret_is_told_once() {
    let scene = Scene::open().await;
    let asked =
        json!({"role": "agent", "name": "ci", "effects": ["read"], "max_mode": "plan", "expires_in": "30d"});
    let made = scene.ask("post", "/credentials", Some(asked)).await.data();
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("csg_agent_"));
    assert_eq!(made["credential"]["scopes"], json!({"effects": ["read"], "max_mode": "plan"}));
    let listed: Value = scene.get("/credentials").await;
    assert!(!listed.to_string().contains(secret));
    assert_eq!(scene.ask_as(secret, "get", "/me", None).await.status, 403);
    for bad in [
        json!({"role": "root"}),
        json!({"role": "agent", "name": "ada"}),
        json!({"role": "human", "name": "local-x"}),
        json!({"role": "agent", "name": "a b"}),
        json!({"role": "agent", "effects": ["all"]}),
    ] {
        assert_eq!(scene.ask("post", "/credentials", Some(bad.clone())).await.status, 400, "{bad}");
    }
    let id = made["credential"]["credential_id"].as_str().unwrap().to_owned();
    assert_eq!(scene.ask("delete", &format!("/credentials/{id}"), None).await.status, 200);
    assert_eq!(scene.ask("delete", &format!("/credentials/{id}"), None).await.status, 404);
    assert_eq!(scene.ask_as(secret, "get", "/me", None).await.status, 401);
}

#[tokio::test]
async fn a_text_is_looked_for_page_by_page() {
    let scene = Scene::open().await;
    for number in 0..35 {
        let fact = if number == 2 { "needle" } else { "hay" };
        let row = Entry::new(RowKind::System, RowStatus::Success).with_fact("what", fact);
        scene.store.append(row, Timestamp::now()).await.unwrap();
    }
    let (mut found, mut pages, mut cursor) = (0, 0, None);
    loop {
        let filter = LedgerFilter {
            q: Some("needle".into()),
            search_limit: Some(10),
            cursor,
            ..LedgerFilter::default()
        };
        let page = scene.store.activity(filter).await.unwrap();
        (found, pages, cursor) = (found + page.rows.len(), pages + 1, page.next_cursor);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, 1, "however far down it is");
    assert!(pages > 2, "{pages}");
}
