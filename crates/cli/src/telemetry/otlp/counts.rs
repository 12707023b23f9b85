//! Metrics: how long requests took on both sides, by the names of the conventions for MCP, and how things stand in the house.

use std::sync::{Arc, Weak};
use std::time::Duration;

use countersign_gateway::house::House;
use countersign_gateway::trace::{Side, Told};
use countersign_gateway::upstreams::Condition;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter, MeterProvider as _};
use opentelemetry_sdk::metrics::SdkMeterProvider;

use super::SCOPE;

/// The bounds the conventions ask for, in seconds.
const BOUNDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// What of a span goes with its duration: little enough that there are few of each.
const KEPT: [&str; 6] = [
    "mcp.method.name",
    "gen_ai.tool.name",
    "network.transport",
    "countersign.upstream",
    "countersign.effect",
    "countersign.decision",
];

/// How long requests took.
pub(super) struct Durations {
    served: Histogram<f64>,
    sent: Histogram<f64>,
}

impl Durations {
    pub(super) fn of(provider: &SdkMeterProvider) -> Self {
        let meter = provider.meter(SCOPE);
        let histogram = |name: &'static str, about: &'static str| {
            let built = meter.f64_histogram(name).with_unit("s").with_description(about);
            built.with_boundaries(BOUNDS.to_vec()).build()
        };
        Self {
            served: histogram("mcp.server.operation.duration", "How long hosts waited for an answer."),
            sent: histogram("mcp.client.operation.duration", "How long upstreams took to answer."),
        }
    }

    /// Counts one that ended.
    pub(super) fn took(&self, side: Side, taken: Duration, told: &Told) {
        let histogram = match side {
            Side::Served => &self.served,
            Side::Sent => &self.sent,
            Side::Inside => return,
        };
        let facts = told.facts.iter().filter(|(key, _)| KEPT.contains(key));
        let mut facts: Vec<KeyValue> = facts.map(|(key, value)| KeyValue::new(*key, value.clone())).collect();
        if let Some(fault) = &told.fault {
            facts.push(KeyValue::new("error.type", fault.clone()));
        }
        histogram.record(taken.as_secs_f64(), &facts);
    }
}

/// Tells how things stand whenever metrics are collected. Holds the house only while it stands.
pub(super) fn observe(provider: &SdkMeterProvider, house: &Arc<House>) {
    let meter = provider.meter(SCOPE);
    calls(&meter, Arc::downgrade(house));
    upstreams(&meter, Arc::downgrade(house));
    let (tools, ledger) = (Arc::downgrade(house), Arc::downgrade(house));
    let gauge = meter.u64_observable_gauge("countersign.tools").with_unit("{tool}");
    gauge
        .with_description("Tools that may be called.")
        .with_callback(move |told| {
            if let Some(house) = tools.upgrade() {
                let count = house.catalog.load().accepted().count();
                told.observe(u64::try_from(count).unwrap_or(u64::MAX), &[]);
            }
        })
        .build();
    let gauge = meter.u64_observable_gauge("countersign.ledger.ok");
    gauge
        .with_description("Whether the ledger can be written.")
        .with_callback(move |told| {
            if let Some(house) = ledger.upgrade() {
                told.observe(u64::from(!house.store.is_failing()), &[]);
            }
        })
        .build();
}

fn calls(meter: &Meter, house: Weak<House>) {
    let counter = meter.u64_observable_counter("countersign.calls").with_unit("{call}");
    counter
        .with_description("Calls by effect and status.")
        .with_callback(move |told| {
            let Some(house) = house.upgrade() else { return };
            for (effect, status, count) in house.metrics.calls().filter(|(_, _, count)| *count > 0) {
                let facts = [KeyValue::new("effect", effect), KeyValue::new("status", status.as_str())];
                told.observe(count, &facts);
            }
        })
        .build();
}

fn upstreams(meter: &Meter, house: Weak<House>) {
    meter
        .u64_observable_gauge("countersign.upstream.up")
        .with_description("Whether an upstream answers.")
        .with_callback(move |told| {
            let Some(house) = house.upgrade() else { return };
            for (id, upstream) in house.upstreams.load().iter() {
                let up = upstream.health().condition == Condition::Up;
                told.observe(u64::from(up), &[KeyValue::new("countersign.upstream", id.to_string())]);
            }
        })
        .build();
}
