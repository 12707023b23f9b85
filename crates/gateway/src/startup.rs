//! Tracks which upstreams have listed their tools since they were configured, and what is remembered of the others. Requests wait for
//! the upstream they need and for no other; lists wait a moment at most. Starts nothing and lists nothing itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_policy::ids::UpstreamId;
use countersign_policy::tool::Tool;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::upstreams::Upstream;

/// How long after the start a request waits for upstreams it cannot name: a quick one is in the first list.
const GRACE: Duration = Duration::from_millis(100);
/// How long after the start a request waits for the store to report what was listed before. No upstream is involved.
const RECALL: Duration = Duration::from_secs(2);
/// How long after the start a command that needs every upstream waits for slow ones.
const ALL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListState {
    /// Not read yet, and nothing is known of it.
    Waiting,
    /// Not read yet; its tools are those that were accepted before.
    Remembered,
    /// Reading it failed, and it was never read since the start.
    Failed,
    Listed,
}

impl ListState {
    fn is_starting(self) -> bool {
        match self {
            ListState::Waiting | ListState::Remembered => true,
            ListState::Failed | ListState::Listed => false,
        }
    }
}

/// What an upstream reported the last time it was up. Untrusted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RememberedFacts {
    /// In the order of its list.
    pub tools: Vec<String>,
    pub capabilities: Option<Value>,
    pub instructions: Option<String>,
}

/// In characters.
const LONGEST_INSTRUCTIONS: usize = 16_384;
/// The most tools whose order is kept.
const MOST_TOOLS: usize = 2_000;
/// In bytes.
const LONGEST_CAPABILITIES: usize = 64 << 10;

impl RememberedFacts {
    /// Facts over the limits are left out.
    pub(crate) fn of(upstream: &dyn Upstream, tools: &[Arc<Tool>]) -> Self {
        let capabilities = upstream.capabilities().filter(|all| all.get().len() <= LONGEST_CAPABILITIES);
        let instructions = upstream.instructions();
        Self {
            tools: tools.iter().take(MOST_TOOLS).map(|tool| tool.name.to_string()).collect(),
            capabilities: capabilities.and_then(|all| serde_json::from_str(all.get()).ok()),
            instructions: instructions.map(|text| text.chars().take(LONGEST_INSTRUCTIONS).collect()),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        json!({"tools": self.tools, "capabilities": self.capabilities, "instructions": self.instructions})
            .to_string()
    }

    /// Reads stored facts; malformed ones count as absent.
    pub(crate) fn read(text: &str) -> Self {
        let stored: Value = serde_json::from_str(text).unwrap_or_default();
        let tools = stored.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Self {
            tools: tools.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
            capabilities: stored.get("capabilities").filter(|all| all.is_object()).cloned(),
            instructions: stored.get("instructions").and_then(Value::as_str).map(ToOwned::to_owned),
        }
    }
}

struct ListProgress {
    began: Instant,
    /// Whether the store was asked what was listed before.
    is_recalled: bool,
    states: BTreeMap<UpstreamId, ListState>,
}

pub(crate) struct Startup {
    lists: watch::Sender<ListProgress>,
    /// Whether a client was answered before all upstreams were up: it gets `list_changed`.
    answered_early: AtomicBool,
    remembered: Mutex<BTreeMap<UpstreamId, Arc<RememberedFacts>>>,
}

impl Default for Startup {
    fn default() -> Self {
        let lists = ListProgress { began: Instant::now(), is_recalled: false, states: BTreeMap::new() };
        Self {
            lists: watch::Sender::new(lists),
            answered_early: AtomicBool::new(false),
            remembered: Mutex::default(),
        }
    }
}

impl Startup {
    /// Serves these upstreams; the lists of `fresh` ones and of new ones are still to be read.
    pub(crate) fn serve(&self, all: &[UpstreamId], fresh: &[UpstreamId]) {
        self.lists.send_modify(|lists| {
            lists.states.retain(|id, _| all.contains(id) && !fresh.contains(id));
            for id in all {
                lists.states.entry(id.clone()).or_insert(ListState::Waiting);
            }
            lists.began = Instant::now();
            lists.is_recalled = false;
        });
        self.memory().retain(|id, _| all.contains(id));
    }

    /// Restarts the waiting times: lazy upstreams start only now.
    pub(crate) fn begin_now(&self) {
        self.lists.send_modify(|lists| lists.began = Instant::now());
    }

