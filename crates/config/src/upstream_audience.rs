//! For whom an upstream is: the hosts and folders it was brought from. Says who is admitted, and reads no folder itself.

use std::path::{Path, PathBuf};

use super::config_reader::ConfigReader;
use super::diagnostic::DiagnosticKind::BadValue;
use super::diagnostic::tick;
use super::tree::TomlTable;

/// Which hosts may use an upstream, and in which folders. An empty list names all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamAudience {
    /// Names as in `serve --host`.
    pub hosts: Vec<String>,
    /// With everything below them.
    pub folders: Vec<PathBuf>,
}

impl UpstreamAudience {
    /// Whether a connection may use the upstream. One whose host or folder is not known is admitted only where none is named.
    pub fn admits(&self, host: Option<&str>, folder: Option<&Path>) -> bool {
        let by_host =
            self.hosts.is_empty() || host.is_some_and(|host| self.hosts.iter().any(|one| one == host));
        let by_folder = self.folders.is_empty()
            || folder.is_some_and(|folder| self.folders.iter().any(|one| folder.starts_with(one)));
        by_host && by_folder
    }
}

/// Reads `hosts` and `folders` of one `[upstreams.NAME]`.
pub(crate) fn read(reader: &mut ConfigReader<'_>, table: &TomlTable) -> UpstreamAudience {
    let mut texts = |what: &str, example: &str| {
        table.get(what).map(|node| reader.texts(node, what, example)).unwrap_or_default()
    };
    let hosts = texts("hosts", "[\"claude-code\"]");
    let folders = texts("folders", "[\"/srv/app\"]");
    for (folder, place) in &folders {
        if !Path::new(folder).is_absolute() {
            let message = format!("{} is no full path", tick(folder));
            reader.error(
                *place,
                BadValue,
                message,
                "write the folder from `/` on: `folders = [\"/srv/app\"]`",
            );
        }
    }
    UpstreamAudience {
        hosts: hosts.into_iter().map(|(host, _)| host.to_owned()).collect(),
        folders: folders.into_iter().map(|(folder, _)| PathBuf::from(folder)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_hosts_and_folders_are_admitted() {
        let audience = |hosts: &[&str], folders: &[&str]| UpstreamAudience {
            hosts: hosts.iter().map(|one| (*one).to_owned()).collect(),
            folders: folders.iter().map(PathBuf::from).collect(),
        };
        for (audience, host, folder, expect) in [
            (audience(&[], &[]), None, None, true),
            (audience(&["codex"], &[]), Some("codex"), None, true),
            (audience(&["codex"], &[]), Some("cursor"), Some("/p"), false),
            (audience(&["codex"], &[]), None, Some("/p"), false),
            (audience(&[], &["/p"]), Some("codex"), Some("/p/sub"), true),
            (audience(&[], &["/p"]), Some("codex"), Some("/print"), false),
            (audience(&[], &["/p"]), Some("codex"), None, false),
            (audience(&["codex"], &["/p", "/q"]), Some("codex"), Some("/q"), true),
            (audience(&["codex"], &["/p"]), Some("cursor"), Some("/p"), false),
        ] {
            assert_eq!(
                audience.admits(host, folder.map(Path::new)),
                expect,
                "{audience:?} {host:?} {folder:?}"
            );
        }
    }
}
