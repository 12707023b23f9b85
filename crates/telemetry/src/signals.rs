//! Which signals the `OTEL_…` variables ask for.

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TelemetrySignals {
    pub(crate) traces: SignalSwitch,
    pub(crate) metrics: SignalSwitch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalSwitch {
    On,
    Off,
}

impl TelemetrySignals {
    pub(crate) const OFF: Self = Self { traces: SignalSwitch::Off, metrics: SignalSwitch::Off };

    /// What the environment asks for; an error where it asks for what is not supported.
    pub(crate) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let disabled = variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if disabled {
            return Ok(Self::OFF);
        }
        Ok(Self { traces: signal("TRACES", variable)?, metrics: signal("METRICS", variable)? })
    }

    pub(crate) fn is_anything(self) -> bool {
        self.traces == SignalSwitch::On || self.metrics == SignalSwitch::On
    }
}

/// A signal is on where an endpoint is named, over HTTP and in protobuf.
fn signal(kind: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<SignalSwitch, String> {
    // The signal's own variable wins over the one for all.
    let setting = |name: &str| {
        let (own, all) = (format!("OTEL_EXPORTER_OTLP_{kind}_{name}"), format!("OTEL_EXPORTER_OTLP_{name}"));
        variable(&own).map(|text| (own, text)).or_else(|| variable(&all).map(|text| (all, text)))
    };
    if setting("ENDPOINT").is_none() {
        return Ok(SignalSwitch::Off);
    }
    let exporter = format!("OTEL_{kind}_EXPORTER");
    match variable(&exporter).as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(SignalSwitch::Off),
        Some(other) => return Err(format!("{exporter}={other}: only otlp and none are known here")),
    }
    match setting("PROTOCOL") {
        Some((name, text)) if text != "http/protobuf" => {
            Err(format!("{name}={text}: only http/protobuf is spoken here, usually on port 4318"))
        }
        _ => match setting("COMPRESSION") {
            Some((name, text)) if text != "none" => Err(format!("{name}={text}: only none is known here")),
            _ => Ok(SignalSwitch::On),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], expect: Result<(SignalSwitch, SignalSwitch), &str>) {
        let look = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let got = TelemetrySignals::read(&look).map(|wanted| (wanted.traces, wanted.metrics));
        assert_eq!(got, expect.map_err(str::to_owned), "{variables:?}");
    }

    #[test]
    fn telemetry_is_off_unless_an_endpoint_is_named() {
        use SignalSwitch::{Off, On};
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
