//! Reads an upstream's `tools/list` page by page, with limits on tools, pages and bytes, and no cursor twice. Keeps definitions as raw JSON.

use std::collections::HashSet;

use countersign_mcp::raw::{self, RawJson};
use serde_json::value::RawValue;

pub(crate) const MOST_TOOLS: usize = 10_000;
pub(crate) const MOST_PAGES: usize = 1_000;
/// Of all definitions together.
pub const MOST_BYTES: usize = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct ToolListPages {
    tools: Vec<RawJson>,
    cursors: HashSet<String>,
    pages: usize,
    bytes: usize,
}

impl ToolListPages {
    /// Adds a page; returns the params of the next request, or none after the last page. The error says what is wrong.
    pub(super) fn take(&mut self, page: &RawValue) -> Result<Option<RawJson>, String> {
        self.pages += 1;
        let listed = raw::get(page, "tools").map(|tools| serde_json::from_str::<Vec<RawJson>>(tools.get()));
        let Some(Ok(tools)) = listed else { return Err("`tools` is not a list".to_owned()) };
        self.bytes += tools.iter().map(|tool| tool.get().len()).sum::<usize>();
        self.tools.extend(tools);
        if self.tools.len() > MOST_TOOLS {
            return Err(format!("it lists more than {MOST_TOOLS} tools"));
        }
        if self.bytes > MOST_BYTES {
            return Err(format!("its definitions take more than {MOST_BYTES} bytes"));
        }
        let Some(cursor) = raw::get_str(page, "nextCursor") else { return Ok(None) };
        if self.pages >= MOST_PAGES {
            return Err(format!("it lists more than {MOST_PAGES} pages"));
        }
        if !self.cursors.insert(cursor.clone().into_owned()) {
            return Err(format!(
                "its pages go round in a circle: cursor `{}` came twice",
                crate::escape::excerpt(&cursor, 40)
            ));
        }
        Ok(Some(raw::to_raw(&serde_json::json!({ "cursor": cursor }))))
    }

    pub(super) fn done(self) -> Vec<RawJson> {
        self.tools
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> RawJson {
        raw::from_text(text).unwrap()
    }

    #[test]
    fn pages_join_and_keep_every_byte() {
        let mut pages = ToolListPages::default();
        let next =
            pages.take(&page(r#"{"tools":[{"name":"a","x": 1.50}],"nextCursor":"c\"1"}"#)).unwrap().unwrap();
        assert_eq!(next.get(), r#"{"cursor":"c\"1"}"#);
        assert!(pages.take(&page(r#"{"nextCursor":null,"tools":[{"name":"b"}, 7]}"#)).unwrap().is_none());
        let all: Vec<String> = pages.done().iter().map(|tool| tool.get().to_owned()).collect();
        assert_eq!(all, [r#"{"name":"a","x": 1.50}"#, r#"{"name":"b"}"#, "7"]);
    }

    #[test]
    fn a_circle_of_cursors_ends() {
        let mut pages = ToolListPages::default();
        assert!(pages.take(&page(r#"{"tools":[],"nextCursor":"a"}"#)).unwrap().is_some());
        assert!(pages.take(&page(r#"{"tools":[],"nextCursor":"b"}"#)).unwrap().is_some());
        let why = pages.take(&page(r#"{"tools":[],"nextCursor":"a"}"#)).unwrap_err();
        assert_eq!(why, "its pages go round in a circle: cursor `a` came twice");
    }

    #[test]
    fn everything_is_bounded() {
        let many = |count: usize| page(&format!(r#"{{"tools":[{}]}}"#, vec!["{}"; count].join(",")));
        assert!(ToolListPages::default().take(&many(MOST_TOOLS)).unwrap().is_none());
        assert_eq!(
            ToolListPages::default().take(&many(MOST_TOOLS + 1)).unwrap_err(),
            "it lists more than 10000 tools"
        );
        let mut pages = ToolListPages::default();
        for number in 1..MOST_PAGES {
            assert!(
                pages.take(&page(&format!(r#"{{"tools":[],"nextCursor":"{number}"}}"#))).unwrap().is_some()
            );
        }
        let why = pages.take(&page(r#"{"tools":[],"nextCursor":"last"}"#)).unwrap_err();
        assert_eq!(why, "it lists more than 1000 pages");
        assert_eq!(
            ToolListPages::default().take(&page(r#"{"tools":{}}"#)).unwrap_err(),
            "`tools` is not a list"
        );
        assert_eq!(ToolListPages::default().take(&page("[]")).unwrap_err(), "`tools` is not a list");
    }
}
