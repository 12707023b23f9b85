//! The catalogue from the store: tools as they were listed last, without starting any upstream. For commands that list and propose; calls are
//! judged by what an upstream lists now.

use std::sync::Arc;

use countersign_config::ToolNamePrefix;
use countersign_mcp::raw::RawJson;
use countersign_policy::ids::UpstreamId;
use countersign_policy::rules::RuleSet;
use countersign_store::{ToolDefinition, ToolPin};
use serde_json::value::to_raw_value;

use super::pins::compare;
use super::{Catalog, CatalogSource, HeaderMirroring, ListedTools, PinComparison};
use crate::schema::Schemas;

impl Catalog {
    pub fn of_pins(upstreams: Vec<(UpstreamId, ToolNamePrefix, Vec<ToolPin>)>, rules: &RuleSet) -> Self {
        let schemas = Schemas::default();
        let sources: Vec<CatalogSource> = upstreams
            .into_iter()
            .map(|(upstream, prefix, pins)| {
                let listed = pins.iter().filter_map(listed).collect();
                let listed = ListedTools::read(&upstream, listed, HeaderMirroring::Plain, &schemas);
                let standings = pins.iter().map(|pin| (pin.tool.clone(), standing(pin))).collect();
                CatalogSource { listed: Arc::new(listed), standings, prefix, is_starting: false }
            })
            .collect();
        Self::build(&sources, rules)
    }
}

fn listed(pin: &ToolPin) -> Option<RawJson> {
    to_raw_value(&last_listed(pin).definition).ok()
}

fn standing(pin: &ToolPin) -> PinComparison {
    let now = last_listed(pin);
    compare(pin, now.fingerprint, &now.definition)
}

fn last_listed(pin: &ToolPin) -> &ToolDefinition {
    pin.candidate.as_ref().unwrap_or(&pin.pinned)
}
