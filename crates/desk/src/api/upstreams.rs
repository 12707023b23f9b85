//! Upstreams: how each is, how often it was restarted, what it last said, how long its calls took.

use std::sync::Arc;

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use crate::access::Person;
use crate::desk::Desk;
use crate::told::{Outcome, told};
use crate::views::{self, UpstreamView};

/// Every upstream.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "UpstreamList")]
pub(crate) struct Upstreams {
    /// Them.
    upstreams: Vec<UpstreamView>,
}

/// `GET /upstreams`
pub(crate) async fn list(State(desk): State<Arc<Desk>>, _: Person) -> Outcome<Upstreams> {
    let (law, catalog) = (desk.house.law.load_full(), desk.house.catalog.load_full());
    let upstreams = desk.house.upstreams.load_full();
    let all = upstreams.iter().map(|(id, upstream)| {
        let runs = law.config.upstream(id).map(views::runs_as).unwrap_or_default();
        views::upstream(id.as_str(), runs, &upstream.health(), catalog.counts(id))
    });
    told(Upstreams { upstreams: all.collect() })
}
