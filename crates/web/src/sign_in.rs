//! Sign-in and sign-out of the page: one-time codes, human credentials, pass phrases, sessions.

use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use countersign_policy::ids::{PrincipalId, Secret};
use countersign_policy::record::{RowKind, RowStatus, Source};
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{Credential, Entry, page_proof, session_digest, sign_in_digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::{AuthMethod, AuthenticatedPerson, find_credential, set_cookie, unauthenticated};
use crate::random;
use crate::request::{Body, invalid};
use crate::response::{ApiError, ApiResult, respond};
use crate::state::{Web, WebState};
use crate::views::exact;

const SESSION_LIFE: Duration = Duration::from_secs(12 * 3600);
/// The longest name or pass phrase that is read, in bytes.
const MOST_BYTES: usize = 4096;
/// The lengths a new pass phrase may have, in characters.
pub(crate) const SHORTEST_PHRASE: usize = 12;
pub(crate) const LONGEST_PHRASE: usize = 1024;

/// One of: a code, a credential, or name and pass phrase.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    /// The code of a one-time link of `countersign open`.
    code: Option<String>,
    /// A human credential, as `countersign token create --role human` printed it.
    credential: Option<String>,
    name: Option<String>,
    passphrase: Option<String>,
}

impl SignIn {
    /// How the person signs in, for the audit log and the log.
    fn method(&self) -> &'static str {
        match self {
            SignIn { code: Some(_), .. } => "code",
            SignIn { credential: Some(_), .. } => "credential",
            SignIn { .. } => "passphrase",
        }
    }
}

/// The signed-in person.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Me")]
pub(crate) struct CurrentUser {
    principal: String,
    role: String,
    credential_id: String,
    /// The page sends it as `X-CSRF-Token` with every change. Null for a request with a credential.
    csrf_token: Option<String>,
    /// page or credential
    via: String,
    /// The version of the gateway.
    version: String,
}

