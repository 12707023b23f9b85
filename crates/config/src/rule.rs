//! `[[rules]]`: reads each field in its forms, compiles globs and conditions, and remembers where everything stands.
//! Command tools' own effect, confirm, type_field, strength and preview become rules after all written ones.

use super::command::CommandTool;
use super::config_reader::ConfigReader;
use super::diagnostic::DiagnosticKind::{BadGlob, BadValue, MissingKey};
use super::diagnostic::{DiagnosticKind, tick};
use super::preview;
use super::source::SourceFiles;
use super::tree::{TomlNode, TomlTable, TomlValue};
use super::upstream::{Upstream, UpstreamKind};
use countersign_policy::command_template::{PREVIEW_SUFFIX, Place};
use countersign_policy::digest::Digest;
use countersign_policy::preview::PreviewStyle;
use countersign_policy::rules::{
    BadCondition, Condition, Rule, RuleField, RuleName, RuleSet, UnlistedToolPolicy,
};

/// Where a rule and its parts are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOrigin {
    /// The rule's head, or the tool it comes from.
    pub place: Place,
    pub globs: Vec<Place>,
    pub fields: Vec<(String, Place)>,
    pub author: RuleAuthor,
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAuthor {
    Rules,
    Tool,
    /// An upstream of our own.
    Native,
}

impl RuleOrigin {
    /// Where a field is written, or the rule's head.
    pub(crate) fn field(&self, name: &str) -> Place {
        self.fields.iter().find(|(field, _)| field == name).map_or(self.place, |(_, place)| *place)
    }
}

/// The keys of a rule that say which calls it matches.
const MATCH_KEYS: [&str; 3] = ["match", "when", "fingerprint"];

/// Reads `[[rules]]`, each with where it stands.
pub(crate) fn read_all(reader: &mut ConfigReader<'_>, root: &TomlTable) -> Vec<(Rule, RuleOrigin)> {
    let example = "[{ match = \"github:delete_*\", confirm = \"type\" }]";
    let mut rules = Vec::new();
    for (node, table) in reader.tables(root, "rules", example) {
        rules.push(read(reader, node, table));
    }
    rules
}

/// All rules together. Each glob compiled alone; if they are too many or too large together, that is said as well.
pub(crate) fn compile(
    reader: &mut ConfigReader<'_>,
    root: &TomlTable,
    rules: Vec<Rule>,
    unlisted: UnlistedToolPolicy,
) -> RuleSet {
    RuleSet::compile(rules, unlisted).unwrap_or_else(|bad| {
        let place = root.get("rules").map_or(Place { file: 0, start: 0, end: 0 }, |node| node.place);
        let help = "write fewer or shorter globs: `github:*` for a whole upstream";
        reader.error(place, BadGlob, format!("the globs do not compile together: {}", bad.why), help);
        RuleSet::default()
    })
}

fn read(reader: &mut ConfigReader<'_>, node: &TomlNode, table: &TomlTable) -> (Rule, RuleOrigin) {
    let fields = RuleField::ALL.iter().map(|field| field.as_str());
    let keys: Vec<&str> = MATCH_KEYS.into_iter().chain(fields).collect();
    reader.unknown_keys(table, "`[[rules]]`", &keys);
    let mut rule = Rule::named(reader.files.label(node.place), &[]);
    let globs = globs(reader, node, table);
    rule.globs = globs.iter().map(|(glob, _)| glob.clone()).collect();
    rule.when = table.get("when").and_then(|node| condition(reader, node));
    rule.fingerprints = table.get("fingerprint").map(|node| fingerprints(reader, node)).unwrap_or_default();
    for field in RuleField::ALL {
        if let Some(node) = table.get(field.as_str()) {
            read_field(reader, node, *field, &mut rule);
        }
    }
    let origin = RuleOrigin {
        place: node.place,
        globs: globs.into_iter().map(|(_, place)| place).collect(),
        fields: table.entries.iter().map(|entry| (entry.key.clone(), entry.place)).collect(),
        author: RuleAuthor::Rules,
    };
    (rule, origin)
}

/// The TOML form of each field.
fn read_field(reader: &mut ConfigReader<'_>, node: &TomlNode, field: RuleField, rule: &mut Rule) {
    let key = field.as_str();
    match field {
        RuleField::Effect => rule.effect = reader.word(node, key, "\"write\""),
        RuleField::Confirm => rule.confirm = reader.word(node, key, "\"preview\""),
        RuleField::TypeField => rule.type_field = type_field(reader, node),
        RuleField::Strength => rule.strength = reader.word(node, key, "\"human\""),
        RuleField::Preview => rule.preview = preview::read(reader, node),
        RuleField::Role => rule.role = reader.word(node, key, "\"human\""),
        RuleField::Deny => rule.deny = deny(reader, node),
        RuleField::Allow => rule.allow = reader.truth(node, key, "true"),
        RuleField::Limit => rule.limit = rate(reader, node, key, "\"20/min\""),
        RuleField::Redact => rule.redact = redact(reader, node),
        RuleField::Timeout => rule.timeout = reader.span(node, key, "\"30s\""),
    }
}

