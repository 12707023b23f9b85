//! Server instructions for the model: our guidance, the upstreams and what they are for, and their own instructions. The last are
//! untrusted: labelled, escaped and bounded.

use countersign_config::ToolSurface;
use countersign_policy::call::CallerScopes;
use countersign_policy::ids::UpstreamId;
use countersign_policy::role::Role;

use crate::escape;
use crate::state::GatewayState;
use crate::surfaces::definitions::{DIRECT_COACHING, DIRECT_USAGE};

const OWN: &str = "Every tool here is governed. Modes: ask (inspect), plan (preview), execute (change); set_mode \
    changes the mode of this session. A change asks for confirmation first: an answer with status confirmation_required \
    has changed nothing. Show its preview, end the turn, and go on only after the user agreed.";

/// The most characters upstreams and their tools take.
const LONGEST_LIST: usize = 700;
/// The most characters of what the only upstream says.
const LONGEST_ALONE: usize = 16_384;
/// The most characters of what one of several upstreams says, and all of them together.
const LONGEST_SECTION: usize = 800;
const LONGEST_SECTIONS: usize = 4_000;

/// The upstreams a caller reaches, by our own names of them, each with its accepted tools. Nothing here is an upstream's own word
/// that nobody accepted.
pub(crate) struct ReachableUpstreams(Vec<(UpstreamId, Vec<String>)>);

impl ReachableUpstreams {
    /// Those of a caller.
    pub(crate) fn of(gateway: &GatewayState, scopes: &CallerScopes, role: Role) -> Self {
        let catalog = gateway.catalog.load();
        let reached = |id: &&UpstreamId| scopes.upstreams.as_ref().is_none_or(|all| all.contains(*id));
        let tools = |id: &UpstreamId| {
            let own = catalog.accepted().filter(|listed| listed.tool.upstream == *id);
            let shown = own.filter(|listed| role == Role::Human || listed.outlook.role != Some(Role::Human));
            shown.map(|listed| escape::line(listed.tool.name.as_str()).into_owned()).collect()
        };
        Self(gateway.upstreams.load().keys().filter(reached).map(|id| (id.clone(), tools(id))).collect())
    }

    /// Their names, in so many characters.
    pub(crate) fn names(&self, most: usize) -> String {
        joined(self.0.iter().map(|(id, _)| id.to_string()), ", ", most)
    }

    /// Their names with what they offer, in so many characters shared by all.
    pub(crate) fn with_tools(&self, most: usize) -> String {
        let share = most / self.0.len().max(1);
        let one = |(id, tools): &(UpstreamId, Vec<String>)| match tools.as_slice() {
            [] => id.to_string(),
            tools => {
                let room = share.saturating_sub(id.as_str().chars().count() + 4);
                let tools = joined(tools.iter().cloned(), ", ", room);
                if tools == "…" { id.to_string() } else { format!("{id}: {tools}") }
            }
        };
        joined(self.0.iter().map(one), "; ", most)
    }
}

/// Texts joined as far as there is room, with a mark where there is not.
fn joined(texts: impl Iterator<Item = String>, joint: &str, most: usize) -> String {
    let mut all = String::new();
    for text in texts {
        let joint = if all.is_empty() { "" } else { joint };
        if all.chars().count() + joint.len() + text.chars().count() > most {
            return format!("{all}{joint}…");
        }
        all.push_str(joint);
        all.push_str(&text);
    }
    all
}

/// The instructions of a session.
pub(crate) fn instructions(
    gateway: &GatewayState,
    surface: ToolSurface,
    scopes: &CallerScopes,
    role: Role,
) -> String {
    let mut parts = vec![OWN.to_owned()];
    if surface == ToolSurface::Direct {
        parts.push(format!("{DIRECT_USAGE} {DIRECT_COACHING}"));
    }
    if !gateway.catalog.load().is_bare() {
        let named = ReachableUpstreams::of(gateway, scopes, role).with_tools(LONGEST_LIST);
        if !named.is_empty() {
            parts.push(format!("Upstreams, whose tools retrieve_tools finds: {named}."));
        }
    }
    let is_only = gateway.upstreams.load().len() == 1;
    let said: Vec<(UpstreamId, String)> = said_by_upstreams(gateway, scopes);
    match said.as_slice() {
        [] => {}
        [(id, text)] if is_only => {
            let text: String = text.chars().take(LONGEST_ALONE).collect();
            parts.push(format!("Upstream `{id}` says of itself (not the user's words):\n{text}"));
        }
        several => {
            parts.push("What upstreams say of themselves (not the user's words):".to_owned());
            let mut left = LONGEST_SECTIONS;
            for (id, text) in several {
                let kept: String = text.chars().take(LONGEST_SECTION.min(left)).collect();
                left = left.saturating_sub(kept.chars().count());
                let cut = if kept.len() < text.len() { "…" } else { "" };
                // Quoted, so that none can write another's section.
                let lines: Vec<String> = kept.lines().map(|line| format!("> {line}")).collect();
                if !lines.is_empty() {
                    parts.push(format!("## {id}\n{}{cut}", lines.join("\n")));
                }
            }
        }
    }
    parts.join("\n\n")
}

/// What upstreams say of themselves, now or when they were last up; nothing of one whose tools nobody accepted.
fn said_by_upstreams(gateway: &GatewayState, scopes: &CallerScopes) -> Vec<(UpstreamId, String)> {
    let catalog = gateway.catalog.load();
    let mut said = Vec::new();
    for (id, upstream) in gateway.upstreams.load().iter() {
        let is_reached = scopes.upstreams.as_ref().is_none_or(|all| all.contains(id));
        let (accepted, withheld) = catalog.counts(id);
        if !is_reached || (accepted == 0 && withheld > 0) {
            continue;
        }
        let remembered = || gateway.startup.remembered(id)?.instructions.clone();
        if let Some(text) = upstream.instructions().or_else(remembered) {
            let text: String = text.trim().chars().take(LONGEST_ALONE).collect();
            if !text.is_empty() {
                said.push((id.clone(), escape::visible(&text)));
            }
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstreams(all: &[(&str, &[&str])]) -> ReachableUpstreams {
        let one = |(id, tools): &(&str, &[&str])| {
            (UpstreamId::new(*id), tools.iter().map(|tool| (*tool).to_owned()).collect())
        };
        ReachableUpstreams(all.iter().map(one).collect())
    }

    #[test]
    fn upstreams_are_named_with_what_they_offer_within_bounds() {
        let few = upstreams(&[("files", &["read_file", "write_file"]), ("empty", &[])]);
        assert_eq!(few.names(100), "files, empty");
        assert_eq!(few.with_tools(100), "files: read_file, write_file; empty");
        assert_eq!(few.with_tools(50), "files: read_file, …; empty");
        assert_eq!(few.names(8), "files, …");
        let names: Vec<String> = (0..500).map(|n| format!("server{n}")).collect();
        let many: Vec<(&str, &[&str])> =
            names.iter().map(|name| (name.as_str(), &["a", "b"] as &[&str])).collect();
        assert!(upstreams(&many).with_tools(600).chars().count() <= 603);
    }
}
