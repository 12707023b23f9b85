//! Sign-in to the page: one-time codes, page sessions, pass phrases, and the page's address. Only digests are stored. Ensures that a code is
//! used once; does not decide what a person may do.

use countersign_policy::digest::{Digest, DigestDomain};
use countersign_policy::ids::{CredentialId, PrincipalId, Secret};
use countersign_policy::record::{RowKind, Source};
use countersign_policy::role::Role;
use jiff::Timestamp;

use crate::Store;
use crate::credentials::{self, Credential};
use crate::engine::cells;
use crate::fault::StoreFault;
use crate::ledger::Entry;
use crate::writer::Tx;

/// How a one-time code is stored.
pub fn sign_in_digest(code: &Secret) -> Digest {
    Digest::of(DigestDomain::SignIn, code.expose().as_bytes())
}

/// How a page session is stored.
pub fn session_digest(session: &Secret) -> Digest {
    Digest::of(DigestDomain::PageSession, session.expose().as_bytes())
}

/// The proof that the page sends with every change besides its cookie, against cross-site requests.
pub fn page_proof(session: &Secret) -> String {
    Digest::of(DigestDomain::PageProof, session.expose().as_bytes()).hex()
}

#[derive(Clone, Debug, PartialEq)]
pub struct DeskSession {
    pub credential: Credential,
    pub created: Timestamp,
    pub expires: Timestamp,
}

impl Store {
    /// Stores a one-time sign-in code of a person.
    pub async fn add_sign_in(
        &self,
        code: Digest,
        credential: &Credential,
        expires: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        let (made, id) = (credential.clone(), self.mint(now));
        self.write(move |tx| {
            tx.execute("DELETE FROM desk_codes WHERE expires < $1", &cells![now])?;
            tx.execute(
                "INSERT INTO desk_codes (code, credential_id, expires) VALUES ($1, $2, $3)",
                &cells![code, made.id.as_str(), expires],
            )?;
            tx.append(&entity_row(&made, "sign_in_link", Source::Cli), id.clone(), now);
            Ok(())
        })
        .await
    }

