//! A person's sign-in to an upstream: discovery, registration, the URL to open, the response, the tokens kept. Sends one request to the
//! upstream to learn its challenge; runs no tool.

use std::sync::Arc;
use std::time::Duration;

use countersign_mcp::client::{
    ClientIdentity, Deadline, HttpSpec, Observer, RequestOptions, Upstream as Wire, UpstreamOptions,
    UpstreamSpec,
};
use countersign_mcp::fault::{FaultKind, RequestFailure, TransportFault};
use countersign_mcp::jsonrpc::Notification;
use countersign_mcp::oauth::{
    AuthorizationServer, BearerChallenge, ClientRegistration, LoopbackListener, OauthFault, OauthHttpClient,
    SignInAttempt, SignInSubject, discover, register, scopes,
};

use super::keys::{KeysFault, SignInTokens, TokenFile};

const PROBE: Duration = Duration::from_secs(20);

/// Our client at the authorization server, as configured.
#[derive(Clone, Default)]
pub struct OauthClientSettings {
    /// Without one we register.
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    /// Configured scopes win over those of the upstream.
    pub scopes: Option<String>,
}

impl std::fmt::Debug for OauthClientSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OauthClientSettings").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct SignIn {
    url: String,
    keys: Arc<TokenFile>,
    web: OauthHttpClient,
    guard: AuthorizationServer,
    client: ClientRegistration,
    scope: Option<String>,
    loopback: LoopbackListener,
    attempt: SignInAttempt,
}

impl SignIn {
    /// Prepares a sign-in; `None` where the upstream requires none. The response comes to `port`, any if 0.
    pub async fn begin(
        spec: &HttpSpec,
        identity: ClientIdentity,
        known: &OauthClientSettings,
        keys: Arc<TokenFile>,
        port: u16,
    ) -> Result<Option<Self>, KeysFault> {
        let before = keys.of(&spec.url).await?;
        let said = match keys.challenge(&spec.url).await? {
            Some(said) => Some(said),
            None => probe(spec, identity, before.as_ref()).await?,
        };
        let Some(said) = said else { return Ok(None) };
        let challenge = BearerChallenge::parse(&said);
        let web = OauthHttpClient::of(spec);
        let guard = discover(&web, &spec.url, &challenge, SignInSubject::Person).await?;
        // A registration is valid at one authorization server only.
        let before = before.filter(|key| key.guard.issuer == guard.issuer);
        let granted = before.as_ref().and_then(|key| key.scope.as_deref());
        let scope = known.scopes.clone().or_else(|| scopes(&guard, &challenge, granted));
        let (loopback, kept) = prepare_client(port, before.as_ref()).await?;
        let client = match (&known.client_id, kept) {
            (Some(id), _) => ClientRegistration::known(id.clone(), known.client_secret.clone(), &guard),
            (None, Some(kept)) => kept,
            (None, None) => register(&web, &guard, &loopback.redirect(), scope.as_deref()).await?,
        };
        let attempt = SignInAttempt::begin(&guard, &client, &loopback.redirect(), scope.as_deref())?;
        let url = spec.url.clone();
        Ok(Some(Self { url, keys, web, guard, client, scope, loopback, attempt }))
    }

    pub fn address(&self) -> &str {
        &self.attempt.url
    }

    pub fn issuer(&self) -> &str {
        &self.guard.issuer
    }

    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// Waits for the person, and stores the tokens.
    pub async fn finish(self, within: Duration) -> Result<SignInTokens, KeysFault> {
        let answer = self.loopback.answer(&self.attempt, within).await?;
        let code = self.attempt.code(&self.guard, &answer)?;
        let granted = self.attempt.redeem(&self.web, &self.guard, &self.client, &code).await?;
        let empty = SignInTokens {
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

/// The listener, and the registration that matches its address, if there is one.
async fn prepare_client(
    port: u16,
    before: Option<&SignInTokens>,
) -> Result<(LoopbackListener, Option<ClientRegistration>), OauthFault> {
    let known = before.filter(|key| key.client.client_id.len() <= 4096);
    let old = known.and_then(|key| key.redirect.rsplit_once(':')?.1.split('/').next()?.parse::<u16>().ok());
    if let (0, Some(old), Some(key)) = (port, old, known)
        && let Ok(loopback) = LoopbackListener::bind(old).await
        && loopback.redirect() == key.redirect
    {
        return Ok((loopback, Some(key.client.clone())));
    }
    Ok((LoopbackListener::bind(port).await?, None))
}

struct NoopObserver;

impl Observer for NoopObserver {
    fn notification(&self, _: Notification) {}
}

/// Requests the tools with the current token and returns the challenge of a rejection.
async fn probe(
    spec: &HttpSpec,
    identity: ClientIdentity,
    before: Option<&SignInTokens>,
) -> Result<Option<String>, OauthFault> {
    let mut spec = HttpSpec { bearer: None, ..spec.clone() };
    if let Some(key) = before {
        spec.headers.push(("authorization".into(), format!("Bearer {}", key.access_token)));
    }
    let url = spec.url.clone();
    let asked = async {
        let mut plan = UpstreamOptions::new(identity, Arc::new(NoopObserver));
        plan.open_timeout = PROBE;
        let wire = Wire::connect(&UpstreamSpec::Http(spec), plan).await?;
        let options = RequestOptions { deadline: Deadline::Total(PROBE), ..RequestOptions::default() };
        let listed = wire.request("tools/list", None, options).await;
        wire.close().await;
        listed
    };
    match asked.await {
        Ok(_) | Err(RequestFailure::Rpc(_)) => Ok(None),
        Err(RequestFailure::Wire(TransportFault {
            kind: FaultKind::Unauthorized { challenge, .. }, ..
        })) => Ok(Some(challenge)),
        Err(RequestFailure::Wire(fault)) => Err(OauthFault::Unreachable { url, why: fault.to_string() }),
    }
}
