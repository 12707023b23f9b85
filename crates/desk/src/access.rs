//! Who may ask: where a request comes from (`Host`, `Origin`, fetch metadata), and whose it is (a person's credential, or the
//! page's session with its proof). An agent's credential opens nothing here, and every try with one is a row of the ledger.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, FromRequestParts, OriginalUri, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use countersign_core::ids::{PrincipalId, Secret};
use countersign_core::record::{ActorRole, RowKind, RowStatus, Source};
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_gateway::failed_credentials::{self, FailedTry};
use countersign_store::{Credential, Entry, page_proof, secret_digest, session_digest};
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;

use crate::desk::{Desk, DeskOptions};
use crate::told::No;

/// The page's cookie.
pub(crate) const COOKIE: &str = "countersign_session";
/// The same over TLS, where browsers promise that nobody else can have set it.
pub(crate) const SECURE_COOKIE: &str = "__Host-countersign_session";
/// What the page sends with every change.
pub(crate) const PROOF: &str = "x-csrf-token";

/// A person who may decide.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    /// As whom they decide.
    pub(crate) name: PrincipalId,
    /// Their credential.
    pub(crate) credential: Credential,
    /// How they came.
    pub(crate) came: Came,
}

/// How a person came.
#[derive(Clone, Debug)]
pub(crate) enum Came {
    /// With a credential.
    Bearer,
    /// With the page's session.
    Page {
        /// The session.
        session: Secret,
        /// When they signed in.
        since: Timestamp,
    },
}

/// How long ago a sign-in may be for what outlasts the session.
const FRESH: Duration = Duration::from_secs(5 * 60);

impl Person {
    /// Through which door, for the ledger.
    pub(crate) fn source(&self) -> Source {
        match self.came {
            Came::Bearer => Source::Api,
            Came::Page { .. } => Source::Page,
        }
    }

    /// Refuses a session that was opened a while ago: whoever took it over must not make a credential of it that lasts.
    pub(crate) fn check_fresh(&self, now: Timestamp) -> Result<(), No> {
        let since = match &self.came {
            // The credential itself was just shown.
            Came::Bearer => return Ok(()),
            Came::Page { since, .. } => *since,
        };
        if since.checked_add(FRESH).is_ok_and(|until| now < until) {
            return Ok(());
        }
        let message = "this needs a sign-in of the last five minutes: sign in again with countersign open";
        let refusal = Refusal::new(Code::CredentialRequired, message).because("sign_in_stale");
        Err(No::from(refusal).status(StatusCode::FORBIDDEN))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Person {
    type Rejection = No;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, No> {
        // A route that was mounted without the check is closed.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| nobody("a credential is needed"))
    }
}

/// Where requests may come from.
#[derive(Debug)]
pub(crate) struct Gate {
    options: DeskOptions,
}

/// Where a request comes from, as far as it was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Our own page said so itself: an origin of ours and fetch metadata that agree.
    Page,
    /// Nothing says that it is a browser's, or it is one that reads.
    Elsewhere,
}

impl Gate {
    pub(crate) fn new(options: DeskOptions) -> Self {
        Self { options }
    }

    /// The name of the session's cookie.
    pub(crate) fn cookie(&self) -> &'static str {
        if self.options.secure { SECURE_COOKIE } else { COOKIE }
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.options.secure
    }

    /// Refuses a `Host` that is not ours (a rebound name), a foreign `Origin`, and what a foreign page asks for.
    pub(crate) fn check(&self, headers: &HeaderMap, asks: Asks) -> Result<Origin, No> {
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
        match (site, asks) {
            (None | Some("none" | "same-origin"), _) => {}
            // A link to a plan may stand anywhere; what it opens is our page, not framed, and knows nobody yet.
            (Some("cross-site" | "same-site"), Asks::Page) => {
                let is_visit = text(headers, "sec-fetch-mode")? == Some("navigate")
                    && text(headers, "sec-fetch-dest")? == Some("document");
                if !is_visit {
                    return Err(foreign());
                }
            }
            (Some(_), _) => return Err(foreign()),
        }
        let is_page = origin.is_some() && site == Some("same-origin");
        Ok(if is_page { Origin::Page } else { Origin::Elsewhere })
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

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// A file of the page.
    Page,
    /// REST.
    Rest,
}

/// A header as text; one that is there twice, or no text, is nobody's honest header.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, No> {
    let mut all = headers.get_all(name).iter();
    let Some(first) = all.next() else { return Ok(None) };
    let unreadable = || forbidden(&format!("header `{name}` can't be read"), "header_invalid");
    if all.next().is_some() {
        return Err(unreadable());
    }
    first.to_str().map(Some).map_err(|_| unreadable())
}

fn forbidden(message: &str, reason: &'static str) -> No {
    No::from(Refusal::new(Code::OriginForbidden, message).because(reason))
}

/// Nobody is known to ask.
pub(crate) fn nobody(message: &str) -> No {
    let refusal = Refusal::new(Code::CredentialRequired, message);
    No::from(refusal)
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"countersign\""))
}

/// Lets in what may come in, for every REST route; the page's own files go through [`page`].
pub(crate) async fn rest(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match identify(&desk, &parts).await {
        Ok(Some(person)) => {
            parts.extensions.insert(person);
        }
        Ok(None) => {}
        Err(no) => return sealed(no.into_response()),
    }
    sealed(next.run(Request::from_parts(parts, body)).await)
}

