//! The catalogue: every upstream's tools under our names, each with where it stands, what is odd about it and what it needs.
//! One immutable value, built anew whenever a list, a pin or a rule changes and swapped whole. It asks nobody and stores nothing.

mod alike;
mod build;
mod direct;
mod nearest;
mod pins;
mod roster;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use countersign_core::call::Standing;
use countersign_core::confirm::{Kind, Strength};
use countersign_core::effect::{Because, Effect};
use countersign_core::ids::{FullName, UpstreamId};
use countersign_core::role::Role;
use countersign_core::tool::Tool;
use countersign_store::Definition;
use countersign_wire::mirror::Mirrors;
use countersign_wire::raw::Raw;
use serde_json::value::RawValue;

pub(crate) use self::alike::skeleton;
pub use self::build::Source;
pub use self::pins::{PinChange, PinPlan, Pinned, plan_pins};
pub use self::roster::{Headers, Roster};
use crate::search::Index;

/// The argument the direct surface adds to every tool.
pub const COUNTERSIGN: &str = "countersign";
/// How many names an unknown one is answered with.
const SUGGESTED: usize = 3;

/// Why a tool is withheld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// A registered reason: `tool_new`, `tool_collision`, `tool_lookalike`, `tool_unusable`.
    pub reason: &'static str,
    /// One line for a person.
    pub why: String,
}

impl Withheld {
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

/// Where a listed tool stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Stand {
    /// It is what was accepted.
    Accepted,
    /// It is not what was accepted, which was this.
    Changed(Arc<Definition>),
    /// It is withheld.
    Quarantined(Withheld),
}

/// What a call of a tool comes to under the rules, as far as that is known without arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// What it does.
    pub effect: Effect,
    /// Why that is believed.
    pub because: Because,
    /// Which second step it needs.
    pub kind: Kind,
    /// Who has to agree.
    pub strength: Strength,
    /// Who may call it, where a rule says.
    pub role: Option<Role>,
    /// Why it is denied, where it is.
    pub denied: Option<String>,
    /// Whether a rule with a condition matches, so that arguments may change all of this.
    pub conditional: bool,
}

/// One tool of the catalogue.
#[derive(Debug)]
pub struct Listed {
    /// The tool.
    pub tool: Arc<Tool>,
    /// Where it stands.
    pub standing: Stand,
    /// What is odd about it, a line each.
    pub flags: Vec<String>,
    /// What it needs.
    pub outlook: Outlook,
    /// Its definition, the bytes it was listed as.
    pub raw: Arc<RawValue>,
    /// Which arguments are repeated in headers.
    pub mirrors: Option<Arc<Mirrors>>,
    /// Its name on the direct surface.
    pub direct_name: String,
    direct: OnceLock<Raw>,
}

impl Listed {
    /// Whether it may be called.
    pub fn is_accepted(&self) -> bool {
        self.standing == Stand::Accepted
    }

    /// Whether it reads and nothing can make it need more.
    pub fn is_plain_read(&self) -> bool {
        self.is_accepted()
            && self.outlook.effect == Effect::Read
            && self.outlook.kind == Kind::None
            && !self.outlook.conditional
    }

    /// Whether a call of it may ask for confirmation.
    pub fn may_ask(&self) -> bool {
        self.outlook.kind != Kind::None || self.outlook.conditional
    }

    /// Its definition as the direct surface lists it: our name, the governed effect, and the argument `countersign`.
    pub fn direct_definition(&self) -> &RawValue {
        self.direct.get_or_init(|| direct::definition(self))
    }

    /// As the gate takes it.
    pub fn standing(&self) -> Standing {
        let tool = Arc::clone(&self.tool);
        match &self.standing {
            Stand::Accepted => Standing::Accepted(tool),
            Stand::Changed(_) => Standing::Changed(tool),
            Stand::Quarantined(withheld) => Standing::Quarantined(tool, withheld.reason),
        }
    }
}

/// Every tool there is, at one moment.
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
    /// All tools: upstreams in the order they were given, tools in the order they were listed.
    pub fn tools(&self) -> impl Iterator<Item = &Listed> {
        self.tools.iter()
    }

    /// The tools that may be called.
    pub fn accepted(&self) -> impl Iterator<Item = &Listed> {
        self.tools.iter().filter(|listed| listed.is_accepted())
    }

    /// The tool of this full name.
    pub fn get(&self, name: &FullName) -> Option<&Listed> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// The tool of this name on the direct surface, withheld or not.
    pub fn by_direct_name(&self, name: &str) -> Option<&Listed> {
        self.tools.get(*self.by_direct.get(name)?)
    }

    /// What the gate is told of a name. What only people may use is not suggested.
    pub fn standing(&self, name: &FullName) -> Standing {
        match self.get(name) {
            Some(listed) => listed.standing(),
            None => Standing::Unknown(self.nearest(name, &|listed| listed.outlook.role != Some(Role::Human))),
        }
    }

    /// The accepted names nearest to one that does not exist.
    pub fn nearest(&self, name: &FullName, keep: &dyn Fn(&Listed) -> bool) -> Vec<String> {
        let names: Vec<String> = self
            .accepted()
            .filter(|listed| keep(listed))
            .map(|listed| listed.tool.full_name().to_string())
            .collect();
        // The upstream was left out: whoever has a tool of that name may be meant.
        if name.upstream.as_str().is_empty() {
            let meant = names
                .iter()
                .filter(|full| full.split_once(':').is_some_and(|(_, tool)| name.tool.as_str() == tool));
            return meant.take(SUGGESTED).cloned().collect();
        }
        let near = nearest::nearest(&name.to_string(), names.iter().map(String::as_str), SUGGESTED);
        near.into_iter().map(ToOwned::to_owned).collect()
    }

    /// The search index over the accepted tools.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The tool behind a document of the index.
    pub fn indexed(&self, document: usize) -> Option<&Listed> {
        self.tools.get(*self.documents.get(document)?)
    }

    /// How many tools of an upstream may be called, and how many are withheld.
    pub fn counts(&self, upstream: &UpstreamId) -> (usize, usize) {
        let own = self.tools.iter().filter(|listed| listed.tool.upstream == *upstream);
        own.fold((0, 0), |(accepted, withheld), listed| match listed.is_accepted() {
            true => (accepted + 1, withheld),
            false => (accepted, withheld + 1),
        })
    }

    /// Whether a host that lists this one sees what it saw of the other.
    pub fn lists_the_same(&self, other: &Self) -> bool {
        let seen = |listed: &Listed| {
            (listed.direct_name.clone(), listed.outlook.clone(), listed.raw.get().to_owned())
        };
        self.accepted().map(seen).eq(other.accepted().map(seen))
    }

    /// Whether the one upstream is served under its tools' own names.
    pub fn is_bare(&self) -> bool {
        self.bare
    }
}
