//! The pack inside the gateway: the same tools, judged, confirmed and recorded by the house they live in. Without a permit a tool that
//! changes something only shows what it would change. Asks for no second agreement and keeps no ledger of its own.

mod shown;

use countersign_core::call::Arguments;
use countersign_core::digest::Digest;
use countersign_core::envelope::Envelope;
use countersign_core::refusal::{Code, Refusal};
use countersign_store::{Opened, Store};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use shown::Shown;

use crate::apply::Recovery;
use crate::deed;
use crate::deploy::Confirmed;
use crate::evolve;
use crate::line::for_callers;
use crate::lock::{self, Lock};
use crate::overlay::Layer;
use crate::place::Place;
use crate::plan::Adopt;
use crate::reply::{Reply, envelope};
use crate::rollback as back;
use crate::stop::{Outcome, Stop};
use crate::survey::Survey;
use crate::system::Real;
use crate::tools::{Given, blocking, changes, command_name, look, planned, take};
use crate::views::{self, ProposeRequest};

/// How long the token of `deploy` names the plan that was looked at, in seconds.
const LOOKED_AT: i64 = 600;

/// The tools, in a house that governs them.
#[derive(Clone)]
pub struct Inside {
    place: Place,
    store: Store,
}

/// What a tool answers, and what a person reads of it where it is only shown.
#[derive(Debug)]
pub struct Answer {
    /// The envelope.
    pub envelope: Envelope,
    /// The same for a person: what would change, and how, line by line.
    pub texts: Vec<String>,
}

impl Inside {
    /// The tools in a place, with the records of the house.
    pub fn new(place: Place, store: Store) -> Self {
        Self { place, store }
    }

    /// Calls a tool; none if there is no such tool. Without a permit nothing changes.
    pub async fn call(
        &self,
        tool: &str,
        members: &Map<String, Value>,
        permitted: Option<&Opened>,
    ) -> Option<Answer> {
        let name = command_name(tool, members)?;
        let mut texts = Vec::new();
        let outcome = match permitted {
            None => self.show(tool, members).await.map(|shown| {
                texts = shown.texts();
                let mut reply = shown.reply;
                // The difference is in the texts; once is enough.
                reply.data.remove("files");
                reply
            }),
            Some(opened) => match self.act(tool, members, opened).await {
                Ok(reply) if changes(tool) => {
                    Ok(deed::note(&self.store, opened.permit().record(), reply).await)
                }
                other => other,
            },
        };
        Some(Answer { envelope: envelope(name, outcome), texts })
    }

    /// What a call would do.
    async fn show(&self, tool: &str, members: &Map<String, Value>) -> Outcome<Shown> {
        let given = Given::read(tool, members, &self.place)?;
        let tool = tool.to_owned();
        blocking(move || match tool.as_str() {
            "deploy" | "deploy_apply" => {
                let survey = take(&given)?;
                if given.has("confirm_token") {
                    // Before anybody is asked: what can't be applied is not shown for agreement.
                    check_token(&given, &survey, Timestamp::now())?;
                    survey.plan.check_adopt(adopt(&given))?;
                }
                Shown::deployment(&survey, &Real)
            }
            "rollback" => {
                let to = given.text("to").unwrap_or_default();
                Shown::way_back(&back::plan(&given.place, to, &Real)?, &Real)
            }
            "evolve_propose" => {
                let (survey, request) = (take(&given)?, request(&given));
                let module = request.module_id.as_deref();
                let found = evolve::survey_proposal(&given.place, &survey, module, request.layer, &Real)?;
                Shown::proposal(&survey, &found, &Real)
            }
            "evolve_restore" => {
                let survey = take(&given)?;
                let missing = evolve::missing(&survey, given.text("module_id"));
                Shown::restoration(&survey, &missing, &Real)
            }
            read => look(read, &given).map(Shown::plain),
        })
        .await
    }

