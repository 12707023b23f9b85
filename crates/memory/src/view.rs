//! Records and proposals as JSON: the same names everywhere they are shown.

use countersign_policy::memory::RecordKind;
use countersign_store::memory::{MemoryRecord, Proposal, RecordLink, SessionConflict};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// How much of a text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextLength {
    Whole,
    /// The beginning: at most this many characters.
    Cut(usize),
}

pub(crate) fn time(at: Timestamp) -> Value {
    at.to_string().into()
}

fn thousandths(number: u32) -> Value {
    json!(f64::from(number) / 1000.0)
}

/// A text of at most so many characters, and whether some was left out.
pub(crate) fn cut(text: &str, length: TextLength) -> (String, bool) {
    match length {
        TextLength::Cut(most) if text.chars().nth(most).is_some() => {
            let kept: String = text.chars().take(most.saturating_sub(3)).collect();
            (format!("{kept}..."), true)
        }
        TextLength::Whole | TextLength::Cut(_) => (text.to_owned(), false),
    }
}

pub fn record(record: &MemoryRecord, length: TextLength) -> Value {
    let mut out = Map::new();
    let body = &record.body;
    let (content, truncated) = cut(&body.content, length);
    out.insert("id".into(), record.id.as_str().into());
    out.insert("as".into(), record.kind.as_str().into());
    out.insert("content".into(), content.into());
    if truncated {
        out.insert("truncated".into(), true.into());
    }
    for (name, text) in [("rationale", &body.rationale), ("context", &body.context)] {
        if !text.is_empty() {
            out.insert(name.into(), cut(text, length).0.into());
        }
    }
    if !body.tags.is_empty() {
        out.insert("tags".into(), json!(body.tags));
    }
    out.insert("scope".into(), body.scope.as_str().into());
    out.insert("scope_path".into(), body.path.as_str().into());
    if let Some(authority) = record.authority {
        out.insert("authority".into(), authority.as_str().into());
    }
    out.insert("status".into(), record.status.as_str().into());
    match record.kind {
        RecordKind::Decision => {
            out.insert("outcome".into(), record.outcome.as_str().into());
            if !record.outcome_note.is_empty() {
                out.insert("outcome_note".into(), record.outcome_note.as_str().into());
            }
        }
        RecordKind::Learning => drop(out.insert("confidence".into(), thousandths(record.confidence))),
        RecordKind::Idea => {}
    }
    out.insert("source".into(), record.source.as_str().into());
    if record.kind != RecordKind::Idea {
        out.insert("promoted_from_proposal_id".into(), record.proposal_id.as_str().into());
    }
    out.insert("created_at".into(), time(record.created));
    out.insert("updated_at".into(), time(record.updated));
    Value::Object(out)
}

/// A proposal, for people: agents never see one.
pub fn proposal(proposal: &Proposal) -> Value {
    let body = &proposal.body;
    json!({
        "id": proposal.id,
        "as": proposal.kind,
        "content": body.content,
        "rationale": body.rationale,
        "context": body.context,
        "tags": body.tags,
        "scope": body.scope,
        "scope_path": body.path,
        "authority": countersign_policy::memory::RecordAuthority::Proposed,
        "status": proposal.status,
        "source": proposal.source,
        "proposed_by": proposal.principal,
        "session_id": proposal.session_id,
        "agent_type": proposal.agent_type,
        "evidence": proposal.evidence,
        "classification": {
            "as": proposal.kind,
            "confidence": thousandths(proposal.confidence),
            "signals": proposal.signals,
        },
        "reviewed_by": proposal.reviewed_by,
        "reviewed_at": proposal.reviewed_at.map(time),
        "review_note": proposal.review_note,
        "promoted_to": proposal.promoted_to,
        "reworded": proposal.reworded,
        "created_at": time(proposal.created),
        "expires_at": time(proposal.expires),
    })
}

/// How sure something is, as a number from 0 to 1.
pub(crate) fn confidence(thousands: u32) -> Value {
    thousandths(thousands)
}

pub(crate) fn link(link: &RecordLink) -> Value {
    json!({
        "id": link.id,
        "source_id": link.source_id,
        "target_id": link.target_id,
        "relation": link.relation,
    })
}

/// Another session at work on a path.
pub(crate) fn conflict(conflict: &SessionConflict) -> Value {
    json!({
        "session_id": conflict.session_id,
        "agent_type": conflict.agent_type,
        "goal": conflict.goal,
        "kind": conflict.kind,
        "at": time(conflict.at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let check = |text: &str, most: usize, expect: &str| {
            assert_eq!(cut(text, TextLength::Cut(most)).0, expect);
        };
        check("abcdef", 6, "abcdef");
        check("abcdefg", 6, "abc...");
        check("ééééééé", 6, "ééé...");
        check("abcdefg", 2, "...");
    }
}
