//! Texts with gaps: `${env:NAME}` (with a default: `${env:NAME:-text}`), `${file:PATH}`, `${keyring:NAME}` for what does not belong in a file, and `{input}` in the
//! words of a command. Looks nothing up itself; what was looked up is a secret and never prints.

use super::config_reader::ConfigReader;
use super::diagnostic::DiagnosticKind::{BadReference, Unresolved, WrongType};
use super::diagnostic::{Diagnostic, DiagnosticSeverity, tick};
use super::source::SourceFiles;
use super::tree::TomlNode;
use countersign_policy::command_template::{Origin, Place, Reference, Template, TemplatePiece};
use countersign_policy::ids::Secret;
use countersign_policy::nearest::nearest;

/// Whether `{input}` means something in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllowedPlaceholders<'a> {
    References,
    /// It names one of these.
    Inputs(&'a [&'a str]),
    /// It names an argument of whatever call comes.
    Arguments,
}

/// Looks up every reference of a template and reports the ones that fail.
pub(crate) fn settle(
    template: &mut Template,
    files: &SourceFiles,
    look_up: &dyn Fn(&Reference) -> Result<Secret, String>,
    found: &mut Vec<Diagnostic>,
) {
    template.resolve_references(|reference, place| {
        let found_text = look_up(reference);
        found_text
            .or_else(|why| reference.default.as_deref().map(Secret::new).ok_or(why))
            .map_err(|why| {
                let message = format!("`{reference}` could not be looked up: {why}");
                let help = match reference.origin {
                    Origin::Env => format!("set `{}` in the environment of the gateway", reference.name),
                    Origin::File => {
                        format!("create `{}`, readable only by the gateway's user", reference.name)
                    }
                    Origin::Keyring => format!("store `{}` in the keyring", reference.name),
                };
                let error = DiagnosticSeverity::Error;
                found.push(files.diagnostic(place, error, Unresolved, message, help));
            })
            .ok()
    });
}

/// Reads a template; `$${` is a plain `${`, and `{{name}}` a plain `{name}`.
pub(crate) fn read(
    reader: &mut ConfigReader<'_>,
    node: &TomlNode,
    what: &str,
    example: &str,
    gaps: AllowedPlaceholders<'_>,
) -> Option<Template> {
    let text = reader.text(node, what, example)?;
    Some(fill(reader, text, node.place, gaps))
}

/// Reads a template that is one of several, and may be empty.
pub(crate) fn read_item(
    reader: &mut ConfigReader<'_>,
    node: &TomlNode,
    what: &str,
    gaps: AllowedPlaceholders<'_>,
) -> Option<Template> {
    let Some(text) = node.as_text() else {
        let message = format!("every value in `{what}` must be a string, and this is {}", node.kind());
        reader.error(node.place, WrongType, message, "write it in quotes");
        return None;
    };
    Some(fill(reader, text, node.place, gaps))
}

