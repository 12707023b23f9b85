//! Serves the files of the approvals page, which are part of the binary. They hold no data: everything a person sees comes over REST.

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use crate::vocabulary;

include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// The paths of the page. Each serves the same document, which reads its own address.
pub(crate) const PATHS: &[&str] = &[
    "/",
    "/plans",
    "/plans/{id}",
    "/together",
    "/overview",
    "/activity",
    "/activity/{id}",
    "/tools",
    "/tools/{name}",
    "/upstreams",
    "/runs",
    "/runs/{id}",
    "/grants",
    "/credentials",
    "/policy",
    "/memory",
    "/memory/{id}",
    "/sign-in",
    "/help",
];

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => "text/plain; charset=utf-8",
    }
}

fn content(name: &str) -> Option<&'static [u8]> {
    match name {
        "vocabulary.js" => Some(vocabulary::module().as_bytes()),
        _ => FILES.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes),
    }
}

fn file(name: &str) -> Response {
    let Some(bytes) = content(name) else {
        let mut none = Response::new(Body::from("there is no such page\n"));
        *none.status_mut() = StatusCode::NOT_FOUND;
        return none;
    };
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
    // The page changes with the binary: browsers must ask again.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

pub(crate) async fn document() -> Response {
    file("index.html")
}

pub(crate) async fn asset(Path(name): Path<String>) -> Response {
    file(&name)
}

#[cfg(test)]
mod tests {
    use countersign_policy::visible_text::INVISIBLE;

    use super::*;

    fn scripts() -> impl Iterator<Item = (&'static str, String)> {
        let scripts = FILES.iter().filter(|(name, _)| name.ends_with(".js"));
        scripts.map(|(name, bytes)| (*name, String::from_utf8_lossy(bytes).into_owned()))
    }

    #[test]
    fn attack_11_the_page_has_no_list_of_invisible_characters_but_the_shared_one() {
        let generated = String::from_utf8_lossy(content("vocabulary.js").unwrap());
        for (first, last) in INVISIBLE {
            let range = format!("\\\\u{{{:x}}}-\\\\u{{{:x}}}", u32::from(*first), u32::from(*last));
            assert!(generated.contains(&range), "{range}");
        }
        for (name, text) in scripts() {
            let text = text.to_lowercase();
            assert!(!text.contains("\\u200b-") && !text.contains("\\u2066-"), "{name} has a list of its own");
        }
    }

    #[test]
    fn the_scripts_repeat_no_list_of_the_vocabulary() {
        let lists = [
            ["\"agent\", \"human\"", "\"read\", \"write\"", "\"ask\", \"plan\""],
            ["\"call\", \"decision\"", "\"allowed\", \"refused\"", "\"plan\", \"activity\""],
            ["pending: \"", "simple: \"", "hold: \""],
        ];
        for (name, text) in scripts() {
            for list in lists.as_flattened() {
                assert!(!text.contains(list), "{name} repeats {list}");
            }
        }
    }

    #[test]
    fn the_scripts_import_only_names_that_the_vocabulary_exports() {
        let generated = String::from_utf8_lossy(content("vocabulary.js").unwrap());
        let mut imports = 0;
        for (name, text) in scripts() {
            let lines = text.lines().filter(|line| line.ends_with("from \"./vocabulary.js\";"));
            for names in lines.filter_map(|line| line.strip_prefix("import { ")?.split_once(" }")) {
                for import in names.0.split(", ") {
                    assert!(generated.contains(&format!("export const {import} = ")), "{name}: {import}");
                    imports += 1;
                }
            }
        }
        assert!(imports > 15, "{imports}");
    }
}
