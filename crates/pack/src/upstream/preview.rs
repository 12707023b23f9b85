//! Previews of changes: the answer for programs, and a list and a unified diff for the person who decides.

use serde_json::Value;

use countersign_policy::words::plural;

use crate::diff::{self, DiffBody};
use crate::error::{PackError, PackResult, shown};
use crate::evolve::{self, MissingFile, OverlayProposal};
use crate::plan::{FileOp, UpdateKind};
use crate::render::TEXT_LIMIT;
use crate::reply::PackCommandReply;
use crate::rollback::{RollbackChange, RollbackPlan};
use crate::survey::DeploymentSurvey;
use crate::system::FileSystem;
use crate::tools::planned;

/// So much of a difference is shown at once; what is left out is named.
const MOST: usize = 1024 * 1024;

/// A change that is only shown.
pub(crate) struct ChangePreview {
    pub reply: PackCommandReply,
    list: String,
    diff: String,
}

impl ChangePreview {
    pub(crate) fn plain(reply: PackCommandReply) -> Self {
        Self { reply, list: String::new(), diff: String::new() }
    }

    /// For a person: what would change, then how.
    pub(crate) fn texts(&self) -> Vec<String> {
        [&self.list, &self.diff].into_iter().filter(|text| !text.is_empty()).cloned().collect()
    }

    fn line(&mut self, op: FileOp, path: &str, note: &str) {
        let sign = match op {
            FileOp::Create => '+',
            FileOp::Update => '~',
            FileOp::Delete => '-',
        };
        self.list.push_str(&format!("{sign} {path}{note}\n"));
    }

    fn add(&mut self, path: &str, lines: &DiffBody) {
        let text = match lines {
            DiffBody::Unified(text) if self.diff.len() + text.len() <= MOST => text.as_str(),
            DiffBody::Unified(_) => {
                return self
                    .list
                    .push_str(&format!("  {path}: its difference is not shown, there are too many\n"));
            }
            DiffBody::TooLong => {
                return self.list.push_str(&format!("  {path}: too long to compare line by line\n"));
            }
            DiffBody::Binary => return self.list.push_str(&format!("  {path}: not text\n")),
        };
        // Two targets may have a file of the same name: which one is meant stands above its difference.
        self.diff.push_str(&format!("diff {path}\n"));
        self.diff.push_str(text);
        if !text.ends_with('\n') {
            self.diff.push('\n');
        }
    }

    pub(crate) fn deployment(survey: &DeploymentSurvey, system: &dyn FileSystem) -> PackResult<Self> {
        let diffs = diff::diffs(survey, system)?;
        let (files, mut warnings) = diff::files_value(&diffs);
        warnings.splice(0..0, survey.warnings.iter().cloned());
        let mut seen =
            Self::plain(PackCommandReply::new(planned(survey)).with("files", files).warn(warnings));
        for change in &survey.plan.changes {
            let note = match change.update_kind {
                Some(UpdateKind::Adopt) => "  (somebody else's: a backup is kept)",
                Some(UpdateKind::Managed) | None => "",
            };
            seen.line(change.op, &shown(&change.path), note);
        }
        let [create, update, delete] =
            [FileOp::Create, FileOp::Update, FileOp::Delete].map(|op| survey.plan.count(op));
        seen.list.push_str(&format!("Plan: {create} to create, {update} to update, {delete} to delete.\n"));
        for diff in &diffs {
            seen.add(&shown(&diff.change.path), &diff.text);
        }
        Ok(seen)
    }

    pub(crate) fn rollback_preview(plan: &RollbackPlan, system: &dyn FileSystem) -> PackResult<Self> {
        let changes: Vec<Value> = plan.changes().iter().map(RollbackChange::to_value).collect();
        let reply = PackCommandReply::default()
            .with("rolled_back_to", plan.to())
            .with("reason", "dry_run")
            .with("changes", changes);
        let mut seen = Self::plain(reply);
        for change in plan.changes() {
            seen.line(change.op(), &shown(&change.path), "");
        }
        let files = plural(plan.changes().len(), "file");
        seen.list.push_str(&format!("Rollback: {files} to go back to {}.\n", plan.to()));
        for change in plan.changes() {
            seen.add(&shown(&change.path), &change.lines(system)?);
        }
        Ok(seen)
    }

    /// What proposing would commit.
    pub(crate) fn proposal(
        survey: &DeploymentSurvey,
        found: &OverlayProposal,
        system: &dyn FileSystem,
    ) -> PackResult<Self> {
        let mut seen = Self::plain(found.reply(found.nothing().unwrap_or("dry_run")));
        for candidate in &found.candidates {
            seen.line(FileOp::Update, &format!("{}: {}", candidate.module_id, candidate.source), "");
            let module = survey.desired.modules.iter().find(|module| module.id == candidate.module_id);
            let before = module.and_then(|module| module.files.get(&candidate.source));
            let before = match before.map(|file| file.content.bytes(system, TEXT_LIMIT)) {
                Some(Ok(bytes)) => bytes,
                Some(Err(error)) => return Err(PackError::io("read", &candidate.path, &error)),
                None => Vec::new(),
            };
            let lines = diff::lines(&candidate.source, FileOp::Update, before, candidate.content.clone());
            seen.add(&candidate.source, &lines);
        }
        let (edits, left_out) = (found.candidates.len(), found.skipped.len());
        let edits = plural(edits, "edit");
        seen.list.push_str(&format!("Proposal: {edits} for overlays on a branch, {left_out} left out.\n"));
        Ok(seen)
    }

    pub(crate) fn restoration(
        survey: &DeploymentSurvey,
        missing: &[MissingFile],
        module_id: Option<&str>,
        system: &dyn FileSystem,
    ) -> PackResult<Self> {
        let mut seen = Self::plain(evolve::dry_reply(survey, missing, module_id));
        for file in missing {
            seen.line(FileOp::Create, &shown(&file.path), "");
        }
        seen.list
            .push_str(&format!("Restoration: {} to create again.\n", plural(missing.len(), "missing file")));
        let wanted = |path: &std::path::Path| missing.iter().any(|file| file.path == path);
        for change in
            survey.plan.changes.iter().filter(|change| change.op == FileOp::Create && wanted(&change.path))
        {
            seen.add(&shown(&change.path), &diff::diff(survey, change, system)?.text);
        }
        Ok(seen)
    }
}
