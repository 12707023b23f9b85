//! The client capabilities that an upstream may use, by its configuration.

use countersign_config::{ElicitationAccess, SamplingAccess, UpstreamAccess};
use countersign_mcp::raw::{self, MemberEdit, RawJson};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Declared when the connection opens, before it is known whose calls it carries.
pub(crate) fn declared(access: &UpstreamAccess) -> RawJson {
    let mut all = Map::new();
    let elicitation = match access.elicitation {
        ElicitationAccess::Form => Some(json!({})),
        ElicitationAccess::Url => Some(json!({"form": {}, "url": {}})),
        ElicitationAccess::Off => None,
    };
    all.extend(elicitation.map(|value| ("elicitation".to_owned(), value)));
    if access.sampling == SamplingAccess::On {
        all.insert("sampling".to_owned(), json!({}));
    }
    raw::to_raw(&Value::Object(all))
}

pub(crate) fn with_roots(declared: &RawValue) -> RawJson {
    let roots = json!({"listChanged": true}).to_string();
    raw::edit(declared, &[MemberEdit::Set("roots", &roots)]).unwrap_or_else(|| declared.to_owned())
}

/// The part of a client's own capabilities that an upstream sees.
pub(crate) fn offered(access: &UpstreamAccess, client: &RawValue) -> RawJson {
    let elicitation = raw::get(client, "elicitation").and_then(|own| elicitation(access.elicitation, own));
    let mut edits = Vec::new();
    match &elicitation {
        Some(own) => edits.push(MemberEdit::Set("elicitation", own.get())),
        None => edits.push(MemberEdit::Remove("elicitation")),
    }
    if access.sampling == SamplingAccess::Off {
        edits.push(MemberEdit::Remove("sampling"));
    }
    raw::edit(client, &edits).unwrap_or_else(raw::empty_object)
}

fn elicitation(allowed: ElicitationAccess, own: &RawValue) -> Option<RawJson> {
    let only_addresses = raw::get(own, "url").is_some() && raw::get(own, "form").is_none();
    match allowed {
        ElicitationAccess::Off => None,
        ElicitationAccess::Url => Some(own.to_owned()),
        ElicitationAccess::Form if only_addresses => None,
        ElicitationAccess::Form => raw::remove(own, "url"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(elicitation: ElicitationAccess, sampling: SamplingAccess) -> UpstreamAccess {
        UpstreamAccess { elicitation, sampling, ..UpstreamAccess::default() }
    }

    #[test]
    fn attack_05_an_upstream_hears_only_of_what_it_may_use() {
        let client = raw::from_text(
            r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{},"extensions":{"x":{}}}"#,
        )
        .unwrap();
        for (elicitation, sampling, expect) in [
            (
                ElicitationAccess::Form,
                SamplingAccess::Off,
                r#"{"elicitation":{"form":{}},"roots":{},"extensions":{"x":{}}}"#,
            ),
            (
                ElicitationAccess::Off,
                SamplingAccess::On,
                r#"{"sampling":{"tools":{}},"roots":{},"extensions":{"x":{}}}"#,
            ),
            (ElicitationAccess::Url, SamplingAccess::On, client.get()),
        ] {
            assert_eq!(offered(&access(elicitation, sampling), &client).get(), expect);
        }
        let only_url = raw::from_text(r#"{"elicitation":{"url":{}}}"#).unwrap();
        assert_eq!(offered(&access(ElicitationAccess::Form, SamplingAccess::Off), &only_url).get(), "{}");
        let usual: Value = serde_json::from_str(declared(&UpstreamAccess::default()).get()).unwrap();
        assert_eq!(usual, json!({"elicitation": {}}));
        let rooted = with_roots(&declared(&UpstreamAccess::default()));
        let rooted: Value = serde_json::from_str(rooted.get()).unwrap();
        assert_eq!(rooted, json!({"roots": {"listChanged": true}, "elicitation": {}}));
    }
}