fn globs(reader: &mut ConfigReader<'_>, node: &TomlNode, table: &TomlTable) -> Vec<(String, Place)> {
    let example = "\"github:delete_*\"";
    let Some(globs) = table.get("match") else {
        let message = "a rule has no `match`";
        reader.error(
            node.place,
            MissingKey,
            message,
            format!("write `match = {example}`, or `\"*\"` for every tool"),
        );
        return Vec::new();
    };
    let mut good = Vec::new();
    for (text, place) in reader.texts(globs, "match", example) {
        let alone = Rule::named("", &[text]);
        match RuleSet::compile(vec![alone], UnlistedToolPolicy::Govern) {
            Ok(_) => good.push((text.to_owned(), place)),
            Err(bad) => {
                let message = format!("{} is not a glob: {}", tick(text), bad.why);
                let help = "write `*` for anything, `?` for one character, `{a,b}` for either, `[a-z]` for a set: `\"github:delete_*\"`";
                reader.error(place, BadGlob, message, help);
            }
        }
    }
    good
}

fn condition(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<Condition> {
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
                Some(name) => {
                    match countersign_policy::nearest::nearest(name, countersign_policy::rules::VARIABLES) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("an argument is `args.{name}`"),
                    }
                }
                None => "a condition is CEL, such as `args.amount > 10000 && mode == 'execute'`".to_owned(),
            };
            reader.error(
                place,
                DiagnosticKind::BadCondition,
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

fn deny(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<String> {
    let example = "\"no shell through this gateway\"";
    match &node.value {
        TomlValue::Boolean(true) => Some("a rule denies it".to_owned()),
        TomlValue::Boolean(false) => {
            let help = "remove the line: a rule that does not deny says nothing about it";
            reader.error(node.place, BadValue, "`deny = false` means nothing", help);
            None
        }
        TomlValue::String(_) => reader.text(node, "deny", example).map(str::to_owned),
        TomlValue::Integer(_)
        | TomlValue::Float(_)
        | TomlValue::Datetime(_)
        | TomlValue::Array(_)
        | TomlValue::Table(_) => {
            reader.expected(node, "deny", "a reason in quotes, or `true`", example);
            None
        }
    }
}

/// A rate such as `"20/min"`.
pub(crate) fn rate(
    reader: &mut ConfigReader<'_>,
    node: &TomlNode,
    key: &str,
    example: &str,
) -> Option<countersign_policy::duration::RateLimit> {
    let text = reader.text(node, key, example)?;
    let rate = text.parse().ok();
    if rate.is_none() {
        let help = format!("write a number and s, min, h or day: `{key} = {example}`");
        reader.error(node.place, BadValue, format!("{} is not a rate", tick(text)), help);
    }
    rate
}

fn redact(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Vec<String> {
    let mut paths = Vec::new();
    for (path, place) in reader.texts(node, "redact", "[\"password\", \"users.*.pin\"]") {
        if path.split('.').any(str::is_empty) {
            let help = "write an argument's name or a dotted path, `*` for every item: `users.*.pin`";
            reader.error(place, BadValue, format!("{} is not a path", tick(path)), help);
        } else {
            paths.push(path.to_owned());
        }
    }
    paths
}

fn fingerprints(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Vec<Digest> {
    let mut found = Vec::new();
    for (text, place) in reader.texts(node, "fingerprint", "\"3f1c…\"") {
        match text.parse() {
            Ok(digest) => found.push(digest),
            Err(_) => {
                let help = "write the 64 characters that `countersign tools show UPSTREAM:TOOL` prints";
                reader.error(place, BadValue, format!("{} is not a fingerprint", tick(text)), help);
            }
        }
    }
    found
}

fn type_field(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<String> {
    let text = reader.text(node, "type_field", "\"repo\"")?;
    if text.split('.').any(|part| part.is_empty() || part == "*") {
        let help = "write one argument's name or dotted path: `type_field = \"repo\"`";
        reader.error(node.place, BadValue, format!("{} does not name one argument", tick(text)), help);
        return None;
    }
    Some(text.to_owned())
}

/// What command tools say of themselves, as rules behind all others.
pub(crate) fn of_tools(files: &SourceFiles, upstreams: &[Upstream]) -> Vec<(Rule, RuleOrigin)> {
    let mut rules = Vec::new();
    for upstream in upstreams {
        let UpstreamKind::Command { tools, .. } = &upstream.kind else { continue };
        rules.extend(tools.iter().filter_map(|tool| of_tool(files, upstream, tool)));
    }
    rules
}

fn of_tool(files: &SourceFiles, upstream: &Upstream, tool: &CommandTool) -> Option<(Rule, RuleOrigin)> {
    let mut rule = Rule::named("", &[&format!("{}:{}", upstream.id, tool.name)]);
    let silent = rule.clone();
    rule.effect = tool.effect;
    rule.confirm = tool.confirm;
    rule.type_field.clone_from(&tool.type_field);
    rule.strength = tool.strength;
    rule.timeout = tool.timeout.or(upstream.timeout);
    rule.preview = tool.preview.is_some().then(|| PreviewStyle::Companion {
        tool: format!("{}{PREVIEW_SUFFIX}", tool.name),
        digest: Vec::new(),
    });
    if rule == silent {
        return None;
    }
    rule.name = RuleName(files.label(tool.place));
    Some((
        rule,
        RuleOrigin {
            place: tool.place,
            globs: vec![tool.place],
            fields: Vec::new(),
            author: RuleAuthor::Tool,
        },
    ))
}
