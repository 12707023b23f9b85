//! Metrics of a gateway's state: calls, upstreams, tools, ledger.

use std::sync::{Arc, Weak};

use countersign_gateway::state::GatewayState;
use countersign_gateway::upstreams::Condition;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry_sdk::metrics::SdkMeterProvider;

use super::SCOPE;

/// Registers callbacks that read the state whenever metrics are collected. They keep no gateway alive.
pub(super) fn register(provider: &SdkMeterProvider, gateway: &Arc<GatewayState>) {
    let meter = provider.meter(SCOPE);
    calls(&meter, Arc::downgrade(gateway));
    upstreams(&meter, Arc::downgrade(gateway));
    let (tools, ledger) = (Arc::downgrade(gateway), Arc::downgrade(gateway));
    let gauge = meter.u64_observable_gauge("countersign.tools").with_unit("{tool}");
    gauge
        .with_description("Tools that may be called.")
        .with_callback(move |observer| {
            if let Some(gateway) = tools.upgrade() {
                let count = gateway.catalog.load().accepted().count();
                observer.observe(u64::try_from(count).unwrap_or(u64::MAX), &[]);
            }
        })
        .build();
    let gauge = meter.u64_observable_gauge("countersign.ledger.ok");
    gauge
        .with_description("Whether the ledger can be written.")
        .with_callback(move |observer| {
            if let Some(gateway) = ledger.upgrade() {
                observer.observe(u64::from(!gateway.store.is_failing()), &[]);
            }
        })
        .build();
}

fn calls(meter: &Meter, gateway: Weak<GatewayState>) {
    let counter = meter.u64_observable_counter("countersign.calls").with_unit("{call}");
    counter
        .with_description("Calls by effect and status.")
        .with_callback(move |observer| {
            let Some(gateway) = gateway.upgrade() else { return };
            for (effect, status, count) in gateway.metrics.calls().filter(|(_, _, count)| *count > 0) {
                let attributes = [KeyValue::new("effect", effect), KeyValue::new("status", status.as_str())];
                observer.observe(count, &attributes);
            }
        })
        .build();
}

fn upstreams(meter: &Meter, gateway: Weak<GatewayState>) {
    meter
        .u64_observable_gauge("countersign.upstream.up")
        .with_description("Whether an upstream answers.")
        .with_callback(move |observer| {
            let Some(gateway) = gateway.upgrade() else { return };
            for (id, upstream) in gateway.upstreams.load().iter() {
                let up = upstream.health().condition == Condition::Up;
                observer.observe(u64::from(up), &[KeyValue::new("countersign.upstream", id.to_string())]);
            }
        })
        .build();
}
