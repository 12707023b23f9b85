//! The gateway signs in as itself with its configured identity (client credentials): it requests a token after the first rejection, and
//! again before the token expires. Nothing is stored on disk.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign_mcp::client::{BoxFuture, HttpSpec, RetryDecision, TokenProvider};
use countersign_mcp::oauth::{
    AuthorizationServer, BearerChallenge, MachineClient, OauthFault, OauthHttpClient, OauthTokens,
    SignInSubject, discover, scopes,
};

use super::EARLY;

/// How long before its expiry a token is replaced; a short one at four fifths of its life.
const EARLY_SPAN: Duration = Duration::from_secs(EARLY.unsigned_abs());

pub(crate) struct ByItself {
    url: String,
    web: OauthHttpClient,
    machine: MachineClient,
    /// Configured scopes win over those of the upstream.
    wanted: Option<String>,
    held: Mutex<CachedToken>,
    /// One request for a token at a time.
    turn: tokio::sync::Mutex<Option<LastTokenRequest>>,
}

#[derive(Clone)]
struct LastTokenRequest {
    guard: AuthorizationServer,
    scope: Option<String>,
}

#[derive(Default)]
struct CachedToken {
    token: Option<String>,
    /// When the next one is requested.
    until: Option<Instant>,
    fault: Option<String>,
}

impl std::fmt::Debug for ByItself {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByItself")
            .field("url", &self.url)
            .field("machine", &self.machine)
            .finish_non_exhaustive()
    }
}

impl ByItself {
    pub(crate) fn new(spec: &HttpSpec, machine: MachineClient, wanted: Option<String>) -> Self {
        Self {
            url: spec.url.clone(),
            web: OauthHttpClient::of(spec),
            machine,
            wanted,
            held: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    fn valid_token(&self) -> Option<String> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.token.clone().filter(|_| held.until.is_none_or(|until| Instant::now() < until))
    }

    fn store_outcome(&self, asked: Result<OauthTokens, OauthFault>) -> RetryDecision {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match asked {
            Ok(granted) => {
                let early = |span: Duration| span.saturating_sub(EARLY_SPAN.min(span / 5));
                let until = granted.expires_in.and_then(|span| Instant::now().checked_add(early(span)));
                *held = CachedToken { token: Some(granted.access_token), until, fault: None };
                RetryDecision::Yes
            }
            Err(fault) => {
                tracing::warn!(url = self.url, %fault, "no token was given to the gateway itself");
                *held = CachedToken { fault: Some(fault.to_string()), ..CachedToken::default() };
                RetryDecision::No
            }
        }
    }

    async fn renewed(&self) -> Option<String> {
        let known = self.turn.lock().await;
        if let Some(token) = self.valid_token() {
            return Some(token);
        }
        // Before the first rejection the authorization server is unknown: the request goes without a token.
        let known = known.as_ref()?;
        self.store_outcome(self.machine.sign_in(&self.web, &known.guard, known.scope.as_deref()).await);
        self.valid_token()
    }

    async fn discover_server(
        &self,
        challenge: &str,
        before: Option<&str>,
    ) -> Result<(LastTokenRequest, OauthTokens), OauthFault> {
        let challenge = BearerChallenge::parse(challenge);
        let mut guard = discover(&self.web, &self.url, &challenge, SignInSubject::Machine).await?;
        // Refresh tokens are useless here: a new token can be requested at any time.
        guard.offline = false;
        let scope = self.wanted.clone().or_else(|| scopes(&guard, &challenge, before));
        let granted = self.machine.sign_in(&self.web, &guard, scope.as_deref()).await?;
        Ok((LastTokenRequest { guard, scope }, granted))
    }
}

impl TokenProvider for ByItself {
    fn token(&self) -> BoxFuture<'_, Option<String>> {
        match self.valid_token() {
            Some(token) => Box::pin(std::future::ready(Some(token))),
            None => Box::pin(self.renewed()),
        }
    }

    fn refused<'a>(
        &'a self,
        token: Option<&'a str>,
        _: u16,
        challenge: &'a str,
    ) -> BoxFuture<'a, RetryDecision> {
        Box::pin(async move {
            let mut known = self.turn.lock().await;
            if self.valid_token().is_some_and(|valid_token| Some(valid_token.as_str()) != token) {
                return RetryDecision::Yes;
            }
            let before = known.as_ref().and_then(|known| known.scope.clone());
            match self.discover_server(challenge, before.as_deref()).await {
                Ok((now, granted)) => {
                    *known = Some(now);
                    self.store_outcome(Ok(granted))
                }
                Err(fault) => self.store_outcome(Err(fault)),
            }
        })
    }

    fn advice(&self) -> Option<String> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        Some(match &held.fault {
            Some(fault) => format!("no token for the gateway itself: {fault}; see `oauth` in the configuration"),
            None => "it does not take the token the gateway was given for itself; see `oauth` in the configuration".to_owned(),
        })
    }
}
