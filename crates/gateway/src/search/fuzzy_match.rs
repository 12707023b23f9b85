//! Alternatives of an unknown word: words it is a prefix of, or misspells. Only for words that neither the index nor the synonyms know, so
//! that exact matches are never diluted.

use super::{Alternative, Index};

const MOST: usize = 6;
/// The most words of the same first letter that are compared: limits the time a hostile catalogue can cost.
const COMPARED: usize = 8_000;

/// Best first.
pub(super) fn alternatives(index: &Index, word: &str) -> Vec<Alternative> {
    let length = word.chars().count();
    if length < 3 {
        return Vec::new();
    }
    let begun = words_with_prefix(index, word);
    if !begun.is_empty() {
        return begun;
    }
    match length {
        0..=3 => Vec::new(),
        4..=7 => misspelt(index, word, 1),
        _ => misspelt(index, word, 2),
    }
}

fn starting_with<'a>(index: &'a Index, prefix: &'a str) -> impl Iterator<Item = &'a (String, u32)> {
    let from = index.words.partition_point(|(word, _)| word.as_str() < prefix);
    index.words.get(from..).unwrap_or_default().iter().take_while(move |(word, _)| word.starts_with(prefix))
}

fn words_with_prefix(index: &Index, word: &str) -> Vec<Alternative> {
    let mut out = Vec::new();
    for &(_, term) in starting_with(index, word).take(MOST * 4) {
        add(&mut out, Alternative { term, weight: 0.7 });
    }
    out
}

fn misspelt(index: &Index, word: &str, most: usize) -> Vec<Alternative> {
    let wanted: Vec<char> = word.chars().collect();
    // The first letter is rarely wrong, and it keeps the number of comparisons small.
    let first: String = wanted.iter().take(1).collect();
    let mut found: Vec<(usize, u32)> = Vec::new();
    let mut other = Vec::new();
    for (candidate, term) in starting_with(index, &first).take(COMPARED) {
        other.clear();
        other.extend(candidate.chars());
        if other.len().abs_diff(wanted.len()) > most {
            continue;
        }
        if let Some(steps) = (1..=most).find(|steps| within(&wanted, &other, *steps)) {
            found.push((steps, *term));
        }
    }
    let Some(best) = found.iter().map(|(steps, _)| *steps).min() else { return Vec::new() };
    let weight = if best == 1 { 0.8 } else { 0.6 };
    let mut out = Vec::new();
    for (_, term) in found.into_iter().filter(|(steps, _)| *steps == best) {
        add(&mut out, Alternative { term, weight });
    }
    out
}

fn add(out: &mut Vec<Alternative>, alternative: Alternative) {
    if out.len() < MOST && !out.iter().any(|known| known.term == alternative.term) {
        out.push(alternative);
    }
}

/// Whether `steps` insertions, deletions, replacements or swaps of neighbours turn one word into the other.
pub(super) fn within(a: &[char], b: &[char], steps: usize) -> bool {
    let (Some((x, a_rest)), Some((y, b_rest))) = (a.split_first(), b.split_first()) else {
        return a.len().max(b.len()) <= steps;
    };
    if x == y {
        // Equal first letters never need a step.
        return within(a_rest, b_rest, steps);
    }
    if steps == 0 || a.len().abs_diff(b.len()) > steps {
        return false;
    }
    let swapped = match (a, b) {
        ([p, q, a_after @ ..], [r, s, b_after @ ..]) => {
            p == s && q == r && within(a_after, b_after, steps - 1)
        }
        _ => false,
    };
    swapped
        || within(a_rest, b_rest, steps - 1)
        || within(a_rest, b, steps - 1)
        || within(a, b_rest, steps - 1)
}
