//! `countersign.toml`: text in, typed values or diagnostics out, each with its line, column and what to write instead.
//! Also checks, explains, simulates and tests a policy. Reads no file and no environment; the caller looks secrets up.
//!
//! Several files become one, and later files win: tables merge key by key, other values are replaced, rules of
//! later files come before those of earlier ones (the first match wins), and tests are added.

mod cases;
mod command;
mod config_reader;
mod diagnostic;
mod explain;
mod glob;
mod hypothetical_call;
mod input;
mod limits;
mod lint;
mod native;
mod path_bases;
mod preview;
mod remote_access;
mod rule;
mod sections;
mod simulate;
mod source;
mod template;
mod tree;
mod upstream;
mod upstream_access;
mod upstream_audience;

use std::sync::Arc;

pub use cases::{
    CallRoute, CaseDifference, CaseExpectation, CaseOutcome, Outcome, PolicyTestCase, VerdictWord, run_case,
};
pub use command::{CommandOutputFormat, CommandRunMode, CommandTool};
pub use countersign_policy::command_template::{
    Argv, EXPLAIN_SUFFIX, Origin, PREVIEW_SUFFIX, Place, PreviewCommand, Reference, Template, TemplatePair,
    TemplatePiece, Word,
};
pub use diagnostic::{Diagnostic, DiagnosticKind, DiagnosticSeverity};
pub use explain::{DecidedField, ModeRow, ModeVerdict, PolicyExplanation, explain};
pub use hypothetical_call::{ExplainInput, IntentInput};
pub use input::{CommandInput, InputPresence, InputShape, InputType, LeadingDash};
pub use limits::LimitsSection;
pub use lint::lint;
pub use remote_access::{
    ListenerGuards, NotifySection, ProxyPlacement, TlsFiles, UnsafeListener, WebhookTarget, exposure,
};
pub use rule::{RuleAuthor, RuleOrigin};
pub use sections::{
    AgentAuth, CheckpointPlace, ConfirmSection, DeskSection, Gateway, IntentSection, LedgerSection,
    OWN_TOOLS, ReadDurability, ToolSurface,
};
pub use simulate::{DecisionChange, PastCall, RecordedVerdict, ReplayResult, SimulatedDecision, replay};
pub use source::{Source, SourceFiles};
pub use upstream::{NativeKind, ToolNamePrefix, Upstream, UpstreamKind, UpstreamStart, UpstreamTrust};
pub use upstream_access::{ElicitationAccess, MCP_METHODS, SamplingAccess, UpstreamAccess};
pub use upstream_audience::UpstreamAudience;

use config_reader::{ConfigCompleteness, ConfigReader};
use countersign_policy::ids::{Secret, UpstreamId};
use countersign_policy::rules::RuleSet;
use tree::TomlTable;

/// Everything `countersign.toml` says.
#[derive(Clone, Debug)]
pub struct Config {
    pub gateway: Gateway,
    /// `[intent]`, or `[intent_declaration]`.
    pub intent: IntentSection,
    pub confirm: ConfirmSection,
    pub ledger: LedgerSection,
    pub limits: LimitsSection,
    pub desk: DeskSection,
    pub notify: NotifySection,
    /// `[upstreams.NAME]`, in the order of the file.
    pub upstreams: Vec<Upstream>,
    /// `[[rules]]`, and behind them what command tools say of themselves; compiled.
    pub rules: RuleSet,
    pub origins: Vec<RuleOrigin>,
    pub tests: Vec<PolicyTestCase>,
    pub files: Arc<SourceFiles>,
}

const SECTIONS: [&str; 11] = [
    "gateway",
    "intent",
    "intent_declaration",
    "confirm",
    "ledger",
    "limits",
    "desk",
    "notify",
    "upstreams",
    "rules",
    "tests",
];

/// Reads a configuration from one or several files, or says everything that is wrong with them.
pub fn parse(sources: &[Source]) -> Result<Config, Vec<Diagnostic>> {
    parse_from(sources, 0)
}

/// Reads a configuration with new files over it, whose rules stand instead of the present ones: what `policy simulate`
/// compares with.
pub fn parse_instead(present: &[Source], new: &[Source]) -> Result<Config, Vec<Diagnostic>> {
    let sources: Vec<Source> = present.iter().chain(new).cloned().collect();
    parse_from(&sources, present.len())
}

