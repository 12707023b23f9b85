//! Ensures that no child outlives us, even if we are killed: a small keeper process holds a pipe of ours and kills the listed process
//! groups when the pipe closes.

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::server::lock;

/// Reads `+ GROUP` and `- GROUP` lines; at the end of input kills what is left. Signals to our own group do not reach it.
const SCRIPT: &str = r#"trap '' INT TERM HUP
all=' '
while read -r sign group; do
  case $sign in
    +) all="$all$group " ;;
    -) case "$all" in *" $group "*) all="${all%% $group *} ${all#* $group }" ;; esac ;;
  esac
done
for group in $all; do kill -s KILL -- "-$group"; done 2>/dev/null"#;

#[derive(Default)]
struct KeeperProcess {
    pipe: Option<ChildStdin>,
    groups: Vec<i32>,
    program: Option<(OsString, Vec<OsString>)>,
}

fn keeper() -> &'static Mutex<KeeperProcess> {
    static KEEPER: OnceLock<Mutex<KeeperProcess>> = OnceLock::new();
    KEEPER.get_or_init(Mutex::default)
}

/// Uses this program as the keeper instead of `/bin/sh`; it must call `keep_orphans` with its stdin.
pub fn use_keeper(program: impl Into<OsString>, args: impl IntoIterator<Item = impl Into<OsString>>) {
    lock(keeper()).program = Some((program.into(), args.into_iter().map(Into::into).collect()));
}

/// The keeper: reads group numbers until its input closes, then kills those still listed.
pub fn keep_orphans(input: impl BufRead) {
    let mut groups: Vec<i32> = Vec::new();
    for line in input.lines().map_while(Result::ok) {
        let Some((sign, group)) = line.split_once(' ') else { continue };
        let Ok(group) = group.trim().parse() else { continue };
        match sign {
            "+" => groups.push(group),
            "-" => groups.retain(|known| *known != group),
            _ => {}
        }
    }
    for group in groups {
        kill_group(group, Signal::KILL);
    }
}

/// Signals a whole process group; a group that is gone is no error.
pub(super) fn kill_group(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = kill_process_group(group, signal);
    }
}

/// Registers a group with the keeper.
pub(super) fn register(group: i32) {
    let mut keeper = lock(keeper());
    keeper.groups.push(group);
    keeper.write_line('+', group);
}

/// Removes a group that has ended.
pub(super) fn unregister(group: i32) {
    let mut keeper = lock(keeper());
    keeper.groups.retain(|known| *known != group);
    keeper.write_line('-', group);
}

impl KeeperProcess {
    fn write_line(&mut self, sign: char, group: i32) {
        let told = self.pipe.as_mut().is_some_and(|pipe| writeln!(pipe, "{sign} {group}").is_ok());
        // The keeper itself may have been killed: a new one gets the whole list.
        if !told && !self.groups.is_empty() {
            self.start();
        }
    }

    /// Starts a keeper with all living groups. Without a shell there is none, and children still see their stdin close.
    fn start(&mut self) {
        let mut command = match &self.program {
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args);
                command
            }
            None => {
                let mut command = Command::new("/bin/sh");
                command.args(["-c", SCRIPT]);
                command
            }
        };
        // Its own group, so that a signal to ours spares it; no environment, which may hold secrets.
        command.env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return };
        let Some(mut pipe) = child.stdin.take() else { return };
        for group in &self.groups {
            if writeln!(pipe, "+ {group}").is_err() {
                return;
            }
        }
        self.pipe = Some(pipe);
    }
}
