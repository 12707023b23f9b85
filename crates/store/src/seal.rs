//! Sealing: plans and grants are stored encrypted (AES-256-GCM) under a key outside the database, each row and column with a key of its
//! own, bound to the row's id. The same file yields the key of digests over redacted values.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use countersign_policy::ids::PlanId;
use countersign_policy::plan::Plan;
use countersign_policy::redact::Redactor;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use serde_json::Value;

use crate::engine::{DatabaseConnection, cells, in_transaction, json_text};
use crate::fault::{FailureScope, FaultKind, StoreFault};
use crate::key_file;
use crate::ledger::with_suffix;
use crate::options::ConnectOptions;
use crate::random;
use crate::url::StoreUrl;

/// What a key file begins with.
const HEAD: &str = "countersign-seal-v1 ";
/// What a sealed text begins with.
const SEALED: &str = "sealed1:";
/// How many plans of an older version are sealed in one transaction.
const STEP: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealedColumn {
    Body,
    Result,
    Grant,
}

impl SealedColumn {
    fn name(self) -> &'static str {
        match self {
            SealedColumn::Body => "plans.body",
            SealedColumn::Result => "plans.result",
            SealedColumn::Grant => "grants.body",
        }
    }
}

pub(crate) struct Seal {
    root: Prk,
    digests: [u8; 32],
}

struct DerivedKeyLength;

impl KeyType for DerivedKeyLength {
    fn len(&self) -> usize {
        32
    }
}

impl Seal {
    fn of(secret: &[u8; 32]) -> Result<Self, StoreFault> {
        let root = Salt::new(HKDF_SHA256, b"countersign/seal/v1").extract(secret);
        let digests = derive(&root, &[b"digests"])?;
        Ok(Self { root, digests })
    }

    /// A seal that is lost with the process.
    pub(crate) fn in_memory() -> Result<Self, StoreFault> {
        Self::of(&key_file::new_secret()?)
    }

    fn read(path: &Path) -> Result<Option<Self>, StoreFault> {
        let Some(text) = key_file::read(path)? else { return Ok(None) };
        Self::of(&key_file::secret(path, HEAD, &text)?).map(Some)
    }

    pub(crate) fn digest_key(&self) -> &[u8] {
        &self.digests
    }

    /// What a store keeps in its database to recognise its key.
    fn check(&self) -> Result<String, StoreFault> {
        Ok(key_file::to_hex(&derive(&self.root, &[b"check"])?))
    }

    fn redactor(&self) -> Redactor {
        Redactor::new(self.digests)
    }

    fn key(&self, plan: &str, column: SealedColumn) -> Result<LessSafeKey, StoreFault> {
        let info = [b"plan".as_slice(), column.name().as_bytes(), plan.as_bytes()];
        let okm = self.root.expand(&info, &AES_256_GCM).map_err(|_| no_key())?;
        Ok(LessSafeKey::new(UnboundKey::from(okm)))
    }

    pub(crate) fn seal(&self, plan: &str, column: SealedColumn, text: &str) -> Result<String, StoreFault> {
        let nonce: [u8; NONCE_LEN] = random::bytes().ok_or_else(no_key)?;
        let mut bytes = text.as_bytes().to_vec();
        self.key(plan, column)?
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(plan), &mut bytes)
            .map_err(|_| no_key())?;
        Ok(format!("{SEALED}{}", STANDARD_NO_PAD.encode([nonce.as_slice(), &bytes].concat())))
    }

    /// Decrypts what was sealed for this plan and column; anything else is a fault.
    pub(crate) fn open(&self, plan: &str, column: SealedColumn, text: &str) -> Result<String, StoreFault> {
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
        let mut kept = serde_json::to_value(plan)
            .map_err(|error| StoreFault::corrupt(format!("a plan has no JSON form: {error}")))?;
        drop_repeated(&mut kept, plan);
        self.seal(plan.id.as_str(), SealedColumn::Body, &json_text(&kept)?)
    }

    pub(crate) fn open_plan(&self, id: &PlanId, body: &str) -> Result<Plan, StoreFault> {
        let text = self.open(id.as_str(), SealedColumn::Body, body)?;
        let bad = |error| StoreFault::corrupt(format!("a kept plan can't be read: {error}"));
        let mut kept: Value = serde_json::from_str(&text).map_err(bad)?;
        let is_as_sent = kept.as_object_mut().and_then(|members| members.remove(SHOWN_AS_SENT)).is_some();
        let mut plan: Plan = serde_json::from_value(kept).map_err(bad)?;
        if let (true, Some(shown)) = (is_as_sent, plan.preview.shown.get_mut(SHOWN)) {
            *shown = Value::Object(plan.arguments.value().clone());
        }
        // A body that was copied into another plan's row must not open.
        if plan.id == *id { Ok(plan) } else { Err(StoreFault::corrupt("a plan stands in another's row")) }
    }

    /// The body of a closed plan without redacted values; none if it has none.
    pub(crate) fn wiped(&self, plan: &Plan) -> Result<Option<String>, StoreFault> {
        plan.wiped(&self.redactor()).map(|wiped| self.seal_plan(&wiped)).transpose()
    }
}

