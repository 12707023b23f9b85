//! Questions to the client: which of them it can answer, and the table of open ones (legacy era). A question whose capability the
//! client did not declare is never sent.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::jsonrpc::{Reply, RpcError, code};
use crate::raw;

#[derive(Debug, Clone, thiserror::Error)]
pub enum AskFault {
    #[error("the client does not offer `{0}`")]
    NotOffered(String),
    /// Stateless era: only `tools/call`, `prompts/get` and `resources/read` may ask.
    #[error("`{0}` cannot ask the client")]
    NotHere(String),
    #[error("the client is gone")]
    Gone,
    #[error("the client did not answer in time")]
    Expired,
    #[error("too many questions wait for answers")]
    TooMany,
    #[error("{0}")]
    Rpc(RpcError),
}

impl From<AskFault> for RpcError {
    fn from(fault: AskFault) -> Self {
        match fault {
            AskFault::Rpc(error) => error,
            AskFault::NotOffered(_) => RpcError::new(code::METHOD_NOT_FOUND, &fault.to_string()),
            AskFault::NotHere(_) | AskFault::Gone | AskFault::Expired | AskFault::TooMany => {
                RpcError::new(code::INTERNAL, &fault.to_string())
            }
        }
    }
}

/// Whether the declared capabilities cover a question.
pub(crate) fn is_offered(capabilities: Option<&RawValue>, method: &str, params: Option<&RawValue>) -> bool {
    let declared =
        |name: &str| capabilities.and_then(|all| raw::get(all, name)).filter(|value| raw::is_object(value));
    match method {
        "elicitation/create" => {
            let Some(declared) = declared("elicitation") else { return false };
            let mode = params.and_then(|params| raw::get_str(params, "mode")).unwrap_or("form".into());
            // An empty object is the older form of `form`.
            let names_a_mode = ["form", "url"].iter().any(|name| raw::get(declared, name).is_some());
            if names_a_mode { raw::get(declared, &mode).is_some() } else { mode == "form" }
        }
        "sampling/createMessage" => declared("sampling").is_some(),
        "roots/list" => declared("roots").is_some(),
        // Methods we do not know pass: a later revision may add questions.
        _ => true,
    }
}

/// Questions sent as JSON-RPC requests and not answered yet.
#[derive(Debug, Default)]
pub(crate) struct AskTable {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
}

impl AskTable {
    const LIMIT: usize = 256;

    pub(crate) fn open(&self) -> Result<(u64, oneshot::Receiver<Reply>), AskFault> {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.waiting.lock().map_err(|_| AskFault::Gone)?;
        // An upstream that asks without end must not fill our memory, nor the screen of a person.
        if waiting.len() >= Self::LIMIT {
            return Err(AskFault::TooMany);
        }
        waiting.insert(id, answer);
        Ok((id, answered))
    }

    /// Delivers an answer; false when nobody waits for it.
    pub(crate) fn answer(&self, id: Option<u64>, reply: Reply) -> bool {
        let Some(sender) = id.and_then(|id| self.waiting.lock().ok()?.remove(&id)) else { return false };
        sender.send(reply).is_ok()
    }

    /// Removes a question; true when it was still open.
    pub(crate) fn forget(&self, id: u64) -> bool {
        self.waiting.lock().is_ok_and(|mut waiting| waiting.remove(&id).is_some())
    }

    pub(crate) fn end(&self) {
        if let Ok(mut waiting) = self.waiting.lock() {
            // Dropping the senders wakes every asker with an error.
            waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_declared_questions_are_asked() {
        let check = |capabilities: &str, method: &str, params: &str, expect: bool| {
            let capabilities = raw::from_text(capabilities).unwrap();
            let params = raw::from_text(params).unwrap();
            assert_eq!(
                is_offered(Some(&capabilities), method, Some(&params)),
                expect,
                "{capabilities} {params}"
            );
        };
        check("{}", "elicitation/create", "{}", false);
        check(r#"{"elicitation":{}}"#, "elicitation/create", "{}", true);
        check(r#"{"elicitation":{}}"#, "elicitation/create", r#"{"mode":"url"}"#, false);
        check(r#"{"elicitation":{"form":{},"url":{}}}"#, "elicitation/create", r#"{"mode":"url"}"#, true);
        check(r#"{"elicitation":{"url":{}}}"#, "elicitation/create", "{}", false);
        check(r#"{"sampling":{}}"#, "sampling/createMessage", "{}", true);
        check(r#"{"sampling":{}}"#, "roots/list", "{}", false);
        assert!(!is_offered(None, "roots/list", None));
    }
}
