//! The page: files of our own, carried in the binary, without anything secret in them. What a person may see comes by REST.

use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use countersign_core::visible_text::{self, javascript_class};

include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// The paths of the page; each is the same document, which reads its own address.
pub(crate) const PATHS: &[&str] = &[
    "/",
    "/plans",
    "/plans/{id}",
    "/together",
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

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => "text/plain; charset=utf-8",
    }
}

/// `invisible.js`: the characters the page shows as escapes, made from the one list there is.
static INVISIBLE: LazyLock<String> = LazyLock::new(|| {
    let constant =
        |name: &str, class: &str| format!("export const {name} = {};\n", serde_json::Value::from(class));
    [
        constant("INVISIBLE", &javascript_class(visible_text::INVISIBLE)),
        constant("PICTURES", &javascript_class(visible_text::PICTURES)),
        constant("PICTURE_BASES", visible_text::PICTURE_BASES),
    ]
    .concat()
});

fn content(name: &str) -> Option<&'static [u8]> {
    match name {
        "invisible.js" => Some(INVISIBLE.as_bytes()),
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
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(name)));
    // A new version of the binary is a new version of the page.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The document.
pub(crate) async fn document() -> Response {
    file("index.html")
}

/// `GET /page/{name}`
pub(crate) async fn asset(Path(name): Path<String>) -> Response {
    file(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_11_the_page_has_no_list_of_invisible_characters_but_the_shared_one() {
        let generated = String::from_utf8_lossy(content("invisible.js").unwrap());
        for (first, last) in visible_text::INVISIBLE {
            let range = format!("\\\\u{{{:x}}}-\\\\u{{{:x}}}", u32::from(*first), u32::from(*last));
            assert!(generated.contains(&range), "{range}");
        }
        for (name, bytes) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            let text = String::from_utf8_lossy(bytes).to_lowercase();
            assert!(!text.contains("\\u200b-") && !text.contains("\\u2066-"), "{name} has a list of its own");
        }
    }
}
