//! `[[rules]]`: reads each field in its forms, compiles globs and conditions, and remembers where everything stands.
//! Command tools' own effect, confirm, type_field, strength and preview become rules after all written ones.

use super::command::{CommandTool, PREVIEW_SUFFIX};
use super::diagnostic::{Problem, tick};
use super::preview;
use super::reading::{Reader, Section};
use super::source::{Files, Place};
use super::tree::{Node, Table, Value};
use super::upstream::{Upstream, UpstreamKind};
use crate::preview::Style;
use crate::rules::{BadCondition, Condition, Rule, RuleName, RuleSet, Unlisted};

/// Where a rule and its parts are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOrigin {
    /// The rule's head, or the tool it comes from.
    pub place: Place,
    /// Its globs, in order.
    pub globs: Vec<Place>,
    /// Its fields by name.
    pub fields: Vec<(String, Place)>,
    /// Who wrote it.
    pub author: Author,
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// `[[rules]]`.
    Rules,
    /// A command tool.
    Tool,
    /// An upstream of our own.
    Native,
}

impl RuleOrigin {
    /// Where a field is written, or the rule's head.
    pub(super) fn field(&self, name: &str) -> Place {
        self.fields.iter().find(|(field, _)| field == name).map_or(self.place, |(_, place)| *place)
    }
}

const KEYS: [&str; 13] = [
    "match",
    "when",
    "effect",
    "confirm",
    "type_field",
    "strength",
    "preview",
    "role",
    "deny",
    "allow",
    "limit",
    "redact",
    "timeout",
];

/// Reads `[[rules]]`, each with where it stands.
pub(super) fn read_all(reader: &mut Reader<'_>, root: &Table) -> Vec<(Rule, RuleOrigin)> {
    let example = "[{ match = \"github:delete_*\", confirm = \"type\" }]";
    let Some(node) = root.get("rules") else { return Vec::new() };
    if let Value::Table(_) = node.value {
        let message = "`rules` is a list of tables, and is one table";
        reader.error(
            node.place,
            Problem::WrongType,
            message,
            "write `[[rules]]` with two brackets".to_owned(),
        );
        return Vec::new();
    }
    let items = reader.list(node, "rules", example).unwrap_or_default();
    let mut rules = Vec::new();
    for item in items {
        if let Some(table) = reader.table(item, "rules", example) {
            rules.push(read(reader, item, table));
        }
    }
    rules
}

/// All rules together. Each glob compiled alone; if they are too many or too large together, that is said as well.
pub(super) fn compile(
    reader: &mut Reader<'_>,
    root: &Table,
    rules: Vec<Rule>,
    unlisted: Unlisted,
) -> RuleSet {
    RuleSet::compile(rules, unlisted).unwrap_or_else(|bad| {
        let place = root.get("rules").map_or(Place { file: 0, start: 0, end: 0 }, |node| node.place);
        let help = "write fewer or shorter globs: `github:*` for a whole upstream".to_owned();
        reader.error(
            place,
            Problem::BadGlob,
            format!("the globs do not compile together: {}", bad.why),
            help,
        );
        RuleSet::default()
    })
}

fn read(reader: &mut Reader<'_>, node: &Node, table: &Table) -> (Rule, RuleOrigin) {
    Section::open(reader, table, "`[[rules]]`", &KEYS);
    let mut rule = Rule::named(reader.files.label(node.place), &[]);
    let globs = globs(reader, node, table);
    rule.globs = globs.iter().map(|(glob, _)| glob.clone()).collect();
    rule.when = table.get("when").and_then(|node| condition(reader, node));
    rule.preview = table.get("preview").and_then(|node| preview::read(reader, node));
    rule.deny = table.get("deny").and_then(|node| deny(reader, node));
    rule.limit = table.get("limit").and_then(|node| rate(reader, node, "limit"));
    rule.redact = table.get("redact").map(|node| redact(reader, node)).unwrap_or_default();
    rule.type_field = table.get("type_field").and_then(|node| type_field(reader, node));
    let mut section = Section { reader, table };
    rule.effect = section.word("effect", "\"write\"");
    rule.confirm = section.word("confirm", "\"preview\"");
    rule.strength = section.word("strength", "\"human\"");
    rule.role = section.word("role", "\"human\"");
    rule.allow = section.truth("allow", "true");
    rule.timeout = section.span("timeout", "\"30s\"");
    let origin = RuleOrigin {
        place: node.place,
        globs: globs.into_iter().map(|(_, place)| place).collect(),
        fields: table.entries.iter().map(|entry| (entry.key.clone(), entry.place)).collect(),
        author: Author::Rules,
    };
    (rule, origin)
}

fn globs(reader: &mut Reader<'_>, node: &Node, table: &Table) -> Vec<(String, Place)> {
    let example = "\"github:delete_*\"";
    let Some(globs) = table.get("match") else {
        let message = "a rule has no `match`";
        reader.error(
            node.place,
            Problem::MissingKey,
            message,
            format!("write `match = {example}`, or `\"*\"` for every tool"),
        );
        return Vec::new();
    };
    let mut good = Vec::new();
    for (text, place) in reader.texts(globs, "match", example) {
        let alone = Rule::named("", &[text]);
        match RuleSet::compile(vec![alone], Unlisted::Govern) {
            Ok(_) => good.push((text.to_owned(), place)),
            Err(bad) => {
                let message = format!("{} is not a glob: {}", tick(text), bad.why);
                let help = "write `*` for anything, `?` for one character, `{a,b}` for either, `[a-z]` for a set: `\"github:delete_*\"`";
                reader.error(place, Problem::BadGlob, message, help.to_owned());
            }
        }
    }
    good
}

