//! Telling somebody elsewhere that a plan waits: a configured command gets the event as JSON, a webhook gets it signed. What they
//! carry is a link; neither can decide anything, and what they answer is not listened to. Nothing waits for them.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use countersign_core::config::{Config, NotifySection};
use countersign_core::confirm::PlanState;
use countersign_core::ids::{PlanId, Secret};
use countersign_core::plan::Plan;
use countersign_wire::post::post_json;
use countersign_wire::upstream::Group;
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::escape;
use crate::house::House;
use crate::upstreams::environment::{self, Variable};

/// How many deliveries may be under way or wait for another try; one more is dropped, and said so.
pub const MOST_WAITING: usize = 256;
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

/// Tells of a plan that came up, in the background; at most once for each hook, tried again while it waits.
pub fn tell_of(house: &Arc<House>, id: &PlanId, plan: &Plan) {
    let law = house.law.load_full();
    let hooks = &law.hooks;
    if !hooks.section.tells(plan.need.strength) {
        return;
    }
    let body = Arc::new(event(id, plan, law.desk_url.as_deref()).to_string());
    for (hook, wanted) in
        [(Hook::Command, !hooks.command.is_empty()), (Hook::Webhook, hooks.webhook.is_some())]
    {
        if !wanted {
            continue;
        }
        match Arc::clone(&house.notices).try_acquire_owned() {
            Ok(place) => {
                let (house, id, body) = (Arc::clone(house), id.clone(), Arc::clone(&body));
                tokio::spawn(deliver(house, hook, id, body, place));
            }
            Err(_) => {
                tracing::warn!(plan = id.as_str(), "{MOST_WAITING} notices wait already: this one is dropped")
            }
        }
    }
}

/// Room for deliveries.
pub fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MOST_WAITING))
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

async fn deliver(house: Arc<House>, hook: Hook, id: PlanId, body: Arc<String>, place: OwnedSemaphorePermit) {
    let delivery = uuid::Uuid::new_v4().to_string();
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=TRIES {
        // As configured now: a hook that was taken out meanwhile is not called.
        let law = house.law.load_full();
        let sent = match hook {
            Hook::Command => run(&law.hooks, &body).await,
            Hook::Webhook => post(&law.hooks, &delivery, &body, house.now().as_second()).await,
        };
        match sent {
            Ok(()) => return,
            Err(why) => {
                tracing::warn!(plan = id.as_str(), ?hook, attempt, why, "a notice did not get through")
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        // What was decided meanwhile is no news any more.
        let waits = house.plan(&id).await.ok().flatten().is_some_and(|row| row.state == PlanState::Pending);
        if !waits {
            return;
        }
    }
    drop(place);
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
async fn post(hooks: &Hooks, delivery: &str, body: &str, now: i64) -> Result<(), String> {
    let Some((url, secret)) = &hooks.webhook else { return Ok(()) };
    let headers = [
        ("countersign-event", "plan_pending".to_owned()),
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
