//! Authenticates requests: where they come from (`Host`, `Origin`, fetch metadata) and whose they are (a human credential, or the
//! page's session with its CSRF token). Refuses credentials of agents and records every attempt with one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, FromRequestParts, OriginalUri, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::ApprovalChannel;
use countersign_gateway::failed_credentials::{self, FailedTry};
use countersign_policy::digest::Digest;
use countersign_policy::ids::{PrincipalId, Secret};
use countersign_policy::record::{ActorRole, RowKind, RowStatus, Source};
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_store::{Credential, Entry, page_proof, secret_digest, session_digest};
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;

use crate::response::ApiError;
use crate::state::{WebOptions, WebState};

pub(crate) const COOKIE: &str = "countersign_session";
/// What the cookie's name begins with over TLS: browsers accept the prefix only from this host itself.
const HOST_PREFIX: &str = "__Host-";
/// The header the page sends with every change.
pub(crate) const CSRF_HEADER: &str = "x-csrf-token";

#[derive(Clone, Debug)]
pub(crate) struct AuthenticatedPerson {
    pub(crate) name: PrincipalId,
    pub(crate) credential: Credential,
    pub(crate) method: AuthMethod,
}

#[derive(Clone, Debug)]
pub(crate) enum AuthMethod {
    Bearer,
    Page {
        session: Secret,
        /// The time of the sign-in.
        since: Timestamp,
    },
}

/// The age up to which a sign-in may create what outlasts the session.
const FRESH_SIGN_IN: Duration = Duration::from_secs(5 * 60);

impl AuthenticatedPerson {
    pub(crate) fn source(&self) -> Source {
        match self.method {
            AuthMethod::Bearer => Source::Api,
            AuthMethod::Page { .. } => Source::Page,
        }
    }

    pub(crate) fn channel(&self) -> ApprovalChannel {
        match self.method {
            AuthMethod::Bearer => ApprovalChannel::Rest,
            AuthMethod::Page { .. } => ApprovalChannel::Page,
        }
    }

    /// Refuses an older session: somebody who took it over must not turn it into a lasting credential.
    pub(crate) fn check_fresh(&self, now: Timestamp) -> Result<(), ApiError> {
        let since = match &self.method {
            // The credential itself was presented.
            AuthMethod::Bearer => return Ok(()),
            AuthMethod::Page { since, .. } => *since,
        };
        if since.checked_add(FRESH_SIGN_IN).is_ok_and(|until| now < until) {
            return Ok(());
        }
        let message = "this needs a sign-in of the last five minutes: sign in again with countersign open";
        let refusal = Refusal::new(Code::CredentialRequired, message).because("sign_in_stale");
        Err(ApiError::from(refusal).status(StatusCode::FORBIDDEN))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for AuthenticatedPerson {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // A route mounted without the middleware stays closed.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| unauthenticated("a credential is needed"))
    }
}

/// The hosts and origins that may send requests.
#[derive(Debug)]
pub(crate) struct OriginPolicy {
    options: WebOptions,
    cookie: String,
}

/// The origin of an admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOrigin {
    /// Our own page: `Origin` and fetch metadata agree.
    Page,
    /// No browser, or a browser that only reads.
    Elsewhere,
}

impl OriginPolicy {
    /// The cookie's name carries the store: browsers share cookies between all ports of a host, and signing in at one gateway
    /// must not sign out of another. Replicas of one store have the same name.
    pub(crate) fn new(options: WebOptions, salt: &[u8]) -> Self {
        let store = Digest::plain(&[b"cookie", salt].concat()).hex();
        let prefix = if options.secure { HOST_PREFIX } else { "" };
        let cookie = format!("{prefix}{COOKIE}_{}", store.get(..8).unwrap_or_default());
        Self { options, cookie }
    }

    pub(crate) fn cookie(&self) -> &str {
        &self.cookie
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.options.secure
    }

