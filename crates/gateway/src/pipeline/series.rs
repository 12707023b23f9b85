//! Plans of several steps (`draft_plan`, `run_plan`): each step is evaluated and previewed as it would be alone, and the whole
//! is confirmed once. `steps` runs them.

use countersign_mcp::raw;
use countersign_policy::call::{Caller, CatalogStatus, ToolCall};
use countersign_policy::confirm::{ConfirmInput, PendingPlan};
use countersign_policy::effect::Effect;
use countersign_policy::gate::{
    CallDraft, MOST_STEPS, Refused, SeriesPermits, SeriesPurpose, check_series, check_series_strength,
    draft_step, freeze_series, series_name, settle_series, token_digest,
};
use countersign_policy::ids::{PlanId, UpstreamId};
use countersign_policy::intent::{CallEntryPoint, CallToolVariant};
use countersign_policy::mode::Mode;
use countersign_policy::plan::{Plan, PlanStep, Preview, PreviewSource};
use countersign_policy::preview::PreviewStyle;
use countersign_policy::record::CallRecord;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use serde_json::{Map, Value, json};

use super::approve_and_run::{call_of_plan, declared_again};
use super::dialog::{AUTOMATIC, DialogOutcome};
use super::hold::HeldPlan;
use super::preview::PreviewFault;
use super::request::{ToolCallRequest, invalid};
use super::steps::StoppedSeries;
use super::{CallPipeline, Stage};
use crate::answer::Answer;
use crate::cards::RepeatedCall;
use crate::surfaces::wait_for_upstream;

const STEP_FIELDS: [&str; 7] = [
    "name",
    "args",
    "args_json",
    "intent",
    "intent_operation_type",
    "intent_data_sensitivity",
    "intent_reason",
];

/// The most a dry run gets to know of earlier steps, in bytes. It has to fit into an environment variable.
const MOST_EARLIER: usize = 64 << 10;

pub(crate) struct StepRequest(ToolCallRequest);

impl StepRequest {
    /// Reads `{name, args, intent}`. The intent says through which call tool the step would come alone.
    pub(crate) fn read(step: &Value, number: usize) -> Result<Self, Refusal> {
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
        // A step without a usable intent counts as a write; the gate refuses what does not fit the tool.
        let variant = operation.and_then(|word| word.parse().ok()).unwrap_or(CallToolVariant::Write);
        let params = raw::to_raw(&json!({"arguments": step}));
        ToolCallRequest::from_router(variant, &params)
            .map(Self)
            .map_err(|(_, refusal)| refusal.with("step", number + 1))
    }
}

/// The arguments of `draft_plan`.
pub(crate) struct SeriesRequest {
    pub purpose: SeriesPurpose,
    pub steps: Vec<StepRequest>,
}

impl SeriesRequest {
    pub(crate) fn read(given: &Map<String, Value>) -> Result<Self, Refusal> {
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
        let steps = steps.iter().enumerate().map(|(number, step)| StepRequest::read(step, number));
        Ok(Self { purpose: SeriesPurpose { title, reason }, steps: steps.collect::<Result<_, _>>()? })
    }
}

/// What a plan of several steps does next.
enum SeriesTurn {
    /// Asks for its confirmation.
    Ask(HeldPlan),
    /// Runs.
    Run { plan: PlanId, input: ConfirmInput, waited: bool },
}

/// A plan of several steps that came back with its token and passed every check.
enum CheckedSeries {
    Run(Plan, SeriesPermits),
    /// Plan mode: the previews are shown, and nothing runs.
    Show(Plan, Vec<(CallDraft, Preview)>),
}

