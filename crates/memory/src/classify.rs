//! Classifies a text as decision, learning or idea, with a confidence and the phrases it rests on. Deterministic; without any sign it is
//! an idea, which needs no approval.

use countersign_policy::memory::RecordKind;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextClassification {
    pub kind: RecordKind,
    /// How sure, in thousandths.
    pub confidence: u32,
    pub signals: Vec<String>,
}

/// What a text may begin with, and what it then is.
const PREFIXES: &[(&str, RecordKind)] = &[
    ("decision:", RecordKind::Decision),
    ("decided:", RecordKind::Decision),
    ("rule:", RecordKind::Decision),
    ("learning:", RecordKind::Learning),
    ("learned:", RecordKind::Learning),
    ("learnt:", RecordKind::Learning),
    ("lesson:", RecordKind::Learning),
    ("lesson learned:", RecordKind::Learning),
    ("lessons learned:", RecordKind::Learning),
    ("lesson learnt:", RecordKind::Learning),
    ("remember:", RecordKind::Learning),
    ("note:", RecordKind::Learning),
    ("til:", RecordKind::Learning),
    ("til ", RecordKind::Learning),
    ("idea:", RecordKind::Idea),
    ("todo:", RecordKind::Idea),
    ("what if ", RecordKind::Idea),
];

/// Phrases that speak for something, by whole words.
const PHRASES: &[(&str, RecordKind)] = &[
    ("we decided", RecordKind::Decision),
    ("decided to", RecordKind::Decision),
    ("we will", RecordKind::Decision),
    ("we use", RecordKind::Decision),
    ("we chose", RecordKind::Decision),
    ("we agreed", RecordKind::Decision),
    ("we'll use", RecordKind::Decision),
    ("let's use", RecordKind::Decision),
    ("going with", RecordKind::Decision),
    ("go with", RecordKind::Decision),
    ("instead of", RecordKind::Decision),
    ("must", RecordKind::Decision),
    ("always", RecordKind::Decision),
    ("never", RecordKind::Decision),
    ("adopt", RecordKind::Decision),
    ("turns out", RecordKind::Learning),
    ("learned that", RecordKind::Learning),
    ("learnt that", RecordKind::Learning),
    ("it fails", RecordKind::Learning),
    ("fails when", RecordKind::Learning),
    ("fails if", RecordKind::Learning),
    ("caused by", RecordKind::Learning),
    ("because", RecordKind::Learning),
    ("gotcha", RecordKind::Learning),
    ("beware", RecordKind::Learning),
    ("note that", RecordKind::Learning),
    ("root cause", RecordKind::Learning),
    ("maybe", RecordKind::Idea),
    ("perhaps", RecordKind::Idea),
    ("could", RecordKind::Idea),
    ("might", RecordKind::Idea),
    ("consider", RecordKind::Idea),
    ("someday", RecordKind::Idea),
    ("would be nice", RecordKind::Idea),
    ("explore", RecordKind::Idea),
];

pub fn stated(kind: RecordKind) -> TextClassification {
    TextClassification { kind, confidence: 1000, signals: vec!["explicit".to_owned()] }
}

pub fn classify(text: &str) -> TextClassification {
    // A long text says what it is at its beginning.
    let head: String = text.trim_start().chars().take(2000).collect::<String>().to_lowercase();
    for (prefix, kind) in PREFIXES {
        if head.starts_with(prefix) {
            return TextClassification {
                kind: *kind,
                confidence: 950,
                signals: vec![format!("prefix `{}`", prefix.trim())],
            };
        }
    }
    let plain: String =
        head.chars().map(|c| if c.is_alphanumeric() || c == '\'' { c } else { ' ' }).collect();
    let padded = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    let found: Vec<&(&str, RecordKind)> =
        PHRASES.iter().filter(|(phrase, _)| padded.contains(&format!(" {phrase} "))).collect();
    let count = |kind: RecordKind| found.iter().filter(|(_, of)| *of == kind).count();
    let ranked =
        [RecordKind::Decision, RecordKind::Learning, RecordKind::Idea].map(|kind| (count(kind), kind));
    // Of equals the later wins: what makes less true.
    let Some((most, kind)) = ranked.into_iter().max_by_key(|(count, kind)| (*count, *kind)) else {
        return nothing();
    };
    if most == 0 {
        return nothing();
    }
    let others = found.len() - most;
    let sure = 450 + 150 * most.min(3);
    let confidence = sure.saturating_sub(100 * others).max(300);
    let signals = found.iter().filter(|(_, of)| *of == kind).map(|(phrase, _)| format!("phrase `{phrase}`"));
    TextClassification {
        kind,
        confidence: u32::try_from(confidence).unwrap_or(300),
        signals: signals.collect(),
    }
}

fn nothing() -> TextClassification {
    TextClassification { kind: RecordKind::Idea, confidence: 300, signals: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_taken_for_what_they_say_they_are() {
        let check = |text: &str, kind: &str, confidence: u32| {
            let found = classify(text);
            assert_eq!((found.kind.as_str(), found.confidence), (kind, confidence), "{text}: {found:?}");
        };
        check("Lesson learned: never rm", "learning", 950);
        check("TIL the cache is cold", "learning", 950);
        check("we'll use SQLite", "decision", 600);
        check("Decision: we use PostgreSQL", "decision", 950);
        check("TIL: sqlite keeps text as it is", "learning", 950);
        check("idea: a dark mode", "idea", 950);
        check("We decided to use tokio instead of threads", "decision", 900);
        check("Turns out the build fails when TMPDIR is read-only", "learning", 750);
        check("Maybe we could cache this", "idea", 750);
        check("Blue", "idea", 300);
        check("We will do it because it is quick", "learning", 500);
        check("", "idea", 300);
    }
}
