//! OpenTelemetry, where the usual `OTEL_…` variables ask for it: spans and metrics of what the gateway does. Off unless an
//! endpoint is named; whatever is wrong with it is said once, and keeps nothing from being served.

#[cfg(feature = "otlp")]
mod otlp;

use std::sync::Arc;

use countersign_gateway::house::House;

use crate::environment;

/// What goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    traces: Signal,
    metrics: Signal,
}

/// Whether one kind of telemetry goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    On,
    Off,
}

impl Wanted {
    /// What the environment asks for; a line for the reader where it asks for what we do not have.
    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let disabled = variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if disabled {
            return Ok(Self { traces: Signal::Off, metrics: Signal::Off });
        }
        Ok(Self { traces: signal("TRACES", variable)?, metrics: signal("METRICS", variable)? })
    }

    fn is_anything(self) -> bool {
        self.traces == Signal::On || self.metrics == Signal::On
    }
}

/// One kind: on where an endpoint is named, over HTTP and in protobuf.
fn signal(kind: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Signal, String> {
    // The kind's own variable goes before the one for all.
    let setting = |name: &str| {
        let (own, all) = (format!("OTEL_EXPORTER_OTLP_{kind}_{name}"), format!("OTEL_EXPORTER_OTLP_{name}"));
        variable(&own).map(|text| (own, text)).or_else(|| variable(&all).map(|text| (all, text)))
    };
    if setting("ENDPOINT").is_none() {
        return Ok(Signal::Off);
    }
    let exporter = format!("OTEL_{kind}_EXPORTER");
    match variable(&exporter).as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(Signal::Off),
        Some(other) => return Err(format!("{exporter}={other}: only otlp and none are known here")),
    }
    match setting("PROTOCOL") {
        Some((name, text)) if text != "http/protobuf" => {
            Err(format!("{name}={text}: only http/protobuf is spoken here, usually on port 4318"))
        }
        _ => match setting("COMPRESSION") {
            Some((name, text)) if text != "none" => Err(format!("{name}={text}: only none is known here")),
            _ => Ok(Signal::On),
        },
    }
}

/// The telemetry of one process.
pub(crate) struct Telemetry {
    #[cfg(feature = "otlp")]
    otlp: Option<otlp::Otlp>,
}

impl Telemetry {
    /// Watches a house if that is asked for. Needs a runtime, which carries what is sent.
    pub(crate) fn watch(house: &Arc<House>) -> Self {
        let wanted = Wanted::read(&environment::variable).unwrap_or_else(|why| {
            tracing::warn!("telemetry is off: {why}");
            Wanted { traces: Signal::Off, metrics: Signal::Off }
        });
        Self::of(wanted, house)
    }

    #[cfg(feature = "otlp")]
    fn of(wanted: Wanted, house: &Arc<House>) -> Self {
        if !wanted.is_anything() {
            return Self { otlp: None };
        }
        let otlp = otlp::Otlp::start(wanted, house);
        let otlp = otlp.map_err(|why| tracing::warn!("telemetry is off: {why}"));
        Self { otlp: otlp.ok() }
    }

    #[cfg(not(feature = "otlp"))]
    fn of(wanted: Wanted, _house: &Arc<House>) -> Self {
        if wanted.is_anything() {
            tracing::warn!("telemetry is off: this build has no OpenTelemetry (cargo feature `otlp`)");
        }
        Self {}
    }

    /// Sends what is left, for a moment: a collector that does not answer keeps nobody from leaving.
    pub(crate) async fn close(self) {
        #[cfg(feature = "otlp")]
        if let Some(otlp) = self.otlp {
            otlp.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], expect: Result<(Signal, Signal), &str>) {
        let look = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let got = Wanted::read(&look).map(|wanted| (wanted.traces, wanted.metrics));
        assert_eq!(got, expect.map_err(str::to_owned), "{variables:?}");
    }

    #[test]
    fn telemetry_is_off_unless_an_endpoint_is_named() {
        use Signal::{Off, On};
        const END: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        check(&[], Ok((Off, Off)));
        check(&[("OTEL_SERVICE_NAME", "x"), ("OTEL_TRACES_EXPORTER", "otlp")], Ok((Off, Off)));
        check(&[END], Ok((On, On)));
        check(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a/t")], Ok((On, Off)));
        check(&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://a/m")], Ok((Off, On)));
        check(&[END, ("OTEL_SDK_DISABLED", "TRUE")], Ok((Off, Off)));
        check(&[END, ("OTEL_TRACES_EXPORTER", "none")], Ok((Off, On)));
        check(&[END, ("OTEL_METRICS_EXPORTER", "none")], Ok((On, Off)));
        check(&[END, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")], Ok((On, On)));
    }

    #[test]
    fn what_is_not_spoken_here_is_named() {
        const END: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317");
        check(
            &[END, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            Err("OTEL_EXPORTER_OTLP_PROTOCOL=grpc: only http/protobuf is spoken here, usually on port 4318"),
        );
        check(
            &[END, ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip")],
            Err("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION=gzip: only none is known here"),
        );
        check(
            &[END, ("OTEL_TRACES_EXPORTER", "zipkin")],
            Err("OTEL_TRACES_EXPORTER=zipkin: only otlp and none are known here"),
        );
    }
}
