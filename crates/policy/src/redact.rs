//! Redaction: what a rule names, and what looks like a known kind of secret, is replaced by a digest before
//! anything is written or shown. The digest is keyed (HMAC) with a key outside the database, so that a short secret can't be guessed
//! from it, nor from the digest of the arguments it stands in.

use std::fmt;
use std::sync::LazyLock;

use regex::RegexSet;
use serde_json::{Map, Value};

use crate::call::Arguments;
use crate::canonical;
use crate::digest::{Digest, DigestDomain};
use crate::plan::StoredIntent;

/// What a redacted text begins with; its digest and `]` follow.
pub const REDACTED_PREFIX: &str = "[redacted sha256:";

/// Formats of well-known secrets. A match redacts the whole string it stands in.
static KNOWN: LazyLock<Option<RegexSet>> = LazyLock::new(|| {
    RegexSet::new([
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{36,}\b",
        r"\bgithub_pat_[A-Za-z0-9_]{22,}\b",
        r"\bglpat-[A-Za-z0-9_-]{20,}",
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}\b",
        r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}",
        r"\bAIza[0-9A-Za-z_-]{35}",
        r"\bnpm_[A-Za-z0-9]{36}\b",
        r"\bpypi-[A-Za-z0-9_-]{50,}",
        r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
        r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
        r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@",
        r"\bcsg_(?:agent|human)_[A-Za-z0-9_-]{20,}",
    ])
    .ok()
});

/// Replaces what must not be kept.
#[derive(Clone, Default)]
pub struct Redactor {
    key: Vec<u8>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor(..)")
    }
}

/// Arguments as a record keeps them.
#[derive(Clone, Debug, PartialEq)]
pub struct RedactedArguments {
    /// With everything replaced that must not be kept.
    pub value: Value,
    /// Plain where nothing was replaced, else keyed.
    pub digest: Digest,
    /// What keeps a plan's hash from giving them away; none where nothing was replaced. Never written in the clear.
    pub hash_salt: Option<Digest>,
}

