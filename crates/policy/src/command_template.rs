//! Command lines with placeholders: `${env:NAME}`, `${file:PATH}` and `${keyring:NAME}` for secrets, `{input}` for arguments.
//! Looks nothing up and runs nothing. A secret that was looked up never prints.

use std::fmt;

use serde_json::{Value, json};

use crate::ids::Secret;
use crate::words::words;

/// Appended to a tool's name for its preview command. `#` never occurs in a tool's own name.
pub const PREVIEW_SUFFIX: &str = "#preview";

/// Appended to a tool's name for the command that prints the present state.
pub const EXPLAIN_SUFFIX: &str = "#explain";

/// A range of bytes in one of the configuration's source files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: usize,
    pub start: usize,
    pub end: usize,
}

words! {
    /// Where a reference is looked up.
    pub enum Origin("reference") {
        Env = "env",
        File = "file",
        Keyring = "keyring",
    }
}

/// `${origin:name}`, or `${env:name:-default}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub origin: Origin,
    pub name: String,
    /// Taken where the variable is not set.
    pub default: Option<String>,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = self.default.as_ref().map(|text| format!(":-{text}")).unwrap_or_default();
        write!(f, "${{{}:{}{default}}}", self.origin, self.name)
    }
}

/// A part of a template.
#[derive(Clone, PartialEq, Eq)]
pub enum TemplatePiece {
    Literal(String),
    /// A value to look up, and where the reference is written.
    Reference(Reference, Place),
    /// A value that was looked up.
    Found(Secret),
    /// An input of a command tool, or an argument of the previewed call.
    Input(String),
}

/// A text with placeholders.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<TemplatePiece>,
}

impl Template {
    pub fn new(pieces: Vec<TemplatePiece>) -> Self {
        Self { pieces }
    }

    pub fn literal(text: impl Into<String>) -> Self {
        Self::new(vec![TemplatePiece::Literal(text.into())])
    }

    pub fn pieces(&self) -> &[TemplatePiece] {
        &self.pieces
    }

    /// The names of the inputs it uses.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Input(name) => Some(name.as_str()),
            TemplatePiece::Literal(_) | TemplatePiece::Reference(..) | TemplatePiece::Found(_) => None,
        })
    }

    /// The whole text; none while a reference is not looked up or an input is missing.
    pub fn text(&self) -> Option<Secret> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Literal(literal) => text.push_str(literal),
                TemplatePiece::Found(secret) => text.push_str(secret.expose()),
                TemplatePiece::Reference(..) | TemplatePiece::Input(_) => return None,
            }
        }
        Some(Secret::new(text))
    }

    /// Whether it refers to something that is not there: such a variable is not set for a child at all.
    pub fn is_absent(&self) -> bool {
        !self.pieces.is_empty() && self.text().is_some_and(|text| text.expose().is_empty())
    }

    /// The text as written, with `***` for secrets that were looked up. Shows literal text: not for values that may be secrets.
    pub fn shown(&self) -> String {
        let show = |piece: &TemplatePiece| match piece {
            TemplatePiece::Literal(literal) => literal.clone(),
            TemplatePiece::Reference(reference, _) => reference.to_string(),
            TemplatePiece::Found(_) => "***".to_owned(),
            TemplatePiece::Input(name) => format!("{{{name}}}"),
        };
        self.pieces.iter().map(show).collect()
    }

    /// Replaces every reference for which `look_up` returns a secret.
    pub fn resolve_references(&mut self, mut look_up: impl FnMut(&Reference, Place) -> Option<Secret>) {
        for piece in &mut self.pieces {
            if let TemplatePiece::Reference(reference, place) = piece
                && let Some(secret) = look_up(reference, *place)
            {
                *piece = TemplatePiece::Found(secret);
            }
        }
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |piece: &TemplatePiece| match piece {
            // People do paste secrets into files.
            TemplatePiece::Literal(_) | TemplatePiece::Found(_) => "***".to_owned(),
            TemplatePiece::Reference(reference, _) => reference.to_string(),
            TemplatePiece::Input(name) => format!("{{{name}}}"),
        };
        f.write_str(&self.pieces.iter().map(show).collect::<String>())
    }
}

/// A name and its value, which may be a secret.
pub type TemplatePair = (String, Template);

/// A word of a command line.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// One word; none if it is only an input that is not given; several if that input is a list.
    One(Template),
    /// Words that appear together or not at all.
    Group(Vec<Template>),
}

impl Word {
    pub fn templates(&self) -> &[Template] {
        match self {
            Word::One(template) => std::slice::from_ref(template),
            Word::Group(templates) => templates,
        }
    }

    pub fn templates_mut(&mut self) -> &mut [Template] {
        match self {
            Word::One(template) => std::slice::from_mut(template),
            Word::Group(templates) => templates,
        }
    }
}

/// A command line.
pub type Argv = Vec<Word>;

/// A command that shows what a call would do. `{name}` in its words is an argument of the call; stdin receives all of them as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct PreviewCommand {
    pub run: Argv,
    /// Lines that contain one of these texts do not count when two previews are compared.
    pub ignore: Vec<String>,
    /// The working directory, if not the configuration's folder.
    pub cwd: Option<Template>,
    /// Environment variables besides the basic ones.
    pub env: Vec<TemplatePair>,
    pub ok_exit: Vec<i32>,
}

impl PreviewCommand {
    pub fn new(run: Argv) -> Self {
        Self { run, ignore: Vec::new(), cwd: None, env: Vec::new(), ok_exit: vec![0] }
    }

    /// The command as written, without the secrets that were looked up.
    pub fn shown(&self) -> Value {
        let word = |word: &Word| match word {
            Word::One(template) => Value::from(template.shown()),
            Word::Group(templates) => templates.iter().map(Template::shown).collect(),
        };
        let mut shown = json!({"run": self.run.iter().map(word).collect::<Value>()});
        let Some(members) = shown.as_object_mut() else { return shown };
        if !self.ignore.is_empty() {
            members.insert("ignore".into(), json!(self.ignore));
        }
        members.extend(self.cwd.as_ref().map(|cwd| ("cwd".to_owned(), cwd.shown().into())));
        if !self.env.is_empty() {
            let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
            members.insert("env".into(), json!(names));
        }
        if self.ok_exit != [0] {
            members.insert("ok_exit".into(), json!(self.ok_exit));
        }
        shown
    }

    /// Every template that may contain a reference.
    pub fn templates(&mut self) -> impl Iterator<Item = &mut Template> {
        let words = self.run.iter_mut().flat_map(Word::templates_mut);
        words.chain(&mut self.cwd).chain(self.env.iter_mut().map(|(_, value)| value))
    }
}