/// Lets in what may have the page.
pub(crate) async fn page(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    match desk.gate.check(request.headers(), Asks::Page) {
        Ok(_) => sealed(next.run(request).await),
        Err(no) => sealed(no.into_response()),
    }
}

/// What a browser may do with our answers: nothing but our own page does anything with them.
fn sealed(mut response: Response) -> Response {
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

/// The person behind a request; none on the one route where people sign in.
async fn identify(desk: &Desk, parts: &Parts) -> Result<Option<Person>, No> {
    let (headers, method) = (&parts.headers, &parts.method);
    let origin = desk.gate.check(headers, Asks::Rest)?;
    // A nested router sees its own part of the path; the ledger is told all of it.
    let path = parts.extensions.get::<OriginalUri>().map_or(parts.uri.path(), |whole| whole.0.path());
    if let Some(secret) = bearer(headers)? {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        return by_credential(desk, &secret, peer, method, path).await.map(Some);
    }
    if method == Method::POST && path == "/api/v1/session" {
        // Nobody yet; but only our own page exchanges codes for cookies.
        return if origin == Origin::Page { Ok(None) } else { Err(not_the_page()) };
    }
    let Some(session) = cookie(headers, desk.gate.cookie()) else {
        return Err(nobody("a credential is needed: Authorization: Bearer …, or the page's sign-in"));
    };
    let found = desk.house.store.desk_session(session_digest(&session), desk.house.now()).await?;
    let found = found.ok_or_else(|| nobody("the session is over: sign in again with countersign open"))?;
    if !is_reading(method) {
        if origin != Origin::Page {
            return Err(not_the_page());
        }
        let proof = text(headers, PROOF)?.unwrap_or_default();
        let expected = page_proof(&session);
        if !bool::from(proof.as_bytes().ct_eq(expected.as_bytes())) {
            return Err(forbidden("the page's proof is missing or wrong: reload it", "csrf_invalid"));
        }
    }
    let name = PrincipalId::new(found.credential.name.as_str());
    let came = Came::Page { session, since: found.created };
    Ok(Some(Person { name, credential: found.credential, came }))
}

fn not_the_page() -> No {
    forbidden("a change has to come from the desk's own page, or with a credential", "page_required")
}

fn is_reading(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

fn bearer(headers: &HeaderMap) -> Result<Option<Secret>, No> {
    let Some(value) = text(headers, header::AUTHORIZATION.as_str())? else { return Ok(None) };
    let token = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let (_, token) =
        token.ok_or_else(|| nobody("the credential must be given as Authorization: Bearer …"))?;
    Ok(Some(Secret::new(token.trim())))
}

/// The session's cookie; one that is there twice is nobody's.
fn cookie(headers: &HeaderMap, name: &str) -> Option<Secret> {
    let all = headers.get_all(header::COOKIE);
    let texts = all.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
    let mut ours = texts.filter_map(|pair| pair.trim().split_once('=')).filter(|(its, _)| *its == name);
    let first = ours.next().map(|(_, value)| Secret::new(value));
    first.filter(|_| ours.next().is_none())
}

async fn by_credential(
    desk: &Desk,
    secret: &Secret,
    peer: Option<SocketAddr>,
    method: &Method,
    path: &str,
) -> Result<Person, No> {
    let credential = by_secret(desk, secret, peer, &format!("{method} {path}")).await?;
    let name = PrincipalId::new(credential.name.as_str());
    Ok(Person { name, credential, came: Came::Bearer })
}

/// The person whose credential it is. `route` is what was asked for: a try with a credential that opens nothing here is a row.
pub(crate) async fn by_secret(
    desk: &Desk,
    secret: &Secret,
    peer: Option<SocketAddr>,
    route: &str,
) -> Result<Credential, No> {
    let found = desk.house.store.credential(secret_digest(secret)).await?;
    let credential = match found {
        Some(credential) if credential.is_live(desk.house.now()) => credential,
        ended => {
            let failed = FailedTry { secret, credential: ended.as_ref(), source: Source::Api, peer, route };
            failed_credentials::record(&desk.house, failed).await;
            return Err(nobody("the credential is unknown, expired or revoked"));
        }
    };
    match credential.role {
        Role::Human => Ok(credential),
        Role::Agent => Err(agent_at_the_desk(desk, &credential, route).await),
    }
}

/// INVARIANT (agents never approve): an agent's credential gets nothing here, whatever its scopes, and the try is kept.
async fn agent_at_the_desk(desk: &Desk, credential: &Credential, route: &str) -> No {
    let message = "the desk is for people: an agent's credential opens agent lines only";
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
    match desk.house.store.append(row, desk.house.now()).await {
        Ok(_) => refusal.into(),
        Err(fault) => No::from(fault).status(StatusCode::FORBIDDEN),
    }
}

/// Sets the page's cookie, or takes it away.
pub(crate) fn set_cookie(gate: &Gate, session: Option<(&Secret, i64)>) -> Option<HeaderValue> {
    let (value, age) = session.map_or(("", 0), |(secret, age)| (secret.expose(), age));
    let secure = if gate.is_secure() { "; Secure" } else { "" };
    let name = gate.cookie();
    HeaderValue::from_str(&format!(
        "{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"
    ))
    .ok()
}
