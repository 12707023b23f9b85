//! Progress of a command that a client waits for: told while it runs, to who asked for it. A client that does not listen holds
//! nothing up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_wire::frame::Notification;
use countersign_wire::raw::{self, Raw};
use countersign_wire::upstream::Relay;
use serde_json::json;

/// How long a client may take to take a notification.
const PATIENCE: Duration = Duration::from_millis(200);
/// How much of a line is told.
const LINE: usize = 200;

/// Tells a client how its command goes.
pub(crate) struct Progress {
    relay: Arc<dyn Relay>,
    token: Raw,
    start: Instant,
}

impl Progress {
    /// For a request that carried this token.
    pub(crate) fn new(relay: Arc<dyn Relay>, token: Raw) -> Self {
        Self { relay, token, start: Instant::now() }
    }

    /// How long it has run by now, and the last line it wrote.
    pub(super) async fn tell(&self, last: Option<&str>) {
        let message = last.map_or_else(|| "running".to_owned(), |line| crate::escape::excerpt(line, LINE));
        let seconds = (self.start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        let params =
            raw::to_raw(&json!({"progressToken": self.token, "progress": seconds, "message": message}));
        let told = self.relay.notification(Notification::new("notifications/progress", Some(params)));
        // One that is late is left out: the next says more.
        let _ = tokio::time::timeout(PATIENCE, told).await;
    }
}
