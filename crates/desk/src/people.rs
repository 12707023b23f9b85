//! Signing in and out: one-time codes, pass phrases, the page's session. What fails too often has to wait.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use countersign_core::ids::{PrincipalId, Secret};
use countersign_core::record::{RowKind, RowStatus, Source};
use countersign_core::refusal::{Code, Refusal};
use countersign_store::{Credential, Entry, page_proof, session_digest, sign_in_digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::{Came, Person, by_secret, nobody, set_cookie};
use crate::asked::{Body, invalid};
use crate::attempts::Recorded;
use crate::chance;
use crate::desk::Desk;
use crate::told::{No, Outcome, told};
use crate::views::exact;

/// How long a session of the page lasts.
const SESSION: Duration = Duration::from_secs(12 * 3600);
/// The longest name or pass phrase that is looked at, in bytes.
const LONGEST: usize = 4096;
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
            if name.len() > LONGEST || passphrase.len() > LONGEST {
                return Err(invalid("name", "and `passphrase` have at most 4096 bytes each").into());
            }
            desk.attempts.begin(name)?;
            let opened = by_phrase(&desk, name, passphrase, &session).await?;
            if opened.is_some() {
                desk.attempts.forgive(name);
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
    let matched = desk.attempts.hashing(move || crate::phrase::find(&all, &passphrase)).await?;
    let Some(id) = matched.flatten() else { return Ok(None) };
    let until = now.checked_add(SESSION).unwrap_or(now);
    Ok(store.open_desk_session(&id, "passphrase", session_digest(session), until, now).await?)
}

async fn record_failed(desk: &Desk, asked: &SignIn) -> Result<(), No> {
    // A flood of failed tries does not grow the ledger without end: the next row says how many there were.
    let Recorded::Row { unrecorded } = desk.attempts.record() else { return Ok(()) };
    let how = match asked {
        SignIn { code: Some(_), .. } => "code",
        SignIn { credential: Some(_), .. } => "credential",
        SignIn { .. } => "passphrase",
    };
    let mut row = Entry::new(RowKind::System, RowStatus::Refused)
        .with_fact("action", "sign_in")
        .with_fact("entity_type", "credential")
        .with_fact("with", how);
    if unrecorded > 0 {
        row = row.with_fact("unrecorded", unrecorded);
    }
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
    let hash = desk.attempts.hashing(move || crate::phrase::hash(&phrase)).await?;
    let hash = hash.flatten().ok_or_else(no_chance)?;
    let now = desk.house.now();
    desk.house.store.set_phrase(&person.credential, hash, now).await?;
    told(PhraseSet { changed_at: exact(now) })
}
