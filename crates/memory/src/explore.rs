//! Explores the project: rooms, files, and the approved records about them. Reads only; bounded, in a stable order.

use countersign_policy::memory::{RecordKind, Scope};
use countersign_policy::words::plural;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Memory;
use crate::arguments::{LONGEST_NAME, LONGEST_PATH, LONGEST_TEXT, MemoryArguments, file_path};
use crate::brief::records;
use crate::error::{MemoryError, MemoryResult, MemoryToolReply};
use crate::recall::{SHOWN, chain, matches, search};
use crate::rooms::ProjectRooms;
use crate::view::{self, TextLength};
use crate::{files, words};

/// How much of a file is shown.
const SHOWN_BYTES: usize = 16 * 1024;
/// How many bytes of files are searched at most.
const SEARCHED_BYTES: usize = 16 * 1024 * 1024;
/// How many files of a room are listed.
const LISTED: usize = 200;

/// A file that was found: score, path, the line that fits best.
type FileHit = (u32, String, Option<(usize, String)>);

/// The tool `explore`: rooms and files that have to do with some words.
pub(crate) async fn explore(memory: &Memory, given: &MemoryArguments<'_>) -> MemoryResult<MemoryToolReply> {
    let query = given.required("query", LONGEST_TEXT)?;
    let limit = given.count("limit", 10, 50)? as usize;
    let query_terms = words::query_terms(query);
    let rooms = memory.rooms();
    let found = find_files(memory, query_terms.clone(), limit).await?;
    let near = rooms_for(&rooms, &query_terms);
    Ok(MemoryToolReply::with_message(format!(
        "{}, {}",
        plural(near.len(), "room"),
        plural(found.len(), "file")
    ))
    .with("rooms", near)
    .with("files", found)
    .warn(rooms.warning.clone()))
}

/// The tool `explore_rooms`: all rooms, or one with its files.
pub(crate) async fn rooms(memory: &Memory, given: &MemoryArguments<'_>) -> MemoryResult<MemoryToolReply> {
    let rooms = memory.rooms();
    let Some(name) = given.text("room", LONGEST_NAME)? else {
        let all: Vec<Value> = rooms
            .all
            .iter()
            .map(|room| {
                json!({
                    "name": room.name, "summary": room.summary, "files": room.files, "entry_points": room.entry_points,
                })
            })
            .collect();
        return Ok(MemoryToolReply::with_message(plural(all.len(), "room"))
            .with("rooms", all)
            .warn(rooms.warning));
    };
    let room = rooms.named(name).ok_or_else(|| MemoryError::not_found("there is no room of that name"))?;
    let (decisions, learnings) = records(memory, &chain(Scope::Room, name, &rooms)).await?;
    let paths = walk(memory).await?;
    let inside: Vec<&String> = paths.iter().filter(|path| room.holds(path)).collect();
    let listed: Vec<&&String> = inside.iter().take(LISTED).collect();
    Ok(MemoryToolReply::with_message(format!("room {}: {}", room.name, plural(inside.len(), "file")))
        .with(
            "room",
            json!({
                "name": room.name,
                "summary": room.summary,
                "files": room.files,
                "entry_points": room.entry_points,
                "paths": listed,
                "path_count": inside.len(),
            }),
        )
        .with("decisions", decisions)
        .with("learnings", learnings))
}

/// The tool `explore_file`: a file's beginning and outline, and what is known about it.
pub(crate) async fn file(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let path = file_path(given.required("file", LONGEST_PATH)?)?;
    let content = files::read(&memory.folder, &path, SHOWN_BYTES)?;
    let rooms = memory.rooms();
    let (decisions, learnings) = records(memory, &chain(Scope::File, &path, &rooms)).await?;
    let at_work = memory.store.sessions_at(&path, now).await?;
    Ok(MemoryToolReply::with_message(format!("`{path}`: {}", plural(content.bytes, "byte")))
        .with(
            "file",
            json!({
                "path": path,
                "room": rooms.of_file(&path).map(|room| room.name.as_str()),
                "bytes": content.bytes,
                "lines": content.lines,
                "truncated": content.truncated,
                "outline": files::outline(&content.text),
                "text": content.text,
            }),
        )
        .with("decisions", decisions)
        .with("learnings", learnings)
        .with("sessions", at_work.iter().map(view::conflict).collect::<Vec<_>>())
        .warn(at_work.iter().map(|one| crate::session::warning(one, &path)))
        .warn(rooms.warning.clone()))
}

