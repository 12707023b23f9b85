//! Builds the catalogue from lists, pins and rules: finds colliding names, notes oddities, resolves the rules for each tool. A pure function.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use countersign_config::ToolNamePrefix;
use countersign_policy::call::{Caller, CallerScopes};
use countersign_policy::effect::{EffectReason, Evidence, evidence};
use countersign_policy::gate::outlook;
use countersign_policy::ids::{FullName, PrincipalId, SessionId, ToolName};
use countersign_policy::mode::Mode;
use countersign_policy::record::Source as Door;
use countersign_policy::role::Role;
use countersign_policy::rules::{ConditionFacts, RuleSet};
use countersign_policy::tool::Tool;
use serde_json::{Map, Value};

use super::listed_tools::ListedToolEntry;
use super::lookalikes::{folded, skeleton};
use super::{
    Catalog, DefinitionFlips, Listed, ListedTools, PinComparison, PolicyOutlook, ToolStanding, WithheldReason,
};
use crate::escape;
use crate::search::{Document, Index};

#[derive(Clone, Debug)]
pub struct CatalogSource {
    pub listed: Arc<ListedTools>,
    /// How that compares with its pins; a tool that is absent here counts as new.
    pub standings: HashMap<ToolName, PinComparison>,
    pub prefix: ToolNamePrefix,
    /// Whether this is what was accepted before, and the upstream has not listed it again yet.
    pub is_starting: bool,
}

