//! Notifications of other replicas that a plan has another state. PostgreSQL only; on SQLite readers poll. A notification only wakes:
//! the state itself is read from the tables.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use countersign_policy::ids::PlanId;
use tokio::sync::{broadcast, oneshot};

use crate::Store;
use crate::engine::{ConnectionFactory, ReplicaMessage};
use crate::fault::StoreFault;
use crate::writer::Tx;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// This plan is new or has another state.
    Plan(PlanId),
    /// Messages may have been lost: read again everything that matters.
    Missed,
}

/// How many messages are buffered for a slow receiver.
const WAITING: usize = 4096;

/// Receives changes of other replicas, from the first subscription on.
pub(crate) struct ChangeListener {
    sender: broadcast::Sender<Changed>,
    hearing: Arc<AtomicBool>,
    home: Arc<dyn ConnectionFactory>,
    instance: String,
    listening: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

impl ChangeListener {
    pub(crate) fn new(home: Arc<dyn ConnectionFactory>, instance: String) -> Self {
        Self {
            sender: broadcast::channel(WAITING).0,
            hearing: Arc::default(),
            home,
            instance,
            listening: Mutex::default(),
        }
    }

    fn start(&self) {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        if listening.is_some() {
            return;
        }
        let (home, own) = (Arc::clone(&self.home), self.instance.clone());
        let (sender, hearing) = (self.sender.clone(), Arc::clone(&self.hearing));
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("store-listener".into()).spawn(move || {
            let mut receive = |news: ReplicaMessage<'_>| {
                let changed = match news {
                    ReplicaMessage::Connected => {
                        hearing.store(true, Ordering::Release);
                        Some(Changed::Missed)
                    }
                    ReplicaMessage::Disconnected => {
                        hearing.store(false, Ordering::Release);
                        None
                    }
                    ReplicaMessage::Received(text) => parse_message(text, &own),
                };
                if let Some(changed) = changed {
                    // Without a subscriber this fails, which is fine.
                    let _ = sender.send(changed);
                }
            };
            home.listen(&own, &mut receive, ended);
        });
        // Without a thread no notification arrives, and subscribers poll.
        if let Ok(thread) = thread {
            *listening = Some((end, thread));
        }
    }

    /// Stops listening and waits for the thread.
    pub(crate) fn end(&self) {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((end, thread)) = listening {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// Parses a message; none for one of our own.
fn parse_message(text: &str, own: &str) -> Option<Changed> {
    match text.split_once(' ') {
        Some((from, _)) if from == own => None,
        Some((_, plan)) => Some(Changed::Plan(PlanId::new(plan))),
        None => Some(Changed::Missed),
    }
}

impl Store {
    /// Subscribes to changes by other replicas. On SQLite nothing ever arrives.
    pub fn changes(&self) -> broadcast::Receiver<Changed> {
        let listener = self.change_listener();
        let receiver = listener.sender.subscribe();
        listener.start();
        receiver
    }

    /// Whether changes by other replicas arrive at present. If not, poll.
    pub fn is_hearing(&self) -> bool {
        self.change_listener().hearing.load(Ordering::Acquire)
    }
}

impl Tx<'_> {
    /// Notifies other replicas of a plan's new state when this transaction commits.
    pub(crate) fn notify_plan(&mut self, plan: &PlanId) -> Result<(), StoreFault> {
        let news = format!("{} {plan}", self.instance);
        self.notify(&news)
    }
}
