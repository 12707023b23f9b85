//! The key that signs heads: made on first start, for nobody else's eyes. A file that others can read is refused.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::chance;
use crate::fault::{FaultKind, Hurt, StoreFault};

/// What a key file begins with.
const HEAD: &str = "countersign-ed25519-v1 ";

/// A key that signs.
pub(crate) struct SigningKey {
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// A key that is gone with the process.
    pub(crate) fn fleeting() -> Result<Self, StoreFault> {
        Self::from_seed(&new_seed()?)
    }

    /// Reads the file, or makes it.
    pub(crate) fn read_or_make(path: &Path) -> Result<Self, StoreFault> {
        if !path.exists() {
            make(path)?;
        }
        check_private(path)?;
        let text = fs::read_to_string(path).map_err(|error| broken(path, &error))?;
        let seed = text.strip_prefix(HEAD).and_then(|hex| from_hex(hex.trim()));
        Self::from_seed(&seed.ok_or_else(|| broken(path, &"it is no key file of ours"))?)
    }

    fn from_seed(seed: &[u8; 32]) -> Result<Self, StoreFault> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed);
        Ok(Self { pair: pair.map_err(|error| StoreFault::invalid(format!("no signing key: {error}")))? })
    }

    /// The public half, as hex.
    pub(crate) fn public(&self) -> String {
        to_hex(self.pair.public_key().as_ref())
    }

    /// A signature, as hex.
    pub(crate) fn sign(&self, bytes: &[u8]) -> String {
        to_hex(self.pair.sign(bytes).as_ref())
    }
}

/// Whether the signature over the bytes is that of the key.
pub(crate) fn is_signed(public: &str, bytes: &[u8], signature: &str) -> bool {
    let (Some(public), Some(signature)) = (from_hex::<32>(public), from_hex::<64>(signature)) else {
        return false;
    };
    UnparsedPublicKey::new(&ED25519, public).verify(bytes, &signature).is_ok()
}

fn new_seed() -> Result<[u8; 32], StoreFault> {
    chance::bytes().ok_or_else(|| StoreFault::unavailable("the system gives no randomness for a key"))
}

/// Written aside and linked into place: of two processes that start at once, one makes the key and both use it.
fn make(path: &Path) -> Result<(), StoreFault> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!("-{:016x}", chance::bits() >> 64));
    let aside = Path::new(&aside);
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(aside)?;
        let seed = new_seed().map_err(std::io::Error::other)?;
        file.write_all(format!("{HEAD}{}\n", to_hex(&seed)).as_bytes())?;
        file.sync_all()?;
        match fs::hard_link(aside, path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    };
    let made = write();
    let _ = fs::remove_file(aside);
    made.map_err(|error| broken(path, &error))
}

#[cfg(unix)]
fn check_private(path: &Path) -> Result<(), StoreFault> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path).map_err(|error| broken(path, &error))?.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(broken(
            path,
            &format_args!("others can read it: its mode is {:o}, and must be 600", mode & 0o777),
        )),
    }
}

#[cfg(not(unix))]
fn check_private(_: &Path) -> Result<(), StoreFault> {
    Ok(())
}

fn broken(path: &Path, why: &dyn std::fmt::Display) -> StoreFault {
    let inside = format!("the key file {} can't be used: {why}", path.display());
    StoreFault::new(FaultKind::Invalid, Hurt::Statement, inside)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("x.key");
        let first = SigningKey::read_or_make(&path).unwrap();
        let again = SigningKey::read_or_make(&path).unwrap();
        assert_eq!(first.public(), again.public());
        let signature = first.sign(b"head");
        assert!(is_signed(&first.public(), b"head", &signature));
        assert!(!is_signed(&first.public(), b"heaD", &signature));
        assert!(!is_signed(&SigningKey::fleeting().unwrap().public(), b"head", &signature));
        assert_eq!(fs::read_dir(room.path()).unwrap().count(), 1, "nothing is left aside");
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("x.key");
        SigningKey::read_or_make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let fault = SigningKey::read_or_make(&path).err().unwrap();
        assert_eq!(fault.kind(), FaultKind::Invalid);
        assert!(fault.inside().contains("640"));
    }

    #[test]
    fn a_broken_key_file_is_no_new_key() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("x.key");
        for bad in ["", "countersign-ed25519-v1 00\n", "hello"] {
            SigningKey::read_or_make(&path).unwrap();
            fs::write(&path, bad).unwrap();
            assert!(SigningKey::read_or_make(&path).is_err(), "{bad}");
            fs::remove_file(&path).unwrap();
        }
    }
}