    /// Sets the state of a list; upstreams that are not served any more have none.
    pub(crate) fn note(&self, id: &UpstreamId, now: ListState) {
        self.lists.send_if_modified(|lists| match lists.states.get_mut(id) {
            Some(state) if *state != now => {
                *state = now;
                true
            }
            Some(_) | None => false,
        });
    }

    pub(crate) fn note_recalled(&self) {
        self.lists.send_modify(|lists| lists.is_recalled = true);
    }

    pub(crate) fn note_remembered(&self, id: &UpstreamId) {
        if self.state(id) == Some(ListState::Waiting) {
            self.note(id, ListState::Remembered);
        }
    }

    /// A failed relist does not change the state of a list that was read before.
    pub(crate) fn note_failure(&self, id: &UpstreamId) {
        if self.state(id).is_some_and(ListState::is_starting) {
            self.note(id, ListState::Failed);
        }
    }

    pub(crate) fn state(&self, id: &UpstreamId) -> Option<ListState> {
        self.lists.borrow().states.get(id).copied()
    }

    /// Whether an upstream's list was never read since it is served.
    pub(crate) fn is_unlisted(&self, id: &UpstreamId) -> bool {
        self.state(id).is_some_and(|state| state != ListState::Listed)
    }

    pub(crate) fn starting(&self) -> Vec<UpstreamId> {
        let lists = self.lists.borrow();
        lists.states.iter().filter(|(_, state)| state.is_starting()).map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn is_settled(&self) -> bool {
        !self.lists.borrow().states.values().any(|state| state.is_starting())
    }

    /// Waits for the first attempt to list an upstream; the caller limits the time.
    pub(crate) async fn wait_for_attempt(&self, id: &UpstreamId) {
        let is_tried = |lists: &ListProgress| !lists.states.get(id).is_some_and(|state| state.is_starting());
        // The sender is ours: it does not go away.
        let _ = self.lists.subscribe().wait_for(is_tried).await;
    }

    /// Waits for the first attempts of these upstreams, at most for the grace period.
    pub(crate) async fn wait_briefly_for(&self, ids: &[UpstreamId]) {
        let is_starting =
            |lists: &ListProgress, id| lists.states.get(id).is_some_and(|one| one.is_starting());
        self.wait_until(GRACE, |lists| !ids.iter().any(|id| is_starting(lists, id))).await;
    }

    /// Waits for a condition, no longer than until `limit` after the start.
    async fn wait_until(&self, limit: Duration, is_met: impl FnMut(&ListProgress) -> bool) {
        let until = self.lists.borrow().began + limit;
        let mut lists = self.lists.subscribe();
        let _ = tokio::time::timeout_at(until, lists.wait_for(is_met)).await;
    }

    /// Waits for the first attempts of all upstreams, up to a limit.
    pub(crate) async fn wait_until_settled(&self) {
        self.wait_until(ALL, |lists| !lists.states.values().any(|state| state.is_starting())).await;
    }

    /// Waits for upstreams nothing is known of, at most until the grace period after the start is over. A client that is answered before all
    /// of them are up gets `list_changed` when they are.
    pub(crate) async fn wait_briefly(&self, is_bare: bool) {
        let is_enough: fn(ListState) -> bool = match is_bare {
            // Its own answer is better than what we remember of it, if it comes in time.
            true => |state| !state.is_starting(),
            false => |state| state != ListState::Waiting,
        };
        // Before the store has answered, every upstream looks like one that was never seen.
        self.wait_until(RECALL, |lists| lists.is_recalled).await;
        self.wait_until(GRACE, |lists| lists.states.values().copied().all(is_enough)).await;
        if !self.is_settled() {
            self.answered_early.store(true, Ordering::SeqCst);
        }
    }

    pub(crate) fn answered_early(&self) -> bool {
        self.answered_early.load(Ordering::SeqCst)
    }

    /// Remembers an upstream's facts; false if they are known.
    pub(crate) fn remember(&self, id: &UpstreamId, facts: RememberedFacts) -> bool {
        let mut memory = self.memory();
        if memory.get(id).is_some_and(|known| **known == facts) {
            return false;
        }
        memory.insert(id.clone(), Arc::new(facts));
        true
    }

    pub(crate) fn remembered(&self, id: &UpstreamId) -> Option<Arc<RememberedFacts>> {
        self.memory().get(id).cloned()
    }

    fn memory(&self) -> MutexGuard<'_, BTreeMap<UpstreamId, Arc<RememberedFacts>>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> UpstreamId {
        UpstreamId::new(name)
    }

