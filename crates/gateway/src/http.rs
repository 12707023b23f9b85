//! HTTP routes: MCP at `/mcp`, `/mcp/router` and `/mcp/direct`; status at `/healthz`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use countersign_mcp::server::{HttpOptions, HttpServer};

pub use countersign_mcp::server::{BodyError, read_body};

use crate::service::GatewayService;
use crate::state::GatewayState;

struct StatusRouteState {
    gateway: Arc<GatewayState>,
    front: Arc<HttpServer<GatewayService>>,
}

pub fn routes(
    gateway: Arc<GatewayState>,
    service: GatewayService,
    options: HttpOptions,
) -> (Router, Arc<HttpServer<GatewayService>>) {
    let front = HttpServer::new(Arc::new(service), options);
    let small = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(StatusRouteState { gateway, front: Arc::clone(&front) }));
    let router = ["/mcp", "/mcp/router", "/mcp/direct"]
        .into_iter()
        .fold(small, |router, path| router.merge(front.routes(path)));
    (router, front)
}

impl StatusRouteState {
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

async fn healthz(State(small): State<Arc<StatusRouteState>>, headers: HeaderMap) -> Response {
    small.guarded(&headers, || "ok\n".into_response())
}

/// Ready where the ledger can be written.
async fn readyz(State(small): State<Arc<StatusRouteState>>, headers: HeaderMap) -> Response {
    let flushed = small.gateway.store.flush().await;
    small.guarded(&headers, || match flushed {
        Ok(()) => "ready\n".into_response(),
        Err(fault) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", fault.outside())).into_response(),
    })
}

async fn metrics(State(small): State<Arc<StatusRouteState>>, headers: HeaderMap) -> Response {
    let kind = [("content-type", "text/plain; version=0.0.4; charset=utf-8")];
    small.guarded(&headers, || (kind, small.gateway.metrics.page(&small.gateway)).into_response())
}
