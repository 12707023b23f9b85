//! The token: valid once in any race, across restarts, and not after its expiry. And the ledger's rows about it.

use std::time::Duration;

use countersign_pack::server::TOKEN_LIFE;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::LedgerFilter;
use serde_json::json;

use crate::world::{World, call, code};

/// How often the race is run: the full count is for the long form.
fn rounds() -> usize {
    if std::env::var_os("COUNTERSIGN_TEST_LONG").is_some() { 200 } else { 20 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_token_two_stores_applied_exactly_once() {
    let world = World::new();
    let (left, right) = (world.tools().await, world.tools().await);
    for round in 0..rounds() {
        world.write("repo/modules/base/AGENTS.md", &format!("round {round}\n"));
        let token = call(&left, "deploy", json!({})).await["data"]["confirm_token"].clone();
        let arguments = json!({"yes": true, "confirm_token": token});
        let (a, b) = tokio::join!(
            call(&left, "deploy_apply", arguments.clone()),
            call(&right, "deploy_apply", arguments)
        );
        let applied = [&a, &b].into_iter().filter(|envelope| envelope["data"]["applied"] == true).count();
        assert_eq!(applied, 1, "{round}: {a:#}\n{b:#}");
        let refused = if a["ok"] == true { &b } else { &a };
        assert_eq!(code(refused), "E_CONFIRM_TOKEN_USED", "{refused:#}");
    }
    let snapshots = std::fs::read_dir(world.path("pack/state/snapshots")).unwrap();
    let count = snapshots
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "json"))
        .count();
    assert_eq!(count, rounds());
}

#[tokio::test]
async fn a_token_outlives_the_process_that_gave_it() {
    let world = World::new();
    let token = {
        let tools = world.tools().await;
        call(&tools, "deploy", json!({})).await["data"]["confirm_token"].clone()
    };
    let tools = world.tools().await;
    let applied = call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    assert_eq!(applied["data"]["applied"], true, "{applied:#}");
    let later = world.tools().await;
    let used = call(&later, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    assert_eq!(code(&used), "E_CONFIRM_TOKEN_USED");
}

#[tokio::test]
async fn a_token_past_its_time_is_expired() {
    let world = World::new();
    let tools = world.server_with(Duration::ZERO).await;
    let token = call(&tools, "deploy", json!({})).await["data"]["confirm_token"].clone();
    let late = call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    assert_eq!(code(&late), "E_CONFIRM_TOKEN_EXPIRED");
    assert_eq!(late["errors"][0]["details"]["next_actions"], json!(["call_deploy", "retry_deploy_apply"]));
    assert!(!world.path("project/AGENTS.md").exists());
}

#[tokio::test]
async fn every_change_and_every_refusal_is_in_the_ledger() {
    let world = World::new();
    let tools = world.server_with(TOKEN_LIFE).await;
    call(&tools, "deploy_apply", json!({})).await;
    let token = call(&tools, "deploy", json!({})).await["data"]["confirm_token"].clone();
    call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    call(&tools, "rollback", json!({"to": "1", "yes": true})).await;
    tools.store().flush().await.unwrap();
    let mut rows = tools.store().activity(LedgerFilter::default()).await.unwrap().rows;
    rows.retain(|row| row.kind == RowKind::Call);
    rows.reverse();
    let told: Vec<(String, RowStatus, Option<String>)> = rows
        .iter()
        .map(|row| (row.tool.as_ref().unwrap().to_string(), row.status, row.code.clone()))
        .collect();
    let row = |tool: &str, status, code: Option<&str>| (tool.to_owned(), status, code.map(str::to_owned));
    assert_eq!(
        told,
        [
            row("deploy_apply", RowStatus::Refused, Some("E_CONFIRM_REQUIRED")),
            row("deploy_apply", RowStatus::Pending, None),
            row("deploy_apply", RowStatus::Allowed, None),
            row("deploy_apply", RowStatus::Success, None),
            row("deploy_apply", RowStatus::Refused, Some("E_CONFIRM_TOKEN_USED")),
            row("rollback", RowStatus::Allowed, None),
            row("rollback", RowStatus::Error, Some("E_SNAPSHOT_NOT_FOUND")),
        ]
    );
    assert!(!format!("{rows:?}").contains(token.as_str().unwrap()), "no row holds a token");
}

#[tokio::test]
async fn looking_again_and_again_is_no_offence_and_only_the_oldest_tokens_go() {
    let world = World::new();
    let tools = world.tools().await;
    let mut tokens = Vec::new();
    for round in 0..25 {
        world.write("repo/modules/base/AGENTS.md", &format!("round {round}\n"));
        let shown = call(&tools, "deploy", json!({})).await;
        assert_eq!(shown["ok"], true, "{round}: {shown:#}");
        tokens.push(shown["data"]["confirm_token"].clone());
    }
    let with = |token: &serde_json::Value| json!({"yes": true, "confirm_token": token});
    let oldest = call(&tools, "deploy_apply", with(&tokens[0])).await;
    assert_eq!(code(&oldest), "E_PLAN_CANCELLED");
    let stale = call(&tools, "deploy_apply", with(&tokens[23])).await;
    assert_eq!(code(&stale), "E_CONFIRM_TOKEN_MISMATCH", "{stale:#}");
    let newest = call(&tools, "deploy_apply", with(&tokens[24])).await;
    assert_eq!(newest["data"]["applied"], true, "{newest:#}");
}

#[tokio::test]
async fn what_was_changed_has_a_row_of_the_kind_pack_and_what_was_not_has_none() {
    let world = World::new();
    let tools = world.server_with(TOKEN_LIFE).await;
    let token = call(&tools, "deploy", json!({})).await["data"]["confirm_token"].clone();
    let applied = call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    let token = call(&tools, "deploy", json!({})).await["data"]["confirm_token"].clone();
    call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    call(&tools, "evolve_restore", json!({"yes": true})).await;
    call(&tools, "rollback", json!({"to": "initial", "yes": true})).await;
    tools.store().flush().await.unwrap();
    let filter = LedgerFilter { kind: Some(RowKind::Pack), ..LedgerFilter::default() };
    let mut rows = tools.store().activity(filter).await.unwrap().rows;
    rows.reverse();
    let told: Vec<String> = rows.iter().map(|row| row.tool.as_ref().unwrap().to_string()).collect();
    assert_eq!(told, ["deploy_apply", "rollback"]);
    let detail = rows[0].detail.as_ref().unwrap().value();
    assert_eq!(detail["snapshot_id"], applied["data"]["snapshot_id"], "{detail}");
    assert!(rows[0].plan_id.is_some() && rows[0].status == RowStatus::Success);
}
