//! The governed memory: agents propose, people decide what is true, and every step is in the ledger. What agents read is
//! only what a person stands behind. Knows the law and the records; never the gateway, nor how anything is printed.

mod arguments;
mod brief;
pub mod classify;
mod explore;
mod files;
mod govern;
pub mod inbox;
pub mod legacy;
pub mod line;
pub mod markdown;
mod recall;
mod rooms;
mod route;
mod session;
pub mod stop;
pub mod tools;
mod view;
pub mod words;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use countersign_core::envelope::Envelope;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_store::Store;
use countersign_store::memory::Actor;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

pub use arguments::place;
pub use govern::{Wording, direct, proposal_body};
pub use recall::search;
pub use stop::{Outcome, Reply, Stop};
pub use view::{Length, proposal as proposal_view, record as record_view};

use rooms::Rooms;

/// How long a proposal waits for a person.
pub const PROPOSAL_LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How often what nobody decided in time is closed, at most.
const SWEEP_EVERY: SignedDuration = SignedDuration::from_secs(60);

/// The memory of one project.
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

    /// The records.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Calls a tool; none if there is no such tool. What is for people only is refused here as well, whoever let it through.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        actor: &Actor,
        now: Timestamp,
    ) -> Option<Envelope> {
        let class = tools::class(tool)?;
        let outcome = match (class.role, actor.role) {
            (Role::Human, Role::Agent) => Err(tools::not_for_agents(tool).into()),
            (Role::Human, Role::Human) | (Role::Agent, Role::Agent | Role::Human) => {
                self.act(tool, arguments, actor, now).await
            }
        };
        Some(stop::envelope(tool, outcome))
    }

    /// The same for whoever made sure of the role: the answer before it is put into an envelope.
    pub async fn act(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        actor: &Actor,
        now: Timestamp,
    ) -> Outcome<Reply> {
        let known = tools::known(tool);
        let given = arguments::Given::read(arguments, &known)?;
        self.sweep(now).await;
        match tool {
            "store" => govern::store(self, &given, actor, now).await,
            "store_direct" => govern::store_direct(self, &given, actor, now).await,
            "approve" => govern::approve(self, &given, actor, now).await,
            "reject" => govern::reject(self, &given, actor, now).await,
            "recall_outcome" => govern::outcome(self, &given, actor, now).await,
            "recall_link" => govern::link(self, &given, actor, now).await,
            "recall_unlink" => govern::unlink(self, &given, actor, now).await,
            "recall" => recall::recall(self, &given, recall::Which::Records).await,
            "recall_decisions" => recall::recall(self, &given, recall::Which::Decisions).await,
            "recall_ideas" => recall::recall(self, &given, recall::Which::Ideas).await,
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

    /// Closes what nobody decided in time, once in a while. Whoever reads judges by the clock anyway.
    pub async fn sweep(&self, now: Timestamp) {
        {
            let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
            if swept.is_some_and(|before| now.duration_since(before) < SWEEP_EVERY) {
                return;
            }
            *swept = Some(now);
        }
        // A store that can't be written says so to whoever writes next.
        let _ = self.store.expire_proposals(now).await;
    }

    fn rooms(&self) -> Rooms {
        Rooms::read(&self.folder)
    }
}
