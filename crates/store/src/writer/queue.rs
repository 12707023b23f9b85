//! The writer's queue. Whoever hands work over wakes the writer only where it waits for just that: rows that may be written
//! later gather without anybody being woken, since waking a thread costs the caller more than the row itself.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::deed::Deed;

/// The writer's queue, on the side of those who hand over.
#[derive(Clone)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
}

/// The writer's own side; when it is dropped, nothing is taken any more.
pub(crate) struct Work {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    deeds: VecDeque<Box<dyn Deed>>,
    /// How many of them someone waits for.
    urgent: usize,
    wants: Wants,
    end: End,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// Nothing more comes; what is there is still done.
    Closed,
}

/// What the writer waits for.
#[derive(Clone, Copy, Default)]
pub(crate) enum Wants {
    /// It works.
    #[default]
    Nothing,
    /// Anything at all.
    Any,
    /// Work that someone waits for, or so much that it is enough.
    UrgentOr(usize),
    /// So much work.
    Many(usize),
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There is what was waited for.
    There,
    /// The time is over.
    Late,
    /// Nothing more will come.
    Closed,
}

/// A queue and the side that works it off.
pub(crate) fn queue() -> (Queue, Work) {
    let shared = Arc::new(Shared::default());
    (Queue { shared: Arc::clone(&shared) }, Work { shared })
}

impl Queue {
    /// Hands work over; false where the writer is gone or the queue was closed.
    #[must_use]
    pub(crate) fn push(&self, deed: Box<dyn Deed>) -> bool {
        let mut state = self.shared.lock();
        if state.end == End::Closed {
            return false;
        }
        state.urgent += usize::from(deed.is_urgent());
        state.deeds.push_back(deed);
        if state.has(state.wants) {
            // Woken once: until it waits again, it wants nothing.
            state.wants = Wants::Nothing;
            drop(state);
            self.shared.wake.notify_one();
        }
        true
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        self.shared.close();
    }
}

impl Work {
    /// Waits for what is wanted, for so long.
    pub(crate) fn wait(&self, wants: Wants, longest: Duration) -> Waited {
        let began = Instant::now();
        let mut state = self.shared.lock();
        loop {
            let left = longest.saturating_sub(began.elapsed());
            let waited = match state.has(wants) {
                true => Some(Waited::There),
                false if state.end == End::Closed => Some(Waited::Closed),
                false if left.is_zero() => Some(Waited::Late),
                false => None,
            };
            if let Some(waited) = waited {
                state.wants = Wants::Nothing;
                return waited;
            }
            state.wants = wants;
            let woken = self.shared.wake.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether somebody waits for something that is there.
    pub(crate) fn is_urgent(&self) -> bool {
        self.shared.lock().urgent > 0
    }

    /// Takes what is there, oldest first, no more than so many.
    pub(crate) fn take(&self, most: usize) -> Vec<Box<dyn Deed>> {
        let mut state = self.shared.lock();
        let many = state.deeds.len().min(most);
        let taken: Vec<_> = state.deeds.drain(..many).collect();
        state.urgent -= taken.iter().filter(|deed| deed.is_urgent()).count();
        taken
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.shared.close();
        // Whoever waits for an answer learns that none will come.
        self.shared.lock().deeds.clear();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().end = End::Closed;
        self.wake.notify_all();
    }
}

impl State {
    fn has(&self, wants: Wants) -> bool {
        match wants {
            Wants::Nothing => false,
            Wants::Any => !self.deeds.is_empty(),
            Wants::UrgentOr(enough) => self.urgent > 0 || self.deeds.len() >= enough,
            Wants::Many(enough) => self.deeds.len() >= enough,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::deed::{Keep, ask, tell};
    use super::*;
    use tokio::sync::Semaphore;

    const LONG: Duration = Duration::from_secs(30);

    fn later() -> Box<dyn Deed> {
        tell(None, Keep::Not, |_| Ok(()))
    }

    fn urgent() -> Box<dyn Deed> {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        ask(Instant::now(), place, Keep::Not, |_| Ok(())).0
    }

    #[test]
    fn what_may_wait_wakes_nobody_until_it_is_enough() {
        let (queue, work) = queue();
        assert!(queue.push(later()));
        assert_eq!(work.wait(Wants::Any, LONG), Waited::There);
        assert_eq!(work.wait(Wants::UrgentOr(3), Duration::from_millis(1)), Waited::Late);
        assert!(!work.is_urgent());
        assert!(queue.push(later()) && queue.push(later()));
        assert_eq!(work.wait(Wants::UrgentOr(3), LONG), Waited::There);
        assert_eq!(work.take(2).len(), 2);
        assert_eq!(work.take(9).len(), 1);
    }

    #[test]
    fn someone_who_waits_ends_the_gathering() {
        let (queue, work) = queue();
        let gathering = std::thread::spawn(move || {
            let waited = work.wait(Wants::UrgentOr(512), LONG);
            (waited, work.is_urgent(), work.take(512).len(), work.is_urgent())
        });
        assert!(queue.push(later()) && queue.push(urgent()));
        assert_eq!(gathering.join().unwrap(), (Waited::There, true, 2, false));
    }

    #[test]
    fn what_was_handed_over_before_the_end_is_still_there() {
        let (queue, work) = queue();
        assert!(queue.push(later()));
        queue.close();
        assert!(!queue.push(later()), "nothing is taken after the end");
        assert_eq!(work.wait(Wants::Any, LONG), Waited::There);
        assert_eq!(work.take(9).len(), 1);
        assert_eq!(work.wait(Wants::Any, LONG), Waited::Closed);
    }

    #[test]
    fn a_writer_that_is_gone_takes_nothing() {
        let (queue, work) = queue();
        drop(work);
        assert!(!queue.push(later()));
    }
}
