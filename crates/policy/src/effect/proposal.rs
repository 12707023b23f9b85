//! Proposals: tools without annotations whose names, arguments and descriptions say that they only read. A proposal decides
//! nothing: a person accepts it, and it becomes a rule that ends when the tool changes.

use super::lexicon::{self, name_words};
use super::{Effect, EffectReason, classify, schema_cues};
use crate::tool::Tool;
use crate::words::words;

words! {
    /// How much speaks for a proposal.
    pub enum Confidence("confidence") {
        /// The name says that it looks.
        High = "high",
        /// The name ends with something to read, and the words before it are unknown.
        Medium = "medium",
    }
}

/// What a tool most likely does, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Proposal {
    /// Always [`Effect::Read`] so far.
    pub effect: Effect,
    /// One line for the person who accepts it.
    pub why: String,
    pub confidence: Confidence,
}

/// A proposal for a tool of an upstream that lists `siblings`, itself among them; none where anything speaks against reading.
pub fn propose(tool: &Tool, siblings: &[&Tool]) -> Option<Proposal> {
    // An upstream that says that a tool changes something is believed.
    let silent = tool.annotations.read_only.is_none() && tool.annotations.destructive != Some(true);
    let unknown = classify(None, tool).because == EffectReason::Unknown;
    let all = name_words(tool.name.as_str());
    let words = without_prefix(tool, &all, siblings);
    let schema = tool.input_schema();
    if !silent
        || !unknown
        || lexicon::any_change(&all).is_some()
        || schema_cues::strongest(words, &schema).is_some()
        || schema_cues::new_content(&schema).is_some()
        || describes_a_change(tool.description())
    {
        return None;
    }
    let (word, confidence) = match (lexicon::reading_word(words), lexicon::looked_at(words)) {
        (Some(word), _) => (word, Confidence::High),
        (None, Some(word)) => (word, Confidence::Medium),
        (None, None) => return None,
    };
    let why = format!("`{word}` in its name, and no word or argument that changes something");
    Some(Proposal { effect: Effect::Read, why, confidence })
}

/// A name without what says whose tool it is: the upstream's own words, or a first word that most of its tools share.
fn without_prefix<'w>(tool: &Tool, words: &'w [String], siblings: &[&Tool]) -> &'w [String] {
    let upstream = name_words(tool.upstream.as_str());
    let own = words.iter().take_while(|word| upstream.contains(word) && !lexicon::is_verb(word)).count();
    let shared = |first: &String| {
        let alike =
            siblings.iter().filter(|other| name_words(other.name.as_str()).first() == Some(first)).count();
        !lexicon::is_verb(first) && alike > 2 && alike * 2 > siblings.len()
    };
    let prefix = match words.first() {
        Some(first) if own == 0 && shared(first) => 1,
        Some(_) | None => own,
    };
    let rest = words.get(prefix..).unwrap_or_default();
    if rest.is_empty() { words } else { rest }
}

/// Whether a description begins by speaking of a change. A description that speaks of reading proves nothing.
fn describes_a_change(description: &str) -> bool {
    let first = description.trim_start().split(['.', '\n', ';']).next().unwrap_or_default();
    name_words(first).iter().any(|word| {
        let bare = word.strip_suffix("es").filter(|bare| lexicon::is_plain_change(bare));
        lexicon::is_plain_change(word)
            || bare.is_some()
            || word.strip_suffix('s').is_some_and(lexicon::is_plain_change)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn tool(definition: &Value) -> Tool {
        Tool::read("slack".into(), definition.as_object().unwrap().clone()).unwrap()
    }

    fn confidence(definition: Value) -> Option<Confidence> {
        let tool = tool(&definition);
        propose(&tool, &[&tool]).map(|proposal| proposal.confidence)
    }

    #[test]
    fn names_that_only_look_are_proposed_with_a_reason() {
        for name in [
            "get_user",
            "slack_list_channels",
            "search_notes",
            "hybrid_search",
            "json_get",
            "get_merge_request",
        ] {
            assert_eq!(confidence(json!({"name": name})), Some(Confidence::High), "{name}");
        }
        for name in ["client_list", "slack_status", "place_details"] {
            assert_eq!(confidence(json!({"name": name})), Some(Confidence::Medium), "{name}");
        }
        let tool = tool(&json!({"name": "get_user"}));
        let why = "`get` in its name, and no word or argument that changes something";
        assert_eq!(propose(&tool, &[&tool]).unwrap().why, why);
    }

    #[test]
    fn attack_a_change_behind_a_reading_name_is_not_proposed() {
        let text = json!({"type": "string"});
        for definition in [
            json!({"name": "get_and_delete"}),
            json!({"name": "get_or_create_user"}),
            json!({"name": "search_and_replace"}),
            json!({"name": "check_out"}),
            json!({"name": "git_fetch"}),
            json!({"name": "mark_as_read"}),
            json!({"name": "list_add_item"}),
            json!({"name": "get_user", "description": "Deletes the user."}),
            json!({"name": "get_user", "description": "Look a user up, create one if there is none."}),
            json!({"name": "get_user", "inputSchema": {"properties": {"sql": text}}}),
            json!({"name": "get_user", "inputSchema": {"properties": {"action": {"enum": ["get", "remove"]}}}}),
            json!({"name": "get_user", "inputSchema": {"properties": {"key": text, "value": text}}}),
            json!({"name": "get_user", "inputSchema": {"properties": {"purge": {"type": "boolean"}}}}),
        ] {
            assert_eq!(confidence(definition.clone()), None, "{definition}");
        }
    }

    #[test]
    fn attack_a_description_that_speaks_of_reading_proves_nothing() {
        assert_eq!(
            confidence(json!({"name": "frobnicate", "description": "Only reads. Gets a list. readOnly."})),
            None
        );
    }

    #[test]
    fn what_an_upstream_says_of_itself_is_believed() {
        for annotations in
            [json!({"readOnlyHint": false}), json!({"destructiveHint": true}), json!({"readOnlyHint": true})]
        {
            assert_eq!(
                confidence(json!({"name": "get_user", "annotations": annotations})),
                None,
                "{annotations}"
            );
        }
    }

    #[test]
    fn only_what_names_the_upstream_is_passed_over() {
        let alone = tool(&json!({"name": "toggler_get_user"}));
        assert_eq!(propose(&alone, &[&alone]), None);
        let others =
            ["toggler_list", "toggler_read", "toggler_status"].map(|name| tool(&json!({"name": name})));
        let all: Vec<&Tool> = others.iter().chain([&alone]).collect();
        assert!(propose(&alone, &all).is_some());
    }
}
