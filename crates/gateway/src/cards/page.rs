//! The cards' files: one document each, made of one script and one style, whole and without anything to fetch.

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
}

/// The card of a plan that waits.
pub(super) fn plan(desk: Option<&str>) -> String {
    document("plan", "Plan", desk)
}

/// The card of what became of a plan.
pub(super) fn result(desk: Option<&str>) -> String {
    document("result", "Result", desk)
}
