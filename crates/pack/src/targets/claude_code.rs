//! Claude Code: slash commands, and skills where they are switched on, for the user and for the project.

use std::path::Path;

use super::{Extras, Layout, Request};
use crate::manifest::{ModuleType, Target};
use crate::stop::Outcome;

pub(super) fn layout(request: &Request<'_>) -> Outcome<Layout> {
    let mut layout = Layout::default();
    let scope = request.config.scope;
    if scope.user() {
        below(&mut layout, request, &request.place.home, "write_user_commands", "write_user_skills");
    }
    if scope.project() {
        below(&mut layout, request, request.project, "write_repo_commands", "write_repo_skills");
    }
    Ok(layout)
}

fn below(layout: &mut Layout, request: &Request<'_>, base: &Path, commands: &str, skills: &str) {
    let folder = base.join(".claude");
    if request.config.switch(commands, true) {
        let root = layout.root(Target::ClaudeCode, folder.join("commands"), base, Extras::Reported);
        layout.singles(root, request, ModuleType::Command, str::to_owned);
    }
    if request.config.switch(skills, false) {
        let root = layout.root(Target::ClaudeCode, folder.join("skills"), base, Extras::Reported);
        layout.skills(root, request);
    }
}