/// The tool `explore_context`: everything that has to do with a task, project and memory together.
pub(crate) async fn context(memory: &Memory, given: &MemoryArguments<'_>) -> MemoryResult<MemoryToolReply> {
    let query = given.required("query", LONGEST_TEXT)?;
    let limit = given.count("limit", 10, 50)?;
    let query_terms = words::query_terms(query);
    let rooms = memory.rooms();
    let near = rooms_for(&rooms, &query_terms);
    let found = find_files(memory, query_terms, limit as usize).await?;
    let kinds = [RecordKind::Decision, RecordKind::Learning];
    let known = search(&memory.store, &kinds, &[], Some(query), limit).await?;
    let known: Vec<Value> = known.iter().map(|record| view::record(record, TextLength::Cut(SHOWN))).collect();
    let [rooms_, files, records] =
        [(near.len(), "room"), (found.len(), "file"), (known.len(), "record")].map(|(n, one)| plural(n, one));
    Ok(MemoryToolReply::with_message(format!("{rooms_}, {files}, {records}"))
        .with("rooms", near)
        .with("files", found)
        .with("records", known)
        .warn(rooms.warning.clone()))
}

fn rooms_for(rooms: &ProjectRooms, query_terms: &[String]) -> Vec<Value> {
    let mut found: Vec<(u32, &crate::rooms::ProjectRoom)> = rooms
        .all
        .iter()
        .map(|room| {
            (matches(&room.name, query_terms) * 1000 + matches(&room.summary, query_terms) * 500, room)
        })
        .filter(|(score, _)| *score > 0)
        .collect();
    found.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.name.cmp(&right.1.name)));
    let show = |(score, room): &(u32, &crate::rooms::ProjectRoom)| {
        json!({
            "name": room.name,
            "summary": room.summary,
            "entry_points": room.entry_points,
            "score": f64::from(*score) / 1000.0,
        })
    };
    found.iter().take(10).map(show).collect()
}

async fn walk(memory: &Memory) -> MemoryResult<Vec<String>> {
    let folder = memory.folder.clone();
    tokio::task::spawn_blocking(move || files::walk(&folder))
        .await
        .map_err(|_| MemoryError::not_found("the project's folder can't be read"))
}

/// Files whose path or text has the words, the best first.
async fn find_files(memory: &Memory, query_terms: Vec<String>, limit: usize) -> MemoryResult<Vec<Value>> {
    let folder = memory.folder.clone();
    let work = move || {
        let mut budget = SEARCHED_BYTES;
        let mut found: Vec<FileHit> = Vec::new();
        // What describes the rooms is found through them.
        for path in files::walk(&folder).into_iter().filter(|path| path != "rooms.toml") {
            let mut score = matches(&path, &query_terms) * 1000;
            let mut line = None;
            if budget > 0
                && let Some(text) = files::searchable(&folder, &path)
            {
                budget = budget.saturating_sub(text.len());
                score += matches(&text, &query_terms) * 300;
                line = first_line(&text, &query_terms);
            }
            if score > 0 {
                found.push((score, path, line));
            }
        }
        found.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(&right.1)));
        found.truncate(limit);
        found
    };
    let found = tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| MemoryError::not_found("the project's folder can't be read"))?;
    let show = |(score, path, line): FileHit| {
        json!({
            "path": path,
            "score": f64::from(score) / 1000.0,
            "line": line.as_ref().map(|(number, _)| number),
            "text": line.map(|(_, text)| text),
        })
    };
    Ok(found.into_iter().map(show).collect())
}

/// The first line that has the most of the words at once, with its number.
fn first_line(text: &str, query_terms: &[String]) -> Option<(usize, String)> {
    let lines = text.lines().take(2000).enumerate();
    let mut best: Option<(u32, usize, &str)> = None;
    for (at, line) in lines {
        let score = matches(line, query_terms);
        if score > best.map_or(0, |(score, ..)| score) {
            best = Some((score, at + 1, line));
        }
    }
    best.map(|(_, at, line)| (at, line.trim().chars().take(160).collect()))
}
