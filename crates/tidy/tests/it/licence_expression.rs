//! Evaluates SPDX licence expressions, as far as crates use them: `OR`, `AND`, `WITH`, brackets and the old `/`.

/// Whether an expression can be satisfied with the licences that `allowed` accepts.
pub(crate) fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let value = any(&mut words, allowed)?;
    if words.is_empty() { Ok(value) } else { Err(format!("`{expression}` goes on after its end")) }
}

fn any(words: &mut Vec<&str>, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let mut value = all(words, allowed)?;
    while words.pop_if(|word| *word == "OR").is_some() {
        value |= all(words, allowed)?;
    }
    Ok(value)
}

fn all(words: &mut Vec<&str>, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let mut value = one(words, allowed)?;
    while words.pop_if(|word| *word == "AND").is_some() {
        value &= one(words, allowed)?;
    }
    Ok(value)
}

fn one(words: &mut Vec<&str>, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    match words.pop() {
        Some("(") => {
            let value = any(words, allowed)?;
            words
                .pop_if(|word| *word == ")")
                .map(|_| value)
                .ok_or_else(|| "a bracket is not closed".to_owned())
        }
        Some(name) if words.pop_if(|word| *word == "WITH").is_some() => {
            let exception = words.pop().ok_or("`WITH` is followed by nothing")?;
            Ok(allowed(&format!("{name} WITH {exception}")))
        }
        Some(name) => Ok(allowed(name)),
        None => Err("the expression ends too early".to_owned()),
    }
}

#[test]
fn expressions_are_read_as_spdx_means_them() {
    let allowed = |name: &str| ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&name);
    for (expression, expected) in [
        ("MIT", Ok(true)),
        ("GPL-3.0", Ok(false)),
        ("MIT OR GPL-3.0", Ok(true)),
        ("GPL-3.0/MIT", Ok(true)),
        ("MIT AND GPL-3.0", Ok(false)),
        ("(GPL-3.0 OR MIT) AND ISC", Ok(true)),
        ("GPL-3.0 OR MIT AND Zlib", Ok(false)),
        ("Apache-2.0 WITH LLVM-exception", Ok(true)),
        ("Apache-2.0", Ok(false)),
    ] {
        assert_eq!(satisfied(expression, &allowed), expected, "{expression}");
    }
    for broken in ["", "MIT OR", "(MIT", "MIT)", "MIT WITH"] {
        assert!(satisfied(broken, &allowed).is_err(), "{broken}");
    }
}
