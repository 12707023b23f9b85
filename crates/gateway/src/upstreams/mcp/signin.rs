//! Tokens for HTTP upstreams: kept in one private file, sent with every request, renewed before they expire. Only a person signs in; the
//! gateway reports that somebody should. If the configuration gives the gateway an identity of its own, it signs in as that and stores
//! nothing.

mod keys;
mod machine;
mod session;

use std::sync::{Arc, Mutex, PoisonError};

use countersign_mcp::client::{BoxFuture, HttpSpec, RetryDecision, TokenProvider};
use countersign_mcp::oauth::{OauthFault, OauthHttpClient, refresh};

pub(crate) use self::keys::SignInTokens;
pub use self::keys::{KeysFault, TokenFile};
pub(crate) use self::machine::ByItself;
pub use self::session::{OauthClientSettings, SignIn};

/// How long before its expiry a token is renewed, in seconds.
const EARLY: i64 = 30;

pub(crate) struct SignedIn {
    url: String,
    keys: Arc<TokenFile>,
    web: OauthHttpClient,
    /// What was last read or renewed.
    held: Mutex<Option<SignInTokens>>,
    /// One renewal at a time: a refresh token works once.
    turn: tokio::sync::Mutex<FileReadState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileReadState {
    Never,
    Once,
}

impl std::fmt::Debug for SignedIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignedIn").field("url", &self.url).finish_non_exhaustive()
    }
}

impl SignedIn {
    pub(crate) fn new(spec: &HttpSpec, keys: Arc<TokenFile>) -> Self {
        Self {
            url: spec.url.clone(),
            keys,
            web: OauthHttpClient::of(spec),
            held: Mutex::default(),
            turn: tokio::sync::Mutex::new(FileReadState::Never),
        }
    }

    fn held(&self) -> Option<SignInTokens> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_cached(&self, key: Option<SignInTokens>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = key;
    }

    async fn read(&self) -> Option<SignInTokens> {
        match self.keys.of(&self.url).await {
            Ok(key) => key,
            Err(fault) => {
                tracing::warn!(url = self.url, %fault, "stored tokens can't be used");
                None
            }
        }
    }

    async fn current(&self) -> Option<String> {
        let mut seen = self.turn.lock().await;
        if *seen == FileReadState::Never {
            self.set_cached(self.read().await);
            *seen = FileReadState::Once;
        }
        let key = self.held()?;
        if !key.ends_within(EARLY) {
            return Some(key.access_token);
        }
        // Another process may have renewed it meanwhile.
        let key = self.read().await?;
        let key = if key.ends_within(EARLY) { self.renew(key).await } else { Some(key) };
        self.set_cached(key.clone());
        key.map(|key| key.access_token)
    }

    /// Renews a token; one that cannot be renewed is sent as long as the upstream accepts it.
    async fn renew(&self, old: SignInTokens) -> Option<SignInTokens> {
        let Some(token) = old.refresh_token.clone() else { return Some(old) };
        let renewed = self
            .keys
            .renew(&self.url, &old, async {
                let granted = refresh(&self.web, &old.guard, &old.client, &token).await?;
                Ok(old.with(granted))
            })
            .await;
        match renewed {
            Ok(key) => Some(key),
            Err(KeysFault::Guard(OauthFault::Refused { error, .. })) if error == "invalid_grant" => {
                tracing::warn!(url = self.url, "the sign-in has ended: a person has to sign in again");
                // Tokens that cannot be renewed any more are useless.
                let _ = self.keys.forget_tokens(&self.url, &old).await;
                None
            }
            Err(fault) => {
                tracing::warn!(url = self.url, %fault, "the token could not be renewed");
                Some(old)
            }
        }
    }
}

impl TokenProvider for SignedIn {
    fn token(&self) -> BoxFuture<'_, Option<String>> {
        // The usual case takes no lock and reads no file.
        match self.held() {
            Some(key) if !key.ends_within(EARLY) => Box::pin(std::future::ready(Some(key.access_token))),
            _ => Box::pin(self.current()),
        }
    }

    fn refused<'a>(
        &'a self,
        token: Option<&'a str>,
        status: u16,
        challenge: &'a str,
    ) -> BoxFuture<'a, RetryDecision> {
        Box::pin(async move {
            let _turn = self.turn.lock().await;
            let stored = self.read().await;
            let fresh = |key: &Option<SignInTokens>| {
                key.as_ref().is_some_and(|key| Some(key.access_token.as_str()) != token)
            };
            if fresh(&stored) {
                self.set_cached(stored);
                return RetryDecision::Yes;
            }
            // More scopes need a person; an expired token can be renewed.
            if let (401, Some(key)) = (status, stored) {
                let renewed = self.renew(key).await;
                let again = if fresh(&renewed) { RetryDecision::Yes } else { RetryDecision::No };
                self.set_cached(renewed);
                if again == RetryDecision::Yes {
                    return again;
                }
            }
            if let Err(fault) = self.keys.note_challenge(&self.url, challenge).await {
                tracing::warn!(url = self.url, %fault, "what the upstream asks for could not be kept");
            }
            RetryDecision::No
        })
    }
}
