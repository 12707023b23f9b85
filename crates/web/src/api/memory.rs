//! Proposals of agents to the shared memory, which people approve or reject.

use axum::extract::State;
use countersign_gateway::approval::check_note;
use countersign_memory::inbox::{self, ProposalDecision as Ruling};
use countersign_memory::{Memory, MemoryError, MemoryToolReply};
use countersign_policy::memory::ProposalStatus;
use countersign_policy::role::Role;
use countersign_store::memory::{MemoryActor, ProposalQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::decide::DecisionChoice;
use crate::auth::AuthenticatedPerson;
use crate::request::{Body, PathName, QueryParams, invalid};
use crate::response::{ApiError, ApiResult, error_body, respond};
use crate::state::{Web, WebState};

const MOST_DECISIONS: usize = 100;

impl From<MemoryError> for ApiError {
    fn from(MemoryError(refusal): MemoryError) -> Self {
        (*refusal).into()
    }
}

fn memory(web: &WebState) -> Memory {
    // Proposals need no project folder.
    Memory::new(web.gateway.store.clone(), ".")
}

fn actor(person: &AuthenticatedPerson) -> MemoryActor {
    MemoryActor {
        principal: person.name.clone(),
        role: Role::Human,
        session: None,
        source: person.source(),
        named: None,
    }
}

/// Filters on proposals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ProposalQuery")]
pub(crate) struct ListProposalsQuery {
    /// pending (default), approved, rejected, expired or all
    status: Option<String>,
    /// 1 to 200, default 50.
    limit: Option<String>,
}

/// Proposals, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProposalList {
    /// Each with its text, evidence, `similar` approved records and `contradictions`.
    proposals: Vec<Value>,
}

pub(crate) async fn list(
    State(web): Web,
    _: AuthenticatedPerson,
    QueryParams(wanted): QueryParams<ListProposalsQuery>,
) -> ApiResult<ProposalList> {
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
    let (memory, now) = (memory(&web), web.gateway.now());
    memory.sweep(now).await;
    let query = ProposalQuery { status, limit, ..ProposalQuery::default() };
    let mut proposals = Vec::new();
    for proposal in memory.store().proposals(query, now).await? {
        proposals.push(inbox::json(&inbox::review(&memory, proposal).await?));
    }
    respond(ProposalList { proposals })
}

/// One proposal with similar and contradicting records.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProposalOne")]
pub(crate) struct ProposalDetail {
    proposal: Value,
}

pub(crate) async fn one(
    State(web): Web,
    _: AuthenticatedPerson,
    PathName(id): PathName,
) -> ApiResult<ProposalDetail> {
    let memory = memory(&web);
    let found = memory.store().proposal(&id, web.gateway.now()).await?;
    let found = found.ok_or_else(|| MemoryError::not_found("there is no such proposal"))?;
    respond(ProposalDetail { proposal: inbox::json(&inbox::review(&memory, found).await?) })
}

/// An approval.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ApproveProposal")]
pub(crate) struct ApproveProposalBody {
    /// Recorded with the decision.
    note: Option<String>,
    /// Replaces the proposed text; both are kept.
    content: Option<String>,
}

/// A rejection.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RejectProposal")]
pub(crate) struct RejectProposalBody {
    /// The reason; returned to an agent that proposes the same again.
    note: Option<String>,
}

/// The decided proposal.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProposalDecided")]
pub(crate) struct DecidedProposal {
    proposal_id: String,
    /// approved or rejected
    status: String,
    by: String,
    /// The new record, if approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    audit_id: String,
}

pub(crate) async fn approve(
    State(web): Web,
    person: AuthenticatedPerson,
    PathName(id): PathName,
    Body(body): Body<ApproveProposalBody>,
) -> ApiResult<DecidedProposal> {
    let content = body.content.as_deref().filter(|content| !content.trim().is_empty());
    respond(decide(&web, &person, &id, Ruling::Approve(content), body.note.as_deref()).await?)
}

pub(crate) async fn reject(
    State(web): Web,
    person: AuthenticatedPerson,
    PathName(id): PathName,
    Body(body): Body<RejectProposalBody>,
) -> ApiResult<DecidedProposal> {
    respond(decide(&web, &person, &id, Ruling::Reject, body.note.as_deref()).await?)
}

async fn decide(
    web: &WebState,
    person: &AuthenticatedPerson,
    id: &str,
    ruling: Ruling<'_>,
    note: Option<&str>,
) -> Result<DecidedProposal, ApiError> {
    check_note(note)?;
    let reply: MemoryToolReply =
        inbox::decide(&memory(web), id, ruling, note, &actor(person), web.gateway.now()).await?;
    let text = |name: &str| reply.data.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(DecidedProposal {
        proposal_id: id.to_owned(),
        status: text("status").unwrap_or_default(),
        by: person.name.to_string(),
        id: text("id"),
        audit_id: text("audit_id").unwrap_or_default(),
    })
}

/// One decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ProposalDecision")]
pub(crate) struct Decision {
    proposal_id: String,
    decision: DecisionChoice,
    note: Option<String>,
}

/// Decisions on several proposals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DecideProposals")]
pub(crate) struct DecideProposalsBody {
    /// At most 100.
    decisions: Vec<Decision>,
}

/// The result of one decision.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProposalResult")]
pub(crate) struct DecidedOne {
    proposal_id: String,
    success: bool,
    /// Set on success.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    /// Set on failure: `{code, message, details}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// The results, in the order of the request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProposalResults")]
pub(crate) struct ProposalDecisionResults {
    results: Vec<DecidedOne>,
}

/// `POST /memory/decide`: decides each proposal on its own; one failure does not stop the rest.
pub(crate) async fn decide_many(
    State(web): Web,
    person: AuthenticatedPerson,
    Body(body): Body<DecideProposalsBody>,
) -> ApiResult<ProposalDecisionResults> {
    if body.decisions.is_empty() || body.decisions.len() > MOST_DECISIONS {
        return Err(invalid("decisions", format_args!("must be a list of 1 to {MOST_DECISIONS}")).into());
    }
    let mut results = Vec::with_capacity(body.decisions.len());
    for one in body.decisions {
        let ruling = match one.decision {
            DecisionChoice::Approve => Ruling::Approve(None),
            DecisionChoice::Reject => Ruling::Reject,
        };
        let decided = decide(&web, &person, &one.proposal_id, ruling, one.note.as_deref()).await;
        let (status, why) = match decided {
            Ok(decided) => (Some(decided.status), None),
            Err(error) => (None, Some(error_body(error.refusal()))),
        };
        results.push(DecidedOne { proposal_id: one.proposal_id, success: why.is_none(), status, error: why });
    }
    respond(ProposalDecisionResults { results })
}
