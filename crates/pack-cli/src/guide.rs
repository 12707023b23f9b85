//! `init --guided`: a few questions at a terminal. Without a terminal it refuses before anything is written.

use std::io::{BufRead as _, IsTerminal as _};

use countersign_pack::error::{PackError, PackResult};
use countersign_pack::manifest::{Target, TargetScope, parse_target};
use countersign_policy::refusal::{Code, Refusal};
use countersign_terminal::output::{Format, OutputSettings};

/// What a person wants of their config repo.
pub(crate) struct GuidedInitChoices {
    pub(crate) targets: Vec<Target>,
    pub(crate) scope: TargetScope,
    pub(crate) bootstrap: bool,
}

/// Asks until every answer is one.
pub(crate) fn ask(voice: OutputSettings) -> PackResult<GuidedInitChoices> {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if voice.format == Format::Json || !terminal {
        let message = "`init --guided` asks questions and needs a terminal";
        return Err(Refusal::new(Code::TtyRequired, message)
            .with("stdin_is_terminal", std::io::stdin().is_terminal())
            .with("stdout_is_terminal", std::io::stdout().is_terminal())
            .with("hint", "run it in a terminal, or leave `--guided` out")
            .into());
    }
    let names: Vec<&str> = Target::ALL.iter().map(|target| target.as_str()).collect();
    let targets = until(voice, &format!("Targets, of {}", names.join(", ")), "codex,claude_code", targets)?;
    let scope = until(voice, "Whose files: project or both", "both", scope)?;
    let bootstrap = until(voice, "Put operator assets into the repo: yes or no", "no", truth)?;
    Ok(GuidedInitChoices { targets, scope, bootstrap })
}

fn targets(text: &str) -> Result<Vec<Target>, String> {
    let mut found = Vec::new();
    for name in text.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty()) {
        let target = parse_target(name).map_err(|stop| stop.to_string())?;
        if !found.contains(&target) {
            found.push(target);
        }
    }
    if found.is_empty() { Err("at least one is needed".to_owned()) } else { Ok(found) }
}

fn scope(text: &str) -> Result<TargetScope, String> {
    match text.trim() {
        "project" => Ok(TargetScope::Project),
        "both" => Ok(TargetScope::Both),
        other => Err(format!("`{other}` is neither project nor both")),
    }
}

fn truth(text: &str) -> Result<bool, String> {
    match text.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        other => Err(format!("`{other}` is neither yes nor no")),
    }
}

fn until<T>(
    voice: OutputSettings,
    question: &str,
    usual: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> PackResult<T> {
    let broken = |error: std::io::Error| PackError::broken("ask", error);
    loop {
        voice.tell(&format!("{question} [{usual}]: "));
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).map_err(broken)? == 0 {
            return Err(Refusal::new(
                Code::TtyRequired,
                "the terminal closed before every question was answered",
            )
            .into());
        }
        let answer = if line.trim().is_empty() { usual } else { line.trim() };
        match read(answer) {
            Ok(value) => return Ok(value),
            Err(why) => voice.tell(&format!("{why}\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_people_write_them() {
        assert_eq!(targets("codex, cursor codex").unwrap(), [Target::Codex, Target::Cursor]);
        assert!(targets("emacs").unwrap_err().contains("codex"));
        assert!(targets(" , ").is_err() && scope("user").is_err());
        assert!(truth("Y").unwrap() && !truth("no").unwrap() && truth("maybe").is_err());
    }
}
