//! How telemetry leaves: our own HTTP client on the gateway's runtime, asked from the SDK's threads. Says once when a collector
//! can't be reached, and once when it can again. Never says what was sent, nor with which headers.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_wire::post::{Address, Posted};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

use crate::environment;

/// How long one export may take, where nothing else is said.
const PATIENCE: Duration = Duration::from_secs(10);

/// A way to one endpoint.
pub(super) struct Client {
    /// What goes this way: traces or metrics.
    what: String,
    runtime: Handle,
    address: Address,
    failing: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Client {
    /// A client for one kind of telemetry, at the endpoint the environment names.
    pub(super) fn here(kind: &str, path: &str) -> Result<Self, String> {
        let endpoint = environment::variable(&format!("OTEL_EXPORTER_OTLP_{kind}_ENDPOINT")).or_else(|| {
            let base = environment::variable("OTEL_EXPORTER_OTLP_ENDPOINT")?;
            Some(format!("{}{path}", base.trim_end_matches('/')))
        });
        let endpoint = endpoint.ok_or_else(|| "no endpoint is named".to_owned())?;
        let scheme = endpoint.split_once("://").map(|(scheme, _)| scheme);
        if !matches!(scheme, Some("http" | "https")) {
            return Err("an endpoint must begin with http:// or https://".to_owned());
        }
        let millis = environment::variable(&format!("OTEL_EXPORTER_OTLP_{kind}_TIMEOUT"))
            .or_else(|| environment::variable("OTEL_EXPORTER_OTLP_TIMEOUT"))
            .and_then(|text| text.parse().ok());
        let patience = millis.map_or(PATIENCE, Duration::from_millis);
        let address = Address::new(&endpoint, patience).map_err(|fault| format!("the endpoint: {fault}"))?;
        let what = kind.to_lowercase();
        Ok(Self { what, runtime: Handle::current(), address, failing: AtomicBool::new(false) })
    }

    fn note(&self, outcome: Result<u16, &str>) {
        let trouble = match outcome {
            Ok(status) if status < 400 => None,
            Ok(status) => Some(format!("it answers {status}")),
            Err(why) => Some(why.to_owned()),
        };
        let was_failing = self.failing.swap(trouble.is_some(), Ordering::Relaxed);
        match (was_failing, trouble) {
            (false, Some(why)) => {
                tracing::warn!("telemetry does not reach its collector ({}): {why}", self.what);
            }
            (true, None) => tracing::info!("telemetry reaches its collector again ({})", self.what),
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
            // Connections belong to the runtime; this is polled on a thread of the SDK's.
            let posted = self.runtime.spawn(async move {
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
            self.note(posted.as_ref().map(|posted| posted.status).map_err(String::as_str));
            answer(posted?)
        })
    }
}

fn answer(posted: Posted) -> Result<Response<Bytes>, HttpError> {
    let mut response = Response::builder().status(posted.status);
    if let Some(when) = posted.retry_after {
        response = response.header("retry-after", when);
    }
    Ok(response.body(Bytes::from(posted.body))?)
}
