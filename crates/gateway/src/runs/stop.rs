//! Wishes to stop: of whoever waits for a command, of a person, of a house that closes. And knowing when everyone has left.

use std::sync::Arc;

use tokio::sync::watch;

/// The commands of one upstream: told to stop together, counted until the last has left.
pub(crate) struct Crew {
    closing: watch::Sender<bool>,
    at_work: watch::Sender<usize>,
}

impl Crew {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { closing: watch::Sender::new(false), at_work: watch::Sender::new(0) })
    }

    /// One more at work; none once the crew is told to stop.
    pub(crate) fn join(self: &Arc<Self>) -> Option<(Stopper, Stop)> {
        // Counted before the look, so that whoever closes waits for this one or this one sees the close.
        self.at_work.send_modify(|count| *count += 1);
        let member = Member(Arc::clone(self));
        if self.is_closed() {
            return None;
        }
        let (own, told) = watch::channel(false);
        let stop = Stop { own: told, closing: self.closing.subscribe(), _member: member };
        Some((Stopper(own), stop))
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closing.borrow()
    }

    /// Tells everyone to stop and waits until they have.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        let mut at_work = self.at_work.subscribe();
        // The sender is ours: this ends when the count is nought, not by an error.
        let _ = at_work.wait_for(|count| *count == 0).await;
    }
}

struct Member(Arc<Crew>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.at_work.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Stops one command: when told to, and when dropped.
pub(crate) struct Stopper(watch::Sender<bool>);

impl Stopper {
    pub(crate) fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Hears that its command should stop. While it lives, its command counts as at work.
pub(crate) struct Stop {
    own: watch::Receiver<bool>,
    closing: watch::Receiver<bool>,
    _member: Member,
}

impl Stop {
    /// Returns once anyone wants the command to stop.
    pub(crate) async fn raised(&mut self) {
        // A sender that is gone wants nothing any more but the end.
        tokio::select! {
            _ = self.own.wait_for(|told| *told) => {}
            _ = self.closing.wait_for(|told| *told) => {}
        }
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.own.borrow() || *self.closing.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_crew_is_closed_when_the_last_has_left() {
        let crew = Crew::new();
        let (first, mut stop) = crew.join().unwrap();
        assert!(!stop.is_raised());
        drop(first);
        stop.raised().await;
        let (_second, mut other) = crew.join().unwrap();
        let closed = tokio::spawn({
            let crew = Arc::clone(&crew);
            async move { crew.close().await }
        });
        other.raised().await;
        assert!(crew.join().is_none());
        drop(stop);
        assert!(!closed.is_finished());
        drop(other);
        closed.await.unwrap();
    }
}
