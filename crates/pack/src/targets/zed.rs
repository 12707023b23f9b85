//! Zed: all instructions in `.rules` at the top of the project.

use super::{Extras, Layout, Request};
use crate::manifest::Target;
use crate::stop::Outcome;

pub(super) fn layout(request: &Request<'_>) -> Outcome<Layout> {
    let mut layout = Layout::default();
    if request.config.switch("write_rules", true) {
        let root = layout.root(Target::Zed, request.project.to_path_buf(), request.project, Extras::Ignored);
        layout.instructions(root, request, ".rules")?;
    }
    Ok(layout)
}