impl Redactor {
    /// A redactor with the store's key.
    pub fn new(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into() }
    }

    /// The arguments of a call as records keep them: cleaned, and with a keyed digest where something was replaced.
    pub fn arguments(&self, arguments: &Arguments, paths: &[String]) -> RedactedArguments {
        let value = self.clean(arguments.value(), paths);
        let same = value.as_object().is_some_and(|members| members == arguments.value());
        // A value that only looks like a replaced one counts as replaced: nobody could tell them apart later.
        if same && !is_redacted(&value) {
            return RedactedArguments { value, digest: arguments.digest(), hash_salt: None };
        }
        let keyed = |domain| Digest::keyed(&self.key, domain, arguments.canonical().as_bytes());
        RedactedArguments {
            value,
            digest: keyed(DigestDomain::Arguments),
            hash_salt: Some(keyed(DigestDomain::HashSalt)),
        }
    }

    /// A copy without the values at `paths` and without anything that looks like a secret.
    pub fn clean(&self, arguments: &Map<String, Value>, paths: &[String]) -> Value {
        let mut copy = Value::Object(arguments.clone());
        for path in paths {
            let parts: Vec<&str> = path.split('.').collect();
            self.hide(&mut copy, &parts);
        }
        self.scan(&mut copy, 0);
        copy
    }

    /// A text without anything that looks like a secret.
    pub fn clean_text(&self, text: &str) -> String {
        if looks_secret(text) { self.mark(&Value::String(text.to_owned())) } else { text.to_owned() }
    }

    fn hide(&self, here: &mut Value, path: &[&str]) {
        let Some((part, rest)) = path.split_first() else {
            *here = Value::String(self.mark(here));
            return;
        };
        match here {
            Value::Object(members) if *part == "*" => {
                members.iter_mut().for_each(|(_, member)| self.hide(member, rest));
            }
            Value::Object(members) => {
                if let Some(member) = members.get_mut(*part) {
                    self.hide(member, rest);
                }
            }
            Value::Array(items) if *part == "*" => items.iter_mut().for_each(|item| self.hide(item, rest)),
            Value::Array(items) => match part.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                Some(item) => self.hide(item, rest),
                // `items.secret` without `*` means the field of every item: a path must not miss its secret.
                None => items.iter_mut().for_each(|item| self.hide(item, path)),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn scan(&self, here: &mut Value, depth: usize) {
        match here {
            // Deeper than any accepted argument: not looked at, so not kept.
            _ if depth > 128 => *here = Value::String(self.mark(here)),
            Value::String(text) if looks_secret(text) => *here = Value::String(self.mark(here)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.scan(item, depth + 1)),
            Value::Object(members) => {
                if members.keys().any(|name| looks_secret(name)) {
                    *here = Value::String(self.mark(here));
                } else {
                    members.iter_mut().for_each(|(_, member)| self.scan(member, depth + 1));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// The replacement of a value; one that was replaced before stays as it is.
    fn mark(&self, value: &Value) -> String {
        if let Value::String(text) = value
            && is_mark(text)
        {
            return text.clone();
        }
        let text = canonical::to_string(value);
        format!("{REDACTED_PREFIX}{}]", Digest::keyed(&self.key, DigestDomain::Redacted, text.as_bytes()))
    }
}

fn is_mark(text: &str) -> bool {
    let digest = text.strip_prefix(REDACTED_PREFIX).and_then(|rest| rest.strip_suffix(']'));
    digest.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The shortest text that is looked for inside other texts: shorter ones stand everywhere.
const SHORTEST_INSIDE: usize = 4;

/// Takes the values that a call's arguments hide out of everything else that is kept about the call.
pub struct HiddenValueScrubber<'r> {
    redactor: &'r Redactor,
    /// What was hidden, and its replacement.
    hidden: Vec<(Value, String)>,
}

impl<'r> HiddenValueScrubber<'r> {
    /// What the arguments hide; none where they hide nothing.
    pub fn of(redactor: &'r Redactor, arguments: &Arguments, paths: &[String]) -> Option<Self> {
        let before = Value::Object(arguments.value().clone());
        let after = redactor.clean(arguments.value(), paths);
        let mut hidden = Vec::new();
        collect_hidden(&before, &after, &mut hidden);
        // The longest first: a short value may stand inside a longer one.
        hidden.sort_by_key(|(value, _)| std::cmp::Reverse(text_of(value).len()));
        (!hidden.is_empty()).then_some(Self { redactor, hidden })
    }

    /// Arguments with the hidden values replaced.
    pub fn arguments(&self, arguments: &Arguments, paths: &[String]) -> Arguments {
        let clean = self.value(&self.redactor.clean(arguments.value(), paths));
        Arguments::parse(canonical::to_string(&clean).as_bytes()).unwrap_or_else(|_| Arguments::none())
    }

    /// Any value with the hidden ones replaced, wherever they stand in it.
    pub fn value(&self, value: &Value) -> Value {
        if let Some((_, mark)) = self.hidden.iter().find(|(hidden, _)| hidden == value) {
            return Value::String(mark.clone());
        }
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, member)| (self.text(name), self.value(member))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// A text with the hidden values replaced; the whole of it where something else in it looks like a secret.
    pub fn text(&self, text: &str) -> String {
        if is_mark(text) {
            return text.to_owned();
        }
        let mut text = text.to_owned();
        for (hidden, mark) in &self.hidden {
            let hidden = text_of(hidden);
            if hidden.len() >= SHORTEST_INSIDE && text.contains(&hidden) {
                text = text.replace(&hidden, mark);
            }
        }
        self.redactor.clean_text(&text)
    }

    /// A declared intent with the hidden values replaced.
    pub fn intent(&self, mut intent: StoredIntent) -> StoredIntent {
        intent.reason = intent.reason.map(|reason| self.text(&reason));
        intent
    }
}

/// A value as it would stand inside a text.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            canonical::to_string(value)
        }
    }
}

fn collect_hidden(before: &Value, after: &Value, hidden: &mut Vec<(Value, String)>) {
    match (before, after) {
        (_, Value::String(mark)) if is_mark(mark) => {
            collect_parts(before, mark, hidden);
        }
        (Value::Array(before), Value::Array(after)) => {
            before.iter().zip(after).for_each(|(before, after)| collect_hidden(before, after, hidden));
        }
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                if let Some(after) = after.get(name) {
                    collect_hidden(value, after, hidden);
                }
            }
        }
        _ => {}
    }
}

/// A hidden value, and what it is made of: a list that is hidden hides its items.
fn collect_parts(value: &Value, mark: &str, hidden: &mut Vec<(Value, String)>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::String(text) if text.is_empty() || is_mark(text) => {}
        Value::Array(items) if items.is_empty() => {}
        Value::Object(members) if members.is_empty() => {}
        Value::Number(_) | Value::String(_) => hidden.push((value.clone(), mark.to_owned())),
        Value::Array(items) => {
            hidden.push((value.clone(), mark.to_owned()));
            items.iter().for_each(|item| collect_parts(item, mark, hidden));
        }
        Value::Object(members) => {
            hidden.push((value.clone(), mark.to_owned()));
            members.values().for_each(|member| collect_parts(member, mark, hidden));
        }
    }
}

