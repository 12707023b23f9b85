//! The environment of a child: a few plain variables of ours and the configured ones. It is computed from what the caller passes in.

use std::ffi::OsString;

pub const PASSED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

pub type Variable = (OsString, OsString);

/// A configured variable wins over one of ours, a later one over an earlier.
pub fn clean(
    ambient: impl IntoIterator<Item = Variable>,
    configured: impl IntoIterator<Item = Variable>,
) -> Vec<Variable> {
    let passed = ambient.into_iter().filter(|(name, _)| PASSED.iter().any(|known| name == known));
    let mut all: Vec<Variable> = Vec::new();
    for (name, value) in passed.chain(configured) {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = value,
            None => all.push((name, value)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(all: &[(&str, &str)]) -> Vec<Variable> {
        all.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
    }

    #[test]
    fn only_the_plain_ones_and_the_configured_ones_pass() {
        let ambient = variables(&[
            ("PATH", "/bin"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("HOME", "/h"),
            ("LD_PRELOAD", "y"),
        ]);
        let configured = variables(&[("TOKEN", "1"), ("HOME", "/other"), ("TOKEN", "2")]);
        let expect = variables(&[("PATH", "/bin"), ("HOME", "/other"), ("TOKEN", "2")]);
        assert_eq!(clean(ambient, configured), expect);
        assert_eq!(clean(variables(&[("EDITOR", "vi")]), []), []);
    }
}
