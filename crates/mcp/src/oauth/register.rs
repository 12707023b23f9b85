//! Registers us with an authorization server (RFC 7591).

use serde_json::{Value, json};

use super::{
    AuthorizationServer, ClientAuth, ClientRegistration, OauthFault, OauthHttpClient, secret_auth_method,
    tokens,
};

/// Responses are sent to `redirect`.
pub async fn register(
    web: &OauthHttpClient,
    server: &AuthorizationServer,
    redirect: &str,
    scope: Option<&str>,
) -> Result<ClientRegistration, OauthFault> {
    let Some(endpoint) = &server.registration_endpoint else {
        return Err(OauthFault::NoRegistration(server.issuer.clone()));
    };
    let takes = |name: &str| server.auth_methods.iter().any(|one| one == name);
    let wanted = if server.auth_methods.is_empty() || takes("none") {
        ClientAuth::None
    } else {
        secret_auth_method(server)
    };
    let mut introduction = json!({
        "client_name": "Countersign",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
    });
    if let (Some(scope), Some(members)) = (scope, introduction.as_object_mut()) {
        members.insert("scope".into(), scope.into());
    }
    let (status, said) = web.post(endpoint, "application/json", None, introduction.to_string()).await?;
    if !matches!(status, 200 | 201) {
        return Err(tokens::refusal(status, &said));
    }
    let text = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let Some(client_id) = text("client_id") else {
        let why = "it gave no client id".to_owned();
        return Err(OauthFault::Unreachable { url: endpoint.clone(), why });
    };
    let client_secret = text("client_secret").filter(|secret| !secret.is_empty());
    let given = said.get("token_endpoint_auth_method").cloned();
    let given = given.and_then(|value| serde_json::from_value::<ClientAuth>(value).ok());
    let auth = match (&client_secret, given) {
        (None, _) => ClientAuth::None,
        (Some(_), Some(given)) => given,
        (Some(_), None) => secret_auth_method(server),
    };
    Ok(ClientRegistration { client_id, client_secret, auth })
}
