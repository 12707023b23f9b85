//! Plans of several steps on their way: every step judged and previewed as it would be alone, asked for once, run in order,
//! stopped at the first failure, each step a row of its own.

use std::time::Instant;

use countersign_core::call::Call;
use countersign_core::confirm::{Brought, Held, PlanState};
use countersign_core::gate::{
    Draft, MOST_STEPS, Purpose, Refused, SeriesPermits, check_series, check_series_strength, draft_step,
    freeze_series, series_name, settle_series, token_digest,
};
use countersign_core::ids::PlanId;
use countersign_core::intent::{Door, Spoken, Variant};
use countersign_core::mode::Mode;
use countersign_core::plan::{Plan, Preview};
use countersign_core::record::{CallRecord, RowStatus};
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_store::{Ended, Entry, Outcome};
use countersign_wire::raw::{self, Raw};
use serde_json::{Map, Value, json};

use super::Conduct;
use crate::answer::Answer;
use crate::asked::{Asked, invalid};
use crate::cards::Again;

/// Names a step takes.
const STEP_FIELDS: [&str; 7] = [
    "name",
    "args",
    "args_json",
    "intent",
    "intent_operation_type",
    "intent_data_sensitivity",
    "intent_reason",
];

/// A step as it was asked for.
pub struct AskedStep(Asked);

impl AskedStep {
    /// Reads `{name, args, intent}`; the intent says through which call tool it would have come.
    pub fn read(step: &Value, number: usize) -> Result<Self, Refusal> {
        let Some(fields) = step.as_object() else {
            return Err(invalid(&format!("steps.{number}"), "must be an object with name, args and intent"));
        };
        // A mode or a token of a step's own would be silently ignored: the plan has one of each.
        if let Some(other) = fields.keys().find(|name| !STEP_FIELDS.contains(&name.as_str())) {
            return Err(invalid(&format!("steps.{number}.{other}"), "is not a field of a step"));
        }
        let operation =
            fields.get("intent").and_then(|intent| intent.get("operation_type")).and_then(Value::as_str);
        let operation = operation.or_else(|| fields.get("intent_operation_type").and_then(Value::as_str));
        let variant = operation.and_then(|word| word.parse().ok()).unwrap_or(Variant::Write);
        let params = raw::to_raw(&json!({"arguments": step}));
        Asked::router(variant, &params).map(Self).map_err(|(_, refusal)| refusal.with("step", number + 1))
    }
}

/// What `draft_plan` asks for.
pub struct AskedSeries {
    /// What it is called and why it is wanted.
    pub purpose: Purpose,
    /// Its steps, in order.
    pub steps: Vec<AskedStep>,
}

impl AskedSeries {
    /// Reads the arguments of `draft_plan`.
    pub fn read(given: &Map<String, Value>) -> Result<Self, Refusal> {
        let title = match given.get("title") {
            Some(Value::String(title)) if !title.trim().is_empty() && title.chars().count() <= 200 => {
                title.clone()
            }
            _ => return Err(invalid("title", "is required: 1 to 200 characters")),
        };
        let reason = match given.get("reason") {
            None | Some(Value::Null) => None,
            Some(Value::String(reason)) if reason.chars().count() <= 1000 => Some(reason.clone()),
            Some(_) => return Err(invalid("reason", "must be a string of at most 1000 characters")),
        };
        let steps = given.get("steps").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if steps.is_empty() || steps.len() > MOST_STEPS {
            return Err(invalid("steps", format_args!("must be a list of 1 to {MOST_STEPS} steps")));
        }
        let steps = steps.iter().enumerate().map(|(number, step)| AskedStep::read(step, number));
        Ok(Self { purpose: Purpose { title, reason }, steps: steps.collect::<Result<_, _>>()? })
    }
}

