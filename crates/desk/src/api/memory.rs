//! The governed memory's inbox: what agents would have everyone remember, with what speaks for and against it, decided by
//! people. The store decides who was first; what is true is the memory's business.

use std::sync::Arc;

use axum::extract::State;
use countersign_core::memory::ProposalStatus;
use countersign_core::role::Role;
use countersign_memory::inbox::{self, Decision as Word};
use countersign_memory::{Memory, Reply, Stop};
use countersign_store::memory::{Actor, ProposalQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::decide::{Answer, check_note};
use crate::access::Person;
use crate::asked::{Body, Named, Query, invalid};
use crate::desk::Desk;
use crate::told::{No, Outcome, error, told};

/// How many proposals one burst decides at most.
const BURST: usize = 100;

impl From<Stop> for No {
    fn from(Stop(refusal): Stop) -> Self {
        (*refusal).into()
    }
}

fn memory(desk: &Desk) -> Memory {
    // The inbox looks at no file of a project.
    Memory::new(desk.house.store.clone(), ".")
}

fn actor(person: &Person) -> Actor {
    Actor {
        principal: person.name.clone(),
        role: Role::Human,
        session: None,
        source: person.source(),
        named: None,
    }
}

/// Which proposals are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ProposalQuery")]
pub(crate) struct Wanted {
    /// `pending` (if left out), `approved`, `rejected`, `expired` or `all`.
    status: Option<String>,
    /// How many at most, 1 to 200; 50 if left out.
    limit: Option<String>,
}

/// Proposals, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProposalList")]
pub(crate) struct Proposals {
    /// Each with its text, evidence, `similar` approved records and `contradictions`.
    proposals: Vec<Value>,
}

/// `GET /memory/proposals`
pub(crate) async fn list(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Query(wanted): Query<Wanted>,
) -> Outcome<Proposals> {
    let status = match wanted.status.as_deref() {
        None => Some(ProposalStatus::Pending),
        Some("all") => None,
        Some(word) => {
            let status = word.parse::<ProposalStatus>();
            Some(
                status
                    .map_err(|_| invalid("status", "must be pending, approved, rejected, expired, or all"))?,
            )
        }
    };
    let limit = wanted.limit.as_deref().map_or(Ok(50), |text| text.parse::<u32>().map_err(|_| ()));
    let limit = limit.ok().filter(|limit| (1..=200).contains(limit));
    let limit = limit.ok_or_else(|| invalid("limit", "must be a number from 1 to 200"))?;
    let (memory, now) = (memory(&desk), desk.house.now());
    memory.sweep(now).await;
    let query = ProposalQuery { status, limit, ..ProposalQuery::default() };
    let mut proposals = Vec::new();
    for proposal in memory.store().proposals(query, now).await? {
        proposals.push(inbox::json(&inbox::beside(&memory, proposal).await?));
    }
    told(Proposals { proposals })
}

/// One proposal.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProposalOne")]
pub(crate) struct One {
    /// The proposal, whole, with what stands beside it.
    proposal: Value,
}

/// `GET /memory/proposals/{id}`
pub(crate) async fn one(State(desk): State<Arc<Desk>>, _: Person, Named(id): Named) -> Outcome<One> {
    let memory = memory(&desk);
    let found = memory.store().proposal(&id, desk.house.now()).await?;
    let found = found.ok_or_else(|| Stop::not_found("there is no such proposal"))?;
    told(One { proposal: inbox::json(&inbox::beside(&memory, found).await?) })
}

/// What an approval brings along.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ApproveProposal")]
pub(crate) struct Agreed {
    /// What to keep with the decision.
    note: Option<String>,
    /// The text to approve instead of the proposed one; both are kept.
    content: Option<String>,
}

/// What a rejection brings along.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RejectProposal")]
pub(crate) struct Refusing {
    /// Why; whoever proposes the same again is told.
    note: Option<String>,
}

/// A proposal that was decided.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProposalDecided")]
pub(crate) struct Decided {
    /// Its id.
    proposal_id: String,
    /// Where it stands now: `approved` or `rejected`.
    status: String,
    /// Who decided.
    by: String,
    /// The record that came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The audit row.
    audit_id: String,
}

/// `POST /memory/proposals/{id}/approve`
pub(crate) async fn approve(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Named(id): Named,
    Body(agreed): Body<Agreed>,
) -> Outcome<Decided> {
    let content = agreed.content.as_deref().filter(|content| !content.trim().is_empty());
    told(decide(&desk, &person, &id, Word::Approve(content), agreed.note.as_deref()).await?)
}

/// `POST /memory/proposals/{id}/reject`
pub(crate) async fn reject(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Named(id): Named,
    Body(refusing): Body<Refusing>,
) -> Outcome<Decided> {
    told(decide(&desk, &person, &id, Word::Reject, refusing.note.as_deref()).await?)
}

async fn decide(
    desk: &Desk,
    person: &Person,
    id: &str,
    word: Word<'_>,
    note: Option<&str>,
) -> Result<Decided, No> {
    check_note(note)?;
    let reply: Reply = inbox::rule(&memory(desk), id, word, note, &actor(person), desk.house.now()).await?;
    let text = |name: &str| reply.data.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(Decided {
        proposal_id: id.to_owned(),
        status: text("status").unwrap_or_default(),
        by: person.name.to_string(),
        id: text("id"),
        audit_id: text("audit_id").unwrap_or_default(),
    })
}

/// What is to become of one proposal of a burst.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ProposalDecision")]
pub(crate) struct Decision {
    /// Which proposal.
    proposal_id: String,
    /// `approve` or `reject`.
    decision: Answer,
    /// A note.
    note: Option<String>,
}

/// A burst.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DecideProposals")]
pub(crate) struct Burst {
    /// One decision for each proposal, at most 100.
    decisions: Vec<Decision>,
}

/// What became of one of them.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProposalResult")]
pub(crate) struct DecidedOne {
    /// Which proposal.
    proposal_id: String,
    /// Whether it was decided as asked.
    success: bool,
    /// Where it stands now, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    /// Why not, if it was not: code, message, details.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// What became of all of them.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProposalResults")]
pub(crate) struct Results {
    /// In the order they were asked for.
    results: Vec<DecidedOne>,
}

/// `POST /memory/decide`: each decided for itself, as if it were alone.
pub(crate) async fn burst(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Body(burst): Body<Burst>,
) -> Outcome<Results> {
    if burst.decisions.is_empty() || burst.decisions.len() > BURST {
        return Err(invalid("decisions", format_args!("must be a list of 1 to {BURST}")).into());
    }
    let mut results = Vec::with_capacity(burst.decisions.len());
    for one in burst.decisions {
        let word = match one.decision {
            Answer::Approve => Word::Approve(None),
            Answer::Reject => Word::Reject,
        };
        let decided = decide(&desk, &person, &one.proposal_id, word, one.note.as_deref()).await;
        let (status, why) = match decided {
            Ok(decided) => (Some(decided.status), None),
            Err(no) => (None, Some(error(no.refusal()))),
        };
        results.push(DecidedOne { proposal_id: one.proposal_id, success: why.is_none(), status, error: why });
    }
    told(Results { results })
}
