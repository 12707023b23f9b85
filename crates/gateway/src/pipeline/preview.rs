//! Previews: the upstream's own dry run where it offers one, else computed from the call. A preview changes nothing; one that
//! fails refuses the call, so that nobody confirms what was not shown.

use std::time::Duration;

use countersign_config::PREVIEW_SUFFIX;
use countersign_mcp::client::Questions;
use countersign_mcp::raw::{self, RawJson};
use countersign_policy::call::Arguments;
use countersign_policy::gate::{CallDraft, DryRun, Refused, SentMeta};
use countersign_policy::ids::{PlanId, UpstreamId};
use countersign_policy::plan::{Preview, PreviewSource};
use countersign_policy::preview::{PreviewStyle, structured_answer};
use countersign_policy::record::RowStatus;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_policy::strict_json;
use countersign_policy::suggest::SuggestionTrigger;
use countersign_store::Entry;
use serde_json::{Value, json};

use super::CallPipeline;
use super::respond::preview_data;
use crate::answer::Answer;
use crate::escape;
use crate::members;
use crate::trace;
use crate::upstreams::{Upstream, UpstreamCall, UpstreamFault, command};

pub(super) enum PreviewFault {
    /// The upstream answered that it can't. In a plan of several steps, what an earlier step creates may be missing.
    Answered(Refusal),
    /// The upstream was not reached.
    Unreachable(Refusal),
}

impl PreviewFault {
    pub(super) fn refusal(self) -> Refusal {
        match self {
            Self::Answered(refusal) | Self::Unreachable(refusal) => refusal,
        }
    }
}

impl CallPipeline<'_> {
    /// Plan mode: answers with the preview and how to go on. Nothing is held.
    pub(super) async fn show_preview(&self, mut draft: CallDraft) -> Answer {
        let preview = match self.preview_draft(&mut draft).await {
            Ok(preview) => preview,
            Err(refusal) => return self.refuse(Refused { refusal, record: draft.record }).await,
        };
        if let Err(answer) = self.record_preview(&draft, &preview).await {
            return answer;
        }
        let again = match (&draft.style, draft.is_preview()) {
            (PreviewStyle::Argument { arg, .. }, true) => format!("the same call without `{arg}`"),
            (_, _) => "the same call".to_owned(),
        };
        let hint = format!(
            "nothing was changed; to run it: set_mode {{\"mode\":\"execute\"}} or mode=\"execute\", then {again}; \
             it needs confirm `{}` of strength `{}`",
            draft.requirement.kind, draft.requirement.strength
        );
        let suggestions = self.suggest(
            SuggestionTrigger::Previewed,
            Some(draft.mode),
            &draft.call.name,
            Some(&draft.requirement),
        );
        let envelope = self
            .envelope()
            .with("status", "preview")
            .with("tool", draft.call.name.to_string())
            .with("effect", draft.classified.effect.as_str())
            .with("confirm", json!({"kind": draft.requirement.kind, "strength": draft.requirement.strength}))
            .with("preview", preview_data(&preview))
            .with("execute_hint", hint)
            .with("next_actions", json!([NextAction::SwitchToExecute]))
            .with("suggestions", suggestions)
            .warn(draft.warnings.clone());
        let now = self.gateway.now();
        // Never stored: the card needs a plan to show, and its expired copy can't be approved.
        let plan = draft.freeze(PlanId::mint(now, 0), preview, now, Duration::ZERO);
        self.answer_with_preview_card(envelope, &plan)
    }

    /// Writes the row of a preview that is only shown.
    pub(super) async fn record_preview(&self, draft: &CallDraft, preview: &Preview) -> super::Stage<()> {
        let row = Entry::of_call(&draft.record, RowStatus::Success)
            .with_fact("preview_digest", preview.digest.hex());
        // A preview ran the upstream's dry run, so it is a call and has a row.
        let written = self.gateway.store.append(row, self.gateway.now()).await;
        written.map(drop).map_err(|fault| self.refuse_unrecorded(&fault.refusal()))
    }

    /// Previews a single call. The draft takes over the members of `_meta` that its plan keeps: they are part of what is
    /// shown and hashed.
    pub(super) async fn preview_draft(&self, draft: &mut CallDraft) -> Result<Preview, Refusal> {
        draft.meta = members::planned_meta(self.params.as_deref())?;
        self.compute_preview(draft, None).await.map_err(PreviewFault::refusal)
    }

    /// Previews a call. `earlier` says what earlier steps of the same plan would do, where the upstream can take that.
    pub(super) async fn compute_preview(
        &self,
        draft: &CallDraft,
        earlier: Option<String>,
    ) -> Result<Preview, PreviewFault> {
        let Some(mut dry) = draft.dry_run() else { return Ok(draft.computed_preview()) };
        dry.earlier = earlier;
        self.run_dry(&draft.call.name.upstream, &dry, &draft.style, draft.meta.as_ref()).await
    }

    /// Runs a dry run and reads its preview.
    pub(super) async fn run_dry(
        &self,
        upstream: &UpstreamId,
        dry: &DryRun,
        style: &PreviewStyle,
        meta: Option<&Arguments>,
    ) -> Result<Preview, PreviewFault> {
        let upstreams = self.gateway.upstreams.load();
        let Some(upstream) = upstreams.get(upstream) else {
            let why = format!("upstream `{upstream}` is gone");
            return Err(PreviewFault::Unreachable(failed(dry, &why)));
        };
        let sending = self.send_dry_run(upstream.as_ref(), dry, style, meta);
        let result = trace::part("preview", sending).await?;
        read_preview(upstream.as_ref(), dry, style, &result)
    }

    async fn send_dry_run(
        &self,
        upstream: &dyn Upstream,
        dry: &DryRun,
        style: &PreviewStyle,
        meta: Option<&Arguments>,
    ) -> Result<RawJson, PreviewFault> {
        let mut talk = self.upstream_context(upstream, None);
        // A dry run asks nobody and reports no progress: its answer is only a preview.
        (talk.relay, talk.questions) = (None, Questions::PassThrough);
        let sent = match (style, self.gateway.runs()) {
            (PreviewStyle::Command(command), Some(runs)) => {
                let call = (upstream.id(), dry.tool.as_str(), dry.arguments.as_str());
                let policy = self.gateway.policy.load_full();
                policy.looks.look(command, call, dry.earlier.as_deref(), runs, talk.deadline.limit()).await
            }
            (PreviewStyle::Command(_), None) => {
                return Err(PreviewFault::Unreachable(failed(dry, "no command can be started here")));
            }
            (PreviewStyle::Argument { .. } | PreviewStyle::Companion { .. } | PreviewStyle::Computed, _) => {
                // The real call would have this `_meta`, so its dry run has it, too.
                let params = meta.and_then(|meta| {
                    members::forwarded_params(None, None, &SentMeta::OfPlan(Some(meta.clone())))
                });
                let params = params.as_deref();
                let doing = async |onward: Option<RawJson>| {
                    upstream.call(UpstreamCall::dry_run(dry, onward.as_deref().or(params)), talk).await
                };
                let tool = Some(dry.tool.as_str());
                trace::sent(upstream.id().as_str(), "tools/call", tool, params, doing).await
            }
        };
        sent.map_err(|fault| match fault {
            UpstreamFault::Rpc(error) => PreviewFault::Answered(failed(dry, &error.message())),
            UpstreamFault::Unavailable { why, .. }
            | UpstreamFault::Timeout { why, .. }
            | UpstreamFault::TooLarge { why } => PreviewFault::Unreachable(failed(dry, &why)),
        })
    }
}

