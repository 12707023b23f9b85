//! "Did you mean": the known names nearest to what was written, if any is near enough.

/// Characters of a name that are compared.
const COMPARED: usize = 64;
/// How many names are compared: a mistyped name must not cost more than a call.
const MOST_COMPARED: usize = 10_000;

/// The nearest of the known names; none if a third of the letters would have to change.
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    nearest_names(written, known, 1).into_iter().next()
}

/// Up to `most` of the known names, nearest first; none further away than a third of the letters.
pub fn nearest_names<'k>(
    written: &str,
    known: impl IntoIterator<Item = &'k str>,
    most: usize,
) -> Vec<&'k str> {
    let written = comparable(written);
    let letters = written.chars().count();
    let reach = (letters / 3).max(1);
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (comparable(name), name))
        // Names of another length need at least that many changes, and this is much cheaper to see.
        .filter(|(other, _)| letters.abs_diff(other.chars().count()) <= reach)
        .take(MOST_COMPARED)
        .map(|(other, name)| (strsim::osa_distance(&written, &other), name))
        .filter(|(distance, _)| *distance <= reach)
        .collect();
    found.sort_by_key(|(distance, _)| *distance);
    found.into_iter().take(most).map(|(_, name)| name).collect()
}

/// The start of a name, without case and with one kind of separator.
fn comparable(name: &str) -> String {
    let letters = name.chars().flat_map(char::to_lowercase);
    letters.map(|c| if matches!(c, '-' | '.' | ' ') { '_' } else { c }).take(COMPARED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["mode", "surface", "listen", "store", "strict_server_validation", "confirm"];
        for (written, expect) in [
            ("mod", Some("mode")),
            ("moed", Some("mode")),
            ("Mode", Some("mode")),
            ("lisen", Some("listen")),
            ("strict-server-validation", Some("strict_server_validation")),
            ("comfirm", Some("confirm")),
            ("x", None),
            ("", None),
            ("banana", None),
        ] {
            assert_eq!(nearest(written, known), expect, "{written}");
        }
    }

    #[test]
    fn the_nearest_come_first_and_the_far_not_at_all() {
        let names =
            ["github:delete_repo", "github:delete_repos", "github:create_repo", "files:read", "git:status"];
        let check =
            |wanted: &str, expect: &[&str]| assert_eq!(nearest_names(wanted, names, 3), expect, "{wanted}");
        check("github:delete_rep", &["github:delete_repo", "github:delete_repos", "github:create_repo"]);
        check("GitHub:delete-repo", &["github:delete_repo", "github:delete_repos", "github:create_repo"]);
        check("files:raed", &["files:read"]);
        check("nothing:like_it_at_all", &[]);
        check("", &[]);
        assert_eq!(nearest_names("files:raed", names, 0), Vec::<&str>::new());
    }
}
