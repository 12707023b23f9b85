//! Exchanges codes and refresh tokens for tokens. Accepts bearer tokens only.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde_json::Value;

use super::{AuthorizationServer, ClientAuth, ClientRegistration, OauthFault, OauthHttpClient, encode};

#[derive(Clone)]
pub struct OauthTokens {
    pub access_token: String,
    pub refresh_token: Option<String>,
    pub expires_in: Option<Duration>,
    pub scope: Option<String>,
}

impl std::fmt::Debug for OauthTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OauthTokens").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Renews a token. A server that gives no new refresh token leaves the old one valid.
pub async fn refresh(
    web: &OauthHttpClient,
    server: &AuthorizationServer,
    client: &ClientRegistration,
    refresh_token: &str,
) -> Result<OauthTokens, OauthFault> {
    let pairs = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh_token),
        ("resource", server.resource.as_str()),
    ];
    let granted = ask(web, server, client, &pairs).await?;
    let refresh_token = granted.refresh_token.or_else(|| Some(refresh_token.to_owned()));
    Ok(OauthTokens { refresh_token, ..granted })
}

/// Sends one request to the token endpoint.
pub(super) async fn ask(
    web: &OauthHttpClient,
    server: &AuthorizationServer,
    client: &ClientRegistration,
    pairs: &[(&str, &str)],
) -> Result<OauthTokens, OauthFault> {
    let mut pairs = pairs.to_vec();
    let secret = client.client_secret.as_deref().unwrap_or_default();
    let mut authorization = None;
    match client.auth {
        ClientAuth::None => pairs.push(("client_id", &client.client_id)),
        ClientAuth::ClientSecretPost => {
            pairs.extend([("client_id", client.client_id.as_str()), ("client_secret", secret)]);
        }
        ClientAuth::ClientSecretBasic => {
            let both = format!("{}:{}", encode::percent(&client.client_id), encode::percent(secret));
            let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(both)));
            let mut value = value.map_err(|_| OauthFault::Here("the client id cannot be sent".into()))?;
            value.set_sensitive(true);
            authorization = Some(value);
        }
    }
    let kind = "application/x-www-form-urlencoded";
    let (status, said) = web.post(&server.token_endpoint, kind, authorization, encode::form(&pairs)).await?;
    if status != 200 {
        return Err(refusal(status, &said));
    }
    let text = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let broken =
        |why: &str| OauthFault::Unreachable { url: server.token_endpoint.clone(), why: why.to_owned() };
    let access_token = text("access_token").filter(|token| is_sendable(token));
    let access_token = access_token.ok_or_else(|| broken("it gave no token that can be sent"))?;
    if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return Err(broken("its token is no bearer token"));
    }
    let expires_in =
        said.get("expires_in").and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()));
    Ok(OauthTokens {
        access_token,
        refresh_token: text("refresh_token").filter(|token| !token.is_empty()),
        expires_in: expires_in.map(Duration::from_secs),
        scope: text("scope"),
    })
}

fn is_sendable(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())
}

pub(super) fn refusal(status: u16, said: &Value) -> OauthFault {
    let text = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    OauthFault::Refused {
        error: text("error").unwrap_or_else(|| format!("HTTP status {status}")),
        description: text("error_description").unwrap_or_default(),
    }
}
