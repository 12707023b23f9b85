//! Reviews one question of an upstream: whether it may be asked, and its text with our first line.

use countersign_config::{ElicitationAccess, SamplingAccess, UpstreamAccess};
use countersign_mcp::raw::{self, MemberEdit, RawJson};
use countersign_policy::ids::UpstreamId;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::strict_json;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::credentials::asks_for_ours;
use crate::escape;
use crate::request::invalid;

/// In bytes.
const LONGEST_FORM: usize = 64 << 10;

pub(super) struct UpstreamQuestion<'q> {
    pub(super) method: &'q str,
    pub(super) params: Option<&'q RawValue>,
}

impl UpstreamQuestion<'_> {
    /// The upstream's text: the message of a form, everything of a sampling request.
    pub(super) fn text(&self) -> String {
        let message = self.params.and_then(|params| raw::get_str(params, "message"));
        let whole = || self.params.map_or("", RawValue::get).into();
        message.unwrap_or_else(whole).into_owned()
    }

    /// `form` or `url`; none for anything but an elicitation.
    pub(super) fn mode(&self) -> Option<String> {
        if self.method != "elicitation/create" {
            return None;
        }
        let mode = self.params.and_then(|params| raw::get_str(params, "mode"));
        Some(escape::excerpt(&mode.unwrap_or("form".into()), 20))
    }

    /// The params to show, or why the question may not be asked.
    pub(super) fn review(
        &self,
        upstream: &UpstreamId,
        access: &UpstreamAccess,
        desk: Option<&str>,
    ) -> Result<RawJson, Refusal> {
        let none = raw::empty_object();
        let params = self.params.unwrap_or(&none);
        let label = format!("asked by upstream {upstream}, not by Countersign");
        match (self.method, access.sampling, access.elicitation) {
            ("roots/list", _, _) => Ok(params.to_owned()),
            ("sampling/createMessage", SamplingAccess::On, _) => sampling(params, &label),
            ("elicitation/create", _, ElicitationAccess::Form | ElicitationAccess::Url) => {
                elicitation(params, access.elicitation, &label, desk)
            }
            (method, _, _) => {
                let method = escape::excerpt(method, 80);
                Err(not_allowed(format!("`{method}` is not allowed to upstream `{upstream}`")))
            }
        }
    }
}

fn not_allowed(message: String) -> Refusal {
    Refusal::new(Code::RuleDenied, message).because("question_not_allowed")
}

fn elicitation(
    params: &RawValue,
    allowed: ElicitationAccess,
    label: &str,
    desk: Option<&str>,
) -> Result<RawJson, Refusal> {
    if params.get().len() > LONGEST_FORM {
        return Err(invalid("params", format_args!("are longer than {LONGEST_FORM} bytes")));
    }
    let value = strict_json::parse(params.get().as_bytes())
        .map_err(|fault| invalid("params", fault).because("arguments_not_strict"))?;
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let message = text("message").ok_or_else(|| invalid("message", "is required"))?;
    let mut texts = Vec::new();
    match text("mode").unwrap_or("form") {
        "form" => gather(value.get("requestedSchema").unwrap_or(&Value::Null), &mut texts),
        "url" if allowed == ElicitationAccess::Url => {
            let url = text("url").ok_or_else(|| invalid("url", "is required"))?;
            check_address(url, desk)?;
            texts.push(url.to_owned());
        }
        _ => return Err(not_allowed("this mode of elicitation is not allowed to the upstream".to_owned())),
    }
    // Invisible characters of the message are escaped. Names and values of a form are data and cannot be, so they must hide nothing.
    if texts.iter().any(|text| escape::hides(text)) {
        return Err(invalid("requestedSchema", "holds invisible characters"));
    }
    texts.push(message.to_owned());
    if asks_for_ours(&texts) {
        let message = "the form asks for a credential or a decision of Countersign".to_owned();
        return Err(Refusal::new(Code::RuleDenied, message).because("question_asks_for_credential"));
    }
    let shown = raw::to_raw(&format!("{label}\n{}", escape::visible(message)));
    raw::edit(params, &[MemberEdit::Set("message", shown.get())])
        .ok_or_else(|| invalid("params", "must be an object"))
}

