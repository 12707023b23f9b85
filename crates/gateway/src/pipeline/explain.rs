//! Ask mode: explains what the call would do, with the present state where the tool can report it. Changes nothing. A failed
//! query of the state only adds a warning.

use countersign_mcp::client::Questions;
use countersign_policy::gate::{CallExplanation, DryRun, Refused};
use countersign_policy::ids::FullName;
use countersign_policy::strict_json;
use countersign_policy::suggest::SuggestionTrigger;
use serde_json::Value;

use super::CallPipeline;
use crate::answer::Answer;
use crate::upstreams::{UpstreamCall, UpstreamFault};

impl CallPipeline<'_> {
    /// Refuses, and says what would happen.
    pub(super) async fn explain(&self, explanation: CallExplanation) -> Answer {
        let CallExplanation { refusal, mut explain, requirement: need, state, mut warnings, record } =
            explanation;
        let suggestions = self.suggest(SuggestionTrigger::Explained, record.mode, &record.tool, Some(&need));
        let current = match &state {
            Some(query) => self.query_state(&record.tool, query).await,
            None => Ok(None),
        };
        match (current, explain.as_object_mut()) {
            (Ok(Some(state)), Some(members)) => drop(members.insert("state".to_owned(), state)),
            (Ok(_), _) => {}
            (Err(why), _) => warnings.push(format!("how things stand now could not be told: {why}")),
        }
        match self.refuse(Refused { refusal, record }).await {
            Answer::Envelope(envelope) => Answer::Envelope(
                envelope.with("explain", explain).with("suggestions", suggestions).warn(warnings),
            ),
            other @ (Answer::Carded(..) | Answer::Upstream(_) | Answer::Rpc(_)) => other,
        }
    }

    /// What the tool says about the present state, where it can say anything.
    async fn query_state(&self, tool: &FullName, query: &DryRun) -> Result<Option<Value>, String> {
        let upstreams = self.gateway.upstreams.load();
        let Some(upstream) = upstreams.get(&tool.upstream).filter(|known| known.explains(tool.tool.as_str()))
        else {
            return Ok(None);
        };
        let mut talk = self.upstream_context(upstream.as_ref(), None);
        (talk.relay, talk.questions) = (None, Questions::PassThrough);
        // Ask mode may query an upstream that hangs: the client can still give up.
        let result = tokio::select! {
            result = upstream.call(UpstreamCall::dry_run(query, None), talk) => result,
            () = self.client_cancelled() => return Err("the client cancelled the call".to_owned()),
        };
        let result = result.map_err(|fault| match fault {
            UpstreamFault::Rpc(error) => error.message(),
            UpstreamFault::Unavailable { why, .. }
            | UpstreamFault::Timeout { why, .. }
            | UpstreamFault::TooLarge { why } => why,
        })?;
        let mut result = strict_json::read_to_show(result.get()).ok_or("no answer")?;
        if result.get("isError") == Some(&Value::Bool(true)) {
            let said = result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or("it failed");
            return Err(crate::escape::excerpt(said, 200));
        }
        // What was parsed says it best; the text otherwise.
        let structure = result.get_mut("structuredContent").map(Value::take);
        Ok(structure.or_else(|| result.pointer_mut("/content/0/text").map(Value::take)))
    }
}
