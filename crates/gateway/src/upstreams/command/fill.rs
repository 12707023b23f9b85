//! Filling the words of a command: each value becomes one literal argument, or a part of one, or several where it is a list; never
//! text for a shell. What could be taken for a flag, or can't be an argument at all, is refused before anything runs.

use countersign_core::config::{Argv, CommandTool, Input, InputType, LeadingDash, Piece, Template, Word};
use countersign_core::refusal::Refusal;
use serde_json::{Map, Value};

use crate::asked::invalid;

/// The values of one call, checked.
pub(super) struct Given<'t> {
    /// Whose words they fill.
    tool: &'t str,
    /// The texts of each input that is there; a list may have several.
    texts: Vec<(&'t str, Vec<String>)>,
}

impl<'t> Given<'t> {
    /// Checks the values of a call. The gate has held them against the input schema already; what matters here is checked again.
    pub(super) fn read(tool: &'t CommandTool, arguments: &str) -> Result<Self, Refusal> {
        let given = object(arguments)?;
        if let Some(stranger) =
            given.keys().find(|name| !tool.inputs.iter().any(|known| known.name == **name))
        {
            return Err(invalid(stranger, "is not an argument of this tool"));
        }
        let mut texts = Vec::new();
        for input in &tool.inputs {
            let value = given.get(&input.name).or_else(|| input.schema.get("default"));
            let all = match value {
                None | Some(Value::Null) => continue,
                Some(Value::Array(items)) => items.iter().map(|item| text(input, item)).collect(),
                Some(single) => text(input, single).map(|text| vec![text]),
            };
            texts.push((input.name.as_str(), all?));
        }
        Ok(Self { tool: tool.name.as_str(), texts })
    }

    /// The values a command that looks needs of a call to any tool. What it can't do without has to be there, and a word that a value
    /// begins must not look like a flag.
    pub(super) fn of_call(tool: &'t str, argv: &'t Argv, arguments: &str) -> Result<Self, Refusal> {
        let given = object(arguments)?;
        let mut texts: Vec<(&str, Vec<String>)> = Vec::new();
        for name in argv.iter().flat_map(templates).flat_map(Template::inputs) {
            let all: Vec<String> = match given.get(name) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(items)) => items.iter().map(plain).collect(),
                Some(single) => vec![plain(single)],
            };
            if all.iter().any(|text| text.contains('\0')) {
                return Err(invalid(name, "must not hold a NUL character"));
            }
            texts.push((name, all));
        }
        let given = Self { tool, texts };
        let mut behind_flags = false;
        for word in argv {
            let is_there = |template: &Template| template.inputs().all(|name| !given.of(name).is_empty());
            if matches!(word, Word::Group(group) if !group.iter().all(is_there)) {
                continue;
            }
            for template in templates(word) {
                given.check_word(template, behind_flags)?;
                behind_flags |= template.pieces() == [Piece::Literal("--".to_owned())];
            }
        }
        Ok(given)
    }

    fn check_word(&self, template: &Template, behind_flags: bool) -> Result<(), Refusal> {
        for name in template.inputs() {
            match (self.of(name), template.pieces().len()) {
                ([], _) => return Err(invalid(name, "is not given, and the preview needs it")),
                ([_, _, ..], 2..) => return Err(invalid(name, "is a list, and fills whole words only")),
                ([_, ..], _) => {}
            }
        }
        if let Some(Piece::Input(name)) = template.pieces().first().filter(|_| !behind_flags)
            && self.of(name).iter().any(|text| text.starts_with('-'))
        {
            return Err(invalid(name, "must not start with `-`: it could be taken for a flag"));
        }
        Ok(())
    }

    fn of(&self, name: &str) -> &[String] {
        self.texts.iter().find(|(known, _)| *known == name).map_or(&[], |(_, texts)| texts)
    }

    /// The command's words.
    pub(super) fn words(&self, argv: &Argv) -> Result<Vec<String>, Refusal> {
        let mut words = Vec::new();
        for word in argv {
            match word {
                Word::One(template) => words.extend(self.word(template)?),
                // A group with an input that is not there, or an empty list, is not there.
                Word::Group(group) => {
                    let there = |name: &str| !self.of(name).is_empty();
                    if group.iter().all(|template| template.inputs().all(there)) {
                        for template in group {
                            words.extend(self.word(template)?);
                        }
                    }
                }
            }
        }
        match words.iter().find(|word| word.contains('\0')) {
            Some(_) => Err(invalid(self.tool, "has a word with a NUL in its configuration")),
            None => Ok(words),
        }
    }

    /// One word, none, or as many as the list that fills it.
    fn word(&self, template: &Template) -> Result<Vec<String>, Refusal> {
        match template.pieces() {
            [Piece::Input(name)] => Ok(self.of(name).to_vec()),
            _ => Ok(vec![self.text(template, " ")?]),
        }
    }

    /// What the command reads; a list is one item a line.
    pub(super) fn stdin(&self, template: Option<&Template>) -> Result<Option<Vec<u8>>, Refusal> {
        let text = template.map(|template| self.text(template, "\n")).transpose()?;
        Ok(text.map(String::into_bytes))
    }

    fn text(&self, template: &Template, between: &str) -> Result<String, Refusal> {
        let mut text = String::new();
        for piece in template.pieces() {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Found(secret) => text.push_str(secret.expose()),
                Piece::Input(name) => text.push_str(&self.of(name).join(between)),
                // Looked up before an upstream is built; one that is left is a mistake, and nothing runs with it.
                Piece::Reference(..) => {
                    return Err(invalid(self.tool, "has a word that was not looked up"));
                }
            }
        }
        Ok(text)
    }
}

/// The texts of a word.
pub(super) fn templates(word: &Word) -> &[Template] {
    match word {
        Word::One(template) => std::slice::from_ref(template),
        Word::Group(templates) => templates,
    }
}

fn object(arguments: &str) -> Result<Map<String, Value>, Refusal> {
    serde_json::from_str(arguments).map_err(|_| invalid("arguments", "must be an object"))
}

/// A value as the text it is to a command.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// A value as an argument.
fn text(input: &Input, value: &Value) -> Result<String, Refusal> {
    let text = match value.as_f64() {
        // 2.0 is a whole number in JSON, and `2` to a command.
        Some(float) if value.is_f64() && input.kind == InputType::Integer && float.fract() == 0.0 => {
            format!("{float:.0}")
        }
        Some(_) | None => plain(value),
    };
    if text.contains('\0') {
        return Err(invalid(&input.name, "must not hold a NUL character"));
    }
    if text.starts_with('-') && input.leading_dash == LeadingDash::Refused {
        return Err(invalid(&input.name, "must not start with `-`: it could be taken for a flag"));
    }
    Ok(text)
}