impl Conduct<'_> {
    /// `draft_plan`: judges and previews every step; in plan mode that is all, in execute mode it asks once for the whole.
    pub async fn draft_series(&self, asked: AskedSeries) -> Answer {
        let calls = asked.steps.into_iter().map(|step| self.step_call(step.0)).collect();
        let drafts = match self.judge_steps(calls).await {
            Ok(drafts) => drafts,
            Err(refused) => return self.refuse(*refused).await,
        };
        if let Some(draft) = drafts.iter().find(|draft| draft.mode == Mode::Ask) {
            let message = "mode is ask: draft_plan works in plan and execute mode";
            let refusal = Refusal::new(Code::ModeAsk, message);
            return self.refuse(Refused { refusal, record: draft.record.clone() }).await;
        }
        let steps = match self.preview_steps(drafts).await {
            Ok(steps) => steps,
            Err(refused) => return self.refuse(*refused).await,
        };
        let (law, now) = (self.house.law.load_full(), self.house.now());
        let id = PlanId::mint(now, uuid::Uuid::new_v4().as_u128());
        let plan = freeze_series(id, &self.caller, &asked.purpose, &steps, now, law.ttl);
        if steps.iter().any(|(draft, _)| draft.mode != Mode::Execute) {
            return self.show_series(&plan, &steps, "then draft_plan again").await;
        }
        self.hold_series(plan).await
    }

    /// What each step would do, as it would be shown alone.
    async fn preview_steps(&self, drafts: Vec<Draft>) -> Result<Vec<(Draft, Preview)>, Box<Refused>> {
        let mut steps = Vec::with_capacity(drafts.len());
        for (number, draft) in drafts.into_iter().enumerate() {
            match self.preview(&draft).await {
                Ok(preview) => steps.push((draft, preview)),
                Err(refusal) => {
                    let refusal = refusal.with("step", number + 1);
                    return Err(Box::new(Refused { refusal, record: draft.record }));
                }
            }
        }
        Ok(steps)
    }

    /// Plan mode: the previews, nothing changed, and how to go on.
    async fn show_series(&self, plan: &Plan, steps: &[(Draft, Preview)], then: &str) -> Answer {
        // Every preview is a row of its own, as it would be alone.
        for (draft, preview) in steps {
            let row = Entry::of_call(&draft.record, RowStatus::Success)
                .with_fact("preview_digest", preview.digest.hex());
            if let Err(fault) = self.house.store.append(row, self.house.now()).await {
                return self.refuse_unlogged(&fault.refusal());
            }
        }
        let hint = format!("nothing was changed; to run it: set_mode {{\"mode\":\"execute\"}}, {then}");
        let envelope = self
            .envelope()
            .with("status", "preview")
            .with("preview", plan.preview.shown.clone())
            .with("confirm", json!({"kind": plan.need.kind, "strength": plan.need.strength}))
            .with("execute_hint", hint)
            .with("next_actions", json!([NextAction::SwitchToExecute]));
        self.previewing(envelope, plan)
    }

    async fn hold_series(&self, plan: Plan) -> Answer {
        let (law, now) = (self.house.law.load_full(), self.house.now());
        let token = uuid::Uuid::new_v4().to_string();
        let mut record = self.series_row(&plan);
        record.mode = Some(Mode::Execute);
        if let Err(refusal) = self.check_drafts() {
            return self.refuse(Refused { refusal, record }).await;
        }
        let held =
            self.house.store.hold(&plan, token_digest(&token), plan.expires, record.clone(), now).await;
        let holding = match held {
            Ok(holding) => holding,
            Err(refused) => return self.not_held(&refused, record).await,
        };
        self.tell_of(&plan, &holding);
        let redeemable = self.is_redeemable(&holding, &plan.tool.upstream, &law).await;
        if redeemable || self.held_until_decided(&plan, &holding, &law).await {
            let brought = Brought { token: Some(token), yes: Some(true), text: None };
            let answer = self.run_series(&holding.plan_id, brought).await;
            if redeemable || !answer.is_refused(Code::ConfirmTokenUsed) {
                return answer;
            }
            // A person who agreed was faster to run it, too: then its steps are the answer.
            return self.series_ran_elsewhere(&holding.plan_id).await.unwrap_or(answer);
        }
        let again = Again { door: Door::Router(Variant::Destructive), params: None };
        let envelope = self.ask_for(&plan, &holding, &token, &law, Vec::new());
        self.asking(envelope, &plan, &holding, &token, again)
    }

    /// What came of a plan of several steps that a person ran while its call waited.
    async fn series_ran_elsewhere(&self, id: &PlanId) -> Option<Answer> {
        let row = self.row_run_elsewhere(id).await?;
        let status = if row.state == PlanState::Done { "done" } else { "failed" };
        let result = raw::from_text(row.result.as_deref()?)?;
        let steps = raw::get(&result, "steps")?;
        let envelope = self.envelope().with("status", status).with("plan_id", id.as_str());
        Some(Answer::Envelope(envelope.with_text("steps", steps.get())))
    }

    /// `run_plan`: every check again, then the steps in order.
    pub async fn run_series(&self, id: &PlanId, brought: Brought) -> Answer {
        let token = brought.token.as_deref().map(token_digest);
        let held = match token {
            Some(token) => self.house.store.held(token).await,
            None => Ok(None),
        };
        let held = match held {
            Ok(held) => held,
            Err(fault) => return self.refuse_unlogged(&fault.refusal()),
        };
        let permits = match check_series(&brought, held.as_ref(), &self.caller, id, self.house.now()) {
            Ok(held) => self.settle_steps(held, &brought).await,
            Err(refusal) => Err(Box::new(self.refused_series(held.as_ref(), id, refusal))),
        };
        match permits {
            Ok(Settled::Run(plan, permits)) => self.run_steps(&plan, permits).await,
            Ok(Settled::Look(plan, steps)) => self.show_series(&plan, &steps, "then run_plan again").await,
            Err(refused) => self.refuse(*refused).await,
        }
    }

    async fn settle_steps(&self, held: &Held, brought: &Brought) -> Result<Settled, Box<Refused>> {
        let plan = &held.plan;
        let calls = plan.steps.iter().map(|step| Call {
            caller: self.caller.clone(),
            name: step.tool.clone(),
            standing: countersign_core::call::Standing::Unknown(Vec::new()),
            arguments: step.arguments.clone(),
            door: Door::Router(
                step.intent
                    .as_ref()
                    .map_or(Variant::Write, |intent| Variant::for_effect(intent.operation_type)),
            ),
            intent: spoken(step),
            mode: None,
            brought: Brought::default(),
        });
        let drafts = self.judge_again(calls.collect()).await.map_err(|refused| outdated(plan, refused))?;
        // A token does not change what a mode means: in ask mode nothing is shown, in plan mode everything and nothing runs.
        if drafts.iter().any(|draft| draft.mode == Mode::Ask) {
            let refusal = Refusal::new(Code::ModeAsk, "mode is ask: the plan was not run");
            return Err(Box::new(self.refused_series(Some(held), &plan.id, refusal)));
        }
        if drafts.iter().any(|draft| draft.mode == Mode::Plan) {
            return Ok(Settled::Look(plan.clone(), self.preview_steps(drafts).await?));
        }
        if let Err(refusal) = check_series_strength(held, brought, &self.caller, self.house.now()) {
            return Err(Box::new(self.refused_series(Some(held), &plan.id, refusal)));
        }
        let mut fresh = Vec::with_capacity(drafts.len());
        for (draft, step) in drafts.iter().zip(&plan.steps) {
            let again = match (step.preview.is_recomputed(), self.preview(draft).await) {
                (false, _) => None,
                (true, Ok(preview)) => Some(preview),
                (true, Err(refusal)) => {
                    return Err(Box::new(Refused { refusal, record: draft.record.clone() }));
                }
            };
            fresh.push(again);
        }
        let permits = settle_series(held, drafts, &fresh, brought, &self.caller, self.house.now());
        match permits {
            Ok(permits) => Ok(Settled::Run(plan.clone(), permits)),
            Err(refusal) => Err(Box::new(self.refused_series(Some(held), &plan.id, refusal))),
        }
    }

    /// The steps, judged after their lists were read again.
    async fn judge_again(&self, mut calls: Vec<Call>) -> Result<Vec<Draft>, Box<Refused>> {
        if let Some(keeper) = self.house.keeper() {
            let mut seen: Vec<&countersign_core::ids::UpstreamId> =
                calls.iter().map(|call| &call.name.upstream).collect();
            seen.sort_unstable();
            seen.dedup();
            for upstream in seen {
                keeper.relist(upstream).await;
            }
        }
        for call in &mut calls {
            call.standing = self.house.standing(&call.name);
        }
        self.judge_steps(calls).await
    }

    async fn judge_steps(&self, calls: Vec<Call>) -> Result<Vec<Draft>, Box<Refused>> {
        let law = self.house.law.load_full();
        let mut drafts = Vec::with_capacity(calls.len());
        for (number, call) in calls.into_iter().enumerate() {
            let record =
                CallRecord::unread(&call.caller, call.name.clone(), None, call.arguments.text().as_bytes());
            let world = self
                .look(&call)
                .await
                .map_err(|fault| Box::new(Refused { refusal: fault.refusal(), record }))?;
            let draft = draft_step(call, &self.snapshot(&law, &world), self.house.now());
            drafts.push(draft.map_err(|mut refused| {
                refused.refusal = refused.refusal.with("step", number + 1);
                refused
            })?);
        }
        Ok(drafts)
    }

    /// Opens the whole, which spends the token; then one step after the other, until one fails.
    async fn run_steps(&self, plan: &Plan, permits: SeriesPermits) -> Answer {
        let SeriesPermits { whole, steps } = permits;
        let opened = match self.house.store.open(whole, self.house.now()).await {
            Ok(opened) => opened,
            Err(refused) => return self.not_opened(refused).await,
        };
        self.house.announce(plan.id.clone());
        let start = Instant::now();
        let mut told: Vec<Raw> = Vec::with_capacity(plan.steps.len());
        let (mut ended, mut done) = (Ended::Success, 0);
        for (permit, step) in steps.into_iter().zip(&plan.steps) {
            let (number, tool) = (told.len() + 1, step.tool.to_string());
            if ended != Ended::Success {
                told.push(raw::to_raw(&json!({"step": number, "tool": tool, "state": "not_run"})));
                continue;
            }
            let (answer, how) = self.perform(Box::new(permit)).await;
            ended = how;
            done += usize::from(how == Ended::Success);
            let state = if how == Ended::Success { "done" } else { "failed" };
            let line = raw::to_raw(&json!({"step": number, "tool": tool, "state": state}));
            // What came back stands there as it came, every digit of it.
            told.push(raw::set(&line, "result", &answer_text(answer)).unwrap_or(line));
        }
        let told = raw::to_raw(&told);
        let result = format!(r#"{{"steps":{told}}}"#);
        let outcome = Outcome {
            status: ended,
            code: (ended != Ended::Success).then_some(Code::StepFailed),
            duration_us: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
            result_digest: None,
            result: Some(result),
        };
        if let Err(fault) = self.house.store.close(opened, outcome, self.house.now()).await {
            tracing::error!(
                incident = fault.incident(),
                fault = fault.inside(),
                "an outcome could not be recorded"
            );
        }
        self.house.announce(plan.id.clone());
        let status = if ended == Ended::Success { "done" } else { "failed" };
        let mut envelope = self
            .envelope()
            .with("status", status)
            .with("plan_id", plan.id.as_str())
            .with_text("steps", told.get());
        if let Some(removed) = plan.preview.shown.get("removed_steps") {
            let note = "a person took steps out before agreeing: they were not run";
            envelope = envelope.with("removed_steps", removed.clone()).warn(vec![note.to_owned()]);
        }
        if ended != Ended::Success {
            let failed = done + 1;
            envelope.ok = false;
            let message = format!("step {failed} of `{}` failed; the steps after it were not run", plan.id);
            let refusal = Refusal::new(Code::StepFailed, message).with("step", failed);
            envelope.errors.push((&refusal).into());
        }
        Answer::Envelope(envelope)
    }

    fn step_call(&self, asked: Asked) -> Call {
        Call {
            standing: self.house.standing(&asked.name),
            caller: self.caller.clone(),
            arguments: super::filled(self.house, &asked.name, asked.arguments),
            name: asked.name,
            door: asked.door,
            intent: asked.intent,
            mode: None,
            brought: Brought::default(),
        }
    }

    fn series_row(&self, plan: &Plan) -> CallRecord {
        let mut record =
            CallRecord::unread(&self.caller, series_name(), None, plan.arguments.canonical().as_bytes());
        record.arguments_digest = plan.recorded_digest();
        record.arguments = self.house.redactor.clean(plan.arguments.value(), &plan.redact);
        record.effect = Some(plan.effect);
        record.plan_id = Some(plan.id.clone());
        record.plan_hash = Some(plan.hash);
        record
    }

    fn refused_series(&self, held: Option<&Held>, id: &PlanId, refusal: Refusal) -> Refused {
        let own = held.filter(|held| held.plan.principal == self.caller.principal && held.plan.id == *id);
        let record = match own {
            Some(held) => self.series_row(&held.plan),
            None => CallRecord::unread(&self.caller, series_name(), None, id.as_str().as_bytes()),
        };
        Refused { refusal, record }
    }
}

