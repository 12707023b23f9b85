//! Where the relative paths of each upstream's calls begin: the folder it runs in. Looks at no file.

use std::sync::Arc;

use super::{Config, Template, UpstreamKind};
use countersign_policy::rules::{LexicalPaths, PathBase, PathBases, is_absolute};

impl Config {
    /// Where relative paths begin, for a configuration in `folder`. What is not looked up yet, or begins nowhere, is not known.
    pub fn path_bases(&self, folder: Option<&str>, home: Option<String>) -> PathBases {
        let within = |cwd: Option<&Template>| -> Option<PathBase> {
            let Some(cwd) = cwd else { return folder.map(|folder| PathBase::Folder(folder.to_owned())) };
            let text = cwd.text()?;
            match (is_absolute(text.expose()), folder) {
                (true, _) => Some(PathBase::Folder(text.expose().to_owned())),
                (false, Some(folder)) => Some(PathBase::Folder(format!("{folder}/{}", text.expose()))),
                (false, None) => None,
            }
        };
        let mut bases = PathBases { home, ..PathBases::default() };
        for upstream in &self.upstreams {
            let base = match &upstream.kind {
                UpstreamKind::Stdio { cwd, .. } => within(cwd.as_ref()),
                UpstreamKind::Command { tools, cwd, .. } => {
                    for tool in tools.iter().filter(|tool| tool.cwd.is_some()) {
                        let base = within(tool.cwd.as_ref());
                        let name = format!("{}:{}", upstream.id, tool.name);
                        bases.bases.extend(base.map(|base| (name, base)));
                    }
                    within(cwd.as_ref())
                }
                UpstreamKind::Http { url, .. } => (!is_here(url)).then_some(PathBase::Remote),
                UpstreamKind::Native { folder, .. } => within(folder.as_ref()),
            };
            bases.bases.extend(base.map(|base| (upstream.id.to_string(), base)));
        }
        bases
    }

    /// The same configuration, whose rules resolve paths by their text, for a configuration in `folder`.
    #[must_use]
    pub fn placed(mut self, folder: Option<&str>, home: Option<String>) -> Self {
        let bases = self.path_bases(folder, home);
        self.rules = self.rules.with_paths(Arc::new(LexicalPaths(bases)));
        self
    }

    /// The same configuration, whose rules resolve paths as those of the other do.
    #[must_use]
    pub fn placed_like(mut self, other: &Self) -> Self {
        self.rules = self.rules.with_paths(Arc::clone(other.rules.paths()));
        self
    }
}

/// Whether an address is one of this machine.
fn is_here(url: &Template) -> bool {
    let text = url.text();
    let host = text.as_ref().and_then(|text| text.expose().split_once("://")).map(|(_, rest)| rest);
    let host = host.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    // Before an `@` stands who signs in, not where.
    let host = host.rsplit('@').next().unwrap_or_default();
    ["127.0.0.1", "localhost", "[::1]"]
        .iter()
        .any(|here| host.strip_prefix(here).is_some_and(|port| port.is_empty() || port.starts_with(':')))
}
