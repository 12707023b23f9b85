//! Ask mode: what would happen, and how things stand now where the tool can tell. Only looks; a look that fails takes nothing away
//! from the explanation.

use countersign_core::gate::{DryRun, Explanation, Refused};
use countersign_core::ids::FullName;
use countersign_core::strict_json;
use countersign_core::suggest::Moment;
use countersign_wire::upstream::Questions;
use serde_json::Value;

use super::Conduct;
use crate::answer::Answer;
use crate::upstreams::{Errand, UpstreamFault};

impl Conduct<'_> {
    /// Refuses, and says what would happen.
    pub(super) async fn explain(&self, explanation: Explanation) -> Answer {
        let Explanation { refusal, mut explain, need, state, mut warnings, record } = explanation;
        let suggestions = self.suggest(Moment::Explained, record.mode, &record.tool, Some(&need));
        let looked = match &state {
            Some(look) => self.look_at_state(&record.tool, look).await,
            None => Ok(None),
        };
        match (looked, explain.as_object_mut()) {
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

    /// The tool's own words about the present state, where it has any.
    async fn look_at_state(&self, tool: &FullName, look: &DryRun) -> Result<Option<Value>, String> {
        let upstreams = self.house.upstreams.load();
        let Some(upstream) = upstreams.get(&tool.upstream).filter(|known| known.explains(tool.tool.as_str()))
        else {
            return Ok(None);
        };
        let mut talk = self.talk(upstream.as_ref(), None);
        (talk.relay, talk.questions) = (None, Questions::PassThrough);
        let result = tokio::select! {
            result = upstream.call(Errand::dry_run(look, None), talk) => result,
            () = self.cancelled() => return Err("the client cancelled the call".to_owned()),
        };
        let result = result.map_err(|fault| match fault {
            UpstreamFault::Rpc(error) => error.message(),
            UpstreamFault::Unavailable { why, .. } | UpstreamFault::Timeout { why, .. } => why,
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
