//! What the gateway tells of, as spans and metrics over OTLP (HTTP, protobuf). Sent from threads of the SDK's own: a collector
//! that is slow or gone costs a call nothing, and what does not fit its queue is dropped.

mod client;
mod counts;

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_gateway::house::House;
use countersign_gateway::trace::{Place, Side, Span, Told, Watcher};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use self::client::Client;
use self::counts::Durations;
use super::{Signal, Wanted};
use crate::environment;

/// What our instruments are called after.
const SCOPE: &str = "countersign";

/// How long leaving may be delayed by what is still to be sent.
const PARTING: Duration = Duration::from_secs(2);

/// The providers of one process.
pub(super) struct Otlp {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
}

impl Otlp {
    /// Begins to watch a house. The SDK reads its own variables: endpoints, headers, timeouts, sampler, batches, resource.
    pub(super) fn start(wanted: Wanted, house: &Arc<House>) -> Result<Self, String> {
        let traces = match wanted.traces {
            Signal::On => Some(tracer_provider()?),
            Signal::Off => None,
        };
        let metrics = match wanted.metrics {
            Signal::On => Some(meter_provider()?),
            Signal::Off => None,
        };
        let durations = metrics.as_ref().map(|provider| {
            counts::observe(provider, house);
            Arc::new(Durations::of(provider))
        });
        let tracer = traces.as_ref().map(|provider| provider.tracer(SCOPE));
        house.watched_by(Arc::new(Watch(Ways { tracer, durations })));
        Ok(Self { traces, metrics })
    }

    pub(super) async fn close(self) {
        let (done, over) = tokio::sync::oneshot::channel();
        // The SDK waits where it stands, and what it waits for needs the runtime: so it waits elsewhere.
        std::thread::spawn(move || {
            // What could not be sent is lost, and was said.
            let _ = self.traces.map(|provider| provider.shutdown_with_timeout(PARTING));
            let _ = self.metrics.map(|provider| provider.shutdown_with_timeout(PARTING));
            let _ = done.send(());
        });
        let _ = tokio::time::timeout(PARTING, over).await;
    }
}

fn tracer_provider() -> Result<SdkTracerProvider, String> {
    let client = Client::here("TRACES", "/v1/traces")?;
    let exporter = SpanExporter::builder().with_http().with_http_client(client);
    let exporter = exporter.with_protocol(Protocol::HttpBinary).build().map_err(|error| error.to_string())?;
    Ok(SdkTracerProvider::builder().with_resource(resource()).with_batch_exporter(exporter).build())
}

fn meter_provider() -> Result<SdkMeterProvider, String> {
    let client = Client::here("METRICS", "/v1/metrics")?;
    let exporter = MetricExporter::builder().with_http().with_http_client(client);
    let exporter = exporter.with_protocol(Protocol::HttpBinary).build().map_err(|error| error.to_string())?;
    Ok(SdkMeterProvider::builder().with_resource(resource()).with_periodic_exporter(exporter).build())
}

/// Who we are, unless the environment says otherwise.
fn resource() -> Resource {
    let named = environment::variable("OTEL_SERVICE_NAME").is_some()
        || environment::variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| {
            all.split(',')
                .any(|pair| pair.split_once('=').is_some_and(|(key, _)| key.trim() == "service.name"))
        });
    let ours = Resource::builder();
    let ours = if named { ours } else { ours.with_service_name(SCOPE) };
    ours.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build()
}

/// Where what is told goes.
#[derive(Clone)]
struct Ways {
    tracer: Option<SdkTracer>,
    durations: Option<Arc<Durations>>,
}

impl Ways {
    fn begin(&self, name: &'static str, side: Side, under: &Context) -> Box<dyn Span> {
        let span = self.tracer.as_ref().map(|tracer| {
            let kind = match side {
                Side::Served => SpanKind::Server,
                Side::Inside => SpanKind::Internal,
                Side::Sent => SpanKind::Client,
            };
            tracer.span_builder(name).with_kind(kind).start_with_context(tracer, under)
        });
        Box::new(Going { span, ways: self.clone(), name, side, since: Instant::now() })
    }
}

struct Watch(Ways);

impl Watcher for Watch {
    fn begin(&self, name: &'static str, side: Side, under: Option<&Place>) -> Box<dyn Span> {
        let place = under.filter(|place| is_well_formed(&place.parent));
        let context = match place {
            Some(place) => {
                TraceContextPropagator::new().extract_with_context(&Context::new(), &Carrier(place))
            }
            None => Context::new(),
        };
        self.0.begin(name, side, &context)
    }
}

/// Whether this is a `traceparent`: the SDK takes shorter numbers as well, and what we pass on would be another trace's.
fn is_well_formed(parent: &str) -> bool {
    let hex = |part: Option<&str>, length: usize| {
        part.is_some_and(|part| {
            part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    let mut parts = parent.split('-');
    let version = parts.next();
    // Versions to come may go on after the flags; this one may not.
    hex(version, 2)
        && version != Some("ff")
        && [32, 16, 2].into_iter().all(|length| hex(parts.next(), length))
        && (version != Some("00") || parts.next().is_none())
}

/// A place as the propagator reads it.
struct Carrier<'a>(&'a Place);

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

/// A span that goes on.
struct Going {
    span: Option<opentelemetry_sdk::trace::Span>,
    ways: Ways,
    name: &'static str,
    side: Side,
    since: Instant,
}

impl Span for Going {
    fn place(&self) -> Place {
        self.span.as_ref().map(|span| written(span.span_context())).unwrap_or_default()
    }

    fn child(&self, name: &'static str, side: Side) -> Box<dyn Span> {
        let context = match &self.span {
            Some(span) => Context::new().with_remote_span_context(span.span_context().clone()),
            None => Context::new(),
        };
        self.ways.begin(name, side, &context)
    }

    fn end(&mut self, told: Told) {
        if let Some(durations) = &self.ways.durations {
            durations.took(self.side, self.since.elapsed(), &told);
        }
        let Some(span) = self.span.as_mut() else { return };
        if span.is_recording() {
            if let Some(target) = told.target {
                span.update_name(format!("{} {target}", self.name));
            }
            span.set_attributes(told.facts.into_iter().map(|(key, value)| KeyValue::new(key, value)));
            if let Some(fault) = told.fault {
                span.set_attribute(KeyValue::new("error.type", fault.clone()));
                span.set_status(Status::error(fault));
            }
        }
        span.end();
    }
}

/// A span as W3C Trace Context writes it.
fn written(span: &SpanContext) -> Place {
    let sampled = u8::from(span.trace_flags().is_sampled());
    Place {
        parent: format!("00-{}-{}-{sampled:02x}", span.trace_id(), span.span_id()),
        state: span.trace_state().header(),
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
