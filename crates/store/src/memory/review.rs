//! A person's decision on a proposal: approve or reject. One conditional statement, the new record and the audit row, in one transaction; the
//! first decision counts. Does not check whether somebody may decide.

use countersign_policy::ids::LedgerId;
use countersign_policy::memory::{
    DecisionOutcome, ProposalStatus, RecordAuthority, RecordKind, RecordStatus,
};
use countersign_policy::record::RowStatus;
use countersign_policy::refusal::{Code, Refusal};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::proposals::{self, Proposal};
use super::records::{self, facts};
use super::{AuditAction, MemoryActor, content_hash, new_id, prefix, text};
use crate::Store;
use crate::engine::{Cell, cells};
use crate::fault::StoreFault;
use crate::writer::Tx;

#[derive(Clone, Debug, PartialEq)]
pub enum ReviewRuling {
    /// It is true, perhaps in other words.
    Approve(Option<Rewording>),
    Reject,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewording {
    pub content: String,
    pub words: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReviewedProposal {
    pub proposal: Proposal,
    pub record_id: Option<String>,
    pub ledger_id: LedgerId,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NotReviewed {
    Unknown,
    Expired,
    Decided(Box<Proposal>),
}

impl NotReviewed {
    pub fn refusal(&self, id: &str) -> Refusal {
        match self {
            NotReviewed::Unknown => {
                Refusal::new(Code::NotFound, format!("there is no proposal `{}`", text::plain(id)))
            }
            NotReviewed::Expired => Refusal::new(
                Code::ProposalDecided,
                format!("the time of `{id}` ran out before anyone decided"),
            )
            .because("proposal_expired")
            .with("status", ProposalStatus::Expired.as_str()),
            NotReviewed::Decided(proposal) => {
                let by = proposal.reviewed_by.as_deref().unwrap_or("someone");
                let message = format!("`{id}` was {} by {by} already", proposal.status);
                let mut refusal = Refusal::new(Code::ProposalDecided, message)
                    .with("status", proposal.status.as_str())
                    .with("reviewed_by", by);
                if let Some(record) = &proposal.promoted_to {
                    refusal = refusal.with("promoted_to", record.as_str());
                }
                refusal
            }
        }
    }
}

impl Store {
    /// Decides on a proposal.
    ///
    /// INVARIANT (races end in SQL): of all decisions, the one whose statement changes the row counts.
    pub async fn review(
        &self,
        id: &str,
        ruling: ReviewRuling,
        note: Option<String>,
        actor: MemoryActor,
        now: Timestamp,
    ) -> Result<Result<ReviewedProposal, NotReviewed>, StoreFault> {
        let (id, ids, ledger_id) = (id.to_owned(), self.ids(), self.mint(now));
        self.write(move |tx| {
            tx.check_clock(now)?;
            let (status, record_id) = match &ruling {
                ReviewRuling::Approve(_) => {
                    // The id's letters depend on the proposed kind, which does not change.
                    let kind = tx.one("SELECT proposed_as FROM memory_proposals WHERE id = $1", &cells![id.as_str()])?;
                    let Some(mut kind) = kind else { return Ok(Err(NotReviewed::Unknown)) };
                    (ProposalStatus::Approved, Some(new_id(prefix(kind.word()?), &ids, now)))
                }
                ReviewRuling::Reject => (ProposalStatus::Rejected, None),
            };
            let reworded = match &ruling {
                ReviewRuling::Approve(Some(new)) => Some(text::kept(&new.content)),
                ReviewRuling::Approve(None) | ReviewRuling::Reject => None,
            };
            let found = tx.one(
                &format!(
                    "UPDATE memory_proposals SET status = $1, reviewed_by = $2, reviewed_at = $3, review_note = $4,
                            promoted_to = $5, reworded = CASE WHEN $6 = content THEN NULL ELSE $6 END
                      WHERE id = $7 AND status = 'pending' AND expires > $3
                      RETURNING {}, words",
                    proposals::COLUMNS
                ),
                &cells![
                    status.as_str(),
                    text::kept(actor.audited()),
                    now,
                    note.as_deref().map(text::kept),
                    record_id.as_deref(),
                    reworded.map_or(Cell::Null, Cell::Text),
                    id.as_str()
                ],
            )?;
            let Some(mut found) = found else { return why_not_reviewed(tx, &id, now).map(Err) };
            let proposal = proposals::decode(&mut found)?;
            let terms = found.text()?;
            if let Some(record_id) = &record_id {
                promote(tx, &proposal, &ruling, record_id, terms, &actor, now)?;
            }
            let entry = audit(&proposal, &actor, record_id.as_deref(), note.as_deref());
            tx.append(&entry, ledger_id.clone(), now);
            Ok(Ok(ReviewedProposal { proposal, record_id, ledger_id: ledger_id.clone() }))
        })
        .await
    }
}

fn promote(
    tx: &mut Tx<'_>,
    proposal: &Proposal,
    ruling: &ReviewRuling,
    record_id: &str,
    terms: String,
    actor: &MemoryActor,
    now: Timestamp,
) -> Result<(), StoreFault> {
    let mut body = proposal.body.clone();
    let mut terms = terms;
    if let (Some(content), ReviewRuling::Approve(Some(new))) = (&proposal.reworded, ruling) {
        body.content.clone_from(content);
        body.words.clone_from(&new.words);
        terms = body.terms(proposal.kind);
    }
    let confidence = match proposal.kind {
        RecordKind::Learning => proposal.confidence,
        RecordKind::Decision | RecordKind::Idea => 1000,
    };
    let row = records::RecordRow {
        id: record_id,
        kind: proposal.kind,
        body: &body,
        authority: Some(RecordAuthority::Approved),
        status: RecordStatus::Active,
        outcome: DecisionOutcome::Unknown,
        outcome_note: "",
        outcome_at: None,
        confidence,
        source: &proposal.source,
        principal: actor.principal.as_str(),
        session_id: &proposal.session_id,
        proposal_id: &proposal.id,
        terms,
        created: now,
        now,
    };
    match records::insert(tx, row)? {
        true => Ok(()),
        false => Err(StoreFault::invalid("a new id was taken")),
    }
}

fn audit(
    proposal: &Proposal,
    actor: &MemoryActor,
    record_id: Option<&str>,
    note: Option<&str>,
) -> crate::Entry {
    let action = if record_id.is_some() { "approve" } else { "reject" };
    let audit_action = AuditAction { tool: action, action, entity_type: "proposal", entity_id: &proposal.id };
    let mut more: Map<String, Value> = facts(json!({
        "proposal_id": proposal.id,
        "proposed_as": proposal.kind,
        "content_hash": content_hash(&proposal.body.content),
    }));
    if let Some(record_id) = record_id {
        more.insert("promoted_to".into(), record_id.into());
    }
    if let Some(content) = &proposal.reworded {
        more.insert("reworded_hash".into(), content_hash(content).into());
    }
    if let Some(note) = note {
        more.insert("note".into(), text::plain(note).into());
        if record_id.is_none() {
            more.insert("reason".into(), text::plain(note).into());
        }
    }
    actor.entry(RowStatus::Success, audit_action, more)
}

/// Finds out why the statement changed no row. Only for the message: the statement has already decided.
fn why_not_reviewed(tx: &mut Tx<'_>, id: &str, now: Timestamp) -> Result<NotReviewed, StoreFault> {
    let sql = format!("SELECT {} FROM memory_proposals WHERE id = $1", proposals::COLUMNS);
    let Some(mut found) = tx.one(&sql, &cells![id])? else { return Ok(NotReviewed::Unknown) };
    let proposal = proposals::decode(&mut found)?;
    Ok(match proposal.status {
        ProposalStatus::Expired => NotReviewed::Expired,
        ProposalStatus::Pending if proposal.expires <= now => NotReviewed::Expired,
        ProposalStatus::Pending | ProposalStatus::Approved | ProposalStatus::Rejected => {
            NotReviewed::Decided(Box::new(proposal))
        }
    })
}
