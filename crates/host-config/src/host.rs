//! What there is to know about a host: one `HostSpec` each. Reads and edits texts of its files through the host's dialect.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use crate::host_files::{FileLocation, HostFile, HostFileScope};
use crate::hosts::HOSTS;
use crate::permission_rules::PermissionRules;
use crate::platform::HostEnvironment;
use crate::risky_settings::SettingFindings;
use crate::server_entry::{GatewayEntry, ServerEntry, ServerEntryKind};

/// A host as its file in `hosts/` describes it.
pub struct HostSpec {
    /// The name on the command line and in envelopes.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// The program to ask for its version, for hosts that are command-line programs.
    pub program: Option<&'static str>,
    /// Every file the host may keep servers in.
    pub(crate) files: &'static [FileLocation],
    pub(crate) dialect: &'static dyn ServerDialect,
    /// Whether a file can name a server by its URL.
    pub accepts_url: bool,
    /// Whether `--config` in an entry's arguments reaches the program; some hosts take it for their own.
    pub passes_config_flag: bool,
    pub next_steps: NextSteps,
    /// None for hosts that keep no such rules in a file, or decide by the annotations of tools.
    pub(crate) permissions: Option<PermissionRules>,
    /// Reports settings that weaken approval.
    pub(crate) check_settings: fn(&HostEnvironment, &mut SettingFindings<'_>),
}

/// What a person has to do in a host after its file was changed.
pub struct NextSteps {
    pub user: &'static str,
    pub project: &'static str,
}

impl NextSteps {
    pub(crate) const fn same(step: &'static str) -> Self {
        Self { user: step, project: step }
    }

    pub fn step(&self, scope: HostFileScope) -> &'static str {
        match scope {
            HostFileScope::User => self.user,
            HostFileScope::Project => self.project,
        }
    }
}

/// How a host writes its servers down. Edits keep every byte they are not about.
pub(crate) trait ServerDialect: Sync {
    fn read(&self, text: &str, folder: Option<PathBuf>) -> Result<Vec<ServerEntry>, HostFileError>;

    /// Removes the imported servers and adds our entry. An entry of ours stays, unless the host shall use another URL.
    fn rewrite(
        &self,
        text: &str,
        imported: &[ServerEntry],
        ours: &GatewayEntry,
    ) -> Result<String, HostFileError>;

    /// The URL of our entry; none where there is no such entry, or it starts a program.
    fn gateway_url(&self, text: &str) -> Option<String>;

    /// Removes our entry from a text that its host has changed since, and puts the servers of the old text back.
    fn restore(&self, now: &str, before: &str) -> Result<String, HostFileError>;
}

/// A host of the list.
#[derive(Clone, Copy)]
pub struct Host(pub(crate) &'static HostSpec);

impl Host {
    pub fn named(name: &str) -> Option<Self> {
        HOSTS.iter().copied().find(|host| host.name == name)
    }
}

impl Deref for Host {
    type Target = HostSpec;

    fn deref(&self) -> &HostSpec {
        self.0
    }
}

impl PartialEq for Host {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Host {}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// A file that can't be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFileError {
    /// Counted from 1.
    pub line: usize,
    pub reason: String,
}

/// Splits off the byte order mark some editors write, so that it can be put back.
pub(crate) fn split_mark(text: &str) -> (&'static str, &str) {
    match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    }
}

impl HostFile {
    pub fn read(&self, text: &str, project: &Path) -> Result<Vec<ServerEntry>, HostFileError> {
        // Hosts start a project's servers in its folder.
        let folder = (self.scope == HostFileScope::Project).then(|| project.to_owned());
        self.host.dialect.read(split_mark(text).1, folder)
    }

    /// The text with one entry of ours instead of the imported servers; everything else as it was.
    pub fn rewrite(
        &self,
        text: &str,
        imported: &[ServerEntry],
        ours: &GatewayEntry,
    ) -> Result<String, HostFileError> {
        let (mark, text) = split_mark(text);
        Ok(format!("{mark}{}", self.host.dialect.rewrite(text, imported, ours)?))
    }

    /// The URL of our entry; none where there is no such entry, or it starts a program.
    pub fn gateway_url(&self, text: &str) -> Option<String> {
        self.host.dialect.gateway_url(split_mark(text).1)
    }

    /// A text that was changed since `before`, with our entry and our rules removed and the imported servers put back; and the names of
    /// servers that were added meanwhile, which stay. None where the text can't be parsed any more.
    pub fn restore(&self, now: &str, before: &str) -> Option<(String, Vec<String>)> {
        let project = Path::new("");
        let old = self.read(before, project).ok()?;
        let known = |entry: &ServerEntry| old.iter().any(|old| old.path == entry.path);
        let new = self.read(now, project).ok()?;
        let new = new.into_iter().filter(|entry| entry.kind != ServerEntryKind::Countersign && !known(entry));
        let added = new.map(|entry| entry.name).collect();
        let ((mark, now), (_, before)) = (split_mark(now), split_mark(before));
        let mut restored = self.host.dialect.restore(now, before).ok()?;
        if let Some(rules) = &self.host.permissions {
            restored = (rules.remove)(&restored, before).ok()?;
        }
        Some((format!("{mark}{restored}"), added))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{command_entry, user_file};

    #[test]
    fn a_byte_order_mark_and_line_ends_stay() {
        let ours = command_entry();
        for (host, text) in [
            (
                "cursor",
                "\u{feff}{\r\n  \"mcpServers\": {\r\n    \"x\": {\"command\": \"npx\"}\r\n  }\r\n}\r\n",
            ),
            (
                "codex",
                "\u{feff}model = \"o\"\r\n\r\n[mcp_servers.x]\r\ncommand = \"npx\"\r\n\r\n[tui]\r\na = 1\r\n",
            ),
        ] {
            let file = user_file(host);
            let entries = file.read(text, Path::new("")).unwrap();
            assert_eq!(entries.len(), 1, "{host:?}");
            let after = file.rewrite(text, &entries, &ours).unwrap();
            assert!(after.starts_with('\u{feff}') && after.matches('\u{feff}').count() == 1, "{after:?}");
            assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after:?}");
            assert_eq!(file.read(&after, Path::new("")).unwrap()[0].kind, ServerEntryKind::Countersign);
            assert_eq!(file.rewrite(&after, &[], &ours).unwrap(), after, "a second time changes nothing");
            let (back, added) = file.restore(&after, text).unwrap();
            assert_eq!(added, Vec::<String>::new());
            assert_eq!(file.read(&back, Path::new("")).unwrap(), entries, "{back:?}");
        }
    }
}
