//! Reviews of proposals: the evidence, similar approved records, and records that may contradict it. Hints for the reviewer; decides
//! nothing.

use std::collections::HashSet;

use countersign_policy::memory::{ProposalStatus, RecordKind};
use countersign_policy::words::plural;
use countersign_store::memory::{MemoryRecord, Proposal, ProposalQuery};
use jiff::Timestamp;
use serde_json::{Value, json};

pub use crate::govern::{ProposalDecision, decide};

use crate::Memory;
use crate::arguments::MemoryArguments;
use crate::error::{MemoryResult, MemoryToolReply};
use crate::recall::candidates;
use crate::view::{self, TextLength};
use crate::words;

/// How alike records have to be to be shown, in thousandths of shared words.
const ALIKE: u32 = 250;
/// How alike records have to be to speak against each other.
const ABOUT_THE_SAME: u32 = 200;
const MOST: usize = 5;

const NOT: &[&str] = &[
    "not",
    "never",
    "no",
    "don't",
    "dont",
    "doesn't",
    "isn't",
    "cannot",
    "can't",
    "won't",
    "without",
    "avoid",
    "stop",
    "forbid",
    "forbidden",
    "disable",
    "disabled",
    "instead",
    "remove",
    "drop",
    "against",
    "deprecated",
];

/// A proposal with similar and contradicting records.
#[derive(Clone, Debug)]
pub struct ProposalReview {
    pub proposal: Proposal,
    /// Approved records that are like it, the most alike first, in thousandths.
    pub similar: Vec<(MemoryRecord, u32)>,
    /// Approved records that may speak against it, and why it looks so.
    pub contradictions: Vec<(MemoryRecord, String)>,
}

/// Pending proposals, newest first.
pub async fn pending(memory: &Memory, limit: u32, now: Timestamp) -> MemoryResult<Vec<ProposalReview>> {
    let query = ProposalQuery { status: Some(ProposalStatus::Pending), limit, ..ProposalQuery::default() };
    let mut all = Vec::new();
    for proposal in memory.store().proposals(query, now).await? {
        all.push(review(memory, proposal).await?);
    }
    Ok(all)
}

/// The tool `list_proposals`.
pub(crate) async fn list_proposals(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let waiting = pending(memory, given.count("limit", 10, 50)?, now).await?;
    let said = match waiting.len() {
        0 => "no proposal waits for a decision".to_owned(),
        count => format!("{} waiting for a decision", plural(count, "proposal")),
    };
    let proposals: Vec<Value> = waiting.iter().map(json).collect();
    Ok(MemoryToolReply::with_message(said).with("count", proposals.len()).with("proposals", proposals))
}

/// Finds the records similar to a proposal or against it.
pub async fn review(memory: &Memory, proposal: Proposal) -> MemoryResult<ProposalReview> {
    let text = &proposal.body.content;
    let head: String = text.chars().take(4000).collect();
    let query_terms = words::query_terms(&head);
    let own: HashSet<String> = telling_words(&head);
    let kinds = [RecordKind::Decision, RecordKind::Learning];
    let found = if query_terms.is_empty() {
        Vec::new()
    } else {
        candidates(memory.store(), &kinds, &[], &query_terms).await?
    };
    let mut alike: Vec<(u32, MemoryRecord)> = found
        .into_iter()
        .filter(|record| Some(&record.id) != proposal.promoted_to.as_ref())
        .map(|record| (likeness(&own, &record), record))
        .filter(|(score, _)| *score >= ABOUT_THE_SAME.min(ALIKE))
        .collect();
    alike.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.id.cmp(&right.1.id)));
    let contradictions = alike
        .iter()
        .filter(|(score, _)| *score >= ABOUT_THE_SAME)
        .filter_map(|(_, record)| Some((record.clone(), against(&head, &record.body.content)?)))
        .take(MOST)
        .collect();
    let similar = alike.into_iter().filter(|(score, _)| *score >= ALIKE).take(MOST);
    let similar = similar.map(|(score, record)| (record, score)).collect();
    Ok(ProposalReview { proposal, similar, contradictions })
}

pub fn json(review: &ProposalReview) -> Value {
    let mut shown = view::proposal(&review.proposal);
    let similar: Vec<Value> = review
        .similar
        .iter()
        .map(|(record, score)| {
            with(view::record(record, TextLength::Whole), "similarity", view::confidence(*score))
        })
        .collect();
    let contradictions: Vec<Value> = review
        .contradictions
        .iter()
        .map(|(record, why)| with(view::record(record, TextLength::Whole), "why", json!(why)))
        .collect();
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("similar".into(), similar.into());
        shown.insert("contradictions".into(), contradictions.into());
    }
    shown
}

fn with(mut value: Value, name: &str, more: Value) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.insert(name.to_owned(), more);
    }
    value
}

/// The words of a text that say something.
fn telling_words(text: &str) -> HashSet<String> {
    let not: HashSet<String> = NOT.iter().flat_map(|word| words::terms(word)).collect();
    let plain: Vec<String> = words::terms(text);
    let empty = words::query_terms("the of and");
    plain.into_iter().filter(|term| term.len() > 2 && !not.contains(term) && !empty.contains(term)).collect()
}

fn likeness(own: &HashSet<String>, record: &MemoryRecord) -> u32 {
    let head: String = record.body.content.chars().take(4000).collect();
    let theirs = telling_words(&head);
    let both = own.intersection(&theirs).count();
    let all = own.union(&theirs).count().max(1);
    u32::try_from(both * 1000 / all).unwrap_or(0)
}

/// Why two texts about the same thing may speak against each other: one says not, the other does not.
fn against(left: &str, right: &str) -> Option<String> {
    match (turned(left), turned(right)) {
        (Some(word), None) => Some(format!("about the same, and this one says `{word}`")),
        (None, Some(word)) => Some(format!("about the same, and the record says `{word}`")),
        (Some(_), Some(_)) | (None, None) => None,
    }
}

fn turned(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let words: HashSet<&str> = lower.split(|c: char| !c.is_alphanumeric() && c != '\'').collect();
    NOT.iter().copied().find(|word| words.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_says_not_speaks_against_one_that_does_not() {
        assert!(against("Use tabs for indentation", "Never use tabs for indentation").is_some());
        assert!(against("Don't retry payments", "Retry payments twice").is_some());
        assert!(against("Use tabs", "Use tabs, four wide").is_none());
    }
}
