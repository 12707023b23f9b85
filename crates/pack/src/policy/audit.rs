//! `policy audit` and `policy lock`: reports where modules come from and pins the policy pack. The audit uses no network.

use std::path::Path;

use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Map, Value, json};

use super::{CONFIG, LockedPack, ORG_LOCKFILE, OrgLock, OrgPolicy, org_lockfile, read_lock};
use crate::error::{PackError, PackResult};
use crate::git::GitRepo;
use crate::lockfile::{self, Lockfile, lock_module};
use crate::manifest::{Module, ModuleSource, ModuleType};
use crate::place::{LOCKFILE, PackEnvironment};
use crate::reply::{PackCommandReply, put_path};
use crate::sources;
use crate::system::{self, FileSystem};

/// The answer of `policy audit`.
pub fn audit(place: &PackEnvironment) -> PackResult<PackCommandReply> {
    let path = place.repo.join(LOCKFILE);
    let lock = sources::lockfile(place)?.ok_or_else(|| lockfile::missing(place))?;
    let modules: Vec<Value> = lock
        .modules
        .iter()
        .map(|module| {
            let bytes: u64 = module.file_manifest.iter().map(|file| file.bytes).sum();
            json!({
                "id": module.id, "type": module.kind, "resolved_source": module.resolved_source,
                "resolved_version": module.resolved_version, "sha256": module.sha256,
                "files": module.file_manifest.len(), "bytes": bytes,
            })
        })
        .collect();
    let mut reply = PackCommandReply::default()
        .with_path("root", &place.repo)
        .with("lockfile", lockfile_facts(&path, &lock))
        .with("modules", modules);
    let mut warnings = Vec::new();
    match read_lock(place) {
        Ok(Some(org)) => {
            let pack = org.policy_pack;
            let bytes: u64 = pack.file_manifest.iter().map(|file| file.bytes).sum();
            let mut facts = Map::new();
            put_path(&mut facts, "lockfile_path", &org_lockfile(place));
            facts.insert(
                "source".into(),
                json!({"git": pack.source.git, "local_path": pack.source.local_path}),
            );
            facts.insert("resolved_source".into(), pack.resolved_source);
            facts.insert("resolved_version".into(), pack.resolved_version.into());
            facts.insert("sha256".into(), pack.sha256.into());
            facts.insert("files".into(), pack.file_manifest.len().into());
            facts.insert("bytes".into(), bytes.into());
            reply = reply.with("org_policy_pack", facts);
        }
        Ok(None) => {}
        Err(stop) => warnings.push(stop.to_string()),
    }
    match since_last(place, &lock) {
        Some(summary) => reply = reply.with("change_summary", summary),
        None if GitRepo::own(place).require_repo("policy audit").is_ok() => {
            warnings.push(format!("the commit before has no `{LOCKFILE}` to compare with"));
        }
        None => {}
    }
    Ok(reply.warn(warnings))
}

fn lockfile_facts(path: &Path, lock: &Lockfile) -> Map<String, Value> {
    let mut facts = Map::new();
    put_path(&mut facts, "lockfile_path", path);
    facts.insert("version".into(), lock.version.into());
    facts.insert("generated_at".into(), lock.generated_at.as_str().into());
    facts.insert("modules".into(), lock.modules.len().into());
    facts
}

/// What differs from the commit before, where git can tell.
fn since_last(place: &PackEnvironment, now: &Lockfile) -> Option<Value> {
    let (ok, text, _) = GitRepo::own(place).try_run(&["show", &format!("HEAD^:./{LOCKFILE}")]).ok()?;
    let before = Lockfile::parse(text.as_bytes(), &place.repo.join(LOCKFILE)).ok().filter(|_| ok)?;
    let mut summary = Map::new();
    let ids = |of: &Lockfile, than: &Lockfile| -> Vec<Value> {
        let only = of.modules.iter().filter(|module| than.module(&module.id).is_none());
        only.map(|module| Value::from(module.id.as_str())).collect()
    };
    let changed: Vec<Value> = now
        .modules
        .iter()
        .filter_map(|module| Some((module, before.module(&module.id)?)))
        .filter(|(module, was)| module.sha256 != was.sha256 || module.resolved_version != was.resolved_version)
        .map(|(module, was)| {
            json!({"id": module.id, "from": was.resolved_version, "to": module.resolved_version, "sha256_from": was.sha256, "sha256_to": module.sha256})
        })
        .collect();
    let commit = GitRepo::own(place).run(&["rev-parse", "HEAD^"]).ok()?;
    summary.insert("base_ref".into(), "HEAD^".into());
    summary.insert("base_commit".into(), commit.trim().into());
    summary.insert("modules_added".into(), ids(now, &before).into());
    summary.insert("modules_removed".into(), ids(&before, now).into());
    summary.insert("modules_changed".into(), changed.into());
    Some(Value::Object(summary))
}

/// Pins the policy pack and answers as `policy lock` does. The same pack gives the same bytes.
pub fn lock(place: &PackEnvironment, system: &dyn FileSystem) -> PackResult<PackCommandReply> {
    let org = OrgPolicy::require(place)?;
    let invalid = |why: String| Refusal::new(Code::PolicyConfigInvalid, format!("`{CONFIG}`: {why}"));
    let pack = org.policy_pack.as_ref().ok_or_else(|| invalid("it names no `policy_pack`".to_owned()))?;
    let source = ModuleSource::parse(&pack.source)
        .map_err(|stop| invalid(stop.to_string()).with("source", pack.source.as_str()))?;
    if let Some(git) = source.git.as_ref().filter(|git| !org.allows(&git.url)) {
        let refusal = invalid("the policy pack comes from a remote that is not allowed".to_owned());
        let allowed = org.supply_chain_policy.allowed_git_remotes.clone();
        return Err(refusal.with("remote", git.url.as_str()).with("allowed_git_remotes", allowed).into());
    }
    let module = Module {
        id: "policy:pack".to_owned(),
        kind: ModuleType::Instructions,
        enabled: true,
        tags: Vec::new(),
        targets: Vec::new(),
        source: source.clone(),
    };
    let pinned = lock_module(place, &module)?;
    let files = pinned.file_manifest.len();
    let lock = OrgLock {
        version: 1,
        policy_pack: LockedPack {
            source,
            resolved_source: pinned.resolved_source,
            resolved_version: pinned.resolved_version.clone(),
            sha256: pinned.sha256.clone(),
            file_manifest: pinned.file_manifest,
        },
    };
    let text = serde_json::to_string_pretty(&lock)
        .map_err(|error| PackError::broken(format!("write `{ORG_LOCKFILE}`"), error))?;
    let path = org_lockfile(place);
    system::write_whole(system, &path, format!("{text}\n").as_bytes())
        .map_err(|error| PackError::io("write", &path, &error))?;
    Ok(PackCommandReply::default()
        .with_path("lockfile_path", &path)
        .with("resolved_version", pinned.resolved_version)
        .with("sha256", pinned.sha256)
        .with("files", files))
}
