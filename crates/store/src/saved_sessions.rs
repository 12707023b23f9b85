//! HTTP sessions that outlive the gateway: their owner, and what the protocol needs to resume them. No secrets.

use countersign_policy::ids::SessionId;
use jiff::Timestamp;
use serde_json::Value;

use crate::Store;
use crate::engine::{cells, json_text};
use crate::fault::StoreFault;

#[derive(Clone, Debug, PartialEq)]
pub struct SavedLine {
    pub owner: String,
    pub saved: Value,
}

impl Store {
    pub async fn save_line(
        &self,
        session: &SessionId,
        line: &SavedLine,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        let sql = "INSERT INTO lines (session, owner, saved, last_seen) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (session) DO UPDATE SET owner = excluded.owner, saved = excluded.saved,
                   last_seen = excluded.last_seen";
        let values = cells![session.as_str(), line.owner.as_str(), json_text(&line.saved)?, now];
        self.execute(sql, values).await.map(drop)
    }

    pub async fn saved_line(&self, session: &SessionId) -> Result<Option<SavedLine>, StoreFault> {
        let values = cells![session.as_str()];
        self.read(move |view| {
            let found = view.one("SELECT owner, saved FROM lines WHERE session = $1", &values)?;
            found.map(|mut found| Ok(SavedLine { owner: found.text()?, saved: found.json()? })).transpose()
        })
        .await
    }

    pub async fn forget_line(&self, session: &SessionId) -> Result<(), StoreFault> {
        self.execute("DELETE FROM lines WHERE session = $1", cells![session.as_str()]).await.map(drop)
    }
}
