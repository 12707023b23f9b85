//! Cursor: one rule file a module of instructions, in the project.

use super::{Extras, Layout, Request};
use crate::manifest::{ModuleType, Target};
use crate::place::fs_key;
use crate::render::{Content, TEXT_LIMIT};
use crate::stop::{Outcome, Stop};

pub(super) fn layout(request: &Request<'_>) -> Outcome<Layout> {
    let mut layout = Layout::default();
    if !request.config.switch("write_rules", true) {
        return Ok(layout);
    }
    let folder = request.project.join(".cursor").join("rules");
    let root = layout.root(Target::Cursor, folder, request.project, Extras::Reported);
    for module in request.of(ModuleType::Instructions) {
        let Some(file) = module.files.get("AGENTS.md") else { continue };
        let bytes = file.content.bytes(request.system, TEXT_LIMIT);
        let bytes = bytes
            .map_err(|error| Stop::broken(format!("read the instructions of `{}`", module.id), error))?;
        let description = serde_json::Value::from(format!("agentpack: {}", module.id));
        let mut rule =
            format!("---\ndescription: {description}\nglobs: []\nalwaysApply: true\n---\n\n").into_bytes();
        rule.extend_from_slice(&bytes);
        layout.file(
            root,
            &format!("{}.mdc", fs_key(&module.id)),
            "AGENTS.md",
            Content::Bytes(rule),
            vec![module.id.clone()],
        );
    }
    Ok(layout)
}
