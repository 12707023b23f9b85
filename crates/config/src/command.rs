//! `[[upstreams.NAME.tools]]`: a command line as a tool. Words, never a shell: `{input}` fills a word, a list of words in the list is a group
//! that disappears when one of its inputs is not given. Runs nothing.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use super::config_reader::{ConfigReader, SectionReader};
use super::diagnostic::DiagnosticKind::{BadReference, BadValue, Conflict, WrongType};
use super::diagnostic::{did_you_mean, tick};
use super::input::{self, CommandInput, InputPresence, InputShape};
use super::template::{self, AllowedPlaceholders};
use super::tree::{TomlNode, TomlTable, TomlValue};
use super::upstream::environment;
use countersign_policy::command_template::{Argv, Place, Template, TemplatePair, TemplatePiece, Word};
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::effect::Effect;
use countersign_policy::ids::ToolName;
use countersign_policy::words::words;

words! {
    /// What a command's output is.
    pub enum CommandOutputFormat("parse") {
        Text = "text",
        Lines = "lines",
        Json = "json",
    }
}

/// Whether a call waits for its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandRunMode {
    /// It answers when the command has ended.
    Waits,
    /// It answers at once with a run id.
    Background,
}

/// A command as a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandTool {
    pub name: ToolName,
    pub place: Place,
    pub title: Option<String>,
    pub description: Option<String>,
    pub inputs: Vec<CommandInput>,
    pub run: Argv,
    /// A command that shows what `run` would do.
    pub preview: Option<Argv>,
    /// Texts whose lines do not count when two previews are compared.
    pub preview_ignore: Vec<String>,
    /// A command that tells the present state, for ask mode.
    pub explain: Option<Argv>,
    pub stdin: Option<Template>,
    pub effect: Option<Effect>,
    pub confirm: Option<Kind>,
    pub type_field: Option<String>,
    pub strength: Option<ApprovalStrength>,
    pub running: CommandRunMode,
    /// At most one command of this name runs at a time.
    pub lock: Option<String>,
    /// Where it runs, if not where its upstream does.
    pub cwd: Option<Template>,
    /// What its environment has besides its upstream's.
    pub env: Vec<TemplatePair>,
    /// How long it may take, where no rule says.
    pub timeout: Option<Duration>,
    pub ok_exit: Vec<i32>,
    pub parse: CommandOutputFormat,
    /// How much of its output an answer holds, in bytes.
    pub output: u64,
    /// Tools of the same upstream that should be thought of first.
    pub suggest: Vec<ToolName>,
}

const KEYS: [&str; 22] = [
    "name",
    "title",
    "description",
    "input",
    "run",
    "preview",
    "preview_ignore",
    "explain",
    "stdin",
    "effect",
    "confirm",
    "type_field",
    "strength",
    "background",
    "lock",
    "cwd",
    "env",
    "timeout",
    "ok_exit",
    "parse",
    "output",
    "suggest",
];
const OUTPUT: u64 = 64 << 10;

pub(crate) fn read_all(reader: &mut ConfigReader<'_>, upstream: &str, node: &TomlNode) -> Vec<CommandTool> {
    let example = "[{ name = \"status\", run = [\"git\", \"status\"] }]";
    let items = reader.list(node, "tools", example).unwrap_or_default();
    if items.is_empty() && node.as_items().is_some() {
        let help = "write `[[upstreams.NAME.tools]]` with `name` and `run`";
        reader.error(node.place, BadValue, "`tools` is an empty list", help);
    }
    let mut tools: Vec<CommandTool> = Vec::new();
    for item in items {
        let Some(table) = reader.table(item, "tools", example) else { continue };
        let Some(tool) = read(reader, upstream, item, table) else { continue };
        if tools.iter().any(|other| other.name == tool.name) {
            let message = format!("`{upstream}` has two tools `{}`", tool.name);
            reader.error(tool.place, Conflict, message, "give one of them another name");
        }
        tools.push(tool);
    }
    check_suggested(reader, &items_of(node), &tools);
    tools
}

