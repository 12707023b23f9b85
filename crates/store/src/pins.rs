//! Tool pins: which definition of a tool was accepted, and what its upstream says now. Whether a change is harmless
//! is for a person to say; here it is kept, whole, until someone does.

use countersign_core::digest::Digest;
use countersign_core::ids::{FullName, LedgerId, PrincipalId, ToolName, UpstreamId};
use countersign_core::record::{ActorRole, RowKind, RowStatus};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::Store;
use crate::engine::{Found, cells, json_text};
use crate::fault::StoreFault;
use crate::ledger::Entry;

/// Where a tool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinState {
    /// Its definition was accepted.
    Accepted,
    /// It was never accepted.
    Pending,
    /// It was accepted and is not what it was.
    Changed,
}

impl PinState {
    /// The exact spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            PinState::Accepted => "accepted",
            PinState::Pending => "pending",
            PinState::Changed => "changed",
        }
    }
}

impl std::str::FromStr for PinState {
    type Err = StoreFault;
    fn from_str(text: &str) -> Result<Self, StoreFault> {
        match text {
            "accepted" => Ok(PinState::Accepted),
            "pending" => Ok(PinState::Pending),
            "changed" => Ok(PinState::Changed),
            _ => Err(StoreFault::corrupt("an unknown pin state")),
        }
    }
}

/// Whether an upstream's list of tools was read before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Never.
    First,
    /// Yes, and it may have been empty.
    Later,
}

/// A definition and its fingerprint.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// What it is pinned by.
    pub fingerprint: Digest,
    /// The whole definition as listed.
    pub definition: Map<String, Value>,
}

/// One tool as it is pinned.
#[derive(Clone, Debug, PartialEq)]
pub struct Pin {
    /// Of which upstream.
    pub upstream: UpstreamId,
    /// Which tool.
    pub tool: ToolName,
    /// Where it stands.
    pub state: PinState,
    /// What was accepted, or first seen.
    pub pinned: Definition,
    /// What its upstream says now, where that differs.
    pub candidate: Option<Definition>,
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// When it last changed.
    pub changed: Timestamp,
    /// When someone accepted it.
    pub decided: Option<Timestamp>,
    /// Who did.
    pub decided_by: Option<PrincipalId>,
}

const COLUMNS: &str = "upstream, tool, state, fingerprint, definition, candidate_fingerprint, candidate_definition, \
     first_seen, changed, decided, decided_by";

fn decode(mut found: Found) -> Result<Pin, StoreFault> {
    let (upstream, tool, state) = (found.text()?.into(), found.text()?.into(), found.word()?);
    let pinned = Definition { fingerprint: found.word()?, definition: found.json()? };
    let candidate = match (found.maybe()?, found.maybe_json()?) {
        (Some(fingerprint), Some(definition)) => Some(Definition { fingerprint, definition }),
        _ => None,
    };
    Ok(Pin {
        upstream,
        tool,
        state,
        pinned,
        candidate,
        first_seen: found.time()?,
        changed: found.time()?,
        decided: found.maybe_time()?,
        decided_by: found.maybe_text()?.map(Into::into),
    })
}

impl Store {
    /// Every pin of an upstream.
    pub async fn pins(&self, upstream: &UpstreamId) -> Result<Vec<Pin>, StoreFault> {
        let values = cells![upstream.as_str()];
        let sql = format!("SELECT {COLUMNS} FROM pins WHERE upstream = $1 ORDER BY tool");
        self.read(move |view| view.query(&sql, &values)?.into_iter().map(decode).collect()).await
    }

    /// One pin.
    pub async fn pin_of(&self, tool: &FullName) -> Result<Option<Pin>, StoreFault> {
        let values = cells![tool.upstream.as_str(), tool.tool.as_str()];
        let sql = format!("SELECT {COLUMNS} FROM pins WHERE upstream = $1 AND tool = $2");
        self.read(move |view| view.one(&sql, &values)?.map(decode).transpose()).await
    }

    /// Whether an upstream's list was read before, by this gateway or another.
    pub async fn sight_of(&self, upstream: &UpstreamId) -> Result<Sight, StoreFault> {
        let values = cells![upstream.as_str()];
        let sql = "SELECT upstream FROM listed_upstreams WHERE upstream = $1";
        let known = self.read(move |view| view.one(sql, &values)).await?;
        Ok(if known.is_some() { Sight::Later } else { Sight::First })
    }

