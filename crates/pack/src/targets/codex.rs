//! Codex: `AGENTS.md`, skills and prompts in its home, `AGENTS.md` and skills in the project.

use std::path::PathBuf;

use super::{ExtraFiles, LayoutRequest, TargetLayout};
use crate::error::PackResult;
use crate::manifest::{ModuleType, Target};

pub(super) fn layout(request: &LayoutRequest<'_>) -> PackResult<TargetLayout> {
    let mut layout = TargetLayout::default();
    let (config, codex) = (request.config, Target::Codex);
    if config.scope.user() {
        let (home, base) = home(request);
        if config.switch("write_agents_global", true) {
            let root = layout.root(codex, home.clone(), &base, ExtraFiles::Ignored);
            layout.instructions(root, request, "AGENTS.md")?;
        }
        if config.switch("write_user_prompts", true) {
            let root = layout.root(codex, home.join("prompts"), &base, ExtraFiles::Reported);
            layout.singles(root, request, ModuleType::Prompt, str::to_owned);
        }
        if config.switch("write_user_skills", true) {
            let root = layout.root(codex, home.join("skills"), &base, ExtraFiles::Reported);
            layout.skills(root, request);
        }
    }
    if config.scope.project() {
        if config.switch("write_agents_repo_root", true) {
            let root =
                layout.root(codex, request.project.to_path_buf(), request.project, ExtraFiles::Ignored);
            layout.instructions(root, request, "AGENTS.md")?;
        }
        if config.switch("write_repo_skills", true) {
            let folder = request.project.join(".codex").join("skills");
            let root = layout.root(codex, folder, request.project, ExtraFiles::Reported);
            layout.skills(root, request);
        }
    }
    Ok(layout)
}

/// Codex's home and what is trusted above it: the option wins over the variable, both over the usual place.
fn home(request: &LayoutRequest<'_>) -> (PathBuf, PathBuf) {
    let place = request.place;
    let named = request
        .config
        .options
        .get("codex_home")
        .and_then(serde_json::Value::as_str)
        .filter(|text| !text.is_empty());
    let home = match (named, &place.codex_home) {
        (Some(text), _) => place.expand(text),
        (None, Some(path)) => path.clone(),
        (None, None) => place.home.join(".codex"),
    };
    // A home that somebody named is trusted up to the folder it is in.
    let base = if home.starts_with(&place.home) {
        place.home.clone()
    } else {
        home.parent().map_or_else(|| home.clone(), std::path::Path::to_path_buf)
    };
    (home, base)
}