fn condition(reader: &mut Reader<'_>, node: &Node) -> Option<Condition> {
    let text = reader.text(node, "when", "\"args.amount > 10000\"")?;
    match Condition::compile(text) {
        Ok(condition) => Some(condition),
        Err(BadCondition { why, at }) => {
            let place = at.and_then(|at| byte_offset(text, at)).map_or(node.place, |offset| {
                let rest = text.get(offset..).unwrap_or_default();
                let word = rest
                    .chars()
                    .take_while(|one| one.is_alphanumeric() || *one == '_')
                    .map(char::len_utf8)
                    .sum();
                reader.place_inside(node.place, offset, word)
            });
            let help = match unknown_name(&why) {
                Some(name) => match crate::nearest::nearest(name, crate::rules::VARIABLES) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("an argument is `args.{name}`"),
                },
                None => "a condition is CEL, such as `args.amount > 10000 && mode == 'execute'`".to_owned(),
            };
            reader.error(
                place,
                Problem::BadCondition,
                format!("the condition does not compile: {why}"),
                help,
            );
            None
        }
    }
}

fn unknown_name(why: &str) -> Option<&str> {
    why.strip_prefix("unknown name `")?.split('`').next()
}

/// The byte at a line and column, both from 1, columns in characters.
fn byte_offset(text: &str, (line, column): (usize, usize)) -> Option<usize> {
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let within = text.get(start..)?;
    Some(start + within.char_indices().nth(column - 1).map_or(within.len(), |(offset, _)| offset))
}

fn deny(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    let example = "\"no shell through this gateway\"";
    match &node.value {
        Value::Boolean(true) => Some("a rule denies it".to_owned()),
        Value::Boolean(false) => {
            let help = "remove the line: a rule that does not deny says nothing about it".to_owned();
            reader.error(node.place, Problem::BadValue, "`deny = false` means nothing", help);
            None
        }
        Value::String(_) => reader.text(node, "deny", example).map(str::to_owned),
        Value::Integer(_) | Value::Float(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
            reader.expected(node, "deny", "a reason in quotes, or `true`", example);
            None
        }
    }
}

/// A rate such as `"20/min"`.
pub(super) fn rate(reader: &mut Reader<'_>, node: &Node, key: &str) -> Option<crate::duration::Rate> {
    let example = "\"20/min\"";
    let text = reader.text(node, key, example)?;
    let rate = text.parse().ok();
    if rate.is_none() {
        let help = format!("write a number and s, min, h or day: `{key} = {example}`");
        reader.error(node.place, Problem::BadValue, format!("{} is not a rate", tick(text)), help);
    }
    rate
}

fn redact(reader: &mut Reader<'_>, node: &Node) -> Vec<String> {
    let mut paths = Vec::new();
    for (path, place) in reader.texts(node, "redact", "[\"password\", \"users.*.pin\"]") {
        if path.split('.').any(str::is_empty) {
            let help =
                "write an argument's name or a dotted path, `*` for every item: `users.*.pin`".to_owned();
            reader.error(place, Problem::BadValue, format!("{} is not a path", tick(path)), help);
        } else {
            paths.push(path.to_owned());
        }
    }
    paths
}

fn type_field(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    let text = reader.text(node, "type_field", "\"repo\"")?;
    if text.split('.').any(|part| part.is_empty() || part == "*") {
        let help = "write one argument's name or dotted path: `type_field = \"repo\"`".to_owned();
        reader.error(
            node.place,
            Problem::BadValue,
            format!("{} does not name one argument", tick(text)),
            help,
        );
        return None;
    }
    Some(text.to_owned())
}

/// What command tools say of themselves, as rules behind all others.
pub(super) fn of_tools(files: &Files, upstreams: &[Upstream]) -> Vec<(Rule, RuleOrigin)> {
    let mut rules = Vec::new();
    for upstream in upstreams {
        let UpstreamKind::Command { tools, .. } = &upstream.kind else { continue };
        rules.extend(tools.iter().filter_map(|tool| of_tool(files, upstream, tool)));
    }
    rules
}

fn of_tool(files: &Files, upstream: &Upstream, tool: &CommandTool) -> Option<(Rule, RuleOrigin)> {
    let mut rule = Rule::named("", &[&format!("{}:{}", upstream.id, tool.name)]);
    let silent = rule.clone();
    rule.effect = tool.effect;
    rule.confirm = tool.confirm;
    rule.type_field.clone_from(&tool.type_field);
    rule.strength = tool.strength;
    rule.timeout = tool.timeout.or(upstream.timeout);
    rule.preview = tool
        .preview
        .is_some()
        .then(|| Style::Companion { tool: format!("{}{PREVIEW_SUFFIX}", tool.name), digest: Vec::new() });
    if rule == silent {
        return None;
    }
    rule.name = RuleName(files.label(tool.place));
    Some((
        rule,
        RuleOrigin { place: tool.place, globs: vec![tool.place], fields: Vec::new(), author: Author::Tool },
    ))
}
