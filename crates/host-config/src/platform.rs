//! The folders of a platform, computed from an environment that the caller passes in.

use std::path::{Path, PathBuf};

/// The kinds of systems that differ in where files are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Os {
    /// Linux and other systems that follow XDG.
    Linux,
    Mac,
    Windows,
}

type VariableLookup = dyn Fn(&str) -> Option<PathBuf>;
type Lookup<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

impl Os {
    /// The system this program was built for.
    pub const HERE: Self = if cfg!(windows) {
        Self::Windows
    } else if cfg!(target_os = "macos") {
        Self::Mac
    } else {
        Self::Linux
    };

    pub fn home(self, variable: Lookup<'_>) -> Option<PathBuf> {
        match self {
            Self::Windows => variable("USERPROFILE"),
            Self::Linux | Self::Mac => variable("HOME"),
        }
    }

    /// The folder for the configuration of programs.
    pub fn config_folder(self, variable: Lookup<'_>) -> Option<PathBuf> {
        self.folder(variable, ("APPDATA", "AppData/Roaming"), ("XDG_CONFIG_HOME", ".config"))
    }

    /// The folder for the state of programs.
    pub fn state_folder(self, variable: Lookup<'_>) -> Option<PathBuf> {
        self.folder(variable, ("LOCALAPPDATA", "AppData/Local"), ("XDG_STATE_HOME", ".local/state"))
    }

    fn folder(self, variable: Lookup<'_>, windows: (&str, &str), xdg: (&str, &str)) -> Option<PathBuf> {
        let at_home = |relative: &str| self.home(variable).map(|home| join(&home, relative));
        match self {
            Self::Windows => variable(windows.0).or_else(|| at_home(windows.1)),
            Self::Mac => at_home("Library/Application Support"),
            // The XDG specification says to ignore a relative path.
            Self::Linux => variable(xdg.0).filter(|path| path.is_absolute()).or_else(|| at_home(xdg.1)),
        }
    }
}

/// A path below a folder, written with `/`, in the separators of this system.
pub(crate) fn join(folder: &Path, relative: &str) -> PathBuf {
    relative.split('/').fold(folder.to_owned(), |path, part| path.join(part))
}

/// What hosts derive their paths from.
pub struct HostEnvironment {
    pub os: Os,
    pub home: PathBuf,
    /// The platform's folder for configuration.
    pub config: PathBuf,
    /// The folder worked in.
    pub project: PathBuf,
    /// Where absolute paths of administrators begin; tests move it.
    pub(crate) root: PathBuf,
    variable: Box<VariableLookup>,
}

impl HostEnvironment {
    /// None where there is no home folder. `variable` looks up an environment variable that holds a path.
    pub fn new(
        os: Os,
        variable: impl Fn(&str) -> Option<PathBuf> + 'static,
        project: PathBuf,
    ) -> Option<Self> {
        let (home, config) = (os.home(&variable)?, os.config_folder(&variable)?);
        Some(Self { os, home, config, project, root: PathBuf::from("/"), variable: Box::new(variable) })
    }

    /// The folder a variable names, or else one below the home folder.
    pub(crate) fn variable_or_home(&self, name: &str, relative: &str) -> PathBuf {
        (self.variable)(name).unwrap_or_else(|| self.at_home(relative))
    }

    pub(crate) fn variable(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name)
    }

    pub(crate) fn at_home(&self, relative: &str) -> PathBuf {
        join(&self.home, relative)
    }

    pub(crate) fn in_config(&self, relative: &str) -> PathBuf {
        join(&self.config, relative)
    }

    pub(crate) fn in_project(&self, relative: &str) -> PathBuf {
        join(&self.project, relative)
    }

    /// For hosts that use `~/.config` on macOS too.
    pub(crate) fn in_dot_config(&self, relative: &str) -> PathBuf {
        match self.os {
            Os::Linux | Os::Windows => self.in_config(relative),
            Os::Mac => join(&self.home.join(".config"), relative),
        }
    }

    /// For hosts that follow XDG on every system.
    pub(crate) fn in_xdg_config(&self, relative: &str) -> PathBuf {
        match self.os {
            Os::Linux => self.in_config(relative),
            Os::Mac | Os::Windows => join(&self.home.join(".config"), relative),
        }
    }

    /// Where an extension of VS Code keeps its settings.
    pub(crate) fn in_vscode_extension(&self, extension: &str, file: &str) -> PathBuf {
        self.in_config("Code/User/globalStorage").join(extension).join("settings").join(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_home_there_is_no_environment() {
        for os in [Os::Linux, Os::Mac, Os::Windows] {
            assert!(HostEnvironment::new(os, |_| None, PathBuf::new()).is_none(), "{os:?}");
        }
    }

    #[test]
    fn folders_that_variables_name() {
        for (os, variable, folder) in
            [(Os::Linux, "XDG_CONFIG_HOME", "/etc/xdg"), (Os::Windows, "APPDATA", r"D:\Roaming")]
        {
            let environment = crate::testing::environment(os, &[(variable, folder)]);
            assert_eq!(environment.config, PathBuf::from(folder), "{os:?}");
            assert!(environment.in_dot_config("zed").starts_with(folder), "{os:?}");
        }
    }
}
