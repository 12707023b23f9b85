//! Which client capabilities an upstream hears of: those its configuration lets it use.

use countersign_core::config::{Elicitation, Sampling, UpstreamAccess};
use countersign_wire::raw::{self, Edit, Raw};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The capabilities declared to an upstream when its connection opens, before it is known who asks.
pub fn declared(access: &UpstreamAccess) -> Raw {
    let mut all = Map::from_iter([("roots".to_owned(), json!({"listChanged": true}))]);
    let elicitation = match access.elicitation {
        Elicitation::Form => Some(json!({})),
        Elicitation::Url => Some(json!({"form": {}, "url": {}})),
        Elicitation::Off => None,
    };
    all.extend(elicitation.map(|value| ("elicitation".to_owned(), value)));
    if access.sampling == Sampling::On {
        all.insert("sampling".to_owned(), json!({}));
    }
    raw::to_raw(&Value::Object(all))
}

/// The part of a client's own capabilities that an upstream hears of.
pub fn offered(access: &UpstreamAccess, client: &RawValue) -> Raw {
    let elicitation = raw::get(client, "elicitation").and_then(|own| elicitation(access.elicitation, own));
    let mut edits = Vec::new();
    match &elicitation {
        Some(own) => edits.push(Edit::Set("elicitation", own.get())),
        None => edits.push(Edit::Remove("elicitation")),
    }
    if access.sampling == Sampling::Off {
        edits.push(Edit::Remove("sampling"));
    }
    raw::edit(client, &edits).unwrap_or_else(raw::empty_object)
}

fn elicitation(allowed: Elicitation, own: &RawValue) -> Option<Raw> {
    let only_addresses = raw::get(own, "url").is_some() && raw::get(own, "form").is_none();
    match allowed {
        Elicitation::Off => None,
        Elicitation::Url => Some(own.to_owned()),
        Elicitation::Form if only_addresses => None,
        Elicitation::Form => raw::remove(own, "url"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(elicitation: Elicitation, sampling: Sampling) -> UpstreamAccess {
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
                Elicitation::Form,
                Sampling::Off,
                r#"{"elicitation":{"form":{}},"roots":{},"extensions":{"x":{}}}"#,
            ),
            (Elicitation::Off, Sampling::On, r#"{"sampling":{"tools":{}},"roots":{},"extensions":{"x":{}}}"#),
            (Elicitation::Url, Sampling::On, client.get()),
        ] {
            assert_eq!(offered(&access(elicitation, sampling), &client).get(), expect);
        }
        let only_url = raw::from_text(r#"{"elicitation":{"url":{}}}"#).unwrap();
        assert_eq!(offered(&access(Elicitation::Form, Sampling::Off), &only_url).get(), "{}");
        let usual: Value = serde_json::from_str(declared(&UpstreamAccess::default()).get()).unwrap();
        assert_eq!(usual, json!({"roots": {"listChanged": true}, "elicitation": {}}));
    }
}
