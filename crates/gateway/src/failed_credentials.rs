//! Records credentials that were refused: unknown, revoked, expired. A flood is counted, not written: at most `MOST_ROWS` rows in
//! a window, one for each secret, and a last one with the number of the others.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersign_policy::digest::Digest;
use countersign_policy::ids::Secret;
use countersign_policy::record::{RowKind, RowStatus, Source};
use countersign_policy::refusal::Code;
use countersign_store::{Credential, Entry, secret_digest};
use jiff::Timestamp;

use crate::state::GatewayState;

/// How long one secret is written once.
const WINDOW: Duration = Duration::from_secs(60);
/// How many rows one window has at most, besides the one that counts the rest.
const MOST_ROWS: usize = 20;
/// How much of a secret's digest a row has: enough to tell two apart, and of no use to anybody.
const PREFIX: usize = 12;

/// A try with a credential that opened nothing.
#[derive(Clone, Copy, Debug)]
pub struct FailedTry<'a> {
    /// What was shown.
    pub secret: &'a Secret,
    /// The credential it is the secret of, where there is one.
    pub credential: Option<&'a Credential>,
    pub source: Source,
    /// From which address.
    pub peer: Option<SocketAddr>,
    /// What was asked for.
    pub route: &'a str,
}

/// What was written in the current window.
#[derive(Debug, Default)]
pub struct FailedCredentials(Mutex<FailureWindow>);

#[derive(Debug, Default)]
struct FailureWindow {
    began: Option<Instant>,
    written: HashSet<Digest>,
    unwritten: u64,
}

/// What becomes of a try.
#[derive(Debug, PartialEq, Eq)]
enum FailureRecording {
    /// It is a row of its own.
    Row,
    /// It is counted, and the first of those that are.
    FirstCounted,
    /// It is counted.
    Counted,
}

impl FailureWindow {
    fn take(&mut self, secret: Digest, now: Instant) -> FailureRecording {
        if self.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            self.began = Some(now);
            self.written.clear();
        }
        if self.written.len() < MOST_ROWS && self.written.insert(secret) {
            return FailureRecording::Row;
        }
        self.unwritten += 1;
        if self.unwritten == 1 { FailureRecording::FirstCounted } else { FailureRecording::Counted }
    }
}

impl FailedCredentials {
    fn window(&self) -> MutexGuard<'_, FailureWindow> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the row of a failed try, or counts it. A row that can't be written changes nothing about the refusal.
pub async fn record(gateway: &Arc<GatewayState>, failed: FailedTry<'_>) {
    let digest = secret_digest(failed.secret);
    let kept = gateway.failed_credentials.window().take(digest, Instant::now());
    match kept {
        FailureRecording::Row => {
            let name = failed.credential.map(|one| one.name.as_str());
            tracing::info!(source = failed.source.as_str(), name, "credential refused");
            append(gateway, row(&failed, digest, gateway.now())).await;
        }
        FailureRecording::FirstCounted => {
            let gateway = Arc::downgrade(gateway);
            tokio::spawn(async move {
                tokio::time::sleep(WINDOW).await;
                let Some(gateway) = gateway.upgrade() else { return };
                let unwritten = std::mem::take(&mut gateway.failed_credentials.window().unwritten);
                let row = base("failed_credentials").with_fact("count", unwritten);
                append(&gateway, row).await;
            });
        }
        FailureRecording::Counted => {}
    }
}

async fn append(gateway: &GatewayState, row: Entry) {
    if let Err(fault) = gateway.store.append(row, gateway.now()).await {
        tracing::warn!(fault = fault.inside(), "a failed credential could not be recorded");
    }
}

fn base(action: &str) -> Entry {
    let mut row = Entry::new(RowKind::System, RowStatus::Refused)
        .with_fact("action", action)
        .with_fact("entity_type", "credential")
        .with_fact("reason_code", "credential_invalid");
    row.code = Some(Code::CredentialRequired.as_str().into());
    row
}

fn row(failed: &FailedTry<'_>, digest: Digest, now: Timestamp) -> Entry {
    let why = match failed.credential {
        None => "unknown",
        Some(one) if one.revoked.is_some() => "revoked",
        Some(one) if !one.is_live(now) => "expired",
        Some(_) => "not_allowed",
    };
    let prefix: String = digest.hex().chars().take(PREFIX).collect();
    let mut row = base("failed_credential")
        .with_fact("why", why)
        .with_fact("digest", prefix)
        .with_fact("route", failed.route);
    if let Some(peer) = failed.peer {
        row = row.with_fact("peer", peer.ip().to_string());
    }
    if let Some(one) = failed.credential {
        row = row.with_fact("entity_id", one.id.as_str());
        row.principal = Some(one.name.as_str().into());
        row.role = Some(one.role.into());
    }
    row.source = Some(failed.source);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_16_a_flood_of_failed_credentials_is_counted_and_not_written() {
        let (mut window, start) = (FailureWindow::default(), Instant::now());
        let secret = |number: usize| Digest::plain(number.to_string().as_bytes());
        assert_eq!(window.take(secret(0), start), FailureRecording::Row);
        assert_eq!(window.take(secret(0), start), FailureRecording::FirstCounted, "one secret is one row");
        let rows =
            (1..10_000).filter(|number| window.take(secret(*number), start) == FailureRecording::Row).count();
        assert_eq!(rows, MOST_ROWS - 1);
        assert_eq!(window.unwritten, 10_000 - 1 - (MOST_ROWS as u64 - 1) + 1);
        assert!(window.written.len() <= MOST_ROWS);
        let later = start + WINDOW;
        assert_eq!(window.take(secret(0), later), FailureRecording::Row, "and the next window is another");
    }
}
