//! The documents of the cards: one HTML file each, with style and script inside, that fetches nothing.

use countersign_policy::visible_text::javascript_pattern;
use serde_json::Value;

const SHELL: &str = include_str!("page/card.html");
const STYLE: &str = include_str!("page/card.css");
const SCRIPT: &str = include_str!("page/card.js");

fn document(kind: &str, title: &str, desk: Option<&str>) -> String {
    let desk = desk.unwrap_or_default();
    let desk = desk.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
    SHELL
        .replace("{{title}}", title)
        .replace("{{kind}}", kind)
        .replace("{{desk}}", &desk)
        .replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT)
        .replace("{{hidden}}", &Value::from(javascript_pattern(r"\n\t")).to_string())
}

pub(super) fn plan(desk: Option<&str>) -> String {
    document("plan", "Plan", desk)
}

pub(super) fn result(desk: Option<&str>) -> String {
    document("result", "Result", desk)
}
