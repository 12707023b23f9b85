//! Lists the upstreams and their health.

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::AuthenticatedPerson;
use crate::response::{ApiResult, respond};
use crate::state::Web;
use crate::views::{self, UpstreamView};

/// Every upstream.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UpstreamList {
    upstreams: Vec<UpstreamView>,
}

pub(crate) async fn list(State(web): Web, _: AuthenticatedPerson) -> ApiResult<UpstreamList> {
    let (policy, catalog) = (web.gateway.policy.load_full(), web.gateway.catalog.load_full());
    let upstreams = web.gateway.upstreams.load_full();
    let all = upstreams.iter().map(|(id, upstream)| {
        let runs = policy.config.upstream(id).map(views::runs_as).unwrap_or_default();
        views::upstream(id.as_str(), runs, &upstream.health(), catalog.counts(id))
    });
    respond(UpstreamList { upstreams: all.collect() })
}
