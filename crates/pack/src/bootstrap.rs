//! Operator assets: a skill and slash commands that teach agents to use the pack. Installed into a target's folders and recorded
//! there like any other file of ours; a deployment leaves them alone.

use countersign_policy::digest::Digest;

use crate::actual_state;
use crate::desired_state::{self, OutputFile, ProfileSelection, key};
use crate::digests::DigestCache;
use crate::error::{PackResult, shown};
use crate::manifest::{Manifest, Target, TargetScope};
use crate::place::{PackEnvironment, Project};
use crate::plan;
use crate::render::FileContent;
use crate::snapshot::SnapshotKind;
use crate::survey::DeploymentSurvey;
use crate::system::FileSystem;
use crate::targets::TargetRoot;

pub(crate) const OPERATOR: &str = "bootstrap:operator";

const SKILL: &str = include_str!("bootstrap/skill.md");
const COMMAND: &str = include_str!("bootstrap/command.md");
const SKILL_FILE: &str = "agentpack-operator/SKILL.md";

/// A slash command: its name, what it is for, what it runs, what to do with the answer.
struct SlashCommand {
    name: &'static str,
    about: &'static str,
    runs: &'static str,
    then: &'static str,
    changes: bool,
}

const COMMANDS: [SlashCommand; 9] = [
    SlashCommand {
        name: "ap-doctor",
        about: "Check the folders agent assets are deployed to",
        runs: "doctor --json",
        then: "Name each folder with an issue and its suggestion.",
        changes: false,
    },
    SlashCommand {
        name: "ap-update",
        about: "Pin and fetch the modules",
        runs: "update --yes --json",
        then: "Say what was pinned and fetched.",
        changes: true,
    },
    SlashCommand {
        name: "ap-preview",
        about: "Show what deploying would change, line by line",
        runs: "preview --diff --json",
        then: "Summarise the changes by target and show the diffs.",
        changes: false,
    },
    SlashCommand {
        name: "ap-plan",
        about: "List the files deploying would change",
        runs: "plan --json",
        then: "List the changes by target. Point out every `adopt_update`: it overwrites a file of somebody else.",
        changes: false,
    },
    SlashCommand {
        name: "ap-diff",
        about: "Show how files would change",
        runs: "diff --json",
        then: "Show the diffs, the largest first.",
        changes: false,
    },
    SlashCommand {
        name: "ap-deploy",
        about: "Apply the plan after it was shown",
        runs: "deploy --apply --yes --json",
        then: "Only after the user has seen the preview and agreed. Name the snapshot id and how to roll back.",
        changes: true,
    },
    SlashCommand {
        name: "ap-status",
        about: "Report what differs from what was deployed",
        runs: "status --json",
        then: "List the drift and follow `next_actions`.",
        changes: false,
    },
    SlashCommand {
        name: "ap-explain",
        about: "Say which module and layer is behind each change",
        runs: "explain plan --json",
        then: "Name module and overlay layer for each change.",
        changes: false,
    },
    SlashCommand {
        name: "ap-evolve",
        about: "Bring edits of deployed files back as overlays",
        runs: "evolve propose --yes --json",
        then: "Run it with `--dry-run` first, show the candidates, and propose only after the user has agreed.",
        changes: true,
    },
];

/// The files for a root, by their names below it.
fn assets(root: &TargetRoot) -> Vec<(String, String)> {
    let version = env!("CARGO_PKG_VERSION");
    let last = root.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match (root.target, last) {
        (Target::Codex | Target::ClaudeCode, "skills") => {
            vec![(SKILL_FILE.to_owned(), SKILL.replace("{{VERSION}}", version))]
        }
        (Target::ClaudeCode, "commands") => {
            COMMANDS.iter().map(|slash| (format!("{}.md", slash.name), written(slash, version))).collect()
        }
        (Target::Codex | Target::ClaudeCode, _)
        | (Target::Cursor | Target::Jetbrains | Target::Vscode | Target::Zed, _) => Vec::new(),
    }
}

fn written(slash: &SlashCommand, version: &str) -> String {
    let guard = if slash.changes { "disable-model-invocation: true\n" } else { "" };
    COMMAND
        .replace("{{ABOUT}}", slash.about)
        .replace("{{GUARD}}", guard)
        .replace("{{RUNS}}", slash.runs)
        .replace("{{THEN}}", slash.then)
        .replace("{{VERSION}}", version)
}

