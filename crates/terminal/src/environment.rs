//! The process's environment: the one place that reads it. Knows names and folders, not what they are for.

use std::env;
use std::path::PathBuf;

use countersign_host_config::{HostEnvironment, Os};

/// A variable that is set to something; none if it is unset, empty or not Unicode.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

/// Everything, for children that get a few plain variables of it.
pub fn all() -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    env::vars_os().collect()
}

/// The words this process was started with, without its own name.
pub fn arguments() -> Vec<String> {
    env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The system's folder for what need not last.
pub fn temporary() -> PathBuf {
    env::temp_dir()
}

/// The folder the command is typed in.
pub fn working_folder() -> std::io::Result<PathBuf> {
    env::current_dir()
}

pub fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// The platform's folder for what programs keep about their own state.
pub fn state_folder() -> Option<PathBuf> {
    Os::HERE.state_folder(&path)
}

pub fn home() -> Option<PathBuf> {
    Os::HERE.home(&path)
}

/// The home folder as text, for paths that are shown with `~`.
pub fn home_text() -> Option<String> {
    home().and_then(|home| home.to_str().map(str::to_owned))
}

/// The platform's folder for the configuration of programs.
pub fn config_folder() -> Option<PathBuf> {
    Os::HERE.config_folder(&path)
}

/// What hosts derive their paths from; none where there is no home folder.
pub fn hosts(project: PathBuf) -> Option<HostEnvironment> {
    HostEnvironment::new(Os::HERE, path, project)
}

/// The program that started this process, by the name the system knows it by; none where the system does not say.
#[cfg(unix)]
pub fn launcher() -> Option<String> {
    let parent = std::os::unix::process::parent_id();
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).ok().or_else(|| {
        // Without /proc, as on macOS, `ps` knows.
        let asked =
            std::process::Command::new("ps").args(["-o", "comm=", "-p", &parent.to_string()]).output();
        asked.ok().and_then(|output| String::from_utf8(output.stdout).ok())
    })?;
    name.trim().rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(not(unix))]
pub fn launcher() -> Option<String> {
    None
}
