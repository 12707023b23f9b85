//! Finds what can be imported: Codex's prompts and skills and Claude Code's commands, in the home folder and the project. Skips what
//! the pack itself deployed.

use std::path::{Path, PathBuf};

use super::{ImportItem, ImportOp, files_of, module};
use crate::error::{PackError, PackResult, shown};
use crate::manifest::{ModuleType, Target};
use crate::place::{PackEnvironment, Project};
use crate::records;
use crate::render;
use crate::system::{EntryKind, FileSystem, PathStatus};

/// One kind of thing in one folder.
struct ScanLocation<'a> {
    place: &'a PackEnvironment,
    system: &'a dyn FileSystem,
    folder: PathBuf,
    kind: ModuleType,
    target: Target,
    project: Option<&'a Project>,
    /// Links to folders may lead here and nowhere else.
    bound: &'a Path,
}

pub(super) fn scan(
    place: &PackEnvironment,
    project: &Project,
    home: &Path,
    system: &dyn FileSystem,
    warnings: &mut Vec<String>,
) -> PackResult<Vec<ImportItem>> {
    let mut found = Vec::new();
    let corner = |folder: PathBuf, kind, target, project, bound| ScanLocation {
        place,
        system,
        folder,
        kind,
        target,
        project,
        bound,
    };
    let user = |name: &str, kind, target| corner(home.join(name), kind, target, None, home);
    let here = |name: &str, kind, target| {
        corner(project.root.join(name), kind, target, Some(project), &project.root)
    };
    let corners = [
        user(".codex", ModuleType::Instructions, Target::Codex),
        user(".codex/prompts", ModuleType::Prompt, Target::Codex),
        user(".codex/skills", ModuleType::Skill, Target::Codex),
        user(".claude/commands", ModuleType::Command, Target::ClaudeCode),
        here("", ModuleType::Instructions, Target::Codex),
        here(".codex/skills", ModuleType::Skill, Target::Codex),
        here(".claude/commands", ModuleType::Command, Target::ClaudeCode),
    ];
    for corner in corners {
        if project.root == home && corner.project.is_some() {
            // A project that is the home folder has nothing of its own.
            continue;
        }
        corner.path_status(&mut found, warnings)?;
    }
    Ok(found)
}

impl ScanLocation<'_> {
    fn path_status(&self, found: &mut Vec<ImportItem>, warnings: &mut Vec<String>) -> PackResult<()> {
        let ours = self.deployed();
        if self.kind == ModuleType::Instructions {
            let source = self.folder.join("AGENTS.md");
            if matches!(self.system.path_status(&source), Ok(PathStatus::File(_))) && !ours.contains(&source)
            {
                found.push(self.item("", source));
            }
            return Ok(());
        }
        let entries = match self.system.list(&self.folder) {
            Ok(entries) => entries,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(PackError::io("list", &self.folder, &error)),
        };
        for (name, kind) in entries {
            let path = self.folder.join(&name);
            let Some(name) = name.to_str() else { continue };
            let skill = self.kind == ModuleType::Skill;
            let stem = match (skill, kind) {
                (true, EntryKind::Folder) => name,
                (true, EntryKind::Link) if path.is_dir() => name,
                (false, EntryKind::File) => match name.strip_suffix(".md") {
                    Some(stem) => stem,
                    None => continue,
                },
                (true | false, EntryKind::File | EntryKind::Folder | EntryKind::Link | EntryKind::Other) => {
                    continue;
                }
            };
            if ours.iter().any(|file| file.starts_with(&path)) {
                continue;
            }
            let mut item = self.item(stem, path.clone());
            if kind == EntryKind::Link {
                self.follow(&mut item, warnings);
            }
            found.push(item);
        }
        Ok(())
    }

    /// The files in this folder that the pack deployed.
    fn deployed(&self) -> Vec<PathBuf> {
        let mut quiet = Vec::new();
        let record = records::read(self.system, &self.folder, self.target, &mut quiet);
        record.iter().flat_map(|found| found.record.files(&self.folder)).map(|(path, ..)| path).collect()
    }

    /// A linked folder is the one it leads to, as long as that is the user's own.
    fn follow(&self, item: &mut ImportItem, warnings: &mut Vec<String>) {
        let bound = self.bound.canonicalize().unwrap_or_else(|_| self.bound.to_path_buf());
        match item.source.canonicalize().ok().filter(|real| real.starts_with(&bound)) {
            Some(real) => {
                warnings.push(format!(
                    "dereferenced symlinked directory source `{}` of {}",
                    shown(&item.source),
                    item.module.id
                ));
                self.check(item, &real);
            }
            None => refuse(item, "the link leads elsewhere"),
        }
    }

    fn item(&self, stem: &str, source: PathBuf) -> ImportItem {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
        let stem: String = stem.chars().map(plain).collect();
        let stem = stem.trim_matches(|c| matches!(c, '-' | '.'));
        let of_project = self.project.map(|project| format!("project-{}", project.id));
        let name = match (&of_project, stem) {
            (Some(project), "") => project.clone(),
            (Some(project), stem) => format!("{project}-{stem}"),
            (None, "") => "user".to_owned(),
            (None, stem) => stem.to_owned(),
        };
        let scope = if of_project.is_some() { "project" } else { "user" };
        let whose = of_project.clone().unwrap_or_else(|| "user".to_owned());
        let modules = self.place.repo.join("modules");
        let dest = match self.kind {
            ModuleType::Instructions => {
                let folder = self.project.map_or("user", |project| project.id.as_str());
                modules.join("instructions/imported").join(folder)
            }
            ModuleType::Skill => modules.join("skills/imported").join(&name),
            ModuleType::Prompt => modules.join("prompts/imported").join(format!("{stem}.md")),
            ModuleType::Command => {
                modules.join("claude-commands/imported").join(whose).join(format!("{stem}.md"))
            }
        };
        let targets: &[&str] = match self.kind {
            ModuleType::Instructions => &["codex", "cursor", "vscode"],
            ModuleType::Skill | ModuleType::Prompt | ModuleType::Command => &[self.target.as_str()],
        };
        // What is the user's belongs to every project: the default profile deploys it.
        let base = of_project.is_none().then(|| "base".to_owned());
        let tags = base.into_iter().chain(["imported".to_owned(), scope.to_owned()]).chain(of_project);
        let tags = tags.chain(targets.iter().map(|target| (*target).to_owned())).collect();
        let module = module(
            self.kind,
            format!("{}:{}", self.kind, name.to_lowercase()),
            tags,
            targets,
            &dest,
            self.place,
        );
        let mut item = ImportItem {
            op: ImportOp::Create,
            module,
            scope,
            source: source.clone(),
            dest,
            dest_exists: false,
            why: None,
            invalid: None,
            files: Vec::new(),
        };
        if !source.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            self.check(&mut item, &source);
        }
        item
    }

    /// Whether it can be the module its place says.
    fn check(&self, item: &mut ImportItem, root: &Path) {
        match files_of(self.system, root) {
            Ok(files) => {
                let valid = render::check_files(self.system, &item.module, &files);
                item.files = files;
                if let Err(stop) = valid {
                    refuse(item, &stop.to_string());
                }
            }
            Err(why) => refuse(item, &why),
        }
    }
}

fn refuse(item: &mut ImportItem, why: &str) {
    item.op = ImportOp::SkipInvalid;
    item.why = Some("invalid_module_source".to_owned());
    item.invalid = Some(why.to_owned());
}