/// The top-level arguments in which something was replaced; none where nothing was, all of them where the whole was.
pub fn redacted_names(arguments: &Value) -> Vec<String> {
    match arguments {
        Value::Object(members) => {
            members.iter().filter(|(_, member)| is_redacted(member)).map(|(name, _)| name.clone()).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Vec::new(),
    }
}

/// Whether something in the value was replaced.
pub fn is_redacted(value: &Value) -> bool {
    match value {
        Value::String(text) => is_mark(text),
        Value::Array(items) => items.iter().any(is_redacted),
        Value::Object(members) => members.values().any(is_redacted),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn looks_secret(text: &str) -> bool {
    // Closed by default: if the patterns could not be built, nothing is known to be harmless.
    text.len() >= 12 && KNOWN.as_ref().is_none_or(|known| known.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn clean(value: Value, paths: &[&str]) -> Value {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        Redactor::new(*b"salt").clean(value.as_object().unwrap(), &paths)
    }

    fn is_marked(value: &Value) -> bool {
        value.as_str().is_some_and(|text| text.starts_with("[redacted sha256:"))
    }

    #[test]
    fn named_paths_are_replaced_wherever_they_lead() {
        let value = json!({"password": "x", "users": [{"pin": 1, "name": "a"}, {"pin": 2, "name": "b"}], "deep": {"a": {"b": 1}}});
        let got = clean(value, &["password", "users.*.pin", "deep.a.b", "absent.path"]);
        assert!(is_marked(&got["password"]) && is_marked(&got["deep"]["a"]["b"]));
        assert!(is_marked(&got["users"][0]["pin"]) && is_marked(&got["users"][1]["pin"]));
        assert_eq!(got["users"][1]["name"], "b");
        assert_ne!(got["users"][0]["pin"], got["users"][1]["pin"], "different secrets stay different");
        let got = clean(json!({"users": [{"pin": 1}]}), &["users.pin"]);
        assert!(is_marked(&got["users"][0]["pin"]), "a path into a list reaches every item");
    }

    #[test]
    fn known_secret_formats_are_found_unasked() {
        for secret in [
            "AKIAABCDEFGHIJKLMNOP",
            "use ghp_abcdefghijklmnopqrstuvwxyz0123456789 please",
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
            "postgres://bob:hunter22@db/x",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
            "xoxb-1234567890-abcdef",
            "sk_live_abcdefghijklmnop1234",
        ] {
            let got = clean(json!({"text": secret, "list": [secret]}), &[]);
            assert!(is_marked(&got["text"]) && is_marked(&got["list"][0]), "{secret}");
            assert!(!got.to_string().contains(secret));
        }
        for harmless in
            ["delete the branch", "https://example.com/a:b@c", "AKIA", "eyJ is a prefix", "sk-short"]
        {
            assert_eq!(clean(json!({"text": harmless}), &[])["text"], harmless);
        }
    }

    #[test]
    fn attack_12_a_digest_over_redacted_arguments_needs_the_key() {
        let read = |text: &str| Arguments::parse(text.as_bytes()).unwrap();
        let secret = read(r#"{"pin": 1234, "who": "ann"}"#);
        let paths = ["pin".to_owned()];
        let one = Redactor::new(*b"a").arguments(&secret, &paths);
        let other = Redactor::new(*b"b").arguments(&secret, &paths);
        assert_ne!(one.digest, secret.digest(), "the plain digest could be guessed");
        assert_ne!((one.digest, one.hash_salt), (other.digest, other.hash_salt));
        assert_ne!(Some(one.digest), one.hash_salt, "what is written does not give the salt away");
        assert_eq!(one, Redactor::new(*b"a").arguments(&secret, &paths), "equal calls stay equal");
        let open = Redactor::new(*b"a").arguments(&secret, &[]);
        assert_eq!((open.digest, open.hash_salt), (secret.digest(), None), "nothing hidden, nothing keyed");
        let found = read(r#"{"text": "AKIAABCDEFGHIJKLMNOP"}"#);
        let unasked = Redactor::new(*b"a").arguments(&found, &[]);
        assert_ne!(unasked.digest, found.digest());
    }

    #[test]
    fn what_was_replaced_is_not_replaced_again() {
        let once = clean(json!({"pin": 1234}), &["pin"]);
        assert_eq!(clean(once.clone(), &["pin"]), once);
    }

    #[test]
    fn the_salt_keeps_short_secrets_from_being_guessed() {
        let paths = ["pin".to_owned()];
        let arguments = json!({"pin": 1234});
        let one = Redactor::new(*b"a").clean(arguments.as_object().unwrap(), &paths);
        let other = Redactor::new(*b"b").clean(arguments.as_object().unwrap(), &paths);
        assert_ne!(one, other);
    }
}
