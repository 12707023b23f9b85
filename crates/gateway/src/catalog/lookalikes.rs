//! Finds names that look alike: a name's skeleton folds case, width, invisible characters and letters of other alphabets. It is only
//! compared, never shown or sent.

use unicode_normalization::UnicodeNormalization;

use crate::escape::is_invisible;

/// Letters of other alphabets that look like a Latin one in common fonts.
const BORROWED: &[(char, &str)] = &[
    // Cyrillic
    ('a', "а"),
    ('b', "Ььв"),
    ('c', "сϲ"),
    ('d', "ԁ"),
    ('e', "еҽ"),
    ('g', "ԍɡ"),
    ('h', "һн"),
    ('i', "іıɩι"),
    ('j', "јϳ"),
    ('k', "кκ"),
    ('l', "ӏǀ|1"),
    ('m', "мϻ"),
    ('n', "ոп"),
    ('o', "оοσօ0"),
    ('p', "рρ"),
    ('q', "ԛ"),
    ('r', "гᴦ"),
    ('s', "ѕ"),
    ('t', "тτ"),
    ('u', "υսᴜ"),
    ('v', "ѵν"),
    ('w', "ѡԝω"),
    ('x', "хχ"),
    ('y', "уγүʏ"),
    ('z', "ᴢζ"),
    // Capitals without a small form of the same shape, folded before the small letters are compared.
    ('a', "αɑ"),
    ('b', "β"),
    ('e', "ε"),
    ('h', "η"),
    // Digits that look like letters; 0 and 1 are above.
    ('z', "2"),
    ('e', "3"),
    ('a', "4"),
    ('s', "5"),
    ('t', "7"),
    ('b', "8"),
    ('g', "9"),
    // Marks that look like a hyphen or an underscore.
    ('-', "‐‑‒–—−﹣－"),
    ('_', "＿‗"),
    (':', "：ː∶"),
    ('.', "．․"),
];

/// Pairs of letters that look like one.
const PAIRS: [(&str, &str); 2] = [("rn", "m"), ("vv", "w")];

pub(crate) fn skeleton(name: &str) -> String {
    let letters: String = name
        .nfkc()
        .filter(|c| !is_invisible(*c) && !c.is_whitespace())
        // A capital I looks like a small l in most of those fonts.
        .map(|c| if c == 'I' { 'l' } else { c })
        .flat_map(char::to_lowercase)
        .map(borrowed)
        .collect();
    PAIRS.iter().fold(letters, |name, (pair, one)| name.replace(pair, one))
}

pub(super) fn folded(name: &str) -> String {
    name.chars().flat_map(char::to_lowercase).collect()
}

fn borrowed(c: char) -> char {
    if c.is_ascii_alphabetic() {
        return c;
    }
    BORROWED.iter().find(|(_, all)| all.contains(c)).map_or(c, |(latin, _)| *latin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_alike_have_one_skeleton() {
        for (one, other) in [
            ("delete_repo", "dеlete_repo"),
            ("delete_repo", "DELETE_REPO"),
            ("delete_repo", "ｄｅｌｅｔｅ＿ｒｅｐｏ"),
            ("delete_repo", "delete\u{200b}_repo"),
            ("delete_repo", "delete_reρo"),
            ("listall", "listaIl"),
            ("copy", "сору"),
            ("scope", "ѕсоре"),
            ("tool_o1", "tool_0l"),
            ("get-user", "get‑user"),
            ("𝐝elete", "delete"),
        ] {
            assert_eq!(skeleton(one), skeleton(other), "{one} {other}");
        }
    }

    #[test]
    fn attack_17_letter_pairs_and_digits_for_letters_look_alike() {
        for (one, other) in [
            ("confirm", "confirrn"),
            ("rename", "renarne"),
            ("overwrite", "overvvrite"),
            ("delete_repo", "d3lete_rep0"),
            ("send_message", "5end_me55age"),
            ("transfer", "7r4n5f3r"),
        ] {
            assert_eq!(skeleton(one), skeleton(other), "{one} {other}");
        }
    }

    #[test]
    fn names_that_differ_keep_different_skeletons() {
        let names = [
            "get_user",
            "get_users",
            "get-user",
            "list",
            "lost",
            "last",
            "tool_10",
            "tool_100",
            "naïve",
            "naive",
            "读取",
            "写入",
        ];
        for one in names {
            for other in names.iter().filter(|other| **other != one) {
                assert_ne!(skeleton(one), skeleton(other), "{one} {other}");
            }
        }
    }
}
