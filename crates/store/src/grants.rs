//! Grants: approvals given ahead. The policy decides whether a grant covers a call; one statement in `calls` decides whether a use is left.

use countersign_policy::grant::Grant;
use countersign_policy::ids::{FullName, GrantId, LedgerId, PrincipalId};
use countersign_policy::record::{ActorRole, RowKind};
use jiff::Timestamp;

use crate::Store;
use crate::engine::{Cell, FoundRow, cells, json_text};
use crate::fault::StoreFault;
use crate::ledger::Entry;
use crate::seal::{Seal, SealedColumn};

/// A grant and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantRow {
    pub grant: Grant,
    pub created: Timestamp,
    pub revoked: Option<Timestamp>,
    pub last_used: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantFilter {
    /// Those that can be used at this moment.
    Usable(Timestamp),
    All,
}

const COLUMNS: &str = "grant_id, body, uses_left, created, revoked, last_used";

fn decode(mut found: FoundRow, seal: &Seal) -> Result<GrantRow, StoreFault> {
    let (id, body) = (found.text()?, found.text()?);
    let mut grant: Grant = serde_json::from_str(&seal.open(&id, SealedColumn::Grant, &body)?)
        .map_err(|error| StoreFault::corrupt(format!("a kept grant can't be read: {error}")))?;
    grant.uses_left = u32::try_from(found.count()?).map_err(|_| StoreFault::corrupt("too many uses"))?;
    Ok(GrantRow {
        grant,
        created: found.time()?,
        revoked: found.maybe_time()?,
        last_used: found.maybe_time()?,
    })
}

impl Store {
    pub async fn grant(&self, grant: &Grant, now: Timestamp) -> Result<LedgerId, StoreFault> {
        let (grant, id) = (grant.clone(), self.mint(now));
        let body = self.seal()?.seal(grant.id.as_str(), SealedColumn::Grant, &json_text(&grant)?)?;
        self.write(move |tx| {
            tx.check_clock(now)?;
            tx.execute(
                "INSERT INTO grants (grant_id, principal, tool, uses_left, expires, created, body)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)",
                &cells![
                    grant.id.as_str(),
                    grant.principal.as_str(),
                    grant.tool.as_str(),
                    grant.uses_left,
                    grant.expires,
                    now,
                    body.as_str(),
                ],
            )?;
            let entry = entity_row(&grant.id, "grant", &grant.by)
                .with_fact("for", grant.principal.as_str())
                .with_fact("tool", grant.tool.as_str())
                .with_fact("uses", grant.uses_left)
                .with_fact("expires", grant.expires.to_string());
            tx.append(&entry, id.clone(), now);
            Ok(id.clone())
        })
        .await
    }

    pub async fn grants(&self, which: GrantFilter) -> Result<Vec<GrantRow>, StoreFault> {
        let (condition, values): (&str, Vec<Cell>) = match which {
            GrantFilter::Usable(now) => {
                ("WHERE uses_left > 0 AND revoked IS NULL AND expires > $1", cells![now].to_vec())
            }
            GrantFilter::All => ("", Vec::new()),
        };
        let sql = format!("SELECT {COLUMNS} FROM grants {condition} ORDER BY grant_id DESC");
        let seal = self.seal()?;
        self.read(move |view| {
            view.query(&sql, &values)?.into_iter().map(|found| decode(found, &seal)).collect()
        })
        .await
    }

    /// Grants that may cover a principal's call of a tool, the first to expire first.
    pub async fn grants_covering(
        &self,
        principal: &PrincipalId,
        tool: &FullName,
        now: Timestamp,
    ) -> Result<Vec<Grant>, StoreFault> {
        // Only candidates: the gate compares conditions and arguments, and `spend` counts down. A grant that ends between the two
        // is refused there.
        let values = cells![principal.as_str(), tool.to_string(), now];
        let sql = format!(
            "SELECT {COLUMNS} FROM grants
              WHERE principal = $1 AND tool = $2 AND uses_left > 0 AND revoked IS NULL AND expires > $3
              ORDER BY expires"
        );
        let seal = self.seal()?;
        self.read(move |view| {
            let found = view.query(&sql, &values)?;
            found.into_iter().map(|found| Ok(decode(found, &seal)?.grant)).collect()
        })
        .await
    }

    /// Revokes a grant; none if it does not exist or was revoked before.
    pub async fn revoke_grant(
        &self,
        grant: &GrantId,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<Option<LedgerId>, StoreFault> {
        let (grant, by, id) = (grant.clone(), by.clone(), self.mint(now));
        self.write(move |tx| {
            let changed = tx.execute(
                // The first revocation counts, so that the row names the person who did it.
                "UPDATE grants SET revoked = $1 WHERE grant_id = $2 AND revoked IS NULL",
                &cells![now, grant.as_str()],
            )?;
            if changed == 0 {
                return Ok(None);
            }
            tx.append(&entity_row(&grant, "revoke_grant", &by), id.clone(), now);
            Ok(Some(id.clone()))
        })
        .await
    }
}

fn entity_row(grant: &GrantId, action: &str, by: &PrincipalId) -> Entry {
    Entry::about(RowKind::Decision, action, "grant", grant).by(by, ActorRole::Human)
}
