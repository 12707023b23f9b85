//! What a person's decision comes to: once, as shown, to the letter; with grants, notes, bursts, pauses.

use countersign_policy::confirm::{ApprovalStrength, Kind, PlanState, RecordedChannel};
use countersign_policy::ids::PlanId;
use countersign_store::{GrantFilter, LedgerFilter};
use jiff::SignedDuration;
use serde_json::json;

use crate::kit::{Scene, plan};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_answer_decides_once() {
    let scene = Scene::open().await;
    scene.hold(&plan("A", Kind::Preview, json!({"workspace": "prod", "token": "hush"}))).await;
    let approved = scene.ask("post", "/plans/pln_A/approve", Some(json!({"note": "fine"}))).await.data();
    assert_eq!((&approved["state"], &approved["approval"]["rail"]), (&json!("approved"), &json!("page")));
    assert_eq!(approved["approval"]["strength"], "human");
    for word in ["approve", "reject"] {
        let late = scene.ask("post", &format!("/plans/pln_A/{word}"), None).await;
        assert_eq!((late.status.as_u16(), late.code().as_str()), (409, "E_PLAN_DECIDED"));
    }
    let row = scene.store.plan(&PlanId::new("pln_A")).await.unwrap().unwrap();
    let approval = row.approval.unwrap();
    assert_eq!(
        (row.state, approval.channel, approval.strength),
        (PlanState::Approved, RecordedChannel::Page, ApprovalStrength::Human)
    );
    let whole = scene.get("/plans/pln_A").await;
    assert!(!whole.to_string().contains("hush"), "what a rule hides is not told");
    assert_eq!(whole["story"].as_array().unwrap().len(), 2);
    for part in ["plan_hash", "fingerprint", "policy_digest"] {
        assert_eq!(whole["plan"][part].as_str().unwrap().len(), 64, "{part}: the hash can be computed again");
    }
    assert_eq!(whole["story"][1]["source"], "api", "a credential is no browser");
    assert_eq!(scene.ask("post", "/plans/pln_none/approve", None).await.status, 404);
}

#[tokio::test]
async fn the_name_is_typed_to_the_letter_and_never_echoed() {
    let scene = Scene::open().await;
    scene.hold(&plan("T", Kind::Type, json!({"workspace": "Prod-1"}))).await;
    let told = scene.get("/plans/pln_T").await;
    assert_eq!(told["plan"]["confirm"]["type_field"], "workspace");
    for wrong in [
        json!({}),
        json!({"confirm_text": "prod-1"}),
        json!({"confirm_text": "Prod-1 "}),
        json!({"confirm_text": ""}),
    ] {
        let reply = scene.ask("post", "/plans/pln_T/approve", Some(wrong.clone())).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (422, "E_CONFIRM_TEXT_MISMATCH"),
            "{wrong}"
        );
        assert!(!reply.text.contains("Prod-1"), "{}", reply.text);
    }
    let tries = LedgerFilter { code: Some("E_CONFIRM_TEXT_MISMATCH".into()), ..LedgerFilter::default() };
    assert_eq!(scene.rows(tries).await.len(), 4);
    let grant = json!({"confirm_text": "Prod-1", "grant": {"uses": 2}});
    let refused = scene.ask("post", "/plans/pln_T/approve", Some(grant)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (422, "E_GRANT_FORBIDDEN"),
        "never for type"
    );
    let right = scene.ask("post", "/plans/pln_T/approve", Some(json!({"confirm_text": "Prod-1"}))).await;
    assert_eq!(right.data()["state"], "approved");
}

#[tokio::test]
async fn what_is_approved_is_what_was_looked_at() {
    let scene = Scene::open().await;
    let held = plan("H", Kind::Preview, json!({"workspace": "x"}));
    scene.hold(&held).await;
    let other = scene.ask("post", "/plans/pln_H/approve", Some(json!({"plan_hash": "0".repeat(64)}))).await;
    assert_eq!(other.status, 409);
    assert_eq!(other.json()["error"]["details"]["reason_code"], "plan_changed");
    assert_eq!(scene.ask("post", "/plans/pln_H/approve", Some(json!({"plan_hash": "x"}))).await.status, 400);
    let same = scene.ask("post", "/plans/pln_H/approve", Some(json!({"plan_hash": held.hash.hex()}))).await;
    assert_eq!(same.status, 200);
}

