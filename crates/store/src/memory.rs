//! The governed memory's rows: proposals, records, links, sessions. A decision and its audit row are one transaction;
//! of all who decide, one wins. What is true is decided in `core`, what is shown by whoever asks.

mod audit;
mod find;
mod links;
mod proposals;
mod records;
mod review;
mod sessions;
mod text;

use countersign_core::digest::Digest;
use countersign_core::ids::{LedgerId, PrincipalId, SessionId};
use countersign_core::memory::{RecordKind, Scope};
use countersign_core::record::{RowKind, RowStatus, Source};
use countersign_core::role::Role;
use jiff::Timestamp;
use serde_json::{Map, Value};

pub use audit::{AUDITED, AuditFilter, Audited};
pub use find::{Holding, RecordQuery, Terms};
pub use links::{Link, NotLinked};
pub use proposals::{NewProposal, Proposal, ProposalQuery, Proposed};
pub use records::{NewRecord, Origin, Record};
pub use review::{NotReviewed, Reviewed, Rewording, Ruling};
pub use sessions::{Activity, Conflict, NewSession, NotLogged, SESSION_IDLE, SessionRow};

use crate::ledger::Entry;

/// The name under which rows about memory stand in the ledger.
pub const UPSTREAM: &str = "memory";

/// Who acts on the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Who is on the line.
    pub principal: PrincipalId,
    /// As what.
    pub role: Role,
    /// In which session of the line.
    pub session: Option<SessionId>,
    /// Through which door.
    pub source: Source,
    /// As whom a person's line says to act, for the audit; the principal is in the row as well.
    pub named: Option<String>,
}

impl Actor {
    /// Whom the audit names.
    pub fn audited(&self) -> &str {
        self.named.as_deref().filter(|name| !name.is_empty()).unwrap_or(self.principal.as_str())
    }

    /// A row about what this actor did to something.
    fn entry(&self, status: RowStatus, deed: Deed<'_>, more: Map<String, Value>) -> Entry {
        let mut detail = Map::new();
        detail.insert("action".into(), deed.action.into());
        detail.insert("entity_type".into(), deed.entity_type.into());
        detail.insert("entity_id".into(), deed.entity_id.into());
        detail.insert("actor_id".into(), text::plain(self.audited()).into());
        detail.extend(more);
        let mut entry = Entry::new(RowKind::Memory, status).with_detail(&Value::Object(detail));
        entry.principal = Some(self.principal.clone());
        entry.role = Some(self.role.into());
        entry.session.clone_from(&self.session);
        entry.source = Some(self.source);
        entry.upstream = Some(UPSTREAM.into());
        entry.tool = Some(deed.tool.into());
        entry
    }
}

/// What was done to what.
#[derive(Clone, Copy)]
struct Deed<'a> {
    tool: &'a str,
    action: &'a str,
    entity_type: &'a str,
    entity_id: &'a str,
}

/// What is remembered, and where it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The sentence itself.
    pub content: String,
    /// Why.
    pub rationale: String,
    /// Around what.
    pub context: String,
    /// Labels.
    pub tags: Vec<String>,
    /// How far it reaches.
    pub scope: Scope,
    /// The file's or room's name; empty for the whole palace.
    pub path: String,
    /// The terms it is found by: lower-case ASCII letters and digits, separated by spaces.
    pub words: String,
}

impl Body {
    fn place(&self) -> String {
        place_key(self.scope, &self.path)
    }

    /// Equal for texts that differ only in case and white space, per kind and place.
    pub fn dedupe_key(&self, kind: RecordKind) -> String {
        let content: Vec<String> = self.content.split_whitespace().map(str::to_lowercase).collect();
        let parts = [kind.as_str(), &self.place(), &content.join(" ")].join("\n");
        Digest::plain(parts.as_bytes()).hex()
    }

    /// The terms with those of kind and place, which no text can bring itself: an underscore is in no word.
    fn terms(&self, kind: RecordKind) -> String {
        let mut terms = find::clean(&self.words);
        terms.push(find::kind_term(kind));
        terms.push(find::place_term(&self.place()));
        terms.join(" ")
    }
}

/// A place as an index can keep it, whatever its length.
fn place_key(scope: Scope, path: &str) -> String {
    match scope {
        Scope::Palace => "palace".to_owned(),
        Scope::File | Scope::Room => {
            let digest = Digest::plain(path.as_bytes()).hex();
            format!("{scope}_{}", digest.get(..32).unwrap_or(&digest))
        }
    }
}

/// A new id: the kind's letters and a ULID, whose eighty random bits two writers never share.
fn new_id(prefix: &str, mint: &crate::chance::Mint, now: Timestamp) -> String {
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
