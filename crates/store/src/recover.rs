//! After a crash: calls whose process is gone have an outcome nobody knows. They are marked so and written down; none
//! is ever run again. A process that still runs is left alone: its lock tells that it lives.

use countersign_core::ids::{LedgerId, PlanId, RunId};
use countersign_core::record::{RowKind, RowStatus};
use jiff::Timestamp;
use serde_json::json;

use crate::chance::Mint;
use crate::engine::cells;
use crate::fault::StoreFault;
use crate::ledger::{self, Entry};
use crate::writer::Tx;
use crate::{Store, plans};

/// What was found without its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Calls, by the row that let them out.
    pub calls: Vec<LedgerId>,
    /// Plans that are `outcome_unknown` now.
    pub plans: Vec<PlanId>,
    /// Runs that are `outcome_unknown` now.
    pub runs: Vec<RunId>,
    /// Runs that were queued and never began: they are `cancelled` now.
    pub never_begun: Vec<RunId>,
}

impl Store {
    /// Closes what processes left open that are gone; to be called when a gateway starts.
    pub async fn recover(&self, now: Timestamp) -> Result<Recovered, StoreFault> {
        let ids = self.ids();
        self.write(move |tx| {
            let mut done = Recovered::default();
            for instance in dead(tx)? {
                close_calls(tx, &ids, &instance, now, &mut done)?;
                close_runs(tx, &ids, &instance, now, &mut done)?;
            }
            Ok(done)
        })
        .await
    }
}

fn dead(tx: &mut Tx<'_>) -> Result<Vec<String>, StoreFault> {
    let found = tx.query(
        "SELECT instance FROM in_flight UNION SELECT instance FROM runs WHERE state IN ('queued', 'running')",
        &[],
    )?;
    let mut dead = Vec::new();
    for mut found in found {
        let instance = found.text()?;
        if !tx.lives(&instance)? {
            dead.push(instance);
        }
    }
    Ok(dead)
}

fn close_calls(
    tx: &mut Tx<'_>,
    ids: &Mint,
    instance: &str,
    now: Timestamp,
    done: &mut Recovered,
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
                tx.tell(&plan)?;
                done.plans.push(plan);
            }
        }
        let sql = format!("SELECT {} FROM ledger WHERE id = $1", ledger::COLUMNS);
        let entry = match tx.one(&sql, &cells![opened.as_str()])? {
            Some(found) => Entry::again(ledger::decode(found)?, RowStatus::Error),
            None => Entry::new(RowKind::Call, RowStatus::Error),
        };
        let why = "the gateway ended while the call was on its way";
        let detail = json!({"opened": opened.as_str(), "outcome": "unknown", "why": why});
        tx.append(&entry.with_detail(&detail), ids.next(now), now);
        done.calls.push(opened);
    }
    Ok(())
}

fn close_runs(
    tx: &mut Tx<'_>,
    ids: &Mint,
    instance: &str,
    now: Timestamp,
    done: &mut Recovered,
) -> Result<(), StoreFault> {
    // Whoever starts a run says so before: one that is still queued has never begun.
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
