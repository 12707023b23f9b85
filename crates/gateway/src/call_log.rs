//! What the log says of calls: one `info` event for each verdict, with names, codes and times. Messages, arguments, results and
//! secrets stay out: a refusal's message may quote what the call said. Arguments are at `trace`, with secrets replaced.

use std::time::Instant;

use countersign_policy::call::Caller;
use countersign_policy::gate::Verdict;
use countersign_policy::ids::{FullName, RequestId};
use countersign_policy::record::{CallRecord, HostInfo};
use countersign_policy::refusal::Refusal;

/// The longest part of a name the client made up itself, in characters.
const LONGEST_CLAIM: usize = 100;

/// A name for a request that came from outside.
pub(crate) fn mint_request_id() -> RequestId {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    RequestId::new(format!("req_{high:016x}"))
}

/// A span around one request: at `debug` every event below it says which request it belongs to.
pub(crate) fn request_span(caller: &Caller, method: &str) -> tracing::Span {
    let request_id = caller.request_id.as_ref().map(RequestId::as_str);
    tracing::debug_span!("request", request_id, method)
}

/// Writes verdicts to the log.
#[derive(Clone, Copy)]
pub(crate) struct CallLog {
    /// When the work on the call began; none where nothing was measured.
    pub(crate) started: Option<Instant>,
}

impl CallLog {
    /// A verdict of the gate. A refusal is said by [`CallLog::refused`], with all others.
    pub(crate) fn judged(self, verdict: &Verdict) {
        match verdict {
            Verdict::Go(permit) => self.decided("allowed", permit.record(), permit.rule()),
            Verdict::Redeem(redemption) => {
                self.decided("allowed", redemption.record(), redemption.plan().rule.as_deref());
            }
            Verdict::Hold(draft) => self.decided("held", &draft.record, draft.applied_rule().as_deref()),
            Verdict::Preview(draft) => {
                self.decided("previewed", &draft.record, draft.applied_rule().as_deref());
            }
            Verdict::Explain(explanation) => self.decided("explained", &explanation.record, None),
            Verdict::Refuse(_) => {}
        }
    }

    /// A verdict that lets the call go on, or keeps it waiting.
    pub(crate) fn decided(self, outcome: &'static str, record: &CallRecord, rule: Option<&str>) {
        self.say(outcome, record, rule, None);
    }

    /// A refusal, by the gate or on the way after it.
    pub(crate) fn refused(self, record: &CallRecord, refusal: &Refusal) {
        let rule = refusal.details.get("rule").and_then(serde_json::Value::as_str);
        self.say("refused", record, rule, Some(refusal));
    }

    fn say(self, outcome: &'static str, record: &CallRecord, rule: Option<&str>, refusal: Option<&Refusal>) {
        if !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let request_id = record.request_id.as_ref().map(RequestId::as_str);
        let host = record.host.as_deref().and_then(host);
        tracing::info!(
            request_id,
            principal = record.principal.as_str(),
            host = host.as_deref(),
            tool = tool(&record.tool).as_str(),
            effect = record.effect.map(|effect| effect.as_str()),
            mode = record.mode.map(|mode| mode.as_str()),
            rule,
            plan_id = record.plan_id.as_ref().map(|plan| plan.as_str()),
            outcome,
            code = refusal.map(|refusal| refusal.code.as_str()),
            reason = refusal.map(|refusal| refusal.reason_code),
            micros = self.started.map(micros_since),
            "verdict"
        );
        tracing::trace!(request_id, arguments = %record.arguments, "arguments, with secrets replaced");
    }
}

/// Microseconds since a moment.
pub(crate) fn micros_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The host program and its version. Its folder stays out: the principal names it where it matters.
fn host(info: &HostInfo) -> Option<String> {
    let program = info.program.as_deref()?;
    Some(info.version.as_deref().map_or_else(|| program.to_owned(), |version| format!("{program} {version}")))
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_CLAIM).collect()
}

/// A tool as the log names it. What follows a resource's scheme is the request's own argument and stays out.
fn tool(name: &FullName) -> String {
    let (upstream, tool) = (name.upstream.as_str(), name.tool.as_str());
    match tool.strip_prefix("resource:") {
        Some(uri) => {
            let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
            format!("{}:resource:{}", cut(upstream), cut(scheme))
        }
        None => format!("{}:{}", cut(upstream), cut(tool)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_named_by_its_scheme_and_long_names_are_cut() {
        assert_eq!(tool(&FullName::new("docs", "resource:https://a/b?key=hunter2")), "docs:resource:https");
        assert_eq!(tool(&FullName::new("docs", "resource:hunter2")), "docs:resource:");
        assert_eq!(tool(&FullName::new("shop", "set_stock")), "shop:set_stock");
        assert_eq!(tool(&FullName::new("shop", "x".repeat(4000))).len(), "shop:".len() + LONGEST_CLAIM);
    }

    #[test]
    fn request_ids_differ() {
        let (one, other) = (mint_request_id(), mint_request_id());
        assert!(one != other && one.as_str().len() == 20 && one.as_str().starts_with("req_"), "{one}");
    }
}