    /// What was let out, done.
    async fn act(&self, tool: &str, members: &Map<String, Value>, opened: &Opened) -> Outcome<Reply> {
        let given = Given::read(tool, members, &self.place)?;
        match tool {
            "deploy" => blocking(move || deploy(&given)).await,
            "deploy_apply" => self.deploy_apply(given, opened).await,
            "rollback" => self.rollback(given, opened).await,
            "evolve_propose" if given.says("dry_run") => {
                self.show(tool, members).await.map(|shown| shown.reply)
            }
            "evolve_restore" if given.says("dry_run") => {
                self.show(tool, members).await.map(|shown| shown.reply)
            }
            "evolve_propose" => {
                locked(given, |given| views::propose(&given.place, &given.selection, &request(given), &Real))
                    .await
            }
            "evolve_restore" => {
                locked(given, |given| {
                    let survey = take(given)?;
                    evolve::restore(&survey, &evolve::missing(&survey, given.text("module_id")), &Real)
                })
                .await
            }
            read => {
                let read = read.to_owned();
                blocking(move || {
                    let tended = lock::tend(&given.place)?;
                    Ok(look(&read, &given)?.warn(told(tended.as_ref())))
                })
                .await
            }
        }
    }

    async fn deploy_apply(&self, given: Given, opened: &Opened) -> Outcome<Reply> {
        if given.says("dry_run") {
            return blocking(move || Ok(Reply::new(planned(&take(&given)?)))).await;
        }
        let reviewed = self.reviewed(opened, "changes").await?;
        let (given, (lock, recovered), survey) = blocking(move || {
            let locked = lock::acquire(&given.place)?;
            let survey = take(&given)?;
            Ok((given, locked, survey))
        })
        .await?;
        same(reviewed.as_ref(), &survey.plan.changes_value())?;
        survey.plan.check_adopt(adopt(&given))?;
        let confirmed = Confirmed::by(opened, survey);
        blocking(move || {
            let reply = views::applied(&confirmed, &given.place, &Real);
            drop::<Lock>(lock);
            Ok(reply?.warn(told(recovered.as_ref())))
        })
        .await
    }

    async fn rollback(&self, given: Given, opened: &Opened) -> Outcome<Reply> {
        let reviewed = self.reviewed(opened, "changes").await?;
        locked(given, move |given| {
            let to = given.text("to").unwrap_or_default();
            let plan = back::plan(&given.place, to, &Real)?;
            let changes: Vec<Value> = plan.changes().iter().map(back::Restored::to_value).collect();
            same(reviewed.as_ref(), &Value::Array(changes))?;
            views::went_back(&plan, &given.place, &Real)
        })
        .await
    }

    /// What was shown to whoever agreed, where somebody was shown something of ours.
    async fn reviewed(&self, opened: &Opened, part: &str) -> Outcome<Option<Value>> {
        let Some(id) = opened.plan_id() else { return Ok(None) };
        let row = self.store.plan(id).await.map_err(|fault| Stop::from(fault.refusal()))?;
        let Some(row) = row else { return Ok(None) };
        let permit = opened.permit();
        let of_step = row.plan.steps.iter().find(|step| {
            step.tool.tool == permit.tool().name && step.arguments.canonical() == permit.arguments()
        });
        let preview = of_step.map_or(&row.plan.preview, |step| &step.preview);
        Ok(preview.shown.pointer(&format!("/structuredContent/data/{part}")).cloned())
    }
}

/// Something that changes, with the right to change and after what a crash left behind.
async fn locked(
    given: Given,
    work: impl FnOnce(&Given) -> Outcome<Reply> + Send + 'static,
) -> Outcome<Reply> {
    blocking(move || {
        let (_lock, recovered) = lock::acquire(&given.place)?;
        Ok(work(&given)?.warn(told(recovered.as_ref())))
    })
    .await
}

fn told(recovered: Option<&Recovery>) -> Vec<String> {
    recovered.iter().map(|recovery| recovery.message()).collect()
}

