//! The programs agents live in: which files they keep their MCP servers in, and in which dialect. Reads and plans edits; writes nothing.

mod codex;
mod json;
mod permissions;
mod server;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

pub(crate) use self::permissions::unsafe_settings;
pub(crate) use self::server::{Entry, Kind, Ours, Server};
use crate::environment::{self, Os};

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
    /// Where Claude Code keeps its settings.
    pub(crate) claude: PathBuf,
    /// Where Claude Code keeps its servers.
    pub(crate) claude_json: PathBuf,
    /// Where Codex keeps its files.
    pub(crate) codex: PathBuf,
    /// Where Zed keeps its settings.
    pub(crate) zed: PathBuf,
    /// The folder worked in.
    pub(crate) project: PathBuf,
}

impl Ground {
    /// Where files are on such a system, by its variables and nothing else. None where nobody is at home.
    pub(crate) fn of(os: Os, path: &dyn Fn(&str) -> Option<PathBuf>, project: PathBuf) -> Option<Self> {
        let (home, config) = (os.home(path)?, os.config_folder(path)?);
        let claude = path("CLAUDE_CONFIG_DIR");
        Some(Self {
            claude_json: claude.as_ref().unwrap_or(&home).join(".claude.json"),
            claude: claude.unwrap_or_else(|| home.join(".claude")),
            codex: path("CODEX_HOME").unwrap_or_else(|| home.join(".codex")),
            zed: match os {
                Os::Linux => config.join("zed"),
                // What Zed has under Application Support is data; its settings lie as on Linux.
                Os::Mac => home.join(".config").join("zed"),
                Os::Windows => config.join("Zed"),
            },
            home,
            config,
            project,
        })
    }

    /// Where files are here.
    pub(crate) fn here(project: PathBuf) -> Option<Self> {
        Self::of(Os::HERE, &environment::path, project)
    }
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
    let user = |host, path: PathBuf| Place { host, scope: Scope::User, path };
    let shared = |host, path: &str| Place { host, scope: Scope::Project, path: project.join(path) };
    vec![
        user(Host::ClaudeCode, ground.claude_json.clone()),
        user(Host::ClaudeDesktop, ground.config.join("Claude").join("claude_desktop_config.json")),
        user(Host::Codex, ground.codex.join("config.toml")),
        user(Host::Cursor, home.join(".cursor").join("mcp.json")),
        user(Host::VsCode, ground.config.join("Code").join("User").join("mcp.json")),
        user(Host::Gemini, home.join(".gemini").join("settings.json")),
        user(Host::Windsurf, home.join(".codeium").join("windsurf").join("mcp_config.json")),
        user(Host::Zed, ground.zed.join("settings.json")),
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
        let (mark, text) = marked(text);
        let rewritten = match self.host {
            Host::Codex => codex::rewrite(text, taken, ours),
            Host::ClaudeCode
            | Host::ClaudeDesktop
            | Host::Cursor
            | Host::VsCode
            | Host::Gemini
            | Host::Windsurf
            | Host::Zed => json::rewrite(self.host, text, taken, ours),
        };
        rewritten.map(|rewritten| format!("{mark}{rewritten}"))
    }

