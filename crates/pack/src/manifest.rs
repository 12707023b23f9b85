//! `agentpack.yaml`: profiles, targets and modules. Reads and checks; finds no files and writes nothing.

mod edit;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_policy::words::choices;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use edit::add_profile;
pub use edit::{add, remove};

use crate::error::{PackError, PackResult, shown};
use crate::place::{MANIFEST, PackEnvironment};
use crate::system::{self, RealFileSystem};
use countersign_policy::words::words;

words! {
    pub enum ModuleType("module type") {
        /// `AGENTS.md` and what belongs to it.
        Instructions = "instructions",
        /// A folder with a `SKILL.md`.
        Skill = "skill",
        Prompt = "prompt",
        /// One Markdown file for a slash command.
        Command = "command",
    }
}

words! {
    pub enum Target("target") {
        ClaudeCode = "claude_code",
        Codex = "codex",
        Cursor = "cursor",
        Jetbrains = "jetbrains",
        Vscode = "vscode",
        Zed = "zed",
    }
}

impl Target {
    /// All of them, in the order the original lists them.
    pub const COMPILED: [Self; 6] =
        [Self::Codex, Self::ClaudeCode, Self::Cursor, Self::Vscode, Self::Jetbrains, Self::Zed];
}

words! {
    pub enum TargetScope("scope") {
        User = "user",
        Project = "project",
        Both = "both",
    }
}

