//! Fills the words of a command: each value becomes one literal argument, a part of one, or several for a list; never text for a shell.
//! A value that could be taken for a flag, or cannot be an argument at all, is refused before anything runs.

use countersign_config::{
    Argv, CommandInput, CommandTool, InputType, LeadingDash, Template, TemplatePiece, Word,
};
use countersign_policy::refusal::Refusal;
use serde_json::{Map, Value};

use crate::request::invalid;

pub(super) struct CheckedArguments<'t> {
    tool: &'t str,
    /// The texts of each given input; a list may have several.
    texts: Vec<(&'t str, Vec<String>)>,
}

impl<'t> CheckedArguments<'t> {
    /// Checks the values of a call. The gate has checked them against the input schema; the essential checks are repeated here.
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

    /// The values a preview command needs of a call to any tool. Required ones must be given, and a word that begins with a value must not look
    /// like a flag.
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
                behind_flags |= template.pieces() == [TemplatePiece::Literal("--".to_owned())];
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
        if let Some(TemplatePiece::Input(name)) = template.pieces().first().filter(|_| !behind_flags)
            && self.of(name).iter().any(|text| text.starts_with('-'))
        {
            return Err(invalid(name, "must not start with `-`: it could be taken for a flag"));
        }
        Ok(())
    }

    fn of(&self, name: &str) -> &[String] {
        self.texts.iter().find(|(known, _)| *known == name).map_or(&[], |(_, texts)| texts)
    }

    pub(super) fn words(&self, argv: &Argv) -> Result<Vec<String>, Refusal> {
        let mut words = Vec::new();
        for word in argv {
            match word {
                Word::One(template) => words.extend(self.word(template)?),
                // A group with an absent input or an empty list is left out.
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

    /// One word, none, or one per item of a list.
    fn word(&self, template: &Template) -> Result<Vec<String>, Refusal> {
        match template.pieces() {
            [TemplatePiece::Input(name)] => Ok(self.of(name).to_vec()),
            _ => Ok(vec![self.text(template, " ")?]),
        }
    }

    /// The command's stdin; a list has one item per line.
    pub(super) fn stdin(&self, template: Option<&Template>) -> Result<Option<Vec<u8>>, Refusal> {
        let text = template.map(|template| self.text(template, "\n")).transpose()?;
        Ok(text.map(String::into_bytes))
    }

    fn text(&self, template: &Template, between: &str) -> Result<String, Refusal> {
        let mut text = String::new();
        for piece in template.pieces() {
            match piece {
                TemplatePiece::Literal(literal) => text.push_str(literal),
                TemplatePiece::Found(secret) => text.push_str(secret.expose()),
                TemplatePiece::Input(name) => text.push_str(&self.of(name).join(between)),
                // References are resolved before an upstream is built; one that is left is a bug, and nothing runs with it.
                TemplatePiece::Reference(..) => {
                    return Err(invalid(self.tool, "has a word that was not looked up"));
                }
            }
        }
        Ok(text)
    }
}

pub(super) fn templates(word: &Word) -> &[Template] {
    match word {
        Word::One(template) => std::slice::from_ref(template),
        Word::Group(templates) => templates,
    }
}

fn object(arguments: &str) -> Result<Map<String, Value>, Refusal> {
    serde_json::from_str(arguments).map_err(|_| invalid("arguments", "must be an object"))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

fn text(input: &CommandInput, value: &Value) -> Result<String, Refusal> {
    let text = match value.as_f64() {
        // 2.0 is an integer in JSON, and `2` to a command.
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