    /// Exchanges a one-time code for a session; none if the code is unknown, used or expired, or if its person may no longer sign in.
    ///
    /// INVARIANT (races end in SQL): of all who present a code, one gets a session.
    pub async fn take_sign_in(
        &self,
        code: Digest,
        session: Digest,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Credential>, StoreFault> {
        let id = self.mint(now);
        self.write(move |tx| {
            let taken = tx.one(
                "UPDATE desk_codes SET used = $1 WHERE code = $2 AND used IS NULL AND expires > $1
                  RETURNING credential_id",
                &cells![now, code],
            )?;
            let Some(mut taken) = taken else { return Ok(None) };
            let credential = CredentialId::new(taken.text()?);
            let Some(credential) = live_person(tx, &credential, now)? else { return Ok(None) };
            open(tx, &credential, session, until, now)?;
            tx.append(&entity_row(&credential, "sign_in", Source::Page), id.clone(), now);
            Ok(Some(credential))
        })
        .await
    }

    /// Opens a session for a person who was authenticated in another way, named by `how`.
    pub async fn open_desk_session(
        &self,
        credential: &CredentialId,
        how: &'static str,
        session: Digest,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Credential>, StoreFault> {
        let (credential, id) = (credential.clone(), self.mint(now));
        self.write(move |tx| {
            let Some(credential) = live_person(tx, &credential, now)? else { return Ok(None) };
            open(tx, &credential, session, until, now)?;
            let entry = entity_row(&credential, "sign_in", Source::Page).with_fact("with", how);
            tx.append(&entry, id.clone(), now);
            Ok(Some(credential))
        })
        .await
    }

    /// The session of a digest, if it is open and its credential is live and a person's.
    pub async fn desk_session(
        &self,
        session: Digest,
        now: Timestamp,
    ) -> Result<Option<DeskSession>, StoreFault> {
        self.read(move |view| {
            let found = view.one(
                "SELECT credential_id, created, expires FROM desk_sessions
                  WHERE session = $1 AND ended IS NULL AND expires > $2",
                &cells![session, now],
            )?;
            let Some(mut found) = found else { return Ok(None) };
            let (id, created, expires) = (found.text()?, found.time()?, found.time()?);
            let credential = view.one(&credentials::by_id_sql(), &cells![id])?;
            let credential = credential.map(credentials::decode).transpose()?;
            let live = credential.filter(|one| one.is_live(now) && one.role == Role::Human);
            Ok(live.map(|credential| DeskSession { credential, created, expires }))
        })
        .await
    }

    /// Ends a session; false if it was not open.
    pub async fn end_desk_session(&self, session: Digest, now: Timestamp) -> Result<bool, StoreFault> {
        let sql = "UPDATE desk_sessions SET ended = $1 WHERE session = $2 AND ended IS NULL";
        Ok(self.execute(sql, cells![now, session]).await? > 0)
    }

    /// Stores the Argon2id hash of a person's pass phrase and replaces an earlier one.
    pub async fn set_phrase(
        &self,
        credential: &Credential,
        hash: String,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        let (owner, id) = (credential.clone(), self.mint(now));
        self.write(move |tx| {
            tx.execute(
                "INSERT INTO desk_phrases (credential_id, hash, changed) VALUES ($1, $2, $3)
                 ON CONFLICT (credential_id) DO UPDATE SET hash = excluded.hash, changed = excluded.changed",
                &cells![owner.id.as_str(), hash.as_str(), now],
            )?;
            tx.append(&entity_row(&owner, "set_passphrase", Source::Page), id.clone(), now);
            Ok(())
        })
        .await
    }

    /// The pass phrase hashes of live people of a name.
    pub async fn phrases(
        &self,
        name: &PrincipalId,
        now: Timestamp,
    ) -> Result<Vec<(CredentialId, String)>, StoreFault> {
        let values = cells![name.as_str(), now];
        self.read(move |view| {
            let found = view.query(
                "SELECT p.credential_id, p.hash FROM desk_phrases p
                   JOIN credentials c ON c.credential_id = p.credential_id
                  WHERE c.name = $1 AND c.role = 'human' AND c.revoked IS NULL
                    AND (c.expires IS NULL OR c.expires > $2)
                  ORDER BY p.credential_id",
                &values,
            )?;
            found.into_iter().map(|mut found| Ok((found.text()?.into(), found.text()?))).collect()
        })
        .await
    }

    /// Stores the address of the page, for `countersign open`.
    pub async fn set_desk_url(&self, url: &str) -> Result<(), StoreFault> {
        let sql = "INSERT INTO meta (name, value) VALUES ('desk_url', $1)
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.execute(sql, cells![url]).await.map(drop)
    }

    pub async fn desk_url(&self) -> Result<Option<String>, StoreFault> {
        self.read(|view| {
            let found = view.one("SELECT value FROM meta WHERE name = 'desk_url'", &[])?;
            found.map(|mut found| found.text()).transpose()
        })
        .await
    }
}

fn live_person(
    tx: &mut Tx<'_>,
    credential: &CredentialId,
    now: Timestamp,
) -> Result<Option<Credential>, StoreFault> {
    let found = tx.one(&credentials::by_id_sql(), &cells![credential.as_str()])?;
    let found = found.map(credentials::decode).transpose()?;
    Ok(found.filter(|one| one.is_live(now) && one.role == Role::Human))
}

fn open(
    tx: &mut Tx<'_>,
    credential: &Credential,
    session: Digest,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), StoreFault> {
    tx.execute("DELETE FROM desk_sessions WHERE expires < $1", &cells![now])?;
    tx.execute(
        "INSERT INTO desk_sessions (session, credential_id, created, expires) VALUES ($1, $2, $3, $4)",
        &cells![session, credential.id.as_str(), now, until],
    )
    .map(drop)
}

fn entity_row(credential: &Credential, action: &str, source: Source) -> Entry {
    let name = PrincipalId::new(credential.name.as_str());
    let entry = Entry::about(RowKind::System, action, "credential", &credential.id);
    Entry { source: Some(source), ..entry.by(&name, credential.role.into()) }
}
