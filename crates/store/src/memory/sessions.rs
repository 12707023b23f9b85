//! Sessions: an agent's goal and the paths it touches, so that two agents at work on one file learn of each other.

use countersign_policy::digest::Digest;
use countersign_policy::ids::PrincipalId;
use countersign_policy::memory::{SessionActivityKind, SessionOutcome};
use jiff::{SignedDuration, Timestamp};

use super::{new_id, text};
use crate::Store;
use crate::engine::{FoundRow, cells};
use crate::fault::StoreFault;
use crate::writer::Tx;

/// How long a session counts as active after its last activity.
pub const SESSION_IDLE: SignedDuration = SignedDuration::from_mins(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    pub agent_type: String,
    pub agent_id: String,
    pub goal: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// `ses_` and a ULID.
    pub id: String,
    pub about: NewSession,
    pub started: Timestamp,
    pub last_seen: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    pub kind: SessionActivityKind,
    /// To what: a path, a query, a command.
    pub target: String,
    pub outcome: String,
    pub details: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConflict {
    pub session_id: String,
    pub agent_type: String,
    pub goal: String,
    pub kind: SessionActivityKind,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLogged {
    Unknown,
    Ended,
}

fn target_key(target: &str) -> String {
    Digest::plain(target.as_bytes()).hex()
}

fn floor(now: Timestamp) -> Timestamp {
    now.checked_sub(SESSION_IDLE).unwrap_or(Timestamp::MIN)
}

impl Store {
    pub async fn start_session(
        &self,
        session: NewSession,
        principal: &PrincipalId,
        now: Timestamp,
    ) -> Result<String, StoreFault> {
        let id = new_id("ses", &self.ids(), now);
        let values = cells![
            id.as_str(),
            text::kept(principal.as_str()),
            text::kept(&session.agent_type),
            text::kept(&session.agent_id),
            text::kept(&session.goal),
            now
        ];
        self.write(move |tx| {
            tx.execute(
                "INSERT INTO memory_sessions (id, principal, agent_type, agent_id, goal, started, last_seen, summary)
                 VALUES ($1, $2, $3, $4, $5, $6, $6, '')",
                &values,
            )
            .map(drop)
        })
        .await?;
        Ok(id)
    }

    /// Records what a session did, and returns other active sessions on the same path.
    pub async fn log_session(
        &self,
        id: &str,
        principal: &PrincipalId,
        activity: Activity,
        now: Timestamp,
    ) -> Result<Result<Vec<SessionConflict>, NotLogged>, StoreFault> {
        let (id, principal) = (id.to_owned(), text::kept(principal.as_str()));
        self.write(move |tx| {
            if let Err(why) = seen(tx, &id, &principal, now)? {
                return Ok(Err(why));
            }
            let key = target_key(&activity.target);
            tx.execute(
                "INSERT INTO memory_touches (session_id, kind, target, target_key, outcome, details, at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)",
                &cells![
                    id.as_str(),
                    activity.kind.as_str(),
                    text::kept(&activity.target),
                    key.as_str(),
                    text::kept(&activity.outcome),
                    text::kept(&activity.details),
                    now
                ],
            )?;
            let counts: &[SessionActivityKind] = match activity.kind {
                SessionActivityKind::FileEdit => {
                    &[SessionActivityKind::FileRead, SessionActivityKind::FileEdit]
                }
                SessionActivityKind::FileRead => &[SessionActivityKind::FileEdit],
                SessionActivityKind::Search | SessionActivityKind::Command => return Ok(Ok(Vec::new())),
            };
            let found = tx.query(&conflicts_sql(counts), &cells![key.as_str(), floor(now), id.as_str()])?;
            Ok(Ok(found.into_iter().map(conflict).collect::<Result<_, _>>()?))
        })
        .await
    }

    pub async fn end_session(
        &self,
        id: &str,
        principal: &PrincipalId,
        outcome: SessionOutcome,
        summary: &str,
        now: Timestamp,
    ) -> Result<Result<(), NotLogged>, StoreFault> {
        let (id, principal) = (id.to_owned(), text::kept(principal.as_str()));
        let summary = text::kept(summary);
        self.write(move |tx| {
            if let Err(why) = seen(tx, &id, &principal, now)? {
                return Ok(Err(why));
            }
            tx.execute(
                "UPDATE memory_sessions SET ended = $1, outcome = $2, summary = $3 WHERE id = $4",
                &cells![now, outcome.as_str(), summary.as_str(), id.as_str()],
            )?;
            Ok(Ok(()))
        })
        .await
    }

    /// Active sessions, newest first; at most fifty.
    pub async fn open_sessions(&self, now: Timestamp) -> Result<Vec<SessionRow>, StoreFault> {
        let values = cells![floor(now)];
        self.read(move |view| {
            let found = view.query(
                "SELECT id, agent_type, agent_id, goal, started, last_seen FROM memory_sessions
                  WHERE ended IS NULL AND last_seen > $1 ORDER BY id DESC LIMIT 50",
                &values,
            )?;
            found
                .into_iter()
                .map(|mut found| {
                    Ok(SessionRow {
                        id: found.text()?,
                        about: NewSession {
                            agent_type: text::take(&mut found)?,
                            agent_id: text::take(&mut found)?,
                            goal: text::take(&mut found)?,
                        },
                        started: found.time()?,
                        last_seen: found.time()?,
                    })
                })
                .collect()
        })
        .await
    }

    /// Active sessions that changed a path, the latest first.
    pub async fn sessions_at(&self, path: &str, now: Timestamp) -> Result<Vec<SessionConflict>, StoreFault> {
        let values = cells![target_key(path), floor(now), ""];
        self.read(move |view| {
            let found = view.query(&conflicts_sql(&[SessionActivityKind::FileEdit]), &values)?;
            found.into_iter().map(conflict).collect()
        })
        .await
    }
}

/// Checks that the session is active and belongs to the principal, and updates its last activity.
fn seen(
    tx: &mut Tx<'_>,
    id: &str,
    principal: &str,
    now: Timestamp,
) -> Result<Result<(), NotLogged>, StoreFault> {
    let changed = tx.execute(
        "UPDATE memory_sessions SET last_seen = $1 WHERE id = $2 AND principal = $3 AND ended IS NULL",
        &cells![now, id, principal],
    )?;
    if changed == 1 {
        return Ok(Ok(()));
    }
    let found =
        tx.one("SELECT id FROM memory_sessions WHERE id = $1 AND principal = $2", &cells![id, principal])?;
    Ok(Err(if found.is_some() { NotLogged::Ended } else { NotLogged::Unknown }))
}

fn conflicts_sql(kinds: &[SessionActivityKind]) -> String {
    let kinds: Vec<String> = kinds.iter().map(|kind| format!("'{kind}'")).collect();
    // The latest touch of each other session.
    format!(
        "SELECT s.id, s.agent_type, s.goal, t.kind, t.at
           FROM memory_touches t JOIN memory_sessions s ON s.id = t.session_id
          WHERE t.target_key = $1 AND s.ended IS NULL AND s.last_seen > $2 AND s.id <> $3
            AND t.kind IN ({0})
            AND t.seq = (SELECT MAX(u.seq) FROM memory_touches u
                          WHERE u.target_key = $1 AND u.session_id = s.id AND u.kind IN ({0}))
          ORDER BY t.seq DESC LIMIT 20",
        kinds.join(", ")
    )
}

fn conflict(mut found: FoundRow) -> Result<SessionConflict, StoreFault> {
    Ok(SessionConflict {
        session_id: found.text()?,
        agent_type: text::take(&mut found)?,
        goal: text::take(&mut found)?,
        kind: found.word()?,
        at: found.time()?,
    })
}