    /// Notes that an upstream's list was read and pins what nobody has pinned, all of it or nothing: no other process sees, and
    /// no crash leaves, half a first sight. Tools are accepted only with the first list. False if another gateway was faster:
    /// the pins are not what the caller took them for.
    pub async fn pin_all(
        &self,
        upstream: &UpstreamId,
        seen: &[(ToolName, Definition)],
        state: PinState,
        now: Timestamp,
    ) -> Result<bool, StoreFault> {
        let mut rows = Vec::new();
        for (tool, definition) in seen {
            let name = FullName { upstream: upstream.clone(), tool: tool.clone() };
            rows.push((name, definition.fingerprint, json_text(&definition.definition)?, self.mint(now)));
        }
        // Always in the same order: two that list the same wait for each other, not both for both.
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
                let entry = about(tool, "pin")
                    .with_fact("fingerprint", fingerprint.hex())
                    .with_fact("state", state.as_str());
                tx.append(&entry, id.clone(), now);
            }
            Ok(all)
        })
        .await
    }

    /// Notes that a pinned tool is not what it was; none if that was noted before, or it is what is pinned.
    pub async fn propose_pin(
        &self,
        tool: &FullName,
        seen: &Definition,
        now: Timestamp,
    ) -> Result<Option<LedgerId>, StoreFault> {
        let (tool, fingerprint, id) = (tool.clone(), seen.fingerprint, self.mint(now));
        let definition = json_text(&seen.definition)?;
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE pins SET state = CASE state WHEN 'accepted' THEN 'changed' ELSE state END,
                        candidate_fingerprint = $1, candidate_definition = $2, changed = $3
                  WHERE upstream = $4 AND tool = $5 AND fingerprint <> $1
                    AND COALESCE(candidate_fingerprint, '') <> $1",
                &cells![fingerprint, definition.as_str(), now, tool.upstream.as_str(), tool.tool.as_str()],
            )?;
            if changed == 0 {
                return Ok(None);
            }
            let entry = about(&tool, "change").with_fact("candidate", fingerprint.hex());
            tx.append(&entry, id.clone(), now);
            Ok(Some(id.clone()))
        })
        .await
    }

    /// Accepts what was looked at, named by its fingerprint: if the tool has changed again meanwhile, nothing happens.
    pub async fn accept_pin(
        &self,
        tool: &FullName,
        looked_at: Digest,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<Option<LedgerId>, StoreFault> {
        let (tool, by, id) = (tool.clone(), by.clone(), self.mint(now));
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE pins SET state = 'accepted', decided = $1, decided_by = $2, fingerprint = $3,
                        definition = COALESCE(candidate_definition, definition),
                        candidate_fingerprint = NULL, candidate_definition = NULL
                  WHERE upstream = $4 AND tool = $5 AND state <> 'accepted'
                    AND COALESCE(candidate_fingerprint, fingerprint) = $3",
                &cells![now, by.as_str(), looked_at, tool.upstream.as_str(), tool.tool.as_str()],
            )?;
            if changed == 0 {
                return Ok(None);
            }
            let mut entry = about(&tool, "accept").with_fact("fingerprint", looked_at.hex());
            entry.principal = Some(by.clone());
            entry.role = Some(ActorRole::Human);
            tx.append(&entry, id.clone(), now);
            Ok(Some(id.clone()))
        })
        .await
    }

    /// Forgets a tool; none if it was not pinned. Should it come back, it is new.
    pub async fn remove_pin(&self, tool: &FullName, now: Timestamp) -> Result<Option<LedgerId>, StoreFault> {
        let (tool, id) = (tool.clone(), self.mint(now));
        self.write(move |tx| {
            let gone = tx.execute(
                "DELETE FROM pins WHERE upstream = $1 AND tool = $2",
                &cells![tool.upstream.as_str(), tool.tool.as_str()],
            )?;
            if gone == 0 {
                return Ok(None);
            }
            tx.append(&about(&tool, "remove"), id.clone(), now);
            Ok(Some(id.clone()))
        })
        .await
    }
}

fn about(tool: &FullName, action: &str) -> Entry {
    let mut entry = Entry::new(RowKind::ToolChange, RowStatus::Success);
    entry.upstream = Some(tool.upstream.clone());
    entry.tool = Some(tool.tool.clone());
    entry.with_detail(&json!({"action": action, "entity_type": "tool", "entity_id": tool.to_string()}))
}
