//! Grants: approvals given ahead. Whether a call lies inside one is the law's; whether a use is left is decided by one
//! statement when the call is opened.

use countersign_core::grant::Grant;
use countersign_core::ids::{FullName, GrantId, LedgerId, PrincipalId};
use countersign_core::record::{ActorRole, RowKind, RowStatus};
use jiff::Timestamp;
use serde_json::json;

use crate::Store;
use crate::engine::{Cell, Found, cells, json_text};
use crate::fault::StoreFault;
use crate::ledger::Entry;

/// A grant and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantRow {
    /// The grant, with the uses that are left.
    pub grant: Grant,
    /// When it was given.
    pub created: Timestamp,
    /// When it was taken back.
    pub revoked: Option<Timestamp>,
    /// When it was last used.
    pub last_used: Option<Timestamp>,
}

/// Which grants are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grants {
    /// Those that can still be used at this moment.
    Usable(Timestamp),
    /// All that were ever given.
    All,
}

const COLUMNS: &str = "body, uses_left, created, revoked, last_used";

fn decode(mut found: Found) -> Result<GrantRow, StoreFault> {
    let mut grant: Grant = found.json()?;
    grant.uses_left = u32::try_from(found.count()?).map_err(|_| StoreFault::corrupt("too many uses"))?;
    Ok(GrantRow {
        grant,
        created: found.time()?,
        revoked: found.maybe_time()?,
        last_used: found.maybe_time()?,
    })
}

impl Store {
    /// Keeps a grant.
    pub async fn grant(&self, grant: &Grant, now: Timestamp) -> Result<LedgerId, StoreFault> {
        let (grant, id) = (grant.clone(), self.mint(now));
        let body = json_text(&grant)?;
        let written = id.clone();
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
            let entry = about(&grant.id, "grant", &grant.by)
                .with_fact("for", grant.principal.as_str())
                .with_fact("tool", grant.tool.as_str())
                .with_fact("uses", grant.uses_left)
                .with_fact("expires", grant.expires.to_string());
            tx.append(&entry, id.clone(), now);
            Ok(())
        })
        .await?;
        Ok(written)
    }

    /// Grants, newest first.
    pub async fn grants(&self, which: Grants) -> Result<Vec<GrantRow>, StoreFault> {
        let (condition, values): (&str, Vec<Cell>) = match which {
            Grants::Usable(now) => {
                ("WHERE uses_left > 0 AND revoked IS NULL AND expires > $1", cells![now].to_vec())
            }
            Grants::All => ("", Vec::new()),
        };
        let sql = format!("SELECT {COLUMNS} FROM grants {condition} ORDER BY grant_id DESC");
        self.read(move |view| view.query(&sql, &values)?.into_iter().map(decode).collect()).await
    }

    /// Grants that may cover a principal's call of a tool, the soonest to end first.
    pub async fn grants_covering(
        &self,
        principal: &PrincipalId,
        tool: &FullName,
        now: Timestamp,
    ) -> Result<Vec<Grant>, StoreFault> {
        let values = cells![principal.as_str(), tool.to_string(), now];
        let sql = format!(
            "SELECT {COLUMNS} FROM grants
              WHERE principal = $1 AND tool = $2 AND uses_left > 0 AND revoked IS NULL AND expires > $3
              ORDER BY expires"
        );
        self.read(move |view| {
            let found = view.query(&sql, &values)?;
            found.into_iter().map(|found| Ok(decode(found)?.grant)).collect()
        })
        .await
    }

    /// Takes a grant back; none if there is no such grant or it was taken back before.
    pub async fn revoke_grant(
        &self,
        grant: &GrantId,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<Option<LedgerId>, StoreFault> {
        let (grant, by, id) = (grant.clone(), by.clone(), self.mint(now));
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE grants SET revoked = $1 WHERE grant_id = $2 AND revoked IS NULL",
                &cells![now, grant.as_str()],
            )?;
            if changed == 0 {
                return Ok(None);
            }
            tx.append(&about(&grant, "revoke_grant", &by), id.clone(), now);
            Ok(Some(id.clone()))
        })
        .await
    }
}

fn about(grant: &GrantId, action: &str, by: &PrincipalId) -> Entry {
    let detail = json!({"action": action, "entity_type": "grant", "entity_id": grant});
    let mut entry = Entry::new(RowKind::Decision, RowStatus::Success).with_detail(&detail);
    entry.principal = Some(by.clone());
    entry.role = Some(ActorRole::Human);
    entry
}
