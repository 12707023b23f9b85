//! Building the catalogue from what is listed, pinned and ruled: names that collide are found, oddities noted, the outlook of
//! each tool resolved. Pure: the same lists, pins and rules give the same catalogue.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use countersign_core::call::{Caller, Scopes};
use countersign_core::config::Prefix;
use countersign_core::effect::Because;
use countersign_core::gate::outlook;
use countersign_core::ids::{FullName, PrincipalId, SessionId, ToolName};
use countersign_core::mode::Mode;
use countersign_core::record::Source as Door;
use countersign_core::role::Role;
use countersign_core::rules::{Facts, RuleSet};
use countersign_core::tool::Tool;
use serde_json::{Map, Value};

use super::alike::{folded, skeleton};
use super::roster::Entry;
use super::{Catalog, Listed, Outlook, Pinned, Roster, Stand, Withheld};
use crate::escape;
use crate::search::{Document, Index};

/// One upstream's part of the catalogue.
#[derive(Clone, Debug)]
pub struct Source {
    /// What it lists.
    pub roster: Arc<Roster>,
    /// How that compares with its pins; a tool that is not in here counts as new.
    pub standings: HashMap<ToolName, Pinned>,
    /// How its tools are named on the direct surface.
    pub prefix: Prefix,
}

impl Catalog {
    /// Builds the catalogue of these upstreams under these rules.
    pub fn build(sources: &[Source], rules: &RuleSet) -> Self {
        let bare = matches!(sources, [Source { prefix: Prefix::None, .. }]);
        let entries: Vec<(&Source, &Entry)> = sources
            .iter()
            .flat_map(|source| source.roster.entries.iter().map(move |entry| (source, entry)))
            .collect();
        let directs: Vec<String> = entries.iter().map(|(_, entry)| direct_name(&entry.tool, bare)).collect();
        let clashes = clashes(&entries, &directs);
        let law = Plain::of(rules);
        let strangers = Strangers::of(&entries);
        let mut catalog = Self { bare, ..Self::default() };
        for ((position, (source, entry)), direct) in entries.iter().enumerate().zip(directs) {
            let standing = match (&entry.withheld, clashes.get(&position)) {
                (Some(withheld), _) | (None, Some(withheld)) => Stand::Quarantined(withheld.clone()),
                (None, None) => stand(source.standings.get(&entry.tool.name)),
            };
            let outlook = law.outlook(&entry.tool);
            let flags = flags(&entry.tool, &outlook, &strangers);
            // Of two tools of one name the first is found; both are withheld.
            catalog.by_name.entry(entry.tool.full_name()).or_insert(position);
            catalog.by_direct.entry(direct.clone()).or_insert(position);
            catalog.tools.push(Listed {
                tool: Arc::clone(&entry.tool),
                standing,
                flags,
                outlook,
                raw: Arc::clone(&entry.raw),
                mirrors: entry.mirrors.clone(),
                direct_name: direct,
                direct: OnceLock::new(),
            });
        }
        catalog.make_index();
        catalog
    }

    fn make_index(&mut self) {
        let accepted = self.tools.iter().enumerate().filter(|(_, listed)| listed.is_accepted());
        self.documents = accepted.map(|(position, _)| position).collect();
        let text = |tool: &Tool, name: &str| -> String {
            tool.definition.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let titles: Vec<String> = self
            .documents
            .iter()
            .filter_map(|at| self.tools.get(*at))
            .map(|listed| text(&listed.tool, "title"))
            .collect();
        let documents = self.documents.iter().filter_map(|at| self.tools.get(*at)).zip(&titles);
        self.index = Index::build(documents.map(|(listed, title)| Document {
            upstream: listed.tool.upstream.as_str(),
            name: listed.tool.name.as_str(),
            title,
            description: listed.tool.description(),
            input_schema: listed.tool.definition.get("inputSchema").unwrap_or(&Value::Null),
        }));
    }
}

fn direct_name(tool: &Tool, bare: bool) -> String {
    if bare { tool.name.to_string() } else { format!("{}__{}", tool.upstream, tool.name) }
}

fn stand(pinned: Option<&Pinned>) -> Stand {
    match pinned {
        Some(Pinned::Accepted) => Stand::Accepted,
        Some(Pinned::Changed(was)) => Stand::Changed(Arc::clone(was)),
        // INVARIANT (closed by default): a tool nobody compared with its pin is not accepted.
        Some(Pinned::New) | None => Stand::Quarantined(Withheld::fresh()),
    }
}

/// Names a host or a reader could take for each other: all of them are withheld.
fn clashes(entries: &[(&Source, &Entry)], directs: &[String]) -> HashMap<usize, Withheld> {
    let mut found = HashMap::new();
    for (key, withheld, how) in [
        (folded as fn(&str) -> String, Withheld::collision as fn(String) -> Withheld, "has the same name"),
        (skeleton, Withheld::lookalike, "looks like it"),
    ] {
        let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
        for (position, direct) in directs.iter().enumerate() {
            groups.entry(key(direct)).or_default().push(position);
        }
        for group in groups.values().filter(|group| group.len() > 1) {
            for position in group {
                let other =
                    group.iter().find(|other| *other != position).and_then(|other| entries.get(*other));
                let Some((_, other)) = other else { continue };
                let why = format!("`{}` {how}", escape::line(&other.tool.full_name().to_string()));
                found.entry(*position).or_insert_with(|| withheld(why));
            }
        }
    }
    found
}

/// The rules that need no arguments, and a caller to resolve them for.
struct Plain<'r> {
    all: &'r RuleSet,
    unconditional: RuleSet,
    settled: bool,
    caller: Caller,
    none: Map<String, Value>,
}

