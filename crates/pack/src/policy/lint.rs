//! `policy lint`: reports what in the config repo breaks the organisation's rules. Reads files of the repo and nothing else.

use std::collections::BTreeMap;
use std::path::Path;

use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Map, Value, json};

use super::{CONFIG, MUTATING, ORG_LOCKFILE, OrgPolicy, org_lockfile, read_lock, remote_name};
use crate::error::PackResult;
use crate::manifest::{Manifest, ModuleSource, ModuleType};
use crate::place::{LOCKFILE, MANIFEST, PackEnvironment};
use crate::render::{TEXT_LIMIT, front_matter};
use crate::reply::{PackCommandReply, put_path};
use crate::sources;
use crate::system::{self, RealFileSystem};
use crate::tree;

#[derive(Default)]
struct LintFindings {
    issues: Vec<Value>,
    skills: usize,
    commands: usize,
}

impl LintFindings {
    fn add(&mut self, rule: &str, path: &str, message: impl Into<String>, details: Value) {
        let mut issue = Map::new();
        issue.insert("rule".into(), rule.into());
        issue.insert("path".into(), path.into());
        issue.insert("path_posix".into(), path.into());
        issue.insert("message".into(), message.into().into());
        if !details.is_null() {
            issue.insert("details".into(), details);
        }
        self.issues.push(Value::Object(issue));
    }

    fn summary(&self) -> Value {
        let mut by_rule: BTreeMap<&str, usize> = BTreeMap::new();
        for issue in &self.issues {
            *by_rule.entry(issue.get("rule").and_then(Value::as_str).unwrap_or_default()).or_default() += 1;
        }
        json!({
            "violations": self.issues.len(), "rules": by_rule, "skill_files": self.skills,
            "claude_command_files": self.commands, "files_scanned": self.skills + self.commands,
        })
    }
}

/// The answer of `policy lint`; refused where something breaks a rule.
pub fn lint(place: &PackEnvironment) -> PackResult<PackCommandReply> {
    let mut found = LintFindings::default();
    // A policy that can't be used is a finding: what else is wrong is worth knowing as well.
    let org = OrgPolicy::load(place).unwrap_or_else(|stop| {
        let details = stop.refusal().map_or(Value::Null, |refusal| json!(refusal.details));
        found.add("policy_config", CONFIG, stop.to_string(), details);
        None
    });
    let manifest = if place.repo.join(MANIFEST).exists() || org.is_some() {
        Some(Manifest::load(place)?.0)
    } else {
        None
    };
    assets(place, manifest.as_ref(), &mut found);
    if let (Some(org), Some(manifest)) = (&org, &manifest) {
        distribution(org, manifest, &mut found);
        allowed_remotes(org, manifest, &mut found);
        locked_modules(org, manifest, place, &mut found);
        pinned(org, place, &mut found)?;
    }
    let mut data = Map::new();
    put_path(&mut data, "root", &place.repo);
    data.insert("summary".into(), found.summary());
    let text =
        |issue: &Value, name: &str| issue.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    found.issues.sort_by_key(|issue| (text(issue, "path"), text(issue, "rule")));
    if found.issues.is_empty() {
        return Ok(PackCommandReply::new(data).with("issues", Value::Array(found.issues)));
    }
    let message = match found.issues.as_slice() {
        [only] => only.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
        many => format!("{} violations of the policy for agent assets", many.len()),
    };
    let refusal = Refusal::new(Code::PolicyViolations, message).with("issues", Value::Array(found.issues));
    Err(data.into_iter().fold(refusal, |refusal, (name, value)| refusal.with(&name, value)).into())
}

/// Skills and commands in the repo, whether or not a module names them.
fn assets(place: &PackEnvironment, manifest: Option<&Manifest>, found: &mut LintFindings) {
    let files = match tree::files(&RealFileSystem, &place.repo) {
        Ok(files) => files,
        Err(stop) => return found.add("unsafe_path", ".", stop.to_string(), Value::Null),
    };
    let commands: Vec<&str> = manifest
        .into_iter()
        .flat_map(|manifest| &manifest.modules)
        .filter(|module| module.kind == ModuleType::Command)
        .filter_map(|module| module.source.local_path.as_ref())
        .map(|local| local.path.trim_start_matches("./").trim_end_matches('/'))
        .collect();
    for file in
        files.iter().filter(|file| !file.name.contains("/.agentpack/") && !file.name.contains("/.git/"))
    {
        let is_skill = file.name.rsplit('/').next() == Some("SKILL.md");
        let listed =
            commands.iter().any(|path| file.name == *path || file.name.starts_with(&format!("{path}/")));
        let by_folder = file.name.split('/').any(|part| part == "commands" || part == "claude-commands");
        let is_command = file.name.ends_with(".md") && (listed || by_folder);
        if !is_skill && !is_command {
            continue;
        }
        if is_skill {
            found.skills += 1;
        } else {
            found.commands += 1;
        }
        let rule = if is_skill { "skill_frontmatter" } else { "claude_command_allowed_tools" };
        match system::read(&RealFileSystem, &file.path, TEXT_LIMIT).map(String::from_utf8) {
            Ok(Ok(text)) if is_skill => skill(&file.name, &text, found),
            Ok(Ok(text)) => command(&file.name, &text, found),
            Ok(Err(_)) => found.add(rule, &file.name, "it is not UTF-8 text", Value::Null),
            Err(error) => found.add(rule, &file.name, format!("it can't be read: {error}"), Value::Null),
        }
    }
}

