//! One attempt to sign in: the URL a person opens, bound to this attempt by a state and PKCE, and the check of the response.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use super::{
    AuthorizationServer, ClientRegistration, OauthFault, OauthHttpClient, OauthTokens, encode, tokens,
};

pub struct SignInAttempt {
    /// The URL a person opens.
    pub url: String,
    state: String,
    verifier: String,
    redirect: String,
}

impl std::fmt::Debug for SignInAttempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignInAttempt").field("redirect", &self.redirect).finish_non_exhaustive()
    }
}

impl SignInAttempt {
    pub fn begin(
        server: &AuthorizationServer,
        client: &ClientRegistration,
        redirect: &str,
        scope: Option<&str>,
    ) -> Result<Self, OauthFault> {
        let (state, verifier) = (random()?, random()?);
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let mut pairs = vec![
            ("response_type", "code"),
            ("client_id", &client.client_id),
            ("redirect_uri", redirect),
            ("state", &state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("resource", &server.resource),
        ];
        pairs.extend(scope.map(|scope| ("scope", scope)));
        // Some servers give refresh tokens only with a new consent.
        if scope.is_some_and(|scope| scope.split(' ').any(|one| one == "offline_access")) {
            pairs.push(("prompt", "consent"));
        }
        let place = server.authorization_endpoint.as_deref();
        let place = place.ok_or_else(|| OauthFault::NoGuard(server.issuer.clone()))?;
        let joint = if place.contains('?') { '&' } else { '?' };
        let url = format!("{place}{joint}{}", encode::form(&pairs));
        Ok(Self { url, state, verifier, redirect: redirect.to_owned() })
    }

    pub fn is_ours(&self, query: &str) -> bool {
        encode::value(query, "state").is_some_and(|state| state == self.state)
    }

    /// The code of a response, after its state and issuer were checked.
    pub fn code(&self, server: &AuthorizationServer, query: &str) -> Result<String, OauthFault> {
        if !self.is_ours(query) {
            return Err(OauthFault::Forged("another state"));
        }
        // Compared as text: an equivalent URL is another issuer (RFC 9207).
        match encode::value(query, "iss") {
            Some(issuer) if issuer != server.issuer => return Err(OauthFault::Forged("another issuer")),
            None if server.names_itself => return Err(OauthFault::Forged("no issuer")),
            Some(_) | None => {}
        }
        if let Some(error) = encode::value(query, "error") {
            let description = encode::value(query, "error_description").unwrap_or_default();
            return Err(OauthFault::Refused { error, description });
        }
        encode::value(query, "code").filter(|code| !code.is_empty()).ok_or(OauthFault::Forged("no code"))
    }

    /// Exchanges the code for tokens.
    pub async fn redeem(
        &self,
        web: &OauthHttpClient,
        server: &AuthorizationServer,
        client: &ClientRegistration,
        code: &str,
    ) -> Result<OauthTokens, OauthFault> {
        let pairs = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect),
            ("code_verifier", &self.verifier),
            ("resource", &server.resource),
        ];
        tokens::ask(web, server, client, &pairs).await
    }
}

pub(super) fn random() -> Result<String, OauthFault> {
    let mut bytes = [0u8; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| OauthFault::Here("this machine gives no random numbers".into()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oauth::ClientAuth;

    #[test]
    fn an_answer_with_another_state_or_issuer_brings_no_code() {
        let server = AuthorizationServer {
            issuer: "https://auth.example".into(),
            authorization_endpoint: Some("https://auth.example/authorize".into()),
            token_endpoint: "https://auth.example/token".into(),
            registration_endpoint: None,
            auth_methods: Vec::new(),
            names_itself: true,
            offline: false,
            resource: "https://mcp.example/mcp".into(),
            scopes: Vec::new(),
        };
        let client =
            ClientRegistration { client_id: "us".into(), client_secret: None, auth: ClientAuth::None };
        let begin = || SignInAttempt::begin(&server, &client, "http://127.0.0.1:1/callback", None).unwrap();
        let (ours, other) = (begin(), begin());
        let answer =
            |state: &str, issuer: &str| encode::form(&[("code", "c"), ("state", state), ("iss", issuer)]);
        assert_eq!(ours.code(&server, &answer(&ours.state, &server.issuer)).unwrap(), "c");
        for state in ["", &other.state, &ours.state[1..], &ours.verifier] {
            let fault = ours.code(&server, &answer(state, &server.issuer)).unwrap_err();
            assert!(matches!(fault, OauthFault::Forged("another state")), "{state}: {fault}");
        }
        // Equivalent for a browser, but another text.
        for issuer in ["https://auth.example/", "https://AUTH.example", "https://evil.example", ""] {
            let fault = ours.code(&server, &answer(&ours.state, issuer)).unwrap_err();
            assert!(matches!(fault, OauthFault::Forged("another issuer")), "{issuer}: {fault}");
        }
    }
}
