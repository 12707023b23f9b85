//! What a person accepts of a tool: one definition, or the set of those accepted before. Some servers build their definitions anew at each
//! start and flip between a few of them; an accepted set ends the questions. Only definitions that were accepted one by one get into
//! a set, and an upstream can't add to it.

use std::collections::HashMap;

use countersign_policy::digest::Digest;
use countersign_policy::ids::{FullName, LedgerId, PrincipalId, ToolName, UpstreamId};
use countersign_policy::record::ActorRole;
use jiff::Timestamp;

use crate::Store;
use crate::engine::{FoundRow, cells, json_text};
use crate::fault::StoreFault;
use crate::pins::{PinState, ToolDefinition, ToolPin, entity_row, load};
use crate::readers::ReadTransaction;
use crate::writer::Tx;

/// How many accepted definitions of a tool are stored, and how many a set may have.
pub const MOST_KNOWN: usize = 8;

/// A definition that was accepted at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownDefinition {
    pub definition: ToolDefinition,
    pub accepted: Timestamp,
    /// None if it was trusted on first use.
    pub accepted_by: Option<PrincipalId>,
    pub in_set: bool,
}

/// What a person accepts, by the fingerprints that were shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefinitionAcceptance {
    /// The pending definition. An accepted set stays.
    Waiting(Digest),
    /// This definition alone, which is pending or was accepted before: ends the set.
    Only(Digest),
    /// The set of known definitions, each of them.
    Known(Vec<Digest>),
}

/// A pin as it is after a decision.
struct DecidedPin {
    state: PinState,
    pinned: ToolDefinition,
    candidate: Option<ToolDefinition>,
}

impl ToolPin {
    /// The definition that a person has to decide on.
    pub fn waiting(&self) -> Option<&ToolDefinition> {
        match self.state {
            PinState::Accepted => None,
            PinState::Pending | PinState::Changed => Some(self.candidate.as_ref().unwrap_or(&self.pinned)),
        }
    }

    /// The definitions that can be accepted as a set: the known ones, newest first; empty if there are fewer than two.
    pub fn offered_set(&self) -> &[KnownDefinition] {
        match self.known.get(..self.known.len().min(MOST_KNOWN)) {
            Some(offered) if offered.len() > 1 => offered,
            Some(_) | None => &[],
        }
    }

    /// The definitions that were accepted as a set.
    pub fn accepted_set(&self) -> impl Iterator<Item = &ToolDefinition> {
        self.known.iter().filter(|known| known.in_set).map(|known| &known.definition)
    }

    /// The pending definition if it was accepted before: the tool flips between accepted definitions.
    pub fn flipped_to(&self) -> Option<&KnownDefinition> {
        let waiting = self.waiting()?;
        let is_waiting =
            |known: &&KnownDefinition| known.definition.is_same(waiting.fingerprint, &waiting.definition);
        self.known.iter().find(is_waiting)
    }

    /// Adds the stored definitions, and the pinned one if it was accepted and is not stored yet.
    pub(crate) fn add_known(&mut self, kept: Option<Vec<KnownDefinition>>) {
        self.known = kept.unwrap_or_default();
        let is_pinned = |known: &KnownDefinition| known.definition.fingerprint == self.pinned.fingerprint;
        // A definition that nobody accepted does not become known through others.
        if self.state != PinState::Pending && !self.known.iter().any(is_pinned) {
            self.known.insert(0, self.pinned_as_known());
        }
    }

    fn pinned_as_known(&self) -> KnownDefinition {
        KnownDefinition {
            definition: self.pinned.clone(),
            accepted: self.decided.unwrap_or(self.first_seen),
            accepted_by: self.decided_by.clone(),
            in_set: false,
        }
    }

