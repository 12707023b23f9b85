//! Signs in to an HTTP upstream (OAuth 2.1): discovery, registration, a person's consent, tokens and their renewal. It stores nothing
//! and opens no browser. Every address in it comes from others, so each is checked, and no redirect is followed.

mod attempt;
mod challenge;
mod client_credentials;
mod discover;
mod encode;
mod http_client;
mod loopback;
mod register;
mod tokens;

use serde::{Deserialize, Serialize};

pub use self::attempt::SignInAttempt;
pub use self::challenge::BearerChallenge;
pub use self::client_credentials::MachineClient;
pub use self::discover::{SignInSubject, discover};
pub use self::http_client::OauthHttpClient;
pub use self::loopback::LoopbackListener;
pub use self::register::register;
pub use self::tokens::{OauthTokens, refresh};

#[derive(Debug, Clone, thiserror::Error)]
pub enum OauthFault {
    #[error("`{url}` could not be asked: {why}")]
    Unreachable { url: String, why: String },
    /// Secrets must not be sent to this address.
    #[error("`{0}` is neither https nor on this machine")]
    Insecure(String),
    /// The upstream names no authorization server.
    #[error("`{0}` does not say who signs people in")]
    NoGuard(String),
    /// A metadata document is about something else.
    #[error("{what} says `{found}`, not `{expected}`")]
    Mismatch { what: &'static str, expected: String, found: String },
    #[error("`{0}` does not offer PKCE with S256")]
    NoPkce(String),
    /// The server registers no clients by itself, and no client id is configured.
    #[error("`{0}` registers no clients by itself: a client id is needed")]
    NoRegistration(String),
    #[error("refused: {error}{}{description}", if description.is_empty() { "" } else { ": " })]
    Refused { error: String, description: String },
    #[error("the answer does not belong to this sign-in: {0}")]
    Forged(&'static str),
    #[error("nobody agreed in time")]
    Late,
    /// A local error.
    #[error("{0}")]
    Here(String),
}

/// The authorization server of an upstream, from its metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationServer {
    /// Everything stored belongs to exactly this issuer.
    pub issuer: String,
    /// Absent where only machines sign in.
    pub authorization_endpoint: Option<String>,
    pub token_endpoint: String,
    pub registration_endpoint: Option<String>,
    /// The authentication methods of its token endpoint.
    pub auth_methods: Vec<String>,
    /// Whether its responses name the issuer (RFC 9207).
    pub names_itself: bool,
    /// Whether it grants `offline_access`.
    pub offline: bool,
    /// The audience of the tokens (RFC 8707).
    pub resource: String,
    /// The scopes the upstream lists.
    pub scopes: Vec<String>,
}

/// How we authenticate at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    None,
    ClientSecretBasic,
    ClientSecretPost,
}

/// Our registration at an authorization server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRegistration {
    pub client_id: String,
    pub client_secret: Option<String>,
    pub auth: ClientAuth,
}

impl ClientRegistration {
    /// A client that was registered by hand.
    pub fn known(client_id: String, client_secret: Option<String>, server: &AuthorizationServer) -> Self {
        let auth = match &client_secret {
            None => ClientAuth::None,
            Some(_) => secret_auth_method(server),
        };
        Self { client_id, client_secret, auth }
    }
}

impl std::fmt::Debug for ClientRegistration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientRegistration").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

/// Without a list of methods the header is used: every server accepts it.
fn secret_auth_method(server: &AuthorizationServer) -> ClientAuth {
    let takes = |name: &str| server.auth_methods.iter().any(|one| one == name);
    if takes("client_secret_post") && !takes("client_secret_basic") {
        ClientAuth::ClientSecretPost
    } else {
        ClientAuth::ClientSecretBasic
    }
}

/// The scopes to request: those of the challenge, else those the upstream lists; granted ones are kept, and `offline_access` is added
/// where the server supports it. `None` requests no scope in particular.
pub fn scopes(
    server: &AuthorizationServer,
    challenge: &BearerChallenge,
    before: Option<&str>,
) -> Option<String> {
    let named =
        challenge.scope.clone().or_else(|| Some(server.scopes.join(" ")).filter(|all| !all.is_empty()));
    let mut all: Vec<&str> = Vec::new();
    let both = before.into_iter().chain(named.as_deref());
    for scope in both.flat_map(str::split_ascii_whitespace) {
        if !all.contains(&scope) {
            all.push(scope);
        }
    }
    if server.offline && !all.contains(&"offline_access") {
        all.push("offline_access");
    }
    (!all.is_empty()).then(|| all.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> AuthorizationServer {
        AuthorizationServer {
            issuer: "https://a".into(),
            authorization_endpoint: Some("https://a/authorize".into()),
            token_endpoint: "https://a/token".into(),
            registration_endpoint: None,
            auth_methods: Vec::new(),
            names_itself: false,
            offline: false,
            resource: "https://r/mcp".into(),
            scopes: vec!["read".into(), "write".into()],
        }
    }

    #[test]
    fn scopes_come_from_the_refusal_then_the_list_and_are_kept() {
        let said = |scope: Option<&str>| BearerChallenge {
            scope: scope.map(str::to_owned),
            ..BearerChallenge::default()
        };
        let check = |server: &AuthorizationServer, scope, before, expect: Option<&str>| {
            assert_eq!(scopes(server, &said(scope), before).as_deref(), expect);
        };
        check(&server(), None, None, Some("read write"));
        check(&server(), Some("admin"), None, Some("admin"));
        check(&server(), Some("admin read"), Some("read"), Some("read admin"));
        check(&AuthorizationServer { scopes: Vec::new(), ..server() }, None, None, None);
        check(
            &AuthorizationServer { scopes: Vec::new(), offline: true, ..server() },
            None,
            None,
            Some("offline_access"),
        );
    }

    #[test]
    fn a_secret_is_shown_the_way_the_guard_takes_it() {
        let way = |methods: &[&str], secret: Option<&str>| {
            let methods = methods.iter().map(|one| (*one).to_owned()).collect();
            ClientRegistration::known(
                "id".into(),
                secret.map(str::to_owned),
                &AuthorizationServer { auth_methods: methods, ..server() },
            )
            .auth
        };
        assert_eq!(way(&[], None), ClientAuth::None);
        assert_eq!(way(&[], Some("s")), ClientAuth::ClientSecretBasic);
        assert_eq!(way(&["client_secret_post"], Some("s")), ClientAuth::ClientSecretPost);
        assert_eq!(
            way(&["client_secret_post", "client_secret_basic"], Some("s")),
            ClientAuth::ClientSecretBasic
        );
    }
}
