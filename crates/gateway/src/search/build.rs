//! Builds the index: counts terms per field, weighs fields, and computes each term's share in each document, so that a query only adds up.
//! Never fails: unreadable parts are left out, long ones cut.

use std::collections::HashMap;

use super::terms::{self, TextWord, WordLink};
use super::{Alternative, Document, Index, Posting, schema, synonyms};

struct FieldWeights {
    /// Relative to each other. Real schemas repeat the same arguments (`id`, `page`, `query`) in most tools of a server, so that those count
    /// little beside what a tool says of itself.
    weight: f32,
    /// How much a long text is marked down: 0 not at all, 1 in proportion.
    length: f32,
    /// The most mentions of a word that count: a text that repeats it further is keyword stuffing.
    mentions: f32,
    chars: usize,
    compounds: Compounds,
}

#[derive(PartialEq)]
enum Compounds {
    /// Names and titles are compounds.
    Every,
    /// Only what the text itself joins (`e-mail`, `GitHub`).
    Glued,
}

/// The longest name, and the longest text.
const NAME_CHARS: usize = 256;
const TEXT_CHARS: usize = 4_096;

/// Name, upstream, title, description, argument names, argument notes.
const FIELDS: [FieldWeights; 6] = [
    FieldWeights { weight: 3.0, length: 0.3, mentions: 1.0, chars: NAME_CHARS, compounds: Compounds::Every },
    FieldWeights { weight: 1.5, length: 0.0, mentions: 1.0, chars: NAME_CHARS, compounds: Compounds::Every },
    FieldWeights { weight: 2.0, length: 0.3, mentions: 1.0, chars: NAME_CHARS, compounds: Compounds::Every },
    FieldWeights { weight: 1.5, length: 0.5, mentions: 3.0, chars: TEXT_CHARS, compounds: Compounds::Glued },
    FieldWeights { weight: 0.3, length: 0.5, mentions: 2.0, chars: TEXT_CHARS, compounds: Compounds::Glued },
    FieldWeights { weight: 0.15, length: 0.6, mentions: 2.0, chars: TEXT_CHARS, compounds: Compounds::Glued },
];

/// How fast further mentions stop counting (BM25's k1).
const SATURATION: f32 = 1.2;

#[derive(Default)]
struct TermCounts {
    lengths: [f32; FIELDS.len()],
    mentions: HashMap<u32, [f32; FIELDS.len()]>,
}

#[derive(Default)]
struct Vocabulary {
    terms: HashMap<String, u32>,
    words: HashMap<String, u32>,
}

impl Vocabulary {
    /// The term of a word. Stems are cached: texts repeat their words.
    fn term(&mut self, word: &str) -> u32 {
        if let Some(&term) = self.words.get(word) {
            return term;
        }
        let next = self.terms.len() as u32;
        let term = *self.terms.entry(terms::stem(word).into_owned()).or_insert(next);
        self.words.insert(word.to_owned(), term);
        term
    }
}

pub(super) fn index<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Index {
    let mut vocabulary = Vocabulary::default();
    let mut counted = Vec::new();
    let mut full_names = Vec::new();
    let mut index = Index::default();
    for (doc, document) in (0_u32..).zip(documents) {
        counted.push(count(&document, &mut vocabulary));
        full_names.push((format!("{}:{}", document.upstream, document.name), doc));
        let next = index.upstreams.len() as u32;
        index.upstream_of.push(*index.upstreams.entry(document.upstream.to_owned()).or_insert(next));
        let name = terms::words(document.name, NAME_CHARS);
        index.looks.push(name.iter().any(|word| synonyms::is_read_verb(&word.text)));
        remember_names(&document, &name, doc, &mut index.whole_names);
    }
    order_by_name(full_names, &mut index);
    settle_postings(&counted, vocabulary.terms.len(), &mut index);
    index.alternatives = alternatives(&vocabulary.terms);
    index.words = vocabulary.words.into_iter().collect();
    index.words.sort_unstable();
    index.terms = vocabulary.terms;
    index
}

fn count(document: &Document<'_>, vocabulary: &mut Vocabulary) -> TermCounts {
    let arguments = schema::arguments(document.input_schema);
    let (names, notes) = (arguments.names.join(" "), arguments.notes.join(" "));
    let texts = [document.name, document.upstream, document.title, document.description, &names, &notes];
    let mut counted = TermCounts::default();
    for (at, (field, text)) in FIELDS.iter().zip(texts).enumerate() {
        let words = terms::words(text, field.chars);
        if let Some(length) = counted.lengths.get_mut(at) {
            *length = words.len() as f32;
        }
        for term in field_terms(field, &words, vocabulary) {
            if let Some(mentions) = counted.mentions.entry(term).or_default().get_mut(at) {
                *mentions += 1.0;
            }
        }
    }
    counted
}

