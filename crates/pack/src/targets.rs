//! Where each host looks for its files: its roots, and which module becomes which file. One file per host. Touches none of the paths.

mod claude_code;
mod codex;
mod cursor;
mod jetbrains;
mod vscode;
mod zed;

use std::path::{Path, PathBuf};

use crate::error::{PackError, PackResult};
use crate::manifest::{ModuleType, Target, TargetConfig};
use crate::place::PackEnvironment;
use crate::render::{FileContent, RenderedModule, TEXT_LIMIT};
use crate::system::FileSystem;

/// Whether files nobody planned are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtraFiles {
    /// The folder is ours: they are.
    Reported,
    /// The folder holds much else: they are not.
    Ignored,
}

/// A folder that a target writes below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetRoot {
    pub target: Target,
    pub path: PathBuf,
    /// The folder above it that is trusted as it is: below it no part of a path may be a link.
    pub base: PathBuf,
    /// Whether other files in it are reported.
    pub extras: ExtraFiles,
}

#[derive(Clone, Debug)]
pub(crate) struct TargetFile {
    pub path: PathBuf,
    /// Of which root, by its place in the list.
    pub root: usize,
    pub content: FileContent,
    pub module_ids: Vec<String>,
    /// The name of the module's file it comes from.
    pub source: String,
}

pub(crate) struct LayoutRequest<'a> {
    pub place: &'a PackEnvironment,
    pub project: &'a Path,
    pub config: &'a TargetConfig,
    /// The modules that go to it, sorted by id.
    pub modules: Vec<&'a RenderedModule>,
    pub system: &'a dyn FileSystem,
}

#[derive(Debug, Default)]
pub(crate) struct TargetLayout {
    pub roots: Vec<TargetRoot>,
    pub files: Vec<TargetFile>,
}

pub(crate) fn layout(target: Target, request: &LayoutRequest<'_>) -> PackResult<TargetLayout> {
    match target {
        Target::Codex => codex::layout(request),
        Target::ClaudeCode => claude_code::layout(request),
        Target::Cursor => cursor::layout(request),
        Target::Vscode => vscode::layout(request),
        Target::Jetbrains => jetbrains::layout(request),
        Target::Zed => zed::layout(request),
    }
}

impl TargetLayout {
    fn root(&mut self, target: Target, path: PathBuf, base: &Path, extras: ExtraFiles) -> usize {
        self.roots.push(TargetRoot { target, path, base: base.to_path_buf(), extras });
        self.roots.len() - 1
    }

    fn file(&mut self, root: usize, name: &str, source: &str, content: FileContent, module_ids: Vec<String>) {
        if let Some(folder) = self.roots.get(root) {
            let (path, source) = (folder.path.join(name), source.to_owned());
            self.files.push(TargetFile { path, root, content, module_ids, source });
        }
    }

    /// Every file of every skill, below a folder of the skill's name.
    fn skills(&mut self, root: usize, request: &LayoutRequest<'_>) {
        for module in request.of(ModuleType::Skill) {
            let folder = skill_name(module);
            for (name, file) in &module.files {
                self.file(
                    root,
                    &format!("{folder}/{name}"),
                    name,
                    file.content.clone(),
                    vec![module.id.clone()],
                );
            }
        }
    }

    /// The one file of every prompt or command.
    fn singles(
        &mut self,
        root: usize,
        request: &LayoutRequest<'_>,
        kind: ModuleType,
        rename: impl Fn(&str) -> String,
    ) {
        for module in request.of(kind) {
            if let Some((name, file)) = module.markdown() {
                let last = name.rsplit('/').next().unwrap_or(name);
                self.file(root, &rename(last), name, file.content.clone(), vec![module.id.clone()]);
            }
        }
    }

    fn instructions(&mut self, root: usize, request: &LayoutRequest<'_>, name: &str) -> PackResult<()> {
        let modules: Vec<&RenderedModule> = request.of(ModuleType::Instructions).collect();
        let ids = modules.iter().map(|module| module.id.clone()).collect();
        if let Some(content) = joined(request.system, &modules)? {
            self.file(root, name, "AGENTS.md", content, ids);
        }
        Ok(())
    }
}

impl LayoutRequest<'_> {
    fn of(&self, kind: ModuleType) -> impl Iterator<Item = &RenderedModule> {
        self.modules.iter().copied().filter(move |module| module.kind == kind)
    }
}

/// A skill's folder: its name if that is one plain word, else with odd characters replaced.
fn skill_name(module: &RenderedModule) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = module.name.chars().map(plain).collect();
    if name.trim_matches('.').is_empty() { "skill".to_owned() } else { name }
}

/// What opens a module's section in a joined file.
pub(crate) fn opening(module_id: &str) -> String {
    format!("<!-- agentpack:module={module_id} -->")
}
pub(crate) const CLOSING: &str = "<!-- /agentpack -->";
const BETWEEN: &str = "\n\n---\n\n";

/// The instructions of several modules as one text, each in its own section; a single one is copied as it is.
fn joined(system: &dyn FileSystem, modules: &[&RenderedModule]) -> PackResult<Option<FileContent>> {
    let mut sections = Vec::new();
    for module in modules {
        let Some(file) = module.files.get("AGENTS.md") else { continue };
        if modules.len() == 1 {
            return Ok(Some(file.content.clone()));
        }
        let broken =
            |why: String| PackError::broken(format!("read the instructions of `{}`", module.id), why);
        let bytes = file.content.bytes(system, TEXT_LIMIT).map_err(|error| broken(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| broken("they are not UTF-8 text".to_owned()))?;
        // To the byte as the original writes it: switching must not change a file.
        let end = if text.ends_with('\n') { "" } else { "\n" };
        sections.push(format!("{}\n{text}{end}{CLOSING}", opening(&module.id)));
    }
    if sections.is_empty() {
        return Ok(None);
    }
    Ok(Some(FileContent::Bytes(sections.join(BETWEEN).into_bytes())))
}
