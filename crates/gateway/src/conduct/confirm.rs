//! The confirm protocol on the way of a call: preview, hold, ask the host, wait for a person, redeem.

use std::time::Duration;

use countersign_core::call::Arguments;
use countersign_core::config::PREVIEW_SUFFIX;
use countersign_core::confirm::{Approval, Kind, PlanState, Rail, Strength, check_unblocked};
use countersign_core::duration::Rate;
use countersign_core::envelope::Envelope;
use countersign_core::gate::{
    Draft, DryRun, Redemption, Refused, SentMeta, Usage as _, over_limit, token_digest,
};
use countersign_core::ids::{PlanId, PrincipalId};
use countersign_core::mode::Mode;
use countersign_core::plan::{Plan, Preview, PreviewSource};
use countersign_core::preview::Style;
use countersign_core::record::{CallRecord, RowStatus, Source};
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_core::rules::RuleName;
use countersign_core::strict_json;
use countersign_core::suggest::Moment;
use countersign_store::{Entry, HoldRefused, Holding, Joined, NotSpendable, ShownPlan};
use countersign_wire::raw::{self, Raw};
use countersign_wire::upstream::Questions;
use serde_json::{Value, json};

use super::Conduct;
use super::question::question;
use crate::answer::Answer;
use crate::cards::{self, Again, Cards};
use crate::escape;
use crate::law::Law;
use crate::members;
use crate::trace;
use crate::upstreams::{Errand, UpstreamFault, command};

