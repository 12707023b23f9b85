//! The tables of the governed memory: proposals, records, links, sessions. A decision and its audit row are one transaction; of all racing
//! decisions one wins. What a record means is decided in `policy`.

mod audit;
mod find;
mod links;
mod proposals;
mod records;
mod review;
mod sessions;
mod text;

use countersign_policy::digest::Digest;
use countersign_policy::ids::{LedgerId, PrincipalId, SessionId};
use countersign_policy::memory::{RecordKind, Scope};
use countersign_policy::record::{RowKind, RowStatus, Source};
use countersign_policy::role::Role;
use jiff::Timestamp;
use serde_json::{Map, Value};

pub use audit::{AUDITED, AuditFilter, MemoryAuditRow};
pub use find::{Holding, RecordQuery, Terms};
pub use links::{NotLinked, RecordLink};
pub use proposals::{NewProposal, Proposal, ProposalQuery, Proposed};
pub use records::{MemoryRecord, NewRecord, Origin};
pub use review::{NotReviewed, ReviewRuling, ReviewedProposal, Rewording};
pub use sessions::{Activity, NewSession, NotLogged, SESSION_IDLE, SessionConflict, SessionRow};

use crate::ledger::Entry;

/// The name under which rows about memory stand in the ledger.
pub const UPSTREAM: &str = "memory";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryActor {
    pub principal: PrincipalId,
    pub role: Role,
    pub session: Option<SessionId>,
    pub source: Source,
    /// The name a person acts under, for the audit; the principal is in the row as well.
    pub named: Option<String>,
}

impl MemoryActor {
    pub fn audited(&self) -> &str {
        self.named.as_deref().filter(|name| !name.is_empty()).unwrap_or(self.principal.as_str())
    }

    /// A row about what this actor did to something.
    fn entry(&self, status: RowStatus, audit_action: AuditAction<'_>, more: Map<String, Value>) -> Entry {
        let mut detail = Map::new();
        detail.insert("action".into(), audit_action.action.into());
        detail.insert("entity_type".into(), audit_action.entity_type.into());
        detail.insert("entity_id".into(), audit_action.entity_id.into());
        detail.insert("actor_id".into(), text::plain(self.audited()).into());
        detail.extend(more);
        let mut entry = Entry::new(RowKind::Memory, status).with_detail(&Value::Object(detail));
        entry.principal = Some(self.principal.clone());
        entry.role = Some(self.role.into());
        entry.session.clone_from(&self.session);
        entry.source = Some(self.source);
        entry.upstream = Some(UPSTREAM.into());
        entry.tool = Some(audit_action.tool.into());
        entry
    }
}

#[derive(Clone, Copy)]
struct AuditAction<'a> {
    tool: &'a str,
    action: &'a str,
    entity_type: &'a str,
    entity_id: &'a str,
}

/// What is remembered, and where it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    pub content: String,
    pub rationale: String,
    pub context: String,
    pub tags: Vec<String>,
    pub scope: Scope,
    /// The file's or room's name; empty for the whole project.
    pub path: String,
    /// The terms it is found by: lower-case ASCII letters and digits, separated by spaces.
    pub words: String,
}

impl Body {
    fn place(&self) -> String {
        place_key(self.scope, &self.path)
    }

    /// Equal for texts of one kind and place that differ only in case and white space.
    pub fn dedupe_key(&self, kind: RecordKind) -> String {
        let content: Vec<String> = self.content.split_whitespace().map(str::to_lowercase).collect();
        let parts = [kind.as_str(), &self.place(), &content.join(" ")].join("\n");
        Digest::plain(parts.as_bytes()).hex()
    }

    /// The terms and those of kind and place. No text can contain the latter: words have no underscore.
    fn terms(&self, kind: RecordKind) -> String {
        let mut terms = find::clean(&self.words);
        terms.push(find::kind_term(kind));
        terms.push(find::place_term(&self.place()));
        terms.join(" ")
    }
}

/// A place as an index key of bounded length.
fn place_key(scope: Scope, path: &str) -> String {
    match scope {
        Scope::Palace => "palace".to_owned(),
        Scope::File | Scope::Room => {
            let digest = Digest::plain(path.as_bytes()).hex();
            format!("{scope}_{}", digest.get(..32).unwrap_or(&digest))
        }
    }
}

/// A new id: the kind's letters and a ULID.
fn new_id(prefix: &str, mint: &crate::random::LedgerIdGenerator, now: Timestamp) -> String {
    let id: LedgerId = mint.next(now);
    format!("{prefix}_{id}")
}

/// The letters ids of a kind begin with.
const fn prefix(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Decision => "d",
        RecordKind::Learning => "lrn",
        RecordKind::Idea => "i",
    }
}

/// The hash an audit names a text by.
pub fn content_hash(content: &str) -> String {
    Digest::plain(content.as_bytes()).hex()
}
