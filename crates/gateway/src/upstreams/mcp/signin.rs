//! Being signed in to HTTP upstreams: tokens kept in one file that only its owner can read, shown with every request, renewed
//! before they end. A person signs in, never the gateway by itself: it only says that somebody should. Where the configuration
//! gives the gateway an identity of its own, it signs in as that, and keeps nothing.

mod keys;
mod machine;
mod session;

use std::sync::{Arc, Mutex, PoisonError};

use countersign_wire::upstream::oauth::{OauthFault, Web, refresh};
use countersign_wire::upstream::{Again, Bearer, HttpSpec, Later};

pub use self::keys::{Key, Keys, KeysFault};
pub use self::machine::ByItself;
pub use self::session::{Known, SignIn};

/// How long before its end a token is renewed, in seconds.
const EARLY: i64 = 30;

/// Shows the token of one upstream.
pub struct SignedIn {
    url: String,
    keys: Arc<Keys>,
    web: Web,
    /// What was last read or renewed.
    held: Mutex<Option<Key>>,
    /// One renewal at a time: a refresh token is good once.
    turn: tokio::sync::Mutex<Seen>,
}

/// Whether the file was read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Never,
    Once,
}

impl std::fmt::Debug for SignedIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignedIn").field("url", &self.url).finish_non_exhaustive()
    }
}

impl SignedIn {
    /// For the upstream of this specification.
    pub fn new(spec: &HttpSpec, keys: Arc<Keys>) -> Self {
        Self {
            url: spec.url.clone(),
            keys,
            web: Web::of(spec),
            held: Mutex::default(),
            turn: tokio::sync::Mutex::new(Seen::Never),
        }
    }

    fn held(&self) -> Option<Key> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hold(&self, key: Option<Key>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = key;
    }

    async fn read(&self) -> Option<Key> {
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
        if *seen == Seen::Never {
            self.hold(self.read().await);
            *seen = Seen::Once;
        }
        let key = self.held()?;
        if !key.ends_within(EARLY) {
            return Some(key.access_token);
        }
        // Another process may have renewed it meanwhile.
        let key = self.read().await?;
        let key = if key.ends_within(EARLY) { self.renew(key).await } else { Some(key) };
        self.hold(key.clone());
        key.map(|key| key.access_token)
    }

    /// A new token for an old one; an old one that cannot be renewed is shown as long as the upstream takes it.
    async fn renew(&self, old: Key) -> Option<Key> {
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
                // What cannot be renewed any more is of no use to anyone.
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

impl Bearer for SignedIn {
    fn token(&self) -> Later<'_, Option<String>> {
        // The usual case takes no turn and no file.
        match self.held() {
            Some(key) if !key.ends_within(EARLY) => Box::pin(std::future::ready(Some(key.access_token))),
            _ => Box::pin(self.current()),
        }
    }

    fn refused<'a>(&'a self, token: Option<&'a str>, status: u16, challenge: &'a str) -> Later<'a, Again> {
        Box::pin(async move {
            let _turn = self.turn.lock().await;
            let stored = self.read().await;
            let fresh =
                |key: &Option<Key>| key.as_ref().is_some_and(|key| Some(key.access_token.as_str()) != token);
            if fresh(&stored) {
                self.hold(stored);
                return Again::Yes;
            }
            // More rights are a person's to give; a token that ended may be renewed.
            if let (401, Some(key)) = (status, stored) {
                let renewed = self.renew(key).await;
                let again = if fresh(&renewed) { Again::Yes } else { Again::No };
                self.hold(renewed);
                if again == Again::Yes {
                    return again;
                }
            }
            if let Err(fault) = self.keys.note_challenge(&self.url, challenge).await {
                tracing::warn!(url = self.url, %fault, "what the upstream asks for could not be kept");
            }
            Again::No
        })
    }
}
