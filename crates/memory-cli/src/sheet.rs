//! Proposals and records as text: every text whole, with characters escaped that could deceive the reader.

use anstyle::Style;
use countersign_memory::inbox::ProposalReview;
use countersign_policy::memory::{ProposalStatus, Scope};
use countersign_store::memory::{Body, MemoryRecord, Proposal, RecordLink};
use countersign_terminal::output::{
    BAD, BOLD, DIM, GOOD, NAME, TimeDisplay, WARN, left, paint, shown, visible,
};
use jiff::Timestamp;

/// The colour of a status.
pub(crate) fn style(status: ProposalStatus) -> Style {
    match status {
        ProposalStatus::Pending => WARN,
        ProposalStatus::Approved => GOOD,
        ProposalStatus::Rejected => BAD,
        ProposalStatus::Expired => DIM,
    }
}

/// The first line of a text, short.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let short: String = line.chars().take(100).collect();
    let more = line.chars().nth(100).is_some() || text.lines().count() > 1;
    if more { format!("{short}…") } else { short }
}

/// Where a text holds.
pub(crate) fn place(body: &Body) -> String {
    match body.scope {
        Scope::Palace => "palace".to_owned(),
        Scope::File | Scope::Room => format!("{} {}", body.scope, body.path),
    }
}

/// A text of others, line by line behind a bar: it can neither end its frame nor move the cursor.
fn block(text: &str) -> String {
    text.split('\n').map(|line| format!("  {} {}\n", paint(DIM, "│"), visible(line))).collect()
}

fn fact(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("  {name:<10} {}\n", visible(value)) }
}

fn texts(body: &Body) -> String {
    let mut out = block(&body.content);
    for (name, text) in [("rationale", &body.rationale), ("context", &body.context)] {
        if !text.is_empty() {
            out.push_str(&format!("  {name}\n{}", block(text)));
        }
    }
    out.push_str(&fact("tags", &body.tags.join(", ")));
    out
}

/// A proposal with similar and contradicting records.
pub(crate) fn review(review: &ProposalReview, zone: &TimeDisplay, now: Timestamp) -> String {
    let mut out = proposal(&review.proposal, zone, now);
    if !review.contradictions.is_empty() {
        out.push_str(&format!("  {}\n", paint(BAD, "may contradict")));
        for (record, why) in &review.contradictions {
            out.push_str(&beside(record, why));
        }
    }
    if !review.similar.is_empty() {
        out.push_str(&format!("  {}\n", paint(BOLD, "similar, approved")));
        for (record, score) in &review.similar {
            out.push_str(&beside(record, &format!("{}% alike", score / 10)));
        }
    }
    out
}

fn beside(record: &MemoryRecord, why: &str) -> String {
    format!(
        "    {} ({}, {})\n{}",
        record.id,
        visible(&place(&record.body)),
        visible(why),
        block(&record.body.content)
    )
}

/// A proposal.
pub(crate) fn proposal(proposal: &Proposal, zone: &TimeDisplay, now: Timestamp) -> String {
    let status = proposal.status;
    let mut out = format!(
        "{} {} {}\n",
        paint(NAME, &proposal.id),
        paint(style(status), status),
        paint(BOLD, proposal.kind)
    );
    out.push_str(&texts(&proposal.body));
    out.push_str(&fact("holds in", &place(&proposal.body)));
    let by = format!("{} ({})", proposal.principal, proposal.source);
    out.push_str(&fact("from", &by));
    out.push_str(&fact("agent", &proposal.agent_type));
    let sure = format!("{}%: {}", proposal.confidence / 10, proposal.signals.join(", "));
    out.push_str(&fact("class", &sure));
    if proposal.evidence.as_object().is_some_and(|members| !members.is_empty()) {
        out.push_str(&fact("evidence", &proposal.evidence.to_string()));
    }
    out.push_str(&fact("proposed", &shown(proposal.created, zone)));
    if status == ProposalStatus::Pending {
        out.push_str(&fact("left", &left(proposal.expires, now)));
    }
    if let (Some(by), Some(at)) = (&proposal.reviewed_by, proposal.reviewed_at) {
        out.push_str(&fact("decided", &format!("by {by} at {}", shown(at, zone))));
    }
    out.push_str(&fact("record", proposal.promoted_to.as_deref().unwrap_or_default()));
    if let Some(text) = &proposal.reworded {
        out.push_str(&format!("  approved in other words\n{}", block(text)));
    }
    if let Some(note) = &proposal.review_note {
        out.push_str(&format!("  note\n{}", block(note)));
    }
    out
}

/// A record.
pub(crate) fn record(record: &MemoryRecord, links: &[RecordLink], zone: &TimeDisplay) -> String {
    let authority = record.authority.map_or("idea", |authority| authority.as_str());
    let mut out =
        format!("{} {} {}\n", paint(NAME, &record.id), paint(GOOD, authority), paint(BOLD, record.kind));
    out.push_str(&texts(&record.body));
    out.push_str(&fact("holds in", &place(&record.body)));
    out.push_str(&fact("status", record.status.as_str()));
    if record.outcome_at.is_some() {
        out.push_str(&fact("outcome", &format!("{} {}", record.outcome, record.outcome_note)));
    }
    out.push_str(&fact("proposal", &record.proposal_id));
    out.push_str(&fact("by", &record.principal));
    out.push_str(&fact("since", &shown(record.created, zone)));
    for link in links {
        out.push_str(&fact(
            "link",
            &format!("{} {} {} ({})", link.source_id, link.relation, link.target_id, link.id),
        ));
    }
    out
}
