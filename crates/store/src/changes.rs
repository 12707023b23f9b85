//! News of other replicas: which plan came to another state. Heard on PostgreSQL; elsewhere one process has the store to itself
//! or looks now and then. News only wakes: what is true is read from the tables.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use countersign_core::ids::PlanId;
use tokio::sync::{broadcast, oneshot};

use crate::Store;
use crate::engine::{Home, News};
use crate::fault::StoreFault;
use crate::writer::Tx;

/// What another replica did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// This plan came up or came to another state.
    Plan(PlanId),
    /// Something may have been missed: look at everything that matters.
    Missed,
}

/// How many pieces of news may wait for a listener that is slow.
const WAITING: usize = 4096;

/// The ear of one store, once somebody wants to hear.
pub(crate) struct Ear {
    tell: broadcast::Sender<Changed>,
    hearing: Arc<AtomicBool>,
    home: Arc<dyn Home>,
    instance: String,
    listening: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

impl Ear {
    pub(crate) fn new(home: Arc<dyn Home>, instance: String) -> Self {
        Self {
            tell: broadcast::channel(WAITING).0,
            hearing: Arc::default(),
            home,
            instance,
            listening: Mutex::default(),
        }
    }

    /// Begins to listen, once.
    fn start(&self) {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        if listening.is_some() {
            return;
        }
        let (home, own) = (Arc::clone(&self.home), self.instance.clone());
        let (tell, hearing) = (self.tell.clone(), Arc::clone(&self.hearing));
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("store-ear".into()).spawn(move || {
            let mut heard = |news: News<'_>| {
                let changed = match news {
                    News::Hearing => {
                        hearing.store(true, Ordering::Release);
                        Some(Changed::Missed)
                    }
                    News::Deaf => {
                        hearing.store(false, Ordering::Release);
                        None
                    }
                    News::Said(text) => read(text, &own),
                };
                if let Some(changed) = changed {
                    // Nobody listening is no fault.
                    let _ = tell.send(changed);
                }
            };
            home.listen(&own, &mut heard, ended);
        });
        // Without a thread nobody hears, and whoever waits looks now and then.
        if let Ok(thread) = thread {
            *listening = Some((end, thread));
        }
    }

    /// Stops listening and waits until that is done.
    pub(crate) fn end(&self) {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((end, thread)) = listening {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// What was said, unless we said it ourselves.
fn read(text: &str, own: &str) -> Option<Changed> {
    match text.split_once(' ') {
        Some((from, _)) if from == own => None,
        Some((_, plan)) => Some(Changed::Plan(PlanId::new(plan))),
        None => Some(Changed::Missed),
    }
}

impl Store {
    /// Hears what other replicas do from now on. On SQLite nothing ever comes.
    pub fn changes(&self) -> broadcast::Receiver<Changed> {
        let ear = self.ear();
        let receiver = ear.tell.subscribe();
        ear.start();
        receiver
    }

    /// Whether news of other replicas arrives just now; where it does not, looking now and then is the way.
    pub fn is_hearing(&self) -> bool {
        self.ear().hearing.load(Ordering::Acquire)
    }
}

impl Tx<'_> {
    /// Tells other replicas that a plan came to another state, when and if this is committed.
    pub(crate) fn tell(&mut self, plan: &PlanId) -> Result<(), StoreFault> {
        let news = format!("{} {plan}", self.instance);
        self.tell_news(&news)
    }
}