    /// The pin after a decision; none if it is not what the person was shown.
    fn after(&self, acceptance: &DefinitionAcceptance) -> Option<DecidedPin> {
        let accepted = |pinned: &ToolDefinition| DecidedPin {
            state: PinState::Accepted,
            pinned: pinned.clone(),
            candidate: None,
        };
        let beside_waiting = |pinned: &ToolDefinition| DecidedPin {
            state: if self.candidate.is_some() { PinState::Changed } else { PinState::Accepted },
            pinned: pinned.clone(),
            candidate: self.candidate.clone(),
        };
        match acceptance {
            DefinitionAcceptance::Waiting(read_only) => {
                self.waiting().filter(|waiting| waiting.fingerprint == *read_only).map(accepted)
            }
            DefinitionAcceptance::Only(read_only) => {
                let mut known = self.known.iter().map(|known| &known.definition);
                match self.waiting() {
                    Some(waiting) if waiting.fingerprint == *read_only => Some(accepted(waiting)),
                    _ => known.find(|known| known.fingerprint == *read_only).map(beside_waiting),
                }
            }
            DefinitionAcceptance::Known(read_only) => {
                let offered = self.offered_set();
                let is_offered = |one: &Digest| offered.iter().any(|o| o.definition.fingerprint == *one);
                let is_looked_at = |one: &KnownDefinition| read_only.contains(&one.definition.fingerprint);
                if offered.is_empty()
                    || !read_only.iter().all(is_offered)
                    || !offered.iter().all(is_looked_at)
                {
                    return None;
                }
                // A pending definition outside the set stays pending.
                match self.flipped_to().filter(|flipped| is_looked_at(flipped)) {
                    Some(flipped) => Some(accepted(&flipped.definition)),
                    None => Some(beside_waiting(&self.pinned)),
                }
            }
        }
    }
}

