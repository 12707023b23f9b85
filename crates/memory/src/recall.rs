//! Recall: approved records by words, scope or id, in a stable ranking, bounded. Never returns a record that is not approved.

use std::collections::{HashMap, HashSet};

use countersign_policy::memory::{RecordKind, Scope};
use countersign_store::Store;
use countersign_store::memory::{Holding, MemoryRecord, RecordQuery, Terms};
use serde_json::Value;

use crate::Memory;
use crate::arguments::{LONGEST_NAME, LONGEST_TEXT, MemoryArguments};
use crate::error::{MemoryError, MemoryResult, MemoryToolReply};
use crate::rooms::ProjectRooms;
use crate::view::{self, TextLength};
use crate::words;

/// How many characters of a record an answer shows; by id it is whole.
pub(crate) const SHOWN: usize = 500;
/// How many records that have all the words are ranked, the newest.
const OF_ALL: u32 = 100;
/// How many records that have one of the words are ranked, the newest of each word.
const OF_EACH: u32 = 60;
/// How much of a text is read for ranking.
const RANKED_CHARS: usize = 4000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordSelection {
    Records,
    Decisions,
    /// Ideas, which nobody has to stand behind.
    Ideas,
}

impl RecordSelection {
    fn kinds(self) -> &'static [RecordKind] {
        match self {
            RecordSelection::Records => &[RecordKind::Decision, RecordKind::Learning],
            RecordSelection::Decisions => &[RecordKind::Decision],
            RecordSelection::Ideas => &[RecordKind::Idea],
        }
    }
    fn name(self) -> &'static str {
        match self {
            RecordSelection::Records => "record",
            RecordSelection::Decisions => "decision",
            RecordSelection::Ideas => "idea",
        }
    }
}

/// The tools `recall`, `recall_decisions` and `recall_ideas`.
pub(crate) async fn recall(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    which: RecordSelection,
) -> MemoryResult<MemoryToolReply> {
    if let Some(id) = given.text("id", LONGEST_NAME)? {
        return by_id(memory, id, which).await;
    }
    let mut kinds = which.kinds().to_vec();
    if which == RecordSelection::Records
        && let Some(kind) = given.word::<RecordKind>("as")?
    {
        if kind == RecordKind::Idea {
            return Err(MemoryError::field(
                "as",
                "as must be decision or learning; ideas are in recall_ideas",
            ));
        }
        kinds = vec![kind];
    }
    let query = given.text("query", LONGEST_TEXT)?;
    let limit = given.count("limit", 10, 50)?;
    let place = given.place()?;
    let rooms = memory.rooms();
    let places = place.as_ref().map(|(scope, path)| chain(*scope, path, &rooms)).unwrap_or_default();
    let found = search(&memory.store, &kinds, &places, query, limit).await?;
    let shown: Vec<Value> = found.iter().map(|record| view::record(record, TextLength::Cut(SHOWN))).collect();
    let message = match shown.len() {
        0 => format!("no {} found", which.name()),
        1 => format!("1 {}", which.name()),
        many => format!("{many} {}s", which.name()),
    };
    let reply = MemoryToolReply::with_message(message).with("count", shown.len()).with("records", shown);
    Ok(reply.warn(rooms.warning))
}

async fn by_id(memory: &Memory, id: &str, which: RecordSelection) -> MemoryResult<MemoryToolReply> {
    let found = memory.store.record(id).await?;
    let found = found.filter(|record| record.is_readable() && which.kinds().contains(&record.kind));
    let Some(record) = found else {
        // The same answer for a record that never existed and for one that is pending or was rejected.
        return Err(MemoryError::not_found(format!("there is no {} of that id", which.name())));
    };
    let links: Vec<Value> = memory.store.links_of(id).await?.iter().map(view::link).collect();
    let shown = view::record(&record, TextLength::Whole);
    Ok(MemoryToolReply::with_message(format!("{} {}", record.kind, record.id))
        .with("count", 1)
        .with("record", shown.clone())
        .with("records", vec![shown])
        .with("links", links))
}

