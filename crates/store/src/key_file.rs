//! Key files: 32 secret bytes in a file that only its owner can read. Creates a file on request, never replaces one, and refuses a file that
//! others can read.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use crate::fault::{FailureScope, FaultKind, StoreFault};
use crate::random;

/// Reads the text of a key file; none where there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, StoreFault> {
    match fs::metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &error)),
    }
    check_private(path)?;
    fs::read_to_string(path).map(Some).map_err(|error| unusable(path, &error))
}

/// The secret of a key file whose first line begins with `head`.
pub(crate) fn secret(path: &Path, head: &str, text: &str) -> Result<[u8; 32], StoreFault> {
    let line = text.lines().next().unwrap_or_default();
    let secret = line.strip_prefix(head).and_then(|hex| from_hex(hex.trim()));
    secret.ok_or_else(|| unusable(path, &"it is no key file of ours"))
}

/// Creates the file with a new secret, unless it exists. The file is written under another name and linked into place: of two processes
/// that start at once, one creates the key and both use it.
pub(crate) fn make(path: &Path, head: &str) -> Result<(), StoreFault> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!("-{:016x}", random::bits() >> 64));
    let aside = Path::new(&aside);
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(aside)?;
        let seed = new_secret().map_err(std::io::Error::other)?;
        file.write_all(format!("{head}{}\n", to_hex(&seed)).as_bytes())?;
        file.sync_all()?;
        match fs::hard_link(aside, path) {
            Ok(()) => {
                tracing::info!(path = %path.display(), "key file created");
                Ok(())
            }
            // Another process was faster: its key is the one to use.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    };
    let made = write();
    let _ = fs::remove_file(aside);
    made.map_err(|error| unusable(path, &error))
}

pub(crate) fn new_secret() -> Result<[u8; 32], StoreFault> {
    random::bytes().ok_or_else(|| StoreFault::unavailable("the system gives no randomness for a key"))
}

#[cfg(unix)]
fn check_private(path: &Path) -> Result<(), StoreFault> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path).map_err(|error| unusable(path, &error))?.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(unusable(
            path,
            &format_args!("others can read it: its mode is {:o}, and must be 600", mode & 0o777),
        )),
    }
}

#[cfg(not(unix))]
fn check_private(_: &Path) -> Result<(), StoreFault> {
    Ok(())
}

/// A key file that can't be used, and why.
pub(crate) fn unusable(path: &Path, why: &dyn std::fmt::Display) -> StoreFault {
    let inside = format!("the key file {} can't be used: {why}", path.display());
    StoreFault::new(FaultKind::Key, FailureScope::Statement, inside)
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0u8; N];
    let is_hex = text.len() == 2 * N && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex {
        return None;
    }
    for (slot, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *slot = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}
