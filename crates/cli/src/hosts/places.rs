//! Where every host keeps its files, on every system. Knows paths and nothing of what is in them.

use std::fs;
use std::path::{Path, PathBuf};

use super::Host;
use crate::environment::{self, Os};

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

/// Whether a host reads a file whatever its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// It is where the host keeps its servers.
    Current,
    /// It is where some versions keep them, or keeps other things as well: ours to edit where it has servers, never to make.
    Elder,
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
    /// Where Copilot CLI keeps its files.
    pub(crate) copilot: PathBuf,
    /// Where Devin keeps its files.
    pub(crate) devin: PathBuf,
    /// Where Zed keeps its settings.
    pub(crate) zed: PathBuf,
    /// Where whoever administers this machine writes for Claude Code.
    pub(crate) claude_managed: PathBuf,
    /// The same for Codex.
    pub(crate) codex_managed: PathBuf,
    /// The folder worked in.
    pub(crate) project: PathBuf,
}

impl Ground {
    /// Where files are on such a system, by its variables and nothing else. None where nobody is at home.
    pub(crate) fn of(os: Os, path: &dyn Fn(&str) -> Option<PathBuf>, project: PathBuf) -> Option<Self> {
        let (home, config) = (os.home(path)?, os.config_folder(path)?);
        let claude = path("CLAUDE_CONFIG_DIR");
        // What some have under Application Support on macOS is data; their settings lie as on Linux.
        let dotted = |name: &str| match os {
            Os::Linux | Os::Windows => config.join(name),
            Os::Mac => home.join(".config").join(name),
        };
        let data = || path("ProgramData").unwrap_or_else(|| PathBuf::from(r"C:\ProgramData"));
        let programs = || path("ProgramFiles").unwrap_or_else(|| PathBuf::from(r"C:\Program Files"));
        Some(Self {
            claude_json: claude.as_ref().unwrap_or(&home).join(".claude.json"),
            claude: claude.unwrap_or_else(|| home.join(".claude")),
            codex: path("CODEX_HOME").unwrap_or_else(|| home.join(".codex")),
            copilot: path("COPILOT_HOME").unwrap_or_else(|| home.join(".copilot")),
            devin: dotted("devin"),
            zed: dotted(if os == Os::Windows { "Zed" } else { "zed" }),
            claude_managed: match os {
                Os::Linux => PathBuf::from("/etc/claude-code"),
                Os::Mac => PathBuf::from("/Library/Application Support/ClaudeCode"),
                Os::Windows => programs().join("ClaudeCode"),
            },
            codex_managed: match os {
                Os::Linux | Os::Mac => PathBuf::from("/etc/codex"),
                Os::Windows => data().join("OpenAI").join("Codex"),
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
    /// Whether every version reads it.
    pub(crate) age: Age,
    /// Where.
    pub(crate) path: PathBuf,
}

impl Place {
    /// A file its host reads today.
    pub(crate) fn new(host: Host, scope: Scope, path: PathBuf) -> Self {
        Self { host, scope, age: Age::Current, path }
    }

    fn elder(self) -> Self {
        Self { age: Age::Elder, ..self }
    }
}

/// Every file a host may keep servers in, whether it is there or not.
pub(crate) fn places(ground: &Ground) -> Vec<Place> {
    let (home, project) = (&ground.home, &ground.project);
    let user = |host, path: PathBuf| Place::new(host, Scope::User, path);
    let shared = |host, path: &str| Place::new(host, Scope::Project, project.join(path));
    let gemini = home.join(".gemini");
    let mut all = vec![
        user(Host::ClaudeCode, ground.claude_json.clone()),
        user(Host::ClaudeDesktop, ground.config.join("Claude").join("claude_desktop_config.json")),
        user(Host::Codex, ground.codex.join("config.toml")),
        user(Host::Cursor, home.join(".cursor").join("mcp.json")),
        user(Host::VsCode, ground.config.join("Code").join("User").join("mcp.json")),
        user(Host::Copilot, ground.copilot.join("mcp-config.json")),
        user(Host::Gemini, gemini.join("settings.json")),
        user(Host::Antigravity, gemini.join("config").join("mcp_config.json")),
        user(Host::Antigravity, gemini.join("antigravity").join("mcp_config.json")).elder(),
        user(Host::Windsurf, home.join(".codeium").join("windsurf").join("mcp_config.json")),
        user(Host::Devin, ground.devin.join("mcp_config.json")),
        user(Host::Devin, ground.devin.join("config.json")).elder(),
        user(Host::Zed, ground.zed.join("settings.json")),
        shared(Host::ClaudeCode, ".mcp.json"),
        shared(Host::Codex, ".codex/config.toml"),
        shared(Host::Cursor, ".cursor/mcp.json"),
        shared(Host::VsCode, ".vscode/mcp.json"),
        shared(Host::Copilot, ".github/mcp.json"),
        shared(Host::Gemini, ".gemini/settings.json"),
        shared(Host::Antigravity, ".agents/mcp_config.json"),
        shared(Host::Devin, ".devin/mcp_config.json"),
        shared(Host::Devin, ".devin/mcp_config.local.json").elder(),
        shared(Host::Devin, ".devin/config.json").elder(),
        shared(Host::Devin, ".devin/config.local.json").elder(),
        shared(Host::Zed, ".zed/settings.json"),
    ];
    // In the home folder a project's file may be the person's own: it is one file, and theirs.
    let own: Vec<PathBuf> =
        all.iter().filter(|one| one.scope == Scope::User).map(|one| one.path.clone()).collect();
    all.retain(|one| one.scope == Scope::User || !own.iter().any(|own| is_same(own, &one.path)));
    all
}

/// Whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROJECT: [&str; 12] = [
        "claude-code project PROJECT/.mcp.json",
        "codex project PROJECT/.codex/config.toml",
        "cursor project PROJECT/.cursor/mcp.json",
        "vscode project PROJECT/.vscode/mcp.json",
        "copilot project PROJECT/.github/mcp.json",
        "gemini project PROJECT/.gemini/settings.json",
        "antigravity project PROJECT/.agents/mcp_config.json",
        "devin project PROJECT/.devin/mcp_config.json",
        "devin project PROJECT/.devin/mcp_config.local.json",
        "devin project PROJECT/.devin/config.json",
        "devin project PROJECT/.devin/config.local.json",
        "zed project PROJECT/.zed/settings.json",
    ];

    fn ground(os: Os, variables: &[(&str, &str)]) -> Ground {
        let look = |name: &str| {
            let mut all = variables.iter();
            all.find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value))
        };
        Ground::of(os, &look, PathBuf::from("PROJECT")).unwrap()
    }