#[tokio::test]
async fn what_is_rejected_is_what_was_shown() {
    let scene = Scene::open().await;
    let held = plan("J", Kind::Preview, json!({"workspace": "x"}));
    scene.hold(&held).await;
    let reject = async |body| scene.ask("post", "/plans/pln_J/reject", Some(body)).await;
    let other = reject(json!({"plan_hash": "0".repeat(64)})).await;
    assert_eq!(other.status, 409);
    assert_eq!(other.json()["error"]["details"]["reason_code"], "plan_changed");
    assert_eq!(reject(json!({"plan_hash": "x"})).await.status, 400);
    let several =
        json!({"decisions": [{"plan_id": held.id, "decision": "reject", "plan_hash": "0".repeat(64)}]});
    let several = scene.ask("post", "/plans/decide", Some(several)).await.data();
    assert_eq!(several["results"][0]["error"]["details"]["reason_code"], "plan_changed");
    let row = scene.store.plan(&held.id).await.unwrap().unwrap();
    assert_eq!(row.state, PlanState::Pending, "nothing was decided");
    assert_eq!(reject(json!({"plan_hash": held.hash.hex(), "note": "no"})).await.status, 200);
}

#[tokio::test]
async fn attack_09_an_approval_over_rest_ends_at_the_expiry_that_was_shown() {
    let scene = Scene::open().await;
    let held = plan("E", Kind::Preview, json!({"workspace": "x"}));
    scene.hold(&held).await;
    let approve = async |body| scene.ask("post", "/plans/pln_E/approve", Some(body)).await;
    assert_eq!(approve(json!({"expires_at": "soon"})).await.status, 400);
    // The person looks at a plan with little time left; meanwhile it was given more.
    let past = held.expires - SignedDuration::from_hours(1);
    let late = approve(json!({"expires_at": past.to_string()})).await;
    assert_eq!((late.status.as_u16(), late.code().as_str()), (409, "E_PLAN_DECIDED"));
    assert_eq!(late.json()["error"]["details"]["reason_code"], "plan_expired");
    let row = scene.store.plan(&held.id).await.unwrap().unwrap();
    assert_eq!(row.state, PlanState::Pending, "nothing was decided");
    let burst =
        json!({"decisions": [{"plan_id": held.id, "decision": "approve", "expires_at": past.to_string()}]});
    let burst = scene.ask("post", "/plans/decide", Some(burst)).await.data();
    assert_eq!(burst["results"][0]["error"]["details"]["reason_code"], "plan_expired");
    let shown = held.expires - SignedDuration::from_secs(30);
    assert_eq!(approve(json!({"expires_at": shown.to_string()})).await.status, 200);
    let row = scene.store.plan(&held.id).await.unwrap().unwrap();
    let (kept, shown) = (row.plan.expires.as_microsecond(), shown.as_microsecond());
    assert_eq!(kept, shown, "the approval ends when the screen said");
}

