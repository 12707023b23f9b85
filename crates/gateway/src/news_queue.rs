//! The queue of notifications from upstreams to clients, bounded for each upstream and in order. A flood drops the oldest
//! notifications of the upstream that sends it, and of no other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_mcp::jsonrpc::Notification;
use countersign_mcp::raw;
use countersign_policy::ids::UpstreamId;
use tokio::sync::Notify;

use crate::upstreams::mcp::NewsListener;

/// Notifications of one upstream that wait at most.
pub(crate) const MOST_WAITING: usize = 256;
/// Bytes of them.
pub(crate) const MOST_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) enum UpstreamNews {
    /// Its connection was opened or opened again.
    Connected(UpstreamId),
    Notified(UpstreamId, Notification),
}

#[derive(Debug, Default)]
struct UpstreamBacklog {
    connected: bool,
    waiting: VecDeque<Notification>,
    bytes: usize,
}

impl UpstreamBacklog {
    /// Adds a notification; returns how many were dropped for it.
    fn push(&mut self, notification: Notification) -> u64 {
        if self.waiting.iter().any(|waiting| is_same_change(waiting, &notification)) {
            return 0;
        }
        self.bytes += size(&notification);
        self.waiting.push_back(notification);
        let mut dropped = 0;
        while self.waiting.len() > MOST_WAITING || self.bytes > MOST_BYTES {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.bytes -= size(&oldest);
            dropped += 1;
        }
        dropped
    }

    fn pop(&mut self, id: &UpstreamId) -> Option<UpstreamNews> {
        if std::mem::take(&mut self.connected) {
            return Some(UpstreamNews::Connected(id.clone()));
        }
        let notification = self.waiting.pop_front()?;
        self.bytes -= size(&notification);
        Some(UpstreamNews::Notified(id.clone(), notification))
    }
}

/// Whether a waiting notification already reports the same change of a list or a resource.
fn is_same_change(waiting: &Notification, new: &Notification) -> bool {
    if waiting.method != new.method {
        return false;
    }
    let uri = |one: &Notification| {
        one.params.as_deref().and_then(|params| raw::get_str(params, "uri")).map(|uri| uri.into_owned())
    };
    match &*new.method {
        "notifications/tools/list_changed"
        | "notifications/prompts/list_changed"
        | "notifications/resources/list_changed" => true,
        "notifications/resources/updated" => uri(waiting) == uri(new),
        _ => false,
    }
}

fn size(notification: &Notification) -> usize {
    notification.method.len() + notification.params.as_ref().map_or(0, |params| params.get().len())
}

#[derive(Debug, Default)]
struct NewsQueueState {
    waiting: BTreeMap<UpstreamId, UpstreamBacklog>,
    /// The upstream of the last notification: the others come first.
    last: Option<UpstreamId>,
    dropped: u64,
}

/// The queue between all upstreams and the clients. Adding never blocks.
#[derive(Debug, Default)]
pub(crate) struct NewsQueue {
    state: Mutex<NewsQueueState>,
    added: Notify,
}

impl NewsQueue {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, NewsQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.state().dropped
    }

    /// Waits for the next notification; upstreams take turns.
    pub(crate) async fn next(&self) -> UpstreamNews {
        loop {
            let added = self.added.notified();
            if let Some(news) = self.take() {
                return news;
            }
            added.await;
        }
    }

    fn take(&self) -> Option<UpstreamNews> {
        let mut state = self.state();
        let NewsQueueState { waiting, last, .. } = &mut *state;
        let is_after = |id: &UpstreamId| last.as_ref().is_none_or(|last| id > last);
        let next = waiting.keys().find(|id| is_after(id)).or_else(|| waiting.keys().next())?.clone();
        let queue = waiting.get_mut(&next)?;
        let news = queue.pop(&next);
        if !queue.connected && queue.waiting.is_empty() {
            waiting.remove(&next);
        }
        *last = Some(next);
        news
    }
}

impl NewsListener for NewsQueue {
    fn notification(&self, upstream: &UpstreamId, notification: Notification) {
        let mut state = self.state();
        let dropped = state.waiting.entry(upstream.clone()).or_default().push(notification);
        // One log line for a flood, not one for each notification.
        if dropped > 0 && state.dropped.is_multiple_of(1_000) {
            tracing::warn!(%upstream, "too many notifications: the oldest are dropped");
        }
        state.dropped += dropped;
        drop(state);
        self.added.notify_one();
    }

    fn connected(&self, upstream: &UpstreamId) {
        self.state().waiting.entry(upstream.clone()).or_default().connected = true;
        self.added.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(method: &str, params: serde_json::Value) -> Notification {
        Notification::new(method, Some(raw::to_raw(&params)))
    }

    async fn drain(queue: &NewsQueue) -> Vec<(String, Notification)> {
        let mut all = Vec::new();
        while !queue.state().waiting.is_empty() {
            if let UpstreamNews::Notified(id, said) = queue.next().await {
                all.push((id.to_string(), said));
            }
        }
        all
    }

    #[tokio::test]
    async fn attack_06_a_flood_of_notifications_costs_the_oldest_of_its_own_upstream() {
        let (queue, loud, quiet) = (NewsQueue::default(), UpstreamId::new("loud"), UpstreamId::new("quiet"));
        queue.notification(&quiet, said("notifications/message", json!({"data": "hello"})));
        for number in 0..10_000 {
            queue.notification(&loud, said("notifications/message", json!({"data": number})));
        }
        let all = drain(&queue).await;
        assert_eq!(all.len(), MOST_WAITING + 1);
        assert_eq!(queue.dropped(), 10_000 - MOST_WAITING as u64);
        assert!(all.iter().take(2).any(|(id, _)| id == "quiet"), "upstreams take turns");
        let last = all.last().unwrap().1.params.as_ref().unwrap().get().to_owned();
        assert_eq!(last, r#"{"data":9999}"#, "the newest are kept, in order");
    }

    #[tokio::test]
    async fn attack_06_large_notifications_are_bounded_by_their_bytes() {
        let (queue, id) = (NewsQueue::default(), UpstreamId::new("loud"));
        let text = "x".repeat(100 << 10);
        for _ in 0..100 {
            queue.notification(&id, said("notifications/message", json!({"data": text})));
        }
        assert!(queue.state().waiting[&id].bytes <= MOST_BYTES);
        assert_eq!(drain(&queue).await.len(), 10);
    }

    #[tokio::test]
    async fn attack_06_equal_changes_are_said_once() {
        let (queue, id) = (NewsQueue::default(), UpstreamId::new("loud"));
        for _ in 0..1_000 {
            queue.connected(&id);
            queue.notification(&id, said("notifications/tools/list_changed", json!({})));
            queue.notification(&id, said("notifications/resources/updated", json!({"uri": "a://1"})));
            queue.notification(&id, said("notifications/resources/updated", json!({"uri": "a://2"})));
        }
        assert_eq!(drain(&queue).await.len(), 3);
        assert_eq!(queue.dropped(), 0);
    }
}
