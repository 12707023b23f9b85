//! One upstream's list of tools, read once: each definition kept as its bytes and as a tool, or withheld with a reason where it
//! can't be used. It compares with nothing: pins and other upstreams come later.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use countersign_core::ids::UpstreamId;
use countersign_core::tool::Tool;
use countersign_wire::mirror::Mirrors;
use countersign_wire::raw::{self, Raw};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{COUNTERSIGN, Withheld};
use crate::escape;
use crate::schema::Schemas;

/// The longest usable name, in bytes.
const LONGEST_NAME: usize = 128;
/// The longest definition, in bytes.
const LONGEST_DEFINITION: usize = 512 << 10;

/// Whether an upstream takes arguments repeated in headers, so that wrong marks for them make a tool unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// It does: HTTP in the stateless era.
    Mirrored,
    /// It does not, and the marks mean nothing.
    Plain,
}

/// One listed tool.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) tool: Arc<Tool>,
    pub(super) raw: Arc<RawValue>,
    pub(super) mirrors: Option<Arc<Mirrors>>,
    pub(super) withheld: Option<Withheld>,
}

/// An upstream's tools as listed, in its order.
#[derive(Clone, Debug)]
pub struct Roster {
    upstream: UpstreamId,
    pub(super) entries: Vec<Entry>,
    unreadable: Vec<String>,
}

impl Roster {
    /// Reads a list. Heavy for long lists: compiles every schema it has not seen.
    pub fn read(upstream: &UpstreamId, definitions: Vec<Raw>, headers: Headers, schemas: &Schemas) -> Self {
        let mut roster = Self { upstream: upstream.clone(), entries: Vec::new(), unreadable: Vec::new() };
        for definition in definitions {
            match read(upstream, definition, headers, schemas) {
                Ok(entry) => roster.entries.push(entry),
                Err(why) => roster.unreadable.push(why),
            }
        }
        roster.withhold_twins();
        roster
    }

    /// Whose list it is.
    pub fn upstream(&self) -> &UpstreamId {
        &self.upstream
    }

    /// The tools that can be used, each name once: those that are pinned.
    pub fn sound(&self) -> Vec<Arc<Tool>> {
        self.entries
            .iter()
            .filter(|entry| entry.withheld.is_none())
            .map(|entry| Arc::clone(&entry.tool))
            .collect()
    }

    /// What of the list was no tool at all, a sentence each.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Two tools of one name: nobody can say which one was meant.
    fn withhold_twins(&mut self) {
        let mut count: HashMap<String, usize> = HashMap::new();
        for entry in &self.entries {
            *count.entry(entry.tool.name.to_string()).or_default() += 1;
        }
        for entry in &mut self.entries {
            let name = entry.tool.name.as_str();
            if count.get(name).is_some_and(|count| *count > 1) {
                entry.withheld =
                    Some(Withheld::collision("its upstream lists several tools of this name".to_owned()));
            }
        }
    }
}

fn read(
    upstream: &UpstreamId,
    definition: Raw,
    headers: Headers,
    schemas: &Schemas,
) -> Result<Entry, String> {
    let shown = || escape::excerpt(definition.get(), 60);
    let once = serde_json::from_str::<Once>(definition.get());
    let parsed =
        serde_json::from_str(definition.get()).map_err(|_| format!("not an object: `{}`", shown()))?;
    let tool = Tool::read(upstream.clone(), parsed).map_err(|fault| format!("{fault}: `{}`", shown()))?;
    let mirrors = raw::get(&definition, "inputSchema").map(Mirrors::of_schema).transpose();
    let withheld = match (once, &mirrors) {
        (Err(fault), _) => Some(fault.to_string()),
        (Ok(_), Err(fault)) if headers == Headers::Mirrored => Some(fault.to_string()),
        (Ok(_), Ok(_) | Err(_)) => unusable(&tool, definition.get(), schemas),
    };
    // Whoever calls us over HTTP mirrors what the definition marks, however its upstream is reached.
    let mirrors = mirrors.ok().flatten().filter(|mirrors| !mirrors.is_empty());
    Ok(Entry {
        tool: Arc::new(tool),
        raw: definition.into(),
        mirrors: mirrors.map(Arc::new),
        withheld: withheld.map(Withheld::unusable),
    })
}

/// Why a tool can't be used, if it can't.
fn unusable(tool: &Tool, raw: &str, schemas: &Schemas) -> Option<String> {
    let name = tool.name.as_str();
    if name.len() > LONGEST_NAME {
        return Some(format!("its name is longer than {LONGEST_NAME} bytes"));
    }
    if name.chars().any(char::is_control) {
        return Some("its name holds control characters".to_owned());
    }
    if raw.len() > LONGEST_DEFINITION {
        return Some(format!("its definition is longer than {LONGEST_DEFINITION} bytes"));
    }
    let schema = tool.definition.get("inputSchema");
    if schema.and_then(|schema| schema.get("properties")?.get(COUNTERSIGN)).is_some() {
        return Some(format!("it has an argument of its own named `{COUNTERSIGN}`"));
    }
    schemas.usable(tool).err()
}

/// JSON in which no object has a key twice: readers disagree about which of two counts, so neither is shown to anyone.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Walk)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = Once;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any JSON")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Once, E> {
        Ok(Once)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Once, E> {
        Ok(Once)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Once, E> {
        Ok(Once)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Once, E> {
        Ok(Once)
    }
    fn visit_str<E>(self, _: &str) -> Result<Once, E> {
        Ok(Once)
    }
    fn visit_unit<E>(self) -> Result<Once, E> {
        Ok(Once)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Once, A::Error> {
        while items.next_element::<Once>()?.is_some() {}
        Ok(Once)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Once, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            members.next_value::<Once>()?;
            if let Some(twice) = seen.replace(key) {
                let shown = escape::excerpt(&twice, 40);
                return Err(A::Error::custom(format!("its definition has the key `{shown}` twice")));
            }
        }
        Ok(Once)
    }
}
