//! Notifies people elsewhere of a pending plan: a configured command gets the event as JSON, a webhook gets it signed. Both receive a
//! link and decide nothing. Calls do not wait for them, and their output is ignored.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersign_config::{Config, NotifySection};
use countersign_mcp::client::ProcessGroup;
use countersign_mcp::post_endpoint::post_json;
use countersign_policy::confirm::PlanState;
use countersign_policy::duration::RateLimit;
use countersign_policy::ids::{PlanId, Secret};
use countersign_policy::plan::Plan;
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::escape;
use crate::state::GatewayState;
use crate::upstreams::environment::{self, Variable};

/// Notices that wait for one hook; the oldest is dropped.
pub(crate) const MOST_WAITING: usize = 256;
/// Plans that a summary names.
const MOST_NAMED: usize = 20;
/// Attempts of one delivery.
const MOST_ATTEMPTS: u32 = 8;
/// The pause before the second attempt; it doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Characters of a text that go into an event.
const MOST_TEXT: usize = 300;

/// The configured hooks, with secrets resolved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    section: NotifySection,
    command: Vec<Secret>,
    webhook: Option<(Secret, Secret)>,
    env: Vec<Variable>,
    folder: PathBuf,
}

impl Hooks {
    /// The hooks of a configuration. A hook with an unresolved reference is off.
    pub(crate) fn of(config: &Config, ambient: &[Variable], folder: PathBuf) -> Self {
        let section = config.notify.clone();
        let command: Option<Vec<Secret>> = section.command.iter().map(|word| word.text()).collect();
        let webhook =
            section.webhook.as_ref().and_then(|webhook| Some((webhook.url.text()?, webhook.secret.text()?)));
        Self {
            command: command.unwrap_or_default(),
            webhook,
            env: environment::clean(ambient.to_vec(), []),
            folder,
            section,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Command,
    Webhook,
}

impl Hook {
    const ALL: [Self; 2] = [Self::Command, Self::Webhook];

    fn is_configured(self, hooks: &Hooks) -> bool {
        match self {
            Self::Command => !hooks.command.is_empty(),
            Self::Webhook => hooks.webhook.is_some(),
        }
    }
}

#[derive(Debug)]
struct PlanNotice {
    plan: PlanId,
    body: Arc<String>,
}

#[derive(Debug, Default)]
struct HookQueue {
    waiting: VecDeque<PlanNotice>,
    /// Whether a task delivers from it: one delivery at a time.
    is_served: bool,
    /// The last deliveries, for the rate limit.
    delivered: VecDeque<Instant>,
}

/// A bounded queue of notices for each hook.
#[derive(Debug, Default)]
pub(crate) struct NoticeQueues {
    command: Mutex<HookQueue>,
    webhook: Mutex<HookQueue>,
}

impl NoticeQueues {
    fn queue(&self, hook: Hook) -> MutexGuard<'_, HookQueue> {
        let queue = match hook {
            Hook::Command => &self.command,
            Hook::Webhook => &self.webhook,
        };
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a notice and drops the oldest if there are too many; true if the caller has to start a task for the queue.
    fn push(&self, hook: Hook, notice: PlanNotice) -> bool {
        let mut queue = self.queue(hook);
        if queue.waiting.len() >= MOST_WAITING {
            queue.waiting.pop_front();
        }
        queue.waiting.push_back(notice);
        !std::mem::replace(&mut queue.is_served, true)
    }

    /// How long the rate limit makes the next delivery wait.
    fn pause(&self, hook: Hook, rate: RateLimit) -> Option<Duration> {
        let mut queue = self.queue(hook);
        while queue.delivered.front().is_some_and(|at| at.elapsed() >= rate.window) {
            queue.delivered.pop_front();
        }
        let is_full = u32::try_from(queue.delivered.len()).unwrap_or(u32::MAX) >= rate.count;
        let first = queue.delivered.front().filter(|_| is_full)?;
        Some(rate.window.saturating_sub(first.elapsed()))
    }

    /// Takes one notice, or all of them. An empty result ends the task of the queue.
    fn take(&self, hook: Hook, all: bool) -> Vec<PlanNotice> {
        let mut queue = self.queue(hook);
        let count = if all { queue.waiting.len() } else { queue.waiting.len().min(1) };
        let taken: Vec<PlanNotice> = queue.waiting.drain(..count).collect();
        queue.is_served = !taken.is_empty();
        taken
    }

    fn count_delivery(&self, hook: Hook) {
        self.queue(hook).delivered.push_back(Instant::now());
    }
}

/// Queues a notice of a pending plan for each hook that wants one. Delivery happens in the background.
pub(crate) fn notify_pending(gateway: &Arc<GatewayState>, id: &PlanId, plan: &Plan) {
    let policy = gateway.policy.load_full();
    let hooks = &policy.hooks;
    if !hooks.section.tells(plan.requirement.strength) {
        return;
    }
    let body = Arc::new(event(id, plan, policy.desk_url.as_deref(), policy.home.as_deref()).to_string());
    for hook in Hook::ALL.into_iter().filter(|hook| hook.is_configured(hooks)) {
        let notice = PlanNotice { plan: id.clone(), body: Arc::clone(&body) };
        if gateway.notices.push(hook, notice) {
            tokio::spawn(deliver_queue(Arc::clone(gateway), hook));
        }
    }
}

/// Delivers the notices of one hook until its queue is empty. Notices beyond the configured rate are summarized.
async fn deliver_queue(gateway: Arc<GatewayState>, hook: Hook) {
    let mut is_crowded = false;
    loop {
        let rate = gateway.policy.load().config.limits.notices;
        if let Some(pause) = gateway.notices.pause(hook, rate) {
            is_crowded = true;
            tokio::time::sleep(pause).await;
            continue;
        }
        let taken = gateway.notices.take(hook, std::mem::take(&mut is_crowded));
        if taken.is_empty() {
            return;
        }
        let mut notices = Vec::new();
        for notice in taken {
            if is_pending(&gateway, &notice.plan).await {
                notices.push(notice);
            }
        }
        let (name, body) = match notices.as_slice() {
            // Decided or cancelled meanwhile.
            [] => continue,
            [only] => ("plan_pending", Arc::clone(&only.body)),
            several => {
                let desk = gateway.policy.load().desk_url.clone();
                ("plans_pending", Arc::new(summary(several, desk.as_deref()).to_string()))
            }
        };
        gateway.notices.count_delivery(hook);
        let plans: Vec<PlanId> = notices.into_iter().map(|notice| notice.plan).collect();
        deliver(&gateway, hook, &plans, name, &body).await;
    }
}

async fn is_pending(gateway: &GatewayState, id: &PlanId) -> bool {
    gateway.plan(id).await.ok().flatten().is_some_and(|row| row.state == PlanState::Pending)
}

/// The event for several plans at once.
fn summary(notices: &[PlanNotice], desk: Option<&str>) -> Value {
    let named: Vec<&PlanId> = notices.iter().map(|notice| &notice.plan).take(MOST_NAMED).collect();
    json!({
        "event": "plans_pending",
        "count": notices.len(),
        "plan_ids": named,
        "url": desk.map(|desk| format!("{desk}/")),
        "approve_command": "countersign plans list",
    })
}

/// The event for one pending plan: who asks and where to decide, without arguments and preview.
fn event(id: &PlanId, plan: &Plan, desk: Option<&str>, home: Option<&str>) -> Value {
    let shorten = |text: &str| escape::excerpt(text, MOST_TEXT);
    let reason = plan.intent.as_ref().and_then(|intent| intent.reason.as_deref()).map(shorten);
    json!({
        "event": "plan_pending",
        "plan_id": id,
        "tool": shorten(&plan.tool.to_string()),
        "effect": plan.effect,
        "confirm": plan.requirement.kind,
        "strength": plan.requirement.strength,
        "principal": shorten(plan.principal.as_str()),
        "asked_by": shorten(&plan.asked_by(home)),
        "host": plan.host,
        "reason": reason,
        "steps": plan.steps.len().max(1),
        "created_at": plan.created.to_string(),
        "expires_at": plan.expires.to_string(),
        "url": desk.map(|desk| format!("{desk}/plans/{id}")),
        "approve_command": format!("countersign approve {id}"),
    })
}

async fn deliver(gateway: &Arc<GatewayState>, hook: Hook, plans: &[PlanId], name: &'static str, body: &str) {
    let delivery = uuid::Uuid::new_v4().to_string();
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=MOST_ATTEMPTS {
        // Read the configuration again: a hook that was removed meanwhile must not be called.
        let policy = gateway.policy.load_full();
        let sent = match hook {
            Hook::Command => run_command(&policy.hooks, body).await,
            Hook::Webhook => {
                post_webhook(&policy.hooks, &delivery, name, body, gateway.now().as_second()).await
            }
        };
        match sent {
            Ok(()) => return,
            Err(why) => {
                let plan = plans.first().map(PlanId::as_str);
                tracing::warn!(plan, ?hook, attempt, why, "notice not delivered")
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let mut any_pending = false;
        for plan in plans {
            any_pending = any_pending || is_pending(gateway, plan).await;
        }
        if !any_pending {
            return;
        }
    }
}

/// Runs the command once, with the event on stdin, a clean environment and a process group of its own.
async fn run_command(hooks: &Hooks, body: &str) -> Result<(), String> {
    let Some((program, args)) = hooks.command.split_first() else { return Ok(()) };
    let mut command = Command::new(program.expose());
    command.args(args.iter().map(|arg| arg.expose())).env_clear();
    command.envs(hooks.env.iter().map(|(name, value)| (name, value))).current_dir(&hooks.folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let (mut child, group) = ProcessGroup::start(&mut command).map_err(|error| error.to_string())?;
    let done = async {
        if let Some(mut stdin) = child.stdin.take() {
            // A command may ignore its input.
            let _ = stdin.write_all(body.as_bytes()).await;
        }
        child.wait().await
    };
    let ended = tokio::time::timeout(ATTEMPT_TIMEOUT, done).await;
    drop(group);
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(status.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it took too long and was killed".to_owned()),
    }
}

/// Posts to the webhook once.
async fn post_webhook(hooks: &Hooks, delivery: &str, name: &str, body: &str, now: i64) -> Result<(), String> {
    let Some((url, secret)) = &hooks.webhook else { return Ok(()) };
    let headers = [
        ("countersign-event", name.to_owned()),
        ("countersign-delivery", delivery.to_owned()),
        ("countersign-timestamp", now.to_string()),
        ("countersign-signature", format!("v1={}", signature(secret, now, body))),
    ];
    match post_json(url.expose(), &headers, body.as_bytes().to_vec(), ATTEMPT_TIMEOUT).await {
        Ok(status @ 200..=299) => {
            tracing::debug!(status, "notice delivered");
            Ok(())
        }
        Ok(status) => Err(format!("it answered {status}")),
        Err(fault) => Err(fault.to_string()),
    }
}

/// HMAC-SHA-256 over `timestamp.body`, in lower-case hex.
fn signature(secret: &Secret, timestamp: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    let tag = hmac::sign(&key, format!("{timestamp}.{body}").as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_13_notices_are_bounded_and_told_together_beyond_the_rate() {
        let notices = NoticeQueues::default();
        let notice = |number: usize| PlanNotice {
            plan: PlanId::new(format!("P{number}")),
            body: Arc::new(String::new()),
        };
        let started = (0..300).filter(|number| notices.push(Hook::Command, notice(*number))).count();
        assert_eq!(started, 1, "one delivery at a time");
        assert_eq!(notices.queue(Hook::Command).waiting.len(), MOST_WAITING, "the queue is bounded");
        let rate: RateLimit = "2/h".parse().unwrap();
        for _ in 0..2 {
            assert_eq!(notices.pause(Hook::Command, rate), None);
            assert_eq!(notices.take(Hook::Command, false).len(), 1);
            notices.count_delivery(Hook::Command);
        }
        assert!(notices.pause(Hook::Command, rate).is_some(), "the third has to wait");
        assert_eq!(notices.pause(Hook::Webhook, rate), None, "each hook has its own rate");
        let rest = notices.take(Hook::Command, true);
        assert_eq!(rest.len(), MOST_WAITING - 2);
        let told = summary(&rest, Some("http://desk"));
        assert_eq!((&told["event"], &told["count"]), (&json!("plans_pending"), &json!(rest.len())));
        assert_eq!(told["plan_ids"].as_array().map(Vec::len), Some(MOST_NAMED));
        assert!(notices.take(Hook::Command, true).is_empty());
        assert!(notices.push(Hook::Command, notice(1)), "the next notice starts a task again");
    }

    #[test]
    fn a_signature_covers_time_and_body() {
        // Made with `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac '0123456789abcdef'`.
        let secret = Secret::new("0123456789abcdef");
        let signed = signature(&secret, 1_700_000_000, r#"{"a":1}"#);
        assert_eq!(signed, "9eb18f493f8ec135d9eb2dad817c369bb4e9cbfa818657897a7437c1cd8c3a23");
        assert_ne!(signed, signature(&secret, 1_700_000_001, r#"{"a":1}"#));
        assert_ne!(signed, signature(&secret, 1_700_000_000, r#"{"a":2}"#));
        assert_ne!(signed, signature(&Secret::new("0123456789abcdeX"), 1_700_000_000, r#"{"a":1}"#));
    }
}
