//! Ranks documents for a query: words become slots, each filled by a term or one of its alternatives; a document scores by how well it fills
//! them, and rare slots count more. The order is total: score, then name.

use std::cmp::Reverse;

use super::terms::{self, TextWord, WordLink};
use super::{Alternative, Index, SearchHit, SearchQuery, SearchResults, build, fuzzy_match, synonyms};

/// The longest query, and its most words: an agent's sentence, not a file.
const QUERY_CHARS: usize = 1_024;
const SLOTS: usize = 32;
/// The most unknown words that are compared with the vocabulary.
const UNKNOWN: usize = 8;
/// The share of a score that a document keeps if it fills only one of many slots.
const UNFILLED: f32 = 0.5;
/// The share of its rarity that a compound of two known words counts.
const COMPOUND: f32 = 0.5;
/// A query that names only a thing (`calendar events`) mostly wants to read: tools that only read gain this much, enough to settle a near
/// tie and to keep `delete…` from being first by chance.
const LOOK: f32 = 1.08;
/// Scores are integers in ten-thousandths, so that equal means equal.
const SCALE: f32 = 10_000.0;

/// One thing asked for, and the terms that match it.
pub(super) struct Slot {
    exact: Option<u32>,
    alternatives: Vec<Alternative>,
    weight: f32,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    score: f32,
    filled: f32,
}

pub(super) fn search(index: &Index, query: &SearchQuery<'_>) -> SearchResults {
    let upstream = match query.upstream.map(|id| index.upstreams.get(id)) {
        Some(None) => return SearchResults::default(),
        Some(Some(&number)) => Some(number),
        None => None,
    };
    let visible = |doc: u32| {
        upstream.is_none_or(|number| index.upstream_of.get(doc as usize) == Some(&number))
            && query.keep.is_none_or(|keep| keep(doc as usize))
    };
    let words = terms::words(query.text, QUERY_CHARS);
    if words.is_empty() {
        return everything(index, query.limit, visible);
    }
    let mut ranked = Vec::new();
    for (doc, score) in (0_u32..).zip(scores(index, &words)) {
        if score > 0 && visible(doc) {
            let name = index.name_rank.get(doc as usize).copied().unwrap_or(u32::MAX);
            ranked.push((Reverse(score), name, doc));
        }
    }
    let total = ranked.len();
    if query.limit < total {
        ranked.select_nth_unstable(query.limit);
        ranked.truncate(query.limit);
    }
    ranked.sort_unstable();
    let hit = |(Reverse(score), _, doc)| SearchHit {
        doc: doc as usize,
        score: f64::from(score) / f64::from(SCALE),
    };
    SearchResults { hits: ranked.into_iter().map(hit).collect(), total }
}

/// An empty query: everything, by name.
fn everything(index: &Index, limit: usize, visible: impl Fn(u32) -> bool) -> SearchResults {
    let mut found = SearchResults::default();
    for &doc in index.by_name.iter().filter(|doc| visible(**doc)) {
        if found.total < limit {
            found.hits.push(SearchHit { doc: doc as usize, score: 1.0 });
        }
        found.total += 1;
    }
    found
}

/// Every document's score in ten-thousandths; 0 where it has nothing of the query.
fn scores(index: &Index, words: &[TextWord]) -> Vec<u32> {
    let slots = slots(index, words);
    let mut tallies = vec![Tally::default(); index.len()];
    let mut best = vec![0.0_f32; index.len()];
    let mut whole = 0.0;
    for slot in &slots {
        whole += fill(index, slot, &mut best, &mut tallies);
    }
    let look = if names_a_thing(&slots, words) { LOOK } else { 1.0 };
    let score = |(tally, looks): (&Tally, &bool)| {
        if tally.score <= 0.0 {
            return 0;
        }
        let share = tally.score / whole * (UNFILLED + (1.0 - UNFILLED) * tally.filled / whole);
        let share = if *looks { share * look } else { share };
        ((share * SCALE).round() as u32).clamp(1, SCALE as u32 - 1)
    };
    let mut out: Vec<u32> = tallies.iter().zip(&index.looks).map(score).collect();
    for doc in index.whole_names.get(&build::written_together(words)).into_iter().flatten() {
        if let Some(score) = out.get_mut(*doc as usize) {
            *score = SCALE as u32;
        }
    }
    out
}

/// Whether a query contains no verb. An unknown first word may be one: `zap the branch`.
fn names_a_thing(slots: &[Slot], words: &[TextWord]) -> bool {
    slots.first().is_some_and(|first| first.exact.is_some() || !first.alternatives.is_empty())
        && !words.iter().any(|word| synonyms::is_action(&word.text))
}

