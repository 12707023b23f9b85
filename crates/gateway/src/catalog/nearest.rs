//! "Did you mean": the names nearest to one that does not exist, with bounded work however many names there are.

use countersign_core::nearest::letters_apart;

/// Characters of a name that are compared.
const COMPARED: usize = 64;
/// How many names are compared letter by letter: a mistyped name must not cost more than a call.
const MOST_COMPARED: usize = 2_000;

/// Up to `most` of the names, nearest first; none further than a third of the letters.
pub(super) fn nearest<'n>(
    wanted: &str,
    names: impl IntoIterator<Item = &'n str>,
    most: usize,
) -> Vec<&'n str> {
    let wanted = plain(wanted);
    let reach = (wanted.len() / 3).max(1);
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .map(|name| (plain(name), name))
        // Letters one has and the other lacks are the least distance there can be.
        .filter(|(other, _)| unlike(&wanted, other) <= reach)
        .take(MOST_COMPARED)
        .map(|(other, name)| (letters_apart(&wanted, &other), name))
        .filter(|(far, _)| *far <= reach)
        .collect();
    found.sort_unstable();
    found.into_iter().take(most).map(|(_, name)| name).collect()
}

/// As it is compared: without case, and with one kind of separator.
fn plain(name: &str) -> Vec<char> {
    let letters = name.chars().flat_map(char::to_lowercase);
    letters.map(|c| if matches!(c, '-' | '.' | ' ') { '_' } else { c }).take(COMPARED).collect()
}

/// How many letters would have to change if their order did not matter.
fn unlike(left: &[char], right: &[char]) -> usize {
    let mut balance = [0i32; 128];
    let mut count = |letters: &[char], by: i32| {
        for c in letters {
            let slot = u32::from(*c) as usize % balance.len();
            if let Some(slot) = balance.get_mut(slot) {
                *slot += by;
            }
        }
    };
    count(left, 1);
    count(right, -1);
    let more: i32 = balance.iter().filter(|left| **left > 0).sum();
    let less: i32 = balance.iter().filter(|left| **left < 0).sum();
    usize::try_from(more.max(-less)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_the_far_not_at_all() {
        let names =
            ["github:delete_repo", "github:delete_repos", "github:create_repo", "files:read", "git:status"];
        let check = |wanted: &str, expect: &[&str]| assert_eq!(nearest(wanted, names, 3), expect, "{wanted}");
        check("github:delete_rep", &["github:delete_repo", "github:delete_repos", "github:create_repo"]);
        check("GitHub:delete-repo", &["github:delete_repo", "github:delete_repos", "github:create_repo"]);
        check("files:raed", &["files:read"]);
        check("nothing:like_it_at_all", &[]);
        check("", &[]);
        assert_eq!(nearest("files:raed", names, 0), Vec::<&str>::new());
    }
}
