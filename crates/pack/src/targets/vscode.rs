//! VS Code with Copilot: instructions and prompt files below `.github`, in the project.

use super::{ExtraFiles, LayoutRequest, TargetLayout};
use crate::error::PackResult;
use crate::manifest::{ModuleType, Target};

pub(super) fn layout(request: &LayoutRequest<'_>) -> PackResult<TargetLayout> {
    let mut layout = TargetLayout::default();
    let folder = request.project.join(".github");
    if request.config.switch("write_instructions", true) {
        let root = layout.root(Target::Vscode, folder.clone(), request.project, ExtraFiles::Ignored);
        layout.instructions(root, request, "copilot-instructions.md")?;
    }
    if request.config.switch("write_prompts", true) {
        let root = layout.root(Target::Vscode, folder.join("prompts"), request.project, ExtraFiles::Reported);
        layout.singles(root, request, ModuleType::Prompt, prompt_name);
    }
    Ok(layout)
}

fn prompt_name(name: &str) -> String {
    if name.ends_with(".prompt.md") {
        return name.to_owned();
    }
    let stem = name.len().checked_sub(3).and_then(|end| name.get(..end)).unwrap_or(name);
    format!("{stem}.prompt.md")
}
