//! The eight log severities of the protocol, ordered.

use serde_json::value::RawValue;

use crate::raw;

/// From the least to the most severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogSeverity(usize);

const WORDS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

impl LogSeverity {
    /// Reads a level from a member of an object.
    pub(crate) fn of(object: Option<&RawValue>, path: &[&str]) -> Option<Self> {
        let word = raw::get_str_in(object?, path)?;
        WORDS.iter().position(|known| *known == word).map(Self)
    }

    pub(crate) fn as_json(self) -> String {
        format!("\"{}\"", WORDS.get(self.0).copied().unwrap_or("debug"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_unknown_words_are_none() {
        let read = |text: &str| LogSeverity::of(Some(&raw::from_text(text).unwrap()), &["level"]);
        assert!(read(r#"{"level":"debug"}"#) < read(r#"{"level":"emergency"}"#));
        assert_eq!(read(r#"{"level":"loud"}"#), None);
        assert_eq!(read(r#"{"level":3}"#), None);
        assert_eq!(read(r#"{"level":"alert"}"#).unwrap().as_json(), "\"alert\"");
    }
}