fn items_of(node: &TomlNode) -> Vec<&TomlNode> {
    node.as_items().unwrap_or_default().iter().filter_map(|item| item.as_table()?.get("suggest")).collect()
}

/// What is suggested has to be there, and something else.
fn check_suggested(reader: &mut ConfigReader<'_>, written: &[&TomlNode], tools: &[CommandTool]) {
    for node in written {
        for (name, place) in reader.texts(node, "suggest", "[\"archive\"]") {
            let known = tools.iter().map(|tool| tool.name.as_str());
            if known.clone().any(|known| known == name) {
                continue;
            }
            let help = did_you_mean(name, known, || "name another tool of this upstream".to_owned());
            let message = format!("{} is no tool of this upstream", tick(name));
            reader.error(place, BadReference, message, help);
        }
    }
}

fn read(
    reader: &mut ConfigReader<'_>,
    upstream: &str,
    node: &TomlNode,
    table: &TomlTable,
) -> Option<CommandTool> {
    let where_ = format!("`[[upstreams.{upstream}.tools]]`");
    SectionReader::open(reader, table, &where_, &KEYS);
    let name = name(reader, node, table, &where_);
    let inputs = input::read_all(reader, table);
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let gaps = AllowedPlaceholders::Inputs(&names);
    let argv = |reader: &mut ConfigReader<'_>, key: &str| {
        table.get(key).and_then(|node| argv(reader, node, key, &inputs, gaps))
    };
    let (run, preview, explain) = (argv(reader, "run"), argv(reader, "preview"), argv(reader, "explain"));
    if table.get("run").is_none() {
        let help = "write `run = [\"git\", \"status\"]`: the program and its arguments, one word each";
        reader.missing(node.place, format!("a tool in {where_} has no `run`"), help);
    }
    let stdin = table.get("stdin").and_then(|node| template::read(reader, node, "stdin", "\"{text}\"", gaps));
    let cwd = table.get("cwd").and_then(|node| {
        template::read(reader, node, "cwd", "\"/srv/work\"", AllowedPlaceholders::References)
    });
    let env = environment(reader, table);
    let ok_exit = table.get("ok_exit").map(|node| exits(reader, node)).unwrap_or_else(|| vec![0]);
    let type_field = type_field(reader, table, &names);
    let preview_ignore = match table.get("preview_ignore") {
        Some(node) if preview.is_none() => {
            let help = "write `preview = [\"…\"]` as well, or remove it";
            let message = "`preview_ignore` without `preview` means nothing";
            reader.error(node.place, Conflict, message, help);
            Vec::new()
        }
        Some(node) => {
            let texts = reader.texts(node, "preview_ignore", "[\": Reading...\"]");
            texts.into_iter().map(|(text, _)| text.to_owned()).collect()
        }
        None => Vec::new(),
    };
    let suggest = match table.get("suggest").map(|node| (node.as_items(), node.as_text())) {
        Some((Some(items), _)) => items.iter().filter_map(TomlNode::as_text).map(ToolName::new).collect(),
        Some((None, Some(only))) => vec![ToolName::new(only)],
        Some((None, None)) | None => Vec::new(),
    };
    let mut section = SectionReader { reader, table };
    let tool = CommandTool {
        title: section.text("title", "\"Git status\"").map(str::to_owned),
        description: section.text("description", "\"What the tool does\"").map(str::to_owned),
        effect: section.word("effect", "\"write\""),
        confirm: section.word("confirm", "\"preview\""),
        strength: section.word("strength", "\"human\""),
        running: match section.truth("background", "true") {
            Some(true) => CommandRunMode::Background,
            Some(false) | None => CommandRunMode::Waits,
        },
        lock: section.text("lock", "\"deploy\"").map(str::to_owned),
        timeout: section.span("timeout", "\"30s\""),
        parse: section.word("parse", "\"json\"").unwrap_or(CommandOutputFormat::Text),
        output: section.size("output", "\"64KiB\"").unwrap_or(OUTPUT),
        name: name?,
        place: node.place,
        inputs,
        run: run?,
        preview,
        preview_ignore,
        explain,
        stdin,
        type_field,
        cwd,
        env,
        ok_exit,
        suggest,
    };
    Some(tool)
}

