//! The page: files of our own, carried in the binary, without anything secret in them. What a person may see comes by REST.

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

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

fn file(name: &str) -> Response {
    let Some((_, bytes)) = FILES.iter().find(|(known, _)| *known == name) else {
        let mut none = Response::new(Body::from("there is no such page\n"));
        *none.status_mut() = StatusCode::NOT_FOUND;
        return none;
    };
    let mut response = Response::new(Body::from(*bytes));
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
