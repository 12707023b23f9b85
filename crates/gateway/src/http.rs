//! The house over HTTP: MCP at `/mcp`, `/mcp/router` and `/mcp/direct`, and how it is at `/healthz`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use countersign_wire::serve::{HttpFront, HttpOptions};

pub use countersign_wire::serve::{NoBody, read_body};

use crate::house::House;
use crate::service::Face;

/// What the small routes need.
struct Small {
    house: Arc<House>,
    front: Arc<HttpFront<Face>>,
}

/// All routes of the house.
pub fn routes(house: Arc<House>, face: Face, options: HttpOptions) -> (Router, Arc<HttpFront<Face>>) {
    let front = HttpFront::new(Arc::new(face), options);
    let small = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(Small { house, front: Arc::clone(&front) }));
    let router = ["/mcp", "/mcp/router", "/mcp/direct"]
        .into_iter()
        .fold(small, |router, path| router.merge(front.routes(path)));
    (router, front)
}

impl Small {
    fn guarded(&self, headers: &HeaderMap, answer: impl FnOnce() -> Response) -> Response {
        match self.front.check_source(headers) {
            Ok(()) => answer(),
            Err(refusal) => {
                let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::FORBIDDEN);
                (status, refusal.message).into_response()
            }
        }
    }
}

/// The process lives.
async fn healthz(State(small): State<Arc<Small>>, headers: HeaderMap) -> Response {
    small.guarded(&headers, || "ok\n".into_response())
}

/// Calls can be served: the ledger can be written.
async fn readyz(State(small): State<Arc<Small>>, headers: HeaderMap) -> Response {
    let flushed = small.house.store.flush().await;
    small.guarded(&headers, || match flushed {
        Ok(()) => "ready\n".into_response(),
        Err(fault) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", fault.outside())).into_response(),
    })
}

async fn metrics(State(small): State<Arc<Small>>, headers: HeaderMap) -> Response {
    let kind = [("content-type", "text/plain; version=0.0.4; charset=utf-8")];
    small.guarded(&headers, || (kind, small.house.metrics.page(&small.house)).into_response())
}
