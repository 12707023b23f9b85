//! The HTTP client of exports: ours, on the gateway's runtime, called from the SDK's threads. Logs once when a collector can't be reached,
//! and once when it can again. Never logs what was sent, nor its headers.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_mcp::post_endpoint::{PostEndpoint, PostResponse};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

use super::RuntimeCell;
use crate::Variables;

/// How long one export may take, unless a variable says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Client {
    /// `traces` or `metrics`.
    signal: String,
    runtime: RuntimeCell,
    address: PostEndpoint,
    failing: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Client {
    /// A client for one signal, at the endpoint the environment names.
    pub(super) fn new(
        kind: &str,
        path: &str,
        runtime: &RuntimeCell,
        variables: Variables,
    ) -> Result<Self, String> {
        let endpoint = variables(&format!("OTEL_EXPORTER_OTLP_{kind}_ENDPOINT")).or_else(|| {
            let base = variables("OTEL_EXPORTER_OTLP_ENDPOINT")?;
            Some(format!("{}{path}", base.trim_end_matches('/')))
        });
        let endpoint = endpoint.ok_or_else(|| "no endpoint is named".to_owned())?;
        let scheme = endpoint.split_once("://").map(|(scheme, _)| scheme);
        if !matches!(scheme, Some("http" | "https")) {
            return Err("an endpoint must begin with http:// or https://".to_owned());
        }
        let millis = variables(&format!("OTEL_EXPORTER_OTLP_{kind}_TIMEOUT"))
            .or_else(|| variables("OTEL_EXPORTER_OTLP_TIMEOUT"))
            .and_then(|text| text.parse().ok());
        let timeout = millis.map_or(TIMEOUT, Duration::from_millis);
        let address =
            PostEndpoint::new(&endpoint, timeout).map_err(|fault| format!("the endpoint: {fault}"))?;
        let (signal, runtime) = (kind.to_lowercase(), RuntimeCell::clone(runtime));
        Ok(Self { signal, runtime, address, failing: AtomicBool::new(false) })
    }

    fn log_change(&self, outcome: Result<u16, &str>) {
        let trouble = match outcome {
            Ok(status) if status < 400 => None,
            Ok(status) => Some(format!("it answers {status}")),
            Err(why) => Some(why.to_owned()),
        };
        let was_failing = self.failing.swap(trouble.is_some(), Ordering::Relaxed);
        match (was_failing, trouble) {
            (false, Some(why)) => {
                tracing::warn!("telemetry does not reach its collector ({}): {why}", self.signal);
            }
            (true, None) => tracing::info!("telemetry reaches its collector again ({})", self.signal),
            (true, Some(_)) | (false, None) => {}
        }
    }
}

impl HttpClient for Client {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let address = self.address.clone();
            let runtime = self.runtime.get().ok_or("the gateway is not serving yet")?;
            // Connections belong to the runtime; this is polled on a thread of the SDK's.
            let posted = runtime.spawn(async move {
                let headers: Vec<(&str, String)> = parts
                    .headers
                    .iter()
                    .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?.to_owned())))
                    .collect();
                address.post(&headers, body.to_vec()).await
            });
            let posted = match posted.await {
                Ok(posted) => posted.map_err(|fault| fault.to_string()),
                Err(_) => return Err("the gateway is leaving".into()),
            };
            self.log_change(posted.as_ref().map(|posted| posted.status).map_err(String::as_str));
            answer(posted?)
        })
    }
}

fn answer(posted: PostResponse) -> Result<Response<Bytes>, HttpError> {
    let mut response = Response::builder().status(posted.status);
    if let Some(when) = posted.retry_after {
        response = response.header("retry-after", when);
    }
    Ok(response.body(Bytes::from(posted.body))?)
}
