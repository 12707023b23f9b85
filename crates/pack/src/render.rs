//! A module as it is deployed: its own files with every overlay on top, and the layer each file comes from. Checks that a module is what
//! its type says.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};

use crate::digests::DigestCache;
use crate::error::{PackError, PackResult};
use crate::lockfile::Lockfile;
use crate::manifest::{Module, ModuleType};
use crate::overlay::{self, OverlayChanges, OverlayLayer};
use crate::place::{PackEnvironment, Project};
use crate::sources;
use crate::system::{self, FileAccess, FileStamp, FileSystem};
use crate::tree;

/// The largest file that is composed, patched or checked in memory.
pub(crate) const TEXT_LIMIT: u64 = 32 * 1024 * 1024;

/// What is to be in a file. Copied files stay on disk until they are copied.
#[derive(Clone, Debug)]
pub enum FileContent {
    /// The content of another file.
    CopyOf(PathBuf, FileStamp),
    Bytes(Vec<u8>),
}

impl FileContent {
    pub fn digest(&self, system: &dyn FileSystem, digests: &mut DigestCache) -> io::Result<Digest> {
        match self {
            FileContent::CopyOf(path, stamp) => digests.of(system, path, *stamp),
            FileContent::Bytes(bytes) => Ok(Digest::plain(bytes)),
        }
    }

    /// Its bytes, if there are not more than `limit`.
    pub fn bytes(&self, system: &dyn FileSystem, limit: u64) -> io::Result<Vec<u8>> {
        match self {
            FileContent::CopyOf(path, _) => system::read(system, path, limit),
            FileContent::Bytes(bytes) => Ok(bytes.clone()),
        }
    }

    pub fn access(&self) -> FileAccess {
        match self {
            FileContent::CopyOf(_, stamp) => stamp.access,
            FileContent::Bytes(_) => FileAccess::Plain,
        }
    }
}

#[derive(Clone, Debug)]
pub struct RenderedFile {
    pub content: FileContent,
    /// The overlay it comes from; none means the module itself.
    pub layer: Option<OverlayLayer>,
}

#[derive(Clone, Debug)]
pub struct RenderedModule {
    pub id: String,
    pub kind: ModuleType,
    /// The name after the type.
    pub name: String,
    /// Which targets it goes to; empty means all.
    pub targets: Vec<String>,
    pub files: BTreeMap<String, RenderedFile>,
}

pub(crate) fn module(
    place: &PackEnvironment,
    project: &Project,
    system: &dyn FileSystem,
    module: &Module,
    lock: Option<&Lockfile>,
) -> PackResult<RenderedModule> {
    let origin = sources::origin(place, module, lock)?;
    let mut files: BTreeMap<String, RenderedFile> = tree::files(system, &origin.root)?
        .into_iter()
        .map(|file| {
            (file.name, RenderedFile { content: FileContent::CopyOf(file.path, file.stamp), layer: None })
        })
        .collect();
    for layer in OverlayLayer::ALL.iter().copied() {
        let folder = overlay::folder(place, project, layer, &module.id);
        let Some(overlay) = overlay::read(system, layer, folder)? else { continue };
        match overlay.changes {
            OverlayChanges::Files(changed) => files.extend(changed.into_iter().map(|file| {
                (
                    file.name,
                    RenderedFile { content: FileContent::CopyOf(file.path, file.stamp), layer: Some(layer) },
                )
            })),
            OverlayChanges::Patches(patches) => {
                for patch in patches {
                    let below = files.get(&patch.name).ok_or_else(|| {
                        let message =
                            format!("module `{}` has no file `{}` for its patch", module.id, patch.name);
                        PackError::refused(Code::OverlayPatchApplyFailed, message)
                    })?;
                    let before = below.content.bytes(system, TEXT_LIMIT);
                    let before = before.map_err(|error| PackError::io("patch", &patch.path, &error))?;
                    let content = FileContent::Bytes(overlay::apply_patch(system, &patch, &before)?);
                    files.insert(patch.name, RenderedFile { content, layer: Some(layer) });
                }
            }
        }
    }
    let rendered = RenderedModule {
        id: module.id.clone(),
        kind: module.kind,
        name: module.name().to_owned(),
        targets: module.targets.clone(),
        files,
    };
    check(system, &rendered)?;
    Ok(rendered)
}

