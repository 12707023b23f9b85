//! Sealing: what plans hold is kept encrypted (AES-256-GCM) under a key outside the database, each plan and column with a key of its
//! own, bound to the plan's id. From the same file comes the key of digests over values that records must not show.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use countersign_core::ids::PlanId;
use countersign_core::plan::Plan;
use countersign_core::redact::Redactor;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use crate::chance;
use crate::engine::{Engine, cells, json_text};
use crate::fault::{FaultKind, Hurt, StoreFault};
use crate::key_file;
use crate::ledger::beside;
use crate::options::ConnectOptions;
use crate::url::StoreUrl;

/// What a key file begins with.
const HEAD: &str = "countersign-seal-v1 ";
/// What a sealed text begins with.
const SEALED: &str = "sealed1:";
/// How many plans of an older version are sealed in one transaction.
const STEP: usize = 200;

/// Which column of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Body,
    Result,
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Column::Body => "plans.body",
            Column::Result => "plans.result",
        }
    }
}

/// The keys of one store's plans.
pub(crate) struct Seal {
    root: Prk,
    digests: [u8; 32],
}

/// The length of a key that is not for sealing.
struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        32
    }
}

impl Seal {
    /// From a secret.
    fn of(secret: &[u8; 32]) -> Result<Self, StoreFault> {
        let root = Salt::new(HKDF_SHA256, b"countersign/seal/v1").extract(secret);
        let digests = derive(&root, &[b"digests"])?;
        Ok(Self { root, digests })
    }

    /// A seal that is gone with the process.
    pub(crate) fn fleeting() -> Result<Self, StoreFault> {
        Self::of(&key_file::new_secret()?)
    }

    fn read(path: &Path) -> Result<Option<Self>, StoreFault> {
        let Some(text) = key_file::read(path)? else { return Ok(None) };
        Self::of(&key_file::secret(path, HEAD, &text)?).map(Some)
    }

    /// The key of digests.
    pub(crate) fn digest_key(&self) -> &[u8] {
        &self.digests
    }

    /// What a store keeps to tell its key from another.
    fn check(&self) -> Result<String, StoreFault> {
        Ok(key_file::to_hex(&derive(&self.root, &[b"check"])?))
    }

    fn redactor(&self) -> Redactor {
        Redactor::new(self.digests)
    }

    fn key(&self, plan: &str, column: Column) -> Result<LessSafeKey, StoreFault> {
        let info = [b"plan".as_slice(), column.name().as_bytes(), plan.as_bytes()];
        let okm = self.root.expand(&info, &AES_256_GCM).map_err(|_| no_key())?;
        Ok(LessSafeKey::new(UnboundKey::from(okm)))
    }

    /// Seals a text of a plan.
    pub(crate) fn seal(&self, plan: &str, column: Column, text: &str) -> Result<String, StoreFault> {
        let nonce: [u8; NONCE_LEN] = chance::bytes().ok_or_else(no_key)?;
        let mut bytes = text.as_bytes().to_vec();
        self.key(plan, column)?
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(plan), &mut bytes)
            .map_err(|_| no_key())?;
        Ok(format!("{SEALED}{}", STANDARD_NO_PAD.encode([nonce.as_slice(), &bytes].concat())))
    }

    /// Opens what was sealed for this plan and column; anything else is a fault.
    pub(crate) fn open(&self, plan: &str, column: Column, text: &str) -> Result<String, StoreFault> {
        let bad = || StoreFault::corrupt(format!("{} of `{plan}` is not what was sealed", column.name()));
        let body = text.strip_prefix(SEALED).ok_or_else(bad)?;
        let bytes = STANDARD_NO_PAD.decode(body).map_err(|_| bad())?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>().ok_or_else(bad)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.key(plan, column)?.open_in_place(nonce, Aad::from(plan), &mut sealed);
        String::from_utf8(opened.map_err(|_| bad())?.to_vec()).map_err(|_| bad())
    }

    /// A plan as its row keeps it.
    pub(crate) fn seal_plan(&self, plan: &Plan) -> Result<String, StoreFault> {
        self.seal(plan.id.as_str(), Column::Body, &json_text(plan)?)
    }

    /// The plan of a row.
    pub(crate) fn open_plan(&self, id: &PlanId, body: &str) -> Result<Plan, StoreFault> {
        let text = self.open(id.as_str(), Column::Body, body)?;
        let plan: Plan = serde_json::from_str(&text)
            .map_err(|error| StoreFault::corrupt(format!("a kept plan can't be read: {error}")))?;
        // A joined call's plan has the id of the plan it joined, and no row of its own.
        if plan.id == *id { Ok(plan) } else { Err(StoreFault::corrupt("a plan stands in another's row")) }
    }

    /// The body of a plan that is closed: without what records must not show. None where it stays as it is.
    pub(crate) fn wiped(&self, plan: &Plan) -> Result<Option<String>, StoreFault> {
        plan.wiped(&self.redactor()).map(|wiped| self.seal_plan(&wiped)).transpose()
    }
}