    /// Refuses a foreign `Host` (DNS rebinding), a foreign `Origin`, and requests of other pages.
    pub(crate) fn check(
        &self,
        headers: &HeaderMap,
        target: RequestTarget,
    ) -> Result<RequestOrigin, ApiError> {
        let host = text(headers, header::HOST.as_str())?.unwrap_or_default();
        if !self.is_ours(host) {
            return Err(forbidden("this host name is not served here", "host_forbidden"));
        }
        let origin = text(headers, header::ORIGIN.as_str())?;
        if origin.is_some_and(|origin| !self.is_own(origin, host)) {
            return Err(forbidden("requests from this origin are not accepted", "origin_forbidden"));
        }
        let site = text(headers, "sec-fetch-site")?;
        let foreign = || forbidden("requests of other pages are not accepted", "site_forbidden");
        match (site, target) {
            (None | Some("none" | "same-origin"), _) => {}
            // Any site may link to a plan: a top-level navigation opens our page, which holds no data yet.
            (Some("cross-site" | "same-site"), RequestTarget::Page) => {
                let is_visit = text(headers, "sec-fetch-mode")? == Some("navigate")
                    && text(headers, "sec-fetch-dest")? == Some("document");
                if !is_visit {
                    return Err(foreign());
                }
            }
            (Some(_), _) => return Err(foreign()),
        }
        let is_page = origin.is_some() && site == Some("same-origin");
        Ok(if is_page { RequestOrigin::Page } else { RequestOrigin::Elsewhere })
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some((_, "")) => return false,
            _ => host,
        };
        self.options.allowed_hosts.iter().any(|allowed| {
            allowed == "*" || allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host)
        })
    }

    fn is_own(&self, origin: &str, host: &str) -> bool {
        let scheme = if self.options.secure { "https" } else { "http" };
        let own = origin.split_once("://").is_some_and(|(its, authority)| {
            its.eq_ignore_ascii_case(scheme) && authority.eq_ignore_ascii_case(host)
        });
        own || self.options.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestTarget {
    Page,
    Rest,
}

/// A header as text. One that occurs twice or is no text is refused.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, ApiError> {
    let mut all = headers.get_all(name).iter();
    let Some(first) = all.next() else { return Ok(None) };
    let unreadable = || forbidden(&format!("header `{name}` can't be read"), "header_invalid");
    if all.next().is_some() {
        return Err(unreadable());
    }
    first.to_str().map(Some).map_err(|_| unreadable())
}

fn forbidden(message: &str, reason: &'static str) -> ApiError {
    ApiError::from(Refusal::new(Code::OriginForbidden, message).because(reason))
}

pub(crate) fn unauthenticated(message: &str) -> ApiError {
    let refusal = Refusal::new(Code::CredentialRequired, message);
    ApiError::from(refusal)
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"countersign\""))
}

/// Middleware of the REST routes. The page's files go through [`page`].
pub(crate) async fn rest(State(web): State<Arc<WebState>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match identify(&web, &parts).await {
        Ok(Some(person)) => {
            parts.extensions.insert(person);
        }
        Ok(None) => {}
        Err(error) => return with_security_headers(error.into_response()),
    }
    with_security_headers(next.run(Request::from_parts(parts, body)).await)
}

/// Middleware of the page's files.
pub(crate) async fn page(State(web): State<Arc<WebState>>, request: Request, next: Next) -> Response {
    match web.origins.check(request.headers(), RequestTarget::Page) {
        Ok(_) => with_security_headers(next.run(request).await),
        Err(error) => with_security_headers(error.into_response()),
    }
}

