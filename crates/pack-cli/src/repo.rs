//! Commands about the config repo: modules, pins, overlays, the remote, and reports on modules.

use std::io::{IsTerminal as _, Read as _};

use countersign_pack::error::{PackError, PackResult, shown};
use countersign_pack::events;
use countersign_pack::manifest::{Manifest, TargetScope};
use countersign_pack::overlay::{self, OverlayFill, OverlayKind, OverlayLayer, RebaseSparsity};
use countersign_pack::place::{PackEnvironment, Project};
use countersign_pack::plan::AdoptPolicy;
use countersign_pack::reply::PackCommandReply;
use countersign_pack::repo::{self, ModuleAddition, PullStrategy, StepPreference, WithGit};
use countersign_policy::refusal::{Code, Refusal};
use countersign_terminal::environment;
use countersign_terminal::output::Format;
use jiff::Timestamp;
use serde_json::json;

use super::arguments::OverlayCommand;
use super::command_runner::{PackRunner, PromptMode};
use super::{PackCommandResult, guide, show};

/// What two flags that exclude each other ask for.
pub(crate) fn wish(yes: bool, no: bool) -> StepPreference {
    match (yes, no) {
        (true, _) => StepPreference::Do,
        (false, true) => StepPreference::Leave,
        (false, false) => StepPreference::Usual,
    }
}

fn simply(reply: PackResult<PackCommandReply>) -> PackCommandResult {
    reply.map(|reply| (show::simple(&reply), reply))
}

