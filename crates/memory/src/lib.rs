//! The governed memory: agents propose, people approve, and every step is in the ledger. Agents read approved records only. Implements a
//! native upstream of the gateway; prints nothing.

mod arguments;
mod brief;
pub mod classify;
pub mod error;
mod explore;
mod files;
mod govern;
pub mod inbox;
pub mod legacy;
pub mod markdown;
mod recall;
mod rooms;
mod route;
pub mod server;
mod session;
pub mod tools;
pub mod upstream;
mod view;
pub mod words;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use countersign_policy::envelope::Envelope;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_store::Store;
use countersign_store::memory::MemoryActor;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

pub use arguments::place;
pub use error::{MemoryError, MemoryResult, MemoryToolReply};
pub use govern::{RecordDraft, direct, proposal_body};
pub use recall::search;
pub use view::{TextLength, proposal as proposal_view, record as record_view};

use rooms::ProjectRooms;

/// How long a proposal waits for a person.
pub const PROPOSAL_LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How often what nobody decided in time is closed, at most.
const SWEEP_EVERY: SignedDuration = SignedDuration::from_secs(60);

#[derive(Clone)]
pub struct Memory {
    store: Store,
    folder: PathBuf,
    swept: Arc<Mutex<Option<Timestamp>>>,
}

impl Memory {
    /// The memory in these records, of the project in this folder.
    pub fn new(store: Store, folder: impl Into<PathBuf>) -> Self {
        Self { store, folder: folder.into(), swept: Arc::default() }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Calls a tool; none if there is no such tool. Refuses agents a tool for people, even if a rule let it through.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        actor: &MemoryActor,
        now: Timestamp,
    ) -> Option<Envelope> {
        let class = tools::class(tool)?;
        let outcome = match (class.role, actor.role) {
            (Role::Human, Role::Agent) => Err(tools::not_for_agents(tool).into()),
            (Role::Human, Role::Human) | (Role::Agent, Role::Agent | Role::Human) => {
                self.act(tool, arguments, actor, now).await
            }
        };
        Some(error::envelope(tool, outcome))
    }

    /// The same without the role check, for callers that made it: the answer before it is put into an envelope.
    pub async fn act(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        actor: &MemoryActor,
        now: Timestamp,
    ) -> MemoryResult<MemoryToolReply> {
        let known = tools::known(tool);
        let given = arguments::MemoryArguments::read(arguments, &known)?;
        self.sweep(now).await;
        match tool {
            "store" => govern::store(self, &given, actor, now).await,
            "store_direct" => govern::store_direct(self, &given, actor, now).await,
            "list_proposals" => inbox::list_proposals(self, &given, now).await,
            "approve" => govern::approve(self, &given, actor, now).await,
            "reject" => govern::reject(self, &given, actor, now).await,
            "recall_outcome" => govern::outcome(self, &given, actor, now).await,
            "recall_link" => govern::link(self, &given, actor, now).await,
            "recall_unlink" => govern::unlink(self, &given, actor, now).await,
            "recall" => recall::recall(self, &given, recall::RecordSelection::Records).await,
            "recall_decisions" => recall::recall(self, &given, recall::RecordSelection::Decisions).await,
            "recall_ideas" => recall::recall(self, &given, recall::RecordSelection::Ideas).await,
            "brief" => brief::brief(self, &given, now).await,
            "brief_file" => brief::brief_file(self, &given, now).await,
            "explore" => explore::explore(self, &given).await,
            "explore_rooms" => explore::rooms(self, &given).await,
            "explore_file" => explore::file(self, &given, now).await,
            "explore_context" => explore::context(self, &given).await,
            "get_route" => route::get_route(self, &given).await,
            "session_start" => session::start(self, &given, actor, now).await,
            "session_log" => session::log(self, &given, actor, now).await,
            "session_end" => session::end(self, &given, actor, now).await,
            other => Err(Refusal::new(Code::ToolNotFound, format!("there is no tool `{other}`")).into()),
        }
    }

    /// Closes proposals that expired, once in a while; reads compare with the clock anyway.
    pub async fn sweep(&self, now: Timestamp) {
        {
            let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
            if swept.is_some_and(|before| now.duration_since(before) < SWEEP_EVERY) {
                return;
            }
            *swept = Some(now);
        }
        // The next write reports a store that can't be written.
        let _ = self.store.expire_proposals(now).await;
    }

    fn rooms(&self) -> ProjectRooms {
        ProjectRooms::read(&self.folder)
    }
}