    fn serving(names: &[&str]) -> Startup {
        let startup = Startup::default();
        let ids: Vec<UpstreamId> = names.iter().map(|name| id(name)).collect();
        startup.serve(&ids, &ids);
        startup
    }

    /// How long something waits, on a paused clock.
    async fn waited(wait: impl Future<Output = ()>) -> Duration {
        let start = Instant::now();
        wait.await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn remembered_upstreams_are_not_waited_for_and_their_lists_are_announced() {
        let startup = serving(&["quick", "slow"]);
        startup.note(&id("quick"), ListState::Listed);
        startup.note_remembered(&id("slow"));
        startup.note_recalled();
        assert_eq!(waited(startup.wait_briefly(false)).await, Duration::ZERO);
        assert!(startup.answered_early() && !startup.is_settled());
        assert_eq!(startup.starting(), [id("slow")]);
        // A failed relist does not undo a list; an upstream that was never listed has failed.
        startup.note_failure(&id("quick"));
        startup.note_failure(&id("slow"));
        assert_eq!(startup.state(&id("quick")), Some(ListState::Listed));
        assert!(startup.is_settled() && startup.is_unlisted(&id("slow")));
        startup.wait_for_attempt(&id("slow")).await;
        // A fresh upstream begins anew; one that is not served any more has no state.
        startup.serve(&[id("quick")], &[id("quick")]);
        assert_eq!(
            (startup.state(&id("quick")), startup.state(&id("slow"))),
            (Some(ListState::Waiting), None)
        );
    }

    /// The first start with an empty store and an upstream that hangs, under a prefix and under its own names.
    #[tokio::test(start_paused = true)]
    async fn an_upstream_never_seen_before_delays_a_list_by_the_grace_period_only() {
        for is_bare in [false, true] {
            let startup = serving(&["hangs"]);
            startup.note_recalled();
            let start = Instant::now();
            startup.wait_briefly(is_bare).await;
            assert!(startup.answered_early());
            startup.wait_briefly(is_bare).await;
            startup.wait_briefly_for(&[id("hangs")]).await;
            // The timer's resolution is a millisecond.
            assert!(start.elapsed() <= GRACE + Duration::from_millis(1), "{:?}", start.elapsed());
            // The clock starts again with the first client.
            startup.begin_now();
            assert!(waited(startup.wait_briefly(is_bare)).await >= GRACE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_waited_for_longer_than_an_upstream() {
        let startup = serving(&["seen"]);
        let recall = async {
            tokio::time::sleep(GRACE * 5).await;
            startup.note_remembered(&id("seen"));
            startup.note_recalled();
        };
        let (took, ()) = tokio::join!(waited(startup.wait_briefly(false)), recall);
        assert!(took >= GRACE * 5 && took < RECALL, "{took:?}");
        let startup = serving(&["seen"]);
        assert!(
            waited(startup.wait_briefly(false)).await <= RECALL + Duration::from_millis(1),
            "not for ever"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn possible_owners_are_waited_for_shortly_and_others_not_at_all() {
        let startup = serving(&["quick", "slow"]);
        startup.note(&id("quick"), ListState::Listed);
        assert_eq!(waited(startup.wait_briefly_for(&[id("quick")])).await, Duration::ZERO);
        assert!(waited(startup.wait_briefly_for(&[id("quick"), id("slow")])).await >= GRACE);
        assert_eq!(waited(startup.wait_briefly_for(&[id("slow")])).await, Duration::ZERO);
    }

    /// What is stored came from an upstream: it may be anything.
    #[test]
    fn attack_facts_that_are_not_as_they_should_be_are_none() {
        let facts = RememberedFacts {
            tools: vec!["a".to_owned()],
            capabilities: Some(json!({"prompts": {}})),
            instructions: Some("x\n".to_owned()),
        };
        assert_eq!(RememberedFacts::read(&facts.to_text()), facts);
        for text in ["", "[]", "7", r#"{"tools":7,"capabilities":[],"instructions":{}}"#, r#"{"tools":[{}]}"#]
        {
            assert_eq!(RememberedFacts::read(text), RememberedFacts::default(), "{text}");
        }
    }
}
