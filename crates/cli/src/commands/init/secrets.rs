//! Texts of host files as texts of our configuration: their references become ours, what looks like a secret is kept apart.
//! A text that can't be resolved here is refused: the server stays where it is, instead of breaking the gateway.

use std::path::Path;

use countersign_policy::ids::Secret;
use countersign_policy::redact::Redactor;

/// A text, or a secret to be kept apart.
pub(super) enum ResolvedText {
    /// May be written down, references and all.
    Text(String),
    Secret(Secret),
}

#[derive(Clone, Copy)]
pub(super) struct ReferenceResolver<'a> {
    pub(super) home: &'a Path,
    pub(super) project: Option<&'a Path>,
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// What the keyring has under a name.
    pub(super) kept: &'a dyn Fn(&str) -> Option<Secret>,
}

/// Words in names of variables, headers and flags that hold secrets.
const WORDS: [&str; 14] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "key",
    "apikey",
    "auth",
    "authorization",
    "credential",
    "credentials",
    "cookie",
    "pat",
];

/// Whether a name says that its value is a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.split(|one: char| !one.is_ascii_alphanumeric()).any(|word| WORDS.contains(&word))
        || ["apikey", "accesskey", "token"].iter().any(|word| lower.ends_with(word))
}

/// Whether a value looks like a secret, whatever it is called.
pub(super) fn is_secret_value(text: &str) -> bool {
    Redactor::default().clean_text(text) != text || has_password(text)
}

/// `scheme://user:password@…`.
fn has_password(text: &str) -> bool {
    text.split_once("://")
        .and_then(|(_, rest)| rest.split(['/', '?', '#']).next()?.split_once('@'))
        .is_some_and(|(user, _)| user.split_once(':').is_some_and(|(_, password)| !password.is_empty()))
}