impl PackRunner<'_> {
    pub(crate) fn init(&self, git: bool, guided: bool, bootstrap: bool) -> PackCommandResult {
        let place = self.place.clone();
        let wishes = if guided { Some(guide::ask(self.voice)?) } else { None };
        let git = if git && !self.pack.dry_run { WithGit::Yes } else { WithGit::No };
        let arguments = json!({"repo": place.repo});
        let text = wishes.as_ref().map(|wishes| repo::skeleton(&wishes.targets, wishes.scope));
        let made = self.change("init", "init", arguments, PromptMode::Never, move |system| {
            repo::init(&place, git, text.as_deref(), system)
        })?;
        if self.pack.dry_run || !(bootstrap || wishes.is_some_and(|wishes| wishes.bootstrap)) {
            return simply(Ok(made));
        }
        // The repo is the project here: people who work on it find the commands in it.
        let inside = PackEnvironment { cwd: self.place.repo.clone(), ..self.place.clone() };
        let within = PackRunner { pack: self.pack, place: &inside, life: self.life, voice: self.voice };
        let installed = within.install(TargetScope::Project, AdoptPolicy::Refused)?;
        simply(Ok(made.with("bootstrap", installed.data).warn(installed.warnings)))
    }

    pub(crate) fn add(&self, addition: ModuleAddition) -> PackCommandResult {
        let place = self.place.clone();
        let arguments = json!({"type": addition.kind, "source": addition.source, "id": addition.id});
        simply(self.change("add", "add", arguments, PromptMode::Never, move |system| {
            repo::add(&place, &addition, system)
        }))
    }

    pub(crate) fn remove(&self, id: &str) -> PackCommandResult {
        let (place, id) = (self.place.clone(), id.to_owned());
        let arguments = json!({"id": id});
        simply(self.change("remove", "remove", arguments, PromptMode::Never, move |system| {
            repo::remove(&place, &id, system)
        }))
    }

    pub(crate) fn lock(&self) -> PackCommandResult {
        let place = self.place.clone();
        simply(
            self.change("lock", "lock", json!({}), PromptMode::Never, move |system| {
                repo::lock(&place, system)
            }),
        )
    }

    pub(crate) fn fetch(&self) -> PackCommandResult {
        let place = self.place.clone();
        simply(self.change("fetch", "fetch", json!({}), PromptMode::Never, move |_| repo::fetch(&place)))
    }

    pub(crate) fn update(&self, lock: StepPreference, fetch: StepPreference) -> PackCommandResult {
        let place = self.place.clone();
        let work = move |system: &dyn countersign_pack::system::FileSystem| {
            repo::update(&place, lock, fetch, system)
        };
        simply(self.change("update", "update", json!({}), PromptMode::Never, work))
    }

    pub(crate) fn set_remote(&self, url: &str, name: &str) -> PackCommandResult {
        let (place, url, name) = (self.place.clone(), url.to_owned(), name.to_owned());
        let arguments = json!({"url": url, "name": name});
        let work = move |_: &dyn countersign_pack::system::FileSystem| repo::set_remote(&place, &url, &name);
        simply(self.change("remote set", "remote_set", arguments, PromptMode::Never, work))
    }

    pub(crate) fn sync(&self, rebase: bool, remote: &str) -> PackCommandResult {
        let (place, remote) = (self.place.clone(), remote.to_owned());
        let join = if rebase { PullStrategy::Rebase } else { PullStrategy::FastForward };
        let arguments = json!({"remote": remote});
        simply(
            self.change("sync", "sync", arguments, PromptMode::Never, move |_| {
                repo::sync(&place, join, &remote)
            }),
        )
    }

    pub(crate) fn record(&self) -> PackCommandResult {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| PackError::broken("read stdin", error))?;
        let place = self.place.clone();
        let work = move |_: &dyn countersign_pack::system::FileSystem| {
            events::record(&place, &text, Timestamp::now())
        };
        simply(self.change("record", "record", json!({}), PromptMode::Never, work))
    }

    pub(crate) fn overlay(&self, overlay: &OverlayCommand) -> PackCommandResult {
        let (manifest, _) = Manifest::load(self.place)?;
        let here = Project::at(&self.place.project_root());
        let (place, id) = (self.place.clone(), overlay.module_id().to_owned());
        if let OverlayCommand::Path { scope, .. } = overlay {
            // A path is a path, whether or not the module is there.
            let folder = overlay::folder(self.place, &here, *scope, &id);
            let reply = PackCommandReply::default().with("module_id", id).with("scope", scope.as_str());
            let reply = reply.with_path("overlay_dir", &folder);
            return Ok((show::overlay(&reply), reply));
        }
        let module = manifest.module(&id)?.clone();
        let reply = match overlay {
            OverlayCommand::Path { .. } => PackCommandReply::default(),
            OverlayCommand::Edit { scope, kind, sparse, materialize, project, .. } => {
                let fill = match (sparse, materialize) {
                    (true, _) => OverlayFill::Sparse,
                    (false, true) => OverlayFill::Materialize,
                    (false, false) => OverlayFill::Whole,
                };
                if *kind == OverlayKind::Patch && *materialize {
                    let message =
                        "an overlay of patches copies no files: `--materialize` is for `--kind dir`";
                    return Err(Refusal::new(Code::ConfigInvalid, message)
                        .with("module_id", id)
                        .with("scope", scope.as_str())
                        .with("hint", "leave `--materialize` out")
                        .into());
                }
                let (scope, kind) = (if *project { OverlayLayer::Project } else { *scope }, *kind);
                let made = self.change(
                    "overlay edit",
                    "overlay_edit",
                    json!({"module_id": id, "scope": scope}),
                    PromptMode::Never,
                    move |system| {
                        let made = overlay::edit(&place, &here, &module, scope, kind, fill, system)?;
                        let reply =
                            PackCommandReply::default().with("module_id", id).with("scope", scope.as_str());
                        let machine = (scope == OverlayLayer::Machine).then_some(place.machine);
                        let project = (scope == OverlayLayer::Project).then_some(here.id);
                        let patches = made.folder.join(".agentpack").join("patches");
                        let patches = (kind == OverlayKind::Patch).then(|| shown(&patches));
                        let reply = reply
                            .with_path("overlay_dir", &made.folder)
                            .with("created", made.created)
                            .with("sparse", fill == OverlayFill::Sparse)
                            .with("materialized", fill == OverlayFill::Materialize)
                            .with("machine_id", machine)
                            .with("project", project.is_some())
                            .with("project_id", project)
                            .with("patches_dir", patches);
                        Ok(reply.with("copied", made.copied).with("overlay_kind", kind.as_str()))
                    },
                )?;
                let edited = self.open_editor(&made);
                made.warn(edited)
            }
            OverlayCommand::Rebase { scope, sparsify, .. } => {
                let (scope, sparsity) =
                    (*scope, if *sparsify { RebaseSparsity::Sparsify } else { RebaseSparsity::Keep });
                self.change(
                    "overlay rebase",
                    "overlay_rebase",
                    json!({"module_id": id, "scope": scope}),
                    PromptMode::Never,
                    move |system| {
                        let done = overlay::rebase(&place, &here, &module, scope, sparsity, system)?;
                        let reply =
                            PackCommandReply::default().with("module_id", id).with("scope", scope.as_str());
                        let reply =
                            reply.with_path("overlay_dir", &done.folder).with("updated", done.updated.clone());
                        let lists =
                            [&done.updated, &done.deleted, &done.unchanged, &done.conflicts].map(Vec::len);
                        let report = json!({
                            "updated": done.updated, "deleted": done.deleted, "skipped": done.unchanged,
                            "conflicts": done.conflicts,
                            "summary": {
                                "processed_files": lists.iter().sum::<usize>(), "updated_files": done.updated.len(),
                                "deleted_files": done.deleted.len(), "skipped_files": done.unchanged.len(),
                                "conflict_files": done.conflicts.len(),
                            },
                        });
                        Ok(reply
                            .with("deleted", done.deleted)
                            .with("unchanged", done.unchanged)
                            .with("conflicts", done.conflicts)
                            .with("report", report)
                            .with("dry_run", false)
                            .with("sparsify", sparsity == RebaseSparsity::Sparsify))
                    },
                )?
            }
        };
        Ok((show::overlay(&reply), reply))
    }
}

impl PackRunner<'_> {
    /// Opens a person's own editor on an overlay. Programs and pipes edit for themselves.
    fn open_editor(&self, made: &PackCommandReply) -> Vec<String> {
        let editor = environment::variable("VISUAL").or_else(|| environment::variable("EDITOR"));
        let folder = made.data.get("overlay_dir").and_then(serde_json::Value::as_str);
        let (Some(editor), Some(folder)) = (editor, folder) else { return Vec::new() };
        if self.pack.dry_run || self.voice.format == Format::Json || !std::io::stdin().is_terminal() {
            return Vec::new();
        }
        let mut words = editor.split_whitespace();
        let program = words.next().unwrap_or_default();
        match std::process::Command::new(program).args(words).arg(folder).current_dir(folder).status() {
            Ok(status) if status.success() => Vec::new(),
            Ok(status) => vec![format!("the editor `{editor}` ended with {status}; the overlay is there")],
            Err(error) => {
                vec![format!("the editor `{editor}` can't be started: {error}; the overlay is there")]
            }
        }
    }
}

impl OverlayCommand {
    fn module_id(&self) -> &str {
        match self {
            OverlayCommand::Edit { id, .. }
            | OverlayCommand::Rebase { id, .. }
            | OverlayCommand::Path { id, .. } => id,
        }
    }
}