const SHOWN: &str = "arguments";

/// Marks a body whose preview shows the arguments as they are sent. No plan has a member of this name.
const SHOWN_AS_SENT: &str = "shown_as_sent";

/// Drops the arguments from a preview that shows them as they are sent: the plan has them already.
fn drop_repeated(kept: &mut Value, plan: &Plan) {
    let shown = plan.preview.shown.get(SHOWN).and_then(Value::as_object);
    if shown == Some(plan.arguments.value())
        && let Some(place) = kept.pointer_mut("/preview/shown/arguments")
    {
        *place = Value::Null;
        if let Some(members) = kept.as_object_mut() {
            members.insert(SHOWN_AS_SENT.to_owned(), Value::Bool(true));
        }
    }
}

fn derive(root: &Prk, info: &[&[u8]]) -> Result<[u8; 32], StoreFault> {
    let mut out = [0u8; 32];
    root.expand(info, DerivedKeyLength).and_then(|okm| okm.fill(&mut out)).map_err(|_| no_key())?;
    Ok(out)
}

fn no_key() -> StoreFault {
    StoreFault::unavailable("no key to seal with could be made")
}

/// Where the sealing key of a store is; none for a store in memory.
fn seal_path(url: &StoreUrl, options: &ConnectOptions) -> Result<Option<PathBuf>, StoreFault> {
    let named = url.seal_key().or_else(|| options.seal_file.clone());
    match (url, named, &options.key_file) {
        (StoreUrl::Memory, _, _) => Ok(None),
        (StoreUrl::Sqlite(_) | StoreUrl::Postgres(_), Some(path), _) => Ok(Some(path)),
        (StoreUrl::Sqlite(path), None, _) => Ok(Some(with_suffix(path, ".seal"))),
        (StoreUrl::Postgres(_), None, Some(key)) => Ok(Some(with_suffix(key, ".seal"))),
        (StoreUrl::Postgres(_), None, None) => {
            let inside =
                "plans are kept sealed, and no key file is named: add `sealkey=FILE` to the store's address";
            Err(StoreFault::new(FaultKind::Key, FailureScope::Statement, inside))
        }
    }
}

/// The seal of a store that is opened for writing. Its key is created once, with the store; a store is never opened with another key, and a
/// lost key is never replaced.
pub(crate) fn load_or_create(
    engine: &mut dyn DatabaseConnection,
    url: &StoreUrl,
    options: &ConnectOptions,
) -> Result<Seal, StoreFault> {
    let Some(path) = seal_path(url, options)? else { return Seal::in_memory() };
    // Read the check before the file. Another process that starts now creates the file first and the check after it, so a check without a
    // file means that the file is lost, never that it is about to appear.
    let kept = stored_check(engine)?;
    let found = match (Seal::read(&path)?, kept) {
        (None, None) => {
            key_file::make(&path, HEAD)?;
            Seal::read(&path)?
        }
        (found, _) => found,
    };
    let Some(seal) = found else {
        let why = "it is missing, and plans of this store can't be read without it; restore it, or copy it from \
                   another machine that uses this store";
        return Err(key_file::unusable(&path, &why));
    };
    let kept = in_transaction(engine, options.writer.as_str(), |engine| {
        engine.execute(
            "INSERT INTO meta (name, value) VALUES ('seal', $1) ON CONFLICT (name) DO NOTHING",
            &cells![seal.check()?],
        )?;
        stored_check(engine)
    })?;
    check_key(&seal, kept, &path)?;
    seal_old(engine, &seal, options)?;
    seal_old_grants(engine, &seal, options)?;
    Ok(seal)
}

/// The seal of a store that is opened for reading; none if the key can't be read, which only plans need.
pub(crate) fn load(
    engine: &mut dyn DatabaseConnection,
    url: &StoreUrl,
    options: &ConnectOptions,
) -> Option<Seal> {
    let path = seal_path(url, options).ok()??;
    let seal = Seal::read(&path).ok()??;
    let kept = stored_check(engine).ok()?;
    check_key(&seal, kept, &path).ok()?;
    Some(seal)
}

