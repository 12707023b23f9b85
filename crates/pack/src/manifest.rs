//! `agentpack.yaml`: profiles, targets and modules as they are written. Reads and checks; finds no files and writes
//! nothing.

mod edit;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use countersign_core::refusal::{Code, Refusal};
use countersign_core::words::choices;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use edit::{add, add_profile, remove};

use crate::place::{MANIFEST, Place};
use crate::stop::{Outcome, Stop, shown};
use crate::system::{self, Real};
use countersign_core::words::words;

words! {
    /// What a module is.
    pub enum ModuleType("module type") {
        /// `AGENTS.md` and what belongs to it.
        Instructions = "instructions",
        /// A folder with a `SKILL.md`.
        Skill = "skill",
        /// One Markdown file for a prompt.
        Prompt = "prompt",
        /// One Markdown file for a slash command.
        Command = "command",
    }
}

words! {
    /// Where agent assets go.
    pub enum Target("target") {
        /// Claude Code.
        ClaudeCode = "claude_code",
        /// Codex.
        Codex = "codex",
        /// Cursor.
        Cursor = "cursor",
        /// JetBrains' Junie.
        Jetbrains = "jetbrains",
        /// VS Code with Copilot.
        Vscode = "vscode",
        /// Zed.
        Zed = "zed",
    }
}

words! {
    /// Whose files a target writes.
    pub enum Scope("scope") {
        /// The user's own.
        User = "user",
        /// The project's.
        Project = "project",
        /// Both.
        Both = "both",
    }
}

impl Scope {
    /// Whether the user's own files are meant.
    pub fn user(self) -> bool {
        matches!(self, Scope::User | Scope::Both)
    }
    /// Whether the project's files are meant.
    pub fn project(self) -> bool {
        matches!(self, Scope::Project | Scope::Both)
    }
}

/// The manifest as written.
#[derive(Clone, Debug, Deserialize)]
pub struct Manifest {
    /// Its version.
    pub version: u32,
    /// Which modules go together.
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
    /// Where they go.
    #[serde(default)]
    pub targets: BTreeMap<String, TargetConfig>,
    /// The modules.
    #[serde(default)]
    pub modules: Vec<Module>,
}

/// Which modules a profile takes.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Profile {
    /// Those with one of these tags.
    #[serde(default)]
    pub include_tags: Vec<String>,
    /// These.
    #[serde(default)]
    pub include_modules: Vec<String>,
    /// But not these.
    #[serde(default)]
    pub exclude_modules: Vec<String>,
}

/// How a target is written.
#[derive(Clone, Debug, Deserialize)]
pub struct TargetConfig {
    /// Always `files`.
    #[serde(default = "files_mode")]
    pub mode: String,
    /// Whose files.
    #[serde(default = "both")]
    pub scope: Scope,
    /// What else it can be told.
    #[serde(default)]
    pub options: Map<String, Value>,
}

fn files_mode() -> String {
    "files".to_owned()
}
fn both() -> Scope {
    Scope::Both
}

impl TargetConfig {
    /// An option that is on or off.
    pub fn switch(&self, name: &str, default: bool) -> bool {
        self.options.get(name).and_then(Value::as_bool).unwrap_or(default)
    }
}

/// One module.
#[derive(Clone, Debug, Deserialize)]
pub struct Module {
    /// `type:name`, unique.
    pub id: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: ModuleType,
    /// Whether it counts.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// What profiles find it by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Which targets it goes to; empty means all.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Where it comes from.
    pub source: Source,
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
pub struct Source {
    /// A folder or file of the config repo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_path: Option<LocalPath>,
    /// A git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
}

/// A folder or file of the config repo.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LocalPath {
    /// Relative to the repo.
    pub path: String,
}

/// A place in a git repository.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct GitSource {
    /// Where the repository is.
    pub url: String,
    /// Tag, branch or commit.
    #[serde(rename = "ref", default = "main_branch")]
    pub reference: String,
    /// The folder in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subdir: String,
    /// Whether the history stays behind.
    #[serde(default = "yes")]
    pub shallow: bool,
}

fn main_branch() -> String {
    "main".to_owned()
}

/// Manifests are written by hand.
const LIMIT: u64 = 16 * 1024 * 1024;

impl Manifest {
    /// Reads the manifest of the config repo; the warnings name keys nobody reads.
    pub fn load(place: &Place) -> Outcome<(Self, Vec<String>)> {
        let path = place.repo.join(MANIFEST);
        let read =
            system::read_if_there(&Real, &path, LIMIT).map_err(|error| Stop::io("read", &path, &error))?;
        let Some(bytes) = read else {
            let message = format!("there is no `{MANIFEST}` in `{}`", shown(&place.repo));
            return Err(Refusal::new(Code::ConfigMissing, message).with("repo", shown(&place.repo)).into());
        };
        let text = String::from_utf8(bytes).map_err(|_| invalid(&path, "it is not UTF-8 text"))?;
        Self::parse(&text, &path)
    }

