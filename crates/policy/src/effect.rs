//! Effects: what a tool does. An operator's rule decides; hints may raise, words of the name and arguments of the schema may
//! raise, and nothing an upstream claims lowers what its tool's name or schema admits.

mod lexicon;
mod proposal;
mod schema_cues;

pub use self::lexicon::name_words;
pub use self::proposal::{Confidence, Proposal, propose};
use crate::tool::{Tool, ToolAnnotations};
use crate::words::words;

words! {
    /// What a tool does, weakest first.
    pub enum Effect("effect") {
        Read = "read",
        Write = "write",
        Destructive = "destructive",
    }
}

words! {
    /// Why a tool has its effect.
    pub enum EffectReason("reason") {
        Rule = "rule",
        /// `destructiveHint` is true.
        DestructiveHint = "destructive_hint",
        /// `readOnlyHint` is true.
        ReadOnlyHint = "read_only_hint",
        /// The name holds a word of the lexicon.
        Lexicon = "lexicon",
        /// The input schema has an argument that such a tool would not need.
        Schema = "schema",
        /// The name or the input schema says one thing and the annotations another.
        Contradiction = "contradiction",
        /// Nothing is known: a write.
        Unknown = "unknown",
    }
}

/// A tool's effect and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectClassification {
    pub effect: Effect,
    pub because: EffectReason,
}

/// What the intent gate believes of a tool's annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationClaim {
    /// Marked destructive, by the server or a rule.
    Destructive,
    /// Marked read-only, by the server or a rule, and the name does not say otherwise.
    ReadOnly,
    Nothing,
}

/// What speaks for more than a harmless reading of a tool, and whence it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    pub effect: Effect,
    /// Why, as a phrase: `remove` in its name.
    pub why: String,
    because: EffectReason,
}

impl Evidence {
    /// Whether an argument of the input schema says so, rather than the name.
    pub fn is_from_schema(&self) -> bool {
        self.because == EffectReason::Schema
    }

    fn name(effect: Effect, word: &str) -> Self {
        Self { effect, why: format!("`{word}` in its name"), because: EffectReason::Lexicon }
    }
}

/// What the name and the schema of a tool say against its annotations, or in their place.
///
/// A word that destroys counts against every hint. The other words and the schema count where `destructiveHint` is absent, and
/// against `readOnlyHint: true`: an upstream that says that a tool writes and destroys nothing has said what it is.
pub fn evidence(
    annotations: ToolAnnotations,
    name: &str,
    schema: Option<&serde_json::Value>,
) -> Option<Evidence> {
    let words = name_words(name);
    if let Some(word) = lexicon::destroying_word(&words) {
        return Some(Evidence::name(Effect::Destructive, word));
    }
    let claims_read = annotations.read_only == Some(true);
    if !claims_read && annotations.destructive == Some(false) {
        return None;
    }
    if let Some(word) = lexicon::overwriting_word(&words) {
        return Some(Evidence::name(Effect::Destructive, word));
    }
    let cue = schema.and_then(|schema| schema_cues::strongest(&words, schema));
    let cue = cue.map(|cue| Evidence { effect: cue.effect, why: cue.why, because: EffectReason::Schema });
    let leading = lexicon::leading_change(&words).map(|word| Evidence::name(Effect::Write, word));
    cue.into_iter().chain(leading).max_by_key(|evidence| evidence.effect)
}

/// The effect of a tool: first match of rule, `destructiveHint`, evidence against hints, `readOnlyHint`, and write.
pub fn classify(rule: Option<Effect>, tool: &Tool) -> EffectClassification {
    let of = |effect, because| EffectClassification { effect, because };
    if let Some(effect) = rule {
        return of(effect, EffectReason::Rule);
    }
    let annotations = tool.annotations;
    if annotations.destructive == Some(true) {
        return of(Effect::Destructive, EffectReason::DestructiveHint);
    }
    let claims_read = annotations.read_only == Some(true);
    match evidence(annotations, tool.name.as_str(), tool.definition.get("inputSchema")) {
        Some(found) if claims_read => of(found.effect, EffectReason::Contradiction),
        Some(found) if found.effect == Effect::Destructive && annotations.destructive == Some(false) => {
            of(Effect::Destructive, EffectReason::Contradiction)
        }
        Some(found) if found.effect == Effect::Destructive => of(Effect::Destructive, found.because),
        None if claims_read => of(Effect::Read, EffectReason::ReadOnlyHint),
        Some(_) | None => of(Effect::Write, EffectReason::Unknown),
    }
}

