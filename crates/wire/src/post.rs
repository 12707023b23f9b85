//! POSTs to an address somebody configured: no redirect is followed, little of the answer is read, and what went wrong is
//! said in a word. Each is tried once; whether to try again is for others to say.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};

use crate::fault::{FaultKind, WireFault};
use crate::upstream::address::default_address_rule;
use crate::upstream::transport::{self, Client};

/// How much of an answer is read, so that the connection ends in good order.
const ANSWER: usize = 16 << 10;

/// What came back of a POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// The HTTP status.
    pub status: u16,
    /// When to come again, as it was said.
    pub retry_after: Option<String>,
    /// The answer; empty where it is longer than anybody wants to read.
    pub body: Vec<u8>,
}

/// One address that is posted to, with its connections.
#[derive(Clone)]
pub struct Address {
    uri: Uri,
    client: Client,
    patience: Duration,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A path or query may hold a key.
        f.debug_struct("Address").field("host", &self.uri.host()).finish_non_exhaustive()
    }
}

fn wrong(reason: &str) -> WireFault {
    WireFault::unsent(FaultKind::Connect(reason.to_owned()))
}

impl Address {
    /// Connects to nothing yet. One POST may take as long as `patience`.
    pub fn new(url: &str, patience: Duration) -> Result<Self, WireFault> {
        let uri: Uri = url.parse().map_err(|_| wrong("it is not a URL"))?;
        let host = uri.host().ok_or_else(|| wrong("it names no host"))?;
        // A literal address never reaches the resolver, so it is checked here.
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>()
            && !default_address_rule(address)
        {
            return Err(WireFault::unsent(FaultKind::AddressDenied(address.to_string())));
        }
        let client = transport::client(&uri, Arc::new(default_address_rule), patience)?;
        Ok(Self { uri, client, patience })
    }

    /// Posts a body with headers; the last header of a name counts.
    pub async fn post(&self, headers: &[(&str, String)], body: Vec<u8>) -> Result<Posted, WireFault> {
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
                self.client.request(request).await.map_err(|error| transport::connect_fault(&error))?;
            let status = response.status().as_u16();
            let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let retry_after = retry_after.map(str::to_owned);
            // That it answered is what counts; an answer without an end says nothing.
            let body = Limited::new(response.into_body(), ANSWER).collect().await;
            let body = body.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
            Ok(Posted { status, retry_after, body })
        };
        match tokio::time::timeout(self.patience, sent).await {
            Ok(done) => done,
            Err(_) => Err(WireFault::unknown(FaultKind::Closed("no answer in time".to_owned()))),
        }
    }
}

/// Posts JSON with headers; gives the status.
pub async fn post_json(
    url: &str,
    headers: &[(&str, String)],
    body: Vec<u8>,
    patience: Duration,
) -> Result<u16, WireFault> {
    let json = (CONTENT_TYPE.as_str(), "application/json".to_owned());
    let headers: Vec<(&str, String)> = std::iter::once(json).chain(headers.iter().cloned()).collect();
    Ok(Address::new(url, patience)?.post(&headers, body).await?.status)
}