    /// Reads a manifest's text.
    pub fn parse(text: &str, path: &Path) -> Outcome<(Self, Vec<String>)> {
        let loose: Value = serde_saphyr::from_str(text).map_err(|error| unreadable(path, &error))?;
        match loose.get("version").and_then(Value::as_u64) {
            Some(1) => {}
            Some(other) => {
                let message = format!("`{}` has version {other}; this program reads version 1", shown(path));
                let refusal = Refusal::new(Code::ConfigUnsupportedVersion, message);
                return Err(refusal.with("version", other).with("supported", 1).into());
            }
            None => return Err(invalid(path, "`version: 1` is missing")),
        }
        let manifest: Self = serde_saphyr::from_str(text).map_err(|error| unreadable(path, &error))?;
        manifest.check(path)?;
        Ok((manifest, unknown_keys(&loose)))
    }

    fn check(&self, path: &Path) -> Outcome<()> {
        if !self.profiles.contains_key("default") {
            return Err(invalid(path, "profile `default` is missing"));
        }
        for (name, target) in &self.targets {
            let known = parse_target(name)?;
            if target.mode != "files" {
                return Err(invalid(path, &format!("target `{name}`: `mode` must be `files`")));
            }
            let project_only = match known {
                Target::Cursor | Target::Vscode | Target::Jetbrains | Target::Zed => true,
                Target::Codex | Target::ClaudeCode => false,
            };
            if project_only && target.scope == Scope::User {
                return Err(invalid(
                    path,
                    &format!("target `{name}` writes project files only: `scope: user` is not possible"),
                ));
            }
        }
        let mut seen = BTreeSet::new();
        for module in &self.modules {
            if module.id.trim().is_empty() || module.id.chars().any(crate::tree::is_hidden) {
                return Err(invalid(path, "a module's id is empty or holds control characters"));
            }
            if !seen.insert(module.id.as_str()) {
                return Err(invalid(path, &format!("module `{}` is there twice", module.id)));
            }
            for target in &module.targets {
                parse_target(target)?;
            }
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

    /// The module of that id.
    pub fn module(&self, id: &str) -> Outcome<&Module> {
        self.modules.iter().find(|module| module.id == id).ok_or_else(|| {
            let known: Vec<&str> = self.modules.iter().map(|module| module.id.as_str()).collect();
            Refusal::new(Code::NotFound, format!("there is no module `{id}`")).with("modules", known).into()
        })
    }

    /// The modules of a profile, sorted by id.
    pub fn selected(&self, profile: &str) -> Outcome<Vec<&Module>> {
        let wanted = self.profiles.get(profile).ok_or_else(|| {
            let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let message = format!("there is no profile `{profile}`: must be {}", choices(&known));
            Stop::from(Refusal::new(Code::ConfigInvalid, message).with("profile", profile))
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
    pub fn targets(&self, selection: &str) -> Outcome<Vec<(Target, &TargetConfig)>> {
        if selection != "all" {
            let target = parse_target(selection)?;
            let config = self.targets.get(target.as_str()).ok_or_else(|| {
                let message = format!("target `{target}` is not configured in `{MANIFEST}`");
                Stop::from(Refusal::new(Code::TargetUnsupported, message).with("target", target.as_str()))
            })?;
            return Ok(vec![(target, config)]);
        }
        self.targets.iter().map(|(name, config)| Ok((parse_target(name)?, config))).collect()
    }
}

/// A target by its name.
pub fn parse_target(name: &str) -> Outcome<Target> {
    name.parse().map_err(|unknown| {
        let known: Vec<&str> = Target::ALL.iter().map(|target| target.as_str()).collect();
        let error: countersign_core::words::UnknownWord = unknown;
        Refusal::new(Code::TargetUnsupported, error.to_string())
            .with("target", name)
            .with("supported", known)
            .into()
    })
}

impl Source {
    /// A source as `add` takes it: `local:PATH` or `git:URL[#ref=…&subdir=…&shallow=…]`.
    pub fn parse(text: &str) -> Outcome<Self> {
        let refuse =
            |why: String| Stop::from(Refusal::new(Code::ArgumentsInvalid, why).with("field", "source"));
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
pub fn inside_repo(place: &Place, path: &str, of: &str) -> Outcome<PathBuf> {
    let given = Path::new(path);
    let relative = match given.strip_prefix(&place.repo) {
        Ok(inside) => inside,
        Err(_) => given.strip_prefix(".").unwrap_or(given),
    };
    if crate::place::stays_inside(relative) && !path.chars().any(crate::tree::is_hidden) {
        return Ok(place.repo.join(relative));
    }
    let message = format!("{of}: `{}` leads out of the config repo", shown(given));
    Err(Refusal::new(Code::IoInvalidPath, message).because("path_escapes").with("path", shown(given)).into())
}

fn invalid(path: &Path, why: &str) -> Stop {
    Refusal::new(Code::ConfigInvalid, format!("`{}`: {why}", shown(path))).with("path", shown(path)).into()
}

fn unreadable(path: &Path, error: &serde_saphyr::Error) -> Stop {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let mut refusal =
        Refusal::new(Code::ConfigInvalid, format!("`{}`: {line}", shown(path))).with("path", shown(path));
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
