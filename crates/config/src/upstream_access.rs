//! What an upstream may do besides offering tools: ask its user questions, and be sent methods outside the MCP specification.

use std::time::Duration;

use super::config_reader::{ConfigReader, SectionReader};
use super::diagnostic::DiagnosticKind::{BadValue, Conflict};
use super::diagnostic::tick;
use super::rule::rate;
use super::tree::TomlTable;
use super::upstream::ToolNamePrefix;
use countersign_policy::duration::RateLimit;
use countersign_policy::words::words;

words! {
    /// Which questions of an upstream reach the user (`elicitation/create`).
    pub enum ElicitationAccess("elicitation") {
        Form = "form",
        /// Forms, and addresses to be opened.
        Url = "url",
        Off = "off",
    }
}

words! {
    /// Whether an upstream may use the host's model (`sampling/createMessage`).
    pub enum SamplingAccess("sampling") {
        Off = "off",
        On = "on",
    }
}

/// The client requests of the MCP specification, every revision.
pub const MCP_METHODS: [&str; 20] = [
    "initialize",
    "server/discover",
    "ping",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/result",
    "tasks/list",
    "tasks/cancel",
    "tasks/update",
];

/// What one upstream may do besides offering tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamAccess {
    pub elicitation: ElicitationAccess,
    pub sampling: SamplingAccess,
    pub questions: RateLimit,
    /// Methods and notifications outside the specification that pass to it where it is served under its own names.
    pub methods: Vec<String>,
}

impl Default for UpstreamAccess {
    fn default() -> Self {
        Self {
            elicitation: ElicitationAccess::Form,
            sampling: SamplingAccess::Off,
            questions: RateLimit { count: 6, window: Duration::from_secs(60) },
            methods: Vec::new(),
        }
    }
}

/// Reads the keys of one `[upstreams.NAME]`.
pub(crate) fn read(
    reader: &mut ConfigReader<'_>,
    table: &TomlTable,
    prefix: ToolNamePrefix,
) -> UpstreamAccess {
    let methods = read_methods(reader, table, prefix);
    let questions = table.get("questions").and_then(|node| rate(reader, node, "questions", "\"20/min\""));
    let mut section = SectionReader { reader, table };
    let usual = UpstreamAccess::default();
    UpstreamAccess {
        elicitation: section.word("elicitation", "\"off\"").unwrap_or(usual.elicitation),
        sampling: section.word("sampling", "\"on\"").unwrap_or(usual.sampling),
        questions: questions.unwrap_or(usual.questions),
        methods,
    }
}

fn read_methods(reader: &mut ConfigReader<'_>, table: &TomlTable, prefix: ToolNamePrefix) -> Vec<String> {
    let example = "[\"acme/refresh\"]";
    let Some(node) = table.get("methods") else { return Vec::new() };
    let Some(items) = reader.list(node, "methods", example) else { return Vec::new() };
    if prefix == ToolNamePrefix::Upstream {
        let help = "add `prefix = false`, or remove `methods`";
        let message = "`methods` means something only beside `prefix = false`";
        reader.error(node.place, Conflict, message, help);
    }
    let mut methods = Vec::new();
    for item in items {
        let Some(method) = reader.text(item, "methods", example) else { continue };
        if MCP_METHODS.contains(&method) {
            let message = format!("{} is a method of MCP and needs no listing", tick(method));
            reader.error(item.place, BadValue, message, "remove it from `methods`");
        }
        methods.push(method.to_owned());
    }
    methods
}
