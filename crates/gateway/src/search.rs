//! Tool search: which of the catalogue's tools fit a few words. An inverted index ranked by BM25 over weighted
//! fields, built once and immutable: the catalogue builds a new one and swaps it in. It answers positions in
//! the slice it was built from and knows no verdict, mode or rule; whether a tool may be seen is the caller's
//! closure. No I/O, no clock, and bounded work whatever a query or an upstream's texts hold.

mod build;
mod near;
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

/// What the index reads of one tool.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The upstream's id, as in `upstream:tool`.
    pub upstream: &'a str,
    /// The tool's own name, without the upstream.
    pub name: &'a str,
    /// The tool's title, empty where it has none.
    pub title: &'a str,
    /// The tool's description, empty where it has none.
    pub description: &'a str,
    /// The tool's `inputSchema`; `Value::Null` where it has none.
    pub input_schema: &'a Value,
}

/// Says of a document's position whether it may be shown: role, effect, quarantine.
pub type Keep<'a> = &'a dyn Fn(usize) -> bool;

/// What is looked for.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// Words in any order, a tool's name, or nothing searchable (``, `*`): then everything, by name.
    pub text: &'a str,
    /// How many hits are returned at most; the total counts all of them.
    pub limit: usize,
    /// Only tools of this upstream.
    pub upstream: Option<&'a str>,
    /// Only documents this says yes to; asked at most once per matching document.
    pub keep: Option<Keep<'a>>,
}

impl<'a> Query<'a> {
    /// A query over every upstream and document.
    #[must_use]
    pub fn new(text: &'a str, limit: usize) -> Self {
        Self { text, limit, upstream: None, keep: None }
    }
}

/// One matching document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// The document's position in what the index was built from.
    pub doc: usize,
    /// From 0.0001 to 1, four decimals: how much of the query the document answers, comparable between queries.
    /// 1 is the tool's own name, and every document of an empty query.
    pub score: f64,
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// The best hits: score descending, then full name ascending.
    pub hits: Vec<Hit>,
    /// How many documents match, shown or not.
    pub total: usize,
}

/// An immutable index over a slice of tools.
#[derive(Debug, Default)]
pub struct Index {
    /// Documents in the order of their full names, and the inverse.
    by_name: Vec<u32>,
    name_rank: Vec<u32>,
    /// Each document's upstream as a number, and the numbers' names.
    upstream_of: Vec<u32>,
    upstreams: HashMap<String, u32>,
    /// Whether a document's name says that it only looks (`list_…`, `get…`).
    looks: Vec<bool>,
    /// Names written together, with and without the upstream: `githubdeletebranch`.
    whole_names: HashMap<String, Vec<u32>>,
    /// Stem to number; a number's postings are `postings[starts[n]..starts[n + 1]]`.
    terms: HashMap<String, u32>,
    starts: Vec<u32>,
    postings: Vec<Posting>,
    /// Stem to the terms of this index which mean about the same.
    alternatives: HashMap<String, Vec<Alternative>>,
    /// Every word as written, sorted, with its term: for beginnings and misspellings.
    words: Vec<(String, u32)>,
}

/// A term's share in a document: saturated term frequency over all fields, 0 to 1, before rarity.
#[derive(Debug, Clone, Copy)]
struct Posting {
    doc: u32,
    impact: f32,
}

/// A term that stands in for another, and how well.
#[derive(Debug, Clone, Copy)]
struct Alternative {
    term: u32,
    weight: f32,
}

impl Index {
    /// Builds the index; a document's position in `documents` is how hits name it.
    pub fn build<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        build::index(documents)
    }

    /// How many documents the index holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether the index holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The best documents for a query, and how many match at all.
    #[must_use]
    pub fn search(&self, query: &Query<'_>) -> Found {
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
