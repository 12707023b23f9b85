//! The HTTP requests of a sign-in: to https, or to loopback while the upstream is there, to checked addresses, with limits, without
//! redirects.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use serde_json::Value;

use super::OauthFault;
use crate::client::address_rule::{check_literal, default_address_rule};
use crate::client::http_transport::{self, connect_fault, read_limited};
use crate::client::{AddressRule, HttpSpec};

/// The limits of one response.
const PATIENCE: Duration = Duration::from_secs(15);
const LONGEST: usize = 256 << 10;

#[derive(Clone)]
pub struct OauthHttpClient {
    rule: AddressRule,
    /// Whether plain http on loopback is allowed.
    allows_loopback: bool,
}

impl std::fmt::Debug for OauthHttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OauthHttpClient").field("near", &self.allows_loopback).finish_non_exhaustive()
    }
}

impl OauthHttpClient {
    /// For signing in to this upstream.
    pub fn of(spec: &HttpSpec) -> Self {
        let rule = spec.addresses.clone().unwrap_or_else(|| Arc::new(default_address_rule));
        let allows_loopback = spec.url.parse::<Uri>().is_ok_and(|uri| is_loopback_http(&uri));
        Self { rule, allows_loopback }
    }

    /// Checks that secrets may be sent to an address.
    pub(super) fn check(&self, url: &str) -> Result<Uri, OauthFault> {
        let insecure = || OauthFault::Insecure(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| insecure())?;
        let host = uri.host().ok_or_else(insecure)?;
        let named = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        let secure = uri.scheme_str() == Some("https") || (self.allows_loopback && is_loopback_http(&uri));
        if named || !secure {
            return Err(insecure());
        }
        check_literal(host, &self.rule).map_err(|fault| unreachable(url, &fault))?;
        Ok(uri)
    }

    /// A JSON document; none where the server has none.
    pub(super) async fn document(&self, url: &str) -> Result<Option<Value>, OauthFault> {
        let (status, value) = self.ask(Method::GET, url, None, None, Bytes::new()).await?;
        Ok(value.filter(|value| status == 200 && value.is_object()))
    }

    pub(super) async fn post(
        &self,
        url: &str,
        kind: &'static str,
        authorization: Option<HeaderValue>,
        body: String,
    ) -> Result<(u16, Value), OauthFault> {
        let (status, value) = self.ask(Method::POST, url, Some(kind), authorization, body.into()).await?;
        Ok((status, value.unwrap_or_default()))
    }

    async fn ask(
        &self,
        method: Method,
        url: &str,
        kind: Option<&'static str>,
        authorization: Option<HeaderValue>,
        body: Bytes,
    ) -> Result<(u16, Option<Value>), OauthFault> {
        let uri = self.check(url)?;
        let client = http_transport::client(&uri, self.rule.clone(), PATIENCE)
            .map_err(|fault| unreachable(url, &fault))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization);
        }
        let asked = async {
            let response = client.request(request).await.map_err(|error| connect_fault(&error))?;
            let status = response.status().as_u16();
            Ok((status, read_limited(response, LONGEST).await?))
        };
        let answered = tokio::time::timeout(PATIENCE, asked).await;
        let late = OauthFault::Unreachable { url: url.to_owned(), why: format!("no answer in {PATIENCE:?}") };
        let (status, body) = answered.map_err(|_| late)?.map_err(|fault| unreachable(url, &fault))?;
        Ok((status, serde_json::from_slice(&body).ok()))
    }
}

fn unreachable(url: &str, fault: &crate::fault::TransportFault) -> OauthFault {
    OauthFault::Unreachable { url: url.to_owned(), why: fault.to_string() }
}

fn is_loopback_http(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let allows_loopback =
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    uri.scheme_str() == Some("http") && allows_loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sign_in_follows_no_redirect() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listen = || async { tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap() };
        let (sends, elsewhere) = (listen().await, listen().await);
        let url = format!("http://{}/metadata", sends.local_addr().unwrap());
        let location = format!("http://{}/", elsewhere.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = sends.accept().await.unwrap();
            let mut asked = [0; 1024];
            let _ = stream.read(&mut asked).await.unwrap();
            let answer = format!("HTTP/1.1 302 Go\r\nlocation: {location}\r\ncontent-length: 2\r\n\r\n{{}}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let web = OauthHttpClient::of(&HttpSpec::new("http://127.0.0.1:1/mcp"));
        assert_eq!(web.document(&url).await.unwrap(), None);
        let followed = tokio::time::timeout(std::time::Duration::from_millis(200), elsewhere.accept()).await;
        assert!(followed.is_err(), "somebody came");
    }

    #[test]
    fn secrets_go_to_https_or_stay_here() {
        let check = |upstream: &str, url: &str, fine: bool| {
            let web = OauthHttpClient::of(&HttpSpec::new(upstream));
            assert_eq!(web.check(url).is_ok(), fine, "{upstream} {url}");
        };
        for (url, far, allows_loopback) in [
            ("https://auth.example.com/x", true, true),
            ("http://auth.example.com/x", false, false),
            ("http://127.0.0.1:9/x", false, true),
            ("http://[::1]:9/x", false, true),
            ("http://localhost/x", false, true),
            ("http://localhost.evil.example/x", false, false),
            ("https://169.254.169.254/latest", false, false),
            ("https://user@auth.example.com/x", false, false),
            ("file:///etc/passwd", false, false),
            ("javascript:alert(1)", false, false),
            ("/relative", false, false),
        ] {
            check("https://mcp.example.com/mcp", url, far);
            check("http://127.0.0.1:1/mcp", url, allows_loopback);
        }
    }
}