fn adopt(given: &Given) -> Adopt {
    if given.says("adopt") { Adopt::Agreed } else { Adopt::Refused }
}

fn request(given: &Given) -> ProposeRequest {
    ProposeRequest {
        module_id: given.text("module_id").map(str::to_owned),
        layer: given.text("scope").and_then(|scope| scope.parse().ok()).unwrap_or(Layer::Global),
        branch: given.text("branch").map(str::to_owned),
    }
}

/// The plan that was looked at, or nothing: the house compares before it lets the call out, and this is the moment after.
fn same(reviewed: Option<&Value>, now: &Value) -> Outcome<()> {
    if reviewed.is_none_or(|reviewed| reviewed == now) {
        return Ok(());
    }
    let message = "what would change is not what was shown any more; nothing was written";
    Err(Refusal::new(Code::ApplyDrifted, message).into())
}

/// `deploy` as it is published: the plan, and a token that names it. Agreeing is the house's: this token only says which plan was
/// looked at, so nothing has to be remembered for it.
fn deploy(given: &Given) -> Outcome<Reply> {
    let tended = lock::tend(&given.place)?;
    let survey = take(given)?;
    let shown = Shown::deployment(&survey, &Real)?;
    if given.has("confirm_token") {
        return Ok(shown.reply.warn(told(tended.as_ref())));
    }
    let expires = Timestamp::now().as_second() + LOOKED_AT;
    let hash = plan_hash(given, &survey)?;
    let until = Timestamp::from_second(expires).unwrap_or(Timestamp::MAX);
    Ok(shown
        .reply
        .with("confirm_token", token(hash, expires))
        .with("confirm_plan_hash", hash.hex())
        .with("confirm_token_expires_at", until.to_string())
        .warn(told(tended.as_ref())))
}

/// What names a plan: the resolved parameters and every change.
fn plan_hash(given: &Given, survey: &Survey) -> Outcome<Digest> {
    let bound: Arguments = given.bound()?;
    let text = json!({"bound": bound.canonical(), "changes": survey.plan.changes_value()}).to_string();
    Ok(Digest::plain(text.as_bytes()))
}

fn token(hash: Digest, expires: i64) -> String {
    let named: String =
        Digest::plain(format!("{expires} {hash}").as_bytes()).hex().chars().take(48).collect();
    format!("{expires:016x}{named}")
}

/// A token of `deploy` that was brought along must name this plan; none at all is the house's business alone.
fn check_token(given: &Given, survey: &Survey, now: Timestamp) -> Outcome<()> {
    let Some(brought) = given.text("confirm_token").filter(|token| !token.is_empty()) else { return Ok(()) };
    let refuse = |code, message: &str| Err(for_callers(Refusal::new(code, message)).into());
    let expires = brought.get(..16).and_then(|hex| i64::from_str_radix(hex, 16).ok());
    let fits = match expires {
        Some(expires) => token(plan_hash(given, survey)?, expires) == brought,
        None => false,
    };
    match expires {
        Some(expires) if fits && expires > now.as_second() => Ok(()),
        Some(_) if fits => refuse(Code::ConfirmTokenExpired, "the token of `deploy` is too old; look again"),
        Some(_) | None => refuse(
            Code::ConfirmTokenMismatch,
            "the token is not that of this plan; call `deploy` and look again",
        ),
    }
}

/// The arguments of a tool with what the house itself asks for filled in: a caller need not say `yes` to the pack as well.
pub fn filled(tool: &str, arguments: Arguments) -> Arguments {
    let fill = |arguments: Arguments, name: &str, value: Value| {
        if arguments.value().get(name).is_none() { arguments.with(name, value) } else { arguments }
    };
    match tool {
        "deploy_apply" => {
            fill(fill(arguments, "yes", Value::Bool(true)), "confirm_token", Value::String(String::new()))
        }
        "rollback" | "evolve_propose" | "evolve_restore" => fill(arguments, "yes", Value::Bool(true)),
        _ => arguments,
    }
}
