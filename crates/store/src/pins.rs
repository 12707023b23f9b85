//! Tool pins: which definition of a tool was accepted, and what its upstream lists now. Stores a changed definition until a person
//! decides on it; does not judge whether the change is harmless.

use countersign_policy::digest::Digest;
use countersign_policy::ids::{FullName, LedgerId, PrincipalId, ToolName, UpstreamId};
use countersign_policy::record::RowKind;
use countersign_policy::tool::means_the_same;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::Store;
use crate::engine::{FoundRow, cells, json_text};
use crate::fault::StoreFault;
use crate::known_definitions::{self, KnownDefinition};
use crate::ledger::Entry;
use crate::readers::ReadTransaction;

countersign_policy::closed_vocabulary! {
    pub enum PinState("pin state") {
        Accepted = "accepted",
        /// Never accepted.
        Pending = "pending",
        /// Accepted, and its definition has changed since.
        Changed = "changed",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingOccurrence {
    First,
    Later,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    pub fingerprint: Digest,
    pub definition: Map<String, Value>,
}

impl ToolDefinition {
    /// Whether a definition with this fingerprint is this one, listed in any order.
    pub fn is_same(&self, fingerprint: Digest, definition: &Map<String, Value>) -> bool {
        self.fingerprint == fingerprint || means_the_same(&self.definition, definition)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolPin {
    pub upstream: UpstreamId,
    pub tool: ToolName,
    pub state: PinState,
    pub pinned: ToolDefinition,
    /// What its upstream lists now, if that differs.
    pub candidate: Option<ToolDefinition>,
    pub first_seen: Timestamp,
    pub changed: Timestamp,
    pub decided: Option<Timestamp>,
    pub decided_by: Option<PrincipalId>,
    /// Definitions that were ever accepted, newest first; the pinned one is among them if it was accepted.
    pub known: Vec<KnownDefinition>,
}

const COLUMNS: &str = "upstream, tool, state, fingerprint, definition, candidate_fingerprint, candidate_definition, \
     first_seen, changed, decided, decided_by";

fn decode(mut found: FoundRow) -> Result<ToolPin, StoreFault> {
    let (upstream, tool, state) = (found.text()?.into(), found.text()?.into(), found.word()?);
    let pinned = ToolDefinition { fingerprint: found.word()?, definition: found.json()? };
    let candidate = match (found.maybe()?, found.maybe_json()?) {
        (Some(fingerprint), Some(definition)) => Some(ToolDefinition { fingerprint, definition }),
        _ => None,
    };
    Ok(ToolPin {
        upstream,
        tool,
        state,
        pinned,
        candidate,
        first_seen: found.time()?,
        changed: found.time()?,
        decided: found.maybe_time()?,
        decided_by: found.maybe_text()?.map(Into::into),
        known: Vec::new(),
    })
}

pub(crate) fn load(view: &mut ReadTransaction<'_>, tool: &FullName) -> Result<Option<ToolPin>, StoreFault> {
    let sql = format!("SELECT {COLUMNS} FROM pins WHERE upstream = $1 AND tool = $2");
    let Some(found) = view.one(&sql, &cells![tool.upstream.as_str(), tool.tool.as_str()])? else {
        return Ok(None);
    };
    let mut pin = decode(found)?;
    pin.add_known(known_definitions::of_upstream(view, &tool.upstream, Some(&tool.tool))?.remove(&tool.tool));
    Ok(Some(pin))
}

impl Store {
    pub async fn pins(&self, upstream: &UpstreamId) -> Result<Vec<ToolPin>, StoreFault> {
        let values = cells![upstream.as_str()];
        let sql = format!("SELECT {COLUMNS} FROM pins WHERE upstream = $1 ORDER BY tool");
        let upstream = upstream.clone();
        self.read(move |view| {
            let mut known = known_definitions::of_upstream(view, &upstream, None)?;
            let found = view.query(&sql, &values)?.into_iter();
            let with_known = |found| {
                let mut pin = decode(found)?;
                pin.add_known(known.remove(&pin.tool));
                Ok(pin)
            };
            found.map(with_known).collect()
        })
        .await
    }

    pub async fn pin_of(&self, tool: &FullName) -> Result<Option<ToolPin>, StoreFault> {
        let tool = tool.clone();
        self.read(move |view| load(view, &tool)).await
    }

    /// Whether an upstream's list was read before, by this gateway or another.
    pub async fn sight_of(&self, upstream: &UpstreamId) -> Result<ListingOccurrence, StoreFault> {
        let values = cells![upstream.as_str()];
        let sql = "SELECT upstream FROM listed_upstreams WHERE upstream = $1";
        let known = self.read(move |view| view.one(sql, &values)).await?;
        Ok(if known.is_some() { ListingOccurrence::Later } else { ListingOccurrence::First })
    }

    /// Stores what an upstream says of itself, in the caller's own format, for the next start.
    pub async fn remember_upstream(&self, upstream: &UpstreamId, facts: String) -> Result<(), StoreFault> {
        let sql = "INSERT INTO meta (name, value) VALUES ($1, $2)
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.execute(sql, cells![facts_name(upstream), facts]).await.map(drop)
    }

    pub async fn upstream_facts(&self, upstream: &UpstreamId) -> Result<Option<String>, StoreFault> {
        let values = cells![facts_name(upstream).as_str()];
        let found =
            self.read(move |view| view.one("SELECT value FROM meta WHERE name = $1", &values)).await?;
        found.map(|mut found| found.text()).transpose()
    }

    /// Records that an upstream's list was read and pins its new tools, all or none: no process sees, and no crash leaves, a half-pinned
    /// list. Tools are accepted only with the first list. False if another gateway was faster: the caller's view of the pins is outdated.
    pub async fn pin_all(
        &self,
        upstream: &UpstreamId,
        seen: &[(ToolName, ToolDefinition)],
        state: PinState,
        now: Timestamp,
    ) -> Result<bool, StoreFault> {
        let mut rows = Vec::new();
        for (tool, definition) in seen {
            let name = FullName { upstream: upstream.clone(), tool: tool.clone() };
            rows.push((name, definition.fingerprint, json_text(&definition.definition)?, self.mint(now)));
        }
        // Always in the same order: two processes that pin the same list then wait for each other without a deadlock.
        rows.sort_by(|one, other| one.0.tool.cmp(&other.0.tool));
        let upstream = upstream.clone();
        self.write(move |tx| {
            let first = "INSERT INTO listed_upstreams (upstream, first_listed) VALUES ($1, $2)
                         ON CONFLICT (upstream) DO NOTHING";
            let is_first = tx.execute(first, &cells![upstream.as_str(), now])? > 0;
            if state == PinState::Accepted && !is_first {
                return Ok(false);
            }
            let mut all = true;
            for (tool, fingerprint, definition, id) in &rows {
                let added = tx.execute(
                    "INSERT INTO pins (upstream, tool, state, fingerprint, definition, first_seen, changed)
                     VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (upstream, tool) DO NOTHING",
                    &cells![
                        tool.upstream.as_str(),
                        tool.tool.as_str(),
                        state.as_str(),
                        *fingerprint,
                        definition.as_str(),
                        now,
                    ],
                )?;
                if added == 0 {
                    all = false;
                    continue;
                }
                let entry = entity_row(tool, "pin")
                    .with_fact("fingerprint", fingerprint.hex())
                    .with_fact("state", state.as_str());
                tx.append(&entry, id.clone(), now);
            }
            Ok(all)
        })
        .await
    }

    /// Records that a pinned tool has changed; none if that was recorded before, or if the definition belongs to an accepted set.
    pub async fn propose_pin(
        &self,
        tool: &FullName,
        seen: &ToolDefinition,
        now: Timestamp,
    ) -> Result<Option<LedgerId>, StoreFault> {
        let (tool, fingerprint, id) = (tool.clone(), seen.fingerprint, self.mint(now));
        let definition = json_text(&seen.definition)?;
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE pins SET state = CASE state WHEN 'accepted' THEN 'changed' ELSE state END,
                        candidate_fingerprint = $1, candidate_definition = $2, changed = $3
                  WHERE upstream = $4 AND tool = $5 AND fingerprint <> $1
                    AND COALESCE(candidate_fingerprint, '') <> $1
                    AND NOT EXISTS (SELECT 1 FROM known_definitions AS known
                         WHERE known.upstream = $4 AND known.tool = $5 AND known.fingerprint = $1 AND known.in_set = 1)",
                &cells![fingerprint, definition.as_str(), now, tool.upstream.as_str(), tool.tool.as_str()],
            )?;
            if changed == 0 {
                return Ok(None);
            }
            let entry = entity_row(&tool, "change").with_fact("candidate", fingerprint.hex());
            tx.append(&entry, id.clone(), now);
            Ok(Some(id.clone()))
        })
        .await
    }
}

fn facts_name(upstream: &UpstreamId) -> String {
    format!("upstream:{upstream}")
}

pub(crate) fn entity_row(tool: &FullName, action: &str) -> Entry {
    Entry {
        upstream: Some(tool.upstream.clone()),
        tool: Some(tool.tool.clone()),
        ..Entry::about(RowKind::ToolChange, action, "tool", tool)
    }
}
