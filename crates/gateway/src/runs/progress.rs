//! Progress notifications for a client that waits for a command. A slow client delays nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_mcp::client::NotificationRelay;
use countersign_mcp::jsonrpc::Notification;
use countersign_mcp::raw::{self, RawJson};
use serde_json::json;

/// How long a client may take to accept a notification.
const PATIENCE: Duration = Duration::from_millis(200);
const LINE: usize = 200;

pub(crate) struct ProgressReporter {
    relay: Arc<dyn NotificationRelay>,
    token: RawJson,
    start: Instant,
}

impl ProgressReporter {
    pub(crate) fn new(relay: Arc<dyn NotificationRelay>, token: RawJson) -> Self {
        Self { relay, token, start: Instant::now() }
    }

    /// The elapsed time and the last line of output.
    pub(super) async fn report(&self, last: Option<&str>) {
        let message = last.map_or_else(|| "running".to_owned(), |line| crate::escape::excerpt(line, LINE));
        let seconds = (self.start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        let params =
            raw::to_raw(&json!({"progressToken": self.token, "progress": seconds, "message": message}));
        let told = self.relay.notification(Notification::new("notifications/progress", Some(params)));
        // A late notification is dropped: the next one says more.
        let _ = tokio::time::timeout(PATIENCE, told).await;
    }
}
