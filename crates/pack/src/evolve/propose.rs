//! Proposals: an edited file becomes an overlay of its module, committed on a new branch. Leaves the user's branch and the deployed
//! files alone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Map, Value, json};

use super::section;
use crate::desired_state::key;
use crate::error::{PackError, PackResult};
use crate::git::GitRepo;
use crate::manifest::{Manifest, Target};
use crate::overlay::{self, OverlayFill, OverlayKind, OverlayLayer};
use crate::place::{PackEnvironment, Project, posix};
use crate::plan::{FileChange, FileOp};
use crate::render::TEXT_LIMIT;
use crate::reply::{PackCommandReply, put_path};
use crate::survey::DeploymentSurvey;
use crate::system::{self, FileSystem};

/// An edit that can become an overlay.
#[derive(Clone, Debug)]
pub(crate) struct OverlayCandidate {
    pub module_id: String,
    /// Found in a file of which target.
    pub target: Target,
    pub path: PathBuf,
    pub source: String,
    pub content: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SkipReason {
    /// The file is gone: there is nothing to propose.
    Missing,
    /// Several modules are behind the file, and the markers do not say which one was edited.
    MultiModule,
    /// The same file of the module was edited differently in two places.
    Conflicting,
    /// The module has an overlay of patches in that scope, and whole files don't mix with patches.
    PatchOverlay,
}

impl SkipReason {
    pub(crate) const fn code(self) -> &'static str {
        match self {
            SkipReason::Missing => "missing",
            SkipReason::MultiModule => "multi_module_output",
            SkipReason::Conflicting => "conflicting_edits",
            SkipReason::PatchOverlay => "patch_overlay",
        }
    }
    const fn message(self) -> &'static str {
        match self {
            SkipReason::Missing => "the deployed file is gone",
            SkipReason::MultiModule => {
                "several modules are behind the file and its section markers can't be read"
            }
            SkipReason::Conflicting => "the same file of the module was edited differently elsewhere",
            SkipReason::PatchOverlay => "the module's overlay in this scope is made of patches",
        }
    }
    /// What helps, and why.
    const fn suggestions(self) -> &'static [(&'static str, &'static str)] {
        match self {
            SkipReason::Missing => &[
                ("agentpack evolve restore", "creates what is missing and overwrites nothing"),
                ("agentpack deploy --apply", "deploys everything again and writes manifests"),
            ],
            SkipReason::MultiModule => &[
                ("put the section markers back", "they say which module an edit belongs to"),
                ("give each module a file of its own", "then every edit has one owner"),
            ],
            SkipReason::Conflicting => &[("make both edits the same", "one file has one content")],
            SkipReason::PatchOverlay => &[("edit the patch", "whole files don't mix with patches")],
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SkippedEdit {
    pub why: SkipReason,
    pub target: Target,
    pub path: PathBuf,
    pub module_ids: Vec<String>,
}

impl SkippedEdit {
    /// Commands that create a missing file again.
    fn next_actions(&self, prefix: &str) -> Value {
        if self.why != SkipReason::Missing {
            return json!([]);
        }
        let of = match self.module_ids.as_slice() {
            [only] => format!(" --module-id {only}"),
            _ => String::new(),
        };
        json!([
            format!("{prefix} evolve restore{of} --yes --json"),
            format!("{prefix} deploy --apply --yes --json")
        ])
    }
}

#[derive(Clone, Debug, Default)]
pub struct OverlayProposal {
    /// What commands that are suggested begin with.
    command_prefix: String,
    pub(crate) candidates: Vec<OverlayCandidate>,
    pub(crate) skipped: Vec<SkippedEdit>,
}

pub fn survey_proposal(
    place: &PackEnvironment,
    survey: &DeploymentSurvey,
    module_id: Option<&str>,
    layer: OverlayLayer,
    system: &dyn FileSystem,
) -> PackResult<OverlayProposal> {
    let mut proposal =
        OverlayProposal { command_prefix: survey.command_prefix(), ..OverlayProposal::default() };
    let mut seen: BTreeMap<(String, String), Digest> = BTreeMap::new();
    for change in survey.plan.changes.iter().filter(|change| change.op != FileOp::Delete) {
        let Some(output) = survey.desired.outputs.get(&key(change.target, &change.path)) else {
            continue;
        };
        let recorded = survey.actual.managed.get(&key(change.target, &change.path)).copied().flatten();
        // As it was deployed: the module has moved on, nobody edited the file.
        if recorded.is_some() && recorded == change.before {
            continue;
        }
        let ids: Vec<String> =
            output.module_ids.iter().filter(|id| module_id.is_none_or(|only| only == *id)).cloned().collect();
        if ids.is_empty() {
            continue;
        }
        let skip = |why| SkippedEdit {
            why,
            target: change.target,
            path: change.path.clone(),
            module_ids: ids.clone(),
        };
        if change.op == FileOp::Create {
            proposal.skipped.push(skip(SkipReason::Missing));
            continue;
        }
        let Some(found) = edits(survey, change, &ids, output.module_ids.len(), system)? else {
            proposal.skipped.push(skip(SkipReason::MultiModule));
            continue;
        };
        for candidate in found {
            let place_of = (candidate.module_id.clone(), candidate.source.clone());
            let digest = Digest::plain(&candidate.content);
            let folder = overlay::folder(place, &survey.project, layer, &candidate.module_id);
            if folder.is_dir() && overlay::kind(system, &folder)? == OverlayKind::Patch {
                proposal.skipped.push(skip(SkipReason::PatchOverlay));
                continue;
            }
            match seen.get(&place_of) {
                None => {
                    seen.insert(place_of, digest);
                    proposal.candidates.push(candidate);
                }
                Some(known) if *known == digest => {}
                Some(_) => proposal.skipped.push(skip(SkipReason::Conflicting)),
            }
        }
    }
    proposal
        .skipped
        .sort_by(|a, b| (a.why.code(), a.target, &a.path).cmp(&(b.why.code(), b.target, &b.path)));
    Ok(proposal)
}

/// The edits in one file, module by module; none if it can't be told whose they are.
fn edits(
    survey: &DeploymentSurvey,
    change: &FileChange,
    ids: &[String],
    behind: usize,
    system: &dyn FileSystem,
) -> PackResult<Option<Vec<OverlayCandidate>>> {
    let bytes = system::read(system, &change.path, TEXT_LIMIT)
        .map_err(|error| PackError::io("read", &change.path, &error))?;
    let Some(output) = survey.desired.outputs.get(&key(change.target, &change.path)) else {
        return Ok(None);
    };
    let candidate = |module_id: &str, content: Vec<u8>| OverlayCandidate {
        module_id: module_id.to_owned(),
        target: change.target,
        path: change.path.clone(),
        source: output.source.clone(),
        content,
    };
    if behind == 1 {
        let content = if change.target == Target::Cursor { without_head(bytes) } else { bytes };
        return Ok(Some(ids.iter().map(|id| candidate(id, content.clone())).collect()));
    }
    let (Ok(now), Ok(was)) = (String::from_utf8(bytes), output.content.bytes(system, TEXT_LIMIT)) else {
        return Ok(None);
    };
    let Ok(was) = String::from_utf8(was) else { return Ok(None) };
    let mut found = Vec::new();
    for id in ids {
        match (section(&now, id), section(&was, id)) {
            (Some(now), Some(was)) if now == was => {}
            (Some(now), Some(_)) => found.push(candidate(id, now.into_bytes())),
            (None, _) | (_, None) => return Ok(None),
        }
    }
    Ok(if found.is_empty() { None } else { Some(found) })
}

/// A rule of Cursor without the head we put in front.
fn without_head(bytes: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8_lossy(&bytes);
    let rest = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")).map(|(_, body)| body);
    match rest {
        Some(body) => body.strip_prefix('\n').unwrap_or(body).as_bytes().to_vec(),
        None => bytes,
    }
}

impl OverlayProposal {
    pub fn reply(&self, reason: &str) -> PackCommandReply {
        let candidates: Vec<Value> = self
            .candidates
            .iter()
            .map(|candidate| {
                let mut entry = Map::new();
                entry.insert("module_id".into(), candidate.module_id.as_str().into());
                entry.insert("target".into(), candidate.target.as_str().into());
                put_path(&mut entry, "path", &candidate.path);
                entry.insert("module_path".into(), candidate.source.as_str().into());
                entry.insert("after_sha256".into(), Digest::plain(&candidate.content).hex().into());
                Value::Object(entry)
            })
            .collect();
        PackCommandReply::default()
            .with("created", false)
            .with("reason", reason)
            .with("candidates", candidates)
            .with("skipped", self.skipped_value())
            .with("summary", self.summary())
    }

    /// Why nothing can be proposed, if nothing can.
    pub fn nothing(&self) -> Option<&'static str> {
        match (self.candidates.is_empty(), self.skipped.is_empty()) {
            (false, _) => None,
            (true, true) => Some("no_drift"),
            (true, false) => Some("no_proposeable_drift"),
        }
    }

    fn summary(&self) -> Value {
        let missing = self.skipped.iter().filter(|skipped| skipped.why == SkipReason::Missing).count();
        let multi = self.skipped.iter().filter(|skipped| skipped.why == SkipReason::MultiModule).count();
        json!({
            "drifted_proposeable": self.candidates.len(),
            "drifted_skipped": self.skipped.len(),
            "skipped_missing": missing,
            "skipped_multi_module": multi,
            "skipped_read_error": 0,
        })
    }

    fn skipped_value(&self) -> Value {
        let entries = self.skipped.iter().map(|skipped| {
            let mut entry = Map::new();
            entry.insert("reason".into(), skipped.why.code().into());
            entry.insert("reason_code".into(), skipped.why.code().into());
            entry.insert("reason_message".into(), skipped.why.message().into());
            let suggestions = skipped.why.suggestions().iter();
            let suggestions = suggestions.map(|(action, reason)| json!({"action": action, "reason": reason}));
            entry.insert("suggestions".into(), suggestions.collect());
            entry.insert("next_actions".into(), skipped.next_actions(&self.command_prefix));
            entry.insert("target".into(), skipped.target.as_str().into());
            put_path(&mut entry, "path", &skipped.path);
            entry.insert("module_ids".into(), json!(skipped.module_ids));
            if let [only] = skipped.module_ids.as_slice() {
                entry.insert("module_id".into(), only.as_str().into());
            }
            Value::Object(entry)
        });
        entries.collect()
    }
}