fn skill(path: &str, text: &str, found: &mut LintFindings) {
    let head = front_matter(text);
    let said = |name: &str| {
        let value = head.as_ref().and_then(|head| head.get(name)).and_then(Value::as_str);
        value.is_some_and(|value| !value.trim().is_empty())
    };
    let missing: Vec<&str> = ["name", "description"].into_iter().filter(|name| !said(name)).collect();
    if !missing.is_empty() {
        let message = format!("`{path}` must open with front matter that has `name` and `description`");
        found.add(
            "skill_frontmatter",
            path,
            message,
            json!({"missing": missing, "required_fields": ["name", "description"]}),
        );
    }
}

fn command(path: &str, text: &str, found: &mut LintFindings) {
    let head = front_matter(text).unwrap_or_default();
    let tools = head.get("allowed-tools").map(ToString::to_string).unwrap_or_default();
    let runs = text.contains("!bash") || text.contains("!`") || tools.contains("Bash");
    if !runs {
        return;
    }
    if !tools.contains("Bash(") {
        let message = format!("`{path}` runs bash and must have `allowed-tools` with `Bash(...)`");
        found.add("claude_command_allowed_tools", path, message, Value::Null);
    }
    for (number, line) in text.lines().enumerate() {
        if let Some(changing) = unguarded(line) {
            let message = format!("`{path}` runs `{changing}` without `--json` and `--yes`");
            found.add("dangerous_defaults", path, message, json!({"line": number + 1, "command": changing}));
        }
    }
}

/// A command of ours in a line that changes something and is not guarded.
fn unguarded(line: &str) -> Option<&'static str> {
    let at =
        ["agentpack ", "countersign pack "].iter().find_map(|name| Some(line.find(name)? + name.len()))?;
    let rest = line.get(at..)?;
    let rest = rest.split(['`', '"', ')', ';', '|', '&']).next().unwrap_or(rest);
    let words: Vec<&str> = rest.split_whitespace().collect();
    let plain: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with("--")).collect();
    let changing = MUTATING.into_iter().find(|command| {
        let (names, flags): (Vec<&str>, Vec<&str>) =
            command.split(' ').partition(|word| !word.starts_with("--"));
        plain.starts_with(&names) && flags.iter().all(|flag| words.contains(flag))
    })?;
    let guarded = words.contains(&"--dry-run") || (words.contains(&"--yes") && words.contains(&"--json"));
    (!guarded).then_some(changing)
}

fn distribution(org: &OrgPolicy, manifest: &Manifest, found: &mut LintFindings) {
    let required = &org.distribution_policy.required_targets;
    let missing: Vec<&String> =
        required.iter().filter(|name| !manifest.targets.contains_key(*name)).collect();
    if !missing.is_empty() {
        let message = format!("required targets are not configured in `{MANIFEST}`");
        let details = json!({"required": required, "missing": missing});
        found.add("distribution_required_targets", MANIFEST, message, details);
    }
    let required = &org.distribution_policy.required_modules;
    let module = |id: &String| manifest.modules.iter().find(|module| module.id == *id);
    let missing: Vec<&String> = required.iter().filter(|id| module(id).is_none()).collect();
    let disabled: Vec<&String> =
        required.iter().filter(|id| module(id).is_some_and(|module| !module.enabled)).collect();
    if !missing.is_empty() || !disabled.is_empty() {
        let message = format!("required modules are missing or not enabled in `{MANIFEST}`");
        let details = json!({"required": required, "missing": missing, "disabled": disabled});
        found.add("distribution_required_modules", MANIFEST, message, details);
    }
}

/// Remotes that the policy does not allow.
fn allowed_remotes(org: &OrgPolicy, manifest: &Manifest, found: &mut LintFindings) {
    let allowed = &org.supply_chain_policy.allowed_git_remotes;
    let facts = |url: &str| json!({"remote": url, "remote_normalized": remote_name(url), "allowed_git_remotes": allowed});
    for module in &manifest.modules {
        let Some(git) = module.source.git.as_ref().filter(|git| !org.allows(&git.url)) else { continue };
        let message = format!("module `{}` comes from a remote that is not allowed", module.id);
        let mut details = facts(&git.url);
        if let Some(details) = details.as_object_mut() {
            details.insert("module_id".into(), module.id.as_str().into());
        }
        found.add("supply_chain_allowed_git_remotes", MANIFEST, message, details);
    }
    if let Some(Ok(ModuleSource { git: Some(git), .. })) =
        org.policy_pack.as_ref().map(|pack| ModuleSource::parse(&pack.source))
        && !org.allows(&git.url)
    {
        let message = "the policy pack comes from a remote that is not allowed";
        found.add("policy_pack_allowed_git_remotes", CONFIG, message, facts(&git.url));
    }
}

