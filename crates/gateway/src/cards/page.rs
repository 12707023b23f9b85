//! The cards' files: one document each, made of one script and one style, whole and without anything to fetch.

use std::sync::LazyLock;

const SHELL: &str = include_str!("page/card.html");
const STYLE: &str = include_str!("page/card.css");
const SCRIPT: &str = include_str!("page/card.js");

fn document(kind: &str, title: &str) -> String {
    SHELL
        .replace("{{title}}", title)
        .replace("{{kind}}", kind)
        .replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT)
}

/// The card of a plan that waits.
pub(super) fn plan() -> &'static str {
    static PAGE: LazyLock<String> = LazyLock::new(|| document("plan", "Plan"));
    &PAGE
}

/// The card of what became of a plan.
pub(super) fn result() -> &'static str {
    static PAGE: LazyLock<String> = LazyLock::new(|| document("result", "Result"));
    &PAGE
}
