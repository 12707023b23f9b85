//! The gateway signs in as itself, with the identity the configuration gives it (client credentials): when it is turned away it asks
//! the upstream's guard for a token, and again before that ends. Nothing is kept on disk.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign_wire::upstream::oauth::{
    Challenge, Comes, Guard, Machine, OauthFault, Tokens, Web, discover, scopes,
};
use countersign_wire::upstream::{Again, Bearer, HttpSpec, Later};

use super::EARLY;

/// How long before its end a token is replaced; short ones at four fifths of their life.
const EARLY_SPAN: Duration = Duration::from_secs(EARLY.unsigned_abs());

/// Shows the tokens the gateway gets for itself.
pub struct ByItself {
    url: String,
    web: Web,
    machine: Machine,
    /// The scopes the configuration wants, whatever the upstream says.
    wanted: Option<String>,
    held: Mutex<Held>,
    /// One request for a token at a time.
    turn: tokio::sync::Mutex<Option<Known>>,
}

/// Who was asked last, and for what.
#[derive(Clone)]
struct Known {
    guard: Guard,
    scope: Option<String>,
}

#[derive(Default)]
struct Held {
    token: Option<String>,
    /// When another one is asked for.
    until: Option<Instant>,
    /// Why there is none.
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
    /// For the upstream of this specification.
    pub fn new(spec: &HttpSpec, machine: Machine, wanted: Option<String>) -> Self {
        Self {
            url: spec.url.clone(),
            web: Web::of(spec),
            machine,
            wanted,
            held: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The token that still holds for a while.
    fn fresh(&self) -> Option<String> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.token.clone().filter(|_| held.until.is_none_or(|until| Instant::now() < until))
    }

    /// Keeps what came of asking for a token in mind.
    fn hold(&self, asked: Result<Tokens, OauthFault>) -> Again {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match asked {
            Ok(granted) => {
                let early = |span: Duration| span.saturating_sub(EARLY_SPAN.min(span / 5));
                let until = granted.expires_in.and_then(|span| Instant::now().checked_add(early(span)));
                *held = Held { token: Some(granted.access_token), until, fault: None };
                Again::Yes
            }
            Err(fault) => {
                tracing::warn!(url = self.url, %fault, "no token was given to the gateway itself");
                *held = Held { fault: Some(fault.to_string()), ..Held::default() };
                Again::No
            }
        }
    }

    async fn renewed(&self) -> Option<String> {
        let known = self.turn.lock().await;
        if let Some(token) = self.fresh() {
            return Some(token);
        }
        // Before the first refusal nobody knows whom to ask: the request goes without.
        let known = known.as_ref()?;
        self.hold(self.machine.sign_in(&self.web, &known.guard, known.scope.as_deref()).await);
        self.fresh()
    }

    async fn introduced(&self, challenge: &str, before: Option<&str>) -> Result<(Known, Tokens), OauthFault> {
        let challenge = Challenge::parse(challenge);
        let mut guard = discover(&self.web, &self.url, &challenge, Comes::Machine).await?;
        // A machine needs no tokens for later: it can ask at any time.
        guard.offline = false;
        let scope = self.wanted.clone().or_else(|| scopes(&guard, &challenge, before));
        let granted = self.machine.sign_in(&self.web, &guard, scope.as_deref()).await?;
        Ok((Known { guard, scope }, granted))
    }
}

impl Bearer for ByItself {
    fn token(&self) -> Later<'_, Option<String>> {
        match self.fresh() {
            Some(token) => Box::pin(std::future::ready(Some(token))),
            None => Box::pin(self.renewed()),
        }
    }

    fn refused<'a>(&'a self, token: Option<&'a str>, _: u16, challenge: &'a str) -> Later<'a, Again> {
        Box::pin(async move {
            let mut known = self.turn.lock().await;
            if self.fresh().is_some_and(|fresh| Some(fresh.as_str()) != token) {
                return Again::Yes;
            }
            let before = known.as_ref().and_then(|known| known.scope.clone());
            match self.introduced(challenge, before.as_deref()).await {
                Ok((now, granted)) => {
                    *known = Some(now);
                    self.hold(Ok(granted))
                }
                Err(fault) => self.hold(Err(fault)),
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
