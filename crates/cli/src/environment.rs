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

/// The words this process was started with, without its own name.
pub(crate) fn arguments() -> Vec<String> {
    env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The system's folder for what need not last.
pub(crate) fn temporary() -> PathBuf {
    env::temp_dir()
}

/// A variable that holds a path.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// The kinds of systems that differ in where things are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Os {
    /// Linux and other systems that follow XDG.
    Linux,
    /// macOS.
    Mac,
    /// Windows.
    Windows,
}

impl Os {
    /// This one.
    pub(crate) const HERE: Self = if cfg!(windows) {
        Self::Windows
    } else if cfg!(target_os = "macos") {
        Self::Mac
    } else {
        Self::Linux
    };

    /// The person's home, by the variables of such a system.
    pub(crate) fn home(self, path: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        match self {
            Self::Windows => path("USERPROFILE"),
            Self::Linux | Self::Mac => path("HOME"),
        }
    }

    /// The folder for the configuration of programs, by the variables of such a system.
    pub(crate) fn config_folder(self, path: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        let home = || self.home(path);
        match self {
            Self::Windows => {
                path("APPDATA").or_else(|| home().map(|home| home.join("AppData").join("Roaming")))
            }
            Self::Mac => home().map(|home| home.join("Library").join("Application Support")),
            // The XDG specification says to ignore a relative one.
            Self::Linux => path("XDG_CONFIG_HOME")
                .filter(|path| path.is_absolute())
                .or_else(|| home().map(|home| home.join(".config"))),
        }
    }

    /// The folder for the state of programs, by the variables of such a system.
    pub(crate) fn state_folder(self, path: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        let home = || self.home(path);
        match self {
            Self::Windows => {
                path("LOCALAPPDATA").or_else(|| home().map(|home| home.join("AppData").join("Local")))
            }
            Self::Mac => home().map(|home| home.join("Library").join("Application Support")),
            Self::Linux => path("XDG_STATE_HOME")
                .filter(|path| path.is_absolute())
                .or_else(|| home().map(|home| home.join(".local").join("state"))),
        }
    }
}

/// The platform's folder for what programs keep about their own state.
pub(crate) fn state_folder() -> Option<PathBuf> {
    Os::HERE.state_folder(&path)
}

/// The person's home.
pub(crate) fn home() -> Option<PathBuf> {
    Os::HERE.home(&path)
}

/// The platform's folder for the configuration of programs.
pub(crate) fn config_folder() -> Option<PathBuf> {
    Os::HERE.config_folder(&path)
}
