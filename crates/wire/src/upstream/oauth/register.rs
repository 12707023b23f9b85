//! Introducing ourselves to a guard that takes strangers (RFC 7591). One registration, for one guard.

use serde_json::{Value, json};

use super::{ClientAuth, Guard, OauthFault, Registered, Web, secret_way, tokens};

/// Registers us with a guard; answers come back to `redirect`.
pub async fn register(
    web: &Web,
    guard: &Guard,
    redirect: &str,
    scope: Option<&str>,
) -> Result<Registered, OauthFault> {
    let Some(endpoint) = &guard.registration_endpoint else {
        return Err(OauthFault::NoRegistration(guard.issuer.clone()));
    };
    let takes = |name: &str| guard.auth_methods.iter().any(|one| one == name);
    let wanted =
        if guard.auth_methods.is_empty() || takes("none") { ClientAuth::None } else { secret_way(guard) };
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
        (Some(_), None) => secret_way(guard),
    };
    Ok(Registered { client_id, client_secret, auth })
}
