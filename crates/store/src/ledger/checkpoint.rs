//! Checkpoints: the heads of all chains at one moment, signed. Stored from time to time, and exported as JSON: a checkpoint proves later
//! whether anything up to it was changed or cut off.

use std::fmt;
use std::str::FromStr;

use countersign_policy::canonical;
use countersign_policy::digest::Digest;
use countersign_policy::ids::{LedgerId, WriterId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::key::{SigningKey, is_signed};
use crate::Store;
use crate::engine::{DatabaseConnection, cells};
use crate::fault::{StoreFault, StoreOperation};
use crate::random;

/// Prefix of what is signed, so that a signature can't be taken for another kind of statement.
const TAG: &str = "countersign/checkpoint/v1\0";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHead {
    pub writer: WriterId,
    pub sequence: u64,
    pub hash: Digest,
}

/// The heads of all chains at one moment, signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub v: u32,
    pub time: Timestamp,
    pub heads: Vec<ChainHead>,
    /// The key that signed it, as hex.
    pub public_key: String,
    pub signature: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no checkpoint: {why}")]
pub struct NotACheckpoint {
    why: String,
}

impl NotACheckpoint {
    pub(super) fn because(why: String) -> Self {
        Self { why }
    }
}

impl Checkpoint {
    fn sign(key: &SigningKey, heads: Vec<ChainHead>, time: Timestamp) -> Self {
        let mut made = Self { v: 1, time, heads, public_key: key.public().hex(), signature: String::new() };
        made.signature = key.sign(&made.signed_bytes());
        made
    }

    fn signed_bytes(&self) -> Vec<u8> {
        let body: Value = json!({
            "v": self.v,
            "time": self.time.to_string(),
            "heads": self.heads.iter().map(|head| json!({
                "writer": head.writer.as_str(),
                "sequence": head.sequence,
                "hash": head.hash.hex(),
            })).collect::<Vec<_>>(),
            "public_key": self.public_key,
        });
        [TAG.as_bytes(), canonical::to_string(&body).as_bytes()].concat()
    }

    /// Whether the signature is that of `public_key`. Whether that key is trusted is checked elsewhere.
    pub fn is_signed(&self) -> bool {
        is_signed(&self.public_key, &self.signed_bytes(), &self.signature)
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Checkpoint {
    type Err = NotACheckpoint;

    fn from_str(text: &str) -> Result<Self, NotACheckpoint> {
        let read: Self =
            serde_json::from_str(text.trim()).map_err(|error| NotACheckpoint { why: error.to_string() })?;
        match read.v {
            1 => Ok(read),
            v => Err(NotACheckpoint { why: format!("version {v} is newer than this program") }),
        }
    }
}

/// Signs the heads and stores them, inside the transaction that makes them.
pub(crate) fn keep(
    engine: &mut dyn DatabaseConnection,
    key: &SigningKey,
    writer: &WriterId,
    heads: Vec<ChainHead>,
    at: Timestamp,
) -> Result<Checkpoint, StoreFault> {
    let made = Checkpoint::sign(key, heads, at);
    let id = LedgerId::mint(at, random::bits());
    engine.execute(
        "INSERT INTO checkpoints (id, writer, time, body) VALUES ($1, $2, $3, $4)",
        &cells![id.as_str(), writer.as_str(), at, made.to_string()],
    )?;
    Ok(made)
}

/// Stores and returns a checkpoint over everything written so far.
pub async fn checkpoint(store: &Store) -> Result<Checkpoint, StoreFault> {
    let no_key = || {
        StoreFault::invalid("this store has no signing key: set `key_file`").during(StoreOperation::Opening)
    };
    let key = store.signing_key().ok_or_else(no_key)?;
    let writer = store.writer().clone();
    let made = store.write(move |tx| tx.checkpoint(&key, &writer)).await?;
    if let Some(made) = &made {
        store.keep_outside(made).await?;
    }
    made.ok_or_else(|| StoreFault::invalid("there is nothing to sign: the ledger is empty"))
}

pub async fn kept_checkpoint(store: &Store) -> Result<Option<Checkpoint>, StoreFault> {
    store
        .read(|view| {
            let found = view.query("SELECT body FROM checkpoints ORDER BY id DESC LIMIT 1", &[])?;
            found.into_iter().next().map(|mut found| found.json()).transpose()
        })
        .await
}
