//! Recovery after a crash: calls and runs whose process is gone get an unknown outcome, in the ledger too. None is ever run again. A process
//! that still runs holds a lock and is left alone.

use countersign_policy::ids::{LedgerId, PlanId, RunId};
use countersign_policy::record::{RowKind, RowStatus};
use jiff::Timestamp;
use serde_json::json;

use crate::engine::cells;
use crate::fault::StoreFault;
use crate::ledger::{self, Entry};
use crate::random::LedgerIdGenerator;
use crate::writer::Tx;
use crate::{Store, plans};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    pub calls: Vec<LedgerId>,
    pub plans: Vec<PlanId>,
    pub runs: Vec<RunId>,
    /// Runs that were queued and never began: they are `cancelled` now.
    pub never_begun: Vec<RunId>,
}

impl Store {
    /// Closes calls and runs of processes that are gone; for the start of a gateway.
    pub async fn recover(&self, now: Timestamp) -> Result<RecoveryReport, StoreFault> {
        let ids = self.ids();
        self.write(move |tx| {
            let mut done = RecoveryReport::default();
            for instance in dead_instances(tx)? {
                close_calls(tx, &ids, &instance, now, &mut done)?;
                close_runs(tx, &ids, &instance, now, &mut done)?;
            }
            Ok(done)
        })
        .await
    }
}

fn dead_instances(tx: &mut Tx<'_>) -> Result<Vec<String>, StoreFault> {
    let found = tx.query(
        "SELECT instance FROM in_flight UNION SELECT instance FROM runs WHERE state IN ('queued', 'running')",
        &[],
    )?;
    let mut dead = Vec::new();
    for mut found in found {
        let instance = found.text()?;
        if !tx.is_alive(&instance)? {
            dead.push(instance);
        }
    }
    Ok(dead)
}

fn close_calls(
    tx: &mut Tx<'_>,
    ids: &LedgerIdGenerator,
    instance: &str,
    now: Timestamp,
    done: &mut RecoveryReport,
) -> Result<(), StoreFault> {
    let sql = "DELETE FROM in_flight WHERE instance = $1 RETURNING ledger_id, plan_id";
    for mut found in tx.query(sql, &cells![instance])? {
        let (opened, plan) = (LedgerId::new(found.text()?), found.maybe_text()?.map(PlanId::new));
        if let Some(plan) = plan {
            let changed = tx.execute(
                "UPDATE plans SET state = 'outcome_unknown', ended = $1 WHERE plan_id = $2 AND state = 'executing'",
                &cells![now, plan.as_str()],
            )?;
            if changed > 0 {
                plans::wipe(tx, &plan)?;
                tx.notify_plan(&plan)?;
                done.plans.push(plan);
            }
        }
        let sql = format!("SELECT {} FROM ledger WHERE id = $1", *ledger::SELECTED);
        let entry = match tx.one(&sql, &cells![opened.as_str()])? {
            Some(found) => Entry::repeated(ledger::decode(found)?, RowStatus::Error),
            None => Entry::new(RowKind::Call, RowStatus::Error),
        };
        let why = "the gateway ended while the call was on its way";
        let detail = json!({"opened": opened.as_str(), "outcome": "unknown", "why": why});
        tx.append_call(&entry.with_detail(&detail), ids.next(now), Some(&opened), now)?;
        done.calls.push(opened);
    }
    Ok(())
}

fn close_runs(
    tx: &mut Tx<'_>,
    ids: &LedgerIdGenerator,
    instance: &str,
    now: Timestamp,
    done: &mut RecoveryReport,
) -> Result<(), StoreFault> {
    // A run is marked as running before it starts: one that is still queued never began.
    let note = json!(["never started: the gateway ended first"]).to_string();
    let queued = "UPDATE runs SET state = 'cancelled', ended = $1, log_tail = $3
                   WHERE instance = $2 AND state = 'queued' RETURNING run_id, tool";
    let running = "UPDATE runs SET state = 'outcome_unknown', ended = $1
                    WHERE instance = $2 AND state = 'running' RETURNING run_id, tool";
    for (found, outcome) in [
        (tx.query(queued, &cells![now, instance, note.as_str()])?, "never_begun"),
        (tx.query(running, &cells![now, instance])?, "unknown"),
    ] {
        for mut found in found {
            let (run, tool) = (RunId::new(found.text()?), found.text()?);
            let detail = json!({
                "action": "run_lost", "entity_type": "run", "entity_id": run.as_str(), "tool": tool, "outcome": outcome,
            });
            tx.append(
                &Entry::new(RowKind::System, RowStatus::Error).with_detail(&detail),
                ids.next(now),
                now,
            );
            if outcome == "unknown" { done.runs.push(run) } else { done.never_begun.push(run) }
        }
    }
    Ok(())
}
