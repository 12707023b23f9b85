//! Where hosts keep their files. Knows paths, not contents.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::hosts::HOSTS;
use crate::platform::HostEnvironment;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFileScope {
    /// This person, everywhere.
    User,
    /// Everyone who works in a folder.
    Project,
}

impl HostFileScope {
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFileStatus {
    /// Where the host keeps its servers today; created where it is missing.
    Primary,
    /// Where some versions keep them, or a file for other settings as well: edited where it has servers, never created.
    Secondary,
}

/// One file of one host.
#[derive(Clone, Debug)]
pub struct HostFile {
    pub host: Host,
    pub scope: HostFileScope,
    pub status: HostFileStatus,
    pub path: PathBuf,
}

impl HostFile {
    pub fn new(host: Host, scope: HostFileScope, path: PathBuf) -> Self {
        Self { host, scope, status: HostFileStatus::Primary, path }
    }
}

/// Where a file lies, as a host's file in `hosts/` writes it down. Relative paths are written with `/`.
#[derive(Clone, Copy)]
pub(crate) struct FileLocation {
    scope: HostFileScope,
    status: HostFileStatus,
    path: FilePath,
}

#[derive(Clone, Copy)]
pub(crate) enum FilePath {
    Home(&'static str),
    Config(&'static str),
    Project(&'static str),
    /// A path that depends on variables or the system.
    Computed(fn(&HostEnvironment) -> PathBuf),
}

impl FilePath {
    pub(crate) fn resolve(self, environment: &HostEnvironment) -> PathBuf {
        match self {
            Self::Home(relative) => environment.at_home(relative),
            Self::Config(relative) => environment.in_config(relative),
            Self::Project(relative) => environment.in_project(relative),
            Self::Computed(path) => path(environment),
        }
    }
}

impl FileLocation {
    pub(crate) const fn user(path: FilePath) -> Self {
        Self { scope: HostFileScope::User, status: HostFileStatus::Primary, path }
    }

    pub(crate) const fn project(relative: &'static str) -> Self {
        let path = FilePath::Project(relative);
        Self { scope: HostFileScope::Project, status: HostFileStatus::Primary, path }
    }

    pub(crate) const fn secondary(self) -> Self {
        Self { status: HostFileStatus::Secondary, ..self }
    }
}

/// Every file a host may keep servers in, whether it exists or not: those of the person first, then those of the project.
pub fn host_files(environment: &HostEnvironment) -> Vec<HostFile> {
    let of_scope = |scope: HostFileScope| {
        HOSTS.iter().flat_map(move |host| {
            let locations = host.files.iter().filter(move |location| location.scope == scope);
            locations.map(move |location| HostFile {
                host: *host,
                scope,
                status: location.status,
                path: location.path.resolve(environment),
            })
        })
    };
    let user: Vec<HostFile> = of_scope(HostFileScope::User).collect();
    // In the home folder a project's file may be the person's own: list it once.
    let project = of_scope(HostFileScope::Project)
        .filter(|file| !user.iter().any(|own| is_same_file(&own.path, &file.path)));
    let project: Vec<HostFile> = project.collect();
    [user, project].concat()
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other
        || fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;
    use crate::testing::environment;

    #[test]
    fn files_of_the_person_come_first_in_the_order_of_the_list() {
        let files = host_files(&environment(Os::Linux, &[]));
        let place = |file: &HostFile| HOSTS.iter().position(|host| *host == file.host);
        let keys: Vec<_> =
            files.iter().map(|file| (file.scope == HostFileScope::Project, place(file))).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(keys.iter().filter(|(project, _)| *project).count(), 17);
        assert_eq!(files.len(), 37);
    }

    #[test]
    fn a_file_of_the_home_folder_is_listed_once() {
        let mut environment = environment(Os::Linux, &[]);
        environment.project = environment.home.clone();
        let files = host_files(&environment);
        let cursor: Vec<_> = files.iter().filter(|file| file.path.ends_with(".cursor/mcp.json")).collect();
        assert_eq!(cursor.len(), 1);
        assert_eq!(cursor[0].scope, HostFileScope::User);
    }
}
