//! The hosts of this person: which lead to us, what goes around us, and settings that answer in the person's place.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Doctor;
use super::check::{Check, State};
use crate::commands::init::staying;
use crate::config_file;
use crate::hosts::{self, Age, Entry, Ground, Harm, Host, Kind, Place};

const AREA: &str = "hosts";

/// No host's file is that long.
const LONGEST: u64 = 64 << 20;

/// Hosts that are programs one can ask.
const PROGRAMS: [(Host, &str); 5] = [
    (Host::ClaudeCode, "claude"),
    (Host::Codex, "codex"),
    (Host::Copilot, "copilot"),
    (Host::Gemini, "gemini"),
    (Host::Devin, "devin"),
];

/// How long a host may take to say its version.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn look(args: &Doctor, checks: &mut Vec<Check>) {
    let project = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let Some(ground) = Ground::here(project) else {
        checks.push(Check::new(AREA, State::Bad, "there is no home folder").fix("set HOME"));
        return;
    };
    let before = checks.len();
    for place in hosts::places(&ground).into_iter().filter(|place| place.path.exists()) {
        one(&place, &ground, checks);
    }
    if checks.len() == before {
        checks.push(Check::new(AREA, State::Look, "no host was found").fix("countersign init --host NAME"));
    }
    for setting in hosts::settings(&ground) {
        let (state, harm) = harm(setting.harm);
        let message =
            format!("{}: {} in {}: {harm}", setting.host.title(), setting.setting, setting.path.display());
        checks.push(Check::new(AREA, state, message).fix(setting.fix));
    }
    if !args.no_start {
        for (host, program) in PROGRAMS {
            if let Some(version) = version(program) {
                checks.push(Check::new(AREA, State::Good, format!("{} {version}", host.title())));
            }
        }
    }
}

/// How bad a setting is, and what it does.
fn harm(harm: Harm) -> (State, &'static str) {
    match harm {
        Harm::Answers => (
            State::Bad,
            "nobody is asked before a destructive call that needs no more than the caller's word",
        ),
        Harm::Judges => (
            State::Look,
            "a model decides, and nobody is asked, before a destructive call that needs no more than the caller's word",
        ),
        Harm::ShutsOut => (State::Bad, "countersign is not used there"),
        Harm::Waits => (State::Look, "countersign is not used in this folder until then"),
        Harm::LetsIn => (State::Look, "servers are used that go around countersign"),
        Harm::Hushes => (State::Look, "bypassing every permission can be switched on without a warning"),
    }
}

fn one(place: &Place, ground: &Ground, checks: &mut Vec<Check>) {
    let title = format!("{} ({})", place.host.title(), place.path.display());
    let read = config_file::read_text(&place.path, LONGEST)
        .map_err(|why| (1, why))
        .and_then(|text| place.read(&text, &ground.project).map_err(|broken| (broken.line, broken.why)));
    let entries = match read {
        Ok(entries) => entries,
        Err((line, why)) => {
            let message = format!("{title}: line {line}: {why}");
            checks.push(
                Check::new(AREA, State::Bad, message).fix("mend the file; its host can't read it either"),
            );
            return;
        }
    };
    if entries.is_empty() && place.age == Age::Elder {
        return;
    }
    let ours = entries.iter().any(|entry| entry.kind == Kind::Countersign);
    let fix = format!("countersign init --host {}", place.host.word());
    let staying = staying(place, &entries, &ground.home);
    let why =
        |entry: &Entry| staying.iter().find(|(name, _)| *name == entry.name).map(|(_, why)| why.as_str());
    let mut around = Vec::new();
    for entry in &entries {
        let said = |why: &str| format!("{title}: `{}` goes around countersign: {why}", entry.name);
        match (&entry.kind, why(entry)) {
            (Kind::Server(_), None) => around.push(entry.name.as_str()),
            // What `init` would leave there is no fix as long as that stands in its way.
            (Kind::Server(_), Some(why)) => {
                checks.push(Check::new(AREA, State::Bad, said(why)).fix(format!("change that, then {fix}")));
            }
            (Kind::Foreign(why), _) => checks.push(Check::new(AREA, State::Look, said(why))),
            (Kind::Countersign | Kind::Disabled, _) => {}
        }
    }
    if !around.is_empty() {
        let message = format!("{title}: goes around countersign: {}", around.join(", "));
        checks.push(Check::new(AREA, State::Bad, message).fix(fix));
    } else if ours {
        checks.push(Check::new(AREA, State::Good, format!("{title}: leads to countersign")));
    } else {
        checks.push(Check::new(AREA, State::Look, format!("{title}: does not know countersign")).fix(fix));
    }
}

/// What a program says of its version, if it is there and answers in time.
fn version(program: &str) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let start = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut text = String::new();
    child.stdout.take()?.take(4096).read_to_string(&mut text).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}