fn derive(root: &Prk, info: &[&[u8]]) -> Result<[u8; 32], StoreFault> {
    let mut out = [0u8; 32];
    root.expand(info, Length).and_then(|okm| okm.fill(&mut out)).map_err(|_| no_key())?;
    Ok(out)
}

fn no_key() -> StoreFault {
    StoreFault::unavailable("no key to seal with could be made")
}

/// Where the sealing key of a store is; none where it is gone with its process.
fn seal_path(url: &StoreUrl, options: &ConnectOptions) -> Result<Option<PathBuf>, StoreFault> {
    let named = url.seal_key().or_else(|| options.seal_file.clone());
    match (url, named, &options.key_file) {
        (StoreUrl::Memory, _, _) => Ok(None),
        (StoreUrl::Sqlite(_) | StoreUrl::Postgres(_), Some(path), _) => Ok(Some(path)),
        (StoreUrl::Sqlite(path), None, _) => Ok(Some(beside(path, ".seal"))),
        (StoreUrl::Postgres(_), None, Some(key)) => Ok(Some(beside(key, ".seal"))),
        (StoreUrl::Postgres(_), None, None) => {
            let inside =
                "plans are kept sealed, and no key file is named: add `sealkey=FILE` to the store's address";
            Err(StoreFault::new(FaultKind::Key, Hurt::Statement, inside))
        }
    }
}

/// The seal of a store that is opened to write. Its key is made once, with the store; a store that has one is not opened with another,
/// and never gets a new one in its place.
pub(crate) fn settle(
    engine: &mut dyn Engine,
    url: &StoreUrl,
    options: &ConnectOptions,
) -> Result<Seal, StoreFault> {
    let Some(path) = seal_path(url, options)? else { return Seal::fleeting() };
    let found = match Seal::read(&path)? {
        Some(found) => Some(found),
        None if kept_check(engine)?.is_some() => None,
        None => {
            key_file::make(&path, HEAD)?;
            Seal::read(&path)?
        }
    };
    let Some(seal) = found else {
        let why = "it is missing, and plans of this store can't be read without it; restore it, or copy it from \
                   another machine that uses this store";
        return Err(key_file::unusable(&path, &why));
    };
    engine.begin(options.writer.as_str())?;
    let mut keep = || {
        engine.execute(
            "INSERT INTO meta (name, value) VALUES ('seal', $1) ON CONFLICT (name) DO NOTHING",
            &cells![seal.check()?],
        )?;
        kept_check(engine)
    };
    let kept = match keep() {
        Ok(kept) => {
            engine.commit()?;
            kept
        }
        Err(fault) => {
            engine.rollback();
            return Err(fault);
        }
    };
    check_key(&seal, kept, &path)?;
    seal_old(engine, &seal, options)?;
    Ok(seal)
}

/// The seal of a store that is opened to read: none where the key can't be read, which only plans need.
pub(crate) fn look(engine: &mut dyn Engine, url: &StoreUrl, options: &ConnectOptions) -> Option<Seal> {
    let path = seal_path(url, options).ok()??;
    let seal = Seal::read(&path).ok()??;
    let kept = kept_check(engine).ok()?;
    check_key(&seal, kept, &path).ok()?;
    Some(seal)
}

