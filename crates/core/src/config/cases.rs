//! `[[tests]]`: calls with the verdict they should get, for `policy test`. Read with the same findings as everything else,
//! and judged by the real gate without anything being called.

use jiff::Timestamp;
use serde::Serialize;

use super::Config;
use super::diagnostic::{Problem, tick};
use super::explain::{Explained, explain};
use super::input::check_json;
use super::question::{ExplainInput, IntentInput};
use super::reading::{Reader, Section};
use super::source::Place;
use super::tree::{Node, Table, Value};
use crate::call::Arguments;
use crate::confirm::{Kind, Strength};
use crate::effect::Effect;
use crate::ids::FullName;
use crate::nearest::nearest;
use crate::refusal::Code;
use crate::role::Role;
use crate::words::words;

words! {
    /// What the gate said, in one word.
    pub enum VerdictWord("verdict") {
        /// Runs at once.
        Go = "go",
        /// Waits for a second step.
        Hold = "hold",
        /// Is shown, not run: plan mode.
        Preview = "preview",
        /// Is explained, not run: ask mode.
        Explain = "explain",
        /// Is refused.
        Refuse = "refuse",
    }
}

words! {
    /// Through which call tool, or directly.
    pub enum Way("variant") {
        /// `call_tool_read`
        Read = "read",
        /// `call_tool_write`
        Write = "write",
        /// `call_tool_destructive`
        Destructive = "destructive",
        /// The direct surface.
        Direct = "direct",
    }
}

/// What a case expects; what is not said is not compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expect {
    /// The verdict.
    pub verdict: Option<VerdictWord>,
    /// The code of a no.
    pub code: Option<Code>,
    /// The reason code of a no.
    pub reason_code: Option<String>,
    /// What the tool does.
    pub effect: Option<Effect>,
    /// The second step.
    pub confirm: Option<Kind>,
    /// Who has to agree.
    pub strength: Option<Strength>,
    /// The rule behind the verdict.
    pub rule: Option<String>,
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What it is called, or what it calls.
    pub name: String,
    /// Where it is written.
    pub place: Place,
    /// The call.
    pub input: ExplainInput,
    /// What should come out.
    pub expect: Expect,
}

/// Something that came out otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which field of `expect`.
    pub field: &'static str,
    /// What was expected.
    pub expected: String,
    /// What came; empty for nothing.
    pub got: String,
}

/// Whether a case came out as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It did.
    Passed,
    /// It did not.
    Failed,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseOutcome {
    /// The case's name.
    pub name: String,
    /// `file:line` of the case.
    pub at: String,
    /// Whether it came out as expected.
    pub outcome: Outcome,
    /// What came out otherwise.
    pub differences: Vec<Difference>,
    /// All that came out.
    pub got: Explained,
}

/// Judges a case and compares.
pub fn run_case(config: &Config, case: &Case) -> CaseOutcome {
    let got = explain(config, &case.input);
    let expect = &case.expect;
    let text = |word: Option<&str>| word.map(str::to_owned);
    let pairs = [
        ("verdict", expect.verdict.map(|verdict| verdict.to_string()), Some(got.verdict.to_string())),
        ("code", text(expect.code.map(Code::as_str)), text(got.code)),
        ("reason_code", expect.reason_code.clone(), text(got.reason_code)),
        ("effect", expect.effect.map(|effect| effect.to_string()), Some(got.effect.to_string())),
        ("confirm", expect.confirm.map(|confirm| confirm.to_string()), Some(got.confirm.to_string())),
        ("strength", expect.strength.map(|strength| strength.to_string()), Some(got.strength.to_string())),
        ("rule", expect.rule.clone(), got.rule.clone()),
    ];
    let differences: Vec<Difference> = pairs
        .into_iter()
        .filter(|(_, expected, got)| expected.is_some() && expected != got)
        .map(|(field, expected, got)| Difference {
            field,
            expected: expected.unwrap_or_default(),
            got: got.unwrap_or_default(),
        })
        .collect();
    CaseOutcome {
        name: case.name.clone(),
        at: config.files.label(case.place),
        outcome: if differences.is_empty() { Outcome::Passed } else { Outcome::Failed },
        differences,
        got,
    }
}

const KEYS: [&str; 12] = [
    "name",
    "tool",
    "args",
    "mode",
    "role",
    "variant",
    "intent",
    "annotations",
    "description",
    "principal",
    "now",
    "expect",
];

pub(super) fn read_all(reader: &mut Reader<'_>, root: &Table) -> Vec<Case> {
    let example = "[{ tool = \"github:delete_repo\", expect = { verdict = \"refuse\" } }]";
    let Some(node) = root.get("tests") else { return Vec::new() };
    if let Value::Table(_) = node.value {
        let message = "`tests` is a list of tables, and is one table";
        reader.error(
            node.place,
            Problem::WrongType,
            message,
            "write `[[tests]]` with two brackets".to_owned(),
        );
        return Vec::new();
    }
    let items = reader.list(node, "tests", example).unwrap_or_default();
    let mut cases = Vec::new();
    for item in items {
        if let Some(table) = reader.table(item, "tests", example) {
            cases.extend(read(reader, item, table));
        }
    }
    cases
}

