//! What a glob over `upstream:tool` can match, without trying names: whether anything, whether everything another one matches,
//! whether something in common. Answers only what is certain; a glob it does not understand might match anything.

/// A glob taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    alternatives: Vec<Vec<Token>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(char),
    One,
    Any,
    Set { negated: bool, ranges: Vec<(char, char)> },
}

/// So many alternatives are looked at; more are not understood.
const MOST: usize = 64;

impl Token {
    fn takes(&self, one: char) -> bool {
        match self {
            Token::Literal(literal) => *literal == one,
            Token::One | Token::Any => true,
            Token::Set { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&one)) != *negated
            }
        }
    }

    /// Whether every character the other takes is taken; both take exactly one.
    fn covers(&self, other: &Token) -> bool {
        match (self, other) {
            (Token::One, _) => true,
            (_, Token::Literal(literal)) => self.takes(*literal),
            _ => self == other,
        }
    }

    /// Whether some character might be taken by both.
    fn meets(&self, other: &Token) -> bool {
        match (self, other) {
            (Token::Literal(literal), token) | (token, Token::Literal(literal)) => token.takes(*literal),
            _ => true,
        }
    }
}

impl Pattern {
    /// Takes a glob apart; none if it uses what is not understood here.
    pub(super) fn parse(glob: &str) -> Option<Self> {
        // The engine works on bytes, and `**` between slashes has rules of its own.
        if !glob.is_ascii() || glob.contains("**") && glob.contains('/') {
            return None;
        }
        let mut rest = glob.chars().peekable();
        let alternatives = sequence(&mut rest, 0)?;
        rest.next().is_none().then_some(Self { alternatives })
    }

    /// Whether some `upstream:tool` matches; of these upstreams, or of any if none are given.
    pub(super) fn can_match(&self, upstreams: &[&str]) -> bool {
        self.alternatives.iter().any(|tokens| {
            if upstreams.is_empty() {
                return ends_in_tool(tokens, &step(tokens, &any_upstream(tokens), |token| token.takes(':')));
            }
            upstreams.iter().any(|upstream| {
                let prefix = upstream.chars().chain([':']);
                let after = prefix.fold(start(tokens), |at, one| step(tokens, &at, |token| token.takes(one)));
                ends_in_tool(tokens, &after)
            })
        })
    }

    /// Whether every name the other matches is matched; false if not certain.
    pub(super) fn covers(&self, other: &Pattern) -> bool {
        let everything = |tokens: &Vec<Token>| {
            *tokens == [Token::Any] || *tokens == [Token::Any, Token::Literal(':'), Token::Any]
        };
        self.alternatives.iter().any(everything)
            || other
                .alternatives
                .iter()
                .all(|theirs| self.alternatives.iter().any(|ours| covers(ours, theirs)))
    }

    /// Whether some name might match both; true if not certain.
    pub(super) fn meets(&self, other: &Pattern) -> bool {
        self.alternatives.iter().any(|ours| other.alternatives.iter().any(|theirs| meets(ours, theirs)))
    }

    /// The upstream it names outright, where it does.
    pub(super) fn upstream(glob: &str) -> Option<&str> {
        let (upstream, _) = glob.split_once(':')?;
        (!upstream.contains(['*', '?', '[', ']', '{', '}', '\\'])).then_some(upstream)
    }
}

type Rest<'g> = std::iter::Peekable<std::str::Chars<'g>>;

/// Everything up to the end, or up to the `,` or `}` of the group it stands in.
fn sequence(rest: &mut Rest<'_>, depth: usize) -> Option<Vec<Vec<Token>>> {
    let mut found: Vec<Vec<Token>> = vec![Vec::new()];
    while let Some(one) = rest.peek().copied() {
        if depth > 0 && matches!(one, ',' | '}') {
            break;
        }
        rest.next();
        let token = match one {
            '*' => Token::Any,
            '?' => Token::One,
            '[' => set(rest)?,
            '\\' => Token::Literal(rest.next()?),
            '{' => {
                found = product(&found, &group(rest, depth + 1)?)?;
                continue;
            }
            literal => Token::Literal(literal),
        };
        for tokens in &mut found {
            if token != Token::Any || tokens.last() != Some(&Token::Any) {
                tokens.push(token.clone());
            }
        }
    }
    Some(found)
}

fn group(rest: &mut Rest<'_>, depth: usize) -> Option<Vec<Vec<Token>>> {
    if depth > 8 {
        return None;
    }
    let mut found = Vec::new();
    loop {
        let branch = sequence(rest, depth)?;
        if branch.iter().any(Vec::is_empty) {
            return None;
        }
        found.extend(branch);
        match rest.next()? {
            ',' => {}
            _ => return Some(found),
        }
    }
}