/// What a plan of several steps comes to when it is brought back.
enum Settled {
    /// It may run.
    Run(Plan, SeriesPermits),
    /// It is looked at: plan mode.
    Look(Plan, Vec<(Draft, Preview)>),
}

/// A step whose tool is withheld because it changed since it was shown ends the plan as the same check ends a single call.
fn outdated(plan: &Plan, mut refused: Box<Refused>) -> Box<Refused> {
    if refused.refusal.code == Code::ToolChanged {
        let message = format!("the tool has changed since `{}` was shown; ask for a new plan", plan.id);
        let changed = Refusal::new(Code::ConfirmTokenMismatch, message).because("tool_changed");
        let details = std::mem::take(&mut refused.refusal.details);
        refused.refusal = Refusal { details, ..changed };
    }
    refused
}

/// What a step declared when it was drafted, as it would be said again.
fn spoken(step: &countersign_core::plan::Step) -> Spoken {
    let intent = step.intent.as_ref().map(|intent| json!({"intent": intent})).unwrap_or_else(|| json!({}));
    intent.as_object().and_then(|fields| Spoken::read(fields).ok()).unwrap_or_default()
}

fn answer_text(answer: Answer) -> Raw {
    match answer {
        Answer::Envelope(envelope) | Answer::Carded(envelope, _) => raw::to_raw(&envelope),
        Answer::Upstream(result) => result,
        Answer::Rpc(error) => raw::to_raw(&json!({"code": error.code(), "message": error.message()})),
    }
}
