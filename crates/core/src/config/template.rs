//! Texts with gaps: `${env:NAME}`, `${file:PATH}`, `${keyring:NAME}` for what does not belong in a file, and `{input}` in the
//! words of a command. Looks nothing up itself; what was looked up is a secret and never prints.

use std::fmt;

use super::diagnostic::{Diagnostic, Problem, Severity, tick};
use super::reading::Reader;
use super::source::{Files, Place};
use super::tree::Node;
use crate::ids::Secret;
use crate::nearest::nearest;
use crate::words::words;

words! {
    /// Where a reference is looked up.
    pub enum Origin("reference") {
        /// The environment.
        Env = "env",
        /// A file's content.
        File = "file",
        /// The system's keyring.
        Keyring = "keyring",
    }
}

/// `${origin:name}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Where it is looked up.
    pub origin: Origin,
    /// Under which name.
    pub name: String,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${{{}:{}}}", self.origin, self.name)
    }
}

/// A part of a template.
#[derive(Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text as written.
    Literal(String),
    /// Something to look up, and where it is written.
    Reference(Reference, Place),
    /// What was looked up.
    Found(Secret),
    /// A command tool's input, or an argument of the call that is looked at.
    Input(String),
}

/// A text with gaps.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

/// Whether `{input}` means something in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gaps<'a> {
    /// It does not.
    References,
    /// It names one of these.
    Inputs(&'a [&'a str]),
    /// It names an argument of whatever call comes.
    Arguments,
}

impl Template {
    /// A text without gaps.
    pub fn literal(text: impl Into<String>) -> Self {
        Self { pieces: vec![Piece::Literal(text.into())] }
    }

    /// The parts in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The inputs it uses.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Input(name) => Some(name.as_str()),
            Piece::Literal(_) | Piece::Reference(..) | Piece::Found(_) => None,
        })
    }

    /// The whole text; none while something has to be looked up or given by a call.
    pub fn text(&self) -> Option<Secret> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Found(secret) => text.push_str(secret.expose()),
                Piece::Reference(..) | Piece::Input(_) => return None,
            }
        }
        Some(Secret::new(text))
    }

    /// As it was written, with `***` for what was looked up. Shows literal text: not for values that may be secrets.
    pub fn shown(&self) -> String {
        let show = |piece: &Piece| match piece {
            Piece::Literal(literal) => literal.clone(),
            Piece::Reference(reference, _) => reference.to_string(),
            Piece::Found(_) => "***".to_owned(),
            Piece::Input(name) => format!("{{{name}}}"),
        };
        self.pieces.iter().map(show).collect()
    }

    /// Looks up every reference.
    pub(super) fn settle(
        &mut self,
        files: &Files,
        look_up: &dyn Fn(&Reference) -> Result<Secret, String>,
        found: &mut Vec<Diagnostic>,
    ) {
        for piece in &mut self.pieces {
            let Piece::Reference(reference, place) = piece else { continue };
            match look_up(reference) {
                Ok(secret) => *piece = Piece::Found(secret),
                Err(why) => {
                    let message = format!("`{reference}` could not be looked up: {why}");
                    let help = match reference.origin {
                        Origin::Env => format!("set `{}` in the environment of the gateway", reference.name),
                        Origin::File => {
                            format!("create `{}`, readable only by the gateway's user", reference.name)
                        }
                        Origin::Keyring => format!("store `{}` in the keyring", reference.name),
                    };
                    found.push(files.diagnostic(*place, Severity::Error, Problem::Unresolved, message, help));
                }
            }
        }
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |piece: &Piece| match piece {
            // People do paste secrets into files.
            Piece::Literal(_) | Piece::Found(_) => "***".to_owned(),
            Piece::Reference(reference, _) => reference.to_string(),
            Piece::Input(name) => format!("{{{name}}}"),
        };
        f.write_str(&self.pieces.iter().map(show).collect::<String>())
    }
}

/// Reads a template; `$${` is a plain `${`, and `{{name}}` a plain `{name}`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    node: &Node,
    what: &str,
    example: &str,
    gaps: Gaps<'_>,
) -> Option<Template> {
    let text = reader.text(node, what, example)?;
    Some(fill(reader, text, node.place, gaps))
}

/// Reads a template that is one of several, and may be empty.
pub(super) fn read_item(
    reader: &mut Reader<'_>,
    node: &Node,
    what: &str,
    gaps: Gaps<'_>,
) -> Option<Template> {
    let Some(text) = node.as_text() else {
        let message = format!("every value in `{what}` must be a string, and this is {}", node.kind());
        reader.error(node.place, Problem::WrongType, message, "write it in quotes".to_owned());
        return None;
    };
    Some(fill(reader, text, node.place, gaps))
}

