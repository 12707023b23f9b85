//! Signing in to an HTTP upstream (OAuth 2.1): who guards it, who we are to them, a person's consent, tokens and their
//! renewal. It keeps nothing and opens no browser: what is learned is handed back. Every address in it comes from others,
//! so each is checked, and none is followed elsewhere.

mod attempt;
mod challenge;
mod discover;
mod encode;
mod loopback;
mod machine;
mod register;
mod tokens;
mod web;

use serde::{Deserialize, Serialize};

pub use self::attempt::Attempt;
pub use self::challenge::Challenge;
pub use self::discover::{Comes, discover};
pub use self::loopback::Loopback;
pub use self::machine::Machine;
pub use self::register::register;
pub use self::tokens::{Tokens, refresh};
pub use self::web::Web;

/// Why nobody was signed in.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OauthFault {
    /// A server could not be reached, or answered with something else.
    #[error("`{url}` could not be asked: {why}")]
    Unreachable {
        /// Which.
        url: String,
        /// Why.
        why: String,
    },
    /// An address secrets must not travel to.
    #[error("`{0}` is neither https nor on this machine")]
    Insecure(String),
    /// Nobody says who guards the upstream.
    #[error("`{0}` does not say who signs people in")]
    NoGuard(String),
    /// A document speaks of something else than it was asked for.
    #[error("{what} says `{found}`, not `{expected}`")]
    Mismatch {
        /// What says it.
        what: &'static str,
        /// What it should say.
        expected: String,
        /// What it says.
        found: String,
    },
    /// The guard offers no proof of who asked (PKCE, S256).
    #[error("`{0}` does not offer PKCE with S256")]
    NoPkce(String),
    /// The guard takes no strangers, and nobody told us a client id.
    #[error("`{0}` registers no clients by itself: a client id is needed")]
    NoRegistration(String),
    /// The guard said no.
    #[error("refused: {error}{}{description}", if description.is_empty() { "" } else { ": " })]
    Refused {
        /// Its code.
        error: String,
        /// Its words.
        description: String,
    },
    /// An answer that does not belong to this attempt.
    #[error("the answer does not belong to this sign-in: {0}")]
    Forged(&'static str),
    /// Nobody answered in time.
    #[error("nobody agreed in time")]
    Late,
    /// This machine could not do its part.
    #[error("{0}")]
    Here(String),
}

/// Who signs people in for an upstream, as its own metadata say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Its name; everything kept belongs to exactly this one.
    pub issuer: String,
    /// Where a person agrees; a guard of machines has no such place.
    pub authorization_endpoint: Option<String>,
    /// Where codes become tokens.
    pub token_endpoint: String,
    /// Where strangers introduce themselves.
    pub registration_endpoint: Option<String>,
    /// How clients may prove who they are.
    pub auth_methods: Vec<String>,
    /// Whether its answers name it (RFC 9207).
    pub names_itself: bool,
    /// Whether it gives out tokens for later when asked to (`offline_access`).
    pub offline: bool,
    /// What the tokens are for (RFC 8707).
    pub resource: String,
    /// The scopes the upstream lists.
    pub scopes: Vec<String>,
}

/// How we prove who we are at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// By name only.
    None,
    /// With a secret in the header.
    ClientSecretBasic,
    /// With a secret in the body.
    ClientSecretPost,
}

/// Who we are to a guard.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Our name there.
    pub client_id: String,
    /// Our secret there.
    pub client_secret: Option<String>,
    /// How it is shown.
    pub auth: ClientAuth,
}

impl Registered {
    /// A client that was registered by hand.
    pub fn known(client_id: String, client_secret: Option<String>, guard: &Guard) -> Self {
        let auth = match &client_secret {
            None => ClientAuth::None,
            Some(_) => secret_way(guard),
        };
        Self { client_id, client_secret, auth }
    }
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registered").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

/// How a secret is shown to a guard; without a list the header is what every guard takes.
fn secret_way(guard: &Guard) -> ClientAuth {
    let takes = |name: &str| guard.auth_methods.iter().any(|one| one == name);
    if takes("client_secret_post") && !takes("client_secret_basic") {
        ClientAuth::ClientSecretPost
    } else {
        ClientAuth::ClientSecretBasic
    }
}

/// The scopes to ask for: what the refusal named, else what the upstream lists; what was granted before is kept, and
/// `offline_access` is added where the guard knows it. `None` asks for no scope in particular.
pub fn scopes(guard: &Guard, challenge: &Challenge, before: Option<&str>) -> Option<String> {
    let named =
        challenge.scope.clone().or_else(|| Some(guard.scopes.join(" ")).filter(|all| !all.is_empty()));
    let mut all: Vec<&str> = Vec::new();
    let both = before.into_iter().chain(named.as_deref());
    for scope in both.flat_map(str::split_ascii_whitespace) {
        if !all.contains(&scope) {
            all.push(scope);
        }
    }
    if guard.offline && !all.contains(&"offline_access") {
        all.push("offline_access");
    }
    (!all.is_empty()).then(|| all.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Guard {
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
        let said =
            |scope: Option<&str>| Challenge { scope: scope.map(str::to_owned), ..Challenge::default() };
        let check = |guard: &Guard, scope, before, expect: Option<&str>| {
            assert_eq!(scopes(guard, &said(scope), before).as_deref(), expect);
        };
        check(&guard(), None, None, Some("read write"));
        check(&guard(), Some("admin"), None, Some("admin"));
        check(&guard(), Some("admin read"), Some("read"), Some("read admin"));
        check(&Guard { scopes: Vec::new(), ..guard() }, None, None, None);
        check(&Guard { scopes: Vec::new(), offline: true, ..guard() }, None, None, Some("offline_access"));
    }

    #[test]
    fn a_secret_is_shown_the_way_the_guard_takes_it() {
        let way = |methods: &[&str], secret: Option<&str>| {
            let methods = methods.iter().map(|one| (*one).to_owned()).collect();
            Registered::known(
                "id".into(),
                secret.map(str::to_owned),
                &Guard { auth_methods: methods, ..guard() },
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