impl TargetScope {
    /// Whether the user's own files are meant.
    pub fn user(self) -> bool {
        matches!(self, TargetScope::User | TargetScope::Both)
    }
    pub fn project(self) -> bool {
        matches!(self, TargetScope::Project | TargetScope::Both)
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Manifest {
    pub version: u32,
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
    #[serde(default)]
    pub(crate) targets: BTreeMap<String, TargetConfig>,
    #[serde(default)]
    pub modules: Vec<Module>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Profile {
    #[serde(default)]
    pub include_tags: Vec<String>,
    #[serde(default)]
    pub include_modules: Vec<String>,
    #[serde(default)]
    pub exclude_modules: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct TargetConfig {
    /// Always `files`.
    #[serde(default = "files_mode")]
    pub mode: String,
    #[serde(default = "both")]
    pub scope: TargetScope,
    #[serde(default)]
    pub options: Map<String, Value>,
}

fn files_mode() -> String {
    "files".to_owned()
}
fn both() -> TargetScope {
    TargetScope::Both
}

impl TargetConfig {
    /// An option that is on or off.
    pub(crate) fn switch(&self, name: &str, default: bool) -> bool {
        self.options.get(name).and_then(Value::as_bool).unwrap_or(default)
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Module {
    /// `type:name`, unique.
    pub id: String,
    #[serde(rename = "type")]
    pub kind: ModuleType,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default)]
    pub tags: Vec<String>,
    /// Which targets it goes to; empty means all.
    #[serde(default)]
    pub targets: Vec<String>,
    pub(crate) source: ModuleSource,
}

fn yes() -> bool {
    true
}

impl Module {
    /// The part of the id after the type.
    pub fn name(&self) -> &str {
        self.id.split_once([':', '/']).map_or(self.id.as_str(), |(_, name)| name)
    }
}

/// Where a module comes from: exactly one of the two.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ModuleSource {
    /// A folder or file of the config repo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) local_path: Option<LocalPath>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) git: Option<GitSource>,
}

/// A folder or file of the config repo.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LocalPath {
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct GitSource {
    pub url: String,
    /// Tag, branch or commit.
    #[serde(rename = "ref", default = "main_branch")]
    pub reference: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subdir: String,
    #[serde(default = "yes")]
    pub(crate) shallow: bool,
}

fn main_branch() -> String {
    "main".to_owned()
}

const LIMIT: u64 = 16 * 1024 * 1024;

impl Manifest {
    /// Reads the manifest of the config repo; the warnings name keys nobody reads.
    pub fn load(place: &PackEnvironment) -> PackResult<(Self, Vec<String>)> {
        let path = place.repo.join(MANIFEST);
        let read = system::read_if_there(&RealFileSystem, &path, LIMIT)
            .map_err(|error| PackError::io("read", &path, &error))?;
        let Some(bytes) = read else {
            let message = format!("there is no `{MANIFEST}` in `{}`", shown(&place.repo));
            return Err(Refusal::new(Code::ConfigMissing, message)
                .with("repo", shown(&place.repo))
                .with("path", shown(&path))
                .with("hint", "`agentpack init` makes a config repo")
                .into());
        };
        let text = String::from_utf8(bytes).map_err(|_| invalid(&path, "it is not UTF-8 text"))?;
        Self::parse(&text, &path)
    }

    pub fn parse(text: &str, path: &Path) -> PackResult<(Self, Vec<String>)> {
        let loose: Value = serde_saphyr::from_str(text).map_err(|error| unreadable(path, &error))?;
        match loose.get("version").and_then(Value::as_u64) {
            Some(1) => {}
            Some(other) => {
                let message = format!("`{}` has version {other}; this program reads version 1", shown(path));
                let refusal = Refusal::new(Code::ConfigUnsupportedVersion, message);
                let refusal = refusal.with("path", shown(path)).with("version", other);
                return Err(refusal.with("supported", vec![1]).into());
            }
            None => return Err(invalid(path, "`version: 1` is missing")),
        }
        let manifest: Self = serde_saphyr::from_str(text).map_err(|error| unreadable(path, &error))?;
        manifest.check(path)?;
        Ok((manifest, unknown_keys(&loose)))
    }

    fn check(&self, path: &Path) -> PackResult<()> {
        if !self.profiles.contains_key("default") {
            return Err(invalid(path, "profile `default` is missing").with("profile", "default"));
        }
        for (name, target) in &self.targets {
            let known = parse_target(name).map_err(not_compiled)?;
            if target.mode != "files" {
                return Err(invalid(path, &format!("target `{name}`: `mode` must be `files`")));
            }
            let project_only = match known {
                Target::Cursor | Target::Vscode | Target::Jetbrains | Target::Zed => true,
                Target::Codex | Target::ClaudeCode => false,
            };
            if project_only && target.scope == TargetScope::User {
                return Err(invalid(
                    path,
                    &format!("target `{name}` writes project files only: `scope: user` is not possible"),
                ));
            }
        }
        let mut seen = BTreeSet::new();
        for module in &self.modules {
            if module.id.trim().is_empty() || crate::tree::hides_something(&module.id) {
                return Err(invalid(path, "a module's id is empty or holds control characters"));
            }
            if !seen.insert(module.id.as_str()) {
                let twice = invalid(path, &format!("module `{}` is there twice", module.id));
                return Err(twice.with("module_id", module.id.as_str()));
            }
            module.check_targets()?;
            match (&module.source.local_path, &module.source.git) {
                (Some(_), None) | (None, Some(_)) => {}
                (None, None) | (Some(_), Some(_)) => {
                    let why = format!(
                        "module `{}`: `source` needs exactly one of `local_path` and `git`",
                        module.id
                    );
                    return Err(invalid(path, &why));
                }
            }
        }
        Ok(())
    }

    pub fn module(&self, id: &str) -> PackResult<&Module> {
        self.modules.iter().find(|module| module.id == id).ok_or_else(|| {
            let known: Vec<&str> = self.modules.iter().map(|module| module.id.as_str()).collect();
            Refusal::new(Code::NotFound, format!("there is no module `{id}`")).with("modules", known).into()
        })
    }

    /// The modules of a profile, sorted by id.
    pub fn selected(&self, profile: &str) -> PackResult<Vec<&Module>> {
        let wanted = self.profiles.get(profile).ok_or_else(|| {
            let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let message = format!("there is no profile `{profile}`: must be {}", choices(&known));
            PackError::from(Refusal::new(Code::ConfigInvalid, message).with("profile", profile))
        })?;
        let takes = |module: &&Module| {
            let by_tag = module.tags.iter().any(|tag| wanted.include_tags.contains(tag));
            let named = wanted.include_modules.contains(&module.id);
            module.enabled && (by_tag || named) && !wanted.exclude_modules.contains(&module.id)
        };
        let mut modules: Vec<&Module> = self.modules.iter().filter(takes).collect();
        modules.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(modules)
    }

    /// The configured targets that `selection` (`all` or a name) means, sorted by name.
    pub(crate) fn targets(&self, selection: &str) -> PackResult<Vec<(Target, &TargetConfig)>> {
        if selection != "all" {
            let target = parse_target(selection)?;
            let config = self.targets.get(target.as_str()).ok_or_else(|| {
                let message = format!("target `{target}` is not configured in `{MANIFEST}`");
                let refusal = Refusal::new(Code::ConfigInvalid, message).with("target", target.as_str());
                PackError::from(refusal.with("hint", format!("add it under `targets:` in `{MANIFEST}`")))
            })?;
            return Ok(vec![(target, config)]);
        }
        self.targets.iter().map(|(name, config)| Ok((parse_target(name)?, config))).collect()
    }
}

pub fn parse_target(name: &str) -> PackResult<Target> {
    name.parse().map_err(|unknown| {
        let known: Vec<&str> = Target::COMPILED.iter().map(|target| target.as_str()).collect();
        let allowed: Vec<&str> = std::iter::once("all").chain(known.iter().copied()).collect();
        let error: countersign_policy::words::UnknownWord = unknown;
        Refusal::new(Code::TargetUnsupported, error.to_string())
            .with("target", name)
            .with("supported", known)
            .with("allowed", allowed)
            .into()
    })
}

impl Module {
    /// Refuses targets this program does not know.
    pub(crate) fn check_targets(&self) -> PackResult<()> {
        for target in &self.targets {
            parse_target(target).map_err(|stop| not_compiled(stop).with("module_id", self.id.as_str()))?;
        }
        Ok(())
    }
}

/// The same refusal for a target that the manifest names: there is nothing to filter by.
fn not_compiled(stop: PackError) -> PackError {
    let PackError::Refused(refusal) = stop else { return stop };
    let next = [
        NextAction::InspectHelpJson,
        NextAction::EditManifestTargets,
        NextAction::RebuildWithTargetFeature,
        NextAction::RetryCommand,
    ];
    let known: Vec<&str> = Target::COMPILED.iter().map(|target| target.as_str()).collect();
    refusal.because("target_not_compiled").next(&next).with("allowed", known).into()
}

impl ModuleSource {
    /// A source as `add` takes it: `local:PATH` or `git:URL[#ref=…&subdir=…&shallow=…]`.
    pub(crate) fn parse(text: &str) -> PackResult<Self> {
        let refuse =
            |why: String| PackError::from(Refusal::new(Code::ArgumentsInvalid, why).with("field", "source"));
        if let Some(path) = text.strip_prefix("local:").filter(|path| !path.is_empty()) {
            return Ok(Self { local_path: Some(LocalPath { path: path.to_owned() }), git: None });
        }
        let Some(rest) = text.strip_prefix("git:").filter(|rest| !rest.is_empty()) else {
            return Err(refuse(format!("`{text}` is neither `local:PATH` nor `git:URL[#ref=…&subdir=…]`")));
        };
        let (url, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let mut git =
            GitSource { url: url.to_owned(), reference: main_branch(), subdir: String::new(), shallow: true };
        for pair in fragment.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("ref", value)) => git.reference = value.to_owned(),
                Some(("subdir", value)) => git.subdir = value.to_owned(),
                Some(("shallow", "true")) => git.shallow = true,
                Some(("shallow", "false")) => git.shallow = false,
                _ => {
                    return Err(refuse(format!(
                        "`{pair}` is not `ref=…`, `subdir=…` or `shallow=true|false`"
                    )));
                }
            }
        }
        Ok(Self { local_path: None, git: Some(git) })
    }
}

/// A path of the config repo that must stay in it.
pub(crate) fn inside_repo(place: &PackEnvironment, path: &str, of: &str) -> PackResult<PathBuf> {
    let given = Path::new(path);
    let relative = match given.strip_prefix(&place.repo) {
        Ok(inside) => inside,
        Err(_) => given.strip_prefix(".").unwrap_or(given),
    };
    if crate::place::stays_inside(relative) && !crate::tree::hides_something(path) {
        return Ok(place.repo.join(relative));
    }
    let message = format!("{of}: `{}` leads out of the config repo", shown(given));
    Err(Refusal::new(Code::IoInvalidPath, message).because("path_escapes").with("path", shown(given)).into())
}

fn invalid(path: &Path, why: &str) -> PackError {
    Refusal::new(Code::ConfigInvalid, format!("`{}`: {why}", shown(path))).with("path", shown(path)).into()
}

fn unreadable(path: &Path, error: &serde_saphyr::Error) -> PackError {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let mut refusal = Refusal::new(Code::ConfigInvalid, format!("`{}`: {line}", shown(path)))
        .with("path", shown(path))
        .with("error", line);
    if let Some(place) = error.location() {
        refusal = refusal.with("line", place.line()).with("column", place.column());
    }
    refusal.into()
}

/// Keys that no version of the format has: most likely mistyped, and an older repository may rest on their being ignored.
fn unknown_keys(loose: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut check = |value: Option<&Value>, at: &str, known: &[&str]| {
        for key in value.and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            if !known.contains(&key.as_str()) {
                warnings.push(format!("{MANIFEST}: nothing reads `{key}`{at}"));
            }
        }
    };
    check(Some(loose), "", &["version", "profiles", "targets", "modules"]);
    for (name, profile) in loose.get("profiles").and_then(Value::as_object).into_iter().flatten() {
        check(
            Some(profile),
            &format!(" in profile `{name}`"),
            &["include_tags", "include_modules", "exclude_modules"],
        );
    }
    for (name, target) in loose.get("targets").and_then(Value::as_object).into_iter().flatten() {
        check(Some(target), &format!(" in target `{name}`"), &["mode", "scope", "options"]);
    }
    for module in loose.get("modules").and_then(Value::as_array).into_iter().flatten() {
        let id = module.get("id").and_then(Value::as_str).unwrap_or_default();
        let known = ["id", "type", "enabled", "tags", "targets", "source", "metadata"];
        check(Some(module), &format!(" in module `{id}`"), &known);
    }
    warnings
}

#[cfg(test)]
mod tests;
