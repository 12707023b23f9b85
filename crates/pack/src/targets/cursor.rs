//! Cursor: one rule file a module of instructions, in the project.

use super::{ExtraFiles, LayoutRequest, TargetLayout};
use crate::error::{PackError, PackResult};
use crate::manifest::{ModuleType, Target};
use crate::place::fs_key;
use crate::render::{FileContent, TEXT_LIMIT};

pub(super) fn layout(request: &LayoutRequest<'_>) -> PackResult<TargetLayout> {
    let mut layout = TargetLayout::default();
    if !request.config.switch("write_rules", true) {
        return Ok(layout);
    }
    let folder = request.project.join(".cursor").join("rules");
    let root = layout.root(Target::Cursor, folder, request.project, ExtraFiles::Reported);
    for module in request.of(ModuleType::Instructions) {
        let Some(file) = module.files.get("AGENTS.md") else { continue };
        let bytes = file.content.bytes(request.system, TEXT_LIMIT);
        let bytes = bytes
            .map_err(|error| PackError::broken(format!("read the instructions of `{}`", module.id), error))?;
        let description = serde_json::Value::from(format!("agentpack: {}", module.id));
        let mut rule =
            format!("---\ndescription: {description}\nglobs: []\nalwaysApply: true\n---\n\n").into_bytes();
        rule.extend_from_slice(&bytes);
        layout.file(
            root,
            &format!("{}.mdc", fs_key(&module.id)),
            "AGENTS.md",
            FileContent::Bytes(rule),
            vec![module.id.clone()],
        );
    }
    Ok(layout)
}