fn name(reader: &mut ConfigReader<'_>, node: &TomlNode, table: &TomlTable, where_: &str) -> Option<ToolName> {
    let Some(name) = table.get("name") else {
        reader.missing(node.place, format!("a tool in {where_} has no `name`"), "write `name = \"apply\"`");
        return None;
    };
    let text = reader.text(name, "name", "\"apply\"")?;
    let allowed = |one: char| one.is_ascii_alphanumeric() || matches!(one, '_' | '-' | '.');
    if text.len() > 64 || !text.chars().all(allowed) {
        let message = format!("{} is no name for a tool", tick(text));
        let help = "write at most 64 letters, digits, `_`, `-` and `.`";
        reader.error(name.place, BadValue, message, help);
        return None;
    }
    Some(ToolName::new(text))
}

fn type_field(reader: &mut ConfigReader<'_>, table: &TomlTable, names: &[&str]) -> Option<String> {
    let node = table.get("type_field")?;
    let text = reader.text(node, "type_field", "\"workspace\"")?;
    let root = text.split('.').next().unwrap_or(text);
    if !names.contains(&root) {
        let help = did_you_mean(root, names.iter().copied(), || "name one of the tool's inputs".to_owned());
        reader.error(node.place, BadReference, format!("{} is no input of this tool", tick(root)), help);
    }
    Some(text.to_owned())
}