impl CallPipeline<'_> {
    /// `draft_plan`: in plan mode answers with the previews, in execute mode asks once for the whole.
    pub(crate) async fn draft_plan(&self, request: SeriesRequest) -> Answer {
        match self.hold_series(request).await {
            Ok(held) => self.run_turns(SeriesTurn::Ask(held)).await,
            Err(answer) => answer,
        }
    }

    /// `run_plan`. A plan of one call runs as that call would with its token: its arguments are not sent again.
    pub(crate) async fn run_plan(&self, id: &PlanId, input: ConfirmInput) -> Answer {
        let held = match self.load_held(&input).await {
            Ok(held) => held,
            Err(answer) => return answer,
        };
        match held.map(|held| held.plan) {
            Some(plan)
                // Any other plan goes on to `check_series`, which refuses without telling whose it is.
                if plan.steps.is_empty() && plan.id == *id && plan.principal == self.caller.principal =>
            {
                let call = call_of_plan(&plan, self.caller.clone(), input, None);
                Box::pin(self.run_call(Box::new(call))).await
            }
            Some(_) | None => self.run_series(id, input).await,
        }
    }

    pub(super) async fn run_series(&self, id: &PlanId, input: ConfirmInput) -> Answer {
        self.run_turns(SeriesTurn::Run { plan: id.clone(), input, waited: false }).await
    }

    /// Asks and runs in turns: a plan that stops at a step nobody has seen asks for the rest with a new plan.
    async fn run_turns(&self, mut turn: SeriesTurn) -> Answer {
        let mut stopped: Vec<StoppedSeries> = Vec::new();
        let answer = loop {
            let next = match turn {
                SeriesTurn::Ask(held) => self.ask_for_series(held).await,
                SeriesTurn::Run { plan, input, waited } => {
                    match self.run_stored_series(&plan, &input).await {
                        Ok((ran, rest)) => {
                            stopped.push(ran);
                            Ok(SeriesTurn::Ask(rest))
                        }
                        Err(answer) => {
                            // Only a call that waited may take the result of a person's run; for a plain
                            // `run_plan` the token is used.
                            break self.prefer_finished_result(waited.then_some(plan), answer).await;
                        }
                    }
                }
            };
            match next {
                Ok(next) => turn = next,
                Err(answer) => break answer,
            }
        };
        stopped.iter().rev().fold(answer, |answer, ran| self.with_ran_steps(answer, ran))
    }

    /// Evaluates and previews every step, and stores the plan.
    async fn hold_series(&self, request: SeriesRequest) -> Stage<HeldPlan> {
        for step in &request.steps {
            if let Some(ctx) = self.ctx {
                Box::pin(wait_for_upstream(self.gateway, ctx, &step.0.name.upstream)).await;
            }
        }
        // All steps are judged before any is previewed: a plan with a forbidden step must not run a dry run.
        let calls = request.steps.into_iter().map(|step| self.step_call(step.0)).collect();
        let drafts = self.evaluate_steps(calls).await;
        let drafts = self.or_refuse(drafts).await?;
        if let Some(draft) = drafts.iter().find(|draft| draft.mode == Mode::Ask) {
            let message = "mode is ask: draft_plan works in plan and execute mode";
            let refusal = Refusal::new(Code::ModeAsk, message);
            return Err(self.refuse(Refused { refusal, record: draft.record.clone() }).await);
        }
        let steps = self.preview_steps(drafts, None).await;
        let steps = self.or_refuse(steps).await?;
        let (policy, now) = (self.gateway.policy.load_full(), self.gateway.now());
        let id = PlanId::mint(now, uuid::Uuid::new_v4().as_u128());
        let plan = freeze_series(id, &self.caller, &request.purpose, &steps, now, policy.ttl);
        if steps.iter().any(|(draft, _)| draft.mode != Mode::Execute) {
            return Err(self.show_series(&plan, &steps, "then draft_plan again").await);
        }
        let mut record = self.series_record(&plan);
        record.mode = Some(Mode::Execute);
        if let Err(refusal) = self.check_draft_rate() {
            return Err(self.refuse(Refused { refusal, record }).await);
        }
        // A client that lost the answer drafts again: it gets the result and nothing runs twice.
        self.deliver_finished_plan(&plan.arguments, &record, &policy).await?;
        let held = self.store_plan(plan, record.clone()).await?;
        self.log().decided("held", &record, held.plan.rule.as_deref());
        Ok(held)
    }

    /// Asks for a stored plan over every channel there is, and keeps the call open for the answer.
    async fn ask_for_series(&self, held: HeldPlan) -> Stage<SeriesTurn> {
        let policy = self.gateway.policy.load_full();
        let HeldPlan { plan, holding, token } = &held;
        let is_approved = self.is_approved(holding, &plan.tool.upstream, &policy).await;
        let outcome = match is_approved {
            true => DialogOutcome::Decided,
            false => self.ask_until_decided(plan, holding, &policy).await,
        };
        if outcome == DialogOutcome::Decided {
            let input = ConfirmInput { token: Some(token.clone()), yes: Some(true), text: None };
            return Ok(SeriesTurn::Run { plan: holding.plan_id.clone(), input, waited: !is_approved });
        }
        let again =
            RepeatedCall { entry_point: CallEntryPoint::Router(CallToolVariant::Destructive), params: None };
        let mut warnings = when_reached_note(plan);
        warnings.extend((outcome == DialogOutcome::Automatic).then(|| AUTOMATIC.to_owned()));
        Err(self.ask_for_confirmation(&held, &policy, warnings, again))
    }

    /// Checks a plan that came back with its token, and runs its steps. Returns what ran and the plan of the rest where a step
    /// has to be seen first; every other end is an answer.
    async fn run_stored_series(&self, id: &PlanId, input: &ConfirmInput) -> Stage<(StoppedSeries, HeldPlan)> {
        let held = self.load_held(input).await?;
        let checked = match check_series(input, held.as_ref(), &self.caller, id, self.gateway.now()) {
            Ok(held) => self.redeem_series(held, input).await,
            Err(refusal) => Err(Box::new(self.refused_series(held.as_ref(), id, refusal))),
        };
        match self.or_refuse(checked).await? {
            CheckedSeries::Run(plan, permits) => {
                self.log().decided("allowed", &self.series_record(&plan), plan.rule.as_deref());
                self.run_steps(plan, permits).await
            }
            CheckedSeries::Show(plan, steps) => {
                Err(self.show_series(&plan, &steps, "then run_plan again").await)
            }
        }
    }

    async fn load_held(&self, input: &ConfirmInput) -> Stage<Option<PendingPlan>> {
        let Some(token) = input.token.as_deref().map(token_digest) else { return Ok(None) };
        self.gateway.store.held(token).await.map_err(|fault| self.refuse_unrecorded(&fault.refusal()))
    }

    /// Evaluates every step again and compares the previews with those that were shown.
    async fn redeem_series(
        &self,
        held: &PendingPlan,
        input: &ConfirmInput,
    ) -> Result<CheckedSeries, Box<Refused>> {
        let plan = &held.plan;
        let refused = |refusal| Box::new(self.refused_series(Some(held), &plan.id, refusal));
        let drafts =
            self.evaluate_again(plan.steps.iter()).await.map_err(|refused| tool_changed(plan, refused))?;
        // A token does not change what a mode means: ask mode shows nothing, plan mode shows everything and runs nothing.
        if drafts.iter().any(|draft| draft.mode == Mode::Ask) {
            return Err(refused(Refusal::new(Code::ModeAsk, "mode is ask: the plan was not run")));
        }
        if drafts.iter().any(|draft| draft.mode == Mode::Plan) {
            return Ok(CheckedSeries::Show(plan.clone(), self.preview_steps(drafts, None).await?));
        }
        // After the modes: they say more than a missing approval. Before the previews: those are calls.
        check_series_strength(held, input, &self.caller, self.gateway.now()).map_err(refused)?;
        let mut fresh = Vec::with_capacity(drafts.len());
        for (draft, step) in drafts.iter().zip(&plan.steps) {
            // A preview that was computed from the call, or is made when its step is reached, has nothing to compare.
            if !step.preview.is_recomputed() {
                fresh.push(None);
                continue;
            }
            let preview = self.compute_preview(draft, None).await.map_err(|fault| {
                Box::new(Refused { refusal: fault.refusal(), record: draft.record.clone() })
            })?;
            fresh.push(Some(preview));
        }
        let permits = settle_series(held, drafts, &fresh, input, &self.caller, self.gateway.now());
        permits.map(|permits| CheckedSeries::Run(plan.clone(), permits)).map_err(refused)
    }

    /// Previews each step. One whose preview may fail only because an earlier step has not run is marked, not refused. `known`
    /// is the preview of the first step, where it was made already.
    pub(super) async fn preview_steps(
        &self,
        drafts: Vec<CallDraft>,
        mut known: Option<Preview>,
    ) -> Result<Vec<(CallDraft, Preview)>, Box<Refused>> {
        let mut steps = Vec::with_capacity(drafts.len());
        let mut earlier = EarlierSteps::default();
        for (number, draft) in drafts.into_iter().enumerate() {
            let made = match known.take() {
                Some(preview) => Ok(preview),
                None => self.compute_preview(&draft, None).await,
            };
            let preview = match made {
                Ok(preview) => preview,
                // Only where the upstream answered: one that can't be reached now would not be reached later either.
                Err(PreviewFault::Answered(_)) if earlier.has_writes => {
                    let chained = self.preview_chained(&draft, &earlier).await;
                    chained.unwrap_or_else(|| draft.preview_when_reached())
                }
                Err(fault) => {
                    let refusal = fault.refusal().with("step", number + 1);
                    return Err(Box::new(Refused { refusal, record: draft.record }));
                }
            };
            earlier.add(&draft, &preview);
            steps.push((draft, preview));
        }
        Ok(steps)
    }

    /// The preview as if the earlier steps had run, where the upstream or a command can make one.
    async fn preview_chained(&self, draft: &CallDraft, earlier: &EarlierSteps) -> Option<Preview> {
        let upstream = &draft.call.name.upstream;
        let upstreams = self.gateway.upstreams.load();
        let is_command = matches!(draft.style, PreviewStyle::Command(_));
        // Others would take the extra input for an argument.
        let can_chain = is_command || upstreams.get(upstream).is_some_and(|found| found.chains_previews());
        let earlier = earlier.text_for(upstream).filter(|_| can_chain)?;
        Some(self.compute_preview(draft, Some(earlier)).await.ok()?.chained())
    }

    /// Plan mode: answers with the previews and how to go on.
    async fn show_series(&self, plan: &Plan, steps: &[(CallDraft, Preview)], then: &str) -> Answer {
        for (draft, preview) in steps {
            self.log().decided("previewed", &draft.record, draft.applied_rule().as_deref());
            if let Err(answer) = self.record_preview(draft, preview).await {
                return answer;
            }
        }
        let hint = format!("nothing was changed; to run it: set_mode {{\"mode\":\"execute\"}}, {then}");
        let envelope = self
            .envelope()
            .warn(when_reached_note(plan))
            .with("status", "preview")
            .with("tool", plan.tool.to_string())
            .with("preview", plan.preview.shown.clone())
            .with("confirm", json!({"kind": plan.requirement.kind, "strength": plan.requirement.strength}))
            .with("execute_hint", hint)
            .with("next_actions", json!([NextAction::SwitchToExecute]));
        self.answer_with_preview_card(envelope, plan)
    }

    /// Evaluates steps that were agreed to, after their upstreams listed their tools again.
    pub(super) async fn evaluate_again(
        &self,
        steps: impl Iterator<Item = &PlanStep>,
    ) -> Result<Vec<CallDraft>, Box<Refused>> {
        let mut calls: Vec<ToolCall> = steps.map(|step| call_of_step(step, &self.caller)).collect();
        if let Some(refresher) = self.gateway.refresher() {
            // Each upstream once: listing is a request, and a plan may have many steps of one.
            let mut upstreams: Vec<&UpstreamId> = calls.iter().map(|call| &call.name.upstream).collect();
            upstreams.sort_unstable();
            upstreams.dedup();
            for upstream in upstreams {
                refresher.relist(upstream).await;
            }
        }
        for call in &mut calls {
            call.catalog_status = self.gateway.standing(&call.name);
        }
        self.evaluate_steps(calls).await
    }

    async fn evaluate_steps(&self, calls: Vec<ToolCall>) -> Result<Vec<CallDraft>, Box<Refused>> {
        let policy = self.gateway.policy.load_full();
        let mut drafts = Vec::with_capacity(calls.len());
        for (number, call) in calls.into_iter().enumerate() {
            let record =
                CallRecord::unread(&call.caller, call.name.clone(), None, call.arguments.text().as_bytes());
            let context = self.read_context(&call).await;
            let context = context.map_err(|fault| Box::new(Refused { refusal: fault.refusal(), record }))?;
            // Without the token: each step is judged as a new call, and the confirmation counts for the whole.
            let draft = draft_step(call, &self.snapshot(&policy, &context), self.gateway.now());
            drafts.push(draft.map_err(|mut refused| {
                refused.refusal = refused.refusal.with("step", number + 1);
                refused
            })?);
        }
        Ok(drafts)
    }

    /// Ends the call with the refusal, where there is one.
    pub(super) async fn or_refuse<T>(&self, result: Result<T, Box<Refused>>) -> Stage<T> {
        match result {
            Ok(value) => Ok(value),
            Err(refused) => Err(self.refuse(*refused).await),
        }
    }

    fn step_call(&self, request: ToolCallRequest) -> ToolCall {
        let catalog_status = self.gateway.standing(&request.name);
        ToolCall {
            catalog_status,
            mode: None,
            confirm_input: ConfirmInput::default(),
            ..self.build_call(request)
        }
    }

    pub(super) fn series_record(&self, plan: &Plan) -> CallRecord {
        let mut record =
            CallRecord::unread(&self.caller, series_name(), None, plan.arguments.canonical().as_bytes());
        record.arguments_digest = plan.recorded_digest();
        record.arguments = self.gateway.redactor.clean(plan.arguments.value(), &plan.redact);
        record.effect = Some(plan.effect);
        record.plan_id = Some(plan.id.clone());
        record.plan_hash = Some(plan.hash);
        record
    }

    fn refused_series(&self, held: Option<&PendingPlan>, id: &PlanId, refusal: Refusal) -> Refused {
        // The row must not tell one principal what another one planned.
        let own = held.filter(|held| held.plan.principal == self.caller.principal && held.plan.id == *id);
        let record = match own {
            Some(held) => self.series_record(&held.plan),
            None => CallRecord::unread(&self.caller, series_name(), None, id.as_str().as_bytes()),
        };
        Refused { refusal, record }
    }
}

