//! Credentials: who may connect, and in which role. Only digests of secrets are stored.

use countersign_policy::confirm::PlanEnd;
use countersign_policy::digest::{Digest, DigestDomain};
use countersign_policy::ids::{CredentialId, LedgerId, PrincipalId, Secret};
use countersign_policy::record::{ActorRole, RowKind};
use countersign_policy::role::Role;
use jiff::Timestamp;
use serde_json::Value;

use crate::engine::{FoundRow, cells, json_text};
use crate::fault::StoreFault;
use crate::ledger::Entry;
use crate::{Store, decisions};

/// How a secret is stored.
pub fn secret_digest(secret: &Secret) -> Digest {
    Digest::of(DigestDomain::Credential, secret.expose().as_bytes())
}

#[derive(Clone, Debug, PartialEq)]
pub struct Credential {
    pub id: CredentialId,
    pub role: Role,
    /// The principal of its connections.
    pub name: String,
    pub scopes: Value,
    pub created: Timestamp,
    /// None means that it works until it is revoked.
    pub expires: Option<Timestamp>,
    pub revoked: Option<Timestamp>,
}

impl Credential {
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

/// How a credential ended, if it did. A credential that is gone counts as revoked.
pub(crate) fn end_of(found: Option<&Credential>, now: Timestamp) -> Option<PlanEnd> {
    match found {
        None => Some(PlanEnd::CredentialRevoked),
        Some(one) if one.revoked.is_some() => Some(PlanEnd::CredentialRevoked),
        Some(one) if !one.is_live(now) => Some(PlanEnd::CredentialExpired),
        Some(_) => None,
    }
}

const COLUMNS: &str = "credential_id, role, name, scopes, created, expires, revoked";

pub(crate) fn by_id_sql() -> String {
    format!("SELECT {COLUMNS} FROM credentials WHERE credential_id = $1")
}

pub(crate) fn decode(mut found: FoundRow) -> Result<Credential, StoreFault> {
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
    /// Stores a credential under the digest of its secret.
    pub async fn add_credential(
        &self,
        credential: &Credential,
        secret: Digest,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<LedgerId, StoreFault> {
        let (made, by, id) = (credential.clone(), by.clone(), self.mint(now));
        let scopes = json_text(&made.scopes)?;
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
            let entry = entity_row(&made.id, "add_credential", &by)
                .with_fact("role", made.role.as_str())
                .with_fact("name", made.name.as_str());
            tx.append(&entry, id.clone(), now);
            Ok(id.clone())
        })
        .await
    }

    pub async fn credential(&self, secret: Digest) -> Result<Option<Credential>, StoreFault> {
        let sql = format!("SELECT {COLUMNS} FROM credentials WHERE secret = $1");
        self.read(move |view| view.one(&sql, &cells![secret])?.map(decode).transpose()).await
    }

    pub async fn credentials(&self) -> Result<Vec<Credential>, StoreFault> {
        let sql = format!("SELECT {COLUMNS} FROM credentials ORDER BY credential_id DESC");
        self.read(move |view| view.query(&sql, &[])?.into_iter().map(decode).collect()).await
    }

    /// Revokes a credential and cancels every open plan that was requested with it; none if it does not exist or was revoked before.
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
            tx.append(&entity_row(&credential, "revoke_credential", &by), id.clone(), now);
            decisions::cancel_for_credential(tx, &ids, &credential, now)?;
            Ok(Some(id.clone()))
        })
        .await
    }
}

fn entity_row(credential: &CredentialId, action: &str, by: &PrincipalId) -> Entry {
    Entry::about(RowKind::System, action, "credential", credential).by(by, ActorRole::Human)
}
