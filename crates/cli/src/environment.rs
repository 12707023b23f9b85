//! The process's environment: the one place that reads it. Knows names and folders, not what they are for.

use std::env;
use std::path::PathBuf;

/// A variable that is set to something; none if it is unset, empty or not Unicode.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

/// Everything, for children that get a few plain variables of it.
pub(crate) fn all() -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    env::vars_os().collect()
}

/// The system's folder for what need not last.
pub(crate) fn temporary() -> PathBuf {
    env::temp_dir()
}

/// A variable that holds a path.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// The platform's folder for the configuration of programs.
pub(crate) fn config_folder() -> Option<PathBuf> {
    let home = || path(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
    if cfg!(windows) {
        path("APPDATA").or_else(|| home().map(|home| home.join("AppData").join("Roaming")))
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library").join("Application Support"))
    } else {
        // The XDG specification says to ignore a relative one.
        let xdg = path("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
        xdg.or_else(|| home().map(|home| home.join(".config")))
    }
}