/// The steps before one that is being previewed.
#[derive(Default)]
struct EarlierSteps {
    has_writes: bool,
    writes: Vec<(UpstreamId, Value)>,
}

impl EarlierSteps {
    fn add(&mut self, draft: &CallDraft, preview: &Preview) {
        if draft.classified.effect == Effect::Read {
            return;
        }
        self.has_writes = true;
        let name = &draft.call.name;
        let described =
            json!({"tool": name.tool, "arguments": draft.record.arguments, "preview": preview.shown});
        self.writes.push((name.upstream.clone(), described));
    }

    /// The steps of one upstream as JSON text; none where there are none or the text is too long. What goes to another upstream
    /// stays secret from this one.
    fn text_for(&self, upstream: &UpstreamId) -> Option<String> {
        let own: Vec<&Value> =
            self.writes.iter().filter(|(of, _)| of == upstream).map(|(_, step)| step).collect();
        let text = json!(own).to_string();
        (!own.is_empty() && text.len() <= MOST_EARLIER).then_some(text)
    }
}

/// A warning about steps that are previewed when they are reached; empty where there are none.
pub(super) fn when_reached_note(plan: &Plan) -> Vec<String> {
    let is_marked = |step: &PlanStep| step.preview.source == PreviewSource::WhenReached;
    let marked = plan.steps.iter().enumerate().filter(|(_, step)| is_marked(step));
    let numbers: Vec<String> = marked.map(|(number, _)| (number + 1).to_string()).collect();
    match numbers.as_slice() {
        [] => Vec::new(),
        [one] => vec![format!("step {one} is previewed when reached: it needs what earlier steps do")],
        all => vec![format!(
            "steps {} are previewed when reached: they need what earlier steps do",
            all.join(", ")
        )],
    }
}

/// Refuses a step whose tool changed since it was shown the way a single call's plan is refused for it.
fn tool_changed(plan: &Plan, mut refused: Box<Refused>) -> Box<Refused> {
    if refused.refusal.code == Code::ToolChanged {
        let message = format!("the tool has changed since `{}` was shown; ask for a new plan", plan.id);
        let changed = Refusal::new(Code::ConfirmTokenMismatch, message).because("tool_changed");
        let details = std::mem::take(&mut refused.refusal.details);
        refused.refusal = Refusal { details, ..changed };
    }
    refused
}

fn call_of_step(step: &PlanStep, caller: &Caller) -> ToolCall {
    let declared = step.intent.as_ref().map(|intent| CallToolVariant::for_effect(intent.operation_type));
    ToolCall {
        caller: caller.clone(),
        name: step.tool.clone(),
        catalog_status: CatalogStatus::Unknown(Vec::new()),
        arguments: step.arguments.clone(),
        entry_point: CallEntryPoint::Router(declared.unwrap_or(CallToolVariant::Write)),
        intent: declared_again(step.intent.as_ref(), None),
        mode: None,
        confirm_input: ConfirmInput::default(),
    }
}
