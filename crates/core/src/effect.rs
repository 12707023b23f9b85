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

/// Whole words that move money, give others access or make something public: what left can't be called back.
const OUTWARD: [&str; 19] = [
    "transfer",
    "pay",
    "payout",
    "refund",
    "charge",
    "withdraw",
    "buy",
    "wire",
    "donate",
    "remit",
    "disburse",
    "share",
    "unshare",
    "grant",
    "invite",
    "publish",
    "unpublish",
    "broadcast",
    "impersonate",
];

/// A verb and, behind it, what makes it outward or secret: `send_money`, `set_user_password`.
const OUTWARD_PHRASES: [(&[&str], &[&str]); 4] = [
    (&["send", "move", "request"], &["money", "funds", "cash", "payment", "payments", "crypto"]),
    (
        &["create", "make", "submit", "execute", "schedule", "confirm", "approve", "authorize", "capture"],
        &["payment", "payments", "payout"],
    ),
    (
        &["add", "give", "allow", "set", "update", "change", "modify", "make"],
        &["access", "permission", "permissions", "collaborator", "collaborators", "acl", "public"],
    ),
    (
        &[
            "update", "set", "change", "reset", "rotate", "create", "generate", "write", "put", "export",
            "reveal",
        ],
        &["password", "passwords", "passphrase", "secret", "secrets", "credential", "credentials", "mfa"],
    ),
];

/// Words that only look. In front of an outward word they make it a noun: `get_share_link`, `list_transfers`.
const LOOKING: [&str; 17] = [
    "get", "list", "read", "search", "find", "describe", "show", "view", "count", "check", "fetch", "lookup",
    "query", "preview", "estimate", "is", "has",
];

/// Last words that make an outward word a noun: `transfer_status`.
const LOOKED_AT: [&str; 6] = ["status", "history", "info", "details", "summary", "options"];

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

/// Whether the name admits that something is destroyed, or leaves in a way that can't be called back.
pub fn name_is_destructive(name: &str) -> bool {
    let words = name_words(name);
    words.iter().any(|word| LEXICON.contains(&word.as_str())) || is_outward(&words)
}

/// Whether the words say that money, access or a secret changes hands.
fn is_outward(words: &[String]) -> bool {
    let one_of = |list: &[&str], word: &String| list.contains(&word.as_str());
    if words.last().is_some_and(|last| one_of(&LOOKED_AT, last)) {
        return false;
    }
    // A looking word turns what follows into what is looked at.
    let acting = words.iter().position(|word| one_of(&LOOKING, word)).unwrap_or(words.len());
    let acting = words.get(..acting).unwrap_or_default();
    // Elsewhere than in front, `purchase` is mostly a noun: `create_purchase_order`.
    acting.first().is_some_and(|first| first == "purchase")
        || acting.iter().any(|word| one_of(&OUTWARD, word))
        || OUTWARD_PHRASES.iter().any(|(verbs, objects)| {
            let mut rest = acting.iter().skip_while(|word| !one_of(verbs, word)).skip(1);
            rest.any(|word| one_of(objects, word))
        })
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
            let read_only = Annotations { read_only: Some(true), destructive: None };
            assert_eq!(classify(None, read_only, name).because, Because::Contradiction, "{name}");
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
