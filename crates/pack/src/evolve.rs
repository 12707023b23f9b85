//! Evolving: turns edits of deployed files into overlays on a branch of the config repo (`propose`), and creates missing files again
//! (`restore`). Deploys nothing and overwrites nothing.

mod propose;
mod restore;

pub(crate) use propose::OverlayProposal;
pub use propose::{propose, survey_proposal};
pub(crate) use restore::MissingFile;
pub use restore::{dry_reply, missing, restore};

use crate::targets::{CLOSING, opening};

/// The section of a module in a joined file; none if the markers do not say.
pub(crate) fn section(text: &str, module_id: &str) -> Option<String> {
    let open = opening(module_id);
    let mut inside = None;
    let mut found = None;
    for line in text.lines() {
        if line.trim_end() == open {
            if inside.is_some() || found.is_some() {
                return None;
            }
            inside = Some(String::new());
        } else if line.trim_end() == CLOSING {
            if let Some(section) = inside.take() {
                found = Some(section);
            }
        } else if let Some(section) = &mut inside {
            section.push_str(line);
            section.push('\n');
        }
    }
    if inside.is_some() { None } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_only_where_the_markers_are_whole() {
        let text = "<!-- agentpack:module=a -->\none\n\ntwo\n<!-- /agentpack -->\n\n---\n\n<!-- agentpack:module=b -->\nthree\n<!-- /agentpack -->\n";
        assert_eq!(section(text, "a").unwrap(), "one\n\ntwo\n");
        assert_eq!(section(text, "b").unwrap(), "three\n");
        assert_eq!(section(text, "c"), None);
        assert_eq!(section(&text.replacen("<!-- /agentpack -->", "", 2), "b"), None);
        assert_eq!(section(&format!("{text}{text}"), "a"), None);
    }
}
