//! What a tool's description says about confirming its own preview. Recognises whole paragraphs; every other word stays.

use std::borrow::Cow;

/// Said in place of a tool's own instructions.
const OURS: &str = "The gateway confirms this call: its first answer is a preview, and nothing has changed. End the turn after it; \
    on `Apply: call …` re-issue exactly that call, on `Cancel: …` acknowledge and don't.";

/// What only instructions for the time after a preview say, in lower case.
const CUES: [&str; 7] =
    ["re-issue", "reissue", "re-narrate", "iframe", "end your turn", "end the turn", "preview→apply"];

/// The description with our coaching in place of its own; unchanged where it has none.
pub(super) fn without_own(description: &str) -> Cow<'_, str> {
    let paragraphs: Vec<&str> = description.split("\n\n").collect();
    let (coaching, mut kept): (Vec<&str>, Vec<&str>) =
        paragraphs.into_iter().partition(|paragraph| is_coaching(paragraph));
    if coaching.is_empty() {
        return Cow::Borrowed(description);
    }
    kept.push(OURS);
    Cow::Owned(kept.join("\n\n"))
}

fn is_coaching(paragraph: &str) -> bool {
    let paragraph = paragraph.to_lowercase();
    // `preview` alone is what the tool does; with a cue it is what the agent shall do then.
    paragraph.contains("preview") && CUES.iter().any(|cue| paragraph.contains(cue))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_a_tool_give_way_to_ours_and_the_rest_stays() {
        let own = "Create a customer.\n\nTwo-step flow: `preview=true` shows it, `preview=false` creates it.\n\nPreview→apply \
            pattern: handle both:\n\n1. Without iframes ask, then re-issue the call with `preview=False`.\n\n2. With iframes end your \
            turn after the preview.";
        let told = without_own(own);
        assert!(told.starts_with("Create a customer.\n\nTwo-step flow:"), "{told}");
        assert_eq!(told.matches("e-issue").count(), 1, "one coaching: {told}");
        assert!(told.ends_with(OURS), "{told}");
        let plain = "Shows a preview card of an order.\n\nRe-issue tokens with refresh.";
        assert_eq!(without_own(plain), plain);
    }
}