impl ReferenceResolver<'_> {
    /// A program or a folder: never a secret.
    pub(super) fn path(&self, text: &str) -> Result<String, String> {
        self.convert(text).map(|(text, _)| text)
    }

    /// The value of a variable or header.
    pub(super) fn named(&self, name: &str, text: &str) -> Result<ResolvedText, String> {
        self.sort(text, is_secret_name(name))
    }

    /// A word of a command line, after another one.
    pub(super) fn argument(&self, before: Option<&str>, text: &str) -> Result<ResolvedText, String> {
        let after_flag = before.is_some_and(|flag| {
            flag.starts_with('-') && !flag.contains('=') && is_secret_name(flag) && !text.starts_with('-')
        });
        let inside = text.split_once('=').is_some_and(|(flag, value)| {
            !value.is_empty() && is_secret_name(flag) && !flag.contains(['/', ' '])
        });
        self.sort(text, after_flag || inside)
    }

    /// An address: its query may carry a key.
    pub(super) fn url(&self, text: &str) -> Result<ResolvedText, String> {
        let query = text.split_once('?').map(|(_, query)| query).unwrap_or_default();
        let keyed = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .any(|(name, value)| !value.is_empty() && (is_secret_name(name) || is_secret_value(value)));
        self.sort(text, keyed)
    }

    /// A reference to a variable that is set.
    pub(super) fn variable_reference(&self, name: &str) -> Result<String, String> {
        match (self.variable)(name) {
            Some(_) => Ok(format!("${{env:{name}}}")),
            None => Err(format!("it needs the variable `{name}`, which is not set here")),
        }
    }

    /// A name in the keyring for a secret: one that has it already, or that is free. What another configuration keeps is never replaced.
    pub(super) fn name_for(&self, secret: &Secret, wanted: &str) -> String {
        let fits = |name: &str| (self.kept)(name).is_none_or(|kept| kept.expose() == secret.expose());
        let other = |count: u32| format!("{wanted}-{count}");
        let wanted = Some(wanted.to_owned()).filter(|name| fits(name));
        wanted.or_else(|| (2..).map(other).find(|name| fits(name))).unwrap_or_default()
    }

    fn sort(&self, text: &str, named: bool) -> Result<ResolvedText, String> {
        let (converted, literal) = self.convert(text)?;
        let secret = !literal.trim().is_empty() && (named || is_secret_value(&literal));
        // `Bearer ${TOKEN}` names its secret already.
        let refers = converted.contains("${env:") && !is_secret_value(&literal);
        Ok(if secret && !refers {
            ResolvedText::Secret(Secret::new(text))
        } else {
            ResolvedText::Text(converted)
        })
    }

    /// The text in our own syntax, and its literal part.
    fn convert(&self, text: &str) -> Result<(String, String), String> {
        let is_name = |name: &str| {
            name.starts_with(|one: char| one.is_ascii_alphabetic() || one == '_')
                && name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
        };
        if let Some(name) = text.strip_prefix('$').filter(|name| is_name(name)) {
            return self.variable_reference(name).map(|reference| (reference, String::new()));
        }
        let (mut converted, mut literal) = (String::new(), String::new());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            converted.push_str(before);
            literal.push_str(before);
            let Some((inner, behind)) = after.split_once('}') else {
                rest = after;
                converted.push_str("$${");
                literal.push_str("${");
                continue;
            };
            let bare = inner.strip_prefix("env:").unwrap_or(inner);
            let (name, default) = bare.split_once(":-").map_or((bare, None), |(name, or)| (name, Some(or)));
            match inner {
                "workspaceFolder" | "workspaceRoot" => converted.push_str(&self.project()?),
                "userHome" => converted.push_str(&self.home.display().to_string()),
                "pathSeparator" | "/" => converted.push(std::path::MAIN_SEPARATOR),
                _ if inner.starts_with("input:") => {
                    return Err(format!("it asks for `{inner}`, which only its host can ask for"));
                }
                _ if is_name(name) => match (self.variable_reference(name), default) {
                    (Ok(reference), _) => converted.push_str(&reference),
                    (Err(_), Some(default)) => {
                        converted.push_str(default);
                        literal.push_str(default);
                    }
                    (Err(why), None) => return Err(why),
                },
                _ => {
                    converted.push_str("$${");
                    converted.push_str(inner);
                    converted.push('}');
                    literal.push_str(inner);
                }
            }
            rest = behind;
        }
        converted.push_str(rest);
        literal.push_str(rest);
        Ok((converted, literal))
    }

    fn project(&self) -> Result<String, String> {
        let folder = self.project.ok_or("it names a workspace, and belongs to none")?;
        Ok(folder.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looker() -> ReferenceResolver<'static> {
        let variable: &dyn Fn(&str) -> Option<String> = &|name| (name == "SET").then(|| "x".to_owned());
        let kept: &dyn Fn(&str) -> Option<Secret> =
            &|name| ["a.KEY", "a.KEY-2"].contains(&name).then(|| Secret::new(name));
        ReferenceResolver { home: Path::new("/home/me"), project: Some(Path::new("/p")), variable, kept }
    }

    fn shown(found: Result<ResolvedText, String>) -> String {
        match found {
            Ok(ResolvedText::Text(text)) => text,
            Ok(ResolvedText::Secret(secret)) => format!("secret {}", secret.expose()),
            Err(why) => format!("refused: {why}"),
        }
    }

    #[test]
    fn what_the_keyring_has_is_not_replaced() {
        for (wanted, secret, expect) in [
            ("b.KEY", "new", "b.KEY"),
            ("a.KEY", "a.KEY", "a.KEY"),
            ("a.KEY", "new", "a.KEY-3"),
            ("a.KEY", "a.KEY-2", "a.KEY-2"),
        ] {
            assert_eq!(looker().name_for(&Secret::new(secret), wanted), expect, "{wanted} for {secret}");
        }
    }

    #[test]
    fn secrets_are_told_from_texts() {
        let looker = looker();
        for (name, text, expect) in [
            ("GITHUB_TOKEN", "abc", "secret abc"),
            ("GITHUB_TOKEN", "${SET}", "${env:SET}"),
            ("Authorization", "Bearer abc", "secret Bearer abc"),
            ("Authorization", "Bearer ${env:SET}", "Bearer ${env:SET}"),
            ("LOG_LEVEL", "debug", "debug"),
            ("DATABASE_URL", "postgres://me:pw@h/db", "secret postgres://me:pw@h/db"),
            ("X", "${UNSET:-fallback}", "fallback"),
            ("X", "${UNSET}", "refused: it needs the variable `UNSET`, which is not set here"),
            ("X", "${input:tok}", "refused: it asks for `input:tok`, which only its host can ask for"),
            ("X", "$SET", "${env:SET}"),
            ("X", "${workspaceFolder}/a", "/p/a"),
            ("X", "a ${odd thing} b", "a $${odd thing} b"),
            ("MONKEY", "banana", "banana"),
        ] {
            assert_eq!(shown(looker.named(name, text)), expect, "{name}={text}");
        }
        assert_eq!(shown(looker.argument(Some("--api-key"), "abc")), "secret abc");
        assert_eq!(shown(looker.argument(None, "--token=abc")), "secret --token=abc");
        assert_eq!(shown(looker.argument(Some("-y"), "server-x")), "server-x");
        assert_eq!(shown(looker.url("https://h/mcp?api_key=abc")), "secret https://h/mcp?api_key=abc");
        assert_eq!(shown(looker.url("https://h/mcp?team=a")), "https://h/mcp?team=a");
    }
}
