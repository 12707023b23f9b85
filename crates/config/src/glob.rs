//! What `policy check` knows about a glob over `upstream:tool` without trying names: a literal name, or a literal prefix
//! with `*` behind it. Any other glob is taken to match anything, so that nothing is said about it.

/// A literal name, or a prefix of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SimpleGlob {
    prefix: String,
    is_open: bool,
}

const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

impl SimpleGlob {
    /// None if the glob is neither a literal name nor a prefix.
    pub(crate) fn parse(glob: &str) -> Option<Self> {
        let (prefix, is_open) = match glob {
            "*:*" => ("", true),
            _ => glob.strip_suffix('*').map_or((glob, false), |prefix| (prefix, true)),
        };
        (!prefix.contains(SPECIAL)).then(|| Self { prefix: prefix.to_owned(), is_open })
    }

    /// The one name it matches, if there is only one.
    pub(crate) fn literal(&self) -> Option<&str> {
        (!self.is_open).then_some(self.prefix.as_str())
    }

    /// Whether some `upstream:tool` matches; of these upstreams, or of any if none are given.
    pub(crate) fn can_match(&self, upstreams: &[&str]) -> bool {
        let is_letter = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_');
        match self.prefix.split_once(':') {
            Some((upstream, tool)) => {
                let is_known = match upstreams {
                    [] => !upstream.is_empty() && upstream.chars().all(is_letter),
                    known => known.contains(&upstream),
                };
                is_known && (self.is_open || !tool.is_empty())
            }
            None if upstreams.is_empty() => self.is_open && self.prefix.chars().all(is_letter),
            None => self.is_open && upstreams.iter().any(|upstream| upstream.starts_with(&self.prefix)),
        }
    }

    /// Whether every name the other matches is matched.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        if self.is_open { other.prefix.starts_with(&self.prefix) } else { self == other }
    }

    /// Whether some name might match both.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}

/// The upstream a glob names outright, if it does.
pub(crate) fn named_upstream(glob: &str) -> Option<&str> {
    let (upstream, _) = glob.split_once(':')?;
    (!upstream.contains(SPECIAL)).then_some(upstream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> SimpleGlob {
        SimpleGlob::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn globs_that_match_no_full_name_are_known() {
        for text in ["*", "*:*", "github:*", "gith*", "github:x", "github:x*"] {
            assert!(glob(text).can_match(&[]), "{text}");
        }
        for text in ["delete_repo", "github", "github:", ":delete", "GitHub:x", "a b:c"] {
            assert!(!glob(text).can_match(&[]), "{text}");
        }
        for (text, expect) in
            [("github:x", true), ("gitlab:x", false), ("delete_*", false), ("git*", true), ("*", true)]
        {
            assert_eq!(glob(text).can_match(&["github", "docs"]), expect, "{text}");
        }
        for text in ["*:delete_*", "{a,b}:x", "a?c:x", "[a-z]:x", "a\\:x"] {
            assert_eq!(SimpleGlob::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_prefix_covers_longer_prefixes_and_names() {
        for (ours, theirs, covers, meets) in [
            ("*", "anything:*", true, true),
            ("*:*", "*", true, true),
            ("github:*", "github:delete_*", true, true),
            ("github:delete_*", "github:*", false, true),
            ("a:x", "a:x", true, true),
            ("a:x", "a:xy", false, false),
            ("a:x*", "a:y*", false, false),
        ] {
            assert_eq!(glob(ours).covers(&glob(theirs)), covers, "{ours} {theirs}");
            assert_eq!(glob(ours).meets(&glob(theirs)), meets, "{ours} {theirs}");
        }
    }
}
