//! Briefs: what an agent should know before it starts or touches a file. Approved records only, bounded, nearest scope first.

use countersign_policy::memory::{RecordKind, Scope};
use countersign_policy::words::plural;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Memory;
use crate::arguments::{LONGEST_PATH, MemoryArguments, file_path};
use crate::error::{MemoryResult, MemoryToolReply};
use crate::recall::{SHOWN, chain, search};
use crate::view::{self, TextLength};

const MOST: u32 = 10;

/// The tool `brief`.
pub(crate) async fn brief(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    if let Some(path) = given.text("file", LONGEST_PATH)? {
        return of_file(memory, &file_path(path)?, now).await;
    }
    let rooms = memory.rooms();
    let (decisions, learnings) = records(memory, &[]).await?;
    let ideas = search(&memory.store, &[RecordKind::Idea], &[], None, 5).await?;
    let sessions: Vec<Value> = memory
        .store
        .open_sessions(now)
        .await?
        .iter()
        .map(|session| {
            json!({
                "session_id": session.id,
                "agent_type": session.about.agent_type,
                "goal": session.about.goal,
                "started_at": view::time(session.started),
            })
        })
        .collect();
    let all: Vec<Value> =
        rooms.all.iter().map(|room| json!({"name": room.name, "summary": room.summary})).collect();
    let known = known(decisions.len(), learnings.len());
    let message = format!("{known}, {}", plural(all.len(), "room"));
    Ok(MemoryToolReply::with_message(message)
        .with("decisions", decisions)
        .with("learnings", learnings)
        .with(
            "ideas",
            ideas.iter().map(|idea| view::record(idea, TextLength::Cut(SHOWN))).collect::<Vec<_>>(),
        )
        .with("rooms", all)
        .with("sessions", sessions)
        .warn(rooms.warning))
}

fn known(decisions: usize, learnings: usize) -> String {
    format!("{}, {}", plural(decisions, "decision"), plural(learnings, "learning"))
}

/// The tool `brief_file`.
pub(crate) async fn brief_file(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let path = file_path(given.required("path", LONGEST_PATH)?)?;
    of_file(memory, &path, now).await
}

async fn of_file(memory: &Memory, path: &str, now: Timestamp) -> MemoryResult<MemoryToolReply> {
    let rooms = memory.rooms();
    let (decisions, learnings) = records(memory, &chain(Scope::File, path, &rooms)).await?;
    let room = rooms.of_file(path);
    let conflicts = memory.store.sessions_at(path, now).await?;
    let warnings: Vec<String> = conflicts.iter().map(|one| crate::session::warning(one, path)).collect();
    let message = format!("`{path}`: {}", known(decisions.len(), learnings.len()));
    Ok(MemoryToolReply::with_message(message)
        .with("path", path)
        .with("room", room.map(|room| json!({"name": room.name, "summary": room.summary})))
        .with("decisions", decisions)
        .with("learnings", learnings)
        .with("sessions", conflicts.iter().map(view::conflict).collect::<Vec<_>>())
        .warn(warnings)
        .warn(rooms.warning.clone()))
}

/// Decisions and learnings that hold in these places.
pub(crate) async fn records(
    memory: &Memory,
    places: &[(Scope, String)],
) -> MemoryResult<(Vec<Value>, Vec<Value>)> {
    let mut both = Vec::new();
    for kind in [RecordKind::Decision, RecordKind::Learning] {
        let found = search(&memory.store, &[kind], places, None, MOST).await?;
        both.push(
            found.iter().map(|record| view::record(record, TextLength::Cut(SHOWN))).collect::<Vec<_>>(),
        );
    }
    let learnings = both.pop().unwrap_or_default();
    Ok((both.pop().unwrap_or_default(), learnings))
}
