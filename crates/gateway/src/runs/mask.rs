//! Removes the configuration's secrets from a command's output, so that a program that echoes its token does not leak it into logs, answers or
//! records. Only exact copies are found.

use countersign_config::{Template, TemplatePiece};
use countersign_policy::ids::Secret;

/// A shorter secret would remove ordinary words from every text.
const SHORTEST: usize = 6;
const SHOWN: &[u8] = b"***";

#[derive(Clone, Default)]
pub(crate) struct Mask {
    /// Longest first: one may be a part of another.
    secrets: Vec<Secret>,
}

impl Mask {
    /// All resolved secrets of these texts. Lines are masked one by one, so a secret of several lines counts by line.
    pub(crate) fn of<'t>(templates: impl IntoIterator<Item = &'t Template>) -> Self {
        let mut secrets = Vec::new();
        for piece in templates.into_iter().flat_map(Template::pieces) {
            let TemplatePiece::Found(secret) = piece else { continue };
            let lines = secret.expose().lines().map(str::trim).filter(|line| line.len() >= SHORTEST);
            secrets.extend(lines.map(Secret::new));
        }
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        secrets.dedup();
        Self { secrets }
    }

    pub(crate) fn clean(&self, mut line: Vec<u8>) -> Vec<u8> {
        for secret in &self.secrets {
            let secret = secret.expose().as_bytes();
            let mut clean = Vec::new();
            let mut rest = line.as_slice();
            while let Some(at) = rest.windows(secret.len()).position(|part| part == secret) {
                clean.extend_from_slice(rest.get(..at).unwrap_or_default());
                clean.extend_from_slice(SHOWN);
                rest = rest.get(at + secret.len()..).unwrap_or_default();
            }
            if !clean.is_empty() {
                clean.extend_from_slice(rest);
                line = clean;
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_copies_are_taken_out_longest_first() {
        let mask = Mask { secrets: vec![Secret::new("hunter2hunter2"), Secret::new("hunter2")] };
        let check = |line: &str, expect: &str| {
            assert_eq!(String::from_utf8(mask.clean(line.as_bytes().to_vec())).unwrap(), expect);
        };
        check("token=hunter2hunter2;hunter2\n", "token=***;***\n");
        check("hunter2", "***");
        check("nothing of it\n", "nothing of it\n");
        check("", "");
    }
}