fn read(reader: &mut Reader<'_>, node: &Node, table: &Table) -> Option<Case> {
    Section::open(reader, table, "`[[tests]]`", &KEYS);
    let tool = tool(reader, node, table);
    let now = table.get("now").and_then(|node| moment(reader, node)).unwrap_or(Timestamp::UNIX_EPOCH);
    let arguments =
        table.get("args").and_then(|node| arguments(reader, node)).unwrap_or_else(Arguments::none);
    let annotations = table
        .get("annotations")
        .and_then(|node| reader.table(node, "annotations", "{ readOnlyHint = true }").map(Table::to_json));
    let intent = table.get("intent").map(|node| intent(reader, node)).unwrap_or_default();
    let expect = expect(reader, node, table);
    let mut section = Section { reader, table };
    let name = section.text("name", "\"deleting needs a person\"").map(str::to_owned);
    let (mode, role) = (section.word("mode", "\"execute\""), section.word("role", "\"agent\""));
    let way = section.word("variant", "\"destructive\"");
    let description = section.text("description", "\"Deletes a repository\"").map(str::to_owned);
    let principal = section.text("principal", "\"alice\"").map(str::to_owned);
    let tool = tool?;
    let name = name.unwrap_or_else(|| tool.to_string());
    let role = role.unwrap_or(Role::Agent);
    let input = ExplainInput {
        tool,
        arguments,
        mode,
        role,
        way,
        intent,
        annotations,
        description,
        input_schema: None,
        principal,
        session: None,
        now,
    };
    Some(Case { name, place: node.place, input, expect })
}

fn tool(reader: &mut Reader<'_>, node: &Node, table: &Table) -> Option<FullName> {
    let example = "\"github:delete_repo\"";
    let Some(tool) = table.get("tool") else {
        let message = "a test has no `tool`";
        reader.error(node.place, Problem::MissingKey, message, format!("write `tool = {example}`"));
        return None;
    };
    let text = reader.text(tool, "tool", example)?;
    let name = text.parse().ok();
    if name.is_none() {
        let message = format!("{} is not the full name of a tool", tick(text));
        reader.error(tool.place, Problem::BadValue, message, format!("write `tool = {example}`"));
    }
    name
}

fn arguments(reader: &mut Reader<'_>, node: &Node) -> Option<Arguments> {
    reader.table(node, "args", "{ repo = \"acme/site\" }")?;
    let json = check_json(reader, node, "args")?;
    let arguments = Arguments::parse(json.to_string().as_bytes());
    if let Err(fault) = &arguments {
        let message = format!("`args` can't be the arguments of a call: {fault}");
        reader.error(node.place, Problem::BadValue, message, "write plain values".to_owned());
    }
    arguments.ok()
}

/// A date with its offset, quoted or not.
fn moment(reader: &mut Reader<'_>, node: &Node) -> Option<Timestamp> {
    let text = match &node.value {
        Value::String(text) | Value::Datetime(text) => text,
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Array(_) | Value::Table(_) => {
            reader.expected(node, "now", "a date and time", "2026-05-03T10:00:00Z");
            return None;
        }
    };
    let moment = text.parse().ok();
    if moment.is_none() {
        let message = format!("{} is not a moment", tick(text));
        let help = "write date, time and offset: `now = 2026-05-03T10:00:00Z`".to_owned();
        reader.error(node.place, Problem::BadValue, message, help);
    }
    moment
}

/// A table, judged like a caller's; `false` for none at all.
fn intent(reader: &mut Reader<'_>, node: &Node) -> IntentInput {
    match &node.value {
        Value::Boolean(false) => IntentInput::Missing,
        Value::Table(table) => IntentInput::Given(table.to_json()),
        Value::Boolean(true)
        | Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Datetime(_)
        | Value::Array(_) => {
            reader.expected(node, "intent", "a table, or `false` for none", "{ operation_type = \"write\" }");
            IntentInput::Suited
        }
    }
}

fn expect(reader: &mut Reader<'_>, node: &Node, table: &Table) -> Expect {
    const KEYS: [&str; 7] = ["verdict", "code", "reason_code", "effect", "confirm", "strength", "rule"];
    let example = "{ verdict = \"hold\", confirm = \"type\" }";
    let Some(given) = table.get("expect") else {
        let message = "a test has no `expect`";
        reader.error(node.place, Problem::MissingKey, message, format!("write `expect = {example}`"));
        return Expect::default();
    };
    let Some(table) = reader.table(given, "expect", example) else { return Expect::default() };
    if table.entries.is_empty() {
        let message = "`expect` expects nothing";
        reader.error(given.place, Problem::MissingKey, message, format!("write `expect = {example}`"));
    }
    let code = table.get("code").and_then(|node| code(reader, node));
    let mut section = Section::open(reader, table, "`expect`", &KEYS);
    Expect {
        verdict: section.word("verdict", "\"hold\""),
        code,
        reason_code: section.text("reason_code", "\"rule_denied\"").map(str::to_owned),
        effect: section.word("effect", "\"write\""),
        confirm: section.word("confirm", "\"type\""),
        strength: section.word("strength", "\"human\""),
        rule: section.text("rule", "\"countersign.toml:12\"").map(str::to_owned),
    }
}

fn code(reader: &mut Reader<'_>, node: &Node) -> Option<Code> {
    let text = reader.text(node, "code", "\"E_RULE_DENIED\"")?;
    let known = Code::ALL.iter().copied().find(|code| code.as_str() == text);
    if known.is_none() {
        let help = match nearest(text, Code::ALL.iter().map(|code| code.as_str())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "the codes are listed in docs/refusals.md".to_owned(),
        };
        reader.error(node.place, Problem::UnknownWord, format!("there is no code {}", tick(text)), help);
    }
    known
}