/// The terms of one field: words, compounds of neighbours, and the pieces of runs without spaces.
fn field_terms(field: &FieldWeights, words: &[TextWord], vocabulary: &mut Vocabulary) -> Vec<u32> {
    let mut out = Vec::with_capacity(words.len() * 2);
    let mut previous: Option<&TextWord> = None;
    for word in words {
        if word.link == WordLink::Run {
            // Single characters too: a query may be one.
            let single = word.text.chars().map(String::from);
            out.extend(terms::pairs(&word.text).chain(single).map(|piece| vocabulary.term(&piece)));
            previous = None;
            continue;
        }
        out.push(vocabulary.term(&word.text));
        if let Some(before) = previous
            && (field.compounds == Compounds::Every || word.link == WordLink::Glued)
        {
            out.push(vocabulary.term(&compound(&before.text, &word.text)));
        }
        previous = Some(word);
    }
    out
}

pub(super) fn compound(first: &str, second: &str) -> String {
    [first, second].concat()
}

/// A name for comparison as a whole: `github:delete_branch` and `GitHub delete branch` are `githubdeletebranch`.
pub(super) fn written_together(words: &[TextWord]) -> String {
    words.iter().map(|word| word.text.as_str()).collect()
}

fn remember_names(
    document: &Document<'_>,
    name: &[TextWord],
    doc: u32,
    whole_names: &mut HashMap<String, Vec<u32>>,
) {
    let name = written_together(name);
    let upstream = written_together(&terms::words(document.upstream, NAME_CHARS));
    if name.is_empty() {
        return;
    }
    whole_names.entry([upstream.as_str(), name.as_str()].concat()).or_default().push(doc);
    if !upstream.is_empty() {
        whole_names.entry(name).or_default().push(doc);
    }
}

fn order_by_name(mut full_names: Vec<(String, u32)>, index: &mut Index) {
    full_names.sort_unstable();
    index.by_name = full_names.into_iter().map(|(_, doc)| doc).collect();
    index.name_rank = vec![0; index.by_name.len()];
    for (rank, &doc) in (0_u32..).zip(&index.by_name) {
        if let Some(slot) = index.name_rank.get_mut(doc as usize) {
            *slot = rank;
        }
    }
}

/// Weighs every mention and lays the postings of each term side by side.
fn settle_postings(counted: &[TermCounts], terms: usize, index: &mut Index) {
    let average = average_lengths(counted);
    let mut lists: Vec<Vec<Posting>> = Vec::new();
    lists.resize_with(terms, Vec::new);
    for (doc, document) in (0_u32..).zip(counted) {
        for (&term, mentions) in &document.mentions {
            let weight = weigh(mentions, &document.lengths, &average);
            if let Some(list) = lists.get_mut(term as usize) {
                list.push(Posting { doc, impact: weight / (SATURATION + weight) });
            }
        }
    }
    index.starts.push(0);
    for list in lists {
        index.postings.extend(list);
        index.starts.push(index.postings.len() as u32);
    }
}

type PerField = [f32; FIELDS.len()];

fn average_lengths(counted: &[TermCounts]) -> PerField {
    let mut sum = PerField::default();
    for document in counted {
        for (sum, length) in sum.iter_mut().zip(document.lengths) {
            *sum += length;
        }
    }
    sum.map(|sum| (sum / counted.len().max(1) as f32).max(1.0))
}

fn weigh(mentions: &PerField, lengths: &PerField, average: &PerField) -> f32 {
    let mut weight = 0.0;
    for (((field, mentions), length), average) in FIELDS.iter().zip(mentions).zip(lengths).zip(average) {
        weight += field.weight * mentions.min(field.mentions)
            / (1.0 - field.length + field.length * length / average);
    }
    weight
}

/// The synonyms that lead to a term of some document.
fn alternatives(terms: &HashMap<String, u32>) -> HashMap<String, Vec<Alternative>> {
    let mut out = HashMap::new();
    for (word, synonyms) in synonyms::table() {
        let known: Vec<Alternative> = synonyms
            .iter()
            .filter_map(|(synonym, weight)| Some(Alternative { term: *terms.get(synonym)?, weight: *weight }))
            .collect();
        if !known.is_empty() {
            out.insert(word, known);
        }
    }
    out
}
