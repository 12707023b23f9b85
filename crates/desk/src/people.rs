//! Signing in and out: one-time codes, pass phrases, the page's session. What fails too often has to wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use countersign_core::ids::{PrincipalId, Secret};
use countersign_core::record::{RowKind, RowStatus, Source};
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_store::{Credential, Entry, page_proof, session_digest, sign_in_digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::{Came, Person, by_secret, nobody, set_cookie};
use crate::asked::{Body, invalid};
use crate::chance;
use crate::desk::Desk;
use crate::told::{No, Outcome, told};
use crate::views::exact;

/// How long a session of the page lasts.
const SESSION: Duration = Duration::from_secs(12 * 3600);
/// How many failed tries there may be in a window, of one name.
const TRIES: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// How many names are remembered at most.
const NAMES: usize = 10_000;

/// Failed tries to sign in, by name. A code or a credential can't be guessed; a pass phrase is slowed down by this.
#[derive(Debug, Default)]
pub(crate) struct Tries(Mutex<HashMap<String, Vec<Instant>>>);

impl Tries {
    /// Takes note of a try; refused where there were too many.
    fn begin(&self, name: &str) -> Result<(), No> {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > NAMES {
            all.retain(|_, tries| tries.iter().any(|at| now.duration_since(*at) < WINDOW));
        }
        let tries = all.entry(name.to_owned()).or_default();
        tries.retain(|at| now.duration_since(*at) < WINDOW);
        if tries.len() >= TRIES || (tries.is_empty() && all.len() > NAMES) {
            let message = "too many tries to sign in; wait a minute, or sign in with countersign open";
            let refusal = Refusal::new(Code::LimitExceeded, message).because("rate_limited");
            let refusal = refusal.next(&[NextAction::RetryLater]);
            return Err(No::from(refusal).header(header::RETRY_AFTER, HeaderValue::from_static("60")));
        }
        all.entry(name.to_owned()).or_default().push(now);
        Ok(())
    }

    /// Whoever got in may try again.
    fn forgive(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// How somebody signs in: with the code of a one-time link, a human credential, or name and pass phrase.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    /// The code of a one-time link, which `countersign open` makes.
    code: Option<String>,
    /// A human credential, as `countersign token create --role human` printed it.
    credential: Option<String>,
    /// The person's name.
    name: Option<String>,
    /// Their pass phrase, where they have set one.
    passphrase: Option<String>,
}

/// Who is signed in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Me {
    /// As whom they decide.
    principal: String,
    /// Always `human`.
    role: String,
    /// Their credential.
    credential_id: String,
    /// What the page has to send as `X-CSRF-Token` with every change; none for whoever brings a credential.
    csrf_token: Option<String>,
    /// How they came: `page` or `credential`.
    via: String,
    /// Which program this is.
    version: String,
}

fn me_of(person: &Person) -> Me {
    let (csrf_token, via) = match &person.came {
        Came::Page { session, .. } => (Some(page_proof(session)), "page"),
        Came::Bearer => (None, "credential"),
    };
    Me {
        principal: person.name.to_string(),
        role: person.credential.role.to_string(),
        credential_id: person.credential.id.to_string(),
        csrf_token,
        via: via.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// `GET /me`
pub(crate) async fn me(person: Person) -> Outcome<Me> {
    told(me_of(&person))
}

/// `POST /session`
pub(crate) async fn sign_in(
    State(desk): State<Arc<Desk>>,
    Body(asked): Body<SignIn>,
) -> Result<Response, No> {
    let (store, now) = (&desk.house.store, desk.house.now());
    let session = chance::secret("").ok_or_else(no_chance)?;
    let until = now.checked_add(SESSION).unwrap_or(now);
    let opened = match (&asked.code, &asked.credential, &asked.name, &asked.passphrase) {
        (None, Some(credential), None, None) => {
            let person =
                by_secret(&desk, &Secret::new(credential.trim()), None, "POST /api/v1/session").await?;
            let (id, session) = (&person.id, session_digest(&session));
            store.open_desk_session(id, "credential", session, until, now).await?
        }
        (Some(code), None, None, None) => {
            let code = sign_in_digest(&Secret::new(code.as_str()));
            store.take_sign_in(code, session_digest(&session), until, now).await?
        }
        (None, None, Some(name), Some(passphrase)) => {
            desk.tries.begin(name)?;
            let opened = by_phrase(&desk, name, passphrase, &session).await?;
            if opened.is_some() {
                desk.tries.forgive(name);
            }
            opened
        }
        _ => return Err(invalid("code", "is required, or `credential`, or `name` with `passphrase`").into()),
    };
    let Some(credential) = opened else {
        record_failed(&desk, &asked).await?;
        let message = "that does not sign anybody in: a link works once, for a minute; make another with countersign open";
        return Err(nobody(message));
    };
    let name = PrincipalId::new(credential.name.as_str());
    let me = me_of(&Person { name, credential, came: Came::Page { session: session.clone(), since: now } });
    let mut response = told(me)?.into_response();
    let age = i64::try_from(SESSION.as_secs()).unwrap_or(i64::MAX);
    if let Some(cookie) = set_cookie(&desk.gate, Some((&session, age))) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn no_chance() -> No {
    Refusal::new(Code::StoreUnavailable, "there is no randomness to make a secret from").into()
}

/// A pass phrase is compared with every credential of that name, and with nothing where there is none: it takes as long.
async fn by_phrase(
    desk: &Desk,
    name: &str,
    passphrase: &str,
    session: &Secret,
) -> Result<Option<Credential>, No> {
    let (store, now) = (&desk.house.store, desk.house.now());
    let all = store.phrases(&PrincipalId::new(name), now).await?;
    let passphrase = Secret::new(passphrase);
    let matched = tokio::task::spawn_blocking(move || crate::phrase::find(&all, &passphrase)).await;
    let Some(id) = matched.unwrap_or_default() else { return Ok(None) };
    let until = now.checked_add(SESSION).unwrap_or(now);
    Ok(store.open_desk_session(&id, "passphrase", session_digest(session), until, now).await?)
}

async fn record_failed(desk: &Desk, asked: &SignIn) -> Result<(), No> {
    let how = match asked {
        SignIn { code: Some(_), .. } => "code",
        SignIn { credential: Some(_), .. } => "credential",
        SignIn { .. } => "passphrase",
    };
    let mut row = Entry::new(RowKind::System, RowStatus::Refused)
        .with_fact("action", "sign_in")
        .with_fact("entity_type", "credential")
        .with_fact("with", how);
    row.source = Some(Source::Page);
    row.code = Some(Code::CredentialRequired.as_str().into());
    desk.house.store.append(row, desk.house.now()).await?;
    Ok(())
}

/// `DELETE /session`
pub(crate) async fn sign_out(State(desk): State<Arc<Desk>>, person: Person) -> Result<Response, No> {
    let ended = match &person.came {
        Came::Page { session, .. } => {
            desk.house.store.end_desk_session(session_digest(session), desk.house.now()).await?
        }
        Came::Bearer => false,
    };
    let mut response = told(SignedOut { ended })?.into_response();
    if let Some(cookie) = set_cookie(&desk.gate, None) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// What signing out came to.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignedOut {
    /// Whether there was a session to end.
    ended: bool,
}

/// A pass phrase somebody sets.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPhrase {
    /// At least 12 characters.
    passphrase: String,
}

/// That it was set.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PhraseSet {
    /// When.
    changed_at: String,
}

/// `POST /me/passphrase`
pub(crate) async fn set_phrase(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Body(asked): Body<NewPhrase>,
) -> Outcome<PhraseSet> {
    person.check_fresh(desk.house.now())?;
    let length = asked.passphrase.chars().count();
    if !(12..=1024).contains(&length) {
        return Err(invalid("passphrase", "must have 12 to 1024 characters").into());
    }
    let phrase = Secret::new(asked.passphrase);
    let hash = tokio::task::spawn_blocking(move || crate::phrase::hash(&phrase)).await;
    let hash = hash.ok().flatten().ok_or_else(no_chance)?;
    let now = desk.house.now();
    desk.house.store.set_phrase(&person.credential, hash, now).await?;
    told(PhraseSet { changed_at: exact(now) })
}
