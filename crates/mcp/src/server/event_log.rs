//! The events of one SSE stream of a legacy session, numbered and kept for a while, so that a client can resume after a lost connection
//! (`Last-Event-ID`). It repeats events, never a request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use super::session::{ClientUnreachable, lock};

/// How many events, and how many bytes, are kept for an absent reader.
const KEEP_EVENTS: usize = 256;
const KEEP_BYTES: usize = 4 << 20;
/// How far a reader may lag before the sender waits.
const LAG: usize = 256;

#[derive(Debug)]
struct EventLogState {
    events: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// The number of the next event; the first is 1, and 0 means that nothing was read.
    next: u64,
    /// The last event the current reader took.
    read: u64,
    finished: bool,
    /// Counts readers: a newer one ends the older.
    reader: u64,
    attached: bool,
}

#[derive(Debug)]
pub(crate) struct EventLog {
    pub(crate) stream: u64,
    state: Mutex<EventLogState>,
    changed: Notify,
}

#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) number: u64,
    pub(crate) data: Bytes,
}

impl EventLog {
    pub(crate) fn new(stream: u64) -> Arc<Self> {
        let state = EventLogState {
            events: VecDeque::new(),
            bytes: 0,
            next: 1,
            read: 0,
            finished: false,
            reader: 0,
            attached: false,
        };
        Arc::new(Self { stream, state: Mutex::new(state), changed: Notify::new() })
    }

    /// Adds an event; waits while an attached reader lags.
    pub(crate) async fn push(&self, bytes: Vec<u8>) {
        let mut bytes = Some(Bytes::from(bytes));
        loop {
            // Created before the check, or a reader that makes room in between would wake nobody.
            let changed = self.changed.notified();
            if self.try_push(&mut bytes) {
                return;
            }
            changed.await;
        }
    }

    /// Adds an event unless an attached reader lags for too long.
    pub(crate) async fn push_patiently(
        &self,
        bytes: Vec<u8>,
        patience: Duration,
    ) -> Result<(), ClientUnreachable> {
        tokio::time::timeout(patience, self.push(bytes)).await.map_err(|_| ClientUnreachable)
    }

    fn try_push(&self, bytes: &mut Option<Bytes>) -> bool {
        let mut state = lock(&self.state);
        let put_back = state.events.iter().filter(|(number, _)| *number > state.read);
        let (lag, behind) = put_back.fold((0, 0), |(count, sum), (_, bytes)| (count + 1, sum + bytes.len()));
        // Only an attached reader holds the sender back: an absent one may never return.
        if state.attached && (lag >= LAG || behind >= KEEP_BYTES) && !state.finished {
            return false;
        }
        if let Some(bytes) = bytes.take() {
            let number = state.next;
            state.next += 1;
            state.bytes += bytes.len();
            state.events.push_back((number, bytes));
            // A reader may never come back: the oldest events are dropped.
            while state.events.len() > KEEP_EVENTS + LAG || state.bytes > KEEP_BYTES && state.events.len() > 1
            {
                // What the attached reader has not read yet must not be dropped: it would lose a reply.
                let readable =
                    state.attached && state.events.front().is_some_and(|(number, _)| *number > state.read);
                if readable {
                    break;
                }
                if let Some((_, old)) = state.events.pop_front() {
                    state.bytes -= old.len();
                }
            }
        }
        drop(state);
        self.changed.notify_waiters();
        true
    }

    pub(crate) fn finish(&self) {
        lock(&self.state).finished = true;
        self.changed.notify_waiters();
    }

    /// Reads the events after `after`; ends an earlier reader.
    pub(crate) fn attach(self: &Arc<Self>, after: u64) -> EventReader {
        let mut state = lock(&self.state);
        state.reader += 1;
        state.read = after;
        state.attached = true;
        let reader = EventReader { log: self.clone(), turn: state.reader };
        drop(state);
        self.changed.notify_waiters();
        reader
    }

    pub(crate) fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }

    pub(crate) fn is_read(&self) -> bool {
        lock(&self.state).attached
    }

    /// Reads what was not read yet.
    pub(crate) fn attach_unread(self: &Arc<Self>) -> EventReader {
        let read = lock(&self.state).read;
        self.attach(read)
    }
}

/// Only the newest reader of a stream gets events.
#[derive(Debug)]
pub(crate) struct EventReader {
    log: Arc<EventLog>,
    turn: u64,
}

enum ReadStep {
    Event(Event),
    Wait,
    SessionEnd,
}

impl EventReader {
    /// The next event; `None` when the stream is finished or another reader took over.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            let changed = self.log.changed.notified();
            match self.step() {
                ReadStep::Event(event) => {
                    self.log.changed.notify_waiters();
                    return Some(event);
                }
                ReadStep::SessionEnd => return None,
                ReadStep::Wait => changed.await,
            }
        }
    }

    pub(crate) fn stream(&self) -> u64 {
        self.log.stream
    }

    pub(crate) fn position(&self) -> u64 {
        lock(&self.log.state).read
    }

    /// Puts back an event that could not be delivered.
    pub(crate) fn put_back(&self, number: u64) {
        let mut state = lock(&self.log.state);
        // A newer reader may have taken over, and its position is its own.
        if state.reader == self.turn && state.read == number {
            state.read = number - 1;
        }
    }

    fn step(&self) -> ReadStep {
        let mut state = lock(&self.log.state);
        if state.reader != self.turn {
            // A client that reconnects may leave its old connection half open: one of the two gets the events.
            return ReadStep::SessionEnd;
        }
        let read = state.read;
        let found = state.events.iter().find(|(number, _)| *number > read);
        match found.map(|(number, data)| Event { number: *number, data: data.clone() }) {
            Some(event) => {
                state.read = event.number;
                ReadStep::Event(event)
            }
            None if state.finished => ReadStep::SessionEnd,
            None => ReadStep::Wait,
        }
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        let mut state = lock(&self.log.state);
        if state.reader == self.turn {
            state.attached = false;
        }
        drop(state);
        self.log.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_goes_on_where_another_stood() {
        let log = EventLog::new(1);
        for text in ["a", "b", "c"] {
            log.push(text.into()).await;
        }
        let mut first = log.attach(0);
        assert_eq!(first.next().await.unwrap().data, "a");
        let mut second = log.attach(1);
        assert!(first.next().await.is_none());
        assert_eq!(second.next().await.unwrap().data, "b");
        log.finish();
        assert_eq!(second.next().await.unwrap().data, "c");
        assert!(second.next().await.is_none());
        assert_eq!(second.position(), 3);
    }

    #[tokio::test]
    async fn a_lagging_reader_holds_the_sender_back() {
        let log = EventLog::new(1);
        let mut reader = log.attach(0);
        for n in 0..LAG {
            log.push(n.to_string().into()).await;
        }
        assert_eq!(log.push_patiently("late".into(), Duration::from_millis(5)).await, Err(ClientUnreachable));
        assert_eq!(reader.next().await.unwrap().number, 1);
        log.push("now".into()).await;
        drop(reader);
        for n in 0..2000 {
            log.push(n.to_string().into()).await;
        }
    }
}
