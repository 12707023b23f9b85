//! When upstreams are first needed, and whether a client that needs them has roots. Lazy upstreams open no connection before that, so that
//! they are offered the capabilities of a real client.

use std::sync::atomic::{AtomicBool, Ordering};

use countersign_mcp::raw;
use countersign_mcp::server::ClientInfo;
use tokio::sync::watch;

pub(crate) struct UpstreamDemand {
    is_raised: watch::Sender<bool>,
    has_roots: AtomicBool,
}

impl Default for UpstreamDemand {
    fn default() -> Self {
        Self { is_raised: watch::Sender::new(false), has_roots: AtomicBool::new(false) }
    }
}

impl UpstreamDemand {
    /// Registers a client. Returns whether it is the first need of the upstreams.
    pub(crate) fn note_client(&self, client: &ClientInfo) -> bool {
        // Roots first: a connection that opens on this demand declares them.
        if client.capabilities.as_deref().is_some_and(|all| raw::get(all, "roots").is_some()) {
            self.has_roots.store(true, Ordering::SeqCst);
        }
        self.raise()
    }

    /// Declares roots before any client connects: over HTTP all clients share one connection to an upstream.
    pub(crate) fn expect_roots(&self) {
        self.has_roots.store(true, Ordering::SeqCst);
    }

    /// Returns whether this is the first need of the upstreams.
    pub(crate) fn raise(&self) -> bool {
        // Read first: this runs for every request.
        !self.is_raised() && self.is_raised.send_if_modified(|is_raised| !std::mem::replace(is_raised, true))
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.is_raised.borrow()
    }

    /// Whether a client with roots has connected, or may.
    pub(crate) fn has_roots(&self) -> bool {
        self.has_roots.load(Ordering::SeqCst)
    }

    pub(crate) async fn raised(&self) {
        // The sender is ours: it does not go away.
        let _ = self.is_raised.subscribe().wait_for(|is_raised| *is_raised).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(capabilities: &str) -> ClientInfo {
        ClientInfo { info: None, capabilities: Some(raw::from_text(capabilities).unwrap()) }
    }

    #[tokio::test]
    async fn the_first_need_is_reported_once_and_roots_are_those_of_a_client() {
        let demand = UpstreamDemand::default();
        assert!(!demand.is_raised() && !demand.has_roots());
        assert!(demand.note_client(&client("{}")));
        demand.raised().await;
        assert!(!demand.has_roots(), "a client without roots");
        assert!(!demand.note_client(&client(r#"{"roots":{}}"#)), "the second client");
        assert!(demand.has_roots());
        assert!(!demand.raise());
    }
}