fn stored_check(engine: &mut dyn DatabaseConnection) -> Result<Option<String>, StoreFault> {
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

/// Seals the plans that an earlier version stored in the clear, once, and wipes the closed ones.
fn seal_old(
    engine: &mut dyn DatabaseConnection,
    seal: &Seal,
    options: &ConnectOptions,
) -> Result<(), StoreFault> {
    let sql = "SELECT value FROM meta WHERE name = 'plans_sealed'";
    if !engine.query(sql, &[])?.is_empty() {
        return Ok(());
    }
    let mut after = Some(String::new());
    while let Some(last) = after {
        after = in_transaction(engine, options.writer.as_str(), |engine| seal_step(engine, seal, &last))?;
    }
    Ok(())
}

/// Seals the grants that an earlier version stored in the clear, once.
fn seal_old_grants(
    engine: &mut dyn DatabaseConnection,
    seal: &Seal,
    options: &ConnectOptions,
) -> Result<(), StoreFault> {
    if !engine.query("SELECT value FROM meta WHERE name = 'grants_sealed'", &[])?.is_empty() {
        return Ok(());
    }
    in_transaction(engine, options.writer.as_str(), |engine| {
        let clear = format!("SELECT grant_id, body FROM grants WHERE body NOT LIKE '{SEALED}%'");
        for mut found in engine.query(&clear, &[])? {
            let (id, body) = (found.text()?, found.text()?);
            let sealed = seal.seal(&id, SealedColumn::Grant, &body)?;
            let sql = "UPDATE grants SET body = $1 WHERE grant_id = $2 AND body = $3";
            engine.execute(sql, &cells![sealed, id, body])?;
        }
        let sql =
            "INSERT INTO meta (name, value) VALUES ('grants_sealed', '1') ON CONFLICT (name) DO NOTHING";
        engine.execute(sql, &[]).map(drop)
    })
}

/// Seals the next plans; returns the last of them, none at the end.
fn seal_step(
    engine: &mut dyn DatabaseConnection,
    seal: &Seal,
    after: &str,
) -> Result<Option<String>, StoreFault> {
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
            let sealed = wiped.map_or_else(|| seal.seal(&id, SealedColumn::Body, &body), Ok)?;
            engine.execute(
                "UPDATE plans SET body = $1 WHERE plan_id = $2 AND body = $3",
                &cells![sealed, id.as_str(), body.as_str()],
            )?;
        }
        if let Some(result) = result.filter(|result| !result.starts_with(SEALED)) {
            let sealed = seal.seal(&id, SealedColumn::Result, &result)?;
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
    use crate::engine::{ConnectionFactory as _, ScriptedConnection, SqliteHome};

    fn connect(path: &Path, instance: &str) -> Box<dyn DatabaseConnection> {
        let home = SqliteHome::file(path, instance, None, std::time::Duration::from_secs(5)).unwrap();
        let mut engine = home.writer(instance).unwrap();
        crate::migrate::migrate(engine.as_mut(), jiff::Timestamp::UNIX_EPOCH).unwrap();
        engine
    }

    /// Another process creates the key file and the check right before, or right after, this one reads the check.
    #[test]
    fn a_key_that_another_process_creates_meanwhile_is_used() {
        for is_before in [true, false] {
            let room = tempfile::tempdir().unwrap();
            let path = room.path().join("store.db");
            let (url, options) = (StoreUrl::file(&path), ConnectOptions::default());
            let (other_url, other_options) = (url.clone(), options.clone());
            let mut other = Some(connect(&path, "other"));
            let theirs = std::sync::Arc::new(std::sync::Mutex::new(None));
            let slot = std::sync::Arc::clone(&theirs);
            let mut run_other = move || {
                if let Some(mut other) = other.take() {
                    let made = load_or_create(other.as_mut(), &other_url, &other_options).unwrap();
                    *slot.lock().unwrap() = Some(made.check().unwrap());
                }
            };
            let mut own =
                ScriptedConnection::new(connect(&path, "own")).on_query(move |engine, sql, values| {
                    if is_before {
                        run_other();
                    }
                    let found = engine.query(sql, values);
                    run_other();
                    found
                });
            let seal = load_or_create(&mut own, &url, &options).map_err(|fault| fault.inside()).unwrap();
            assert_eq!(Some(seal.check().unwrap()), theirs.lock().unwrap().take(), "before: {is_before}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn attack_12_a_sealing_key_is_private_or_refused() {
        use std::fs::{Permissions, metadata, set_permissions};
        use std::os::unix::fs::PermissionsExt as _;
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("store.db.seal");
        key_file::make(&path, HEAD).unwrap();
        assert_eq!(metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Seal::read(&path).unwrap().is_some());
        set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
        assert_eq!(Seal::read(&path).err().unwrap().kind(), FaultKind::Key);
    }

    #[test]
    fn attack_12_a_sealed_text_opens_only_where_it_was_sealed() {
        let seal = Seal::in_memory().unwrap();
        let sealed = seal.seal("pln_a", SealedColumn::Body, "secret").unwrap();
        assert!(!sealed.contains("secret") && sealed.starts_with(SEALED));
        assert_eq!(seal.open("pln_a", SealedColumn::Body, &sealed).unwrap(), "secret");
        assert_ne!(
            sealed,
            seal.seal("pln_a", SealedColumn::Body, "secret").unwrap(),
            "equal texts are told apart"
        );
        assert!(seal.open("pln_b", SealedColumn::Body, &sealed).is_err(), "of another plan");
        assert!(seal.open("pln_a", SealedColumn::Result, &sealed).is_err(), "of another column");
        assert!(
            Seal::in_memory().unwrap().open("pln_a", SealedColumn::Body, &sealed).is_err(),
            "by another key"
        );
        assert!(seal.open("pln_a", SealedColumn::Body, "{}").is_err(), "in the clear");
        let mut bent = sealed.clone().into_bytes();
        let middle = bent.len() / 2;
        bent[middle] = if bent[middle] == b'A' { b'B' } else { b'A' };
        assert!(seal.open("pln_a", SealedColumn::Body, &String::from_utf8(bent).unwrap()).is_err());
    }
}
