//! The catalogue: the tools of all upstreams under our names, each with its pin state, oddities and requirements. An immutable value, built
//! anew whenever a list, a pin or a rule changes. It asks nobody and stores nothing.

mod build;
mod direct;
mod listed_tools;
mod lookalikes;
mod pins;
mod stored_catalog;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use countersign_mcp::mirrored_headers::MirroredHeaders;
use countersign_mcp::raw::RawJson;
use countersign_policy::call::CatalogStatus;
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::effect::{Effect, EffectReason};
use countersign_policy::ids::{FullName, UpstreamId};
use countersign_policy::nearest::nearest_names;
use countersign_policy::role::Role;
use countersign_policy::tool::Tool;
use countersign_store::ToolDefinition;
use serde_json::value::RawValue;

pub use self::build::CatalogSource;
pub use self::listed_tools::{HeaderMirroring, ListedTools};
pub(crate) use self::lookalikes::skeleton;
pub use self::pins::{PinChange, plan_pins};
pub(crate) use self::pins::{PinComparison, PinPlan};
use crate::search::Index;

/// The argument the direct surface adds to every tool.
pub(crate) const COUNTERSIGN: &str = "countersign";
/// How many similar names are suggested for an unknown one.
const SUGGESTED: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldReason {
    /// A registered reason: `tool_new`, `tool_collision`, `tool_lookalike`, `tool_unusable`.
    pub reason: &'static str,
    /// One line for a person.
    pub why: String,
}

impl WithheldReason {
    fn fresh() -> Self {
        Self { reason: "tool_new", why: "nobody has accepted it yet".to_owned() }
    }
    fn collision(why: String) -> Self {
        Self { reason: "tool_collision", why }
    }
    fn lookalike(why: String) -> Self {
        Self { reason: "tool_lookalike", why }
    }
    fn unusable(why: String) -> Self {
        Self { reason: "tool_unusable", why }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum ToolStanding {
    Accepted,
    /// It changed; this fingerprint was accepted.
    Changed(Arc<ToolDefinition>),
    Quarantined(WithheldReason),
}

/// A tool that its upstream lists in several accepted forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefinitionFlips {
    pub known: usize,
    /// Whether a person accepted them as a set; otherwise that is on offer.
    pub is_set: bool,
}

/// What the rules decide about a tool, as far as that is known without arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyOutlook {
    pub effect: Effect,
    pub because: EffectReason,
    pub kind: Kind,
    pub strength: ApprovalStrength,
    pub role: Option<Role>,
    pub denied: Option<String>,
    /// Whether a rule with a condition matches, so that arguments may change the outcome.
    pub conditional: bool,
}

#[derive(Debug)]
pub struct Listed {
    pub tool: Arc<Tool>,
    pub standing: ToolStanding,
    pub flips: Option<DefinitionFlips>,
    /// One line each.
    pub flags: Vec<String>,
    pub outlook: PolicyOutlook,
    /// The bytes it was listed as.
    pub raw: Arc<RawValue>,
    pub mirrors: Option<Arc<MirroredHeaders>>,
    pub(crate) direct_name: String,
    /// Whether its upstream has not listed it yet: it is what was accepted before.
    pub is_starting: bool,
    direct: OnceLock<RawJson>,
}

impl Listed {
    pub fn is_accepted(&self) -> bool {
        self.standing == ToolStanding::Accepted
    }

    /// Whether it reads and nothing can make it need more.
    pub(crate) fn is_plain_read(&self) -> bool {
        self.is_accepted()
            && self.outlook.effect == Effect::Read
            && self.outlook.kind == Kind::None
            && !self.outlook.conditional
    }

    pub fn may_ask(&self) -> bool {
        self.outlook.kind != Kind::None || self.outlook.conditional
    }

    /// The definition on the direct surface: our name, the governed effect, and the argument `countersign`.
    pub(crate) fn direct_definition(&self) -> &RawValue {
        self.direct.get_or_init(|| direct::definition(self))
    }

    /// Whether the direct surface lists its `outputSchema`. Official clients check every answer against it, and a preview or a refusal of ours
    /// is no result of the tool; only a tool under its own name that never asks keeps it.
    pub(crate) fn keeps_output_schema(&self) -> bool {
        self.direct_name == self.tool.name.as_str() && !self.may_ask()
    }

    pub fn standing(&self) -> CatalogStatus {
        let tool = Arc::clone(&self.tool);
        match &self.standing {
            ToolStanding::Accepted => CatalogStatus::Accepted(tool),
            ToolStanding::Changed(_) => CatalogStatus::Changed(tool),
            ToolStanding::Quarantined(withheld) => CatalogStatus::Quarantined(tool, withheld.reason),
        }
    }
}

#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<Listed>,
    by_name: HashMap<FullName, usize>,
    by_direct: HashMap<String, usize>,
    index: Index,
    /// The position in `tools` of each document of the index.
    documents: Vec<usize>,
    bare: bool,
}

impl Catalog {
    /// In the order of the configuration and of the lists.
    pub fn tools(&self) -> impl Iterator<Item = &Listed> {
        self.tools.iter()
    }

    pub fn accepted(&self) -> impl Iterator<Item = &Listed> {
        self.tools.iter().filter(|listed| listed.is_accepted())
    }

    pub fn get(&self, name: &FullName) -> Option<&Listed> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// Withheld or not.
    pub(crate) fn by_direct_name(&self, name: &str) -> Option<&Listed> {
        self.tools.get(*self.by_direct.get(name)?)
    }

    /// The state of a name for the gate. Tools for people only are not suggested.
    pub fn standing(&self, name: &FullName) -> CatalogStatus {
        match self.get(name) {
            Some(listed) => listed.standing(),
            None => {
                CatalogStatus::Unknown(self.nearest(name, &|listed| listed.outlook.role != Some(Role::Human)))
            }
        }
    }

    pub fn nearest(&self, name: &FullName, keep: &dyn Fn(&Listed) -> bool) -> Vec<String> {
        let names: Vec<String> = self
            .accepted()
            .filter(|listed| keep(listed))
            .map(|listed| listed.tool.full_name().to_string())
            .collect();
        // Without an upstream, tools of that name on any upstream may be meant.
        if name.upstream.as_str().is_empty() {
            let meant = names
                .iter()
                .filter(|full| full.split_once(':').is_some_and(|(_, tool)| name.tool.as_str() == tool));
            return meant.take(SUGGESTED).cloned().collect();
        }
        let near = nearest_names(&name.to_string(), names.iter().map(String::as_str), SUGGESTED);
        near.into_iter().map(ToOwned::to_owned).collect()
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    pub fn indexed(&self, document: usize) -> Option<&Listed> {
        self.tools.get(*self.documents.get(document)?)
    }

    /// The numbers of callable and withheld tools.
    pub fn counts(&self, upstream: &UpstreamId) -> (usize, usize) {
        let own = self.tools.iter().filter(|listed| listed.tool.upstream == *upstream);
        own.fold((0, 0), |(accepted, withheld), listed| match listed.is_accepted() {
            true => (accepted + 1, withheld),
            false => (accepted, withheld + 1),
        })
    }

    /// Whether a host sees the same list in both.
    pub(crate) fn lists_the_same(&self, other: &Self) -> bool {
        let seen = |listed: &Listed| {
            let name = listed.direct_name.clone();
            (name, listed.outlook.clone(), listed.is_starting, listed.raw.get().to_owned())
        };
        self.accepted().map(seen).eq(other.accepted().map(seen))
    }

    /// Whether the only upstream is served under its tools' own names.
    pub fn is_bare(&self) -> bool {
        self.bare
    }
}
