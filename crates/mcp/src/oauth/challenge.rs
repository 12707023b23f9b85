//! Parses the `WWW-Authenticate` header of a rejection. Its text is untrusted.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BearerChallenge {
    pub resource_metadata: Option<String>,
    pub scope: Option<String>,
    pub error: Option<String>,
}

impl BearerChallenge {
    /// Reads the header; what is absent or no bearer challenge is empty.
    pub fn parse(header: &str) -> Self {
        let mut found = Self::default();
        let lower = header.to_ascii_lowercase();
        let Some(at) = lower.find("bearer") else { return found };
        let mut rest = header.get(at + "bearer".len()..).unwrap_or_default();
        while let Some((name, value, more)) = parameter(rest) {
            match name.to_ascii_lowercase().as_str() {
                "resource_metadata" => found.resource_metadata = Some(value),
                "scope" => found.scope = Some(value).filter(|scope| !scope.trim().is_empty()),
                "error" => found.error = Some(value),
                _ => {}
            }
            rest = more;
        }
        found
    }
}

/// The next `name=value` or `name="value"`, and the rest.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([' ', ',', '\t']);
    let (name, rest) = text.split_once('=')?;
    let name = name.trim();
    // Another scheme begins: its parameters are not ours.
    if name.contains(char::is_whitespace) {
        return None;
    }
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([',', ' ']).unwrap_or(rest.len());
        return Some((name, rest.get(..end)?.to_owned(), rest.get(end..)?));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((name, value, quoted.get(at + 1..)?)),
            '\\' => value.push(letters.next()?.1),
            _ => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_they_come() {
        let check = |header: &str, metadata: Option<&str>, scope: Option<&str>, error: Option<&str>| {
            let found = BearerChallenge::parse(header);
            let seen = (found.resource_metadata.as_deref(), found.scope.as_deref(), found.error.as_deref());
            assert_eq!(seen, (metadata, scope, error), "{header}");
        };
        check(
            r#"Bearer scope="a b", resource_metadata="https://x/y", error="e""#,
            Some("https://x/y"),
            Some("a b"),
            Some("e"),
        );
        check(r#"Basic realm="x", bearer error=invalid_token"#, None, None, Some("invalid_token"));
        check(r#"Bearer error="a \"b\"", DPoP algs="ES256", scope="not ours""#, None, None, Some("a \"b\""));
        check("Bearer", None, None, None);
        check(r#"Bearer scope="open"#, None, None, None);
        check(r#"Bearer scope="""#, None, None, None);
        check("", None, None, None);
    }
}
