//! Telling somebody elsewhere that a plan waits: a configured command gets the event as JSON, a webhook gets it signed. What they
//! carry is a link; neither can decide anything, and what they answer is not listened to. Nothing waits for them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersign_core::config::{Config, NotifySection};
use countersign_core::confirm::PlanState;
use countersign_core::duration::Rate;
use countersign_core::ids::{PlanId, Secret};
use countersign_core::plan::Plan;
use countersign_wire::post::post_json;
use countersign_wire::upstream::Group;
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::escape;
use crate::house::House;
use crate::upstreams::environment::{self, Variable};

/// How many plans wait to be told to one hook; the oldest gives way.
pub const MOST_WAITING: usize = 256;
/// How many plans a summary names.
const NAMED: usize = 20;
/// How often a delivery is tried.
const TRIES: u32 = 8;
/// The pause before the second try; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of an agent's own words goes along.
const REASON: usize = 300;

/// Whom to tell, with secrets resolved.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    section: NotifySection,
    command: Vec<Secret>,
    webhook: Option<(Secret, Secret)>,
    env: Vec<Variable>,
    folder: PathBuf,
}

impl Hooks {
    /// The hooks of a configuration whose references are resolved; one that is not resolved tells nobody.
    pub fn of(config: &Config, ambient: &[Variable], folder: PathBuf) -> Self {
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

/// One hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Command,
    Webhook,
}

impl Hook {
    const ALL: [Self; 2] = [Self::Command, Self::Webhook];

    fn is_wanted(self, hooks: &Hooks) -> bool {
        match self {
            Self::Command => !hooks.command.is_empty(),
            Self::Webhook => hooks.webhook.is_some(),
        }
    }
}

/// A plan that one hook is to be told of.
#[derive(Debug)]
struct Notice {
    plan: PlanId,
    body: Arc<String>,
}

/// What one hook has before it.
#[derive(Debug, Default)]
struct HookQueue {
    waiting: VecDeque<Notice>,
    /// Whether somebody works on it: one delivery at a time.
    is_served: bool,
    /// When it was told lately.
    told: VecDeque<Instant>,
}

/// Notices on their way: for each hook a bounded queue, served one after the other.
#[derive(Debug, Default)]
pub struct Notices {
    command: Mutex<HookQueue>,
    webhook: Mutex<HookQueue>,
}

impl Notices {
    fn queue(&self, hook: Hook) -> MutexGuard<'_, HookQueue> {
        let queue = match hook {
            Hook::Command => &self.command,
            Hook::Webhook => &self.webhook,
        };
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a notice; true where nobody works on the queue yet. The oldest gives way where there are too many.
    fn push(&self, hook: Hook, notice: Notice) -> bool {
        let mut queue = self.queue(hook);
        if queue.waiting.len() >= MOST_WAITING {
            queue.waiting.pop_front();
        }
        queue.waiting.push_back(notice);
        !std::mem::replace(&mut queue.is_served, true)
    }

    /// How long to wait before the hook may be told again.
    fn pause(&self, hook: Hook, rate: Rate) -> Option<Duration> {
        let mut queue = self.queue(hook);
        while queue.told.front().is_some_and(|at| at.elapsed() >= rate.window) {
            queue.told.pop_front();
        }
        let is_full = u32::try_from(queue.told.len()).unwrap_or(u32::MAX) >= rate.count;
        let first = queue.told.front().filter(|_| is_full)?;
        Some(rate.window.saturating_sub(first.elapsed()))
    }

    /// What is next: one notice, or all that came together. Where there is none, nobody works on the queue any more.
    fn take(&self, hook: Hook, all: bool) -> Vec<Notice> {
        let mut queue = self.queue(hook);
        let count = if all { queue.waiting.len() } else { queue.waiting.len().min(1) };
        let taken: Vec<Notice> = queue.waiting.drain(..count).collect();
        queue.is_served = !taken.is_empty();
        taken
    }

