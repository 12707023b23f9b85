//! The tracing subscriber of a process: log lines, and spans and metrics over OTLP where the usual `OTEL_…` variables name an endpoint.
//! Nothing that is wrong with telemetry keeps the gateway from serving. Reads no environment variable and opens no file by itself; the
//! OpenTelemetry SDK reads its own variables.

mod log;
#[cfg(feature = "otlp")]
mod otlp;
mod signals;

use std::sync::Arc;

use countersign_gateway::state::GatewayState;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use self::log::LogFilter;
use self::signals::TelemetrySignals;

/// Looks up an environment variable.
pub type Variables = fn(&str) -> Option<String>;

/// Where log lines go, which, and in which form.
pub struct LogSettings {
    pub filter: LogFilter,
    /// One JSON object a line, instead of text for people.
    pub is_json: bool,
    pub writer: BoxMakeWriter,
}

impl LogSettings {
    fn layer<S>(self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(self.writer);
        let targets = self.filter.targets();
        match self.is_json {
            false => lines.with_filter(targets).boxed(),
            true => lines.json().flatten_event(true).with_span_list(false).with_filter(targets).boxed(),
        }
    }
}

/// Starts the log of a process that exports nothing.
pub fn start_log(log: LogSettings) {
    // A second subscriber can't be set: the first one stays.
    let _ = tracing_subscriber::registry().with(log.layer()).try_init();
}

/// The telemetry of one gateway.
pub struct Telemetry {
    #[cfg(feature = "otlp")]
    otlp: Option<otlp::Otlp>,
}

impl Telemetry {
    /// Starts the log and, where the variables ask for it, the export. Exporting begins with [`Telemetry::observe`].
    pub fn start(log: LogSettings, variables: Variables) -> Self {
        let signals = TelemetrySignals::read(&variables);
        let (telemetry, problem) = match signals {
            Ok(signals) if signals.is_anything() => Self::export(log, signals, variables),
            Ok(_) => (Self::log_only(log), None),
            Err(problem) => (Self::log_only(log), Some(problem)),
        };
        if let Some(problem) = problem {
            tracing::warn!("telemetry is off: {problem}");
        }
        telemetry
    }

    fn log_only(log: LogSettings) -> Self {
        start_log(log);
        Self {
            #[cfg(feature = "otlp")]
            otlp: None,
        }
    }

    #[cfg(feature = "otlp")]
    fn export(log: LogSettings, signals: TelemetrySignals, variables: Variables) -> (Self, Option<String>) {
        let otlp = match otlp::Otlp::new(signals, variables) {
            Ok(otlp) => otlp,
            Err(problem) => return (Self::log_only(log), Some(problem)),
        };
        let subscriber = tracing_subscriber::registry().with(otlp.span_layer()).with(otlp.duration_layer());
        // A second subscriber can't be set: the first one stays.
        let _ = subscriber.with(log.layer()).try_init();
        (Self { otlp: Some(otlp) }, None)
    }

    #[cfg(not(feature = "otlp"))]
    fn export(log: LogSettings, _: TelemetrySignals, _: Variables) -> (Self, Option<String>) {
        (Self::log_only(log), Some("this build has no OpenTelemetry (cargo feature `otlp`)".to_owned()))
    }

    /// Exports what a gateway does. Needs a runtime, which carries what is sent.
    pub fn observe(&mut self, gateway: &Arc<GatewayState>) {
        #[cfg(feature = "otlp")]
        if let Some(otlp) = &mut self.otlp {
            otlp.observe(gateway);
        }
        #[cfg(not(feature = "otlp"))]
        let _ = gateway;
    }

    /// Sends what is left. Waits two seconds at most: a collector that does not answer delays no exit.
    pub async fn close(self) {
        #[cfg(feature = "otlp")]
        if let Some(otlp) = self.otlp {
            otlp.close().await;
        }
    }
}