impl Catalog {
    pub fn build(sources: &[CatalogSource], rules: &RuleSet) -> Self {
        let bare = matches!(sources, [CatalogSource { prefix: ToolNamePrefix::None, .. }]);
        let entries: Vec<(&CatalogSource, &ListedToolEntry)> = sources
            .iter()
            .flat_map(|source| source.listed.entries.iter().map(move |entry| (source, entry)))
            .collect();
        let directs: Vec<String> = entries.iter().map(|(_, entry)| direct_name(&entry.tool, bare)).collect();
        let clashes = clashes(&entries, &directs);
        let policy = UnconditionalRules::of(rules);
        let strangers = ForeignToolNames::of(&entries);
        let mut catalog = Self { bare, ..Self::default() };
        for ((position, (source, entry)), direct) in entries.iter().enumerate().zip(directs) {
            let standing = match (&entry.withheld, clashes.get(&position)) {
                (Some(withheld), _) | (None, Some(withheld)) => ToolStanding::Quarantined(withheld.clone()),
                (None, None) => standing_of(source.standings.get(&entry.tool.name)),
            };
            let tool = as_accepted(&entry.tool, source.standings.get(&entry.tool.name));
            let outlook = policy.outlook(&tool);
            let flips = flips(source.standings.get(&entry.tool.name));
            let mut flags = flags(&tool, &outlook, &strangers);
            if let Some(DefinitionFlips { known, is_set: false }) = flips {
                flags.push(format!(
                    "this definition was accepted before: the tool flips between {known} known definitions"
                ));
            }
            // Of two tools of one name the first is found; both are withheld.
            catalog.by_name.entry(entry.tool.full_name()).or_insert(position);
            catalog.by_direct.entry(direct.clone()).or_insert(position);
            catalog.tools.push(Listed {
                tool,
                standing,
                flips,
                flags,
                outlook,
                raw: Arc::clone(&entry.raw),
                mirrors: entry.mirrors.clone(),
                direct_name: direct,
                is_starting: source.is_starting,
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

fn standing_of(pinned: Option<&PinComparison>) -> ToolStanding {
    match pinned {
        Some(PinComparison::Accepted | PinComparison::Reordered(_) | PinComparison::InSet { .. }) => {
            ToolStanding::Accepted
        }
        Some(PinComparison::Changed(was) | PinComparison::Flipped { was, .. }) => {
            ToolStanding::Changed(Arc::clone(was))
        }
        // INVARIANT (closed by default): a tool nobody compared with its pin is not accepted.
        Some(PinComparison::New) | None => ToolStanding::Quarantined(WithheldReason::fresh()),
    }
}

/// Gives the tool the accepted fingerprint, so that plans and rules about it survive a list in another order.
fn as_accepted(tool: &Arc<Tool>, pinned: Option<&PinComparison>) -> Arc<Tool> {
    let accepted = match pinned {
        Some(PinComparison::Reordered(accepted) | PinComparison::InSet { accepted, .. }) => *accepted,
        Some(
            PinComparison::Accepted
            | PinComparison::New
            | PinComparison::Changed(_)
            | PinComparison::Flipped { .. },
        )
        | None => tool.fingerprint,
    };
    if accepted == tool.fingerprint {
        return Arc::clone(tool);
    }
    Arc::new(Tool { fingerprint: accepted, ..Tool::clone(tool) })
}

fn flips(pinned: Option<&PinComparison>) -> Option<DefinitionFlips> {
    match pinned? {
        PinComparison::InSet { of, .. } => Some(DefinitionFlips { known: *of, is_set: true }),
        PinComparison::Flipped { known, .. } => Some(DefinitionFlips { known: *known, is_set: false }),
        PinComparison::Accepted
        | PinComparison::Reordered(_)
        | PinComparison::New
        | PinComparison::Changed(_) => None,
    }
}

/// Names a host or a reader could mistake for each other: all of them are withheld.
fn clashes(
    entries: &[(&CatalogSource, &ListedToolEntry)],
    directs: &[String],
) -> HashMap<usize, WithheldReason> {
    let mut found = HashMap::new();
    for (key, withheld, how) in [
        (
            folded as fn(&str) -> String,
            WithheldReason::collision as fn(String) -> WithheldReason,
            "has the same name",
        ),
        (skeleton, WithheldReason::lookalike, "looks like it"),
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
struct UnconditionalRules<'r> {
    all: &'r RuleSet,
    unconditional: RuleSet,
    settled: bool,
    caller: Caller,
    none: Map<String, Value>,
}

impl<'r> UnconditionalRules<'r> {
    fn of(all: &'r RuleSet) -> Self {
        let unconditional = all.rules().iter().filter(|rule| rule.when.is_none()).cloned().collect();
        let caller = Caller {
            principal: PrincipalId::new(""),
            credential: None,
            role: Role::Agent,
            session: SessionId::new(""),
            request_id: None,
            source: Door::Mcp,
            host: None,
            scopes: CallerScopes::all(),
        };
        let unconditional = RuleSet::compile(unconditional, all.unlisted())
            .map(|rules| rules.with_strengths(all.strengths()));
        // Globs that compiled once compile again; if not, nothing counts as settled.
        let settled = unconditional.is_ok();
        Self { all, unconditional: unconditional.unwrap_or_default(), settled, caller, none: Map::new() }
    }

    fn outlook(&self, tool: &Tool) -> PolicyOutlook {
        let name = tool.full_name();
        let facts = ConditionFacts {
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
        PolicyOutlook {
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

/// Tool names by upstream, to find definitions that mention tools of other upstreams.
struct ForeignToolNames<'e> {
    names: HashMap<String, Vec<&'e Tool>>,
    /// Tools by the skeleton of their own name.
    skeletons: HashMap<String, Vec<&'e Tool>>,
}

impl<'e> ForeignToolNames<'e> {
    fn of(entries: &[(&CatalogSource, &'e ListedToolEntry)]) -> Self {
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

    /// The first tool of another upstream whose own name is or looks the same.
    fn overlapping(&self, tool: &Tool) -> Option<&'e Tool> {
        let alike = self.skeletons.get(&skeleton(tool.name.as_str()))?;
        alike.iter().find(|other| other.upstream != tool.upstream).copied()
    }

    /// The first tool of another upstream that the text mentions.
    fn named_by(&self, tool: &Tool) -> Option<FullName> {
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        let words = tool.description().split(move |c: char| !part(c));
        words.map(|word| word.trim_matches(['.', ':', '-'])).filter(|word| word.len() > 2).find_map(|word| {
            let meant = self.names.get(word)?;
            // A name that this upstream has as well is its own.
            if meant.iter().any(|other| other.upstream == tool.upstream) {
                return None;
            }
            meant.first().map(|other| other.full_name())
        })
    }
}

/// What a person should see before trusting a tool.
fn flags(tool: &Tool, outlook: &PolicyOutlook, strangers: &ForeignToolNames<'_>) -> Vec<String> {
    let mut flags = Vec::new();
    if outlook.because == EffectReason::Contradiction {
        let schema = tool.definition.get("inputSchema");
        let found = evidence(tool.annotations, tool.name.as_str(), schema);
        flags.push(match found.filter(Evidence::is_from_schema) {
            Some(Evidence { why, .. }) => {
                format!(
                    "its annotations contradict its schema ({}): it is governed as {}",
                    escape::line(&why),
                    outlook.effect
                )
            }
            None => format!("its annotations contradict its name: it is governed as {}", outlook.effect),
        });
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

/// Whether any text in a value contains something invisible.
pub(super) fn value_hides(value: &Value) -> bool {
    match value {
        Value::String(text) => escape::hides(text),
        Value::Array(items) => items.iter().any(value_hides),
        Value::Object(members) => hides(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
