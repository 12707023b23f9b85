//! The tools that change the memory: propose, write, approve, reject, link. Each change and its audit row are one transaction of the
//! store.

use countersign_policy::memory::{DecisionOutcome, RecordKind, RecordRelation, RecordStatus, Scope};
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_policy::role::Role;
use countersign_store::memory::{
    Body, MemoryActor, NewProposal, NewRecord, NotLinked, Origin, Proposed, ReviewRuling, Rewording,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::arguments::{LONGEST_NAME, LONGEST_TEXT, MemoryArguments};
use crate::classify::{self, TextClassification};
use crate::error::{MemoryError, MemoryResult, MemoryToolReply};
use crate::{Memory, PROPOSAL_LIFE, view, words};

#[derive(Clone, Debug, Default)]
pub struct RecordDraft {
    pub content: String,
    pub rationale: String,
    pub context: String,
    pub tags: Vec<String>,
    /// Where it holds; none means everywhere.
    pub place: Option<(Scope, String)>,
}

impl RecordDraft {
    fn read(given: &MemoryArguments<'_>) -> MemoryResult<Self> {
        Ok(Self {
            content: given.required("content", LONGEST_TEXT)?.to_owned(),
            rationale: given.or_empty("rationale", LONGEST_TEXT)?,
            context: given.or_empty("context", LONGEST_TEXT)?,
            tags: given.labels("tags")?,
            place: given.place()?,
        })
    }
}

/// A text with its place and the terms it is found by.
pub fn proposal_body(wording: RecordDraft) -> Body {
    let RecordDraft { content, rationale, context, tags, place } = wording;
    let (scope, path) = place.unwrap_or((Scope::Palace, String::new()));
    let words = words::of_record(&content, &rationale, &context, &tags);
    Body { content, rationale, context, tags, scope, path, words }
}

/// The tool `store`: decisions and learnings become proposals, ideas are written.
pub(crate) async fn store(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let wording = RecordDraft::read(given)?;
    let named = match given.word::<RecordKind>("as")? {
        Some(kind) => Some(kind),
        None => given.word::<RecordKind>("kind")?,
    };
    let classified = named.map_or_else(|| classify::classify(&wording.content), classify::stated);
    let body = proposal_body(wording);
    let session_id = given.or_empty("sessionId", LONGEST_NAME)?;
    let agent_type = given.or_empty("agentType", LONGEST_NAME)?;
    let confidence = given.fraction("confidence")?.unwrap_or(classified.confidence);
    let source = source(actor);
    let evidence = Value::Object(given.object("evidence")?);
    match classified.kind {
        RecordKind::Idea => write_idea(memory, body, session_id, &classified, actor, now).await,
        RecordKind::Decision | RecordKind::Learning => {
            let proposal = NewProposal {
                kind: classified.kind,
                body,
                source,
                session_id,
                agent_type,
                evidence,
                confidence,
                signals: classified.signals.clone(),
                expires: now.checked_add(PROPOSAL_LIFE).unwrap_or(Timestamp::MAX),
            };
            propose(memory, proposal, &classified, actor, now).await
        }
    }
}

fn source(actor: &MemoryActor) -> String {
    match (actor.source, actor.role) {
        (countersign_policy::record::Source::Cli, _) => "cli".to_owned(),
        (_, Role::Agent) => "agent".to_owned(),
        (_, Role::Human) => "human".to_owned(),
    }
}

async fn propose(
    memory: &Memory,
    proposal: NewProposal,
    classified: &TextClassification,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let (kind, expires) = (proposal.kind, proposal.expires);
    let (scope, path) = (proposal.body.scope, proposal.body.path.clone());
    match memory.store.propose(proposal, actor.clone(), now).await? {
        Proposed::Duplicate { existing_id } => {
            Err(duplicate("the same text waits for a person already", &existing_id))
        }
        Proposed::New { id, ledger_id, rejected, recorded } => {
            let mut reply = MemoryToolReply::with_message(format!(
                "proposal {id} waits for a person to approve it as a {kind}"
            ))
            .with("proposal_id", id)
            .with("status", "pending")
            .with("as", kind.as_str())
            .with("scope", scope.as_str())
            .with("scope_path", path)
            .with("classification", shown(classified))
            .with("expires_at", view::time(expires))
            .with("ledger_id", ledger_id.as_str());
            if let Some(before) = rejected {
                let by = before.reviewed_by.as_deref().unwrap_or("a person");
                let note = before.review_note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
                reply = reply
                    .with(
                        "rejected_before",
                        json!({
                            "proposal_id": before.id,
                            "by": by,
                            "at": before.reviewed_at.map(view::time),
                            "note": before.review_note,
                        }),
                    )
                    .warn([format!("the same text was rejected before by {by}{note}")]);
            }
            if let Some(id) = recorded {
                reply = reply
                    .with("recorded_as", id.as_str())
                    .warn([format!("the same text is recorded as {id} already")]);
            }
            Ok(reply)
        }
    }
}

async fn write_idea(
    memory: &Memory,
    body: Body,
    session_id: String,
    classified: &TextClassification,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let record = NewRecord {
        kind: RecordKind::Idea,
        body,
        confidence: classified.confidence,
        source: source(actor),
        session_id,
        status: RecordStatus::Active,
        outcome: DecisionOutcome::Unknown,
        outcome_note: String::new(),
        outcome_at: None,
        id: None,
        created: None,
    };
    let written = memory.store.write_record(record, Origin::Idea, actor.clone(), now).await?;
    let (id, ledger_id, _) =
        written.map_err(|existing| duplicate("the same idea is there already", &existing))?;
    Ok(MemoryToolReply::with_message(format!("idea {id} is kept; nobody has to agree to an idea"))
        .with("id", id)
        .with("as", RecordKind::Idea.as_str())
        .with("classification", shown(classified))
        .with("ledger_id", ledger_id.as_str()))
}

fn shown(classified: &TextClassification) -> Value {
    json!({
        "as": classified.kind,
        "confidence": view::confidence(classified.confidence),
        "signals": classified.signals,
    })
}

fn duplicate(message: &str, existing: &str) -> MemoryError {
    Refusal::new(Code::Duplicate, message).with("existing_id", existing).into()
}

/// The tool `store_direct`: a person writes past proposals, with an audit row.
pub(crate) async fn store_direct(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let wording = RecordDraft::read(given)?;
    let kind = match given.text("as", LONGEST_NAME)? {
        Some("decision") => RecordKind::Decision,
        Some("learning") => RecordKind::Learning,
        Some(_) | None => return Err(MemoryError::field("as", "as must be 'decision' or 'learning'")),
    };
    let confidence = given.fraction("confidence")?;
    direct(memory, wording, kind, confidence, &named(given, actor)?, now).await
}

/// Writes an approved record without a proposal. The caller has checked that a person asks.
pub async fn direct(
    memory: &Memory,
    wording: RecordDraft,
    kind: RecordKind,
    confidence: Option<u32>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let usual = match kind {
        RecordKind::Learning => 700,
        RecordKind::Decision | RecordKind::Idea => 1000,
    };
    let body = proposal_body(wording);
    let hash = countersign_store::memory::content_hash(&body.content);
    let record = NewRecord {
        kind,
        body,
        confidence: confidence.unwrap_or(usual),
        source: "human".to_owned(),
        session_id: String::new(),
        status: RecordStatus::Active,
        outcome: DecisionOutcome::Unknown,
        outcome_note: String::new(),
        outcome_at: None,
        id: None,
        created: None,
    };
    let written = memory.store.write_record(record, Origin::Direct, actor.clone(), now).await?;
    let (id, ledger_id, same) = written.map_err(|existing| duplicate("it is there already", &existing))?;
    Ok(MemoryToolReply::with_message(format!("✅ {kind} created: {id} (direct write, audited)"))
        .with("id", id)
        .with("as", kind.as_str())
        .with("authority", "approved")
        .with("promoted_from_proposal_id", "")
        .with("content_hash", hash)
        .with("audit_id", ledger_id.as_str())
        .warn(same.map(|same| format!("the same text is recorded as {same} already"))))
}

/// The tool `approve`.
pub(crate) async fn approve(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let id = given.required("proposalId", LONGEST_NAME)?;
    let reworded = given.text("content", LONGEST_TEXT)?;
    let note = given.text("note", LONGEST_TEXT)?;
    decide(memory, id, ProposalDecision::Approve(reworded), note, &named(given, actor)?, now).await
}

/// The tool `reject`.
pub(crate) async fn reject(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let id = given.required("proposalId", LONGEST_NAME)?;
    let note = given.text("note", LONGEST_TEXT)?;
    decide(memory, id, ProposalDecision::Reject, note, &named(given, actor)?, now).await
}

#[derive(Clone, Copy, Debug)]
pub enum ProposalDecision<'a> {
    /// It is true, perhaps in these words.
    Approve(Option<&'a str>),
    Reject,
}

/// Approves or rejects a proposal. The caller has checked that a person asks.
pub async fn decide(
    memory: &Memory,
    id: &str,
    decision: ProposalDecision<'_>,
    note: Option<&str>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let ruling = match decision {
        ProposalDecision::Reject => ReviewRuling::Reject,
        ProposalDecision::Approve(None) => ReviewRuling::Approve(None),
        ProposalDecision::Approve(Some(content)) => {
            let before = memory.store.proposal(id, now).await?;
            let body = before.map(|proposal| proposal.body);
            let words = body.map_or_else(String::new, |body| {
                words::of_record(content, &body.rationale, &body.context, &body.tags)
            });
            ReviewRuling::Approve(Some(Rewording { content: content.to_owned(), words }))
        }
    };
    let reviewed = memory.store.review(id, ruling, note.map(str::to_owned), actor.clone(), now).await?;
    let reviewed = reviewed.map_err(|why| MemoryError::from(why.refusal(id)))?;
    let message = match &reviewed.record_id {
        Some(record) => format!("✅ Approved: {record}"),
        None => "❌ Proposal rejected".to_owned(),
    };
    let mut reply = MemoryToolReply::with_message(message)
        .with("proposal_id", id)
        .with("status", reviewed.proposal.status.as_str())
        .with("by", actor.audited())
        .with("audit_id", reviewed.ledger_id.as_str());
    if let Some(record) = reviewed.record_id {
        reply = reply.with("id", record.as_str()).with("promoted_to", record).with("authority", "approved");
    }
    if let Some(content) = reviewed.proposal.reworded {
        reply = reply.with("content", content).with("proposed_content", reviewed.proposal.body.content);
    }
    Ok(reply)
}

/// The tool `recall_outcome`.
pub(crate) async fn outcome(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let id = given.required("decisionId", LONGEST_NAME)?;
    let outcome = match given.required("outcome", LONGEST_NAME)? {
        "success" | "successful" => DecisionOutcome::Successful,
        "failed" | "failure" => DecisionOutcome::Failed,
        "mixed" => DecisionOutcome::Mixed,
        _ => return Err(MemoryError::field("outcome", "outcome must be successful, failed, or mixed")),
    };
    let note = given.or_empty("note", LONGEST_TEXT)?;
    let written = memory.store.record_outcome(id, outcome, &note, named(given, actor)?, now).await?;
    let ledger_id = written.ok_or_else(|| MemoryError::not_found("there is no decision of that id"))?;
    Ok(MemoryToolReply::with_message(format!("outcome of {id}: {outcome}"))
        .with("id", id)
        .with("outcome", outcome.as_str())
        .with("audit_id", ledger_id.as_str()))
}

/// The tool `recall_link`.
pub(crate) async fn link(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let source = given.required("sourceId", LONGEST_NAME)?;
    let target = given.required("targetId", LONGEST_NAME)?;
    let relation = given.word::<RecordRelation>("relation")?;
    let relation = relation.ok_or_else(|| MemoryError::field("relation", "relation is required"))?;
    if source == target {
        return Err(MemoryError::field("targetId", "a record can't be linked to itself"));
    }
    let linked = memory.store.link_records(source, target, relation, named(given, actor)?, now).await?;
    let (id, ledger_id) = linked.map_err(|why| match why {
        NotLinked::Unknown(id) => MemoryError::not_found(format!("there is no record `{id}`")),
        NotLinked::Exists(id) => duplicate("these are linked so already", &id),
    })?;
    Ok(MemoryToolReply::with_message(format!("{source} {relation} {target}"))
        .with("id", id)
        .with("audit_id", ledger_id.as_str()))
}

/// The tool `recall_unlink`.
pub(crate) async fn unlink(
    memory: &Memory,
    given: &MemoryArguments<'_>,
    actor: &MemoryActor,
    now: Timestamp,
) -> MemoryResult<MemoryToolReply> {
    let id = given.required("linkId", LONGEST_NAME)?;
    let removed = memory.store.unlink_records(id, named(given, actor)?, now).await?;
    let (link, ledger_id) = removed.ok_or_else(|| {
        MemoryError::from(Refusal::new(Code::NotFound, "there is no such link").next(&[NextAction::Stop]))
    })?;
    Ok(MemoryToolReply::with_message(format!(
        "{} no longer {} {}",
        link.source_id, link.relation, link.target_id
    ))
    .with("id", link.id)
    .with("audit_id", ledger_id.as_str()))
}

/// The actor as a person's line names it: for the audit, beside the principal, which nobody can change.
fn named(given: &MemoryArguments<'_>, actor: &MemoryActor) -> MemoryResult<MemoryActor> {
    let by = match given.text("by", LONGEST_NAME)? {
        Some(by) => Some(by),
        None => given.text("actorId", LONGEST_NAME)?,
    };
    let mut actor = actor.clone();
    if let Some(by) = by {
        actor.named = Some(by.to_owned());
    }
    Ok(actor)
}
