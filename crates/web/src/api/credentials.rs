//! Credentials of agents and people: created, listed, revoked. A secret is returned once and never stored.

use axum::extract::State;
use countersign_policy::duration;
use countersign_policy::effect::Effect;
use countersign_policy::ids::CredentialId;
use countersign_policy::mode::Mode;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_store::{Credential, secret_digest};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::auth::AuthenticatedPerson;
use crate::random;
use crate::request::{Body, PathName, invalid};
use crate::response::{ApiResult, respond};
use crate::state::Web;
use crate::views::{self, CredentialView};

/// Every credential, newest first, without secrets.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CredentialList {
    credentials: Vec<CredentialView>,
}

pub(crate) async fn list(State(web): Web, _: AuthenticatedPerson) -> ApiResult<CredentialList> {
    let (all, now) = (web.gateway.store.credentials().await?, web.gateway.now());
    respond(CredentialList { credentials: all.iter().map(|one| views::credential(one, now)).collect() })
}

/// The credential to create.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewCredential")]
pub(crate) struct NewCredentialBody {
    /// agent or human
    role: String,
    /// The principal of its connections; a generated one by default.
    name: Option<String>,
    /// Only these upstreams; default all.
    upstreams: Option<Vec<String>>,
    /// Only tools of these effects: read, write, destructive; default all.
    effects: Option<Vec<String>>,
    /// The highest mode: ask, plan or execute (default).
    max_mode: Option<String>,
    /// Whether answers in its host's own dialogs count with strength `host`.
    may_vouch: Option<bool>,
    /// Whether all its connections share one session, for clients that open one for each call.
    any_session: Option<bool>,
    /// Such as `12h` or `30d`; default never.
    expires_in: Option<String>,
}

/// The created credential.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CredentialMade")]
pub(crate) struct CreateCredentialResponse {
    credential: CredentialView,
    /// Returned only here.
    secret: String,
    ledger_id: String,
}

pub(crate) async fn make(
    State(web): Web,
    person: AuthenticatedPerson,
    Body(new): Body<NewCredentialBody>,
) -> ApiResult<CreateCredentialResponse> {
    let now = web.gateway.now();
    let role: Role = new.role.parse().map_err(|_| invalid("role", "must be agent or human"))?;
    match role {
        // A stolen session must not turn into a credential that outlasts it.
        Role::Human => person.check_fresh(now)?,
        Role::Agent => {}
    }
    let id = CredentialId::mint(now, random::bits());
    let name = new.name.as_ref().map_or_else(
        || {
            let tail: String = id.as_str().chars().skip(24).collect::<String>().to_ascii_lowercase();
            format!("{role}-{tail}")
        },
        |name| name.trim().to_owned(),
    );
    let made = Credential {
        id,
        role,
        name,
        scopes: scopes(&new)?,
        created: now,
        expires: expires(new.expires_in.as_deref(), now)?,
        revoked: None,
    };
    check_name(&made, &web.gateway.store.credentials().await?).map_err(|why| invalid("name", why))?;
    let kind = match role {
        Role::Human => "csg_human_",
        Role::Agent => "csg_agent_",
    };
    let secret = random::secret(kind).ok_or_else(|| {
        Refusal::new(Code::StoreUnavailable, "there is no randomness to make a secret from")
    })?;
    let store = &web.gateway.store;
    let ledger_id = store.add_credential(&made, secret_digest(&secret), &person.name, now).await?;
    respond(CreateCredentialResponse {
        credential: views::credential(&made, now),
        secret: secret.expose().to_owned(),
        ledger_id: ledger_id.to_string(),
    })
}

fn expires(text: Option<&str>, now: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let span = duration::parse(text).map_err(|why| invalid("expires_in", format_args!("is wrong: {why}")))?;
    Ok(Some(now.checked_add(span).unwrap_or(Timestamp::MAX)))
}

/// The limits in the form the gateway reads; no member means no limit.
fn scopes(new: &NewCredentialBody) -> Result<Value, Refusal> {
    let mut scopes = Map::new();
    if let Some(upstreams) = &new.upstreams {
        scopes.insert("upstreams".into(), json!(upstreams));
    }
    if let Some(effects) = &new.effects {
        let known: Result<Vec<Effect>, _> = effects.iter().map(|word| word.parse()).collect();
        let known = known.map_err(|why| invalid("effects", format_args!("is wrong: {why}")))?;
        scopes.insert("effects".into(), json!(known));
    }
    if let Some(mode) = &new.max_mode {
        let mode: Mode = mode.parse().map_err(|why| invalid("max_mode", format_args!("is wrong: {why}")))?;
        scopes.insert("max_mode".into(), json!(mode));
    }
    if new.may_vouch == Some(true) {
        scopes.insert("may_vouch".into(), json!(true));
    }
    if new.any_session == Some(true) {
        scopes.insert("any_session".into(), json!(true));
    }
    Ok(Value::Object(scopes))
}

/// Names tell people and agents apart in the audit log, so one name can't be both.
fn check_name(made: &Credential, all: &[Credential]) -> Result<(), String> {
    let plain = |c: char| c.is_alphanumeric() || "._-@+".contains(c);
    if made.name.is_empty() || made.name.len() > 64 || !made.name.chars().all(plain) {
        return Err("is made of letters, digits and `._-@+`, at most 64".to_owned());
    }
    if made.name.starts_with("local-") || made.name.starts_with("host") {
        return Err("can't begin with `local-` or `host`: those are the gateway's own".to_owned());
    }
    match all.iter().find(|one| one.name == made.name && one.role != made.role) {
        Some(other) => Err(format!("is the name of a credential for role {}", other.role)),
        None => Ok(()),
    }
}

/// The revoked credential.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CredentialRevoked")]
pub(crate) struct RevokedCredential {
    credential_id: String,
    ledger_id: String,
}

pub(crate) async fn revoke(
    State(web): Web,
    person: AuthenticatedPerson,
    PathName(id): PathName,
) -> ApiResult<RevokedCredential> {
    let id = CredentialId::new(id);
    let revoked = web.gateway.store.revoke_credential(&id, &person.name, web.gateway.now()).await?;
    let Some(ledger_id) = revoked else {
        return Err(Refusal::new(Code::NotFound, "there is no such credential that could be revoked").into());
    };
    respond(RevokedCredential { credential_id: id.to_string(), ledger_id: ledger_id.to_string() })
}