fn current_user(person: &AuthenticatedPerson) -> CurrentUser {
    let (csrf_token, via) = match &person.method {
        AuthMethod::Page { session, .. } => (Some(page_proof(session)), "page"),
        AuthMethod::Bearer => (None, "credential"),
    };
    CurrentUser {
        principal: person.name.to_string(),
        role: person.credential.role.to_string(),
        credential_id: person.credential.id.to_string(),
        csrf_token,
        via: via.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

pub(crate) async fn me(person: AuthenticatedPerson) -> ApiResult<CurrentUser> {
    respond(current_user(&person))
}

pub(crate) async fn sign_in(State(web): Web, Body(body): Body<SignIn>) -> Result<Response, ApiError> {
    let (store, now) = (&web.gateway.store, web.gateway.now());
    let session = random::secret("").ok_or_else(no_randomness)?;
    let until = now.checked_add(SESSION_LIFE).unwrap_or(now);
    let credential = match (&body.code, &body.credential, &body.name, &body.passphrase) {
        (None, Some(credential), None, None) => {
            let person =
                find_credential(&web, &Secret::new(credential.trim()), None, "POST /api/v1/session").await?;
            let (id, session) = (&person.id, session_digest(&session));
            store.open_desk_session(id, "credential", session, until, now).await?
        }
        (Some(code), None, None, None) => {
            let code = sign_in_digest(&Secret::new(code.as_str()));
            store.take_sign_in(code, session_digest(&session), until, now).await?
        }
        (None, None, Some(name), Some(passphrase)) => {
            if name.len() > MOST_BYTES || passphrase.len() > MOST_BYTES {
                return Err(invalid("name", "and `passphrase` have at most 4096 bytes each").into());
            }
            web.limits.begin(name)?;
            let opened = sign_in_by_phrase(&web, name, passphrase, &session).await?;
            if opened.is_some() {
                web.limits.reset(name);
            }
            opened
        }
        _ => return Err(invalid("code", "is required, or `credential`, or `name` with `passphrase`").into()),
    };
    let Some(credential) = credential else {
        tracing::info!(with = body.method(), outcome = "refused", "sign-in");
        record_failure(&web, &body).await?;
        let message = "that does not sign anybody in: a link works once, for a minute; make another with countersign open";
        return Err(unauthenticated(message));
    };
    let name = PrincipalId::new(credential.name.as_str());
    tracing::info!(by = name.as_str(), with = body.method(), outcome = "signed in", "sign-in");
    let me = current_user(&AuthenticatedPerson {
        name,
        credential,
        method: AuthMethod::Page { session: session.clone(), since: now },
    });
    let mut response = respond(me)?.into_response();
    let age = i64::try_from(SESSION_LIFE.as_secs()).unwrap_or(i64::MAX);
    if let Some(cookie) = set_cookie(&web.origins, Some((&session, age))) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn no_randomness() -> ApiError {
    Refusal::new(Code::StoreUnavailable, "there is no randomness to make a secret from").into()
}

/// Checks a pass phrase against every credential of the name, and opens a session on a match.
async fn sign_in_by_phrase(
    web: &WebState,
    name: &str,
    passphrase: &str,
    session: &Secret,
) -> Result<Option<Credential>, ApiError> {
    let (store, now) = (&web.gateway.store, web.gateway.now());
    let all = store.phrases(&PrincipalId::new(name), now).await?;
    let passphrase = Secret::new(passphrase);
    let matched = web.limits.run_hash(move || crate::passphrase::find_match(&all, &passphrase)).await?;
    let Some(id) = matched.flatten() else { return Ok(None) };
    let until = now.checked_add(SESSION_LIFE).unwrap_or(now);
    Ok(store.open_desk_session(&id, "passphrase", session_digest(session), until, now).await?)
}

async fn record_failure(web: &WebState, body: &SignIn) -> Result<(), ApiError> {
    // A flood of failures must not grow the audit log without bound: the next row counts those left out.
    let Some(unrecorded) = web.limits.admit_row() else { return Ok(()) };
    let mut row = Entry::new(RowKind::System, RowStatus::Refused)
        .with_fact("action", "sign_in")
        .with_fact("entity_type", "credential")
        .with_fact("with", body.method());
    if unrecorded > 0 {
        row = row.with_fact("unrecorded", unrecorded);
    }
    row.source = Some(Source::Page);
    row.code = Some(Code::CredentialRequired.as_str().into());
    web.gateway.store.append(row, web.gateway.now()).await?;
    Ok(())
}

pub(crate) async fn sign_out(State(web): Web, person: AuthenticatedPerson) -> Result<Response, ApiError> {
    let ended = match &person.method {
        AuthMethod::Page { session, .. } => {
            web.gateway.store.end_desk_session(session_digest(session), web.gateway.now()).await?
        }
        AuthMethod::Bearer => false,
    };
    tracing::info!(by = person.name.as_str(), ended, "sign-out");
    let mut response = respond(SignedOut { ended })?.into_response();
    if let Some(cookie) = set_cookie(&web.origins, None) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// The result of a sign-out.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignedOut {
    /// Whether there was a session to end.
    ended: bool,
}

/// The pass phrase to set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPhrase {
    /// 12 to 1024 characters.
    passphrase: String,
}

/// The pass phrase was set.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PhraseSet {
    changed_at: String,
}

pub(crate) async fn set_phrase(
    State(web): Web,
    person: AuthenticatedPerson,
    Body(body): Body<NewPhrase>,
) -> ApiResult<PhraseSet> {
    person.check_fresh(web.gateway.now())?;
    let length = body.passphrase.chars().count();
    if !(SHORTEST_PHRASE..=LONGEST_PHRASE).contains(&length) {
        return Err(invalid("passphrase", "must have 12 to 1024 characters").into());
    }
    let phrase = Secret::new(body.passphrase);
    let hash = web.limits.run_hash(move || crate::passphrase::hash(&phrase)).await?;
    let hash = hash.flatten().ok_or_else(no_randomness)?;
    let now = web.gateway.now();
    web.gateway.store.set_phrase(&person.credential, hash, now).await?;
    respond(PhraseSet { changed_at: exact(now) })
}