pub(crate) fn exits(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Vec<i32> {
    let items = reader.list(node, "ok_exit", "[0, 1]").unwrap_or_default();
    let mut codes = Vec::new();
    for item in items {
        if let TomlValue::Integer(code @ 0..=255) = item.value {
            codes.extend(i32::try_from(code));
        } else {
            let message = "an exit code is a whole number from 0 to 255";
            reader.error(item.place, BadValue, message, "write `ok_exit = [0, 1]`");
        }
    }
    codes
}

pub(crate) fn argv(
    reader: &mut ConfigReader<'_>,
    node: &TomlNode,
    key: &str,
    inputs: &[CommandInput],
    gaps: AllowedPlaceholders<'_>,
) -> Option<Argv> {
    let example = "[\"git\", \"status\"]";
    if let Some(line) = node.as_text() {
        let words: Vec<String> = line.split_whitespace().map(|word| format!("\"{word}\"")).collect();
        let message =
            format!("{} must be a list of words, and is a string: there is no shell to split it", tick(key));
        let help = format!("write `{key} = [{}]`", words.join(", "));
        reader.error(node.place, WrongType, message, help);
        return None;
    }
    let items = reader.list(node, key, example)?;
    let mut words = Vec::new();
    for item in items {
        if let Some(group) = item.as_items() {
            words.push(self::group(reader, item, group, key, inputs, gaps));
        } else if let Some(template) = word(reader, item, key, inputs, gaps) {
            check_whole(reader, item, &template, inputs);
            words.push(Word::One(template));
        }
    }
    check_program(reader, node, key, items, &words);
    Some(words)
}

fn word(
    reader: &mut ConfigReader<'_>,
    item: &TomlNode,
    key: &str,
    inputs: &[CommandInput],
    gaps: AllowedPlaceholders<'_>,
) -> Option<Template> {
    let template = template::read_item(reader, item, key, gaps)?;
    for name in template.inputs().filter(|_| template.pieces().len() > 1) {
        if inputs.iter().any(|input| input.name == name && input.shape == InputShape::List) {
            let message = format!("`{{{name}}}` is a list and fills whole words only");
            reader.error(
                item.place,
                BadReference,
                message,
                format!("write `\"{{{name}}}\"` as a word of its own"),
            );
        }
    }
    Some(template)
}

/// An input that may be absent can't be a part of a word that is always there.
fn check_whole(reader: &mut ConfigReader<'_>, item: &TomlNode, template: &Template, inputs: &[CommandInput]) {
    for name in template.inputs().filter(|_| template.pieces().len() > 1) {
        if inputs.iter().any(|input| input.name == name && input.presence == InputPresence::Optional) {
            let message = format!("`{{{name}}}` may be absent, and the word around it would stay");
            let help =
                format!("put the word into a group: `[\"{}\"]` disappears with its input", template.shown());
            reader.error(item.place, BadReference, message, help);
        }
    }
}

fn group(
    reader: &mut ConfigReader<'_>,
    node: &TomlNode,
    items: &[TomlNode],
    key: &str,
    inputs: &[CommandInput],
    gaps: AllowedPlaceholders<'_>,
) -> Word {
    let words: Vec<Template> =
        items.iter().filter_map(|item| word(reader, item, key, inputs, gaps)).collect();
    // What a call brings to a tool that is not ours may always be absent.
    let optional = |name: &str| {
        gaps == AllowedPlaceholders::Arguments
            || inputs.iter().any(|input| input.name == name && input.presence == InputPresence::Optional)
    };
    if words.len() == items.len() && !words.iter().any(|word| word.inputs().any(optional)) {
        let message = "this group never disappears: it has no optional input".to_owned();
        let help = "write its words without the inner brackets, or make an input `optional = true`";
        reader.error(node.place, BadValue, message, help);
    }
    Word::Group(words)
}

/// What runs is never chosen by a call.
fn check_program(
    reader: &mut ConfigReader<'_>,
    node: &TomlNode,
    key: &str,
    items: &[TomlNode],
    words: &[Word],
) {
    let help = format!("write `{key} = [\"git\", \"status\"]`: the program first, then its arguments");
    let Some(first) = items.first() else {
        return reader.error(node.place, BadValue, format!("`{key}` is an empty list"), help);
    };
    let chosen = match words.first() {
        Some(Word::One(program)) => {
            program.inputs().next().is_some() || program.pieces() == [TemplatePiece::Literal(String::new())]
        }
        Some(Word::Group(_)) => true,
        None => false,
    };
    if chosen {
        let message = format!("the first word of `{key}` is the program, and a call may not choose it");
        reader.error(first.place, BadReference, message, help);
    }
}

impl CommandTool {
    /// The tool's definition as hosts see it.
    pub fn definition(&self) -> Map<String, Json> {
        let properties: Map<String, Json> = self
            .inputs
            .iter()
            .map(|input| (input.name.clone(), Json::Object(input.schema.clone())))
            .collect();
        let required: Vec<&str> = self
            .inputs
            .iter()
            .filter(|input| input.presence == InputPresence::Required)
            .map(|input| input.name.as_str())
            .collect();
        let mut definition = Map::new();
        definition.insert("name".into(), self.name.as_str().into());
        definition.extend(self.title.as_deref().map(|title| ("title".to_owned(), title.into())));
        definition.extend(self.description.as_deref().map(|text| ("description".to_owned(), text.into())));
        let schema = json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        definition.insert("inputSchema".into(), schema);
        let hints = self.effect.map(|effect| match effect {
            Effect::Read => json!({"readOnlyHint": true, "destructiveHint": false}),
            Effect::Write => json!({"readOnlyHint": false, "destructiveHint": false}),
            Effect::Destructive => json!({"readOnlyHint": false, "destructiveHint": true}),
        });
        definition.extend(hints.map(|hints| ("annotations".to_owned(), hints)));
        definition
    }

    /// Whether any of its texts uses an input.
    pub(crate) fn uses(&self, input: &str) -> bool {
        let lines = std::iter::once(&self.run).chain(&self.preview).chain(&self.explain).flatten();
        let templates = lines.flat_map(Word::templates);
        templates.chain(&self.stdin).any(|template| template.inputs().any(|name| name == input))
    }

    pub(crate) fn templates(&mut self) -> Vec<&mut Template> {
        let lines = std::iter::once(&mut self.run).chain(&mut self.preview).chain(&mut self.explain);
        let words = lines.flatten().flat_map(Word::templates_mut);
        let env = self.env.iter_mut().map(|(_, value)| value);
        words.chain(&mut self.stdin).chain(&mut self.cwd).chain(env).collect()
    }
}
