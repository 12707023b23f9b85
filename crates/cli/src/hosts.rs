//! The programs agents live in: which files they keep their MCP servers in, and in which dialect. Reads and plans edits; writes nothing.

mod codex;
mod json;
mod permissions;
mod server;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

pub(crate) use self::permissions::unsafe_settings;
pub(crate) use self::server::{Entry, Kind, Ours, Server};

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
    /// Gemini CLI
    Gemini,
    /// Windsurf
    Windsurf,
    /// Zed
    Zed,
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
            Self::Gemini => "Gemini CLI",
            Self::Windsurf => "Windsurf",
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
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor | Self::Gemini | Self::Windsurf => {
                "mcpServers"
            }
        }
    }
}

/// Whom a file speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// This person, everywhere.
    User,
    /// Everyone who works in a folder.
    Project,
}

impl Scope {
    /// Its name.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

/// Where files are looked for.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    /// The person's home.
    pub(crate) home: PathBuf,
    /// The platform's folder for configuration.
    pub(crate) config: PathBuf,
    /// Where Codex keeps its files, if not in the home.
    pub(crate) codex: Option<PathBuf>,
    /// The folder worked in.
    pub(crate) project: PathBuf,
}

/// One file of one host.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Whose.
    pub(crate) host: Host,
    /// To whom it speaks.
    pub(crate) scope: Scope,
    /// Where.
    pub(crate) path: PathBuf,
}

/// Every file a host may keep servers in, whether it is there or not.
pub(crate) fn places(ground: &Ground) -> Vec<Place> {
    let (home, project) = (&ground.home, &ground.project);
    let codex = ground.codex.clone().unwrap_or_else(|| home.join(".codex"));
    let user = |host, path: PathBuf| Place { host, scope: Scope::User, path };
    let shared = |host, path: &str| Place { host, scope: Scope::Project, path: project.join(path) };
    vec![
        user(Host::ClaudeCode, home.join(".claude.json")),
        user(Host::ClaudeDesktop, ground.config.join("Claude").join("claude_desktop_config.json")),
        user(Host::Codex, codex.join("config.toml")),
        user(Host::Cursor, home.join(".cursor").join("mcp.json")),
        user(Host::VsCode, ground.config.join("Code").join("User").join("mcp.json")),
        user(Host::Gemini, home.join(".gemini").join("settings.json")),
        user(Host::Windsurf, home.join(".codeium").join("windsurf").join("mcp_config.json")),
        user(
            Host::Zed,
            ground.config.join(if cfg!(target_os = "macos") { "Zed" } else { "zed" }).join("settings.json"),
        ),
        shared(Host::ClaudeCode, ".mcp.json"),
        shared(Host::Codex, ".codex/config.toml"),
        shared(Host::Cursor, ".cursor/mcp.json"),
        shared(Host::VsCode, ".vscode/mcp.json"),
        shared(Host::Gemini, ".gemini/settings.json"),
        shared(Host::Zed, ".zed/settings.json"),
    ]
}

/// A file that can't be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The line, counted from 1.
    pub(crate) line: usize,
    /// What is wrong, in one line.
    pub(crate) why: String,
}

impl Place {
    /// The servers a file's text has.
    pub(crate) fn read(&self, text: &str, project: &Path) -> Result<Vec<Entry>, Broken> {
        match self.host {
            Host::Codex => codex::read(text, self.folder(project)),
            Host::ClaudeCode
            | Host::ClaudeDesktop
            | Host::Cursor
            | Host::VsCode
            | Host::Gemini
            | Host::Windsurf
            | Host::Zed => json::read(self.host, text, self.folder(project)),
        }
    }

    /// The text with one server of ours instead of those that were taken over; everything else as it was.
    pub(crate) fn rewrite(&self, text: &str, taken: &[Entry], ours: &Ours) -> Result<String, Broken> {
        match self.host {
            Host::Codex => codex::rewrite(text, taken, ours),
            Host::ClaudeCode
            | Host::ClaudeDesktop
            | Host::Cursor
            | Host::VsCode
            | Host::Gemini
            | Host::Windsurf
            | Host::Zed => json::rewrite(self.host, text, taken, ours),
        }
    }

    /// The servers of an old text put back into one that its host has changed since, in ways that do not touch them. None where
    /// somebody changed the servers themselves.
    pub(crate) fn give_back(&self, now: &str, after: &str, before: &str) -> Option<String> {
        let project = Path::new("");
        if self.read(now, project).ok()? != self.read(after, project).ok()? {
            return None;
        }
        match self.host {
            Host::Codex => codex::give_back(now, before).ok(),
            Host::ClaudeCode
            | Host::ClaudeDesktop
            | Host::Cursor
            | Host::VsCode
            | Host::Gemini
            | Host::Windsurf
            | Host::Zed => json::give_back(self.host, now, before).ok(),
        }
    }

    /// Where the servers of this file run: hosts start a project's servers in its folder.
    fn folder(&self, project: &Path) -> Option<PathBuf> {
        match self.scope {
            Scope::User => None,
            Scope::Project => Some(project.to_owned()),
        }
    }
}
