//! Cards: a plan and its outcome inside the host's own window (MCP Apps). Offered only to clients that say they show them; everyone
//! else gets the same facts as text. A card decides nothing by itself: its button is an answer of the host's user.

pub mod answer;
mod face;
mod message;
mod nonce;
mod page;

use countersign_wire::frame::{Reply, RpcError};
use countersign_wire::raw::{self, Edit, Raw};
use countersign_wire::serve::Ctx;
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub use self::face::{asking, outcome, previewing};
pub use self::message::{Again, apply, cancel, retry};
pub use self::nonce::nonce;

/// The card of a plan that waits.
pub const PLAN: &str = "ui://countersign/plan";
/// The card of what became of a plan.
pub const RESULT: &str = "ui://countersign/result";
/// What a card is, to a host.
pub const MIME: &str = "text/html;profile=mcp-app";

const EXTENSION: &str = "io.modelcontextprotocol/ui";

/// Whether a client shows cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cards {
    /// It says so.
    Shown,
    /// It does not.
    Hidden,
}

impl Cards {
    /// What the client of this request says: in its session, or with the request itself in the stateless era. Where a
    /// person runs a plan from the desk there is none.
    pub fn of<'c>(ctx: impl Into<Option<&'c Ctx>>) -> Self {
        let ctx: Option<&Ctx> = ctx.into();
        let declared = ctx.is_some_and(|ctx| ctx.client().capabilities.as_deref().is_some_and(declares));
        if declared { Self::Shown } else { Self::Hidden }
    }
}

/// Whether capabilities declare the extension, under the key of today or the one of its early days.
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

/// A tool's definition with its link to a card, under both spellings of the key.
pub fn linked(definition: &RawValue, card: &str) -> Raw {
    let uri = raw::to_raw(card);
    let ui = raw::to_raw(&json!({"resourceUri": card}));
    let edits = [Edit::Set("ui", ui.get()), Edit::Set("ui/resourceUri", uri.get())];
    raw::edit_inside(definition.get(), "_meta", &edits)
        .and_then(raw::from_text)
        .unwrap_or_else(|| definition.to_owned())
}

/// The cards as `resources/list` names them.
pub fn resources() -> [Value; 2] {
    let entry = |uri: &str, name: &str, title: &str, what: &str| json!({"uri": uri, "name": name, "title": title, "description": what, "mimeType": MIME, "_meta": meta()});
    [
        entry(PLAN, "countersign-plan", "Plan", "What a call would change, with Confirm and Cancel"),
        entry(RESULT, "countersign-result", "Result", "What became of a plan"),
    ]
}

fn meta() -> Value {
    json!({"ui": {"prefersBorder": true}})
}

/// `resources/read` of a card. `desk` is the one address its buttons may open.
pub fn read(uri: &str, desk: Option<&str>) -> Reply {
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
