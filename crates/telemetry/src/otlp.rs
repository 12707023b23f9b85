//! Spans and metrics over OTLP (HTTP, protobuf). The SDK sends from threads of its own: a slow or missing collector delays no call, and
//! what does not fit the SDK's queue is dropped.

mod client;
mod durations;
mod metrics;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use countersign_gateway::state::GatewayState;
use countersign_gateway::trace::{SPAN_TARGET, TraceContext, TraceContextBridge};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::{LookupSpan, Registry};

use self::client::Client;
use self::durations::{DurationHistograms, DurationLayer};
use crate::Variables;
use crate::signals::{SignalSwitch, TelemetrySignals};

/// The name of our instruments, and of the service unless the environment names it.
const SCOPE: &str = "countersign";

/// How long the export of what is left may delay the exit.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The runtime that carries exports. The subscriber is set before there is one.
type RuntimeCell = Arc<OnceLock<Handle>>;

/// The providers of one process.
pub(crate) struct Otlp {
    signals: TelemetrySignals,
    variables: Variables,
    runtime: RuntimeCell,
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    histograms: Arc<OnceLock<DurationHistograms>>,
}

impl Otlp {
    pub(crate) fn new(signals: TelemetrySignals, variables: Variables) -> Result<Self, String> {
        let runtime = RuntimeCell::default();
        let traces = match signals.traces {
            SignalSwitch::On => Some(tracer_provider(&runtime, variables)?),
            SignalSwitch::Off => None,
        };
        Ok(Self { signals, variables, runtime, traces, metrics: None, histograms: Arc::default() })
    }

    /// The layer that exports the spans of requests. Attributes are ours alone: no thread, file or line.
    pub(crate) fn span_layer(&self) -> Option<impl Layer<Registry> + Send + Sync + use<>> {
        let tracer = self.traces.as_ref()?.tracer(SCOPE);
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_context_activation(false)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false);
        Some(layer.with_filter(exported_spans()))
    }

    /// The layer that measures the spans of requests.
    pub(crate) fn duration_layer<S>(&self) -> Option<impl Layer<S> + Send + Sync + use<S>>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        let layer = DurationLayer::new(Arc::clone(&self.histograms));
        (self.signals.metrics == SignalSwitch::On).then(|| layer.with_filter(exported_spans()))
    }

    /// Begins to export. The SDK reads its own variables: endpoints, headers, timeouts, sampler, batches, resource.
    pub(crate) fn observe(&mut self, gateway: &Arc<GatewayState>) {
        let _ = self.runtime.set(Handle::current());
        if self.traces.is_some() {
            gateway.set_trace_bridge(Arc::new(OpenTelemetryBridge));
        }
        if self.signals.metrics == SignalSwitch::On {
            match meter_provider(&self.runtime, self.variables) {
                Ok(provider) => {
                    metrics::register(&provider, gateway);
                    let _ = self.histograms.set(DurationHistograms::new(&provider));
                    self.metrics = Some(provider);
                }
                Err(problem) => tracing::warn!("telemetry is off: {problem}"),
            }
        }
    }

    pub(crate) async fn close(self) {
        let (done, closed) = tokio::sync::oneshot::channel();
        // The SDK blocks until it is done, and what it waits for needs the runtime: block another thread.
        std::thread::spawn(move || {
            // A failed export was reported by the client.
            let _ = self.traces.map(|provider| provider.shutdown_with_timeout(CLOSE_TIMEOUT));
            let _ = self.metrics.map(|provider| provider.shutdown_with_timeout(CLOSE_TIMEOUT));
            let _ = done.send(());
        });
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
    }
}

fn exported_spans() -> Targets {
    Targets::new().with_target(SPAN_TARGET, LevelFilter::INFO)
}

fn tracer_provider(runtime: &RuntimeCell, variables: Variables) -> Result<SdkTracerProvider, String> {
    let client = Client::new("TRACES", "/v1/traces", runtime, variables)?;
    let exporter = SpanExporter::builder().with_http().with_http_client(client);
    let exporter = exporter.with_protocol(Protocol::HttpBinary).build().map_err(|error| error.to_string())?;
    Ok(SdkTracerProvider::builder().with_resource(resource(variables)).with_batch_exporter(exporter).build())
}

fn meter_provider(runtime: &RuntimeCell, variables: Variables) -> Result<SdkMeterProvider, String> {
    let client = Client::new("METRICS", "/v1/metrics", runtime, variables)?;
    let exporter = MetricExporter::builder().with_http().with_http_client(client);
    let exporter = exporter.with_protocol(Protocol::HttpBinary).build().map_err(|error| error.to_string())?;
    Ok(SdkMeterProvider::builder()
        .with_resource(resource(variables))
        .with_periodic_exporter(exporter)
        .build())
}

fn resource(variables: Variables) -> Resource {
    let named = variables("OTEL_SERVICE_NAME").is_some()
        || variables("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| {
            all.split(',')
                .any(|pair| pair.split_once('=').is_some_and(|(key, _)| key.trim() == "service.name"))
        });
    let ours = Resource::builder();
    let ours = if named { ours } else { ours.with_service_name(SCOPE) };
    ours.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build()
}

/// Reads and writes the W3C trace context of exported spans.
struct OpenTelemetryBridge;

impl TraceContextBridge for OpenTelemetryBridge {
    fn set_parent(&self, span: &Span, context: &TraceContext) {
        if is_well_formed(&context.parent) {
            let parent =
                TraceContextPropagator::new().extract_with_context(&Context::new(), &Carrier(context));
            // Fails only for a span that has begun or is not exported: it stays a trace of its own.
            let _ = span.set_parent(parent);
        }
    }

    fn context(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        let span = context.span();
        let span = span.span_context();
        let sampled = u8::from(span.trace_flags().is_sampled());
        span.is_valid().then(|| TraceContext {
            parent: format!("00-{}-{}-{sampled:02x}", span.trace_id(), span.span_id()),
            state: span.trace_state().header(),
        })
    }

    fn set_name(&self, span: &Span, name: String) {
        span.context().span().update_name(name);
    }
}

/// Whether this is a `traceparent`: the SDK accepts shorter numbers as well, and what we pass on would be another trace's.
fn is_well_formed(parent: &str) -> bool {
    let hex = |part: Option<&str>, length: usize| {
        part.is_some_and(|part| {
            part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    let mut parts = parent.split('-');
    let version = parts.next();
    // Later versions may have more after the flags; version 00 may not.
    hex(version, 2)
        && version != Some("ff")
        && [32, 16, 2].into_iter().all(|length| hex(parts.next(), length))
        && (version != Some("00") || parts.next().is_none())
}

struct Carrier<'a>(&'a TraceContext);

impl opentelemetry::propagation::Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => Some(&self.0.parent),
            "tracestate" => Some(&self.0.state),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_traceparent_is_one() {
        const WHOLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_well_formed(WHOLE));
        assert!(is_well_formed(&format!("{}-more", WHOLE.replacen("00", "01", 1))), "a version to come");
        for bad in [
            "",
            "00-1-2-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert!(!is_well_formed(bad), "{bad}");
        }
    }
}