    /// Every file of every host on a system with these variables; those of a project are the same everywhere.
    fn check(os: Os, variables: &[(&str, &str)], user: &[&str]) {
        // Joined by the separator of the machine that runs this.
        let separated = |text: String| if os == Os::Windows { text.replace('/', "\\") } else { text };
        let told: Vec<String> = places(&ground(os, variables))
            .iter()
            .map(|place| {
                let path = separated(place.path.display().to_string());
                format!("{} {} {path}", place.host.word(), place.scope.word())
            })
            .collect();
        let expect: Vec<String> =
            user.iter().chain(&PROJECT).map(|line| separated((*line).to_owned())).collect();
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
            "copilot user /home/ada/.copilot/mcp-config.json",
            "gemini user /home/ada/.gemini/settings.json",
            "antigravity user /home/ada/.gemini/config/mcp_config.json",
            "antigravity user /home/ada/.gemini/antigravity/mcp_config.json",
            "windsurf user /home/ada/.codeium/windsurf/mcp_config.json",
            "devin user /home/ada/.config/devin/mcp_config.json",
            "devin user /home/ada/.config/devin/config.json",
            "zed user /home/ada/.config/zed/settings.json",
        ];
        check(Os::Linux, &[("HOME", "/home/ada")], &home);
        check(Os::Linux, &[("HOME", "/home/ada"), ("XDG_CONFIG_HOME", "not/absolute")], &home);
        let mut moved = home.map(|line| line.replace("/home/ada/.config/", "/etc/xdg/"));
        moved[0] = "claude-code user /c/.claude.json".to_owned();
        moved[2] = "codex user /x/config.toml".to_owned();
        moved[5] = "copilot user /p/mcp-config.json".to_owned();
        check(
            Os::Linux,
            &[
                ("HOME", "/home/ada"),
                ("XDG_CONFIG_HOME", "/etc/xdg"),
                ("CODEX_HOME", "/x"),
                ("COPILOT_HOME", "/p"),
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
                "copilot user /Users/ada/.copilot/mcp-config.json",
                "gemini user /Users/ada/.gemini/settings.json",
                "antigravity user /Users/ada/.gemini/config/mcp_config.json",
                "antigravity user /Users/ada/.gemini/antigravity/mcp_config.json",
                "windsurf user /Users/ada/.codeium/windsurf/mcp_config.json",
                "devin user /Users/ada/.config/devin/mcp_config.json",
                "devin user /Users/ada/.config/devin/config.json",
                "zed user /Users/ada/.config/zed/settings.json",
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
            r"copilot user C:\Users\ada\.copilot\mcp-config.json",
            r"gemini user C:\Users\ada\.gemini\settings.json",
            r"antigravity user C:\Users\ada\.gemini\config\mcp_config.json",
            r"antigravity user C:\Users\ada\.gemini\antigravity\mcp_config.json",
            r"windsurf user C:\Users\ada\.codeium\windsurf\mcp_config.json",
            r"devin user C:\Users\ada\AppData\Roaming\devin\mcp_config.json",
            r"devin user C:\Users\ada\AppData\Roaming\devin\config.json",
            r"zed user C:\Users\ada\AppData\Roaming\Zed\settings.json",
        ];
        let home = (r"USERPROFILE", r"C:\Users\ada");
        check(Os::Windows, &[home, ("HOME", "/ignored")], &roaming);
        check(Os::Windows, &[home, ("APPDATA", r"C:\Users\ada\AppData\Roaming")], &roaming);
    }

    #[test]
    fn files_of_administrators() {
        for (os, variables, expect) in [
            (Os::Linux, [("HOME", "/h")], ["/etc/claude-code", "/etc/codex"]),
            (Os::Mac, [("HOME", "/h")], ["/Library/Application Support/ClaudeCode", "/etc/codex"]),
            (
                Os::Windows,
                [("USERPROFILE", r"C:\h")],
                [r"C:\Program Files\ClaudeCode", r"C:\ProgramData\OpenAI\Codex"],
            ),
        ] {
            let ground = ground(os, &variables);
            let told = [ground.claude_managed, ground.codex_managed].map(|path| path.display().to_string());
            let told = if os == Os::Windows { told.map(|path| path.replace('/', "\\")) } else { told };
            assert_eq!(told, expect, "{os:?}");
        }
    }

    #[test]
    fn without_a_home_there_is_nowhere_to_look() {
        for os in [Os::Linux, Os::Mac, Os::Windows] {
            assert!(Ground::of(os, &|_| None, PathBuf::new()).is_none(), "{os:?}");
        }
    }
}
