//! Cards: a plan and its outcome inside the host's own window (MCP Apps). Offered only to clients that declare support; all others
//! get the same facts as text. A card decides nothing by itself: its button sends the answer of the host's user.

pub(crate) mod answer;
mod card_data;
mod message;
mod nonce;
mod page;

use countersign_mcp::jsonrpc::{Reply, RpcError};
use countersign_mcp::raw::{self, MemberEdit, RawJson};
use countersign_mcp::server::RequestContext;
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(crate) use self::card_data::{confirmation_meta, outcome_view, preview_meta};
pub(crate) use self::message::RepeatedCall;

/// The card of a pending plan.
pub(crate) const PLAN: &str = "ui://countersign/plan";
/// The card of an outcome.
pub(crate) const RESULT: &str = "ui://countersign/result";
/// The media type of a card.
pub(crate) const MIME: &str = "text/html;profile=mcp-app";

const EXTENSION: &str = "io.modelcontextprotocol/ui";

/// Whether the client shows cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CardSupport {
    Shown,
    Hidden,
}

impl CardSupport {
    /// Support as the client declares it: in its session, or with the request itself in the stateless era. A plan that runs from the
    /// approvals page has no client.
    pub(crate) fn of<'c>(ctx: impl Into<Option<&'c RequestContext>>) -> Self {
        let ctx: Option<&RequestContext> = ctx.into();
        let declared = ctx.is_some_and(|ctx| ctx.client().capabilities.as_deref().is_some_and(declares));
        if declared { Self::Shown } else { Self::Hidden }
    }
}

/// Whether capabilities declare the extension, under its present or its former key.
fn declares(capabilities: &RawValue) -> bool {
    ["extensions", "experimental"].iter().any(|place| {
        let Some(declared) = raw::get_in(capabilities, &[place, EXTENSION]) else { return false };
        if !raw::is_object(declared) {
            return false;
        }
        match raw::get(declared, "mimeTypes") {
            None => true,
            Some(types) => {
                let types: Vec<String> = serde_json::from_str(types.get()).unwrap_or_default();
                // `text/html; profile=mcp-app` is the same type.
                types.iter().any(|one| one.replace(' ', "").eq_ignore_ascii_case(MIME))
            }
        }
    })
}

/// Adds the link to a card to a tool's definition, under both spellings of the key.
pub(crate) fn linked(definition: &RawValue, card: &str) -> RawJson {
    let uri = raw::to_raw(card);
    let ui = raw::to_raw(&json!({"resourceUri": card}));
    let edits = [MemberEdit::Set("ui", ui.get()), MemberEdit::Set("ui/resourceUri", uri.get())];
    raw::edit_inside(definition.get(), "_meta", &edits)
        .and_then(raw::from_text)
        .unwrap_or_else(|| definition.to_owned())
}

/// The cards as `resources/list` returns them.
pub(crate) fn resources() -> [Value; 2] {
    let entry = |uri: &str, name: &str, title: &str, what: &str| json!({"uri": uri, "name": name, "title": title, "description": what, "mimeType": MIME, "_meta": meta()});
    [
        entry(PLAN, "countersign-plan", "Plan", "What a call would change, with Confirm and Cancel"),
        entry(RESULT, "countersign-result", "Result", "The outcome of a plan"),
    ]
}

fn meta() -> Value {
    json!({"ui": {"prefersBorder": true}})
}

/// `resources/read` of a card. `desk` is the only address its buttons may open.
pub(crate) fn read(uri: &str, desk: Option<&str>) -> Reply {
    let text = match uri {
        PLAN => page::plan(desk),
        RESULT => page::result(desk),
        other => {
            let shown = crate::escape::visible(other);
            return Err(RpcError::with_data(
                -32002,
                &format!("there is no resource `{shown}`"),
                &json!({"uri": other}),
            ));
        }
    };
    Ok(raw::to_raw(&json!({"contents": [{"uri": uri, "mimeType": MIME, "text": text, "_meta": meta()}]})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_is_heard_under_both_keys_and_only_for_html() {
        for (capabilities, expect) in [
            (json!({"extensions": {EXTENSION: {"mimeTypes": [MIME]}}}), true),
            (json!({"extensions": {EXTENSION: {"mimeTypes": ["text/html; profile=mcp-app"]}}}), true),
            (json!({"experimental": {EXTENSION: {"mimeTypes": [MIME]}}}), true),
            (json!({"extensions": {EXTENSION: {}}}), true),
            (json!({"extensions": {EXTENSION: {"mimeTypes": ["application/x"]}}}), false),
            (json!({"extensions": {EXTENSION: {"mimeTypes": "text/html"}}}), false),
            (json!({"extensions": {EXTENSION: true}}), false),
            (json!({"extensions": {"other": {}}}), false),
            (json!({}), false),
        ] {
            assert_eq!(declares(&raw::to_raw(&capabilities)), expect, "{capabilities}");
        }
    }

    #[test]
    fn a_link_keeps_what_a_definition_had() {
        let definition = raw::from_text(r#"{"name":"t","_meta":{"a" : 1}}"#).unwrap();
        let got: Value = serde_json::from_str(linked(&definition, PLAN).get()).unwrap();
        assert_eq!(got["_meta"], json!({"a": 1, "ui": {"resourceUri": PLAN}, "ui/resourceUri": PLAN}));
        let bare: Value =
            serde_json::from_str(linked(&raw::from_text(r#"{"name":"t"}"#).unwrap(), PLAN).get()).unwrap();
        assert_eq!(bare["_meta"]["ui"]["resourceUri"], PLAN);
    }

    #[test]
    fn a_card_is_one_file_that_fetches_nothing() {
        for uri in [PLAN, RESULT] {
            let read: Value = serde_json::from_str(read(uri, None).unwrap().get()).unwrap();
            let item = &read["contents"][0];
            assert_eq!((item["uri"].as_str(), item["mimeType"].as_str()), (Some(uri), Some(MIME)));
            let text = item["text"].as_str().unwrap();
            assert!(text.starts_with("<!doctype html>"), "{uri}");
            for forbidden in [
                "http://",
                "https://",
                "src=",
                "href=",
                "@import",
                "fetch(",
                "eval(",
                "innerHTML",
                "<form",
                "new Function",
            ] {
                assert!(!text.contains(forbidden), "{uri} has {forbidden}");
            }
            assert_eq!(text.matches("<script>").count(), 1, "{uri}");
        }
        assert!(super::read("ui://countersign/other", None).is_err());
    }

    #[test]
    fn attack_04_a_card_knows_the_desk_from_its_own_page() {
        let text = |desk| read(PLAN, desk).unwrap().get().to_owned();
        assert!(text(Some("http://127.0.0.1:7878")).contains(r#"data-desk=\"http://127.0.0.1:7878\""#));
        assert!(text(None).contains(r#"data-desk=\"\""#));
        assert!(
            text(Some("http://x\"><script>")).contains("data-desk=\\\"http://x&quot;&gt;&lt;script&gt;\\\"")
        );
    }
}
