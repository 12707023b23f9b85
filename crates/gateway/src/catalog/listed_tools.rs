//! One upstream's list of tools, parsed once: each definition is kept as raw JSON and as a tool, or withheld with a reason. Pins and other
//! upstreams come later.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use countersign_mcp::mirrored_headers::MirroredHeaders;
use countersign_mcp::raw::{self, RawJson};
use countersign_policy::ids::UpstreamId;
use countersign_policy::tool::Tool;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{COUNTERSIGN, WithheldReason};
use crate::escape;
use crate::schema::Schemas;

/// In bytes.
const LONGEST_NAME: usize = 128;
/// In bytes.
const LONGEST_DEFINITION: usize = 512 << 10;

/// Whether an upstream takes arguments repeated in headers, so that invalid annotations make a tool unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderMirroring {
    /// HTTP in the stateless era.
    Mirrored,
    /// The annotations mean nothing.
    Plain,
}

#[derive(Clone, Debug)]
pub(super) struct ListedToolEntry {
    pub(super) tool: Arc<Tool>,
    pub(super) raw: Arc<RawValue>,
    pub(super) mirrors: Option<Arc<MirroredHeaders>>,
    pub(super) withheld: Option<WithheldReason>,
}

/// In the order of the list.
#[derive(Clone, Debug)]
pub struct ListedTools {
    upstream: UpstreamId,
    pub(super) entries: Vec<ListedToolEntry>,
    unreadable: Vec<String>,
}

impl ListedTools {
    /// Parses a list. Slow for long lists: compiles every schema it has not seen.
    pub fn read(
        upstream: &UpstreamId,
        definitions: Vec<RawJson>,
        headers: HeaderMirroring,
        schemas: &Schemas,
    ) -> Self {
        let mut listed = Self::empty(upstream);
        for definition in definitions {
            match read(upstream, definition, headers, schemas) {
                Ok(entry) => listed.entries.push(entry),
                Err(why) => listed.unreadable.push(why),
            }
        }
        listed.withhold_twins();
        listed
    }

    pub fn empty(upstream: &UpstreamId) -> Self {
        Self { upstream: upstream.clone(), entries: Vec::new(), unreadable: Vec::new() }
    }

    pub fn upstream(&self) -> &UpstreamId {
        &self.upstream
    }

    /// The usable tools, each name once: those that are pinned.
    pub fn sound(&self) -> Vec<Arc<Tool>> {
        self.entries
            .iter()
            .filter(|entry| entry.withheld.is_none())
            .map(|entry| Arc::clone(&entry.tool))
            .collect()
    }

    /// The entries that are no tools, a sentence each.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Two tools of one name: it is unclear which one is meant.
    fn withhold_twins(&mut self) {
        let mut count: HashMap<String, usize> = HashMap::new();
        for entry in &self.entries {
            *count.entry(entry.tool.name.to_string()).or_default() += 1;
        }
        for entry in &mut self.entries {
            let name = entry.tool.name.as_str();
            if count.get(name).is_some_and(|count| *count > 1) {
                entry.withheld = Some(WithheldReason::collision(
                    "its upstream lists several tools of this name".to_owned(),
                ));
            }
        }
    }
}

fn read(
    upstream: &UpstreamId,
    definition: RawJson,
    headers: HeaderMirroring,
    schemas: &Schemas,
) -> Result<ListedToolEntry, String> {
    let shown = || escape::excerpt(definition.get(), 60);
    let once = serde_json::from_str::<UniqueKeyJson>(definition.get());
    let parsed =
        serde_json::from_str(definition.get()).map_err(|_| format!("not an object: `{}`", shown()))?;
    let tool = Tool::read(upstream.clone(), parsed).map_err(|fault| format!("{fault}: `{}`", shown()))?;
    let mirrors = raw::get(&definition, "inputSchema").map(MirroredHeaders::of_schema).transpose();
    let withheld = match (once, &mirrors) {
        (Err(fault), _) => Some(fault.to_string()),
        (Ok(_), Err(fault)) if headers == HeaderMirroring::Mirrored => Some(fault.to_string()),
        (Ok(_), Ok(_) | Err(_)) => unusable(&tool, definition.get(), schemas),
    };
    // Clients over HTTP mirror what the definition marks, however its upstream is reached.
    let mirrors = mirrors.ok().flatten().filter(|mirrors| !mirrors.is_empty());
    Ok(ListedToolEntry {
        tool: Arc::new(tool),
        raw: definition.into(),
        mirrors: mirrors.map(Arc::new),
        withheld: withheld.map(WithheldReason::unusable),
    })
}

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

/// Whether an object has a key twice: parsers disagree about which one counts, so such a definition is not shown.
struct UniqueKeyJson;

impl<'de> Deserialize<'de> for UniqueKeyJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueKeyVisitor)
    }
}

struct UniqueKeyVisitor;

impl<'de> Visitor<'de> for UniqueKeyVisitor {
    type Value = UniqueKeyJson;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any JSON")
    }
    fn visit_bool<E>(self, _: bool) -> Result<UniqueKeyJson, E> {
        Ok(UniqueKeyJson)
    }
    fn visit_i64<E>(self, _: i64) -> Result<UniqueKeyJson, E> {
        Ok(UniqueKeyJson)
    }
    fn visit_u64<E>(self, _: u64) -> Result<UniqueKeyJson, E> {
        Ok(UniqueKeyJson)
    }
    fn visit_f64<E>(self, _: f64) -> Result<UniqueKeyJson, E> {
        Ok(UniqueKeyJson)
    }
    fn visit_str<E>(self, _: &str) -> Result<UniqueKeyJson, E> {
        Ok(UniqueKeyJson)
    }
    fn visit_unit<E>(self) -> Result<UniqueKeyJson, E> {
        Ok(UniqueKeyJson)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueKeyJson, A::Error> {
        while items.next_element::<UniqueKeyJson>()?.is_some() {}
        Ok(UniqueKeyJson)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<UniqueKeyJson, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            members.next_value::<UniqueKeyJson>()?;
            if let Some(twice) = seen.replace(key) {
                let shown = escape::excerpt(&twice, 40);
                return Err(A::Error::custom(format!("its definition has the key `{shown}` twice")));
            }
        }
        Ok(UniqueKeyJson)
    }
}