impl<'r> Plain<'r> {
    fn of(all: &'r RuleSet) -> Self {
        let unconditional = all.rules().iter().filter(|rule| rule.when.is_none()).cloned().collect();
        let caller = Caller {
            principal: PrincipalId::new(""),
            credential: None,
            role: Role::Agent,
            session: SessionId::new(""),
            source: Door::Mcp,
            scopes: Scopes::all(),
        };
        let unconditional = RuleSet::compile(unconditional, all.unlisted())
            .map(|rules| rules.with_strengths(all.strengths()));
        // Globs that compiled once compile again; should they not, nothing counts as settled.
        let settled = unconditional.is_ok();
        Self { all, unconditional: unconditional.unwrap_or_default(), settled, caller, none: Map::new() }
    }

    fn outlook(&self, tool: &Tool) -> Outlook {
        let name = tool.full_name();
        let facts = Facts {
            name: &name,
            tool: Some(tool),
            arguments: &self.none,
            caller: &self.caller,
            intent: None,
            mode: Mode::Ask,
            now: jiff::Timestamp::UNIX_EPOCH,
        };
        let resolution = self.unconditional.resolve(&facts);
        let (classified, kind, strength) = outlook(tool, &resolution);
        Outlook {
            effect: classified.effect,
            because: classified.because,
            kind,
            strength,
            role: resolution.role,
            denied: resolution.denial().map(|(why, _)| why),
            conditional: !self.settled || self.is_conditional(&name),
        }
    }

    fn is_conditional(&self, name: &FullName) -> bool {
        let rules = self.all.rules();
        self.all
            .matching(name)
            .into_iter()
            .filter_map(|index| rules.get(index))
            .any(|rule| rule.when.is_some())
    }
}

/// Names that only mean a tool of some other upstream.
struct Strangers<'e> {
    names: HashMap<String, Vec<&'e Tool>>,
    /// Tools by what their own name looks like.
    skeletons: HashMap<String, Vec<&'e Tool>>,
}

impl<'e> Strangers<'e> {
    fn of(entries: &[(&Source, &'e Entry)]) -> Self {
        let mut names: HashMap<String, Vec<&Tool>> = HashMap::new();
        let mut skeletons: HashMap<String, Vec<&Tool>> = HashMap::new();
        for (_, entry) in entries {
            let tool: &Tool = &entry.tool;
            let name = tool.name.as_str();
            skeletons.entry(skeleton(name)).or_default().push(tool);
            names.entry(tool.full_name().to_string()).or_default().push(tool);
            names.entry(format!("{}__{name}", tool.upstream)).or_default().push(tool);
            // A plain word such as `search` is language, not a name.
            if name.contains(['_', '-', '.', ':']) || name.chars().skip(1).any(char::is_uppercase) {
                names.entry(name.to_owned()).or_default().push(tool);
            }
        }
        Self { names, skeletons }
    }

    /// The first tool of another upstream whose own name is the same, or looks the same.
    fn overlapping(&self, tool: &Tool) -> Option<&'e Tool> {
        let alike = self.skeletons.get(&skeleton(tool.name.as_str()))?;
        alike.iter().find(|other| other.upstream != tool.upstream).copied()
    }

    /// The first tool of another upstream that the text names.
    fn named_by(&self, tool: &Tool) -> Option<FullName> {
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        let words = tool.description().split(move |c: char| !part(c));
        words.map(|word| word.trim_matches(['.', ':', '-'])).filter(|word| word.len() > 2).find_map(|word| {
            let meant = self.names.get(word)?;
            // A name this upstream has as well is its own.
            if meant.iter().any(|other| other.upstream == tool.upstream) {
                return None;
            }
            meant.first().map(|other| other.full_name())
        })
    }
}

/// What a person should see before trusting a tool.
fn flags(tool: &Tool, outlook: &Outlook, strangers: &Strangers<'_>) -> Vec<String> {
    let mut flags = Vec::new();
    if outlook.because == Because::Contradiction {
        flags.push(format!("its annotations contradict its name: it is governed as {}", outlook.effect));
    }
    if hides(&tool.definition) {
        flags.push("its definition holds characters that are not shown".to_owned());
    }
    if !tool.name.as_str().is_ascii() {
        flags.push("its name holds characters outside ASCII".to_owned());
    }
    if let Some(other) = strangers.named_by(tool) {
        flags.push(format!(
            "its description names `{}`, a tool of another upstream",
            escape::line(&other.to_string())
        ));
    }
    if let Some(other) = strangers.overlapping(tool) {
        let how = if other.name == tool.name { "has the same name" } else { "has a name that looks like it" };
        flags.push(format!(
            "`{}`, a tool of another upstream, {how}",
            escape::line(&other.full_name().to_string())
        ));
    }
    flags
}

fn hides(definition: &Map<String, Value>) -> bool {
    definition.iter().any(|(name, value)| escape::hides(name) || value_hides(value))
}

/// Whether any text in a value holds something a reader would not see.
pub(super) fn value_hides(value: &Value) -> bool {
    match value {
        Value::String(text) => escape::hides(text),
        Value::Array(items) => items.iter().any(value_hides),
        Value::Object(members) => hides(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
