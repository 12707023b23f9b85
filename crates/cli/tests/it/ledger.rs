//! A ledger written by a real store, for the binary to read.

use std::path::Path;

use countersign_policy::confirm::{Approval, RecordedChannel};
use countersign_policy::effect::Effect;
use countersign_policy::ids::{LedgerId, PlanId};
use countersign_policy::intent::{CallToolVariant, DeclaredIntent};
use countersign_policy::mode::Mode;
use countersign_policy::record::{ActorRole, RowKind, RowStatus, Source};
use countersign_policy::refusal::Code;
use countersign_store::ledger::Json;
use countersign_store::{ConnectOptions, Entry, Store, StoreUrl};
use jiff::{Timestamp, ToSpan as _};
use serde_json::json;

/// The moment of the first row; each later one is a minute after.
pub(crate) fn start() -> Timestamp {
    "2026-11-14T09:00:00Z".parse().unwrap()
}

/// Runs something asynchronous to its end.
pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Writes the rows of one short story and gives their ids, oldest first. The store is closed again.
pub(crate) fn write(path: &Path) -> Vec<LedgerId> {
    wait(async {
        let store = open(path).await;
        let mut ids = Vec::new();
        for (minute, entry) in (1..).zip(story()) {
            ids.push(store.append(entry, start() + minute.minutes()).await.unwrap());
        }
        ids
    })
}

/// Opens the store as a gateway would.
pub(crate) async fn open(path: &Path) -> Store {
    let options = ConnectOptions { now: start(), ..ConnectOptions::default() };
    Store::connect(&StoreUrl::file(path), options).await.unwrap()
}

/// An agent tries to delete a repository; a person agrees; it is gone. And someone wrote an ugly reason.
fn story() -> Vec<Entry> {
    let plan = PlanId::mint(start(), 7);
    let approval = Approval::over(RecordedChannel::Cli, "ada".into(), start());
    let approved = Some(Json::of(&serde_json::to_value(approval).unwrap()));
    let delete = |status| Entry {
        upstream: Some("github".into()),
        tool: Some("delete_repo".into()),
        variant: Some(CallToolVariant::Destructive),
        effect: Some(Effect::Destructive),
        mode: Some(Mode::Execute),
        intent: Some(DeclaredIntent {
            operation_type: Some("destructive".into()),
            data_sensitivity: Some("internal".into()),
            reason: Some("the site moved".into()),
        }),
        arguments: Some(Json::of(&json!({"repo": "acme/site", "token": "sha256:0a1b"}))),
        ..agent(RowKind::Call, status)
    };
    let planned = |status| Entry { plan_id: Some(plan.clone()), ..delete(status) };
    let person = Entry {
        principal: Some("ada".into()),
        role: Some(ActorRole::Human),
        source: Some(Source::Cli),
        ..agent(RowKind::Approval, RowStatus::Success)
    };
    vec![
        Entry {
            mode: Some(Mode::Ask),
            code: Some(Code::ModeAsk.as_str().into()),
            ..delete(RowStatus::Refused)
        },
        Entry {
            mode: Some(Mode::Execute),
            detail: Some(Json::of(&json!({"action": "set_mode", "mode": "execute"}))),
            ..agent(RowKind::Mode, RowStatus::Success)
        },
        planned(RowStatus::Pending),
        Entry {
            plan_id: Some(plan.clone()),
            upstream: Some("github".into()),
            tool: Some("delete_repo".into()),
            detail: Some(Json::of(&json!({"action": "approve", "entity_type": "plan"}))),
            ..person
        },
        Entry { approval: approved.clone(), ..planned(RowStatus::Allowed) },
        Entry { approval: approved, duration_us: Some(734_000), ..planned(RowStatus::Success) },
        Entry {
            upstream: Some("notes".into()),
            tool: Some("wipe\u{1b}[2J".into()),
            intent: Some(DeclaredIntent {
                operation_type: Some("write".into()),
                data_sensitivity: None,
                reason: Some("harmless \u{202e}txt.exe\nnext line".into()),
            }),
            code: Some(Code::RuleDenied.as_str().into()),
            detail: Some(Json::of(&json!({"reason_code": "rule_denied", "rule": "countersign.toml:31"}))),
            ..agent(RowKind::Call, RowStatus::Refused)
        },
    ]
}

fn agent(kind: RowKind, status: RowStatus) -> Entry {
    Entry {
        principal: Some("claude".into()),
        role: Some(ActorRole::Agent),
        session: Some("stdio-1".into()),
        source: Some(Source::Mcp),
        ..Entry::new(kind, status)
    }
}
