//! Importing: turns existing instructions, skills, prompts and commands into modules of the config repo. Overwrites nothing.

mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::words::words;
use serde_json::{Map, Value, json};

use crate::error::{PackError, PackResult, shown};
use crate::manifest::{self, LocalPath, Manifest, Module, ModuleSource, ModuleType};
use crate::place::{MANIFEST, PackEnvironment, Project, posix};
use crate::reply::{PackCommandReply, put_path};
use crate::system::{self, FileSystem, PathStatus, WriteSource};
use crate::tree::{self, TreeFile};

words! {
    /// What becomes of something that was found.
    pub enum ImportOp("import op") {
        Create = "create",
        /// There is a module of that id.
        SkipExisting = "skip_existing_module",
        SkipInvalid = "skip_invalid",
    }
}

#[derive(Clone, Debug)]
pub struct ImportItem {
    pub op: ImportOp,
    pub module: Module,
    /// `user` or `project`.
    pub scope: &'static str,
    pub source: PathBuf,
    pub dest: PathBuf,
    pub dest_exists: bool,
    /// Why it is skipped, as a word.
    pub why: Option<String>,
    /// What is wrong with it, as a sentence.
    invalid: Option<String>,
    files: Vec<TreeFile>,
}

#[derive(Clone, Debug)]
pub struct ImportPlan {
    pub(crate) items: Vec<ImportItem>,
    /// The project it was looked for in.
    pub project: Project,
    home: PathBuf,
    warnings: Vec<String>,
}

/// Looks for what could be imported. Writes nothing.
pub fn plan(place: &PackEnvironment, home: &Path, system: &dyn FileSystem) -> PackResult<ImportPlan> {
    let (manifest, mut warnings) = Manifest::load(place)?;
    let project = Project::at(&place.project_root());
    let mut items = scan::scan(place, &project, home, system, &mut warnings)?;
    items.sort_by(|a, b| (&a.module.id, &a.source).cmp(&(&b.module.id, &b.source)));
    for item in &items {
        if let Some(invalid) = &item.invalid {
            warnings.push(format!("{} is skipped: {invalid}", item.module.id));
        }
    }
    let mut seen = BTreeSet::new();
    for item in &mut items {
        if item.op == ImportOp::Create && manifest.modules.iter().any(|module| module.id == item.module.id) {
            item.op = ImportOp::SkipExisting;
            item.why = Some("module_id_already_exists".to_owned());
        }
        if !seen.insert(item.module.id.clone()) {
            item.op = ImportOp::SkipInvalid;
            item.why = Some("duplicate_module_id_in_scan".to_owned());
        }
        let found =
            system.path_status(&item.dest).map_err(|error| PackError::io("read", &item.dest, &error))?;
        item.dest_exists = found != PathStatus::Missing;
    }
    Ok(ImportPlan { items, project, home: home.to_path_buf(), warnings })
}

impl ImportPlan {
    fn created(&self) -> impl Iterator<Item = &ImportItem> {
        self.items.iter().filter(|item| item.op == ImportOp::Create)
    }

    pub fn is_empty(&self) -> bool {
        self.created().next().is_none()
    }

    fn in_the_way(&self) -> Vec<&ImportItem> {
        self.created().filter(|item| item.dest_exists).collect()
    }

    /// Refuses where something is in the way.
    pub fn check(&self) -> PackResult<()> {
        let taken = self.in_the_way();
        let Some(first) = taken.first() else { return Ok(()) };
        let sample: Vec<String> = taken.iter().take(20).map(|item| shown(&item.dest)).collect();
        let message = format!("`{}` is there already and is not overwritten", shown(&first.dest));
        Err(Refusal::new(Code::ImportConflict, message)
            .with("count", taken.len())
            .with("sample_paths_posix", sample.clone())
            .with("sample_paths", sample)
            .into())
    }

    fn conflicts(&self) -> Vec<Value> {
        let mut conflicts = Vec::new();
        let taken = self.in_the_way();
        if !taken.is_empty() {
            let sample: Vec<String> = taken.iter().take(20).map(|item| shown(&item.dest)).collect();
            conflicts.push(json!({
                "kind": "dest_path_exists", "count": taken.len(), "sample_paths": sample, "sample_paths_posix": sample,
                "hint": "move or rename what is there, then import again",
            }));
        }
        let mut twice: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for item in &self.items {
            twice.entry(&item.module.id).or_default().push(shown(&item.source));
        }
        for (id, paths) in twice.into_iter().filter(|(_, paths)| paths.len() > 1) {
            conflicts.push(json!({
                "kind": "duplicate_module_id_in_scan", "module_id": id, "count": paths.len(), "sample_paths": paths,
                "sample_paths_posix": paths, "hint": "only the first is imported; rename the others",
            }));
        }
        conflicts
    }

