//! JetBrains' Junie: all instructions in one file of guidelines, in the project.

use super::{ExtraFiles, LayoutRequest, TargetLayout};
use crate::error::PackResult;
use crate::manifest::Target;

pub(super) fn layout(request: &LayoutRequest<'_>) -> PackResult<TargetLayout> {
    let mut layout = TargetLayout::default();
    if request.config.switch("write_guidelines", true) {
        let root = layout.root(
            Target::Jetbrains,
            request.project.join(".junie"),
            request.project,
            ExtraFiles::Reported,
        );
        layout.instructions(root, request, "guidelines.md")?;
    }
    Ok(layout)
}
