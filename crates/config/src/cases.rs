//! `[[tests]]`: calls with the verdict they should get, for `policy test`. Read with the same findings as everything else,
//! and judged by the real gate without anything being called.

use jiff::Timestamp;
use serde::Serialize;

use super::Config;
use super::config_reader::{ConfigReader, SectionReader};
use super::diagnostic::DiagnosticKind::{BadValue, MissingKey, UnknownWord};
use super::diagnostic::{did_you_mean, tick};
use super::explain::{PolicyExplanation, explain};
use super::hypothetical_call::{ExplainInput, IntentInput};
use super::input::check_json;
use super::tree::{TomlNode, TomlTable, TomlValue};
use countersign_policy::call::Arguments;
use countersign_policy::command_template::Place;
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::effect::Effect;
use countersign_policy::ids::FullName;
use countersign_policy::refusal::Code;
use countersign_policy::role::Role;
use countersign_policy::words::words;

words! {
    /// What the gate said, in one word.
    pub enum VerdictWord("verdict") {
        Go = "go",
        /// Waits for a second step.
        Hold = "hold",
        /// Is shown, not run: plan mode.
        Preview = "preview",
        /// Is explained, not run: ask mode.
        Explain = "explain",
        Refuse = "refuse",
    }
}

words! {
    /// Through which call tool, or directly.
    pub enum CallRoute("variant") {
        Read = "read",
        Write = "write",
        Destructive = "destructive",
        Direct = "direct",
    }
}

/// What a case expects; what is not said is not compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseExpectation {
    pub verdict: Option<VerdictWord>,
    pub code: Option<Code>,
    pub reason_code: Option<String>,
    pub effect: Option<Effect>,
    pub confirm: Option<Kind>,
    pub strength: Option<ApprovalStrength>,
    pub rule: Option<String>,
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyTestCase {
    /// What it is called, or what it calls.
    pub name: String,
    pub place: Place,
    pub input: ExplainInput,
    pub expect: CaseExpectation,
}

/// Something that came out otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseDifference {
    /// Which field of `expect`.
    pub field: &'static str,
    pub expected: String,
    /// What came; empty for nothing.
    pub got: String,
}

/// Whether a case came out as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Passed,
    Failed,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseOutcome {
    pub name: String,
    /// `file:line` of the case.
    pub at: String,
    pub outcome: Outcome,
    pub differences: Vec<CaseDifference>,
    pub got: PolicyExplanation,
}

