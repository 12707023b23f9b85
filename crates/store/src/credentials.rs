//! Credentials: who may open a line, and as what. Only digests of secrets are kept; a secret is shown once, elsewhere.

use countersign_core::confirm::PlanEnd;
use countersign_core::digest::{Digest, Domain};
use countersign_core::ids::{CredentialId, LedgerId, PrincipalId, Secret};
use countersign_core::record::{ActorRole, RowKind, RowStatus};
use countersign_core::role::Role;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::engine::{Found, cells, json_text};
use crate::fault::StoreFault;
use crate::ledger::Entry;
use crate::{Store, decisions};

/// How a secret is kept at rest.
pub fn secret_digest(secret: &Secret) -> Digest {
    Digest::of(Domain::Credential, secret.expose().as_bytes())
}

/// A credential, without its secret.
#[derive(Clone, Debug, PartialEq)]
pub struct Credential {
    /// Its id.
    pub id: CredentialId,
    /// As what it opens a line.
    pub role: Role,
    /// The name of whoever holds it: the principal of its lines.
    pub name: String,
    /// How far it reaches, as JSON.
    pub scopes: Value,
    /// When it was made.
    pub created: Timestamp,
    /// Until when it works; none means until it is revoked.
    pub expires: Option<Timestamp>,
    /// When it was revoked.
    pub revoked: Option<Timestamp>,
}

impl Credential {
    /// Whether it works at this moment.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

/// How a credential ended by this moment, if it did. One that is gone works as little as a revoked one.
pub(crate) fn end_of(found: Option<&Credential>, now: Timestamp) -> Option<PlanEnd> {
    match found {
        None => Some(PlanEnd::CredentialRevoked),
        Some(one) if one.revoked.is_some() => Some(PlanEnd::CredentialRevoked),
        Some(one) if !one.is_live(now) => Some(PlanEnd::CredentialExpired),
        Some(_) => None,
    }
}

const COLUMNS: &str = "credential_id, role, name, scopes, created, expires, revoked";

/// The statement that finds a credential by its id.
pub(crate) fn by_id_sql() -> String {
    format!("SELECT {COLUMNS} FROM credentials WHERE credential_id = $1")
}

pub(crate) fn decode(mut found: Found) -> Result<Credential, StoreFault> {
    Ok(Credential {
        id: found.text()?.into(),
        role: found.word()?,
        name: found.text()?,
        scopes: found.json()?,
        created: found.time()?,
        expires: found.maybe_time()?,
        revoked: found.maybe_time()?,
    })
}

impl Store {
    /// Keeps a credential under the digest of its secret.
    pub async fn add_credential(
        &self,
        credential: &Credential,
        secret: Digest,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<LedgerId, StoreFault> {
        let (made, by, id) = (credential.clone(), by.clone(), self.mint(now));
        let scopes = json_text(&made.scopes)?;
        let written = id.clone();
        self.write(move |tx| {
            tx.execute(
                "INSERT INTO credentials (credential_id, secret, role, name, scopes, created, expires)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)",
                &cells![
                    made.id.as_str(),
                    secret,
                    made.role.as_str(),
                    made.name.as_str(),
                    scopes.as_str(),
                    made.created,
                    made.expires,
                ],
            )?;
            let entry = about(&made.id, "add_credential", &by)
                .with_fact("role", made.role.as_str())
                .with_fact("name", made.name.as_str());
            tx.append(&entry, id.clone(), now);
            Ok(())
        })
        .await?;
        Ok(written)
    }

    /// The credential of a secret, live or not.
    pub async fn credential(&self, secret: Digest) -> Result<Option<Credential>, StoreFault> {
        let sql = format!("SELECT {COLUMNS} FROM credentials WHERE secret = $1");
        self.read(move |view| view.one(&sql, &cells![secret])?.map(decode).transpose()).await
    }

    /// Every credential, newest first.
    pub async fn credentials(&self) -> Result<Vec<Credential>, StoreFault> {
        let sql = format!("SELECT {COLUMNS} FROM credentials ORDER BY credential_id DESC");
        self.read(move |view| view.query(&sql, &[])?.into_iter().map(decode).collect()).await
    }

    /// Ends a credential, and with it every open plan that was asked for with it; none if there is no such one or it was
    /// ended before.
    pub async fn revoke_credential(
        &self,
        credential: &CredentialId,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<Option<LedgerId>, StoreFault> {
        let (credential, by, id) = (credential.clone(), by.clone(), self.mint(now));
        let ids = self.ids();
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE credentials SET revoked = $1 WHERE credential_id = $2 AND revoked IS NULL",
                &cells![now, credential.as_str()],
            )?;
            if changed == 0 {
                return Ok(None);
            }
            tx.append(&about(&credential, "revoke_credential", &by), id.clone(), now);
            decisions::cancel_for_credential(tx, &ids, &credential, now)?;
            Ok(Some(id.clone()))
        })
        .await
    }
}

fn about(credential: &CredentialId, action: &str, by: &PrincipalId) -> Entry {
    let detail = json!({"action": action, "entity_type": "credential", "entity_id": credential});
    let mut entry = Entry::new(RowKind::System, RowStatus::Success).with_detail(&detail);
    entry.principal = Some(by.clone());
    entry.role = Some(ActorRole::Human);
    entry
}
