//! One POST to an address somebody configured: no redirect is followed, little of the answer is read, and what went wrong is
//! said in a word. Tries once; whether to try again is for others to say.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};

use crate::fault::{FaultKind, WireFault};
use crate::upstream::address::default_address_rule;
use crate::upstream::transport;

/// How much of an answer is read, so that the connection ends in good order.
const ANSWER: usize = 16 << 10;

/// Posts JSON with headers; gives the status.
pub async fn post_json(
    url: &str,
    headers: &[(&str, String)],
    body: Vec<u8>,
    patience: Duration,
) -> Result<u16, WireFault> {
    let wrong = |reason: &str| WireFault::unsent(FaultKind::Connect(reason.to_owned()));
    let uri: Uri = url.parse().map_err(|_| wrong("it is not a URL"))?;
    let host = uri.host().ok_or_else(|| wrong("it names no host"))?;
    // A literal address never reaches the resolver, so it is checked here.
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>()
        && !default_address_rule(address)
    {
        return Err(WireFault::unsent(FaultKind::AddressDenied(address.to_string())));
    }
    let client = transport::client(&uri, Arc::new(default_address_rule), patience)?;
    let mut request = Request::post(uri).header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("a header has a bad name"))?;
        let value = HeaderValue::from_str(value).map_err(|_| wrong("a header cannot be sent"))?;
        request = request.header(name, value);
    }
    let request =
        request.body(Full::new(Bytes::from(body))).map_err(|_| wrong("the request cannot be made"))?;
    let sent = async {
        let response = client.request(request).await.map_err(|error| transport::connect_fault(&error))?;
        let status = response.status().as_u16();
        // What it says is of no interest; that it said it was.
        let _ = Limited::new(response.into_body(), ANSWER).collect().await;
        Ok(status)
    };
    match tokio::time::timeout(patience, sent).await {
        Ok(done) => done,
        Err(_) => Err(WireFault::unknown(FaultKind::Closed("no answer in time".to_owned()))),
    }
}
