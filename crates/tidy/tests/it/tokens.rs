//! Turns Rust source into a flat list of tokens with their lines: no comments, a string is one token, `a::{b, c}` becomes
//! `a::b`, `a::c`, and test-only code can be omitted. Resolves no names and no types.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::files;

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Part {
    Product,
    Everything,
}

pub(crate) fn of_file(path: &Path, part: Part) -> Vec<Token> {
    of_text(&files::text(path), part).unwrap_or_else(|error| panic!("{}: {error}", files::shown(path)))
}

pub(crate) fn of_text(text: &str, part: Part) -> Result<Vec<Token>, proc_macro2::LexError> {
    let mut flat = Vec::new();
    flatten(text.parse()?, part, &mut flat);
    Ok(flat)
}

/// The tokens of a crate's product code, file by file. Omits test modules, also those in files of their own.
pub(crate) fn of_crate(krate: &str) -> Vec<(PathBuf, Vec<Token>)> {
    let sources = files::under(&files::root().join("crates").join(krate).join("src"), "rs");
    let for_tests: Vec<PathBuf> = sources.iter().flat_map(|path| test_modules(path)).collect();
    let is_test =
        |path: &Path| for_tests.iter().any(|t| path == t.with_extension("rs") || path.starts_with(t));
    let product = sources.into_iter().filter(|path| !is_test(path));
    product.map(|path| (path.clone(), of_file(&path, Part::Product))).collect()
}

/// The lines where the tokens of `wanted`, such as `std::fs` or `println!`, occur in sequence.
pub(crate) fn find(tokens: &[Token], wanted: &str) -> Vec<usize> {
    let wanted = of_text(wanted, Part::Everything).unwrap();
    let same = |window: &&[Token]| window.iter().zip(&wanted).all(|(a, b)| a.text == b.text);
    tokens.windows(wanted.len()).filter(same).map(|window| window[0].line).collect()
}

fn flatten(stream: TokenStream, part: Part, flat: &mut Vec<Token>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        if part == Part::Product && is_cfg_test(&trees[at..]) {
            at = after_item(&trees, at);
            continue;
        }
        match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && ends_in_path(flat) => {
                branches(group, flat)
            }
            TokenTree::Group(group) => bracketed(group, part, flat),
            TokenTree::Ident(ident) => push(flat, ident.to_string(), ident.span().start().line),
            TokenTree::Literal(literal) => push(flat, literal.to_string(), literal.span().start().line),
            TokenTree::Punct(mark) => match flat.last_mut() {
                Some(last) if mark.as_char() == ':' && last.text == ":" => last.text.push(':'),
                _ => push(flat, mark.as_char().to_string(), mark.span().start().line),
            },
        }
        at += 1;
    }
}

fn push(flat: &mut Vec<Token>, text: String, line: usize) {
    flat.push(Token { text, line });
}

fn bracketed(group: &Group, part: Part, flat: &mut Vec<Token>) {
    let (open, close) = match group.delimiter() {
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::None => ("", ""),
    };
    push(flat, open.to_owned(), group.span_open().start().line);
    flatten(group.stream(), part, flat);
    push(flat, close.to_owned(), group.span_close().start().line);
}

fn ends_in_path(flat: &[Token]) -> bool {
    flat.last().is_some_and(|last| last.text == "::")
}

/// Repeats the path before `{…}` in front of each branch.
fn branches(group: &Group, flat: &mut Vec<Token>) {
    let is_word = |text: &str| text == "::" || text.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    // A keyword before the path (`pub use`) becomes part of the prefix. `find` still matches inside it.
    let from = flat.iter().rposition(|token| !is_word(&token.text)).map_or(0, |last| last + 1);
    let prefix = flat.split_off(from);
    let mut branch: Vec<TokenTree> = Vec::new();
    let comma = |tree: &TokenTree| matches!(tree, TokenTree::Punct(mark) if mark.as_char() == ',');
    let mut write = |branch: &mut Vec<TokenTree>| {
        flat.extend(prefix.iter().cloned());
        flatten(branch.drain(..).collect(), Part::Everything, flat);
        push(flat, ";".to_owned(), group.span_close().start().line);
    };
    for tree in group.stream() {
        if comma(&tree) { write(&mut branch) } else { branch.push(tree) }
    }
    write(&mut branch);
}

fn attribute(trees: &[TokenTree]) -> Option<&Group> {
    match trees {
        [TokenTree::Punct(mark), TokenTree::Group(group), ..]
            if mark.as_char() == '#' && group.delimiter() == Delimiter::Bracket =>
        {
            Some(group)
        }
        _ => None,
    }
}

fn is_cfg_test(trees: &[TokenTree]) -> bool {
    attribute(trees).is_some_and(|group| {
        let words = of_text(&group.stream().to_string(), Part::Everything).unwrap_or_default();
        let has = |text: &str| words.iter().any(|word| word.text == text);
        words.first().is_some_and(|first| first.text == "cfg") && has("test") && !has("not") && !has("any")
    })
}

/// The index after the item that the attribute at `at` belongs to: after its block or its semicolon.
fn after_item(trees: &[TokenTree], mut at: usize) -> usize {
    while attribute(&trees[at..]).is_some() {
        at += 2;
    }
    let ends = |tree: &TokenTree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    };
    trees[at..].iter().position(ends).map_or(trees.len(), |end| at + end + 1)
}

/// The paths, without extension, of modules declared as `#[cfg(test)] mod name;`.
fn test_modules(path: &Path) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    let folder = match stem {
        "lib" | "main" | "mod" => path.parent().unwrap().to_path_buf(),
        _ => path.with_extension(""),
    };
    let trees: Vec<TokenTree> = files::text(path).parse::<TokenStream>().unwrap().into_iter().collect();
    let mut found = Vec::new();
    for at in 0..trees.len() {
        if is_cfg_test(&trees[at..])
            && let [.., TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(_)] =
                &trees[at..after_item(&trees, at)]
            && word == "mod"
        {
            found.push(folder.join(name.to_string()));
        }
    }
    found
}

#[test]
fn tokens_are_found_in_code_but_not_in_comments_or_strings() {
    let source = r#"
        // std::fs in a comment
        use std::{collections::BTreeMap, fs, io::{self, Write}};
        fn f() { let s = "std::env"; g(s) }
        #[cfg(test)]
        #[allow(unused)]
        mod tests { use std::net::TcpStream; }
        #[cfg(test)]
        mod more;
        fn h() { std::process::exit(1) }
    "#;
    let product = of_text(source, Part::Product).unwrap();
    let everything = of_text(source, Part::Everything).unwrap();
    for (wanted, in_product, in_all) in [
        ("std::fs", vec![3], vec![3]),
        ("std::io::Write", vec![3], vec![3]),
        ("std::env", vec![], vec![]),
        ("std::net", vec![], vec![7]),
        ("process::exit", vec![10], vec![10]),
    ] {
        assert_eq!(find(&product, wanted), in_product, "{wanted}");
        assert_eq!(find(&everything, wanted), in_all, "{wanted}");
    }
}
