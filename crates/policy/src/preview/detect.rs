//! Which argument of an input schema is a dry run, by what its upstream says of it. A name alone is never enough: a boolean
//! that is sent as `true` must be known to change nothing. Rules name what this does not find.

use serde_json::{Map, Value};

/// Names of booleans that may mean a dry run. `preview` is not one of them: it means too many things.
const NAMES: [&str; 2] = ["dry_run", "dryRun"];

/// Words that say that nothing is changed, in lower case, with single spaces.
const NO_CHANGES: [&str; 42] = [
    "dry run",
    "no changes",
    "no change is made",
    "no action is taken",
    "no side effects",
    "nothing changes",
    "nothing is applied",
    "nothing is changed",
    "nothing is executed",
    "nothing is written",
    "only preview",
    "only report",
    "only show",
    "only validate",
    "preview only",
    "preview the",
    "preview what",
    "simulate",
    "simulates",
    "simulation",
    "validate only",
    "what would be",
    "what would change",
    "what would happen",
    "without actually",
    "without any changes",
    "without applying",
    "without changing",
    "without creating",
    "without deleting",
    "without executing",
    "without making",
    "without modifying",
    "without performing",
    "without persisting",
    "without running",
    "without saving",
    "without sending",
    "without writing",
    "instead of applying",
    "instead of executing",
    "instead of making",
];

/// Verbs that say the same after a `not`.
const NOT: [&str; 13] = [
    "actually",
    "apply any",
    "apply changes",
    "apply the",
    "be applied",
    "be executed",
    "change",
    "execute",
    "make any",
    "make changes",
    "modify",
    "perform",
    "write",
];

/// Words that take it back.
const DOUBT: [&str; 9] = [
    "deprecated",
    "has no effect",
    "ignored",
    "is unsupported",
    "no effect",
    "not honored",
    "not implemented",
    "not supported",
    "not yet",
];

/// The argument that makes the tool a dry run, where its own description or the tool's says that it changes nothing.
pub(super) fn dry_run_argument(definition: &Map<String, Value>) -> Option<&'static str> {
    let properties = definition.get("inputSchema")?.get("properties")?;
    let about_tool = definition.get("description").and_then(Value::as_str).unwrap_or_default();
    NAMES.into_iter().find(|name| {
        let Some(property) = properties.get(*name) else { return false };
        let is_boolean = property.get("type").and_then(Value::as_str) == Some("boolean");
        let own = property.get("description").and_then(Value::as_str).unwrap_or_default();
        is_boolean
            && !is_doubted(own)
            && (promises(own) || sentences(about_tool).any(|said| is_about(said, name)))
    })
}

/// Whether a sentence about a tool says that this argument makes it change nothing. `dry run` is its name there, no promise.
fn is_about(sentence: &str, name: &str) -> bool {
    let words = words(sentence);
    let named = sentence.contains(name) || has(&words, "dry run");
    named && !is_doubted(sentence) && promises(&words.replace("dry run", ""))
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split(". ").flat_map(str::lines)
}

fn promises(text: &str) -> bool {
    let words = words(text);
    let is_denied = |verb: &&str| has(&words, &format!("not {verb}"));
    NO_CHANGES.iter().any(|phrase| has(&words, phrase)) || NOT.iter().any(is_denied)
}

fn is_doubted(text: &str) -> bool {
    let words = words(text);
    DOUBT.iter().any(|phrase| has(&words, phrase))
}

/// Whether the phrase stands in the text as whole words.
fn has(words: &str, phrase: &str) -> bool {
    words.match_indices(phrase).any(|(at, found)| {
        let before = words.get(..at).is_none_or(|before| before.is_empty() || before.ends_with(' '));
        let after =
            words.get(at + found.len()..).is_none_or(|after| after.is_empty() || after.starts_with(' '));
        before && after
    })
}

/// Lower case, `n't` as `not`, everything but letters and digits as single spaces.
fn words(text: &str) -> String {
    let text = text.to_lowercase().replace("n't", " not").replace("n\u{2019}t", " not");
    let parts: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(tool: &str, own: Value) -> bool {
        let definition = json!({"name": "t", "description": tool,
            "inputSchema": {"properties": {"dry_run": {"type": "boolean", "description": own}}}});
        dry_run_argument(definition.as_object().unwrap()).is_some()
    }

    #[test]
    fn attack_01_a_dry_run_is_believed_only_where_the_upstream_says_it_changes_nothing() {
        for own in [
            "If true, no changes are made",
            "Preview the change without applying it.",
            "Doesn't modify anything",
            "does not apply the change",
            "Dry run",
            "dry-run: report only",
            "Simulate the deletion",
        ] {
            assert!(found("Deletes.", json!(own)), "{own}");
        }
        for own in [
            "",
            "A flag",
            "Whether to run dry",
            "dry_runs per day",
            "Dry run; ignored since 2.0",
            "Deprecated: no changes are made",
            "does not apply to deletions",
            "simulatedly",
        ] {
            assert!(!found("Deletes.", json!(own)), "{own}");
        }
        assert!(!found("Deletes.", Value::Null));
    }

    #[test]
    fn attack_01_a_tools_description_counts_in_the_sentence_that_names_the_argument() {
        assert!(found("Deletes a repo. With dry_run it makes no changes.", json!("flag")));
        assert!(found("Deletes a repo.\nA dry run reports what would happen.", Value::Null));
        assert!(!found("Deletes a repo without making a backup. Takes dry_run.", Value::Null));
        assert!(!found("Deletes a repo. dry_run is not supported, no changes are possible.", Value::Null));
        assert!(!found("Makes no changes to other repos.", Value::Null));
        assert!(!found("Deletes a repo, with dry run.", Value::Null));
    }
}