fn kept_check(engine: &mut dyn Engine) -> Result<Option<String>, StoreFault> {
    let found = engine.query("SELECT value FROM meta WHERE name = 'seal'", &[])?.pop();
    found.map(|mut found| found.text()).transpose()
}

fn check_key(seal: &Seal, kept: Option<String>, path: &Path) -> Result<(), StoreFault> {
    if kept == Some(seal.check()?) {
        return Ok(());
    }
    let why = "it is not the key that this store's plans were sealed with; restore that one, or copy it from \
               another machine that uses this store";
    Err(key_file::unusable(path, &why))
}

/// Seals what a version before left in the clear, once; closed plans are wiped at the same time.
fn seal_old(engine: &mut dyn Engine, seal: &Seal, options: &ConnectOptions) -> Result<(), StoreFault> {
    let sql = "SELECT value FROM meta WHERE name = 'plans_sealed'";
    if !engine.query(sql, &[])?.is_empty() {
        return Ok(());
    }
    let mut after = String::new();
    loop {
        engine.begin(options.writer.as_str())?;
        match seal_step(engine, seal, &after) {
            Ok(Some(last)) => after = last,
            Ok(None) => return engine.commit(),
            Err(fault) => {
                engine.rollback();
                return Err(fault);
            }
        }
        engine.commit()?;
    }
}

/// Seals the next plans; the last of them, none at the end.
fn seal_step(engine: &mut dyn Engine, seal: &Seal, after: &str) -> Result<Option<String>, StoreFault> {
    let sql = format!(
        "SELECT plan_id, state, body, result FROM plans WHERE plan_id > $1 ORDER BY plan_id LIMIT {STEP}"
    );
    let mut last = None;
    for mut found in engine.query(&sql, &cells![after])? {
        let (id, state, body, result) = (found.text()?, found.text()?, found.text()?, found.maybe_text()?);
        let open = matches!(state.as_str(), "pending" | "approved" | "executing");
        if !body.starts_with(SEALED) {
            let wiped = match serde_json::from_str::<Plan>(&body) {
                Ok(plan) if !open => seal.wiped(&plan)?,
                Ok(_) | Err(_) => None,
            };
            let sealed = wiped.map_or_else(|| seal.seal(&id, Column::Body, &body), Ok)?;
            engine.execute(
                "UPDATE plans SET body = $1 WHERE plan_id = $2 AND body = $3",
                &cells![sealed, id.as_str(), body.as_str()],
            )?;
        }
        if let Some(result) = result.filter(|result| !result.starts_with(SEALED)) {
            let sealed = seal.seal(&id, Column::Result, &result)?;
            engine.execute(
                "UPDATE plans SET result = $1 WHERE plan_id = $2 AND result = $3",
                &cells![sealed, id.as_str(), result],
            )?;
        }
        last = Some(id);
    }
    if last.is_none() {
        engine.execute(
            "INSERT INTO meta (name, value) VALUES ('plans_sealed', '1') ON CONFLICT (name) DO NOTHING",
            &[],
        )?;
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_12_a_sealed_text_opens_only_where_it_was_sealed() {
        let seal = Seal::fleeting().unwrap();
        let sealed = seal.seal("pln_a", Column::Body, "secret").unwrap();
        assert!(!sealed.contains("secret") && sealed.starts_with(SEALED));
        assert_eq!(seal.open("pln_a", Column::Body, &sealed).unwrap(), "secret");
        assert_ne!(sealed, seal.seal("pln_a", Column::Body, "secret").unwrap(), "equal texts are told apart");
        assert!(seal.open("pln_b", Column::Body, &sealed).is_err(), "of another plan");
        assert!(seal.open("pln_a", Column::Result, &sealed).is_err(), "of another column");
        assert!(Seal::fleeting().unwrap().open("pln_a", Column::Body, &sealed).is_err(), "by another key");
        assert!(seal.open("pln_a", Column::Body, "{}").is_err(), "in the clear");
        let mut bent = sealed.clone().into_bytes();
        let middle = bent.len() / 2;
        bent[middle] = if bent[middle] == b'A' { b'B' } else { b'A' };
        assert!(seal.open("pln_a", Column::Body, &String::from_utf8(bent).unwrap()).is_err());
    }
}
