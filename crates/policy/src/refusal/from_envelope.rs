//! A refusal read back from what an envelope says of it: for those of our own rooms that answer in envelopes. What is not in the
//! registry is none.

use serde_json::Value;

use super::{Code, NextAction, Refusal};

/// What `details` has of its own accord.
const OWN: [&str; 3] = ["reason_code", "next_actions", "retryable"];

impl Refusal {
    /// The refusal that an entry of an envelope's `errors` tells.
    pub fn told(error: &Value) -> Option<Self> {
        let text = error.get("code")?.as_str()?;
        let code = Code::ALL.iter().copied().find(|code| code.as_str() == text)?;
        let mut refusal = Self::new(code, error.get("message")?.as_str()?);
        let Some(details) = error.get("details").and_then(Value::as_object) else { return Some(refusal) };
        let reason = details.get("reason_code").and_then(Value::as_str);
        if let Some(reason) = code.reasons().iter().find(|known| Some(**known) == reason) {
            refusal = refusal.because(reason);
        }
        let next = details.get("next_actions").and_then(Value::as_array).into_iter().flatten();
        let next: Vec<NextAction> = next.filter_map(|word| word.as_str()?.parse().ok()).collect();
        if !next.is_empty() {
            refusal = refusal.next(&next);
        }
        for (name, value) in details.iter().filter(|(name, _)| !OWN.contains(&name.as_str())) {
            refusal = refusal.with(name, value.clone());
        }
        Some(refusal)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_told_is_what_was_refused() {
        let refusal = Refusal::new(Code::GitFailed, "no")
            .because("git_source_refused")
            .next(&[NextAction::FixConfig])
            .with("repo", "x");
        let error = json!({"code": refusal.code.as_str(), "message": refusal.message, "details": refusal.details_value()});
        assert_eq!(Refusal::told(&error), Some(refusal));
        assert_eq!(Refusal::told(&json!({"code": "E_MADE_UP", "message": "x"})), None);
        assert_eq!(Refusal::told(&json!({})), None);
    }
}
