//! Sessions: the span a mode belongs to. Kept per principal, so that nobody finds another's mode.

use countersign_core::ids::{LedgerId, PrincipalId, SessionId};
use countersign_core::mode::Mode;
use countersign_core::record::{RowKind, RowStatus, Source};
use countersign_core::role::Role;
use jiff::Timestamp;
use serde_json::json;

use crate::Store;
use crate::engine::cells;
use crate::fault::StoreFault;
use crate::ledger::Entry;

/// A session of a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Whose it is.
    pub principal: PrincipalId,
    /// What `set_mode` left on it.
    pub mode: Option<Mode>,
    /// When it began.
    pub created: Timestamp,
    /// When it was last used.
    pub last_seen: Timestamp,
}

/// Who sets a mode, and through which door.
#[derive(Clone, Debug)]
pub struct Setter {
    /// The principal of the line.
    pub principal: PrincipalId,
    /// The session of the line.
    pub session: SessionId,
    /// The role of the line.
    pub role: Role,
    /// The door.
    pub source: Source,
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

    /// Notes that a session is used; begins it where it is new.
    pub async fn touch_session(
        &self,
        principal: &PrincipalId,
        session: &SessionId,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        let values = cells![principal.as_str(), session.as_str(), now];
        self.write(move |tx| {
            tx.execute(
                "INSERT INTO sessions (principal, session, created, last_seen) VALUES ($1, $2, $3, $3)
                 ON CONFLICT (principal, session) DO UPDATE SET last_seen = excluded.last_seen",
                &values,
            )
            .map(drop)
        })
        .await
    }

    /// Sets a session's mode and writes the row.
    pub async fn set_mode(
        &self,
        setter: &Setter,
        mode: Mode,
        now: Timestamp,
    ) -> Result<LedgerId, StoreFault> {
        let (setter, id) = (setter.clone(), self.mint(now));
        let written = id.clone();
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
            entry.mode = Some(mode);
            tx.append(&entry.with_detail(&json!({"action": "set_mode"})), id.clone(), now);
            Ok(())
        })
        .await?;
        Ok(written)
    }

    /// Forgets sessions that were not used since a moment; how many.
    pub async fn forget_sessions(&self, unused_since: Timestamp) -> Result<u64, StoreFault> {
        self.write(move |tx| tx.execute("DELETE FROM sessions WHERE last_seen < $1", &cells![unused_since]))
            .await
    }
}
