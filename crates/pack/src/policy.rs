//! An organisation's rules for its config repo, `agentpack.org.yaml`: `lint` checks, `audit` reports, `lock` pins the policy pack.
//! Changes nothing deployed.

mod audit;
mod lint;

use std::path::PathBuf;

use countersign_policy::refusal::{Code, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use audit::{audit, lock};
pub use lint::lint;

use crate::error::{PackError, PackResult, shown};
use crate::lockfile::LockedFile;
use crate::manifest::ModuleSource;
use crate::place::{PackEnvironment, normal_url};
use crate::system::{self, RealFileSystem};

pub const CONFIG: &str = "agentpack.org.yaml";
pub(crate) const ORG_LOCKFILE: &str = "agentpack.org.lock.json";

/// The commands that change something, and need `--yes` where a program calls them. In the original's order.
pub const MUTATING: [&str; 19] = [
    "init",
    "import --apply",
    "add",
    "remove",
    "lock",
    "fetch",
    "update",
    "deploy --apply",
    "rollback",
    "bootstrap",
    "doctor --fix",
    "overlay edit",
    "overlay rebase",
    "remote set",
    "sync",
    "record",
    "evolve propose",
    "evolve restore",
    "policy lock",
];

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct OrgPolicy {
    #[serde(default)]
    pub policy_pack: Option<PolicyPack>,
    /// What every repo must have.
    #[serde(default)]
    pub distribution_policy: DistributionPolicy,
    #[serde(default)]
    pub supply_chain_policy: SupplyChain,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PolicyPack {
    /// `local:PATH` or `git:URL…`.
    pub source: String,
}

/// What every repo must have.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct DistributionPolicy {
    /// Targets that must be configured.
    #[serde(default)]
    pub required_targets: Vec<String>,
    /// Modules that must be there and enabled.
    #[serde(default)]
    pub required_modules: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SupplyChain {
    /// The beginnings of remotes that may be used; empty means any.
    #[serde(default)]
    pub allowed_git_remotes: Vec<String>,
    /// Whether modules from git must be pinned.
    #[serde(default)]
    pub require_lockfile: bool,
}

/// `agentpack.org.lock.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OrgLock {
    /// Always 1.
    pub version: u32,
    pub policy_pack: LockedPack,
}

/// A pack of rules as it is pinned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LockedPack {
    pub source: ModuleSource,
    /// With the commit.
    pub resolved_source: Value,
    /// `local`, or the commit.
    pub resolved_version: String,
    /// Over all of its files.
    pub sha256: String,
    pub file_manifest: Vec<LockedFile>,
}

impl OrgPolicy {
    /// The configuration of the repo, if there is one.
    pub(crate) fn load(place: &PackEnvironment) -> PackResult<Option<Self>> {
        let path = place.repo.join(CONFIG);
        let read = system::read_if_there(&RealFileSystem, &path, 16 << 20);
        let Some(bytes) = read.map_err(|error| PackError::io("read", &path, &error))? else {
            return Ok(None);
        };
        let invalid = |why: String| {
            let refusal = Refusal::new(Code::PolicyConfigInvalid, format!("`{}`: {why}", shown(&path)));
            PackError::from(refusal.with("path", shown(&path)).with("error", why))
        };
        let text = String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8 text".to_owned()))?;
        let said = |error: serde_saphyr::Error| {
            invalid(error.without_snippet().to_string().lines().next().unwrap_or_default().to_owned())
        };
        let loose: Value = serde_saphyr::from_str(&text).map_err(said)?;
        match loose.get("version").and_then(Value::as_u64) {
            Some(1) => {}
            Some(other) => {
                let message = format!("`{}` has version {other}; this program reads version 1", shown(&path));
                let refusal = Refusal::new(Code::PolicyConfigUnsupportedVersion, message);
                let refusal = refusal.with("path", shown(&path)).with("version", other);
                return Err(refusal.with("supported", vec![1]).into());
            }
            None => return Err(invalid("`version: 1` is missing".to_owned())),
        }
        serde_saphyr::from_str(&text).map(Some).map_err(said)
    }

    /// The configuration, which must be there.
    pub(crate) fn require(place: &PackEnvironment) -> PackResult<Self> {
        Self::load(place)?.ok_or_else(|| {
            let message = format!("there is no `{CONFIG}` in `{}`", shown(&place.repo));
            let refusal = Refusal::new(Code::PolicyConfigMissing, message);
            let refusal = refusal.with("path", shown(&place.repo.join(CONFIG)));
            refusal.with("hint", format!("write `{CONFIG}` into the config repo")).into()
        })
    }

    pub(crate) fn allows(&self, url: &str) -> bool {
        let allowed = &self.supply_chain_policy.allowed_git_remotes;
        allowed.is_empty() || allowed.iter().any(|entry| covers(entry, url))
    }
}

/// A remote without scheme, user and ending.
fn remote_name(url: &str) -> String {
    let plain = normal_url(url);
    let (host, rest) = plain.split_once('/').unwrap_or((&plain, ""));
    let host = host.rsplit('@').next().unwrap_or(host);
    if rest.is_empty() { host.to_owned() } else { format!("{host}/{rest}") }
}

/// Whether an entry of the list covers a remote: the same, or a folder above it. `acme` does not cover `acme-evil`.
fn covers(entry: &str, url: &str) -> bool {
    let (entry, url) = (remote_name(entry), remote_name(url));
    let leads_up = url.split('/').any(|part| part == ".." || part == ".");
    !entry.is_empty() && !leads_up && (url == entry || url.starts_with(&format!("{entry}/")))
}

fn org_lockfile(place: &PackEnvironment) -> PathBuf {
    place.repo.join(ORG_LOCKFILE)
}

fn read_lock(place: &PackEnvironment) -> PackResult<Option<OrgLock>> {
    let path = org_lockfile(place);
    let read = system::read_if_there(&RealFileSystem, &path, 256 << 20);
    let Some(bytes) = read.map_err(|error| PackError::io("read", &path, &error))? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        PackError::refused(Code::PolicyConfigInvalid, format!("`{}` can't be read: {error}", shown(&path)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_is_covered_by_what_is_above_it_and_nothing_else() {
        for (entry, url, expect) in [
            ("github.com/acme/", "https://github.com/acme/x.git", true),
            ("github.com/acme", "git@github.com:Acme/x.git", true),
            ("https://github.com/acme/x", "ssh://git@github.com/acme/x.git", true),
            ("github.com/acme", "https://user:pw@github.com/acme/x", true),
            ("github.com/acme", "https://github.com/acme-evil/x", false),
            ("github.com/acme", "https://evil.com/github.com/acme/x", false),
            ("github.com/acme", "https://github.com@evil.com/acme/x", false),
            ("github.com/acme", "https://github.com/acme/../evil/x", false),
            ("", "https://github.com/acme/x", false),
        ] {
            assert_eq!(covers(entry, url), expect, "{entry} {url}");
        }
    }
}