fn fill(reader: &mut Reader<'_>, text: &str, string: Place, gaps: Gaps<'_>) -> Template {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (piece, taken) = match next_gap(rest, gaps) {
            Gap::None(taken) => {
                literal.push_str(rest.get(..taken).unwrap_or_default());
                at += taken;
                continue;
            }
            Gap::Plain(plain, taken) => {
                literal.push_str(plain);
                at += taken;
                continue;
            }
            Gap::Reference(inner, taken) => {
                let place = reader.place_inside(string, at, taken);
                (reference(reader, inner, place), taken)
            }
            Gap::Input(name, taken) => {
                let place = reader.place_inside(string, at, taken);
                (input(reader, name, place, gaps), taken)
            }
            Gap::Open(taken) => {
                let place = reader.place_inside(string, at, taken);
                let help = "write `${env:NAME}`, or `$${` for the characters themselves".to_owned();
                reader.error(place, Problem::BadReference, "`${` is not closed by `}`", help);
                (None, taken)
            }
        };
        if let Some(piece) = piece {
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
        }
        at += taken.max(1);
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Template { pieces }
}

enum Gap<'t> {
    None(usize),
    Plain(&'t str, usize),
    Reference(&'t str, usize),
    Input(&'t str, usize),
    Open(usize),
}

/// What stands at the start of the rest, and how many bytes it takes.
fn next_gap<'t>(rest: &'t str, gaps: Gaps<'_>) -> Gap<'t> {
    if rest.starts_with("$${") {
        return Gap::Plain("${", 3);
    }
    if let Some(body) = rest.strip_prefix("${") {
        return match body.split_once('}') {
            Some((inner, _)) => Gap::Reference(inner, inner.len() + 3),
            None => Gap::Open(rest.len()),
        };
    }
    if let (Gaps::Inputs(_) | Gaps::Arguments, Some(body)) = (gaps, rest.strip_prefix('{')) {
        if let Some((name, after)) = body.strip_prefix('{').and_then(|body| body.split_once('}'))
            && is_name(name)
            && after.starts_with('}')
        {
            return Gap::Plain(rest.get(1..name.len() + 3).unwrap_or_default(), name.len() + 4);
        }
        if let Some((name, _)) = body.split_once('}')
            && is_name(name)
        {
            return Gap::Input(name, name.len() + 2);
        }
    }
    let first = rest.chars().next().map_or(1, char::len_utf8);
    let next =
        rest.get(first..).and_then(|more| more.find(['$', '{'])).map_or(rest.len(), |next| next + first);
    Gap::None(next)
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-')
}

fn reference(reader: &mut Reader<'_>, inner: &str, place: Place) -> Option<Piece> {
    let (origin, name) = inner.split_once(':').unwrap_or((inner, ""));
    let example =
        "write `${env:NAME}`, `${file:PATH}` or `${keyring:NAME}`, or `$${` for the characters themselves";
    match origin.parse::<Origin>() {
        Ok(origin) if !name.trim().is_empty() => {
            Some(Piece::Reference(Reference { origin, name: name.to_owned() }, place))
        }
        Ok(_) => {
            reader.error(
                place,
                Problem::BadReference,
                format!("the reference to {origin} names nothing"),
                example.to_owned(),
            );
            None
        }
        Err(_) => {
            let help = match nearest(origin, Origin::ALL.iter().map(|known| known.as_str())) {
                Some(near) => format!("did you mean `${{{near}:{name}}}`?"),
                None => example.to_owned(),
            };
            reader.error(place, Problem::BadReference, format!("unknown reference {}", tick(origin)), help);
            None
        }
    }
}

fn input(reader: &mut Reader<'_>, name: &str, place: Place, gaps: Gaps<'_>) -> Option<Piece> {
    let known = match gaps {
        Gaps::References => return None,
        Gaps::Arguments => return Some(Piece::Input(name.to_owned())),
        Gaps::Inputs(known) => known,
    };
    if known.contains(&name) {
        return Some(Piece::Input(name.to_owned()));
    }
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{{{near}}}`?"),
        None => format!(
            "declare it: `input = {{ {name} = {{ type = \"string\" }} }}`, or write `{{{{{name}}}}}` for the characters themselves"
        ),
    };
    reader.error(place, Problem::BadReference, format!("`{{{name}}}` is no input of this tool"), help);
    None
}
