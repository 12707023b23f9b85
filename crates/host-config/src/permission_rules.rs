//! A host's own permission rules for our tools: tools that read or steer are allowed; tools that change something are allowed too where
//! the gateway asks about them itself, so that a person is asked once. Adds what is missing, keeps what the person decided otherwise,
//! and removes what it added. Never writes a wildcard.

use std::path::PathBuf;

use crate::host::{Host, HostFileError, split_mark};
use crate::host_files::{FilePath, HostFile, HostFileScope};
use crate::platform::HostEnvironment;

/// Our tools that only read.
pub const READ_TOOLS: [&str; 6] =
    ["call_tool_read", "retrieve_tools", "get_status", "get_plan", "list_runs", "get_run"];

/// Our tools that change modes and plans, and nothing that is governed.
pub const STEER_TOOLS: [&str; 3] = ["set_mode", "draft_plan", "cancel_plan"];

/// Our tools that change what is governed.
pub const CHANGE_TOOLS: [&str; 3] = ["call_tool_write", "call_tool_destructive", "run_plan"];

/// Who asks before a change. Two prompts for one change teach a person to approve without reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhoAsks {
    /// The gateway asks before every change: the host asks nothing.
    Gateway,
    /// The gateway's policy lets some change pass on the agent's word: the host asks.
    Host,
}

impl WhoAsks {
    pub(crate) fn allowed(self) -> Vec<&'static str> {
        all_tools().filter(|tool| !self.asks(tool)).collect()
    }

    /// The tools the host asks about.
    pub(crate) fn asked(self) -> Vec<&'static str> {
        all_tools().filter(|tool| self.asks(tool)).collect()
    }

    /// Whether the host asks about a tool.
    pub(crate) fn asks(self, tool: &str) -> bool {
        self == Self::Host && CHANGE_TOOLS.contains(&tool)
    }
}

/// Every tool of ours a rule is written about.
pub(crate) fn all_tools() -> impl Iterator<Item = &'static str> {
    READ_TOOLS.iter().chain(&STEER_TOOLS).chain(&CHANGE_TOOLS).copied()
}

/// How a host keeps permission rules.
pub(crate) struct PermissionRules {
    pub(crate) file: RuleLocation,
    /// Adds the rules a text lacks; the same text where it lacks none. The text is none where there is no file.
    pub(crate) add: fn(Option<&str>, WhoAsks) -> Result<RuleFileEdit, HostFileError>,
    /// Removes from a text the rules that the text before did not have.
    pub(crate) remove: fn(&str, &str) -> Result<String, HostFileError>,
}

/// Which file rules are in.
pub(crate) enum RuleLocation {
    /// In the file of the server entry, whichever that is: elsewhere they would make a server that can't be started.
    WithServer,
    /// In settings that the host writes into as well.
    Settings { user: FilePath, project: Option<FilePath> },
    /// In a file of their own.
    OwnFile { user: FilePath, project: FilePath },
}

/// For rules that are removed with their server entry or their file.
pub(crate) fn keep(now: &str, _: &str) -> Result<String, HostFileError> {
    Ok(now.to_owned())
}

/// The file a host keeps such rules in.
#[derive(Clone, Debug)]
pub struct RuleFile {
    pub host: Host,
    pub scope: HostFileScope,
    pub path: PathBuf,
}

/// What can be written into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleFileEdit {
    /// The text with our rules.
    Text(String),
    /// Nothing, and why not.
    Not(&'static str),
}

/// The rule files of these hosts: the person's own, or a project's.
pub fn rule_files<'a>(
    files: impl Iterator<Item = &'a HostFile>,
    environment: &HostEnvironment,
    scope: HostFileScope,
) -> Vec<RuleFile> {
    let mut found: Vec<RuleFile> = Vec::new();
    for file in files {
        let host = file.host;
        let Some(rules) = &host.0.permissions else { continue };
        let path = match (&rules.file, scope) {
            (RuleLocation::WithServer, _) => {
                found.push(RuleFile { host, scope: file.scope, path: file.path.clone() });
                continue;
            }
            (
                RuleLocation::Settings { user, .. } | RuleLocation::OwnFile { user, .. },
                HostFileScope::User,
            ) => Some(*user),
            (RuleLocation::Settings { project, .. }, HostFileScope::Project) => *project,
            (RuleLocation::OwnFile { project, .. }, HostFileScope::Project) => Some(*project),
        };
        if let Some(path) = path.filter(|_| found.iter().all(|known| known.host != host)) {
            found.push(RuleFile { host, scope, path: path.resolve(environment) });
        }
    }
    found
}

impl RuleFile {
    /// The file's text with the rules it lacks; the same text where it lacks none.
    pub fn add(&self, text: Option<&str>, who: WhoAsks) -> Result<RuleFileEdit, HostFileError> {
        let Some(rules) = &self.host.permissions else {
            return Ok(RuleFileEdit::Not("it keeps no rules in a file"));
        };
        let (mark, bare) = split_mark(text.unwrap_or_default());
        Ok(match (rules.add)(text.map(|_| bare), who)? {
            RuleFileEdit::Text(added) => RuleFileEdit::Text(format!("{mark}{added}")),
            refused @ RuleFileEdit::Not(_) => refused,
        })
    }

    /// The host that writes into this file as well: what it writes later stays when the rules are removed.
    pub fn shared_with(&self) -> Option<Host> {
        match self.host.permissions.as_ref().map(|rules| &rules.file) {
            Some(RuleLocation::OwnFile { .. }) => None,
            Some(RuleLocation::WithServer | RuleLocation::Settings { .. }) | None => Some(self.host),
        }
    }
}