/// What installing them would do: nothing else that is ours is touched.
pub fn survey(
    place: &PackEnvironment,
    selection: &ProfileSelection,
    scope: TargetScope,
    system: &dyn FileSystem,
    now: jiff::Timestamp,
) -> PackResult<DeploymentSurvey> {
    let (manifest, mut warnings) = Manifest::load(place)?;
    let project = Project::at(&place.project_root());
    let mut desired = desired_state::bare(place, &project, &manifest, selection, system)?;
    for (index, root) in desired.roots.clone().iter().enumerate() {
        let wanted = if root.base == project.root { scope.project() } else { scope.user() };
        for (name, text) in if wanted { assets(root) } else { Vec::new() } {
            let (digest, content) = (Digest::plain(text.as_bytes()), FileContent::Bytes(text.into_bytes()));
            let output = OutputFile {
                content,
                digest,
                module_ids: vec![OPERATOR.to_owned()],
                root: index,
                source: name.clone(),
            };
            desired.outputs.insert(key(root.target, &root.path.join(&name)), output);
        }
    }
    if desired.outputs.is_empty() {
        warnings
            .push("none of the targets has operator assets: they are for codex and claude_code".to_owned());
    }
    let nanos = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
    let mut digests = DigestCache::load(&place.state().join("digests"), nanos);
    let mut actual = actual_state::actual(&desired, &place.snapshots(), system, &mut digests)?;
    // Everything that was deployed stays as it is.
    for (root, found) in desired.roots.iter().zip(&actual.records) {
        for (path, _, file) in found.iter().flat_map(|found| found.record.files(&root.path)) {
            let key = key(root.target, &path);
            if !desired.outputs.contains_key(&key) {
                actual.kept.insert(key, file.module_ids.clone());
            }
        }
    }
    let plan = plan::plan(&desired, &actual);
    warnings.append(&mut actual.warnings);
    Ok(DeploymentSurvey {
        kind: SnapshotKind::Bootstrap,
        selection: selection.clone(),
        project,
        desired,
        actual,
        plan,
        warnings,
        lockfile_sha256: None,
    })
}

/// Operator assets that a folder lacks, or has of another version.
#[derive(Debug)]
pub struct OperatorGap {
    target: Target,
    scope: TargetScope,
    what: String,
}

impl OperatorGap {
    pub fn warning(&self) -> String {
        format!("operator assets {} ({}/{}); run: {}", self.what, self.target, self.scope, self.command())
    }

    pub fn command(&self) -> String {
        format!("agentpack --target {} bootstrap --scope {}", self.target, self.scope)
    }
}

/// What `bootstrap` would bring, folder by folder.
pub fn gaps(survey: &DeploymentSurvey) -> Vec<OperatorGap> {
    let mut gaps = Vec::new();
    for root in &survey.desired.roots {
        let project = root.base == survey.project.root;
        let scope = if project { TargetScope::Project } else { TargetScope::User };
        let mut missing = Vec::new();
        for (name, _) in assets(root) {
            let path = root.path.join(&name);
            match std::fs::read_to_string(&path) {
                Err(_) => missing.push(name),
                Ok(text) => gaps.extend(version_gap(&text).map(|why| OperatorGap {
                    target: root.target,
                    scope,
                    what: format!("{why}: {}", shown(&path)),
                })),
            }
        }
        if !missing.is_empty() {
            let what = if root.path.is_dir() {
                format!("incomplete: `{}` lacks {}", shown(&root.path), missing.join(", "))
            } else {
                format!("missing: {}", shown(&root.path))
            };
            gaps.push(OperatorGap { target: root.target, scope, what });
        }
    }
    gaps
}

/// What is wrong with the version an asset names, if anything is.
fn version_gap(text: &str) -> Option<String> {
    let named = text.lines().find_map(|line| line.split_once("agentpack_version:"));
    let version = named.map(|(_, rest)| rest.trim().trim_end_matches("-->").trim().trim_matches(['"', '\'']));
    match version {
        None => Some("name no version".to_owned()),
        Some(env!("CARGO_PKG_VERSION")) => None,
        Some(other) => Some(format!("are of version {other}")),
    }
}

/// Whether a file of a manifest is an operator asset.
pub fn is_operator(module_ids: &[String]) -> bool {
    module_ids.iter().any(|id| id == OPERATOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_asset_says_what_it_is_and_what_it_may_run() {
        for slash in &COMMANDS {
            let text = written(slash, "1.2.3");
            let head = crate::render::front_matter(&text).unwrap();
            assert!(head["description"].is_string() && head["agentpack_version"] == "1.2.3", "{text}");
            assert!(head["allowed-tools"].as_str().unwrap().starts_with("Bash(countersign pack "), "{text}");
            assert_eq!(slash.changes, head.get("disable-model-invocation").is_some(), "{text}");
            assert_eq!(slash.changes, slash.runs.contains("--yes"), "{text}");
            assert!(!text.contains("{{"), "{text}");
        }
        let head = crate::render::front_matter(SKILL).unwrap();
        assert!(head["name"] == "agentpack-operator" && head["description"].is_string());
    }
}
