//! The HTTP client of an upstream: checked addresses only, TLS with the system's roots, limited bodies, no redirects. It also tells
//! whether a failed request may have been sent.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::AddressRule;
use super::address_rule::{CheckedResolver, DeniedAddress};
use crate::fault::{FaultKind, TransportFault};

pub(crate) type PooledHttpClient =
    legacy::Client<HttpsConnector<HttpConnector<CheckedResolver>>, Full<Bytes>>;

pub(crate) fn client(
    uri: &Uri,
    rule: AddressRule,
    connect_timeout: Duration,
) -> Result<PooledHttpClient, TransportFault> {
    let mut connector = HttpConnector::new_with_resolver(CheckedResolver { rule });
    connector.set_nodelay(true);
    // The connector below TLS sees `https` URLs, too.
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(connect_timeout));
    let config = if uri.scheme_str() == Some("https") { tls()? } else { no_tls()? };
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        // One request per connection at a time: when a connection breaks, it is certain which request was affected.
        .enable_http1()
        .wrap_connector(connector);
    Ok(legacy::Client::builder(TokioExecutor::new())
        // Kept short: a request on a connection that the server has just closed has an unknown outcome.
        .pool_idle_timeout(Duration::from_secs(30))
        .pool_timer(TokioTimer::new())
        .build(connector))
}

fn tls() -> Result<rustls::ClientConfig, TransportFault> {
    static CONFIG: OnceLock<Result<rustls::ClientConfig, String>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        Ok(builder.with_native_roots().map_err(|error| error.to_string())?.with_no_client_auth())
    });
    config.clone().map_err(|reason| TransportFault::unsent(FaultKind::Connect(reason)))
}

/// For plain `http`, which needs no root certificates.
fn no_tls() -> Result<rustls::ClientConfig, TransportFault> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TransportFault::unsent(FaultKind::Connect(error.to_string())))?;
    Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MediaType {
    Json,
    Events,
    Other,
}

pub(crate) fn media_type(response: &Response<Incoming>) -> MediaType {
    let value =
        response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let value = value.split(';').next().unwrap_or_default().trim();
    if value.eq_ignore_ascii_case("application/json") {
        MediaType::Json
    } else if value.eq_ignore_ascii_case("text/event-stream") {
        MediaType::Events
    } else {
        MediaType::Other
    }
}

pub(crate) async fn read_limited(
    response: Response<Incoming>,
    limit: usize,
) -> Result<Bytes, TransportFault> {
    match Limited::new(response.into_body(), limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(TransportFault::unknown(FaultKind::TooLarge(limit)))
        }
        Err(error) => Err(TransportFault::unknown(FaultKind::Closed(error.to_string()))),
    }
}

pub(crate) fn unknown(fault: TransportFault) -> TransportFault {
    TransportFault::unknown(fault.kind)
}

/// Before the connection was established, nothing was sent.
pub(crate) fn connect_fault(error: &legacy::Error) -> TransportFault {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut innermost = error.to_string();
    while let Some(current) = cause {
        let inner = current.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        // A denied address comes wrapped in connection errors, and is a matter of configuration, not of the network.
        if let Some(denied) = inner.and_then(|inner| inner.downcast_ref::<DeniedAddress>()) {
            return TransportFault::unsent(FaultKind::AddressDenied(denied.0.to_string()));
        }
        innermost = current.to_string();
        cause = current.source();
    }
    if error.is_connect() {
        TransportFault::unsent(FaultKind::Connect(innermost))
    } else {
        TransportFault::unknown(FaultKind::Closed(innermost))
    }
}
