//! POSTs to a configured address, without redirects and with a limit on the response. Each is sent once; the caller decides about
//! retries.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};

use crate::client::address_rule::default_address_rule;
use crate::client::http_transport::{self, PooledHttpClient};
use crate::fault::{FaultKind, TransportFault};

/// How much of a response is read, so that the connection can be reused.
const ANSWER: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostResponse {
    pub status: u16,
    /// The `Retry-After` header.
    pub retry_after: Option<String>,
    /// Empty where the response is over the limit.
    pub body: Vec<u8>,
}

#[derive(Clone)]
pub struct PostEndpoint {
    uri: Uri,
    client: PooledHttpClient,
    patience: Duration,
}

impl std::fmt::Debug for PostEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A path or query may contain a key.
        f.debug_struct("PostEndpoint").field("host", &self.uri.host()).finish_non_exhaustive()
    }
}

fn wrong(reason: &str) -> TransportFault {
    TransportFault::unsent(FaultKind::Connect(reason.to_owned()))
}

impl PostEndpoint {
    /// Connects lazily. `patience` is the time limit of one POST.
    pub fn new(url: &str, patience: Duration) -> Result<Self, TransportFault> {
        let uri: Uri = url.parse().map_err(|_| wrong("it is not a URL"))?;
        let host = uri.host().ok_or_else(|| wrong("it names no host"))?;
        // A literal address never reaches the resolver, so it is checked here.
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>()
            && !default_address_rule(address)
        {
            return Err(TransportFault::unsent(FaultKind::AddressDenied(address.to_string())));
        }
        let client = http_transport::client(&uri, Arc::new(default_address_rule), patience)?;
        Ok(Self { uri, client, patience })
    }

    /// Posts a body; the last header of a name counts.
    pub async fn post(
        &self,
        headers: &[(&str, String)],
        body: Vec<u8>,
    ) -> Result<PostResponse, TransportFault> {
        let mut request = Request::post(self.uri.clone())
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| wrong("the request cannot be made"))?;
        for (name, value) in headers {
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("a header has a bad name"))?;
            let value = HeaderValue::from_str(value).map_err(|_| wrong("a header cannot be sent"))?;
            request.headers_mut().insert(name, value);
        }
        let sent = async {
            let response =
                self.client.request(request).await.map_err(|error| http_transport::connect_fault(&error))?;
            let status = response.status().as_u16();
            let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let retry_after = retry_after.map(str::to_owned);
            // The status is what counts: the body may be endless.
            let body = Limited::new(response.into_body(), ANSWER).collect().await;
            let body = body.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
            Ok(PostResponse { status, retry_after, body })
        };
        match tokio::time::timeout(self.patience, sent).await {
            Ok(done) => done,
            Err(_) => Err(TransportFault::unknown(FaultKind::Closed("no answer in time".to_owned()))),
        }
    }
}

/// Posts JSON and returns the status.
pub async fn post_json(
    url: &str,
    headers: &[(&str, String)],
    body: Vec<u8>,
    patience: Duration,
) -> Result<u16, TransportFault> {
    let json = (CONTENT_TYPE.as_str(), "application/json".to_owned());
    let headers: Vec<(&str, String)> = std::iter::once(json).chain(headers.iter().cloned()).collect();
    Ok(PostEndpoint::new(url, patience)?.post(&headers, body).await?.status)
}