/// Whether the name alone admits that something is destroyed or overwritten, or leaves in a way that can't be called back.
pub fn name_is_destructive(name: &str) -> bool {
    evidence(ToolAnnotations::default(), name, None).is_some_and(|found| found.effect == Effect::Destructive)
}

/// What the intent gate's table goes by: a rule's effect, else the annotations, unless name or schema contradict them.
pub fn declared(rule: Option<Effect>, tool: &Tool) -> AnnotationClaim {
    match classify(rule, tool) {
        EffectClassification {
            effect: Effect::Destructive,
            because: EffectReason::Rule | EffectReason::DestructiveHint,
        } => AnnotationClaim::Destructive,
        EffectClassification { effect: Effect::Read, because: _ } => AnnotationClaim::ReadOnly,
        EffectClassification { effect: Effect::Write | Effect::Destructive, because: _ } => {
            AnnotationClaim::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: ToolAnnotations = ToolAnnotations { read_only: None, destructive: None };

    fn tool(annotations: ToolAnnotations, name: &str) -> Tool {
        let definition = serde_json::json!({"name": name}).as_object().unwrap().clone();
        Tool { annotations, ..Tool::read("u".into(), definition).unwrap() }
    }

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
    fn attack_19_money_sharing_and_secrets_count_as_destructive() {
        for name in [
            "transfer",
            "transfer_funds",
            "pay",
            "pay_invoice",
            "send_money",
            "bank.sendMoney",
            "share",
            "share_file",
            "grant_access",
            "update_password",
            "set_user_password",
            "rotate_secret",
            "publish",
            "publishPackage",
            "create_payment",
            "add_collaborator",
            "make_repo_public",
            "purchase_ticket",
        ] {
            assert!(name_is_destructive(name), "{name}");
            let read_only = ToolAnnotations { read_only: Some(true), destructive: None };
            assert_eq!(classify(None, &tool(read_only, name)).because, EffectReason::Contradiction, "{name}");
        }
        for name in [
            "get_share_link",
            "list_transfers",
            "transfer_status",
            "get_payment",
            "search_published_posts",
            "payment_history",
            "check_password",
            "send_message",
            "update_order",
            "shared_drives",
            "set_title",
            "list_pay_runs",
            "create_purchase_order",
        ] {
            assert!(!name_is_destructive(name), "{name}");
        }
    }

    #[test]
    fn first_match_decides() {
        let check = |rule, read_only, destructive, name, effect, because| {
            let annotations = ToolAnnotations { read_only, destructive };
            assert_eq!(
                classify(rule, &tool(annotations, name)),
                EffectClassification { effect, because },
                "{name}"
            );
        };
        check(Some(Effect::Read), None, Some(true), "delete_x", Effect::Read, EffectReason::Rule);
        check(None, Some(true), Some(true), "get_x", Effect::Destructive, EffectReason::DestructiveHint);
        check(None, Some(true), None, "get_x", Effect::Read, EffectReason::ReadOnlyHint);
        check(None, Some(true), None, "delete_repo", Effect::Destructive, EffectReason::Contradiction);
        check(None, None, Some(false), "delete_repo", Effect::Destructive, EffectReason::Contradiction);
        check(None, Some(false), None, "delete_repo", Effect::Destructive, EffectReason::Lexicon);
        check(None, None, None, "wipe_notes", Effect::Destructive, EffectReason::Lexicon);
        check(None, None, Some(false), "create_x", Effect::Write, EffectReason::Unknown);
        check(None, None, None, "anything", Effect::Write, EffectReason::Unknown);
    }

    #[test]
    fn a_contradicted_hint_counts_as_no_annotation_for_intent() {
        let read_only = ToolAnnotations { read_only: Some(true), destructive: None };
        assert_eq!(declared(None, &tool(read_only, "delete_repo")), AnnotationClaim::Nothing);
        assert_eq!(declared(None, &tool(read_only, "get_repo")), AnnotationClaim::ReadOnly);
        assert_eq!(declared(None, &tool(NONE, "wipe_notes")), AnnotationClaim::Nothing);
        assert_eq!(declared(Some(Effect::Destructive), &tool(NONE, "x")), AnnotationClaim::Destructive);
        assert_eq!(declared(Some(Effect::Read), &tool(NONE, "x")), AnnotationClaim::ReadOnly);
        assert_eq!(
            declared(
                Some(Effect::Write),
                &tool(ToolAnnotations { read_only: None, destructive: Some(true) }, "x")
            ),
            AnnotationClaim::Nothing
        );
    }

    #[test]
    fn names_that_overwrite_or_run_anything_count_as_destructive_where_no_hint_says_more() {
        for name in [
            "git_clean",
            "git_reset",
            "execute_code",
            "merge_pull_request",
            "flushall",
            "kv_flush",
            "search_and_replace",
            "git_checkout",
        ] {
            for read_only in [None, Some(false)] {
                let annotations = ToolAnnotations { read_only, destructive: None };
                let expect =
                    EffectClassification { effect: Effect::Destructive, because: EffectReason::Lexicon };
                assert_eq!(classify(None, &tool(annotations, name)), expect, "{name}");
            }
            let additive = ToolAnnotations { read_only: Some(false), destructive: Some(false) };
            assert_eq!(classify(None, &tool(additive, name)).effect, Effect::Write, "{name}");
        }
        for name in ["list_merge_requests", "get_reset_status", "merge_status", "create_checkout_session"] {
            assert_eq!(classify(None, &tool(NONE, name)).effect, Effect::Write, "{name}");
        }
    }

    #[test]
    fn a_schema_that_changes_something_overrules_a_read_only_hint_until_a_rule_settles_it() {
        let with = |name: &str, annotations: serde_json::Value, properties: serde_json::Value| {
            let definition = serde_json::json!({
                "name": name, "annotations": annotations, "inputSchema": {"properties": properties},
            });
            Tool::read("u".into(), definition.as_object().unwrap().clone()).unwrap()
        };
        let read_only = serde_json::json!({"readOnlyHint": true, "destructiveHint": false});
        let text = serde_json::json!({"type": "string"});
        for (name, properties, effect) in [
            ("kubectl_context", serde_json::json!({"operation": {"enum": ["get", "set"]}}), Effect::Write),
            ("aggregate", serde_json::json!({"pipeline": {"type": "array"}}), Effect::Destructive),
            ("take_screenshot", serde_json::json!({"filename": text}), Effect::Write),
            ("activate_project", serde_json::json!({}), Effect::Write),
        ] {
            let tool = with(name, read_only.clone(), properties);
            assert_eq!(
                classify(None, &tool),
                EffectClassification { effect, because: EffectReason::Contradiction },
                "{name}"
            );
            assert_eq!(declared(None, &tool), AnnotationClaim::Nothing, "{name}");
            assert_eq!(classify(Some(Effect::Read), &tool).effect, Effect::Read, "{name}");
        }
        let searches = with("query-docs", read_only, serde_json::json!({"query": text}));
        assert_eq!(classify(None, &searches).effect, Effect::Read);
        let runs = with(
            "write_query",
            serde_json::json!({"readOnlyHint": false}),
            serde_json::json!({"query": text}),
        );
        assert_eq!(
            classify(None, &runs),
            EffectClassification { effect: Effect::Destructive, because: EffectReason::Schema }
        );
    }
}