/// Limits what a browser may do with an answer.
fn with_security_headers(mut response: Response) -> Response {
    const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
        connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
        require-trusted-types-for 'script'; trusted-types 'none'";
    let headers = response.headers_mut();
    let all: [(&'static str, &'static str); 6] = [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ];
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The person behind a request; none on the sign-in route.
async fn identify(web: &WebState, parts: &Parts) -> Result<Option<AuthenticatedPerson>, ApiError> {
    let (headers, method) = (&parts.headers, &parts.method);
    let origin = web.origins.check(headers, RequestTarget::Rest)?;
    // A nested router sees a part of the path; the audit log needs all of it.
    let path = parts.extensions.get::<OriginalUri>().map_or(parts.uri.path(), |whole| whole.0.path());
    if let Some(secret) = bearer(headers)? {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        return by_credential(web, &secret, peer, method, path).await.map(Some);
    }
    if method == Method::POST && path == "/api/v1/session" {
        // Only our own page may exchange a code for a cookie.
        return if origin == RequestOrigin::Page { Ok(None) } else { Err(not_the_page()) };
    }
    let Some(session) = cookie(headers, web.origins.cookie()) else {
        return Err(unauthenticated(
            "a credential is needed: Authorization: Bearer …, or the page's sign-in",
        ));
    };
    let found = web.gateway.store.desk_session(session_digest(&session), web.gateway.now()).await?;
    let found =
        found.ok_or_else(|| unauthenticated("the session is over: sign in again with countersign open"))?;
    if !is_reading(method) {
        if origin != RequestOrigin::Page {
            return Err(not_the_page());
        }
        let proof = text(headers, CSRF_HEADER)?.unwrap_or_default();
        let expected = page_proof(&session);
        if !bool::from(proof.as_bytes().ct_eq(expected.as_bytes())) {
            return Err(forbidden("the page's proof is missing or wrong: reload it", "csrf_invalid"));
        }
    }
    let name = PrincipalId::new(found.credential.name.as_str());
    let method = AuthMethod::Page { session, since: found.created };
    Ok(Some(AuthenticatedPerson { name, credential: found.credential, method }))
}

fn not_the_page() -> ApiError {
    forbidden("a change has to come from the approvals page itself, or with a credential", "page_required")
}

fn is_reading(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

fn bearer(headers: &HeaderMap) -> Result<Option<Secret>, ApiError> {
    let Some(value) = text(headers, header::AUTHORIZATION.as_str())? else { return Ok(None) };
    let token = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let (_, token) =
        token.ok_or_else(|| unauthenticated("the credential must be given as Authorization: Bearer …"))?;
    Ok(Some(Secret::new(token.trim())))
}

/// The session cookie; none if it occurs twice.
fn cookie(headers: &HeaderMap, name: &str) -> Option<Secret> {
    let all = headers.get_all(header::COOKIE);
    let texts = all.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
    let mut ours = texts.filter_map(|pair| pair.trim().split_once('=')).filter(|(its, _)| *its == name);
    let first = ours.next().map(|(_, value)| Secret::new(value));
    first.filter(|_| ours.next().is_none())
}

async fn by_credential(
    web: &WebState,
    secret: &Secret,
    peer: Option<SocketAddr>,
    method: &Method,
    path: &str,
) -> Result<AuthenticatedPerson, ApiError> {
    let credential = find_credential(web, secret, peer, &format!("{method} {path}")).await?;
    let name = PrincipalId::new(credential.name.as_str());
    Ok(AuthenticatedPerson { name, credential, method: AuthMethod::Bearer })
}

/// Finds the human credential of a secret. Records a failed attempt, with the requested `route`.
pub(crate) async fn find_credential(
    web: &WebState,
    secret: &Secret,
    peer: Option<SocketAddr>,
    route: &str,
) -> Result<Credential, ApiError> {
    let found = web.gateway.store.credential(secret_digest(secret)).await?;
    let credential = match found {
        Some(credential) if credential.is_live(web.gateway.now()) => credential,
        ended => {
            let failed = FailedTry { secret, credential: ended.as_ref(), source: Source::Api, peer, route };
            failed_credentials::record(&web.gateway, failed).await;
            return Err(unauthenticated("the credential is unknown, expired or revoked"));
        }
    };
    match credential.role {
        Role::Human => Ok(credential),
        Role::Agent => Err(refuse_agent(web, &credential, route).await),
    }
}

/// INVARIANT (agents never approve): an agent's credential is refused here, whatever its scopes, and the attempt is recorded.
async fn refuse_agent(web: &WebState, credential: &Credential, route: &str) -> ApiError {
    let message = "only people decide here: an agent's credential opens agent connections only";
    let refusal = Refusal::new(Code::RoleForbidden, message);
    let mut row = Entry::new(RowKind::System, RowStatus::Refused)
        .with_fact("action", "agent_at_the_desk")
        .with_fact("entity_type", "route")
        .with_fact("entity_id", route)
        .with_fact("credential_id", credential.id.as_str())
        .with_fact("reason_code", refusal.reason_code);
    row.principal = Some(credential.name.as_str().into());
    row.role = Some(ActorRole::Agent);
    row.source = Some(Source::Api);
    row.code = Some(Code::RoleForbidden.as_str().into());
    match web.gateway.store.append(row, web.gateway.now()).await {
        Ok(_) => refusal.into(),
        Err(fault) => ApiError::from(fault).status(StatusCode::FORBIDDEN),
    }
}

/// The header that sets the session cookie, or removes it.
pub(crate) fn set_cookie(origins: &OriginPolicy, session: Option<(&Secret, i64)>) -> Option<HeaderValue> {
    let (value, age) = session.map_or(("", 0), |(secret, age)| (secret.expose(), age));
    let secure = if origins.is_secure() { "; Secure" } else { "" };
    let name = origins.cookie();
    HeaderValue::from_str(&format!(
        "{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"
    ))
    .ok()
}
