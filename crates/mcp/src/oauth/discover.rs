//! Finds the authorization server of an upstream: the upstream's metadata (RFC 9728), then the server's (RFC 8414, or OpenID). A
//! document about something else is rejected.

use http::Uri;
use serde_json::Value;

use super::{AuthorizationServer, BearerChallenge, OauthFault, OauthHttpClient};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInSubject {
    /// A person who consents in a browser: the server needs an authorization endpoint and PKCE.
    Person,
    Machine,
}

/// Finds the authorization server of the upstream at `server`.
pub async fn discover(
    web: &OauthHttpClient,
    server: &str,
    challenge: &BearerChallenge,
    comes: SignInSubject,
) -> Result<AuthorizationServer, OauthFault> {
    let here = web.check(server)?;
    match describe(web, server, &here, challenge).await? {
        Some(said) => {
            let issuer = texts(&said, "authorization_servers").into_iter().next();
            let issuer = issuer.ok_or_else(|| OauthFault::NoGuard(server.to_owned()))?;
            let resource = text(&said, "resource").unwrap_or_else(|| server.to_owned());
            let metadata = metadata(web, &issuer).await?;
            guard(web, &metadata, comes, resource, texts(&said, "scopes_supported"))
        }
        // Revision 2025-03-26 had no metadata: the upstream is its own authorization server.
        None => {
            let issuer = origin(&here);
            let metadata = metadata(web, &issuer).await?;
            guard(web, &metadata, comes, server.to_owned(), Vec::new())
        }
    }
}

/// The upstream's metadata, from where the challenge says or from the well-known places.
async fn describe(
    web: &OauthHttpClient,
    server: &str,
    here: &Uri,
    challenge: &BearerChallenge,
) -> Result<Option<Value>, OauthFault> {
    const NAME: &str = "/.well-known/oauth-protected-resource";
    let path = here.path().trim_end_matches('/');
    let mut places = match &challenge.resource_metadata {
        Some(named) => vec![named.clone()],
        None => vec![format!("{}{NAME}{path}", origin(here)), format!("{}{NAME}", origin(here))],
    };
    places.dedup();
    for place in places {
        let Some(said) = web.document(&place).await? else { continue };
        let resource = text(&said, "resource").unwrap_or_default();
        if !covers(&resource, here) {
            return Err(OauthFault::Mismatch {
                what: "the upstream's description",
                expected: server.to_owned(),
                found: resource,
            });
        }
        return Ok(Some(said));
    }
    Ok(None)
}

/// Whether metadata is about this URL: the same origin, and a path at or above it.
fn covers(resource: &str, here: &Uri) -> bool {
    let Ok(said) = resource.parse::<Uri>() else { return false };
    let (above, path) = (said.path().trim_end_matches('/'), here.path().trim_end_matches('/'));
    let inside = path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    origin(&said) == origin(here) && inside
}

/// The server's metadata.
async fn metadata(web: &OauthHttpClient, issuer: &str) -> Result<Value, OauthFault> {
    const NAMES: [&str; 2] = ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"];
    let uri = web.check(issuer)?;
    let (base, path) = (origin(&uri), uri.path().trim_end_matches('/'));
    let mut places: Vec<String> = NAMES.iter().map(|name| format!("{base}{name}{path}")).collect();
    if !path.is_empty() {
        places.push(format!("{base}{path}/.well-known/openid-configuration"));
    }
    for place in places {
        let Some(said) = web.document(&place).await? else { continue };
        let found = text(&said, "issuer").unwrap_or_default();
        if found != issuer {
            return Err(OauthFault::Mismatch {
                what: "the guard's description",
                expected: issuer.to_owned(),
                found,
            });
        }
        return Ok(said);
    }
    Err(OauthFault::NoGuard(issuer.to_owned()))
}

fn guard(
    web: &OauthHttpClient,
    said: &Value,
    comes: SignInSubject,
    resource: String,
    scopes: Vec<String>,
) -> Result<AuthorizationServer, OauthFault> {
    let issuer = text(said, "issuer").unwrap_or_default();
    let endpoint = |name: &str| match text(said, name) {
        Some(url) => web.check(&url).map(|_| Some(url)),
        None => Ok(None),
    };
    let no_guard = || OauthFault::NoGuard(issuer.clone());
    let authorization_endpoint = endpoint("authorization_endpoint")?;
    if comes == SignInSubject::Person {
        if !texts(said, "code_challenge_methods_supported").iter().any(|method| method == "S256") {
            return Err(OauthFault::NoPkce(issuer));
        }
        if authorization_endpoint.is_none() {
            return Err(no_guard());
        }
    }
    let says = |name: &str| said.get(name).and_then(Value::as_bool).unwrap_or(false);
    Ok(AuthorizationServer {
        authorization_endpoint,
        token_endpoint: endpoint("token_endpoint")?.ok_or_else(no_guard)?,
        registration_endpoint: endpoint("registration_endpoint")?,
        auth_methods: texts(said, "token_endpoint_auth_methods_supported"),
        names_itself: says("authorization_response_iss_parameter_supported"),
        offline: texts(said, "scopes_supported").iter().any(|scope| scope == "offline_access"),
        resource,
        scopes,
        issuer,
    })
}

fn origin(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let scheme = uri.scheme_str().unwrap_or_default();
    match uri.port_u16() {
        Some(port) if !matches!((scheme, port), ("https", 443) | ("http", 80)) => {
            format!("{scheme}://{host}:{port}")
        }
        _ => format!("{scheme}://{host}"),
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}

fn texts(value: &Value, name: &str) -> Vec<String> {
    let list = value.get(name).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_covers_its_own_paths_only() {
        let here: Uri = "https://mcp.example.com/team/mcp".parse().unwrap();
        for (resource, fine) in [
            ("https://mcp.example.com/team/mcp", true),
            ("https://MCP.example.com:443/team/mcp/", true),
            ("https://mcp.example.com/team", true),
            ("https://mcp.example.com", true),
            ("https://mcp.example.com/te", false),
            ("https://mcp.example.com/team/mcp/more", false),
            ("https://evil.example.com/team/mcp", false),
            ("http://mcp.example.com/team/mcp", false),
            ("", false),
        ] {
            assert_eq!(covers(resource, &here), fine, "{resource}");
        }
    }
}