fn product(heads: &[Vec<Token>], tails: &[Vec<Token>]) -> Option<Vec<Vec<Token>>> {
    let joined = heads.iter().flat_map(|head| tails.iter().map(move |tail| [head.as_slice(), tail].concat()));
    (heads.len() * tails.len() <= MOST).then(|| joined.collect())
}

fn set(rest: &mut Rest<'_>) -> Option<Token> {
    let negated = rest.next_if(|one| matches!(one, '!' | '^')).is_some();
    let mut ranges: Vec<(char, char)> = Vec::new();
    loop {
        match rest.next()? {
            ']' if !ranges.is_empty() => return Some(Token::Set { negated, ranges }),
            // A backslash or a dash at an edge of a set is read in more than one way: not understood.
            '\\' | '-' => return None,
            low => match rest.next_if_eq(&'-') {
                Some(_) => match rest.next()? {
                    ']' => return None,
                    high => ranges.push((low, high)),
                },
                None => ranges.push((low, low)),
            },
        }
    }
}

/// Positions before any character is read; a position is how many tokens are behind it.
fn start(tokens: &[Token]) -> Vec<usize> {
    close(tokens, vec![0])
}

/// `*` may take nothing.
fn close(tokens: &[Token], mut positions: Vec<usize>) -> Vec<usize> {
    let mut next = 0;
    while let Some(at) = positions.get(next).copied() {
        if tokens.get(at) == Some(&Token::Any) && !positions.contains(&(at + 1)) {
            positions.push(at + 1);
        }
        next += 1;
    }
    positions
}

fn step(tokens: &[Token], positions: &[usize], takes: impl Fn(&Token) -> bool) -> Vec<usize> {
    let mut after = Vec::new();
    for at in positions {
        let Some(token) = tokens.get(*at).filter(|token| takes(token)) else { continue };
        let to = if *token == Token::Any { *at } else { at + 1 };
        if !after.contains(&to) {
            after.push(to);
        }
    }
    close(tokens, after)
}

/// Positions after any upstream's name.
fn any_upstream(tokens: &[Token]) -> Vec<usize> {
    let letters = || ('a'..='z').chain('0'..='9').chain(['-', '_']);
    let one_letter = |at: &[usize]| step(tokens, at, |token| letters().any(|letter| token.takes(letter)));
    let mut reached = one_letter(&start(tokens));
    loop {
        let more: Vec<usize> = one_letter(&reached).into_iter().filter(|at| !reached.contains(at)).collect();
        if more.is_empty() {
            return reached;
        }
        reached.extend(more);
    }
}

/// Whether the end can be reached with at least one more character.
fn ends_in_tool(tokens: &[Token], positions: &[usize]) -> bool {
    positions.iter().any(|at| *at < tokens.len())
}

/// Whether the earlier sequence matches whatever the later one does: `*` only answers to `*`.
fn covers(ours: &[Token], theirs: &[Token]) -> bool {
    table(ours, theirs, |ours, theirs, next| match (ours, theirs) {
        (None, None) => true,
        (Some(Token::Any), None) => next(1, 0),
        (Some(Token::Any), Some(_)) => next(1, 0) || next(0, 1),
        (Some(_), Some(Token::Any) | None) | (None, Some(_)) => false,
        (Some(one), Some(other)) => one.covers(other) && next(1, 1),
    })
}

fn meets(ours: &[Token], theirs: &[Token]) -> bool {
    table(ours, theirs, |ours, theirs, next| match (ours, theirs) {
        (None, None) => true,
        (Some(Token::Any), None) => next(1, 0),
        (None, Some(Token::Any)) => next(0, 1),
        (Some(Token::Any), Some(_)) | (Some(_), Some(Token::Any)) => next(1, 0) || next(0, 1),
        (Some(_), None) | (None, Some(_)) => false,
        (Some(one), Some(other)) => one.meets(other) && next(1, 1),
    })
}