#[tokio::test]
async fn a_grant_comes_with_an_approval_and_goes() {
    let scene = Scene::open().await;
    scene.hold(&plan("G", Kind::Preview, json!({"workspace": "a", "force": true}))).await;
    let grant = json!({"grant": {"arguments": {"workspace": {"any": true}, "force": true}, "uses": 3, "expires_in": "2h"}});
    let given = scene.ask("post", "/plans/pln_G/approve", Some(grant)).await.data();
    assert_eq!((&given["grant"]["uses"], &given["grant"]["principal"]), (&json!(3), &json!("bot")));
    let listed = scene.get("/grants").await;
    let one = &listed["grants"][0];
    assert_eq!(
        (&one["state"], &one["arguments"]),
        (&json!("live"), &json!({"force": true, "workspace": {"any": true}}))
    );
    let path = format!("/grants/{}", one["grant_id"].as_str().unwrap());
    assert_eq!(scene.ask("delete", &path, None).await.status, 200);
    assert_eq!(scene.ask("delete", &path, None).await.status, 404);
    assert!(scene.get("/grants").await["grants"].as_array().unwrap().is_empty());
    assert_eq!(scene.get("/grants?all=true").await["grants"][0]["state"], "revoked");
    scene.hold(&plan("B", Kind::Preview, json!({"workspace": "b"}))).await;
    for bad in [
        json!({"uses": 0}),
        json!({"uses": 10001}),
        json!({"expires_in": "soon"}),
        json!({"expires_in": "100d"}),
        json!({"use": 1}),
    ] {
        let reply = scene.ask("post", "/plans/pln_B/approve", Some(json!({"grant": bad}))).await;
        assert_eq!(reply.status, 400, "{bad}");
        let row = scene.store.plan(&PlanId::new("pln_B")).await.unwrap().unwrap();
        assert_eq!(row.state, PlanState::Pending, "nothing is decided by half");
    }
    assert_eq!(scene.store.grants(GrantFilter::All).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_grant_by_itself_is_for_a_tool_that_is_there() {
    let scene = Scene::open().await;
    let asked =
        json!({"tool": "infra:wipe", "principal": "bot", "arguments": {"workspace": "tmp"}, "uses": 1});
    let made = scene.ask("post", "/grants", Some(asked)).await;
    assert_eq!(made.data()["grant"]["tool"], "infra:wipe");
    let none = scene.ask("post", "/grants", Some(json!({"tool": "infra:none", "principal": "bot"}))).await;
    assert_eq!(none.status, 404);
    assert_eq!(scene.ask("post", "/grants", Some(json!({"tool": "infra:wipe"}))).await.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_rejections_pause_and_a_person_resumes() {
    let scene = Scene::open().await;
    for (number, paused) in [(1, false), (2, false), (3, true)] {
        scene
            .hold(&plan(&format!("R{number}"), Kind::Preview, json!({"workspace": number.to_string()})))
            .await;
        let body = json!({"note": "archive it"});
        let said = scene.ask("post", &format!("/plans/pln_R{number}/reject"), Some(body)).await.data();
        assert_eq!(said["paused"], paused);
    }
    assert_eq!(scene.get("/plans/pln_R1").await["plan"]["note"], "archive it");
    assert_eq!(scene.get("/pauses").await["pauses"][0]["principal"], "bot");
    assert_eq!(scene.ask("post", "/pauses/bot/resume", None).await.status, 200);
    assert_eq!(scene.ask("post", "/pauses/bot/resume", None).await.status, 404);
    assert!(scene.get("/pauses").await["pauses"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_burst_is_decided_one_by_one() {
    let scene = Scene::open().await;
    scene.hold(&plan("1", Kind::Preview, json!({"workspace": "1"}))).await;
    scene.hold(&plan("2", Kind::Preview, json!({"workspace": "2"}))).await;
    scene.hold(&plan("3", Kind::Type, json!({"workspace": "3"}))).await;
    let decisions = json!({"decisions": [
        {"plan_id": "pln_1", "decision": "approve"}, {"plan_id": "pln_2", "decision": "reject", "note": "no"},
        {"plan_id": "pln_3", "decision": "approve"}, {"plan_id": "pln_4", "decision": "approve"},
        {"plan_id": "pln_1", "decision": "reject"}]});
    let results = scene.ask("post", "/plans/decide", Some(decisions)).await.data();
    let short: Vec<(bool, String)> = results["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let said = one["state"].as_str().or(one["error"]["code"].as_str()).unwrap().to_owned();
            (one["success"].as_bool().unwrap(), said)
        })
        .collect();
    let expect = [
        (true, "approved"),
        (true, "rejected"),
        (false, "E_CONFIRM_TEXT_MISMATCH"),
        (false, "E_PLAN_NOT_FOUND"),
        (false, "E_PLAN_DECIDED"),
    ];
    assert_eq!(short, expect.map(|(ok, said)| (ok, said.to_owned())));
    assert_eq!(scene.ask("post", "/plans/decide", Some(json!({"decisions": []}))).await.status, 400);
}

#[tokio::test]
async fn what_a_preview_forbids_is_told_and_not_approved() {
    let scene = Scene::open().await;
    let mut forbidden = plan("B", Kind::Preview, json!({"workspace": "prod"}));
    forbidden.preview = countersign_policy::plan::Preview::new(
        countersign_policy::plan::PreviewSource::Argument,
        json!({"structuredContent": {"warnings": ["BLOCK: it is in use", "and this"]}}),
        &json!({}),
    );
    scene.hold(&forbidden).await;
    assert_eq!(scene.get("/plans/pln_B").await["plan"]["blocks"], json!(["it is in use"]));
    let reply = scene.ask("post", "/plans/pln_B/approve", None).await;
    assert_eq!(reply.code(), "E_PREVIEW_FAILED");
}
