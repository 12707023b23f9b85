//! One attempt to sign in: the address a person opens, bound to this attempt by a state and a proof (PKCE), and the answer
//! that comes back, believed only if it belongs to it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use super::{Guard, OauthFault, Registered, Tokens, Web, encode, tokens};

/// An attempt under way.
pub struct Attempt {
    /// What a person opens.
    pub url: String,
    state: String,
    verifier: String,
    redirect: String,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").field("redirect", &self.redirect).finish_non_exhaustive()
    }
}

impl Attempt {
    /// Begins one.
    pub fn begin(
        guard: &Guard,
        client: &Registered,
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
            ("resource", &guard.resource),
        ];
        pairs.extend(scope.map(|scope| ("scope", scope)));
        // A person is asked anew where tokens for later are wanted: some guards give none otherwise.
        if scope.is_some_and(|scope| scope.split(' ').any(|one| one == "offline_access")) {
            pairs.push(("prompt", "consent"));
        }
        let place = guard.authorization_endpoint.as_deref();
        let place = place.ok_or_else(|| OauthFault::NoGuard(guard.issuer.clone()))?;
        let joint = if place.contains('?') { '&' } else { '?' };
        let url = format!("{place}{joint}{}", encode::form(&pairs));
        Ok(Self { url, state, verifier, redirect: redirect.to_owned() })
    }

    /// Whether an answer belongs to this attempt at all.
    pub fn is_ours(&self, query: &str) -> bool {
        encode::value(query, "state").is_some_and(|state| state == self.state)
    }

    /// The code an answer brings, once it is sure who sent it.
    pub fn code(&self, guard: &Guard, query: &str) -> Result<String, OauthFault> {
        if !self.is_ours(query) {
            return Err(OauthFault::Forged("another state"));
        }
        // Compared as text: a name that only means the same is another name (RFC 9207).
        match encode::value(query, "iss") {
            Some(issuer) if issuer != guard.issuer => return Err(OauthFault::Forged("another issuer")),
            None if guard.names_itself => return Err(OauthFault::Forged("no issuer")),
            Some(_) | None => {}
        }
        if let Some(error) = encode::value(query, "error") {
            let description = encode::value(query, "error_description").unwrap_or_default();
            return Err(OauthFault::Refused { error, description });
        }
        encode::value(query, "code").filter(|code| !code.is_empty()).ok_or(OauthFault::Forged("no code"))
    }

    /// Turns the code into tokens.
    pub async fn redeem(
        &self,
        web: &Web,
        guard: &Guard,
        client: &Registered,
        code: &str,
    ) -> Result<Tokens, OauthFault> {
        let pairs = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect),
            ("code_verifier", &self.verifier),
            ("resource", &guard.resource),
        ];
        tokens::ask(web, guard, client, &pairs).await
    }
}

pub(super) fn random() -> Result<String, OauthFault> {
    let mut bytes = [0u8; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| OauthFault::Here("this machine gives no random numbers".into()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