impl Conduct<'_> {
    /// Plan mode: the preview, nothing changed, and how to go on.
    pub(super) async fn show_preview(&self, mut draft: Draft) -> Answer {
        let preview = match self.planned(&mut draft).await {
            Ok(preview) => preview,
            Err(refusal) => return self.refuse(Refused { refusal, record: draft.record }).await,
        };
        let again = match (&draft.style, draft.is_preview()) {
            (Style::Argument { arg, .. }, true) => format!("the same call without `{arg}`"),
            (_, _) => "the same call".to_owned(),
        };
        let hint = format!(
            "nothing was changed; to run it: set_mode {{\"mode\":\"execute\"}} or mode=\"execute\", then {again}; \
             it needs confirm `{}` of strength `{}`",
            draft.need.kind, draft.need.strength
        );
        let row = Entry::of_call(&draft.record, RowStatus::Success)
            .with_fact("preview_digest", preview.digest.hex());
        if let Err(fault) = self.house.store.append(row, self.house.now()).await {
            return self.refuse_unlogged(&fault.refusal());
        }
        let suggestions =
            self.suggest(Moment::Previewed, Some(draft.mode), &draft.call.name, Some(&draft.need));
        let envelope = self
            .envelope()
            .with("status", "preview")
            .with("tool", draft.call.name.to_string())
            .with("effect", draft.classified.effect.as_str())
            .with("confirm", json!({"kind": draft.need.kind, "strength": draft.need.strength}))
            .with("preview", shown(&preview))
            .with("execute_hint", hint)
            .with("next_actions", json!([NextAction::SwitchToExecute]))
            .with("suggestions", suggestions)
            .warn(draft.warnings.clone());
        let now = self.house.now();
        let plan = draft.freeze(PlanId::mint(now, 0), preview, now, Duration::ZERO);
        self.previewing(envelope, &plan)
    }

    /// Phase 1: preview, freeze, keep, and ask over the rails there are.
    pub(super) async fn hold(&self, mut draft: Draft, law: &Law) -> Answer {
        if let Err(refusal) = self.check_drafts() {
            return self.refuse(Refused { refusal, record: draft.record }).await;
        }
        let preview = match self.planned(&mut draft).await {
            Ok(preview) => preview,
            Err(refusal) => return self.refuse(Refused { refusal, record: draft.record }).await,
        };
        let now = self.house.now();
        let random = uuid::Uuid::new_v4();
        let plan = draft.freeze(PlanId::mint(now, random.as_u128()), preview, now, law.ttl);
        let token = uuid::Uuid::new_v4().to_string();
        let holding =
            self.house.store.hold(&plan, token_digest(&token), plan.expires, draft.record.clone(), now).await;
        let holding = match holding {
            Ok(holding) => holding,
            Err(refused) => return self.not_held(&refused, draft.record).await,
        };
        trace::noted("countersign.plan_id", holding.plan_id.as_str());
        self.tell_of(&plan, &holding);
        if self.is_redeemable(&holding, &plan.tool.upstream, law).await {
            return self.bring_back(draft, &token).await;
        }
        // Whatever was decided, by whomever, shows when the call comes back with its token.
        if self.held_until_decided(&plan, &holding, law).await {
            if let Some(answer) = self.ran_elsewhere(&holding.plan_id).await {
                return answer;
            }
            let answer = self.bring_back(draft, &token).await;
            // A person who agreed may have been faster to run it, too: then its result is the answer.
            return match answer.is_refused(Code::ConfirmTokenUsed) {
                true => self.ran_elsewhere(&holding.plan_id).await.unwrap_or(answer),
                false => answer,
            };
        }
        let again = Again { door: draft.call.door, params: self.rest.as_deref() };
        let envelope = self.ask_for(&plan, &holding, &token, law, draft.warnings);
        self.asking(envelope, &plan, &holding, &token, again)
    }

    /// The answer of phase 1, with its card where the client shows cards.
    pub(super) fn asking(
        &self,
        envelope: Envelope,
        plan: &Plan,
        holding: &Holding,
        token: &str,
        again: Again<'_>,
    ) -> Answer {
        match Cards::of(self.ctx) {
            Cards::Shown => Answer::Carded(envelope, cards::asking(self.house, plan, holding, token, again)),
            Cards::Hidden => Answer::Envelope(envelope),
        }
    }

    /// The answer of plan mode, with a card to look at where the client shows cards.
    pub(super) fn previewing(&self, envelope: Envelope, plan: &Plan) -> Answer {
        match Cards::of(self.ctx) {
            Cards::Shown => Answer::Carded(envelope, cards::previewing(self.house, plan)),
            Cards::Hidden => Answer::Envelope(envelope),
        }
    }

    /// Refuses another plan of a principal that asked for too many lately: withdrawing them does not make room.
    pub(super) fn check_drafts(&self) -> Result<(), Refusal> {
        let (rule, rate) = self.drafts();
        match self.house.usage.wait(&rule, &self.caller.principal, rate, self.house.now()) {
            Some(wait) => Err(over_limit(&rule, rate, wait)),
            None => Ok(()),
        }
    }

    fn drafts(&self) -> (RuleName, Rate) {
        (RuleName("limits.drafts".into()), self.house.law.load().config.limits.drafts)
    }

    /// Tells whoever is configured that a plan waits; one that was joined is no news.
    pub(super) fn tell_of(&self, plan: &Plan, holding: &Holding) {
        if holding.how == Joined::New {
            let (rule, rate) = self.drafts();
            // The plan is there: only the next one can be refused.
            let _ = self.house.usage.take(&rule, &self.caller.principal, rate, self.house.now());
            crate::notify::tell_of(self.house, &holding.plan_id, plan);
        }
    }

    /// A plan that could not be kept. One too many has its row from the store already.
    pub(super) async fn not_held(&self, refused: &HoldRefused, record: CallRecord) -> Answer {
        let refusal = refused.refusal();
        match refused {
            HoldRefused::TooManyPending => self.refuse_unlogged(&refusal),
            HoldRefused::Fault(_) => self.refuse(Refused { refusal, record }).await,
        }
    }

    /// The answer of phase 1: what would happen, the token, and who has to agree.
    pub(super) fn ask_for(
        &self,
        plan: &Plan,
        holding: &Holding,
        token: &str,
        law: &Law,
        warnings: Vec<String>,
    ) -> Envelope {
        // What the preview forbids nobody can agree to: whoever asked is told so, and not where to ask.
        let blocks = countersign_core::preview::blocks(plan);
        let person = plan.need.strength > Strength::Caller && blocks.is_empty();
        let confirm = json!({
            "kind": plan.need.kind,
            "strength": plan.need.strength,
            "prompt": plan.need.prompt(&plan.tool),
            "expires": plan.expires,
        });
        let mut envelope = self
            .envelope()
            .with("status", "confirmation_required")
            .with("plan_id", holding.plan_id.as_str())
            .with("state", holding.state.as_str())
            .with("tool", plan.tool.to_string())
            .with("effect", plan.effect.as_str())
            .with("confirm", confirm)
            .with("preview", shown(&plan.preview))
            .with("confirm_token", token)
            .with("confirm_plan_hash", holding.hash.hex())
            .with("confirm_token_expires_at", plan.expires.to_string());
        if person {
            envelope = envelope.with("approve_command", format!("countersign approve {}", holding.plan_id));
            if let Some(desk) = &law.desk_url {
                envelope = envelope.with("approve_url", format!("{desk}/plans/{}", holding.plan_id));
            }
        }
        if !blocks.is_empty() {
            return envelope
                .with("blocks", blocks)
                .with("next_actions", json!([NextAction::FixArguments, NextAction::Stop]))
                .warn(warnings);
        }
        let next: &[NextAction] = match plan.need.strength {
            Strength::Caller => &[NextAction::AskUser, NextAction::ReissueWithToken],
            Strength::Host | Strength::Human => {
                &[NextAction::AskPerson, NextAction::WaitForApproval, NextAction::ReissueWithToken]
            }
        };
        let suggestions = self.suggest(Moment::Held, Some(Mode::Execute), &plan.tool, Some(&plan.need));
        envelope.with("next_actions", json!(next)).with("suggestions", suggestions).warn(warnings)
    }

    /// Phase 2: the preview again where the upstream made it, then spend and run.
    pub(super) async fn redeem(&self, redemption: Redemption) -> Answer {
        let fresh = match redemption.dry_run() {
            None => None,
            Some(dry) => match trace::part(
                "preview",
                self.dry_run(
                    &redemption.plan().tool.upstream,
                    &dry,
                    redemption.style(),
                    redemption.plan().meta.as_ref(),
                ),
            )
            .await
            {
                Ok(preview) => Some(preview),
                Err(refusal) => {
                    let record = redemption.record().clone();
                    let refused = Box::pin(self.or_used(Refused { refusal, record })).await;
                    return self.refuse(refused).await;
                }
            },
        };
        match redemption.settle(fresh.as_ref()) {
            Ok(permit) => self.run(Box::new(permit)).await,
            Err(refused) => {
                let refused = Box::pin(self.or_used(refused)).await;
                self.refuse(refused).await
            }
        }
    }

    /// The refusal of a plan brought back whose preview is not the one that was shown: where somebody else with the same token was
    /// faster, that is why, and is said.
    async fn or_used(&self, refused: Refused) -> Refused {
        let Some(id) = refused.record.plan_id.clone() else { return refused };
        let row = self.house.store.plan(&id).await.ok().flatten();
        let ran = row.is_some_and(|row| match row.state {
            PlanState::Executing | PlanState::Done | PlanState::Failed | PlanState::OutcomeUnknown => true,
            PlanState::Pending
            | PlanState::Approved
            | PlanState::Rejected
            | PlanState::Cancelled
            | PlanState::Expired => false,
        });
        if ran { Refused { refusal: NotSpendable::Used.refusal(Some(&id)), ..refused } } else { refused }
    }

    /// The same call again, with its token: every check from the start.
    async fn bring_back(&self, draft: Draft, token: &str) -> Answer {
        let mut call = draft.call;
        call.brought.token = Some(token.to_owned());
        call.brought.yes = Some(true);
        Box::pin(self.go(call)).await
    }

    /// The preview of a draft, which takes over what of the request's `_meta` its plan keeps.
    async fn planned(&self, draft: &mut Draft) -> Result<Preview, Refusal> {
        draft.meta = members::planned_meta(self.rest.as_deref())?;
        self.preview(draft).await
    }

    /// The preview of a draft: the upstream's own, or computed from the call.
    pub(super) async fn preview(&self, draft: &Draft) -> Result<Preview, Refusal> {
        match draft.dry_run() {
            None => Ok(draft.computed_preview()),
            Some(dry) => {
                let upstream = &draft.call.name.upstream;
                let asking = self.dry_run(upstream, &dry, &draft.style, draft.meta.as_ref());
                trace::part("preview", asking).await
            }
        }
    }

    async fn dry_run(
        &self,
        upstream: &countersign_core::ids::UpstreamId,
        dry: &DryRun,
        style: &Style,
        meta: Option<&Arguments>,
    ) -> Result<Preview, Refusal> {
        let failed = |why: String| {
            Refusal::new(Code::PreviewFailed, format!("the preview of `{}` failed: {why}", dry.tool))
        };
        let upstreams = self.house.upstreams.load();
        let Some(upstream) = upstreams.get(upstream) else {
            return Err(failed(format!("upstream `{upstream}` is gone")));
        };
        let mut talk = self.talk(upstream.as_ref(), None);
        // A dry run asks nobody and tells no progress: its answer is only a preview.
        (talk.relay, talk.questions) = (None, Questions::PassThrough);
        let asked = match (style, self.house.runs()) {
            (Style::Command(command), Some(runs)) => {
                let call = (upstream.id(), dry.tool.as_str(), dry.arguments.as_str());
                let law = self.house.law.load_full();
                law.looks.look(command, call, runs, talk.deadline.limit()).await
            }
            (Style::Command(_), None) => return Err(failed("no command can be started here".to_owned())),
            (Style::Argument { .. } | Style::Companion { .. } | Style::Computed, _) => {
                // The call that would be made has this `_meta`: so has its dry run.
                let rest =
                    meta.and_then(|meta| members::along(None, None, &SentMeta::OfPlan(Some(meta.clone()))));
                let rest = rest.as_deref();
                let doing = async |onward: Option<Raw>| {
                    upstream.call(Errand::dry_run(dry, onward.as_deref().or(rest)), talk).await
                };
                trace::sent(upstream.id().as_str(), "tools/call", Some(dry.tool.as_str()), rest, doing).await
            }
        };
        let result = asked.map_err(|fault| match fault {
            UpstreamFault::Rpc(error) => failed(error.message()),
            UpstreamFault::Unavailable { why, .. } | UpstreamFault::Timeout { why, .. } => failed(why),
        })?;
        let by_command = matches!(style, Style::Command(_)) || dry.tool.as_str().ends_with(PREVIEW_SUFFIX);
        if raw::get(&result, "isError").is_some_and(|flag| flag.get() == "true") {
            let result = as_value(&result);
            // Our own upstreams speak our own language: what they refuse is the refusal.
            if let Some(refusal) = upstream.own_refusal(&result) {
                return Err(refusal);
            }
            let said = |part: &str| {
                result.pointer(&format!("/structuredContent/errors/0/{part}")).and_then(Value::as_str)
            };
            let first = result.pointer("/content/0/text").and_then(Value::as_str).filter(|_| by_command);
            let why = match (said("code"), said("message"), first) {
                (Some(code), Some(message), _) => escape::excerpt(&format!("{code}: {message}"), 300),
                (_, _, Some(first)) => escape::excerpt(first, 300),
                _ => "the upstream answered with an error".to_owned(),
            };
            return Err(failed(why).with("result", result));
        }
        let result = as_value(&result);
        let (source, decisive) = match style {
            Style::Companion { digest, .. } => {
                let told = upstream.decisive(dry.tool.as_str(), &result).filter(|_| digest.is_empty());
                let source = if by_command { PreviewSource::Command } else { PreviewSource::Companion };
                (source, told.unwrap_or_else(|| decisive(&result, digest)))
            }
            Style::Command(command) => {
                let told = command::without(&command.ignore, &result);
                (PreviewSource::Command, told.unwrap_or_else(|| decisive(&result, &[])))
            }
            Style::Argument { .. } | Style::Computed => (PreviewSource::Argument, decisive(&result, &[])),
        };
        Ok(Preview::new(source, result, &decisive))
    }

    /// Asks the host's user interface where the client offers it and its answer is enough. Silence decides nothing.
    /// Where its answer would count as the caller's only, it is asked to open the page instead.
    pub(super) async fn ask_host(&self, plan: &Plan, holding: &Holding) -> bool {
        if check_unblocked(plan).is_err() {
            return false;
        }
        let vouching = self.caller.scopes.vouching;
        if plan.need.strength > Rail::Elicitation.strength_with(vouching) || plan.need.kind == Kind::Type {
            return self.open_page(plan, holding).await;
        }
        // A plan that was joined may have been decided already: nobody is asked twice.
        if holding.state != PlanState::Pending {
            return false;
        }
        let params = raw::to_raw(&json!({
            "mode": "form",
            "message": question(plan, &holding.plan_id, &self.house.redactor),
            "requestedSchema": {"type": "object", "properties": {}},
        }));
        let Some(ctx) = self.ctx.filter(|ctx| ctx.can_ask("elicitation/create", Some(&params))) else {
            return false;
        };
        // Whoever answers first decides: a person elsewhere need not wait for a host that shows nothing.
        let patience = self.dialog_patience().as_secs_f64();
        let decided = crate::waiting::until_decided(self.house, ctx, &holding.plan_id, patience);
        let asking = async {
            tokio::select! {
                // It names the plan, which is decided once: whichever replica the answer comes to can take it.
                answer = ctx.ask_anywhere("elicitation/create", Some(&params)) => Err(answer),
                decided = decided => Ok(decided),
            }
        };
        let answer = match trace::part("wait", asking).await {
            Ok(decided) => return decided,
            Err(answer) => answer,
        };
        let Ok(answer) = answer else { return false };
        match raw::get_str(&answer, "action").as_deref() {
            Some("accept") => {
                let now = self.house.now();
                let approval = Approval::by_host(Rail::Elicitation, vouching, host_of(plan), now);
                // A decision that comes too late changes nothing: the first one shows.
                let shown = ShownPlan { hash: holding.hash, expires: holding.expires };
                let source = Some(Source::Mcp);
                let store = &self.house.store;
                let _ = store.approve_shown(&holding.plan_id, Some(shown), approval, source, now).await;
                self.house.announce(holding.plan_id.clone());
            }
            Some("decline") => self.host_rejects(plan, holding).await,
            _ => return false,
        }
        true
    }

    /// The host's user interface said no.
    pub(super) async fn host_rejects(&self, plan: &Plan, holding: &Holding) {
        let (store, now) = (&self.house.store, self.house.now());
        // As with an approval: the first decision shows.
        let _ = store.reject(&holding.plan_id, host_of(plan), Rail::Elicitation, None, now).await;
        self.house.announce(holding.plan_id.clone());
    }
}

/// Who speaks over the host's user interface.
fn host_of(plan: &Plan) -> PrincipalId {
    PrincipalId::new(format!("host:{}", plan.principal))
}

/// The preview as an answer carries it.
fn shown(preview: &Preview) -> Value {
    json!({"source": preview.source, "digest": preview.digest, "shown": preview.shown})
}

fn as_value(result: &serde_json::value::RawValue) -> Value {
    let mut value = strict_json::read_to_show(result.get()).unwrap_or(Value::Null);
    if let Some(members) = value.as_object_mut() {
        members.remove("_meta");
    }
    value
}

/// The part of a preview that must not change: the named paths, else the structure, else the content.
fn decisive(result: &Value, paths: &[String]) -> Value {
    let body = result.get("structuredContent").unwrap_or(result);
    if paths.is_empty() {
        return body.clone();
    }
    let parts: serde_json::Map<String, Value> =
        paths.iter().map(|path| (path.clone(), at(body, path).cloned().unwrap_or(Value::Null))).collect();
    Value::Object(parts)
}

fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |here, part| match here {
        Value::Object(members) => members.get(part),
        Value::Array(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}
