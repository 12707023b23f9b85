//! Sessions: what a mode belongs to. Stored per principal, so that a session id alone does not reveal another's mode.

use std::sync::Arc;

use countersign_policy::ids::{LedgerId, PrincipalId, SessionId};
use countersign_policy::mode::Mode;
use countersign_policy::record::{HostInfo, RowKind, RowStatus, Source};
use countersign_policy::role::Role;
use jiff::Timestamp;
use serde_json::json;

use crate::Store;
use crate::engine::cells;
use crate::fault::StoreFault;
use crate::ledger::Entry;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub principal: PrincipalId,
    /// What `set_mode` left on it.
    pub mode: Option<Mode>,
    pub created: Timestamp,
    pub last_seen: Timestamp,
}

#[derive(Clone, Debug)]
pub struct ModeSetter {
    pub principal: PrincipalId,
    pub session: SessionId,
    pub role: Role,
    pub source: Source,
    pub host: Option<Arc<HostInfo>>,
}

impl Store {
    /// A session, if it was ever used.
    pub async fn session(
        &self,
        principal: &PrincipalId,
        session: &SessionId,
    ) -> Result<Option<Session>, StoreFault> {
        let (principal, id) = (principal.clone(), session.clone());
        self.read(move |view| {
            let found = view.one(
                "SELECT mode, created, last_seen FROM sessions WHERE principal = $1 AND session = $2",
                &cells![principal.as_str(), id.as_str()],
            )?;
            let Some(mut found) = found else { return Ok(None) };
            Ok(Some(Session {
                id: id.clone(),
                principal: principal.clone(),
                mode: found.maybe()?,
                created: found.time()?,
                last_seen: found.time()?,
            }))
        })
        .await
    }

    /// Sets a session's mode and writes the row.
    pub async fn set_mode(
        &self,
        setter: &ModeSetter,
        mode: Mode,
        now: Timestamp,
    ) -> Result<LedgerId, StoreFault> {
        let (setter, id) = (setter.clone(), self.mint(now));
        self.write(move |tx| {
            let values = cells![setter.principal.as_str(), setter.session.as_str(), mode.as_str(), now];
            tx.execute(
                "INSERT INTO sessions (principal, session, mode, created, last_seen) VALUES ($1, $2, $3, $4, $4)
                 ON CONFLICT (principal, session) DO UPDATE SET mode = excluded.mode, last_seen = excluded.last_seen",
                &values,
            )?;
            let mut entry = Entry::new(RowKind::Mode, RowStatus::Success);
            entry.principal = Some(setter.principal.clone());
            entry.session = Some(setter.session.clone());
            entry.role = Some(setter.role.into());
            entry.source = Some(setter.source);
            entry.set_host(setter.host.as_ref());
            entry.mode = Some(mode);
            tx.append(&entry.with_detail(&json!({"action": "set_mode"})), id.clone(), now);
            Ok(id.clone())
        })
        .await
    }
}
