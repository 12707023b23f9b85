//! JetBrains' Junie: all instructions in one file of guidelines, in the project.

use super::{Extras, Layout, Request};
use crate::manifest::Target;
use crate::stop::Outcome;

pub(super) fn layout(request: &Request<'_>) -> Outcome<Layout> {
    let mut layout = Layout::default();
    if request.config.switch("write_guidelines", true) {
        let root =
            layout.root(Target::Jetbrains, request.project.join(".junie"), request.project, Extras::Reported);
        layout.instructions(root, request, "guidelines.md")?;
    }
    Ok(layout)
}
