//! Tool search: an inverted index ranked by BM25 over weighted fields, built once and immutable. It returns positions in the slice it was
//! built from and knows no policy; the caller's closure decides which tools may be seen. No I/O, no clock, and limited work for any query.

mod build;
mod fuzzy_match;
mod rank;
mod schema;
mod synonyms;
mod terms;

#[cfg(test)]
mod quality;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use serde_json::Value;

#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// As in `upstream:tool`.
    pub upstream: &'a str,
    pub name: &'a str,
    /// Empty where it has none.
    pub title: &'a str,
    /// Empty where it has none.
    pub description: &'a str,
    /// `Value::Null` where it has none.
    pub input_schema: &'a Value,
}

/// Whether a document may be shown, by its position.
pub(crate) type DocumentFilter<'a> = &'a dyn Fn(usize) -> bool;

#[derive(Clone, Copy)]
pub struct SearchQuery<'a> {
    /// Words in any order, a tool's name, or nothing searchable (``, `*`): then everything, by name.
    pub text: &'a str,
    /// The most hits returned; the total counts all of them.
    pub limit: usize,
    pub upstream: Option<&'a str>,
    /// Asked at most once per matching document.
    pub keep: Option<DocumentFilter<'a>>,
}

impl<'a> SearchQuery<'a> {
    #[must_use]
    pub fn new(text: &'a str, limit: usize) -> Self {
        Self { text, limit, upstream: None, keep: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchHit {
    /// The document's position in what the index was built from.
    pub doc: usize,
    /// From 0.0001 to 1, four decimals: how much of the query the document answers, comparable between queries. 1 is the tool's own name, and
    /// every document of an empty query.
    pub score: f64,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SearchResults {
    /// Score descending, then full name ascending.
    pub hits: Vec<SearchHit>,
    pub total: usize,
}

#[derive(Debug, Default)]
pub struct Index {
    /// Documents in the order of their full names, and the inverse.
    by_name: Vec<u32>,
    name_rank: Vec<u32>,
    /// Each document's upstream as a number, and the numbers' names.
    upstream_of: Vec<u32>,
    upstreams: HashMap<String, u32>,
    /// Whether a document's name says that it only reads (`list_…`, `get…`).
    looks: Vec<bool>,
    /// Names written together, with and without the upstream: `githubdeletebranch`.
    whole_names: HashMap<String, Vec<u32>>,
    /// Stem to number; a number's postings are `postings[starts[n]..starts[n + 1]]`.
    terms: HashMap<String, u32>,
    starts: Vec<u32>,
    postings: Vec<Posting>,
    /// Stem to synonymous terms of this index.
    alternatives: HashMap<String, Vec<Alternative>>,
    /// Every word as written, sorted, with its term: for prefixes and misspellings.
    words: Vec<(String, u32)>,
}

/// A term's share in a document: saturated term frequency over all fields, 0 to 1, before rarity.
#[derive(Debug, Clone, Copy)]
struct Posting {
    doc: u32,
    impact: f32,
}

/// An alternative of a term, and how well it fits.
#[derive(Debug, Clone, Copy)]
struct Alternative {
    term: u32,
    weight: f32,
}

impl Index {
    pub fn build<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        build::index(documents)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    #[must_use]
    pub fn search(&self, query: &SearchQuery<'_>) -> SearchResults {
        rank::search(self, query)
    }

    fn postings_of(&self, term: u32) -> &[Posting] {
        let term = term as usize;
        let (Some(&start), Some(&end)) = (self.starts.get(term), self.starts.get(term + 1)) else {
            return &[];
        };
        self.postings.get(start as usize..end as usize).unwrap_or_default()
    }
}
