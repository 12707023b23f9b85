//! One gateway for all hosts, as a service of the account: a systemd unit or a launchd agent, and a file with the variables that the
//! configuration refers to, which a service does not inherit. Says what is written; starts and stops through the system's own program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use countersign_host_config::Os;

use super::backup::HostFileChange;
use crate::config_change::FileMode;
use crate::environment;
use crate::output::shell_word;

const UNIT: &str = "countersign.service";
const LABEL: &str = "countersign.gateway";

/// What keeps the services of an account running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceRunner {
    Systemd,
    Launchd,
}

impl ServiceRunner {
    /// The one of this session, if it answers: a container has `systemctl` and nobody behind it.
    pub(super) fn here() -> Option<Self> {
        Self::usual().filter(|manager| manager.asks(manager.probe()))
    }

    /// The one this system usually has.
    pub(super) fn usual() -> Option<Self> {
        match Os::HERE {
            Os::Linux => Some(Self::Systemd),
            Os::Mac => Some(Self::Launchd),
            Os::Windows => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Launchd => "launchd",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Systemd, Self::Launchd].into_iter().find(|one| one.name() == name)
    }

    fn probe(self) -> &'static [&'static str] {
        match self {
            Self::Systemd => &["systemctl", "--user", "show-environment"],
            Self::Launchd => &["launchctl", "print-cache"],
        }
    }

    /// Where its description of our service is.
    fn unit_path(self) -> Option<PathBuf> {
        match self {
            Self::Systemd => {
                environment::config_folder().map(|folder| folder.join("systemd/user").join(UNIT))
            }
            Self::Launchd => environment::home()
                .map(|home| home.join("Library/LaunchAgents").join(format!("{LABEL}.plist"))),
        }
    }

    fn start_commands(self) -> Vec<Vec<String>> {
        let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self {
            Self::Systemd => vec![
                words(&["systemctl", "--user", "daemon-reload"]),
                words(&["systemctl", "--user", "enable", "--now", UNIT]),
            ],
            Self::Launchd => {
                let path = self.unit_path().unwrap_or_default().display().to_string();
                vec![words(&["launchctl", "load", "-w", &path])]
            }
        }
    }

    fn stop_commands(self) -> Vec<Vec<String>> {
        let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self {
            Self::Systemd => vec![words(&["systemctl", "--user", "disable", "--now", UNIT])],
            Self::Launchd => {
                let path = self.unit_path().unwrap_or_default().display().to_string();
                vec![words(&["launchctl", "unload", "-w", &path])]
            }
        }
    }

    /// Starts the service, now and at every log-in; what has to be typed where that fails.
    pub(super) fn start(self) -> Result<(), String> {
        self.run_all(&self.start_commands())
    }

    /// Ends it for good, before its description is taken away.
    pub(super) fn stop(self) -> Result<(), String> {
        self.run_all(&self.stop_commands())
    }

    fn run_all(self, commands: &[Vec<String>]) -> Result<(), String> {
        let runs = |line: &Vec<String>| self.asks(&line.iter().map(String::as_str).collect::<Vec<_>>());
        if commands.iter().all(runs) {
            return Ok(());
        }
        let line =
            |words: &Vec<String>| words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
        Err(commands.iter().map(line).collect::<Vec<_>>().join(" && "))
    }

    fn asks(self, line: &[&str]) -> bool {
        let Some((program, words)) = line.split_first() else { return false };
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn description(self, program: &str, config: &Path, variables: &Path) -> String {
        match self {
            Self::Systemd => unit(program, config, variables),
            Self::Launchd => property_list(program, config, variables),
        }
    }

    /// The files of a service for this configuration.
    pub(super) fn files(
        self,
        program: &str,
        config: &Path,
        text: &str,
        folder: &Path,
    ) -> Option<Vec<HostFileChange>> {
        let variables = folder.join("service.env");
        let change = |path: PathBuf, after: String, mode| {
            let before = std::fs::read_to_string(&path).ok();
            HostFileChange { path, host: None, before, after, mode }
        };
        let description = self.description(program, config, &variables);
        let all = vec![
            change(variables, variables_file(text), FileMode::Private),
            change(self.unit_path()?, description, FileMode::Kept),
        ];
        Some(
            all.into_iter()
                .filter(|change| change.before.as_deref() != Some(change.after.as_str()))
                .collect(),
        )
    }
}

const HEAD: &str = "made by `countersign init --service`; `countersign init --undo` takes it away";

fn unit(program: &str, config: &Path, variables: &Path) -> String {
    // In a command line `%` and `$` mean something, in a path only `%`.
    let word = |text: &str| {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
        format!("\"{text}\"")
    };
    let (program, config) = (word(program), word(&config.display().to_string()));
    let variables = variables.display().to_string().replace('%', "%%");
    format!(
        "# {HEAD}\n[Unit]\nDescription=Countersign, one MCP gateway for the agent hosts of this account\n\n[Service]\nExecStart={program} serve --http --config {config}\nEnvironmentFile={variables}\nRestart=on-failure\n\n[Install]\nWantedBy=default.target\n"
    )
}

fn property_list(program: &str, config: &Path, variables: &Path) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // launchd reads no file of variables: a shell does.
    let line = format!(
        "set -a; . {}; exec {} serve --http --config {}",
        shell_word(&variables.display().to_string()),
        shell_word(program),
        shell_word(&config.display().to_string())
    );
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<!-- {HEAD} -->\n<plist version=\"1.0\">\n<dict>\n  <key>Label</key><string>{LABEL}</string>\n  <key>ProgramArguments</key>\n  <array><string>/bin/sh</string><string>-c</string><string>{}</string></array>\n  <key>RunAtLoad</key><true/>\n  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>\n</dict>\n</plist>\n",
        escaped(&line)
    )
}

/// What children get of our environment, and every variable the configuration refers to, as far as they are set.
fn variables_file(config: &str) -> String {
    let mut names = vec!["PATH".to_owned(), "LANG".to_owned(), "TMPDIR".to_owned()];
    for piece in config.split("${env:").skip(1) {
        let name: String =
            piece.chars().take_while(|one| one.is_ascii_alphanumeric() || *one == '_').collect();
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    let line = |name: String| {
        let value = environment::variable(&name).filter(|value| !value.contains('\n'))?;
        Some(format!("{name}={}\n", quoted(&value)))
    };
    let lines: String = names.into_iter().filter_map(line).collect();
    format!("# {HEAD}\n{lines}")
}

/// A text that systemd and a shell read alike.
fn quoted(value: &str) -> String {
    let escaped: String = value
        .chars()
        .flat_map(|one| "\"\\$`".contains(one).then_some('\\').into_iter().chain([one]))
        .collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_any_letters_stay_one_word() {
        let (program, config) = ("/opt/a b/100%/c$d", Path::new("/home/\"ada\"/c.toml"));
        let unit = unit(program, config, Path::new("/home/a b/50%.env"));
        assert!(
            unit.contains(r#"ExecStart="/opt/a b/100%%/c$$d" serve --http --config "/home/\"ada\"/c.toml""#),
            "{unit}"
        );
        assert!(unit.contains("EnvironmentFile=/home/a b/50%%.env\n"), "{unit}");
        let list = property_list("/opt/a&b/countersign", Path::new("/c d.toml"), Path::new("/e.env"));
        assert!(list.contains("exec '/opt/a&amp;b/countersign' serve --http --config '/c d.toml'"), "{list}");
        assert_eq!(quoted("a \"b\" $c \\ `d`"), r#""a \"b\" \$c \\ \`d\`""#);
    }
}
