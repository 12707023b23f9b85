//! Sessions: an agent says what it works on, and is warned of other sessions on the same path.

use countersign_policy::memory::{SessionActivityKind, SessionOutcome};
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::words::plural;
use countersign_store::memory::{Activity, MemoryActor, NewSession, NotLogged, SessionConflict};
use jiff::Timestamp;

use crate::Memory;
use crate::arguments::{LONGEST_NAME, LONGEST_PATH, LONGEST_TEXT, MemoryArguments, file_path};
use crate::error::{MemoryError, MemoryResult, MemoryToolReply};
use crate::view;

/// The tool `session_start`.
pub(crate) async fn start(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let session = NewSession {
        agent_type: given.required("agentType", LONGEST_NAME)?.to_owned(),
        agent_id: given.or_empty("agentId", LONGEST_NAME)?,
        goal: given.or_empty("goal", LONGEST_PATH)?,
    };
    let id = memory.store.start_session(session, &actor.principal, now).await?;
    let others = memory.store.open_sessions(now).await?.len().saturating_sub(1);
    Ok(MemoryToolReply::with_message(format!("session {id} started; {} at work", plural(others, "other")))
        .with("session_id", id)
        .with("others", others))
}

/// The tool `session_log`.
pub(crate) async fn log(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let id = given.required("sessionId", LONGEST_NAME)?;
    let kind = given
        .word::<SessionActivityKind>("kind")?
        .ok_or_else(|| MemoryError::field("kind", "kind is required"))?;
    let target = given.required("target", LONGEST_PATH)?;
    let target = match kind {
        // The same file is the same file, however it is spelled.
        SessionActivityKind::FileRead | SessionActivityKind::FileEdit => file_path(target)?,
        SessionActivityKind::Search | SessionActivityKind::Command => target.to_owned(),
    };
    let activity = Activity {
        kind,
        target: target.clone(),
        outcome: given.or_empty("outcome", LONGEST_NAME)?,
        details: given.or_empty("details", LONGEST_TEXT)?,
    };
    let logged = memory.store.log_session(id, &actor.principal, activity, now).await?;
    let conflicts = logged.map_err(|why| not_logged(why, id))?;
    let message = match conflicts.len() {
        0 => "logged".to_owned(),
        some => format!("logged; {} at work on `{target}`", plural(some, "other")),
    };
    Ok(MemoryToolReply::with_message(message)
        .with("session_id", id)
        .with("conflicts", conflicts.iter().map(view::conflict).collect::<Vec<_>>())
        .warn(conflicts.iter().map(|one| warning(one, &target))))
}

/// The tool `session_end`.
pub(crate) async fn end(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let id = given.required("sessionId", LONGEST_NAME)?;
    let outcome = given.word::<SessionOutcome>("outcome")?.unwrap_or(SessionOutcome::Success);
    let summary = given.or_empty("summary", LONGEST_TEXT)?;
    let ended = memory.store.end_session(id, &actor.principal, outcome, &summary, now).await?;
    ended.map_err(|why| not_logged(why, id))?;
    Ok(MemoryToolReply::with_message(format!("session {id} ended: {outcome}"))
        .with("session_id", id)
        .with("outcome", outcome.as_str()))
}

/// What is said about another session at work on a path.
pub(crate) fn warning(conflict: &SessionConflict, path: &str) -> String {
    let does = match conflict.kind {
        SessionActivityKind::FileEdit => "edits",
        SessionActivityKind::FileRead => "reads",
        SessionActivityKind::Search | SessionActivityKind::Command => "works on",
    };
    let goal = if conflict.goal.is_empty() { String::new() } else { format!(" ({})", conflict.goal) };
    format!("conflict: {} in session {} {does} `{path}`, too{goal}", conflict.agent_type, conflict.session_id)
}

fn not_logged(why: NotLogged, id: &str) -> MemoryError {
    match why {
        NotLogged::Unknown => MemoryError::not_found("there is no such session of yours"),
        NotLogged::Ended => {
            Refusal::new(Code::NotFound, format!("session `{id}` has ended; start a new one")).into()
        }
    }
}
