//! Stop requests, of a caller, a person or a closing gateway, and waiting until all commands have ended.

use std::sync::Arc;

use tokio::sync::watch;

/// The commands of one upstream: stopped together, counted until the last has ended.
pub(crate) struct CommandGroup {
    closing: watch::Sender<bool>,
    at_work: watch::Sender<usize>,
}

impl CommandGroup {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { closing: watch::Sender::new(false), at_work: watch::Sender::new(0) })
    }

    /// Registers a command; none once the group is stopped.
    pub(crate) fn join(self: &Arc<Self>) -> Option<(Stopper, StopSignal)> {
        // Counted before the check: either `close` waits for this command, or the command sees the stop.
        self.at_work.send_modify(|count| *count += 1);
        let member = GroupMember(Arc::clone(self));
        if self.is_closed() {
            return None;
        }
        let (own, told) = watch::channel(false);
        let stop = StopSignal { own: told, closing: self.closing.subscribe(), _member: member };
        Some((Stopper(own), stop))
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closing.borrow()
    }

    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        let mut at_work = self.at_work.subscribe();
        // The sender is ours: this ends when the count is zero, not by an error.
        let _ = at_work.wait_for(|count| *count == 0).await;
    }
}

struct GroupMember(Arc<CommandGroup>);

impl Drop for GroupMember {
    fn drop(&mut self) {
        self.0.at_work.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Stops one command, on request and when dropped.
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

/// The command's side. While it lives, the command counts as running.
pub(crate) struct StopSignal {
    own: watch::Receiver<bool>,
    closing: watch::Receiver<bool>,
    _member: GroupMember,
}

impl StopSignal {
    pub(crate) async fn raised(&mut self) {
        // A dropped sender is a stop request too.
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
        let command_group = CommandGroup::new();
        let (first, mut stop) = command_group.join().unwrap();
        assert!(!stop.is_raised());
        drop(first);
        stop.raised().await;
        let (_second, mut other) = command_group.join().unwrap();
        let closed = tokio::spawn({
            let command_group = Arc::clone(&command_group);
            async move { command_group.close().await }
        });
        other.raised().await;
        assert!(command_group.join().is_none());
        drop(stop);
        assert!(!closed.is_finished());
        drop(other);
        closed.await.unwrap();
    }
}