/// Commits the candidates as overlays on a new branch, whole or not at all. The branch that is checked out stays so.
pub fn propose(
    place: &PackEnvironment,
    manifest: &Manifest,
    project: &Project,
    proposal: &OverlayProposal,
    layer: OverlayLayer,
    branch: &str,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    let git = GitRepo::own(place);
    git.require_repo("evolve propose")?;
    git.require_clean("evolve propose")?;
    if branch.starts_with('-') || !git.try_run(&["check-ref-format", "--branch", branch])?.0 {
        return Err(Refusal::new(Code::ArgumentsInvalid, format!("`{branch}` is not a branch name"))
            .with("field", "branch")
            .into());
    }
    let checkout = git.branch_checkout(branch)?;
    let mut files = Vec::new();
    let mut folders = Vec::new();
    for candidate in &proposal.candidates {
        let module = manifest.module(&candidate.module_id)?;
        let there = &checkout.place;
        let made =
            overlay::edit(there, project, module, layer, OverlayKind::Dir, OverlayFill::Sparse, system)?;
        let path = made.folder.join(&candidate.source);
        system::write_whole(system, &path, &candidate.content)
            .map_err(|error| PackError::io("write", &path, &error))?;
        files.push(path.strip_prefix(&there.repo).unwrap_or(&path).to_path_buf());
        folders.push(posix(made.folder.strip_prefix(&there.repo).unwrap_or(&made.folder)));
    }
    folders.sort();
    folders.dedup();
    checkout.commit(&folders, "chore(evolve): propose overlay updates")?;
    let text: Vec<String> = files.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let reply = PackCommandReply::default()
        .with("created", true)
        .with("branch", branch)
        .with("scope", layer.as_str());
    let reply = reply
        .with("files_posix", files.iter().map(|path| posix(path)).collect::<Vec<_>>())
        .with("files", text);
    let reply = reply.with("skipped", proposal.skipped_value()).with("summary", proposal.summary());
    Ok(reply.with("committed", true))
}
