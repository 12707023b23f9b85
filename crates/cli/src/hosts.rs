//! The programs agents live in: which files they keep their MCP servers in, and in which dialect. Reads and plans edits; writes nothing.

mod codex;
mod json;
mod next;
mod permissions;
mod places;
mod rules;
mod server;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

pub(crate) use self::next::next_step;
pub(crate) use self::permissions::{Harm, Setting, settings};
pub(crate) use self::places::{Age, Ground, Place, Scope, places};
pub(crate) use self::rules::{Offered, RuleFile, rule_files};
use self::server::NAME;
pub(crate) use self::server::{Entry, Kind, Offers, Ours, Server};

/// A host we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Host {
    /// Claude Code
    ClaudeCode,
    /// Claude Desktop
    ClaudeDesktop,
    /// Codex
    Codex,
    /// Cursor
    Cursor,
    /// VS Code
    #[value(name = "vscode")]
    VsCode,
    /// Copilot CLI
    Copilot,
    /// Gemini CLI
    Gemini,
    /// Antigravity
    Antigravity,
    /// Windsurf
    Windsurf,
    /// Devin
    Devin,
    /// Zed
    Zed,
}

/// How a host writes its servers down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    Json,
    Toml,
}

impl Host {
    /// Its name for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Codex => "Codex",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Copilot => "Copilot CLI",
            Self::Gemini => "Gemini CLI",
            Self::Antigravity => "Antigravity",
            Self::Windsurf => "Windsurf",
            Self::Devin => "Devin",
            Self::Zed => "Zed",
        }
    }

    /// The host of that name.
    pub(crate) fn named(word: &str) -> Option<Self> {
        <Self as ValueEnum>::from_str(word, false).ok()
    }

    /// Its name on the command line and in envelopes.
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The key its servers stand under.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::VsCode => "servers",
            Self::Zed => "context_servers",
            Self::Codex => "mcp_servers",
            Self::ClaudeCode
            | Self::ClaudeDesktop
            | Self::Cursor
            | Self::Copilot
            | Self::Gemini
            | Self::Antigravity
            | Self::Windsurf
            | Self::Devin => "mcpServers",
        }
    }

    fn syntax(self) -> Syntax {
        match self {
            Self::Codex => Syntax::Toml,
            Self::ClaudeCode
            | Self::ClaudeDesktop
            | Self::Cursor
            | Self::VsCode
            | Self::Copilot
            | Self::Gemini
            | Self::Antigravity
            | Self::Windsurf
            | Self::Devin
            | Self::Zed => Syntax::Json,
        }
    }
}

/// A file that can't be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The line, counted from 1.
    pub(crate) line: usize,
    /// What is wrong, in one line.
    pub(crate) why: String,
}

/// The byte order mark some editors put first, and the text after it. It stays where it was.
pub(crate) fn marked(text: &str) -> (&'static str, &str) {
    match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    }
}

impl Place {
    /// The servers a file's text has.
    pub(crate) fn read(&self, text: &str, project: &Path) -> Result<Vec<Entry>, Broken> {
        let (_, text) = marked(text);
        match self.host.syntax() {
            Syntax::Toml => codex::read(text, self.folder(project)),
            Syntax::Json => json::read(self.host, text, self.folder(project)),
        }
    }

    /// The text with one server of ours instead of those that were taken over; everything else as it was.
    pub(crate) fn rewrite(&self, text: &str, taken: &[Entry], ours: &Ours) -> Result<String, Broken> {
        let (mark, text) = marked(text);
        let rewritten = match self.host.syntax() {
            Syntax::Toml => codex::rewrite(text, taken, ours),
            Syntax::Json => json::rewrite(self.host, text, taken, ours),
        };
        rewritten.map(|rewritten| format!("{mark}{rewritten}"))
    }

    /// The servers of an old text put back into one that its host has changed since, in ways that do not touch them, and rules that
    /// came with ours taken out. None where somebody changed the servers themselves.
    pub(crate) fn give_back(&self, now: &str, after: &str, before: &str) -> Option<String> {
        let project = Path::new("");
        if self.read(now, project).ok()? != self.read(after, project).ok()? {
            return None;
        }
        let ((mark, now), (_, before)) = (marked(now), marked(before));
        let given = match self.host.syntax() {
            Syntax::Toml => codex::give_back(now, before).ok(),
            Syntax::Json => json::give_back(self.host, now, before).ok(),
        };
        let given = given.and_then(|given| rules::withdraw(self.host, &given, before).ok());
        given.map(|given| format!("{mark}{given}"))
    }

    /// Where the servers of this file run: hosts start a project's servers in its folder.
    fn folder(&self, project: &Path) -> Option<PathBuf> {
        match self.scope {
            Scope::User => None,
            Scope::Project => Some(project.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_and_line_ends_stay() {
        let ours = Ours { command: "countersign".to_owned(), args: vec!["serve".to_owned()] };
        for (host, text) in [
            (
                Host::Cursor,
                "\u{feff}{\r\n  \"mcpServers\": {\r\n    \"x\": {\"command\": \"npx\"}\r\n  }\r\n}\r\n",
            ),
            (
                Host::Codex,
                "\u{feff}model = \"o\"\r\n\r\n[mcp_servers.x]\r\ncommand = \"npx\"\r\n\r\n[tui]\r\na = 1\r\n",
            ),
        ] {
            let place = Place::new(host, Scope::User, PathBuf::new());
            let entries = place.read(text, Path::new("")).unwrap();
            assert_eq!(entries.len(), 1, "{host:?}");
            let after = place.rewrite(text, &entries, &ours).unwrap();
            assert!(after.starts_with('\u{feff}') && after.matches('\u{feff}').count() == 1, "{after:?}");
            assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after:?}");
            assert_eq!(place.read(&after, Path::new("")).unwrap()[0].kind, Kind::Countersign);
            assert_eq!(place.rewrite(&after, &[], &ours).unwrap(), after, "a second time changes nothing");
            let back = place.give_back(&after, &after, text).unwrap();
            assert_eq!(place.read(&back, Path::new("")).unwrap(), entries, "{back:?}");
        }
    }
}
