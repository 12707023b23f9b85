//! Credentials: who opens agent lines and who decides; made, listed, revoked. A secret is told once, here, and kept nowhere.

use std::sync::Arc;

use axum::extract::State;
use countersign_core::duration;
use countersign_core::effect::Effect;
use countersign_core::ids::CredentialId;
use countersign_core::mode::Mode;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_store::{Credential, secret_digest};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::access::Person;
use crate::asked::{Body, Named, invalid};
use crate::chance;
use crate::desk::Desk;
use crate::told::{Outcome, told};
use crate::views::{self, CredentialView};

/// Every credential, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CredentialList")]
pub(crate) struct Credentials {
    /// Them, without their secrets.
    credentials: Vec<CredentialView>,
}

/// `GET /credentials`
pub(crate) async fn list(State(desk): State<Arc<Desk>>, _: Person) -> Outcome<Credentials> {
    let (all, now) = (desk.house.store.credentials().await?, desk.house.now());
    told(Credentials { credentials: all.iter().map(|one| views::credential(one, now)).collect() })
}

/// A credential to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewCredential")]
pub(crate) struct New {
    /// `agent` or `human`.
    role: String,
    /// Whose it is: the principal of its lines.
    name: Option<String>,
    /// Only these upstreams.
    upstreams: Option<Vec<String>>,
    /// Only tools of these effects: read, write, destructive.
    effects: Option<Vec<String>>,
    /// The highest mode: ask, plan or execute.
    max_mode: Option<String>,
    /// Whether the host that holds it may answer confirmations in its own dialogs; its answers count as strength `host` then.
    may_vouch: Option<bool>,
    /// For how long, such as `12h` or `30d`; until it is revoked if left out.
    expires_in: Option<String>,
}

/// A credential that was made.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CredentialMade")]
pub(crate) struct Made {
    /// It, without its secret.
    credential: CredentialView,
    /// Its secret, told this once.
    secret: String,
    /// The row.
    ledger_id: String,
}

/// `POST /credentials`
pub(crate) async fn make(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Body(new): Body<New>,
) -> Outcome<Made> {
    let now = desk.house.now();
    let role: Role = new.role.parse().map_err(|_| invalid("role", "must be agent or human"))?;
    match role {
        // It would outlast the session it was made from.
        Role::Human => person.check_fresh(now)?,
        Role::Agent => {}
    }
    let id = CredentialId::mint(now, chance::bits());
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
    check_name(&made, &desk.house.store.credentials().await?).map_err(|why| invalid("name", why))?;
    let kind = match role {
        Role::Human => "csg_human_",
        Role::Agent => "csg_agent_",
    };
    let secret = chance::secret(kind).ok_or_else(|| {
        Refusal::new(Code::StoreUnavailable, "there is no randomness to make a secret from")
    })?;
    let store = &desk.house.store;
    let ledger_id = store.add_credential(&made, secret_digest(&secret), &person.name, now).await?;
    told(Made {
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

/// As the gateway reads them: what is not limited is not named.
fn scopes(new: &New) -> Result<Value, Refusal> {
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
    Ok(Value::Object(scopes))
}

/// Names tell people and agents apart in the ledger: one name is not both.
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

/// A credential that was ended.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CredentialRevoked")]
pub(crate) struct Revoked {
    /// Its id.
    credential_id: String,
    /// The row.
    ledger_id: String,
}

/// `DELETE /credentials/{id}`
pub(crate) async fn revoke(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Named(id): Named,
) -> Outcome<Revoked> {
    let id = CredentialId::new(id);
    let revoked = desk.house.store.revoke_credential(&id, &person.name, desk.house.now()).await?;
    let Some(ledger_id) = revoked else {
        return Err(Refusal::new(Code::NotFound, "there is no such credential that could be revoked").into());
    };
    told(Revoked { credential_id: id.to_string(), ledger_id: ledger_id.to_string() })
}
