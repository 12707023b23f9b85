//! `policy audit` and `policy lock`: reports where modules come from and pins the policy pack. The audit uses no network.

use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Map, Value, json};

use super::{CONFIG, LockedPack, ORG_LOCKFILE, OrgLock, OrgPolicy, org_lockfile, read_lock};
use crate::error::{PackError, PackResult, shown};
use crate::git::GitRepo;
use crate::lockfile::{Lockfile, lock_module};
use crate::manifest::{Module, ModuleSource, ModuleType};
use crate::place::{LOCKFILE, PackEnvironment};
use crate::reply::PackCommandReply;
use crate::sources;
use crate::system::{self, FileSystem};

/// The answer of `policy audit`.
pub fn audit(place: &PackEnvironment) -> PackResult<PackCommandReply> {
    let path = place.repo.join(LOCKFILE);
    let lock = sources::lockfile(place)?.ok_or_else(|| {
        let message = format!("there is no `{LOCKFILE}` in `{}`", shown(&place.repo));
        PackError::from(Refusal::new(Code::LockfileMissing, message))
    })?;
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
        .with_path("lockfile", &path)
        .with("modules", modules);
    let mut warnings = Vec::new();
    match read_lock(place) {
        Ok(Some(org)) => {
            let pack = org.policy_pack;
            let facts = json!({
                "source": pack.source, "resolved_source": pack.resolved_source, "resolved_version": pack.resolved_version,
                "sha256": pack.sha256, "files": pack.file_manifest.len(),
            });
            reply = reply.with("org_policy_pack", facts);
        }
        Ok(None) => {}
        Err(stop) => warnings.push(stop.to_string()),
    }
    if let Some(summary) = since_last(place, &lock) {
        reply = reply.with("change_summary", summary);
    }
    Ok(reply.warn(warnings))
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
    summary.insert("base_ref".into(), "HEAD^".into());
    summary.insert("added".into(), ids(now, &before).into());
    summary.insert("removed".into(), ids(&before, now).into());
    summary.insert("changed".into(), changed.into());
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
