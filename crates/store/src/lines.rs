//! HTTP sessions that outlive the gateway: who owns one, and what the wire needs to take it up again. No secrets.

use countersign_core::ids::SessionId;
use jiff::Timestamp;
use serde_json::Value;

use crate::Store;
use crate::engine::{cells, json_text};
use crate::fault::StoreFault;

/// A session as it was saved.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedLine {
    /// Whose it is.
    pub owner: String,
    /// What the wire wants back.
    pub saved: Value,
}

impl Store {
    /// Keeps a session.
    pub async fn save_line(
        &self,
        session: &SessionId,
        line: &SavedLine,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        let values = cells![session.as_str(), line.owner.as_str(), json_text(&line.saved)?, now];
        self.write(move |tx| {
            tx.execute(
                "INSERT INTO lines (session, owner, saved, last_seen) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (session) DO UPDATE SET owner = excluded.owner, saved = excluded.saved,
                 last_seen = excluded.last_seen",
                &values,
            )
            .map(drop)
        })
        .await
    }

    /// A session that was kept.
    pub async fn saved_line(&self, session: &SessionId) -> Result<Option<SavedLine>, StoreFault> {
        let values = cells![session.as_str()];
        self.read(move |view| {
            let found = view.one("SELECT owner, saved FROM lines WHERE session = $1", &values)?;
            found.map(|mut found| Ok(SavedLine { owner: found.text()?, saved: found.json()? })).transpose()
        })
        .await
    }

    /// Forgets a session that was ended.
    pub async fn forget_line(&self, session: &SessionId) -> Result<(), StoreFault> {
        let values = cells![session.as_str()];
        self.write(move |tx| tx.execute("DELETE FROM lines WHERE session = $1", &values).map(drop)).await
    }
}