impl RenderedModule {
    /// The one Markdown file of a prompt or a command.
    pub fn markdown(&self) -> Option<(&str, &RenderedFile)> {
        let mut all = self.files.iter().filter(|(name, _)| name.to_lowercase().ends_with(".md"));
        match (all.next(), all.next()) {
            (Some((name, file)), None) => Some((name.as_str(), file)),
            _ => None,
        }
    }

    pub fn goes_to(&self, target: &str) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|name| name == target)
    }
}

/// Whether files can be the module that is said to be made of them.
pub(crate) fn check_files(
    system: &dyn FileSystem,
    module: &Module,
    files: &[tree::TreeFile],
) -> PackResult<()> {
    let files = files.iter().map(|file| {
        let content = FileContent::CopyOf(file.path.clone(), file.stamp);
        (file.name.clone(), RenderedFile { content, layer: None })
    });
    let (id, name) = (module.id.clone(), module.name().to_owned());
    check(
        system,
        &RenderedModule { id, kind: module.kind, name, targets: Vec::new(), files: files.collect() },
    )
}

/// Whether a module is what its type says.
fn check(system: &dyn FileSystem, module: &RenderedModule) -> PackResult<()> {
    let invalid = |why: &str| {
        let refusal = Refusal::new(Code::ConfigInvalid, format!("module `{}`: {why}", module.id));
        PackError::from(refusal.with("module_id", module.id.as_str()))
    };
    let text = |file: &RenderedFile| {
        let bytes = file.content.bytes(system, TEXT_LIMIT).map_err(|error| invalid(&error.to_string()))?;
        String::from_utf8(bytes).map_err(|_| invalid("its Markdown is not UTF-8 text"))
    };
    match module.kind {
        ModuleType::Instructions => module
            .files
            .get("AGENTS.md")
            .map(|_| ())
            .ok_or_else(|| invalid("instructions need an `AGENTS.md`")),
        ModuleType::Skill => {
            let skill = module.files.get("SKILL.md").ok_or_else(|| invalid("a skill needs a `SKILL.md`"))?;
            let head = front_matter(&text(skill)?);
            let said = |name: &str| {
                let value = head.as_ref().and_then(|head| head.get(name)).and_then(serde_json::Value::as_str);
                value.is_some_and(|value| !value.trim().is_empty())
            };
            if said("name") && said("description") {
                Ok(())
            } else {
                Err(invalid("`SKILL.md` must open with front matter that has `name` and `description`"))
            }
        }
        ModuleType::Prompt => {
            module.markdown().map(|_| ()).ok_or_else(|| invalid("a prompt is exactly one `.md` file"))
        }
        ModuleType::Command => {
            let (_, file) =
                module.markdown().ok_or_else(|| invalid("a command is exactly one `.md` file"))?;
            let text = text(file)?;
            let head = front_matter(&text).unwrap_or_default();
            let described = head.get("description").and_then(serde_json::Value::as_str);
            if described.is_none_or(|said| said.trim().is_empty()) {
                return Err(invalid("a command must open with front matter that has a `description`"));
            }
            let runs = text.contains("!bash") || text.contains("!`");
            let allowed = head.get("allowed-tools").map(|value| value.to_string().contains("Bash("));
            if runs && allowed != Some(true) {
                return Err(invalid(
                    "a command that runs bash must have `allowed-tools` with `Bash(...)` in its front matter",
                ));
            }
            Ok(())
        }
    }
}

/// The text between the first two `---` lines.
pub(crate) fn front_matter(text: &str) -> Option<serde_json::Value> {
    let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let rest = rest.strip_prefix("---\n").or_else(|| rest.strip_prefix("---\r\n"))?;
    let end = rest.lines().scan(0, |at, line| {
        let start = *at;
        *at += line.len() + 1;
        Some((start, line))
    });
    let (end, _) = end.into_iter().find(|(_, line)| line.trim_end() == "---")?;
    serde_saphyr::from_str(rest.get(..end)?).ok()
}
