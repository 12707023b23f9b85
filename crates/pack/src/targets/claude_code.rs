//! Claude Code: slash commands, and skills where they are switched on, for the user and for the project.

use std::path::Path;

use super::{ExtraFiles, LayoutRequest, TargetLayout};
use crate::error::PackResult;
use crate::manifest::{ModuleType, Target};

pub(super) fn layout(request: &LayoutRequest<'_>) -> PackResult<TargetLayout> {
    let mut layout = TargetLayout::default();
    let scope = request.config.scope;
    if scope.user() {
        below(&mut layout, request, &request.place.home, "write_user_commands", "write_user_skills");
    }
    if scope.project() {
        below(&mut layout, request, request.project, "write_repo_commands", "write_repo_skills");
    }
    Ok(layout)
}

fn below(layout: &mut TargetLayout, request: &LayoutRequest<'_>, base: &Path, commands: &str, skills: &str) {
    let folder = base.join(".claude");
    if request.config.switch(commands, true) {
        let root = layout.root(Target::ClaudeCode, folder.join("commands"), base, ExtraFiles::Reported);
        layout.singles(root, request, ModuleType::Command, str::to_owned);
    }
    if request.config.switch(skills, false) {
        let root = layout.root(Target::ClaudeCode, folder.join("skills"), base, ExtraFiles::Reported);
        layout.skills(root, request);
    }
}