    /// The servers of an old text put back into one that its host has changed since, in ways that do not touch them. None where
    /// somebody changed the servers themselves.
    pub(crate) fn give_back(&self, now: &str, after: &str, before: &str) -> Option<String> {
        let project = Path::new("");
        if self.read(now, project).ok()? != self.read(after, project).ok()? {
            return None;
        }
        let ((mark, now), (_, before)) = (marked(now), marked(before));
        let given = match self.host {
            Host::Codex => codex::give_back(now, before).ok(),
            Host::ClaudeCode
            | Host::ClaudeDesktop
            | Host::Cursor
            | Host::VsCode
            | Host::Gemini
            | Host::Windsurf
            | Host::Zed => json::give_back(self.host, now, before).ok(),
        };
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

    /// Every file of every host on a system with these variables.
    fn check(os: Os, variables: &[(&str, &str)], expect: &[&str]) {
        let look = |name: &str| {
            let mut all = variables.iter();
            all.find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value))
        };
        let ground = Ground::of(os, &look, PathBuf::from("PROJECT")).unwrap();
        let told: Vec<String> = places(&ground)
            .iter()
            .map(|place| {
                let path = place.path.display().to_string();
                // Joined by the separator of the machine that runs this.
                let path = if os == Os::Windows { path.replace('/', "\\") } else { path };
                format!("{} {} {path}", place.host.word(), place.scope.word())
            })
            .collect();
        assert_eq!(told, expect, "{os:?}");
    }

    #[test]
    fn files_of_every_host_on_linux() {
        let home = [
            "claude-code user /home/ada/.claude.json",
            "claude-desktop user /home/ada/.config/Claude/claude_desktop_config.json",
            "codex user /home/ada/.codex/config.toml",
            "cursor user /home/ada/.cursor/mcp.json",
            "vscode user /home/ada/.config/Code/User/mcp.json",
            "gemini user /home/ada/.gemini/settings.json",
            "windsurf user /home/ada/.codeium/windsurf/mcp_config.json",
            "zed user /home/ada/.config/zed/settings.json",
            "claude-code project PROJECT/.mcp.json",
            "codex project PROJECT/.codex/config.toml",
            "cursor project PROJECT/.cursor/mcp.json",
            "vscode project PROJECT/.vscode/mcp.json",
            "gemini project PROJECT/.gemini/settings.json",
            "zed project PROJECT/.zed/settings.json",
        ];
        check(Os::Linux, &[("HOME", "/home/ada")], &home);
        check(Os::Linux, &[("HOME", "/home/ada"), ("XDG_CONFIG_HOME", "not/absolute")], &home);
        let mut moved = home.map(|line| line.replace("/home/ada/.config/", "/etc/xdg/"));
        moved[0] = "claude-code user /c/.claude.json".to_owned();
        moved[2] = "codex user /x/config.toml".to_owned();
        check(
            Os::Linux,
            &[
                ("HOME", "/home/ada"),
                ("XDG_CONFIG_HOME", "/etc/xdg"),
                ("CODEX_HOME", "/x"),
                ("CLAUDE_CONFIG_DIR", "/c"),
            ],
            &moved.each_ref().map(String::as_str),
        );
    }

    #[test]
    fn files_of_every_host_on_macos() {
        check(
            Os::Mac,
            &[("HOME", "/Users/ada"), ("XDG_CONFIG_HOME", "/ignored")],
            &[
                "claude-code user /Users/ada/.claude.json",
                "claude-desktop user /Users/ada/Library/Application Support/Claude/claude_desktop_config.json",
                "codex user /Users/ada/.codex/config.toml",
                "cursor user /Users/ada/.cursor/mcp.json",
                "vscode user /Users/ada/Library/Application Support/Code/User/mcp.json",
                "gemini user /Users/ada/.gemini/settings.json",
                "windsurf user /Users/ada/.codeium/windsurf/mcp_config.json",
                "zed user /Users/ada/.config/zed/settings.json",
                "claude-code project PROJECT/.mcp.json",
                "codex project PROJECT/.codex/config.toml",
                "cursor project PROJECT/.cursor/mcp.json",
                "vscode project PROJECT/.vscode/mcp.json",
                "gemini project PROJECT/.gemini/settings.json",
                "zed project PROJECT/.zed/settings.json",
            ],
        );
    }

    #[test]
    fn files_of_every_host_on_windows() {
        let roaming = [
            r"claude-code user C:\Users\ada\.claude.json",
            r"claude-desktop user C:\Users\ada\AppData\Roaming\Claude\claude_desktop_config.json",
            r"codex user C:\Users\ada\.codex\config.toml",
            r"cursor user C:\Users\ada\.cursor\mcp.json",
            r"vscode user C:\Users\ada\AppData\Roaming\Code\User\mcp.json",
            r"gemini user C:\Users\ada\.gemini\settings.json",
            r"windsurf user C:\Users\ada\.codeium\windsurf\mcp_config.json",
            r"zed user C:\Users\ada\AppData\Roaming\Zed\settings.json",
            r"claude-code project PROJECT\.mcp.json",
            r"codex project PROJECT\.codex\config.toml",
            r"cursor project PROJECT\.cursor\mcp.json",
            r"vscode project PROJECT\.vscode\mcp.json",
            r"gemini project PROJECT\.gemini\settings.json",
            r"zed project PROJECT\.zed\settings.json",
        ];
        let home = (r"USERPROFILE", r"C:\Users\ada");
        check(Os::Windows, &[home, ("HOME", "/ignored")], &roaming);
        check(Os::Windows, &[home, ("APPDATA", r"C:\Users\ada\AppData\Roaming")], &roaming);
    }

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
            let place = Place { host, scope: Scope::User, path: PathBuf::new() };
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

    #[test]
    fn without_a_home_there_is_nowhere_to_look() {
        for os in [Os::Linux, Os::Mac, Os::Windows] {
            assert!(Ground::of(os, &|_| None, PathBuf::new()).is_none(), "{os:?}");
        }
    }
}