/// Adds each document's best term for a slot, not the sum, so that a text full of synonyms gains nothing. Returns the most a document
/// could get.
fn fill(index: &Index, slot: &Slot, best: &mut [f32], tallies: &mut [Tally]) -> f32 {
    let having = |term: u32| index.postings_of(term).len();
    let exact = slot.exact.map_or(0, having);
    let group = exact + slot.alternatives.iter().map(|other| having(other.term)).sum::<usize>();
    // One rarity for all terms of a slot, between that of the word asked for and that of the whole group: `drop` must not beat `delete` for
    // being rare, nor a lone `erase` in some text a tool named `delete`.
    let own = rarity(index.len(), if exact > 0 { exact } else { group });
    let worth = slot.weight * f32::midpoint(own, rarity(index.len(), group));
    let exact = slot.exact.map(|term| Alternative { term, weight: 1.0 });
    let mut touched = Vec::with_capacity(group);
    for term in exact.iter().chain(&slot.alternatives) {
        for posting in index.postings_of(term.term) {
            let Some(best) = best.get_mut(posting.doc as usize) else { continue };
            if *best == 0.0 {
                touched.push(posting.doc);
            }
            *best = best.max(posting.impact * term.weight);
        }
    }
    for doc in touched {
        if let (Some(best), Some(tally)) = (best.get_mut(doc as usize), tallies.get_mut(doc as usize)) {
            tally.score += *best * worth;
            tally.filled += worth;
            *best = 0.0;
        }
    }
    worth
}

/// BM25's inverse document frequency, above 0 even for a term in every document.
fn rarity(documents: usize, having: usize) -> f32 {
    let (all, having) = (documents as f32, having.min(documents) as f32);
    (1.0 + (all - having + 0.5) / (having + 0.5)).ln()
}

/// The query's words without fillers and repetitions, with phrases and compounds recognised.
pub(super) fn slots(index: &Index, words: &[TextWord]) -> Vec<Slot> {
    let query_words = query_words(words);
    let mut query = SlotCollector { index, seen: Vec::new(), slots: Vec::new(), unknown: 0 };
    let mut rest = query_words.as_slice();
    while let [first, after @ ..] = rest {
        rest = after;
        if query.slots.len() >= SLOTS {
            break;
        }
        let joined =
            after.first().filter(|_| !first.cut).map(|second| build::compound(&first.text, &second.text));
        match (joined, after.first()) {
            (Some(joined), Some(second)) if query.known(&joined) => {
                if query.known(&first.text) && query.known(&second.text) {
                    query.add(&first.text, 1.0);
                    query.add(&joined, COMPOUND);
                } else {
                    // `GitHub`, `screen shot`: they mean something here only together.
                    query.add(&joined, 1.0);
                    rest = after.get(1..).unwrap_or_default();
                }
            }
            _ => query.add(&first.text, 1.0),
        }
    }
    query.slots
}

struct QueryWord {
    text: String,
    /// Cut out of a script without spaces: never part of a compound.
    cut: bool,
}

fn query_words(words: &[TextWord]) -> Vec<QueryWord> {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let mut out = Vec::new();
    let mut fillers = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if word.link == WordLink::Run {
            let pieces: Vec<String> = terms::pairs(&word.text).collect();
            let pieces = if pieces.is_empty() { vec![word.text.clone()] } else { pieces };
            out.extend(pieces.into_iter().map(|text| QueryWord { text, cut: true }));
        } else if let Some((text, taken)) = synonyms::phrase(texts.get(at - 1..).unwrap_or_default()) {
            out.push(QueryWord { text: text.to_owned(), cut: false });
            at += taken - 1;
        } else if terms::is_filler(&word.text) {
            fillers.push(QueryWord { text: word.text.clone(), cut: false });
        } else {
            out.push(QueryWord { text: word.text.clone(), cut: false });
        }
    }
    // A query of fillers only means them: `to`, `from` are argument names.
    if out.is_empty() { fillers } else { out }
}

struct SlotCollector<'a> {
    index: &'a Index,
    seen: Vec<String>,
    slots: Vec<Slot>,
    unknown: usize,
}

impl SlotCollector<'_> {
    fn known(&self, word: &str) -> bool {
        self.index.terms.contains_key(terms::stem(word).as_ref())
    }

    fn add(&mut self, word: &str, weight: f32) {
        let stem = terms::stem(word);
        if self.seen.iter().any(|seen| *seen == stem) {
            return;
        }
        let exact = self.index.terms.get(stem.as_ref()).copied();
        let mut alternatives = self.index.alternatives.get(stem.as_ref()).cloned().unwrap_or_default();
        if exact.is_none() && alternatives.is_empty() && self.unknown < UNKNOWN {
            self.unknown += 1;
            alternatives = fuzzy_match::alternatives(self.index, word);
        }
        self.seen.push(stem.into_owned());
        self.slots.push(Slot { exact, alternatives, weight });
    }
}