    fn count(&self, hook: Hook) {
        self.queue(hook).told.push_back(Instant::now());
    }
}

/// Tells of a plan that came up, in the background; at most once for each hook, tried again while it waits.
pub fn tell_of(house: &Arc<House>, id: &PlanId, plan: &Plan) {
    let law = house.law.load_full();
    let hooks = &law.hooks;
    if !hooks.section.tells(plan.need.strength) {
        return;
    }
    let body = Arc::new(event(id, plan, law.desk_url.as_deref()).to_string());
    for hook in Hook::ALL.into_iter().filter(|hook| hook.is_wanted(hooks)) {
        let notice = Notice { plan: id.clone(), body: Arc::clone(&body) };
        if house.notices.push(hook, notice) {
            tokio::spawn(serve(Arc::clone(house), hook));
        }
    }
}

/// Works on a hook's queue until it is empty. What comes faster than the configured rate is told together.
async fn serve(house: Arc<House>, hook: Hook) {
    let mut is_crowded = false;
    loop {
        let rate = house.law.load().config.limits.notices;
        if let Some(pause) = house.notices.pause(hook, rate) {
            is_crowded = true;
            tokio::time::sleep(pause).await;
            continue;
        }
        let taken = house.notices.take(hook, std::mem::take(&mut is_crowded));
        if taken.is_empty() {
            return;
        }
        let mut notices = Vec::new();
        for notice in taken {
            if is_pending(&house, &notice.plan).await {
                notices.push(notice);
            }
        }
        let (name, body) = match notices.as_slice() {
            // Withdrawn or decided meanwhile: no news any more.
            [] => continue,
            [only] => ("plan_pending", Arc::clone(&only.body)),
            several => {
                let desk = house.law.load().desk_url.clone();
                ("plans_pending", Arc::new(summary(several, desk.as_deref()).to_string()))
            }
        };
        house.notices.count(hook);
        let plans: Vec<PlanId> = notices.into_iter().map(|notice| notice.plan).collect();
        deliver(&house, hook, &plans, name, &body).await;
    }
}

async fn is_pending(house: &House, id: &PlanId) -> bool {
    house.plan(id).await.ok().flatten().is_some_and(|row| row.state == PlanState::Pending)
}

/// What is told of several plans at once.
fn summary(notices: &[Notice], desk: Option<&str>) -> Value {
    let named: Vec<&PlanId> = notices.iter().map(|notice| &notice.plan).take(NAMED).collect();
    json!({
        "event": "plans_pending",
        "count": notices.len(),
        "plan_ids": named,
        "url": desk.map(|desk| format!("{desk}/")),
        "approve_command": "countersign plans list",
    })
}

/// What is told: enough to know what waits and where to decide, not what it would do.
fn event(id: &PlanId, plan: &Plan, desk: Option<&str>) -> Value {
    let said = |text: &str| escape::excerpt(text, REASON);
    let reason = plan.intent.as_ref().and_then(|intent| intent.reason.as_deref()).map(said);
    json!({
        "event": "plan_pending",
        "plan_id": id,
        "tool": said(&plan.tool.to_string()),
        "effect": plan.effect,
        "confirm": plan.need.kind,
        "strength": plan.need.strength,
        "principal": said(plan.principal.as_str()),
        "reason": reason,
        "steps": plan.steps.len().max(1),
        "created_at": plan.created.to_string(),
        "expires_at": plan.expires.to_string(),
        "url": desk.map(|desk| format!("{desk}/plans/{id}")),
        "approve_command": format!("countersign approve {id}"),
    })
}

async fn deliver(house: &Arc<House>, hook: Hook, plans: &[PlanId], name: &'static str, body: &str) {
    let delivery = uuid::Uuid::new_v4().to_string();
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=TRIES {
        // As configured now: a hook that was taken out meanwhile is not called.
        let law = house.law.load_full();
        let sent = match hook {
            Hook::Command => run(&law.hooks, body).await,
            Hook::Webhook => post(&law.hooks, &delivery, name, body, house.now().as_second()).await,
        };
        match sent {
            Ok(()) => return,
            Err(why) => {
                let plan = plans.first().map(PlanId::as_str);
                tracing::warn!(plan, ?hook, attempt, why, "a notice did not get through")
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let mut waits = false;
        for plan in plans {
            waits = waits || is_pending(house, plan).await;
        }
        // What was decided meanwhile is no news any more.
        if !waits {
            return;
        }
    }
}

/// The command, once: the event on its standard input, our few plain variables, a group of its own.
async fn run(hooks: &Hooks, body: &str) -> Result<(), String> {
    let Some((program, args)) = hooks.command.split_first() else { return Ok(()) };
    let mut command = Command::new(program.expose());
    command.args(args.iter().map(|arg| arg.expose())).env_clear();
    command.envs(hooks.env.iter().map(|(name, value)| (name, value))).current_dir(&hooks.folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let (mut child, group) = Group::start(&mut command).map_err(|error| error.to_string())?;
    let done = async {
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read is no fault of the event's.
            let _ = stdin.write_all(body.as_bytes()).await;
        }
        child.wait().await
    };
    let ended = tokio::time::timeout(PATIENCE, done).await;
    drop(group);
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(status.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it took too long, and was killed".to_owned()),
    }
}

/// The webhook, once.
async fn post(hooks: &Hooks, delivery: &str, name: &str, body: &str, now: i64) -> Result<(), String> {
    let Some((url, secret)) = &hooks.webhook else { return Ok(()) };
    let headers = [
        ("countersign-event", name.to_owned()),
        ("countersign-delivery", delivery.to_owned()),
        ("countersign-timestamp", now.to_string()),
        ("countersign-signature", format!("v1={}", signature(secret, now, body))),
    ];
    match post_json(url.expose(), &headers, body.as_bytes().to_vec(), PATIENCE).await {
        Ok(status @ 200..=299) => {
            tracing::debug!(status, "a notice got through");
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
        let notices = Notices::default();
        let notice =
            |number: usize| Notice { plan: PlanId::new(format!("P{number}")), body: Arc::new(String::new()) };
        let started = (0..300).filter(|number| notices.push(Hook::Command, notice(*number))).count();
        assert_eq!(started, 1, "one delivery at a time");
        assert_eq!(notices.queue(Hook::Command).waiting.len(), MOST_WAITING, "the queue is bounded");
        let rate: Rate = "2/h".parse().unwrap();
        for _ in 0..2 {
            assert_eq!(notices.pause(Hook::Command, rate), None);
            assert_eq!(notices.take(Hook::Command, false).len(), 1);
            notices.count(Hook::Command);
        }
        assert!(notices.pause(Hook::Command, rate).is_some(), "the third has to wait");
        assert_eq!(notices.pause(Hook::Webhook, rate), None, "each hook has its own rate");
        let rest = notices.take(Hook::Command, true);
        assert_eq!(rest.len(), MOST_WAITING - 2);
        let told = summary(&rest, Some("http://desk"));
        assert_eq!((&told["event"], &told["count"]), (&json!("plans_pending"), &json!(rest.len())));
        assert_eq!(told["plan_ids"].as_array().map(Vec::len), Some(NAMED));
        assert!(notices.take(Hook::Command, true).is_empty());
        assert!(notices.push(Hook::Command, notice(1)), "whoever comes next is served again");
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