/// A URL a person may be sent to: on the web, and not one of our own pages.
fn check_address(url: &str, desk: Option<&str>) -> Result<(), Refusal> {
    let lower = url.to_ascii_lowercase();
    let is_web = ["https://", "http://"].iter().any(|scheme| lower.starts_with(scheme));
    if !is_web || url.contains(['\\', ' ', '\n', '\r', '\t']) {
        return Err(invalid("url", "must be an http or https address"));
    }
    let is_desk =
        desk.is_some_and(|desk| lower.starts_with(&desk.trim_end_matches('/').to_ascii_lowercase()));
    if is_desk {
        let message = "the address is the approvals page of Countersign".to_owned();
        return Err(Refusal::new(Code::RuleDenied, message).because("question_asks_for_credential"));
    }
    Ok(())
}

fn gather(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| gather(item, texts)),
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            texts.push(name.clone());
            gather(member, texts);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A sampling request with our line as its first message and nothing hidden in its texts.
fn sampling(params: &RawValue, label: &str) -> Result<RawJson, Refusal> {
    let messages = raw::get(params, "messages").ok_or_else(|| invalid("messages", "is required"))?;
    let mut messages: Vec<RawJson> =
        serde_json::from_str(messages.get()).map_err(|_| invalid("messages", "must be a list"))?;
    for message in &mut messages {
        let mut value: Value =
            serde_json::from_str(message.get()).map_err(|_| invalid("messages", "can't be read"))?;
        // A text that hides nothing keeps its bytes.
        if hides(&value) {
            make_visible(&mut value);
            *message = raw::to_raw(&value);
        }
    }
    let first = raw::to_raw(&json!({"role": "user", "content": {"type": "text", "text": label}}));
    messages.insert(0, first);
    let messages = raw::to_raw(&messages);
    // `thisServer` would mean every upstream behind this gateway.
    let mut edits = vec![MemberEdit::Set("messages", messages.get())];
    if raw::get(params, "includeContext").is_some() {
        edits.push(MemberEdit::Set("includeContext", "\"none\""));
    }
    let prompt = raw::get_str(params, "systemPrompt").map(|prompt| raw::to_raw(&escape::visible(&prompt)));
    if let Some(prompt) = &prompt {
        edits.push(MemberEdit::Set("systemPrompt", prompt.get()));
    }
    raw::edit(params, &edits).ok_or_else(|| invalid("params", "must be an object"))
}

fn hides(value: &Value) -> bool {
    let mut texts = Vec::new();
    gather(value, &mut texts);
    texts.iter().any(|text| escape::hides(text))
}

