//! The list of hosts. A new host is a file in `hosts/` and its line here.

mod antigravity;
mod claude_code;
mod claude_desktop;
mod cline;
mod codex;
mod r#continue;
mod copilot;
mod cursor;
mod devin;
mod gemini;
mod mcpproxy;
mod opencode;
mod qwen;
mod vscode;
mod windsurf;
mod zed;

use crate::host::Host;

/// Every host `init` can edit, in the order they are shown.
pub const HOSTS: &[Host] = &[
    Host(&claude_code::SPEC),
    Host(&claude_desktop::SPEC),
    Host(&codex::SPEC),
    Host(&cursor::SPEC),
    Host(&vscode::SPEC),
    Host(&copilot::SPEC),
    Host(&gemini::SPEC),
    Host(&antigravity::SPEC),
    Host(&windsurf::SPEC),
    Host(&devin::SPEC),
    Host(&zed::SPEC),
    Host(&opencode::SPEC),
    Host(&qwen::SPEC),
    Host(&r#continue::SPEC),
    Host(&cline::SPEC),
    Host(&mcpproxy::SPEC),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_in_the_list_under_its_own_name() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/hosts");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files: BTreeSet<String> =
            files.map(|path| path.file_stem().unwrap().to_str().unwrap().replace('_', "-")).collect();
        let names: BTreeSet<String> = HOSTS.iter().map(|host| host.name.to_owned()).collect();
        assert_eq!(names, files);
        assert_eq!(HOSTS.len(), names.len(), "no host is there twice");
        assert!(HOSTS.iter().all(|host| Host::named(host.name) == Some(*host)));
    }

    #[test]
    fn every_host_says_what_to_do_next_and_has_a_file() {
        for host in HOSTS {
            assert!(!host.next_steps.user.is_empty() && !host.next_steps.project.is_empty(), "{host:?}");
            assert!(!host.files.is_empty() && !host.title.is_empty(), "{host:?}");
        }
    }
}