/// Judges a case and compares.
pub fn run_case(config: &Config, case: &PolicyTestCase) -> CaseOutcome {
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
    let differences: Vec<CaseDifference> = pairs
        .into_iter()
        .filter(|(_, expected, got)| expected.is_some() && expected != got)
        .map(|(field, expected, got)| CaseDifference {
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

pub(crate) fn read_all(reader: &mut ConfigReader<'_>, root: &TomlTable) -> Vec<PolicyTestCase> {
    let example = "[{ tool = \"github:delete_repo\", expect = { verdict = \"refuse\" } }]";
    let mut cases = Vec::new();
    for (node, table) in reader.tables(root, "tests", example) {
        cases.extend(read(reader, node, table));
    }
    cases
}

fn read(reader: &mut ConfigReader<'_>, node: &TomlNode, table: &TomlTable) -> Option<PolicyTestCase> {
    SectionReader::open(reader, table, "`[[tests]]`", &KEYS);
    let tool = tool(reader, node, table);
    let now = table.get("now").and_then(|node| moment(reader, node)).unwrap_or(Timestamp::UNIX_EPOCH);
    let arguments =
        table.get("args").and_then(|node| arguments(reader, node)).unwrap_or_else(Arguments::none);
    let annotations = table.get("annotations").and_then(|node| {
        reader.table(node, "annotations", "{ readOnlyHint = true }").map(TomlTable::to_json)
    });
    let intent = table.get("intent").map(|node| intent(reader, node)).unwrap_or_default();
    let expect = expect(reader, node, table);
    let mut section = SectionReader { reader, table };
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
        fingerprint: None,
        principal,
        session: None,
        now,
    };
    Some(PolicyTestCase { name, place: node.place, input, expect })
}

fn tool(reader: &mut ConfigReader<'_>, node: &TomlNode, table: &TomlTable) -> Option<FullName> {
    let example = "\"github:delete_repo\"";
    let Some(tool) = table.get("tool") else {
        let message = "a test has no `tool`";
        reader.error(node.place, MissingKey, message, format!("write `tool = {example}`"));
        return None;
    };
    let text = reader.text(tool, "tool", example)?;
    let name = text.parse().ok();
    if name.is_none() {
        let message = format!("{} is not the full name of a tool", tick(text));
        reader.error(tool.place, BadValue, message, format!("write `tool = {example}`"));
    }
    name
}

fn arguments(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<Arguments> {
    reader.table(node, "args", "{ repo = \"acme/site\" }")?;
    let json = check_json(reader, node, "args")?;
    let arguments = Arguments::parse(json.to_string().as_bytes());
    if let Err(fault) = &arguments {
        let message = format!("`args` can't be the arguments of a call: {fault}");
        reader.error(node.place, BadValue, message, "write plain values");
    }
    arguments.ok()
}

/// A date with its offset, quoted or not.
fn moment(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<Timestamp> {
    let text = match &node.value {
        TomlValue::String(text) | TomlValue::Datetime(text) => text,
        TomlValue::Integer(_)
        | TomlValue::Float(_)
        | TomlValue::Boolean(_)
        | TomlValue::Array(_)
        | TomlValue::Table(_) => {
            reader.expected(node, "now", "a date and time", "2026-05-03T10:00:00Z");
            return None;
        }
    };
    let moment = text.parse().ok();
    if moment.is_none() {
        let message = format!("{} is not a moment", tick(text));
        let help = "write date, time and offset: `now = 2026-05-03T10:00:00Z`";
        reader.error(node.place, BadValue, message, help);
    }
    moment
}

/// A table, judged like a caller's; `false` for none at all.
fn intent(reader: &mut ConfigReader<'_>, node: &TomlNode) -> IntentInput {
    match &node.value {
        TomlValue::Boolean(false) => IntentInput::Missing,
        TomlValue::Table(table) => IntentInput::Given(table.to_json()),
        TomlValue::Boolean(true)
        | TomlValue::String(_)
        | TomlValue::Integer(_)
        | TomlValue::Float(_)
        | TomlValue::Datetime(_)
        | TomlValue::Array(_) => {
            reader.expected(node, "intent", "a table, or `false` for none", "{ operation_type = \"write\" }");
            IntentInput::Suited
        }
    }
}

fn expect(reader: &mut ConfigReader<'_>, node: &TomlNode, table: &TomlTable) -> CaseExpectation {
    const KEYS: [&str; 7] = ["verdict", "code", "reason_code", "effect", "confirm", "strength", "rule"];
    let example = "{ verdict = \"hold\", confirm = \"type\" }";
    let Some(given) = table.get("expect") else {
        let message = "a test has no `expect`";
        reader.error(node.place, MissingKey, message, format!("write `expect = {example}`"));
        return CaseExpectation::default();
    };
    let Some(table) = reader.table(given, "expect", example) else { return CaseExpectation::default() };
    if table.entries.is_empty() {
        let message = "`expect` expects nothing";
        reader.error(given.place, MissingKey, message, format!("write `expect = {example}`"));
    }
    let code = table.get("code").and_then(|node| code(reader, node));
    let mut section = SectionReader::open(reader, table, "`expect`", &KEYS);
    CaseExpectation {
        verdict: section.word("verdict", "\"hold\""),
        code,
        reason_code: section.text("reason_code", "\"rule_denied\"").map(str::to_owned),
        effect: section.word("effect", "\"write\""),
        confirm: section.word("confirm", "\"type\""),
        strength: section.word("strength", "\"human\""),
        rule: section.text("rule", "\"countersign.toml:12\"").map(str::to_owned),
    }
}

fn code(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<Code> {
    let text = reader.text(node, "code", "\"E_RULE_DENIED\"")?;
    let known = Code::ALL.iter().copied().find(|code| code.as_str() == text);
    if known.is_none() {
        let help = did_you_mean(text, Code::ALL.iter().map(|code| code.as_str()), || {
            "the codes are listed in docs/refusals.md".to_owned()
        });
        reader.error(node.place, UnknownWord, format!("there is no code {}", tick(text)), help);
    }
    known
}