/// The places that hold where something is asked, nearest first: file → room → palace.
pub(crate) fn chain(scope: Scope, path: &str, rooms: &ProjectRooms) -> Vec<(Scope, String)> {
    let palace = (Scope::Palace, String::new());
    match scope {
        Scope::Palace => vec![palace],
        Scope::Room => vec![(Scope::Room, path.to_owned()), palace],
        Scope::File => {
            let mut all = vec![(Scope::File, path.to_owned())];
            all.extend(rooms.of_file(path).map(|room| (Scope::Room, room.name.clone())));
            all.push(palace);
            all
        }
    }
}

/// Records that hold, in these places (everywhere, if none is named): nearest place first, then by words, then newest.
pub async fn search(
    store: &Store,
    kinds: &[RecordKind],
    places: &[(Scope, String)],
    query: Option<&str>,
    limit: u32,
) -> MemoryResult<Vec<MemoryRecord>> {
    let query_terms = query.map(words::query_terms);
    let mut found = match &query_terms {
        None => {
            let query = RecordQuery {
                kinds: kinds.to_vec(),
                places: places.to_vec(),
                limit,
                holding: Holding::Only,
                ..RecordQuery::default()
            };
            store.find_records(query).await?.into_iter().map(|record| (0, record)).collect()
        }
        Some(terms) => {
            let candidates = candidates(store, kinds, places, terms).await?;
            candidates.into_iter().map(|record| (rank(&record, terms), record)).collect::<Vec<_>>()
        }
    };
    let nearness: HashMap<(Scope, &str), usize> =
        places.iter().enumerate().map(|(at, (scope, path))| ((*scope, path.as_str()), at)).collect();
    let near = |record: &MemoryRecord| nearness.get(&(record.body.scope, record.body.path.as_str())).copied();
    found.sort_by(|(left_rank, left), (right_rank, right)| {
        near(left)
            .cmp(&near(right))
            .then(right_rank.cmp(left_rank))
            .then(right.seq.cmp(&left.seq))
            .then(left.id.cmp(&right.id))
    });
    found.truncate(limit as usize);
    Ok(found.into_iter().map(|(_, record)| record).collect())
}

/// What may be meant: the newest with all the words, and the newest with each of them. Bounded whatever is asked.
pub(crate) async fn candidates(
    store: &Store,
    kinds: &[RecordKind],
    places: &[(Scope, String)],
    terms: &[String],
) -> MemoryResult<Vec<MemoryRecord>> {
    let ask = |terms: Terms, limit: u32| RecordQuery {
        kinds: kinds.to_vec(),
        places: places.to_vec(),
        terms,
        limit,
        holding: Holding::Only,
        before: None,
    };
    let mut found = store.find_records(ask(Terms::All(terms.to_vec()), OF_ALL)).await?;
    if terms.len() > 1 && found.len() < OF_ALL as usize {
        for term in terms {
            found.extend(store.find_records(ask(Terms::All(vec![term.clone()]), OF_EACH)).await?);
        }
    }
    let mut seen = HashSet::new();
    found.retain(|record| seen.insert(record.id.clone()));
    Ok(found)
}

/// How well a record fits the words: in the text, in the labels, in the reasons, in this order.
fn rank(record: &MemoryRecord, query_terms: &[String]) -> u32 {
    let body = &record.body;
    let weighted: [(String, u32); 4] = [
        (body.content.chars().take(RANKED_CHARS).collect(), 10),
        (body.tags.join(" "), 8),
        (body.rationale.chars().take(RANKED_CHARS).collect(), 5),
        (body.context.chars().take(RANKED_CHARS).collect(), 3),
    ];
    weighted.iter().map(|(text, weight)| matches(text, query_terms) * weight).sum()
}

/// How many of the words a text has.
pub(crate) fn matches(text: &str, query_terms: &[String]) -> u32 {
    if text.is_empty() {
        return 0;
    }
    let terms: HashSet<String> = words::terms(text).into_iter().collect();
    u32::try_from(query_terms.iter().filter(|term| terms.contains(*term)).count()).unwrap_or(u32::MAX)
}