/// Fills a table of answers from the ends backwards, so that no pair is looked at twice.
fn table(
    ours: &[Token],
    theirs: &[Token],
    answer: impl Fn(Option<&Token>, Option<&Token>, &dyn Fn(usize, usize) -> bool) -> bool,
) -> bool {
    let width = theirs.len() + 1;
    let mut answers = vec![false; (ours.len() + 1) * width];
    for row in (0..=ours.len()).rev() {
        for column in (0..width).rev() {
            let next = |down: usize, right: usize| {
                let inside = row + down <= ours.len() && column + right < width;
                inside && answers.get((row + down) * width + column + right).copied().unwrap_or(false)
            };
            let here = answer(ours.get(row), theirs.get(column), &next);
            if let Some(slot) = answers.get_mut(row * width + column) {
                *slot = here;
            }
        }
    }
    answers.first().copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(glob: &str) -> Pattern {
        Pattern::parse(glob).unwrap_or_else(|| panic!("{glob}"))
    }

    #[test]
    fn globs_that_match_no_full_name_are_known() {
        for glob in [
            "*",
            "*:*",
            "github:*",
            "gith*",
            "*delete*",
            "{github,docs}:x",
            "[a-z]*:?",
            "a?c:x",
            "github**",
            "git*b:x*",
        ] {
            assert!(pattern(glob).can_match(&[]), "{glob}");
        }
        for glob in ["delete_repo", "github", "github:", ":delete", "GitHub:x", "a b:c", "{a,b}", "[A-Z]*"] {
            assert!(!pattern(glob).can_match(&[]), "{glob}");
        }
        for (glob, expect) in [
            ("github:x", true),
            ("gitlab:x", false),
            ("*x", true),
            ("delete_*", false),
            ("git*", true),
            ("*:y", true),
        ] {
            assert_eq!(pattern(glob).can_match(&["github", "docs"]), expect, "{glob}");
        }
        for odd in ["a/**/b", "ü:x", "[a-]x:y", "{,a}:x", "[\\]]:x"] {
            assert_eq!(Pattern::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn covering_is_said_only_when_certain() {
        for (ours, theirs) in [
            ("*", "anything:*"),
            ("*:*", "*"),
            ("github:*", "github:delete_*"),
            ("github:*", "{github:a,github:b*}"),
            ("{a,b}:*", "b:x"),
            ("*:delete_*", "github:delete_repo"),
            ("a:?", "a:[x-z]"),
            ("a:[a-z]", "a:b"),
            ("a:*x*", "a:xx"),
        ] {
            assert!(pattern(ours).covers(&pattern(theirs)), "{ours} {theirs}");
        }
        for (ours, theirs) in [
            ("github:delete_*", "github:*"),
            ("github:*", "*"),
            ("a:?", "a:*"),
            ("a:[a-y]", "a:[a-z]"),
            ("{a,b}:x", "?:x"),
            ("a:x", "a:xy"),
        ] {
            assert!(!pattern(ours).covers(&pattern(theirs)), "{ours} {theirs}");
        }
        for (ours, theirs, expect) in [
            ("a:*x", "a:y*", true),
            ("a:*x", "a:*y", false),
            ("a:?", "a:xy", false),
            ("*", "a:b", true),
            ("a:[xy]", "a:z", false),
        ] {
            assert_eq!(pattern(ours).meets(&pattern(theirs)), expect, "{ours} {theirs}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_engine_never_contradicts(
            left in "[ab:*?]{0,4}(\\{a,b:?\\*\\}|\\[a-b\\]|\\[!a\\])?[ab:*?]{0,3}",
            right in "[ab:*?]{0,4}(\\{a,:b\\}|\\[a-b\\])?[ab:*?]{0,3}",
            names in proptest::collection::vec("[abc]{1,2}:[abc:]{1,4}", 20),
        ) {
            let (Some(ours), Some(theirs)) = (Pattern::parse(&left), Pattern::parse(&right)) else { return Ok(()) };
            let compile = |glob: &str| {
                let rules = vec![crate::rules::Rule::named("", &[glob])];
                crate::rules::RuleSet::compile(rules, crate::rules::Unlisted::Govern).unwrap()
            };
            let (left_rules, right_rules) = (compile(&left), compile(&right));
            let engine = |rules: &crate::rules::RuleSet, name: &str| !rules.matching(&name.parse().unwrap()).is_empty();
            for name in &names {
                let (in_ours, in_theirs) = (engine(&left_rules, name), engine(&right_rules, name));
                let upstream = name.split(':').next().unwrap();
                proptest::prop_assert!(!in_ours || ours.can_match(&[]) && ours.can_match(&[upstream]), "{left} {name}");
                proptest::prop_assert!(!(in_theirs && ours.covers(&theirs)) || in_ours, "{left} covers {right}, not {name}");
                proptest::prop_assert!(!(in_ours && in_theirs) || ours.meets(&theirs), "{left} meets {right} in {name}");
            }
        }
    }
}