fn fill(reader: &mut ConfigReader<'_>, text: &str, string: Place, gaps: AllowedPlaceholders<'_>) -> Template {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (piece, taken) = match next_gap(rest, gaps) {
            ParsedPlaceholder::None(taken) => {
                literal.push_str(rest.get(..taken).unwrap_or_default());
                at += taken;
                continue;
            }
            ParsedPlaceholder::Plain(plain, taken) => {
                literal.push_str(plain);
                at += taken;
                continue;
            }
            ParsedPlaceholder::Reference(inner, taken) => {
                let place = reader.place_inside(string, at, taken);
                (reference(reader, inner, place), taken)
            }
            ParsedPlaceholder::Input(name, taken) => {
                let place = reader.place_inside(string, at, taken);
                (input(reader, name, place, gaps), taken)
            }
            ParsedPlaceholder::Open(taken) => {
                let place = reader.place_inside(string, at, taken);
                let help = "write `${env:NAME}`, or `$${` for the characters themselves";
                reader.error(place, BadReference, "`${` is not closed by `}`", help);
                (None, taken)
            }
        };
        if let Some(piece) = piece {
            if !literal.is_empty() {
                pieces.push(TemplatePiece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
        }
        at += taken.max(1);
    }
    if !literal.is_empty() {
        pieces.push(TemplatePiece::Literal(literal));
    }
    Template::new(pieces)
}

enum ParsedPlaceholder<'t> {
    None(usize),
    Plain(&'t str, usize),
    Reference(&'t str, usize),
    Input(&'t str, usize),
    Open(usize),
}

/// The token at the start of the rest, and how many bytes it takes.
fn next_gap<'t>(rest: &'t str, gaps: AllowedPlaceholders<'_>) -> ParsedPlaceholder<'t> {
    if rest.starts_with("$${") {
        return ParsedPlaceholder::Plain("${", 3);
    }
    if let Some(body) = rest.strip_prefix("${") {
        return match body.split_once('}') {
            Some((inner, _)) => ParsedPlaceholder::Reference(inner, inner.len() + 3),
            None => ParsedPlaceholder::Open(rest.len()),
        };
    }
    if let (AllowedPlaceholders::Inputs(_) | AllowedPlaceholders::Arguments, Some(body)) =
        (gaps, rest.strip_prefix('{'))
    {
        if let Some((name, after)) = body.strip_prefix('{').and_then(|body| body.split_once('}'))
            && is_name(name)
            && after.starts_with('}')
        {
            return ParsedPlaceholder::Plain(rest.get(1..name.len() + 3).unwrap_or_default(), name.len() + 4);
        }
        if let Some((name, _)) = body.split_once('}')
            && is_name(name)
        {
            return ParsedPlaceholder::Input(name, name.len() + 2);
        }
    }
    let first = rest.chars().next().map_or(1, char::len_utf8);
    let next =
        rest.get(first..).and_then(|more| more.find(['$', '{'])).map_or(rest.len(), |next| next + first);
    ParsedPlaceholder::None(next)
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-')
}

fn reference(reader: &mut ConfigReader<'_>, inner: &str, place: Place) -> Option<TemplatePiece> {
    let (origin, name) = inner.split_once(':').unwrap_or((inner, ""));
    let example =
        "write `${env:NAME}`, `${file:PATH}` or `${keyring:NAME}`, or `$${` for the characters themselves";
    match origin.parse::<Origin>() {
        Ok(origin) if !name.trim().is_empty() => {
            // Only variables may be missing for good reasons; a path may have `:-` in it.
            let (name, default) = match name.split_once(":-").filter(|_| origin == Origin::Env) {
                Some((name, default)) => (name.to_owned(), Some(default.to_owned())),
                None => (name.to_owned(), None),
            };
            Some(TemplatePiece::Reference(Reference { origin, name, default }, place))
        }
        Ok(_) => {
            reader.error(
                place,
                BadReference,
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
            reader.error(place, BadReference, format!("unknown reference {}", tick(origin)), help);
            None
        }
    }
}

fn input(
    reader: &mut ConfigReader<'_>,
    name: &str,
    place: Place,
    gaps: AllowedPlaceholders<'_>,
) -> Option<TemplatePiece> {
    let known = match gaps {
        AllowedPlaceholders::References => return None,
        AllowedPlaceholders::Arguments => return Some(TemplatePiece::Input(name.to_owned())),
        AllowedPlaceholders::Inputs(known) => known,
    };
    if known.contains(&name) {
        return Some(TemplatePiece::Input(name.to_owned()));
    }
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{{{near}}}`?"),
        None => format!(
            "declare it: `input = {{ {name} = {{ type = \"string\" }} }}`, or write `{{{{{name}}}}}` for the characters themselves"
        ),
    };
    reader.error(place, BadReference, format!("`{{{name}}}` is no input of this tool"), help);
    None
}
