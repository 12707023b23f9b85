//! Effects: what a tool does. An operator's rule decides; hints may raise, a lexicon of names may raise,
//! and nothing an upstream claims lowers what its tool's name admits.

use crate::tool::Annotations;
use crate::words::words;

words! {
    /// What a tool does, weakest first.
    pub enum Effect("effect") {
        /// Changes nothing.
        Read = "read",
        /// Changes something.
        Write = "write",
        /// Destroys something.
        Destructive = "destructive",
    }
}

words! {
    /// Why a tool has its effect.
    pub enum Because("reason") {
        /// A rule says so.
        Rule = "rule",
        /// `destructiveHint` is true.
        DestructiveHint = "destructive_hint",
        /// `readOnlyHint` is true.
        ReadOnlyHint = "read_only_hint",
        /// The name holds a word of the lexicon.
        Lexicon = "lexicon",
        /// The name holds a word of the lexicon and the annotations deny it.
        Contradiction = "contradiction",
        /// Nothing is known: a write.
        Unknown = "unknown",
    }
}

/// A tool's effect and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classified {
    /// What later gates go by.
    pub effect: Effect,
    /// Why.
    pub because: Because,
}

/// What the intent gate believes of a tool's annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// Marked destructive, by the server or a rule.
    Destructive,
    /// Marked read-only, by the server or a rule, and the name does not say otherwise.
    ReadOnly,
    /// Nothing usable.
    Nothing,
}

/// Whole words of a tool's name that mean that something goes away.
const LEXICON: [&str; 27] = [
    "delete",
    "del",
    "drop",
    "destroy",
    "wipe",
    "purge",
    "revoke",
    "discard",
    "truncate",
    "kill",
    "erase",
    "remove",
    "rm",
    "rmdir",
    "unlink",
    "shred",
    "nuke",
    "obliterate",
    "terminate",
    "uninstall",
    "deprovision",
    "decommission",
    "expunge",
    "overwrite",
    "prune",
    "annihilate",
    "eradicate",
];

/// Splits a name into lower-case words at case changes and anything that is neither letter nor digit.
pub fn name_words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut previous: Option<char> = None;
    let mut rest = name.chars().peekable();
    while let Some(current) = rest.next() {
        if !current.is_alphanumeric() {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            previous = None;
            continue;
        }
        let next_is_lower = rest.peek().is_some_and(|next| next.is_lowercase());
        let starts_word = previous.is_some_and(|before| {
            current.is_uppercase() && (before.is_lowercase() || before.is_numeric() || next_is_lower)
                || current.is_numeric() != before.is_numeric()
        });
        if starts_word {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        }
        word.extend(current.to_lowercase());
        previous = Some(current);
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// Whether the name admits that something is destroyed.
pub fn name_is_destructive(name: &str) -> bool {
    name_words(name).iter().any(|word| LEXICON.contains(&word.as_str()))
}

/// The effect of a tool: first match of rule, `destructiveHint`, lexicon against hints, `readOnlyHint`, and write.
pub fn classify(rule: Option<Effect>, annotations: Annotations, name: &str) -> Classified {
    let of = |effect, because| Classified { effect, because };
    if let Some(effect) = rule {
        return of(effect, Because::Rule);
    }
    if annotations.destructive == Some(true) {
        return of(Effect::Destructive, Because::DestructiveHint);
    }
    let denied = annotations.read_only == Some(true) || annotations.destructive == Some(false);
    match (name_is_destructive(name), denied, annotations.read_only) {
        (true, true, _) => of(Effect::Destructive, Because::Contradiction),
        (true, false, _) => of(Effect::Destructive, Because::Lexicon),
        (false, _, Some(true)) => of(Effect::Read, Because::ReadOnlyHint),
        (false, _, Some(false) | None) => of(Effect::Write, Because::Unknown),
    }
}

/// What the intent gate's table goes by: a rule's effect, else the annotations, unless the name contradicts them.
pub fn declared(rule: Option<Effect>, annotations: Annotations, name: &str) -> Declared {
    match classify(rule, annotations, name) {
        Classified { effect: Effect::Destructive, because: Because::Rule | Because::DestructiveHint } => {
            Declared::Destructive
        }
        Classified { effect: Effect::Read, because: _ } => Declared::ReadOnly,
        Classified { effect: Effect::Write | Effect::Destructive, because: _ } => Declared::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Annotations = Annotations { read_only: None, destructive: None };

    #[test]
    fn names_split_into_words() {
        let check = |name: &str, expect: &[&str]| assert_eq!(name_words(name), expect, "{name}");
        check("delete_repo", &["delete", "repo"]);
        check("deleteRepo", &["delete", "repo"]);
        check("HTTPDelete-all.now", &["http", "delete", "all", "now"]);
        check("KillProcess2x", &["kill", "process", "2", "x"]);
        check("list_deleted", &["list", "deleted"]);
        check("", &[]);
        check("__", &[]);
    }

    #[test]
    fn the_lexicon_goes_by_whole_words() {
        for name in ["wipe_notes", "delete_repo", "purgeCache", "git-rm", "session.kill", "DROP_TABLE"] {
            assert!(name_is_destructive(name), "{name}");
        }
        for name in ["list_deleted", "dropdown_values", "skill_list", "undelete", "get_repo", "killer_whales"]
        {
            assert!(!name_is_destructive(name), "{name}");
        }
    }

    #[test]
    fn first_match_decides() {
        let check = |rule, read_only, destructive, name, effect, because| {
            let annotations = Annotations { read_only, destructive };
            assert_eq!(classify(rule, annotations, name), Classified { effect, because }, "{name}");
        };
        check(Some(Effect::Read), None, Some(true), "delete_x", Effect::Read, Because::Rule);
        check(None, Some(true), Some(true), "get_x", Effect::Destructive, Because::DestructiveHint);
        check(None, Some(true), None, "get_x", Effect::Read, Because::ReadOnlyHint);
        check(None, Some(true), None, "delete_repo", Effect::Destructive, Because::Contradiction);
        check(None, None, Some(false), "delete_repo", Effect::Destructive, Because::Contradiction);
        check(None, Some(false), None, "delete_repo", Effect::Destructive, Because::Lexicon);
        check(None, None, None, "wipe_notes", Effect::Destructive, Because::Lexicon);
        check(None, None, Some(false), "create_x", Effect::Write, Because::Unknown);
        check(None, None, None, "anything", Effect::Write, Because::Unknown);
    }

    #[test]
    fn a_contradicted_hint_counts_as_no_annotation_for_intent() {
        let read_only = Annotations { read_only: Some(true), destructive: None };
        assert_eq!(declared(None, read_only, "delete_repo"), Declared::Nothing);
        assert_eq!(declared(None, read_only, "get_repo"), Declared::ReadOnly);
        assert_eq!(declared(None, NONE, "wipe_notes"), Declared::Nothing);
        assert_eq!(declared(Some(Effect::Destructive), NONE, "x"), Declared::Destructive);
        assert_eq!(declared(Some(Effect::Read), NONE, "x"), Declared::ReadOnly);
        assert_eq!(
            declared(Some(Effect::Write), Annotations { read_only: None, destructive: Some(true) }, "x"),
            Declared::Nothing
        );
    }
}