    /// The answer of `import`.
    pub fn reply(&self, place: &PackEnvironment, applied: bool) -> PackCommandReply {
        let count = |op| self.items.iter().filter(|item| item.op == op).count();
        let mut project = Map::new();
        project.insert("project_id".into(), self.project.id.as_str().into());
        put_path(&mut project, "project_root", &self.project.root);
        project.insert("origin_url".into(), self.project.origin.as_deref().into());
        let mut reply = PackCommandReply::default().with("applied", applied);
        if !applied {
            reply = reply.with("reason", "dry_run");
        }
        let of_project = self.items.iter().any(|item| item.scope == "project");
        let profile =
            if of_project { format!(" --profile project-{}", self.project.id) } else { String::new() };
        let next = ["preview --diff --json", "deploy --apply --yes --json"];
        let next = next.map(|command| format!("agentpack{profile} {command}"));
        reply
            .with_path("repo", &place.repo)
            .with_path("home_root", &self.home)
            .with("project", project)
            .with("plan", self.items.iter().map(ImportItem::to_value).collect::<Vec<_>>())
            .with(
                "summary",
                json!({
                    "candidates": self.items.len(),
                    "create": count(ImportOp::Create),
                    "skipped_existing_module": count(ImportOp::SkipExisting),
                    "skipped_invalid": count(ImportOp::SkipInvalid),
                }),
            )
            .with("conflicts", self.conflicts())
            .with("next_actions", json!(next))
            .warn(self.warnings.clone())
    }
}

impl ImportItem {
    fn to_value(&self) -> Value {
        let mut entry = Map::new();
        entry.insert("op".into(), self.op.as_str().into());
        entry.insert("module_id".into(), self.module.id.as_str().into());
        entry.insert("module_type".into(), self.module.kind.as_str().into());
        entry.insert("scope".into(), self.scope.into());
        put_path(&mut entry, "source_path", &self.source);
        put_path(&mut entry, "dest_path", &self.dest);
        entry.insert("tags".into(), json!(self.module.tags));
        entry.insert("targets".into(), json!(self.module.targets));
        if self.dest_exists {
            entry.insert("dest_exists".into(), true.into());
        }
        if let Some(why) = &self.why {
            entry.insert("skip_reason".into(), why.as_str().into());
        }
        Value::Object(entry)
    }
}

/// Copies what was found and adds it to the manifest, which is written last: until then nothing has been imported.
pub fn apply(
    import: &ImportPlan,
    place: &PackEnvironment,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    import.check()?;
    let path = place.repo.join(MANIFEST);
    let bytes =
        system::read(system, &path, 16 << 20).map_err(|error| PackError::io("read", &path, &error))?;
    let mut text = String::from_utf8(bytes).map_err(|error| PackError::broken("read the manifest", error))?;
    let mut warnings = Vec::new();
    let (manifest, _) = Manifest::parse(&text, &path)?;
    for item in import.created() {
        text = manifest::add(&text, &item.module, &path)?;
    }
    if import.created().any(|item| item.scope == "project") {
        let name = format!("project-{}", import.project.id);
        let mut tags =
            manifest.profiles.get("default").map(|known| known.include_tags.clone()).unwrap_or_default();
        tags.push(name.clone());
        match manifest::add_profile(&text, &name, &tags, &path) {
            Ok(edited) => text = edited,
            Err(_) => warnings.push(format!("add a profile `{name}` that includes the tag `{name}` by hand")),
        }
    }
    let mut made = Vec::new();
    let copied = import.created().try_for_each(|item| copy(item, system, &mut made));
    let written = copied.and_then(|()| {
        system::write_whole(system, &path, text.as_bytes())
            .map_err(|error| PackError::io("write", &path, &error))
    });
    if let Err(stop) = written {
        for path in made.iter().rev() {
            let _ = system.remove(path);
        }
        return Err(stop);
    }
    Ok(import.reply(place, true).warn(warnings))
}

fn copy(item: &ImportItem, system: &dyn FileSystem, made: &mut Vec<PathBuf>) -> PackResult<()> {
    let single = matches!(item.module.kind, ModuleType::Prompt | ModuleType::Command);
    for file in &item.files {
        let to = if single { item.dest.clone() } else { item.dest.join(&file.name) };
        let folder = to.parent().unwrap_or(&item.dest);
        let io = |error: std::io::Error| PackError::io("write", &to, &error);
        system::make_folders(system, folder).map_err(io)?;
        // Not there before: whatever came there meanwhile stays, and stops this.
        system.write_new(&to, WriteSource::CopyOf(&file.path), file.stamp.access).map_err(io)?;
        made.push(to.clone());
        system.sync_folder(folder).map_err(io)?;
    }
    Ok(())
}

fn module(
    kind: ModuleType,
    id: String,
    tags: Vec<String>,
    targets: &[&str],
    dest: &Path,
    place: &PackEnvironment,
) -> Module {
    let path = posix(dest.strip_prefix(&place.repo).unwrap_or(dest));
    Module {
        id,
        kind,
        enabled: true,
        tags,
        targets: targets.iter().map(|target| (*target).to_owned()).collect(),
        source: ModuleSource { local_path: Some(LocalPath { path }), git: None },
    }
}

/// The files of something that was found; none and why, if they can't be a module.
fn files_of(system: &dyn FileSystem, root: &Path) -> Result<Vec<TreeFile>, String> {
    tree::files(system, root).map_err(|stop| stop.to_string())
}
