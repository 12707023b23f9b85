//! Redaction: what a rule names, and what looks like a known kind of secret, is replaced by a digest before
//! anything is written or shown. The digest is salted per store, so that a short secret can't be guessed from it.

use std::sync::LazyLock;

use regex::RegexSet;
use serde_json::{Map, Value};

use crate::canonical;
use crate::digest::{Digest, Domain};

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
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    salt: Vec<u8>,
}

impl Redactor {
    /// A redactor with the store's salt.
    pub fn new(salt: impl Into<Vec<u8>>) -> Self {
        Self { salt: salt.into() }
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

    fn mark(&self, value: &Value) -> String {
        let mut bytes = self.salt.clone();
        bytes.push(0);
        bytes.extend_from_slice(canonical::to_string(value).as_bytes());
        format!("[redacted sha256:{}]", Digest::of(Domain::Redacted, &bytes))
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
        Value::String(text) => {
            let digest = text.strip_prefix("[redacted sha256:").and_then(|rest| rest.strip_suffix(']'));
            digest.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
        }
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
    fn the_salt_keeps_short_secrets_from_being_guessed() {
        let paths = ["pin".to_owned()];
        let arguments = json!({"pin": 1234});
        let one = Redactor::new(*b"a").clean(arguments.as_object().unwrap(), &paths);
        let other = Redactor::new(*b"b").clean(arguments.as_object().unwrap(), &paths);
        assert_ne!(one, other);
    }
}
