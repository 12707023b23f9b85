//! "Did you mean": the known name nearest to what was written, if one is near enough.

/// The nearest of the known names; none if a third of the letters would have to change.
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let written = plain(written);
    let most = (written.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (distance(&written, &plain(name)), name))
        .filter(|(far, _)| *far <= most)
        .min_by_key(|(far, _)| *far)
        .map(|(_, name)| name)
}

/// Letters to insert, drop, replace or swap with their neighbour; of the first 64.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(64).collect();
    let right: Vec<char> = right.chars().take(64).collect();
    letters_apart(&left, &right)
}

/// The same between texts that are letters already: whoever compares many bounds their length and number first.
pub fn letters_apart(left: &[char], right: &[char]) -> usize {
    let at = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX / 2);
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    let mut left_before = None;
    for (row, one) in left.iter().enumerate() {
        let mut here = vec![row + 1];
        let mut right_before = None;
        for (column, other) in right.iter().enumerate() {
            let replace = at(&above, column) + usize::from(one != other);
            let change = (at(&above, column + 1) + 1).min(at(&here, column) + 1).min(replace);
            let swapped = left_before == Some(other) && right_before == Some(one);
            let swap = if swapped { at(&before, column.wrapping_sub(1)) + 1 } else { usize::MAX };
            here.push(change.min(swap));
            right_before = Some(other);
        }
        left_before = Some(one);
        before = std::mem::replace(&mut above, here);
    }
    above.last().copied().unwrap_or(0)
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
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