fn failed(dry: &DryRun, why: &str) -> Refusal {
    Refusal::new(Code::PreviewFailed, format!("the preview of `{}` failed: {why}", dry.tool))
}

fn read_preview(
    upstream: &dyn Upstream,
    dry: &DryRun,
    style: &PreviewStyle,
    result: &RawJson,
) -> Result<Preview, PreviewFault> {
    // The text of a command is its own error message; that of an upstream is quoted as its words.
    let by_command = matches!(style, PreviewStyle::Command(_)) || dry.tool.as_str().ends_with(PREVIEW_SUFFIX);
    let is_error = raw::get(result, "isError").is_some_and(|flag| flag.get() == "true");
    // `_meta` may hold times and ids that differ in each dry run, which would look like drift.
    let result = without_meta(result);
    if is_error {
        // A failed dry run is not a preview of nothing: confirming it would be confirming the unseen.
        return Err(PreviewFault::Answered(dry_run_refusal(upstream, dry, by_command, result)));
    }
    let (source, decisive) = match style {
        PreviewStyle::Companion { digest, .. } => {
            let own = upstream.decisive(dry.tool.as_str(), &result).filter(|_| digest.is_empty());
            let source = if by_command { PreviewSource::Command } else { PreviewSource::Companion };
            (source, own.unwrap_or_else(|| decisive_part(&result, digest)))
        }
        PreviewStyle::Command(command) => {
            let own = command::without(&command.ignore, &result);
            (PreviewSource::Command, own.unwrap_or_else(|| decisive_part(&result, &[])))
        }
        PreviewStyle::Argument { .. } | PreviewStyle::Computed => {
            (PreviewSource::Argument, decisive_part(&result, &[]))
        }
    };
    Ok(Preview::new(source, result, &decisive))
}

/// The refusal of a dry run that answered with an error.
fn dry_run_refusal(upstream: &dyn Upstream, dry: &DryRun, by_command: bool, result: Value) -> Refusal {
    // Our own upstreams answer with our own codes: these are passed on.
    if let Some(refusal) = upstream.own_refusal(&result) {
        return refusal;
    }
    let of_error =
        |part: &str| result.pointer(&format!("/structuredContent/errors/0/{part}")).and_then(Value::as_str);
    let text = result.pointer("/content/0/text").and_then(Value::as_str);
    let why = match (of_error("code"), of_error("message"), text) {
        (Some(code), Some(message), _) => escape::excerpt(&format!("{code}: {message}"), 300),
        (_, _, Some(text)) if by_command => escape::excerpt(text, 300),
        (_, _, Some(text)) => format!("the upstream answered: {}", escape::excerpt(text, 200)),
        _ => "the upstream answered with an error".to_owned(),
    };
    failed(dry, &why).with("result", result)
}

fn without_meta(result: &RawJson) -> Value {
    let mut value = strict_json::read_to_show(result.get()).unwrap_or(Value::Null);
    if let Some(members) = value.as_object_mut() {
        members.remove("_meta");
    }
    value
}

/// The part of a preview that must not change until the call runs: the named paths, else the structure, else the content.
fn decisive_part(result: &Value, paths: &[String]) -> Value {
    // Structure over text: prose around the same facts may be worded differently each time.
    let structure = structured_answer(result);
    let body = structure.as_ref().unwrap_or(result);
    if paths.is_empty() {
        return body.clone();
    }
    let value_at = |path: &str| {
        path.split('.').try_fold(body, |here, part| match here {
            Value::Object(members) => members.get(part),
            Value::Array(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    };
    // A path that is missing counts as null and not as absent, so that its appearance later is drift.
    paths.iter().map(|path| (path.clone(), value_at(path).cloned().unwrap_or(Value::Null))).collect()
}
