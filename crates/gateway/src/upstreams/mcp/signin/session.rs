//! A person signs in to an upstream: who guards it, who we are there, the address to open, the answer, the tokens kept.
//! Asks the upstream once what it wants; runs no tool.

use std::sync::Arc;
use std::time::Duration;

use countersign_wire::fault::{Failure, FaultKind, WireFault};
use countersign_wire::frame::Notification;
use countersign_wire::upstream::oauth::{
    Attempt, Challenge, Comes, Guard, Loopback, OauthFault, Registered, Web, discover, register, scopes,
};
use countersign_wire::upstream::{
    Connect, Deadline, HttpSpec, Identity, Observer, RequestOptions, Spec, Upstream as Wire,
};

use super::keys::{Key, Keys, KeysFault};

/// How long asking the upstream what it wants may take.
const PROBE: Duration = Duration::from_secs(20);

/// What the configuration says about us at the guard.
#[derive(Clone, Default)]
pub struct Known {
    /// Our client id; without one we register.
    pub client_id: Option<String>,
    /// Our secret.
    pub client_secret: Option<String>,
    /// The scopes to ask for, whatever the upstream says.
    pub scopes: Option<String>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

/// A sign-in under way.
#[derive(Debug)]
pub struct SignIn {
    url: String,
    keys: Arc<Keys>,
    web: Web,
    guard: Guard,
    client: Registered,
    scope: Option<String>,
    loopback: Loopback,
    attempt: Attempt,
}

impl SignIn {
    /// Prepares a sign-in to the upstream of this specification; `None` where it asks for none. `port` is where the answer
    /// comes back to, any if 0.
    pub async fn begin(
        spec: &HttpSpec,
        identity: Identity,
        known: &Known,
        keys: Arc<Keys>,
        port: u16,
    ) -> Result<Option<Self>, KeysFault> {
        let before = keys.of(&spec.url).await?;
        let said = match keys.challenge(&spec.url).await? {
            Some(said) => Some(said),
            None => probe(spec, identity, before.as_ref()).await?,
        };
        let Some(said) = said else { return Ok(None) };
        let challenge = Challenge::parse(&said);
        let web = Web::of(spec);
        let guard = discover(&web, &spec.url, &challenge, Comes::Person).await?;
        // What one guard gave means nothing to another.
        let before = before.filter(|key| key.guard.issuer == guard.issuer);
        let granted = before.as_ref().and_then(|key| key.scope.as_deref());
        let scope = known.scopes.clone().or_else(|| scopes(&guard, &challenge, granted));
        let (loopback, kept) = settle(port, before.as_ref()).await?;
        let client = match (&known.client_id, kept) {
            (Some(id), _) => Registered::known(id.clone(), known.client_secret.clone(), &guard),
            (None, Some(kept)) => kept,
            (None, None) => register(&web, &guard, &loopback.redirect(), scope.as_deref()).await?,
        };
        let attempt = Attempt::begin(&guard, &client, &loopback.redirect(), scope.as_deref())?;
        let url = spec.url.clone();
        Ok(Some(Self { url, keys, web, guard, client, scope, loopback, attempt }))
    }

    /// What the person opens.
    pub fn address(&self) -> &str {
        &self.attempt.url
    }

    /// Who signs them in.
    pub fn issuer(&self) -> &str {
        &self.guard.issuer
    }

    /// What is asked for.
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// Waits for the person, and keeps what the guard gives.
    pub async fn finish(self, within: Duration) -> Result<Key, KeysFault> {
        let answer = self.loopback.answer(&self.attempt, within).await?;
        let code = self.attempt.code(&self.guard, &answer)?;
        let granted = self.attempt.redeem(&self.web, &self.guard, &self.client, &code).await?;
        let empty = Key {
            redirect: self.loopback.redirect(),
            scope: self.scope,
            guard: self.guard,
            client: self.client,
            access_token: String::new(),
            refresh_token: None,
            expires_at: None,
        };
        let key = empty.with(granted);
        self.keys.keep(&self.url, key.clone()).await?;
        Ok(key)
    }
}

/// The listener, and the client it belongs to where we were registered with its very address before.
async fn settle(port: u16, before: Option<&Key>) -> Result<(Loopback, Option<Registered>), OauthFault> {
    let known = before.filter(|key| key.client.client_id.len() <= 4096);
    let old = known.and_then(|key| key.redirect.rsplit_once(':')?.1.split('/').next()?.parse::<u16>().ok());
    if let (0, Some(old), Some(key)) = (port, old, known)
        && let Ok(loopback) = Loopback::bind(old).await
        && loopback.redirect() == key.redirect
    {
        return Ok((loopback, Some(key.client.clone())));
    }
    Ok((Loopback::bind(port).await?, None))
}

struct Deaf;

impl Observer for Deaf {
    fn notification(&self, _: Notification) {}
}

/// Asks the upstream for its tools, with the token we have, and gives what it says when it turns us away.
async fn probe(
    spec: &HttpSpec,
    identity: Identity,
    before: Option<&Key>,
) -> Result<Option<String>, OauthFault> {
    let mut spec = HttpSpec { bearer: None, ..spec.clone() };
    if let Some(key) = before {
        spec.headers.push(("authorization".into(), format!("Bearer {}", key.access_token)));
    }
    let url = spec.url.clone();
    let asked = async {
        let mut plan = Connect::new(identity, Arc::new(Deaf));
        plan.open_timeout = PROBE;
        let wire = Wire::connect(&Spec::Http(spec), plan).await?;
        let options = RequestOptions { deadline: Deadline::Total(PROBE), ..RequestOptions::default() };
        let listed = wire.request("tools/list", None, options).await;
        wire.close().await;
        listed
    };
    match asked.await {
        Ok(_) | Err(Failure::Rpc(_)) => Ok(None),
        Err(Failure::Wire(WireFault { kind: FaultKind::Unauthorized { challenge, .. }, .. })) => {
            Ok(Some(challenge))
        }
        Err(Failure::Wire(fault)) => Err(OauthFault::Unreachable { url, why: fault.to_string() }),
    }
}
