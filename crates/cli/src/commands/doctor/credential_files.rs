//! Checks credential files: only their owner may read them, and agents and people must have different ones.

use std::fs;
use std::path::{Path, PathBuf};

use super::DoctorArgs;
use super::check::{Check, State};
use crate::environment;
use crate::output::shell_word;

const AREA: &str = "keys";

pub(super) fn check_credential_files(args: &DoctorArgs, checks: &mut Vec<Check>) {
    let Some(folder) = environment::config_folder().map(|folder| folder.join("countersign")) else { return };
    let mut files: Vec<PathBuf> =
        ["human.credential", "ledger.key", "store.seal"].map(|name| folder.join(name)).to_vec();
    let kept = fs::read_dir(folder.join("keyring")).into_iter().flatten().filter_map(Result::ok);
    files.extend(kept.map(|entry| entry.path()));
    let there: Vec<PathBuf> = files.into_iter().filter(|path| path.is_file()).collect();
    let before = checks.len();
    for path in &there {
        if let Some(check) = key_file(path, args) {
            checks.push(check);
        }
    }
    if checks.len() == before {
        let message = match there.len() {
            0 => "no key was made yet".to_owned(),
            count => format!("{} can be read by you alone", crate::output::plural(count, "key file")),
        };
        checks.push(Check::new(AREA, State::Good, message));
    }
    if folder.join("human.credential").is_file() {
        let message = "your credential lies in the account hosts run in: an agent with a shell here can act as you \
                       (SECURITY.md shows how to run the page under another account)";
        checks.push(Check::new(AREA, State::Look, message));
    }
}

#[cfg(unix)]
fn key_file(path: &Path, args: &DoctorArgs) -> Option<Check> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path).ok()?.permissions().mode();
    if mode & 0o077 == 0 {
        return None;
    }
    let message = format!("others may read {}", path.display());
    if args.fix && fs::set_permissions(path, fs::Permissions::from_mode(0o600)).is_ok() {
        return Some(Check::new(AREA, State::Fixed, format!("{message}: now only you can")));
    }
    Some(
        Check::new(AREA, State::Bad, message)
            .fix(format!("chmod 600 {}", shell_word(&path.display().to_string()))),
    )
}

#[cfg(not(unix))]
fn key_file(_: &Path, _: &DoctorArgs) -> Option<Check> {
    None
}