/// Reads files into one. Rules and tests of those before `ruled` do not count.
fn parse_from(sources: &[Source], ruled: usize) -> Result<Config, Vec<Diagnostic>> {
    let files = Arc::new(SourceFiles::new(sources));
    let mut found = Vec::new();
    let mut whole = TomlTable::default();
    for file in 0..sources.len() {
        let (mut table, mut wrong) = read_file(&files, file);
        found.append(&mut wrong);
        if file < ruled {
            table.entries.retain(|entry| !matches!(entry.key.as_str(), "rules" | "tests"));
        }
        tree::overlay_file(&mut whole, table);
    }
    // What a file that is not TOML would say is a guess: only its syntax errors are reported.
    let is_toml = !found.iter().any(|finding| finding.code == DiagnosticKind::Syntax);
    let config = is_toml.then(|| {
        let mut reader = ConfigReader::new(&files, ConfigCompleteness::Whole);
        let config = read_whole(&mut reader, &whole);
        found.append(&mut reader.found);
        config
    });
    let order = |finding: &Diagnostic| {
        (sources.iter().position(|source| source.name == finding.file), finding.line, finding.column)
    };
    found.sort_by_key(order);
    found.dedup();
    match config {
        Some(config) if found.is_empty() => Ok(config.placed(None, None)),
        Some(_) | None => Err(found),
    }
}

/// The tree of one file, with everything that is wrong with it alone.
fn read_file(files: &SourceFiles, file: usize) -> (TomlTable, Vec<Diagnostic>) {
    let mut reader = ConfigReader::new(files, ConfigCompleteness::Part);
    let mut table = tree::read(files, file, &mut reader.found);
    unify_intent(&mut reader, &mut table);
    // What a later file replaces is checked as well: it is wrong where it stands.
    if files.all().len() > 1 && !reader.found.iter().any(|finding| finding.code == DiagnosticKind::Syntax) {
        read_whole(&mut reader, &table);
    }
    (table, reader.found)
}

/// `[intent_declaration]` is another spelling of `[intent]`.
fn unify_intent(reader: &mut ConfigReader<'_>, table: &mut TomlTable) {
    let both = table.entry("intent").is_some();
    let Some(other) = table.entries.iter_mut().find(|entry| entry.key == "intent_declaration") else {
        return;
    };
    if both {
        let message = "`[intent_declaration]` is another spelling of `[intent]`, and both are there";
        reader.error(other.place, DiagnosticKind::Conflict, message, "keep `[intent]`".to_owned());
    }
    other.key = "intent".to_owned();
}

fn read_whole(reader: &mut ConfigReader<'_>, root: &TomlTable) -> Config {
    reader.unknown_keys(root, "the file", &SECTIONS);
    let gateway = sections::gateway(reader, root);
    let upstreams = upstream::read_all(reader, root);
    let mut rules = native::before(&upstreams);
    rules.extend(rule::read_all(reader, root));
    rules.extend(rule::of_tools(reader.files, &upstreams));
    rules.extend(native::after(&upstreams));
    let (rules, origins): (Vec<_>, Vec<_>) = rules.into_iter().unzip();
    let confirm = sections::confirm(reader, root);
    Config {
        rules: rule::compile(reader, root, rules, gateway.unlisted).with_strengths(confirm.strengths),
        gateway,
        intent: sections::intent(reader, root),
        confirm,
        ledger: sections::ledger(reader, root),
        limits: limits::read(reader, root),
        desk: sections::desk(reader, root),
        notify: remote_access::notify(reader, root),
        upstreams,
        origins,
        tests: cases::read_all(reader, root),
        files: Arc::new(reader.files.clone()),
    }
}

impl Config {
    pub fn upstream(&self, id: &UpstreamId) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| upstream.id == *id)
    }

    /// Looks up every `${…}`; what can't be found is said, all of it.
    pub fn settle(
        mut self,
        look_up: &dyn Fn(&Reference) -> Result<Secret, String>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut found = Vec::new();
        let files = Arc::clone(&self.files);
        let upstreams = self.upstreams.iter_mut().flat_map(Upstream::templates);
        let notified = self.notify.templates();
        for template in std::iter::once(&mut self.gateway.store).chain(upstreams).chain(notified) {
            template::settle(template, &files, look_up, &mut found);
        }
        for command in self.rules.commands() {
            for template in command.templates() {
                template::settle(template, &files, look_up, &mut found);
            }
        }
        if found.is_empty() { Ok(self) } else { Err(found) }
    }
}
