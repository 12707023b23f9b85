//! Pauses: three rejections within ten minutes stop a principal's writes until a person resumes them.

use countersign_policy::ids::{LedgerId, PrincipalId};
use countersign_policy::record::{ActorRole, RowKind};
use jiff::{SignedDuration, Timestamp};

use crate::Store;
use crate::decisions::PauseOutcome;
use crate::engine::cells;
use crate::fault::StoreFault;
use crate::ledger::Entry;
use crate::random::LedgerIdGenerator;
use crate::writer::Tx;

/// How many rejections are too many.
pub const REJECTIONS: u64 = 3;
const REJECTION_WINDOW: SignedDuration = SignedDuration::from_mins(10);

impl Store {
    /// Since when a principal's writes are paused, if they are.
    pub async fn paused(&self, principal: &PrincipalId) -> Result<Option<Timestamp>, StoreFault> {
        let values = cells![principal.as_str()];
        self.read(move |view| {
            let found = view.one("SELECT paused FROM principals WHERE principal = $1", &values)?;
            found.map_or(Ok(None), |mut found| found.maybe_time())
        })
        .await
    }

    /// Everyone whose writes are paused, and since when.
    pub async fn all_paused(&self) -> Result<Vec<(PrincipalId, Timestamp)>, StoreFault> {
        self.read(|view| {
            let found = view.query(
                "SELECT principal, paused FROM principals WHERE paused IS NOT NULL ORDER BY paused",
                &[],
            )?;
            found.into_iter().map(|mut found| Ok((found.text()?.into(), found.time()?))).collect()
        })
        .await
    }

    /// Resumes a principal's writes; none if they were not paused. Earlier rejections no longer count.
    pub async fn resume(
        &self,
        principal: &PrincipalId,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<Option<LedgerId>, StoreFault> {
        let (principal, by, id) = (principal.clone(), by.clone(), self.mint(now));
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE principals SET paused = NULL, resumed = $1 WHERE principal = $2 AND paused IS NOT NULL",
                &cells![now, principal.as_str()],
            )?;
            if changed == 0 {
                return Ok(None);
            }
            let entry =
                Entry::about(RowKind::Decision, "resume", "principal", &principal).by(&by, ActorRole::Human);
            tx.append(&entry, id.clone(), now);
            Ok(Some(id.clone()))
        })
        .await
    }
}

/// Pauses a principal whose plans were rejected too often, inside the transaction of the last rejection.
pub(crate) fn count_rejections(
    tx: &mut Tx<'_>,
    ids: &LedgerIdGenerator,
    principal: &PrincipalId,
    now: Timestamp,
) -> Result<PauseOutcome, StoreFault> {
    // The row is locked first: two replicas that reject at once must not both count two.
    tx.execute(
        "INSERT INTO principals (principal) VALUES ($1) ON CONFLICT (principal) DO UPDATE SET principal = excluded.principal",
        &cells![principal.as_str()],
    )?;
    let since = now.checked_sub(REJECTION_WINDOW).unwrap_or(now);
    let changed = tx.execute(
        "UPDATE principals SET paused = $1
          WHERE principal = $2 AND paused IS NULL
            AND (SELECT COUNT(*) FROM plans
                  WHERE plans.principal = $2 AND plans.state = 'rejected' AND plans.decided > $3
                    AND plans.decided > COALESCE(principals.resumed, 0)) >= $4",
        &cells![now, principal.as_str(), since, REJECTIONS],
    )?;
    if changed == 0 {
        return Ok(PauseOutcome::No);
    }
    tx.append(&Entry::about(RowKind::Decision, "pause", "principal", principal), ids.next(now), now);
    Ok(PauseOutcome::Now)
}
