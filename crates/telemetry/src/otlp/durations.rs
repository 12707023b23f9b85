//! How long requests took, on both sides, by the names of the conventions for MCP: a layer on the spans that are exported.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, MeterProvider as _};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::SCOPE;

/// The bounds the conventions ask for, in seconds.
const BOUNDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// The attributes of a span that are attributes of its duration: few enough values of each.
const ATTRIBUTES: [&str; 7] = [
    "mcp.method.name",
    "gen_ai.tool.name",
    "network.transport",
    "countersign.upstream",
    "countersign.effect",
    "countersign.decision",
    "error.type",
];

pub(super) struct DurationHistograms {
    server: Histogram<f64>,
    client: Histogram<f64>,
}

impl DurationHistograms {
    pub(super) fn new(provider: &SdkMeterProvider) -> Self {
        let meter = provider.meter(SCOPE);
        let histogram = |name: &'static str, about: &'static str| {
            let built = meter.f64_histogram(name).with_unit("s").with_description(about);
            built.with_boundaries(BOUNDS.to_vec()).build()
        };
        Self {
            server: histogram("mcp.server.operation.duration", "How long hosts waited for an answer."),
            client: histogram("mcp.client.operation.duration", "How long upstreams took to answer."),
        }
    }
}

pub(super) struct DurationLayer {
    histograms: Arc<OnceLock<DurationHistograms>>,
}

impl DurationLayer {
    pub(super) fn new(histograms: Arc<OnceLock<DurationHistograms>>) -> Self {
        Self { histograms }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SpanKind {
    Server,
    Client,
    Internal,
}

/// What is measured of a span that has not ended.
struct OpenSpan {
    started: Instant,
    kind: SpanKind,
    attributes: Vec<KeyValue>,
}

impl Visit for OpenSpan {
    fn record_str(&mut self, field: &Field, value: &str) {
        match (field.name(), value) {
            ("otel.kind", "server") => self.kind = SpanKind::Server,
            ("otel.kind", "client") => self.kind = SpanKind::Client,
            (name, value) if ATTRIBUTES.contains(&name) => {
                self.attributes.push(KeyValue::new(name, value.to_owned()));
            }
            _ => {}
        }
    }

    // Attributes are strings.
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S> Layer<S> for DurationLayer
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut open = OpenSpan { started: Instant::now(), kind: SpanKind::Internal, attributes: Vec::new() };
        attributes.record(&mut open);
        if open.kind != SpanKind::Internal {
            span.extensions_mut().insert(open);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let open = context.span(&id).and_then(|span| span.extensions_mut().remove::<OpenSpan>());
        let (Some(open), Some(histograms)) = (open, self.histograms.get()) else { return };
        let histogram = match open.kind {
            SpanKind::Server => &histograms.server,
            SpanKind::Client => &histograms.client,
            SpanKind::Internal => return,
        };
        histogram.record(open.started.elapsed().as_secs_f64(), &open.attributes);
    }
}
