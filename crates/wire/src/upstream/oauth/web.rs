//! The few HTTP requests of a sign-in: to https, or to this machine while the upstream is on it, to checked addresses, with
//! bounds, without redirects.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use serde_json::Value;

use super::OauthFault;
use crate::upstream::address::{check_literal, default_address_rule};
use crate::upstream::transport::{self, connect_fault, read_limited};
use crate::upstream::{AddressRule, HttpSpec};

/// How long one answer may take, and how long it may be.
const PATIENCE: Duration = Duration::from_secs(15);
const LONGEST: usize = 256 << 10;

/// What may be asked while signing in to one upstream.
#[derive(Clone)]
pub struct Web {
    rule: AddressRule,
    /// Whether plain http on this machine will do.
    near: bool,
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Web").field("near", &self.near).finish_non_exhaustive()
    }
}

impl Web {
    /// For signing in to this upstream.
    pub fn of(spec: &HttpSpec) -> Self {
        let rule = spec.addresses.clone().unwrap_or_else(|| Arc::new(default_address_rule));
        let near = spec.url.parse::<Uri>().is_ok_and(|uri| is_near(&uri));
        Self { rule, near }
    }

    /// An address that secrets may travel to.
    pub(super) fn check(&self, url: &str) -> Result<Uri, OauthFault> {
        let insecure = || OauthFault::Insecure(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| insecure())?;
        let host = uri.host().ok_or_else(insecure)?;
        let named = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        let secure = uri.scheme_str() == Some("https") || (self.near && is_near(&uri));
        if named || !secure {
            return Err(insecure());
        }
        check_literal(host, &self.rule).map_err(|fault| unreachable(url, &fault))?;
        Ok(uri)
    }

    /// A document; none where the server has no such one.
    pub(super) async fn document(&self, url: &str) -> Result<Option<Value>, OauthFault> {
        let (status, value) = self.ask(Method::GET, url, None, None, Bytes::new()).await?;
        Ok(value.filter(|value| status == 200 && value.is_object()))
    }

    /// Posts something and gives status and JSON.
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
        let client =
            transport::client(&uri, self.rule.clone(), PATIENCE).map_err(|fault| unreachable(url, &fault))?;
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

fn unreachable(url: &str, fault: &crate::fault::WireFault) -> OauthFault {
    OauthFault::Unreachable { url: url.to_owned(), why: fault.to_string() }
}

fn is_near(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let near = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    uri.scheme_str() == Some("http") && near
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_to_https_or_stay_here() {
        let check = |upstream: &str, url: &str, fine: bool| {
            let web = Web::of(&HttpSpec::new(upstream));
            assert_eq!(web.check(url).is_ok(), fine, "{upstream} {url}");
        };
        for (url, far, near) in [
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
            check("http://127.0.0.1:1/mcp", url, near);
        }
    }
}
