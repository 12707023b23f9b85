//! The hosts of this person: which lead to us, what goes around us, and settings that answer in the person's place.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use countersign_config::Config;
use countersign_host_config::{
    DESTRUCTIVE_TOOLS, HOSTS, HostEnvironment, HostFile, HostFileStatus, ServerEntry, ServerEntryKind,
    SettingRisk, WhoAsks, host_files, risky_settings, unlisted_hosts,
};

use super::DoctorArgs;
use super::check::{Check, State};
use crate::commands::init::rules::who_asks;
use crate::commands::init::servers_kept_in_host;
use crate::config_file;
use crate::environment;

const AREA: &str = "hosts";

const LONGEST: u64 = 64 << 20;

/// How long a host may take to say its version.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn check_hosts(args: &DoctorArgs, config: Option<&Config>, checks: &mut Vec<Check>) {
    let project = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let Some(ground) = environment::hosts(project) else {
        checks.push(Check::new(AREA, State::Bad, "there is no home folder").fix("export HOME=~"));
        return;
    };
    let before = checks.len();
    for place in host_files(&ground).into_iter().filter(|place| place.path.exists()) {
        check_host_file(&place, &ground, checks);
    }
    if checks.len() == before {
        checks.push(
            Check::new(AREA, State::Look, "no host was found").fix("countersign init --host claude-code"),
        );
    }
    for host in unlisted_hosts(&ground) {
        let (title, path) = (host.title, host.path.display());
        let message = format!(
            "{title} ({path}): has servers that go around countersign, and `init` does not know this host"
        );
        let what =
            "put `countersign serve --host NAME --config PATH` there, and its servers into the configuration";
        checks.push(Check::new(AREA, State::Look, message).edit(&host.path, what));
    }
    let asks = config.is_some_and(|config| who_asks(config) == WhoAsks::Gateway);
    for setting in risky_settings(&ground) {
        // What `init --permissions` writes: countersign asks about it itself.
        if asks
            && setting.risk == SettingRisk::Approves
            && DESTRUCTIVE_TOOLS.iter().any(|tool| setting.setting.contains(tool))
        {
            continue;
        }
        let (state, harm) = harm(setting.risk);
        let message =
            format!("{}: {} in {}: {harm}", setting.host.title, setting.setting, setting.path.display());
        let check = Check::new(AREA, state, message);
        // Some are put right by the host's own program.
        let program = setting.fix.split_whitespace().next();
        let is_command = HOSTS.iter().any(|host| host.program.is_some() && host.program == program);
        checks.push(match is_command {
            true => check.fix(setting.fix),
            false => check.edit(&setting.path, &setting.fix),
        });
    }
    if !args.no_start {
        for (host, program) in HOSTS.iter().filter_map(|host| Some((host, host.program?))) {
            if let Some(version) = version(program) {
                checks.push(Check::new(AREA, State::Good, format!("{} {version}", host.title)));
            }
        }
    }
}

/// How bad a setting is, and what it does.
fn harm(harm: SettingRisk) -> (State, &'static str) {
    match harm {
        SettingRisk::Approves => (
            State::Bad,
            "nobody is asked before a destructive call that needs no more than the caller's word",
        ),
        SettingRisk::ModelApproves => (
            State::Look,
            "a model decides, and nobody is asked, before a destructive call that needs no more than the caller's word",
        ),
        SettingRisk::DisablesGateway => (State::Bad, "countersign is not used there"),
        SettingRisk::AwaitsAcceptance => (State::Look, "countersign is not used in this folder until then"),
        SettingRisk::BypassesGateway => (State::Look, "servers are used that go around countersign"),
        SettingRisk::HidesWarning => {
            (State::Look, "bypassing every permission can be switched on without a warning")
        }
    }
}

fn check_host_file(place: &HostFile, ground: &HostEnvironment, checks: &mut Vec<Check>) {
    let title = format!("{} ({})", place.host.title, place.path.display());
    let read = config_file::read_text(&place.path, LONGEST)
        .map_err(|why| (1, why))
        .and_then(|text| place.read(&text, &ground.project).map_err(|broken| (broken.line, broken.reason)));
    let entries = match read {
        Ok(entries) => entries,
        Err((line, why)) => {
            let message = format!("{title}: line {line}: {why}");
            let what = format!("line {line}; its host can't read it either");
            checks.push(Check::new(AREA, State::Bad, message).edit(&place.path, &what));
            return;
        }
    };
    if entries.is_empty() && place.status == HostFileStatus::Secondary {
        return;
    }
    let ours = entries.iter().any(|entry| entry.kind == ServerEntryKind::Countersign);
    let fix = format!("countersign init --host {}", place.host.name);
    let staying = servers_kept_in_host(place, &entries, &ground.home);
    let why = |entry: &ServerEntry| {
        staying.iter().find(|(name, _)| *name == entry.name).map(|(_, why)| why.as_str())
    };
    let mut around = Vec::new();
    for entry in &entries {
        let said = |why: &str| format!("{title}: `{}` goes around countersign: {why}", entry.name);
        match (&entry.kind, why(entry)) {
            (ServerEntryKind::Server(_), None) => around.push(entry.name.as_str()),
            // `init` leaves this server there until the reason is gone.
            (ServerEntryKind::Server(_), Some(why)) => {
                let what = format!("change that, then: {fix}");
                checks.push(Check::new(AREA, State::Bad, said(why)).edit(&place.path, &what));
            }
            (ServerEntryKind::Foreign(why), _) => checks.push(Check::new(AREA, State::Look, said(why))),
            (ServerEntryKind::Countersign | ServerEntryKind::Disabled, _) => {}
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
