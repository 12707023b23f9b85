//! Configuration: text in, typed values or findings out, each finding with its line, column and what to write instead.
//! Reads no file and no environment; a secret is looked up by the caller and never prints.
//!
//! Several files become one, later ones win: tables merge key by key, other values are replaced, the rules of
//! later files stand before those of earlier ones (the first match wins), and tests are added.

mod cases;
mod command;
mod diagnostic;
mod explain;
mod glob;
mod input;
mod limits;
mod lint;
mod native;
mod outside;
mod preview;
mod question;
mod reading;
mod rule;
mod sections;
mod simulate;
mod source;
mod template;
mod tree;
mod upstream;
mod upstream_access;

use std::sync::Arc;

pub use cases::{Case, CaseOutcome, Difference, Expect, Outcome, VerdictWord, Way, run_case};
pub use command::{Argv, CommandTool, EXPLAIN_SUFFIX, PREVIEW_SUFFIX, Parse, Running, Word};
pub use diagnostic::{Diagnostic, Problem, Severity};
pub use explain::{Decided, Explained, ModeRow, Said, explain};
pub use input::{Input, InputType, LeadingDash, Presence, Shape};
pub use limits::LimitsSection;
pub use lint::lint;
pub use outside::{Exposed, Guards, NotifySection, Proxy, TlsFiles, Webhook, exposure};
pub use preview::PreviewCommand;
pub use question::{ExplainInput, IntentInput};
pub use rule::{Author, RuleOrigin};
pub use sections::{
    AgentAuth, CheckpointPlace, ConfirmSection, DeskSection, Gateway, IntentSection, LedgerSection,
    OWN_TOOLS, Reads, Surface,
};
pub use simulate::{Change, Decision, Past, Recorded, Replayed, replay};
pub use source::{Files, Place, Source};
pub use template::{Origin, Piece, Reference, Template};
pub use upstream::{NativeKind, Pair, Prefix, Start, Trust, Upstream, UpstreamKind};
pub use upstream_access::{Elicitation, MCP_METHODS, Sampling, UpstreamAccess};

use crate::ids::{Secret, UpstreamId};
use crate::rules::RuleSet;
use reading::{Reach, Reader};
use tree::Table;

/// Everything `countersign.toml` says.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[gateway]`.
    pub gateway: Gateway,
    /// `[intent]`, or `[intent_declaration]`.
    pub intent: IntentSection,
    /// `[confirm]`.
    pub confirm: ConfirmSection,
    /// `[ledger]`.
    pub ledger: LedgerSection,
    /// `[limits]`.
    pub limits: LimitsSection,
    /// `[desk]`.
    pub desk: DeskSection,
    /// `[notify]`.
    pub notify: NotifySection,
    /// `[upstreams.NAME]`, in the order of the file.
    pub upstreams: Vec<Upstream>,
    /// `[[rules]]`, and behind them what command tools say of themselves; compiled.
    pub rules: RuleSet,
    /// Where each of the rules is written.
    pub origins: Vec<RuleOrigin>,
    /// `[[tests]]`.
    pub tests: Vec<Case>,
    /// The texts it was read from.
    pub files: Arc<Files>,
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
    let files = Arc::new(Files::new(sources));
    let mut found = Vec::new();
    let mut whole = Table::default();
    for file in 0..sources.len() {
        let (mut table, mut wrong) = read_file(&files, file);
        found.append(&mut wrong);
        if file < ruled {
            table.entries.retain(|entry| !matches!(entry.key.as_str(), "rules" | "tests"));
        }
        tree::overlay_file(&mut whole, table);
    }
    let breaks: Vec<Diagnostic> =
        found.iter().filter(|finding| finding.code == Problem::Syntax).cloned().collect();
    let mut reader = Reader::new(&files, if breaks.is_empty() { Reach::Whole } else { Reach::Part });
    let config = read_whole(&mut reader, &whole);
    // Behind a break the tree is a guess: what it seems to say there is not reported.
    let is_believed = |finding: &Diagnostic| {
        !breaks.iter().any(|broken| broken.file == finding.file && broken.line <= finding.line)
    };
    found.extend(reader.found.into_iter().filter(is_believed));
    let order = |finding: &Diagnostic| {
        (sources.iter().position(|source| source.name == finding.file), finding.line, finding.column)
    };
    found.sort_by_key(order);
    found.dedup();
    if found.is_empty() { Ok(config) } else { Err(found) }
}

/// The tree of one file, with everything that is wrong with it alone.
fn read_file(files: &Files, file: usize) -> (Table, Vec<Diagnostic>) {
    let mut reader = Reader::new(files, Reach::Part);
    let mut table = tree::read(files, file, &mut reader.found);
    unify_intent(&mut reader, &mut table);
    // What a later file replaces is checked as well: it is wrong where it stands.
    if files.all().len() > 1 && !reader.found.iter().any(|finding| finding.code == Problem::Syntax) {
        read_whole(&mut reader, &table);
    }
    (table, reader.found)
}

/// `[intent_declaration]` is another spelling of `[intent]`.
fn unify_intent(reader: &mut Reader<'_>, table: &mut Table) {
    let both = table.entry("intent").is_some();
    let Some(other) = table.entries.iter_mut().find(|entry| entry.key == "intent_declaration") else {
        return;
    };
    if both {
        let message = "`[intent_declaration]` is another spelling of `[intent]`, and both are there";
        reader.error(other.place, Problem::Conflict, message, "keep `[intent]`".to_owned());
    }
    other.key = "intent".to_owned();
}

fn read_whole(reader: &mut Reader<'_>, root: &Table) -> Config {
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
        notify: outside::notify(reader, root),
        upstreams,
        origins,
        tests: cases::read_all(reader, root),
        files: Arc::new(reader.files.clone()),
    }
}

impl Config {
    /// An upstream by its name.
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
            template.settle(&files, look_up, &mut found);
        }
        for command in self.rules.commands() {
            for template in command.templates() {
                template.settle(&files, look_up, &mut found);
            }
        }
        if found.is_empty() { Ok(self) } else { Err(found) }
    }
}