fn make_visible(value: &mut Value) {
    match value {
        Value::String(text) if escape::hides(text) => *text = escape::visible(text),
        Value::Array(items) => items.iter_mut().for_each(make_visible),
        Value::Object(members) => members.values_mut().for_each(make_visible),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(
        method: &str,
        params: &Value,
        elicitation: ElicitationAccess,
        sampling: SamplingAccess,
    ) -> Result<Value, String> {
        let access = UpstreamAccess { elicitation, sampling, ..UpstreamAccess::default() };
        let params = raw::to_raw(params);
        let question = UpstreamQuestion { method, params: Some(&params) };
        match question.review(&UpstreamId::new("vault"), &access, Some("http://127.0.0.1:7878")) {
            Ok(asked) => Ok(serde_json::from_str(asked.get()).unwrap()),
            Err(refusal) => Err(refusal.reason_code.to_owned()),
        }
    }

    fn form(params: &Value) -> Result<Value, String> {
        review("elicitation/create", params, ElicitationAccess::Form, SamplingAccess::Off)
    }

    #[test]
    fn attack_05_a_form_begins_with_our_line_and_shows_what_it_hides() {
        let asked = form(&json!({"message": "Which\u{202e} one?\nx", "requestedSchema": {"type": "object"}}))
            .unwrap();
        assert_eq!(asked["message"], "asked by upstream vault, not by Countersign\nWhich\\u{202e} one?\nx");
        assert_eq!(asked["requestedSchema"], json!({"type": "object"}));
    }

    #[test]
    fn attack_05_only_what_is_configured_is_asked() {
        let (off, on) = (SamplingAccess::Off, SamplingAccess::On);
        let message = json!({"message": "m"});
        let url = json!({"mode": "url", "message": "m", "url": "https://example.com/x"});
        let sample = json!({"messages": []});
        for (method, params, elicitation, sampling, expect) in [
            ("elicitation/create", &message, ElicitationAccess::Off, off, Err("question_not_allowed")),
            ("elicitation/create", &url, ElicitationAccess::Form, off, Err("question_not_allowed")),
            ("elicitation/create", &url, ElicitationAccess::Url, off, Ok(())),
            ("elicitation/create", &message, ElicitationAccess::Url, off, Ok(())),
            ("sampling/createMessage", &sample, ElicitationAccess::Url, off, Err("question_not_allowed")),
            ("sampling/createMessage", &sample, ElicitationAccess::Off, on, Ok(())),
            ("host/run", &message, ElicitationAccess::Url, on, Err("question_not_allowed")),
            ("roots/list", &message, ElicitationAccess::Off, off, Ok(())),
        ] {
            let got = review(method, params, elicitation, sampling).map(drop);
            assert_eq!(got, expect.map_err(str::to_owned), "{method} {params} {elicitation} {sampling}");
        }
    }

    #[test]
    fn attack_05_forms_with_hidden_names_huge_texts_or_our_secrets_are_refused() {
        let named = |name: &str| json!({"message": "m", "requestedSchema": {"properties": {name: {"type": "string"}}}});
        assert_eq!(form(&named("branch")).map(drop), Ok(()));
        assert_eq!(form(&named("bra\u{200b}nch")), Err("arguments_invalid".to_owned()));
        assert_eq!(form(&named("confirm_token")), Err("question_asks_for_credential".to_owned()));
        assert_eq!(form(&json!({"message": "x".repeat(LONGEST_FORM)})), Err("arguments_invalid".to_owned()));
        assert_eq!(form(&json!({"mode": "form"})), Err("arguments_invalid".to_owned()));
    }

    #[test]
    fn attack_05_an_address_is_on_the_web_and_not_our_page() {
        let open = |url: &str| {
            let params = json!({"mode": "url", "message": "m", "url": url});
            review("elicitation/create", &params, ElicitationAccess::Url, SamplingAccess::Off).map(drop)
        };
        assert_eq!(open("https://auth.example.com/?a=b"), Ok(()));
        for bad in ["javascript:alert(1)", "file:///etc/passwd", "https://a b", "https:\\\\x", ""] {
            assert_eq!(open(bad), Err("arguments_invalid".to_owned()), "{bad}");
        }
        assert_eq!(open("HTTP://127.0.0.1:7878/plans/x"), Err("question_asks_for_credential".to_owned()));
    }

    #[test]
    fn attack_05_sampling_names_its_upstream_first_and_takes_no_context() {
        let params = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "a\u{200b}b"}}],
            "includeContext": "allServers", "systemPrompt": "p\u{202e}", "maxTokens": 5});
        let asked =
            review("sampling/createMessage", &params, ElicitationAccess::Form, SamplingAccess::On).unwrap();
        assert_eq!(asked["messages"][0]["content"]["text"], "asked by upstream vault, not by Countersign");
        assert_eq!(asked["messages"][1]["content"]["text"], "a\\u{200b}b");
        assert_eq!(
            (asked["includeContext"].as_str(), asked["systemPrompt"].as_str()),
            (Some("none"), Some("p\\u{202e}"))
        );
        assert_eq!(asked["maxTokens"], 5);
    }
}