impl Store {
    /// Accepts the definition that was shown, by its fingerprint; does nothing if the tool has changed again meanwhile.
    pub async fn accept_pin(
        &self,
        tool: &FullName,
        read_only: Digest,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<Option<LedgerId>, StoreFault> {
        self.accept_definitions(tool, DefinitionAcceptance::Waiting(read_only), by, now).await
    }

    /// Accepts one definition alone or a set of them.
    pub async fn accept_definitions(
        &self,
        tool: &FullName,
        acceptance: DefinitionAcceptance,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<Option<LedgerId>, StoreFault> {
        let (tool, by, id) = (tool.clone(), by.clone(), self.mint(now));
        self.write(move |tx| {
            let Some(pin) = load(&mut tx.view(), &tool)? else { return Ok(None) };
            let Some(decided) = pin.after(&acceptance) else { return Ok(None) };
            if !update(tx, &tool, &pin, &decided, &by, now)? {
                return Ok(None);
            }
            if pin.state != PinState::Pending {
                remember(tx, &tool, &pin.pinned_as_known())?;
            }
            let mut entry = match &acceptance {
                DefinitionAcceptance::Waiting(one) | DefinitionAcceptance::Only(one) => {
                    let definition = decided.pinned.clone();
                    let accepted_by = Some(by.clone());
                    remember(
                        tx,
                        &tool,
                        &KnownDefinition { definition, accepted: now, accepted_by, in_set: false },
                    )?;
                    let word = if matches!(acceptance, DefinitionAcceptance::Only(_)) {
                        "accept_only"
                    } else {
                        "accept"
                    };
                    entity_row(&tool, word).with_fact("fingerprint", one.hex())
                }
                DefinitionAcceptance::Known(all) => {
                    let all: Vec<String> = all.iter().map(Digest::hex).collect();
                    entity_row(&tool, "accept_known").with_fact("fingerprints", all)
                }
            };
            match &acceptance {
                DefinitionAcceptance::Waiting(_) => {}
                DefinitionAcceptance::Only(_) => set_members(tx, &tool, &[], &by)?,
                DefinitionAcceptance::Known(all) => set_members(tx, &tool, all, &by)?,
            }
            forget_oldest(tx, &tool)?;
            entry.principal = Some(by.clone());
            entry.role = Some(ActorRole::Human);
            tx.append(&entry, id.clone(), now);
            Ok(Some(id.clone()))
        })
        .await
    }
}

/// Writes a decision if the pin is still what the decision was made on: of two decisions at once, one loses.
fn update(
    tx: &mut Tx<'_>,
    tool: &FullName,
    pin: &ToolPin,
    decided: &DecidedPin,
    by: &PrincipalId,
    now: Timestamp,
) -> Result<bool, StoreFault> {
    let candidate = match &decided.candidate {
        Some(candidate) => (Some(candidate.fingerprint), Some(json_text(&candidate.definition)?)),
        None => (None, None),
    };
    let changed = tx.execute(
        "UPDATE pins SET state = $1, decided = $2, decided_by = $3, fingerprint = $4, definition = $5,
                candidate_fingerprint = $6, candidate_definition = $7
          WHERE upstream = $8 AND tool = $9 AND state = $10 AND fingerprint = $11
            AND COALESCE(candidate_fingerprint, '') = $12",
        &cells![
            decided.state.as_str(),
            now,
            by.as_str(),
            decided.pinned.fingerprint,
            json_text(&decided.pinned.definition)?,
            candidate.0,
            candidate.1,
            tool.upstream.as_str(),
            tool.tool.as_str(),
            pin.state.as_str(),
            pin.pinned.fingerprint,
            pin.candidate.as_ref().map(|candidate| candidate.fingerprint.hex()).unwrap_or_default(),
        ],
    )?;
    Ok(changed > 0)
}

pub(crate) fn of_upstream(
    view: &mut ReadTransaction<'_>,
    upstream: &UpstreamId,
    only: Option<&ToolName>,
) -> Result<HashMap<ToolName, Vec<KnownDefinition>>, StoreFault> {
    let sql = "SELECT tool, fingerprint, definition, accepted, accepted_by, in_set FROM known_definitions
                WHERE upstream = $1 AND tool = COALESCE($2, tool) ORDER BY tool, accepted DESC, fingerprint";
    let mut known: HashMap<ToolName, Vec<KnownDefinition>> = HashMap::new();
    for mut found in view.query(sql, &cells![upstream.as_str(), only.map(ToolName::as_str)])? {
        known.entry(found.text()?.into()).or_default().push(decode(found)?);
    }
    Ok(known)
}

fn decode(mut found: FoundRow) -> Result<KnownDefinition, StoreFault> {
    Ok(KnownDefinition {
        definition: ToolDefinition { fingerprint: found.word()?, definition: found.json()? },
        accepted: found.time()?,
        accepted_by: found.maybe_text()?.map(Into::into),
        in_set: found.int()? == 1,
    })
}

/// Stores a definition with the time of its last acceptance.
fn remember(tx: &mut Tx<'_>, tool: &FullName, known: &KnownDefinition) -> Result<(), StoreFault> {
    let values = cells![
        tool.upstream.as_str(),
        tool.tool.as_str(),
        known.definition.fingerprint,
        json_text(&known.definition.definition)?,
        known.accepted,
        known.accepted_by.as_ref().map(PrincipalId::as_str),
    ];
    tx.execute(
        "INSERT INTO known_definitions (upstream, tool, fingerprint, definition, accepted, accepted_by)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (upstream, tool, fingerprint) DO UPDATE SET accepted = excluded.accepted,
                accepted_by = COALESCE(excluded.accepted_by, known_definitions.accepted_by)",
        &values,
    )
    .map(drop)
}

/// Makes these the set and ends any other. Their definitions are stored already.
fn set_members(
    tx: &mut Tx<'_>,
    tool: &FullName,
    members: &[Digest],
    by: &PrincipalId,
) -> Result<(), StoreFault> {
    let (upstream, name) = (tool.upstream.as_str(), tool.tool.as_str());
    tx.execute(
        "UPDATE known_definitions SET in_set = 0 WHERE upstream = $1 AND tool = $2",
        &cells![upstream, name],
    )?;
    for member in members {
        tx.execute(
            "UPDATE known_definitions SET in_set = 1, accepted_by = COALESCE(accepted_by, $4)
              WHERE upstream = $1 AND tool = $2 AND fingerprint = $3",
            &cells![upstream, name, *member, by.as_str()],
        )?;
    }
    Ok(())
}

/// Keeps the set and the newest others.
fn forget_oldest(tx: &mut Tx<'_>, tool: &FullName) -> Result<(), StoreFault> {
    let most = i64::try_from(MOST_KNOWN).unwrap_or(i64::MAX);
    tx.execute(
        "DELETE FROM known_definitions WHERE upstream = $1 AND tool = $2 AND in_set = 0 AND fingerprint NOT IN
           (SELECT fingerprint FROM known_definitions WHERE upstream = $1 AND tool = $2
             ORDER BY in_set DESC, accepted DESC, fingerprint LIMIT $3)",
        &cells![tool.upstream.as_str(), tool.tool.as_str(), most],
    )
    .map(drop)
}