/// Modules from git that the lockfile does not pin, where it must.
fn locked_modules(org: &OrgPolicy, manifest: &Manifest, place: &PackEnvironment, found: &mut LintFindings) {
    let enabled = manifest.modules.iter().filter(|module| module.enabled);
    let from_git: Vec<_> = enabled.filter_map(|module| Some((module, module.source.git.as_ref()?))).collect();
    if !org.supply_chain_policy.require_lockfile || from_git.is_empty() {
        return;
    }
    let path = place.repo.join(LOCKFILE);
    let lock = match sources::lockfile(place) {
        Ok(Some(lock)) => lock,
        Ok(None) => {
            let message = format!("modules come from git and there is no `{LOCKFILE}`");
            let ids: Vec<&str> = from_git.iter().map(|(module, _)| module.id.as_str()).collect();
            let details = json!({"path": path, "enabled_git_modules": ids});
            return found.add("supply_chain_lockfile_missing", LOCKFILE, message, details);
        }
        Err(stop) => {
            let details = json!({"path": path, "error": stop.to_string()});
            return found.add("supply_chain_lockfile_invalid", LOCKFILE, stop.to_string(), details);
        }
    };
    for (module, git) in from_git {
        let pinned = lock.module(&module.id);
        let url =
            pinned.and_then(|locked| locked.resolved_source.pointer("/git/url")).and_then(Value::as_str);
        let (rule, why, details) = match (pinned, url) {
            (None, _) => {
                ("supply_chain_lockfile_missing_module", "is not pinned", json!({"module_id": module.id}))
            }
            (Some(locked), None) => {
                let details = json!({"module_id": module.id, "config": {"git_url": git.url},
                    "lock": {"resolved_source": locked.resolved_source}});
                ("supply_chain_lockfile_source_mismatch", "is not pinned to git", details)
            }
            (Some(_), Some(url)) if remote_name(url) != remote_name(&git.url) => {
                let details = json!({"module_id": module.id, "config_url": git.url, "lock_url": url,
                    "config_url_normalized": remote_name(&git.url), "lock_url_normalized": remote_name(url)});
                ("supply_chain_lockfile_url_mismatch", "is pinned to another remote", details)
            }
            (Some(_), Some(_)) => continue,
        };
        found.add(rule, LOCKFILE, format!("module `{}` {why} in `{LOCKFILE}`", module.id), details);
    }
}

/// The pack of rules must be pinned to what the configuration names, and, where it is here, to the bytes that are here.
fn pinned(org: &OrgPolicy, place: &PackEnvironment, found: &mut LintFindings) -> PackResult<()> {
    let Some(pack) = &org.policy_pack else { return Ok(()) };
    let source = match ModuleSource::parse(&pack.source) {
        Ok(source) => source,
        Err(stop) => {
            let details =
                json!({"field": "policy_pack.source", "value": pack.source, "error": stop.to_string()});
            found.add("policy_config", CONFIG, stop.to_string(), details);
            return Ok(());
        }
    };
    let details = json!({"source": pack.source, "path": org_lockfile(place)});
    let mut say = |why: &str| found.add("policy_pack_lock", ORG_LOCKFILE, why, details.clone());
    match read_lock(place) {
        Ok(None) => say("the policy pack is not pinned: `policy lock` pins it"),
        Err(stop) => say(&stop.to_string()),
        Ok(Some(lock)) if lock.version != 1 => say("the version of the lockfile is not 1"),
        Ok(Some(lock)) if lock.policy_pack.source != source => {
            say("another policy pack is pinned: `policy lock` pins this one")
        }
        Ok(Some(lock)) => {
            if let Some(local) = &source.local_path {
                let root = crate::manifest::inside_repo(place, &local.path, "the policy pack")?;
                let files = crate::lockfile::file_manifest(&RealFileSystem, Path::new(&root));
                if files.map_or(true, |files| files != lock.policy_pack.file_manifest) {
                    say("the policy pack is not what was pinned: `policy lock` pins it anew");
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::unguarded;

    #[test]
    fn what_changes_something_is_guarded() {
        for (line, expect) in [
            ("!`agentpack deploy --apply`", Some("deploy --apply")),
            ("!`agentpack deploy --apply --yes --json`", None),
            ("!`agentpack deploy`", None),
            ("run `countersign pack rollback --to 1`", Some("rollback")),
            ("run `countersign pack evolve propose --dry-run --json` first", None),
            ("`agentpack --json remote set x`", Some("remote set")),
            ("`agentpack plan --json`", None),
            ("use agentpack", None),
        ] {
            assert_eq!(unguarded(line), expect, "{line}");
        }
    }
}
