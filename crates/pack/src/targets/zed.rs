//! Zed: all instructions in `.rules` at the top of the project.

use super::{ExtraFiles, LayoutRequest, TargetLayout};
use crate::error::PackResult;
use crate::manifest::Target;

pub(super) fn layout(request: &LayoutRequest<'_>) -> PackResult<TargetLayout> {
    let mut layout = TargetLayout::default();
    if request.config.switch("write_rules", true) {
        let root =
            layout.root(Target::Zed, request.project.to_path_buf(), request.project, ExtraFiles::Ignored);
        layout.instructions(root, request, ".rules")?;
    }
    Ok(layout)
}
