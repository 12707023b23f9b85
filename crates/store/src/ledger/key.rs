//! Keys of the ledger. The signing key is a file created on first start; it may list public keys that signed before it. Public keys are
//! read from PEM, from our own lines, and from key files, never from the store that is verified.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_policy::digest::Digest;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::fault::StoreFault;
use crate::key_file::{self, from_hex, to_hex};
use crate::options::ConnectOptions;
use crate::url::StoreUrl;

/// What a key file begins with.
const HEAD: &str = "countersign-ed25519-v1 ";
/// What a line with a public key begins with.
const PUBLIC_HEAD: &str = "countersign-ed25519-public-v1 ";
/// The DER prefix of an Ed25519 public key (RFC 8410).
const DER_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The public half of a key that signs checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// The text holds no key, or something that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no Ed25519 public key in it: expected PEM, or lines of `countersign-ed25519-public-v1 HEX`"
)]
pub struct NotAKey;

impl PublicKey {
    /// From the 64 hex digits of a checkpoint's `public_key`.
    pub fn from_hex(text: &str) -> Option<Self> {
        from_hex(text).map(Self)
    }

    pub fn hex(&self) -> String {
        to_hex(&self.0)
    }

    /// SHA-256 over the key's 32 bytes, as hex: what people compare.
    pub fn fingerprint(&self) -> String {
        Digest::plain(&self.0).hex()
    }

    /// As PEM, the form other tools read.
    pub fn pem(&self) -> String {
        let der = [DER_HEAD.as_slice(), &self.0].concat();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    /// Every key in a text: PEM blocks, `countersign-ed25519-public-v1` lines, a key file. At least one.
    pub fn read_all(text: &str) -> Result<Vec<Self>, NotAKey> {
        let mut keys = Vec::new();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        while let Some(line) = lines.next() {
            let key = if line == "-----BEGIN PUBLIC KEY-----" {
                let body: String =
                    lines.by_ref().take_while(|line| *line != "-----END PUBLIC KEY-----").collect();
                let der = STANDARD.decode(body).map_err(|_| NotAKey)?;
                der.strip_prefix(&DER_HEAD).and_then(|key| key.try_into().ok()).map(Self)
            } else if let Some(seed) = line.strip_prefix(HEAD) {
                let seed = from_hex(seed.trim()).ok_or(NotAKey)?;
                SigningKey::from_seed(&seed).ok().map(|key| key.public())
            } else {
                Self::from_hex(line.strip_prefix(PUBLIC_HEAD).unwrap_or(line).trim())
            };
            keys.push(key.ok_or(NotAKey)?);
        }
        if keys.is_empty() { Err(NotAKey) } else { Ok(keys) }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// The keys of the key file beside a store: the signing key first, then earlier ones. Empty if there is no file.
pub fn keys_beside(url: &StoreUrl, options: &ConnectOptions) -> Result<Vec<PublicKey>, StoreFault> {
    let Some(path) = key_path(url, options) else { return Ok(Vec::new()) };
    let Some(text) = key_file::read(&path)? else { return Ok(Vec::new()) };
    PublicKey::read_all(&text).map_err(|why| key_file::unusable(&path, &why))
}

/// Where the signing key of a store is; none where it has no file.
pub fn key_path(url: &StoreUrl, options: &ConnectOptions) -> Option<PathBuf> {
    match (url, &options.key_file) {
        (_, Some(path)) => Some(path.clone()),
        (StoreUrl::Sqlite(path), None) => Some(with_suffix(path, ".key")),
        (StoreUrl::Memory | StoreUrl::Postgres(_), None) => None,
    }
}

/// The path with `end` added to the file's name.
pub(crate) fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

pub(crate) struct SigningKey {
    pair: Ed25519KeyPair,
    /// Keys that signed before, as the key file lists them.
    before: Vec<PublicKey>,
}

impl SigningKey {
    /// A key that is lost with the process.
    pub(crate) fn in_memory() -> Result<Self, StoreFault> {
        Self::from_seed(&key_file::new_secret()?)
    }

    pub(crate) fn read_or_make(path: &Path) -> Result<Self, StoreFault> {
        let gone = || key_file::unusable(path, &"it went away while it was opened");
        let text = match key_file::read(path)? {
            Some(text) => text,
            None => {
                key_file::make(path, HEAD)?;
                key_file::read(path)?.ok_or_else(gone)?
            }
        };
        let mut key = Self::from_seed(&key_file::secret(path, HEAD, &text)?)?;
        let all = PublicKey::read_all(&text).map_err(|why| key_file::unusable(path, &why))?;
        key.before = all.into_iter().skip(1).collect();
        Ok(key)
    }

    fn from_seed(seed: &[u8; 32]) -> Result<Self, StoreFault> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed);
        let pair = pair.map_err(|error| StoreFault::invalid(format!("no signing key: {error}")))?;
        Ok(Self { pair, before: Vec::new() })
    }

    pub(crate) fn public(&self) -> PublicKey {
        let mut bytes = [0u8; 32];
        bytes.iter_mut().zip(self.pair.public_key().as_ref()).for_each(|(to, from)| *to = *from);
        PublicKey(bytes)
    }

    /// This key and the earlier ones that its file lists.
    pub(crate) fn trusted(&self) -> Vec<PublicKey> {
        [vec![self.public()], self.before.clone()].concat()
    }

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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fault::FaultKind;

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("x.key");
        let first = SigningKey::read_or_make(&path).unwrap();
        let again = SigningKey::read_or_make(&path).unwrap();
        assert_eq!(first.public(), again.public());
        let signature = first.sign(b"head");
        assert!(is_signed(&first.public().hex(), b"head", &signature));
        assert!(!is_signed(&first.public().hex(), b"heaD", &signature));
        assert!(!is_signed(&SigningKey::in_memory().unwrap().public().hex(), b"head", &signature));
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
        assert_eq!(fault.kind(), FaultKind::Key);
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

    #[test]
    fn attack_08_keys_are_read_as_pem_as_lines_and_from_key_files() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("x.key");
        let (key, old) = (SigningKey::read_or_make(&path).unwrap(), SigningKey::in_memory().unwrap());
        let public = key.public();
        let text = fs::read_to_string(&path).unwrap();
        let line = format!("{PUBLIC_HEAD}{}\n", public.hex());
        for form in [public.pem(), line, public.hex(), text.clone(), format!("# mine\n\n{}", public.pem())] {
            assert_eq!(PublicKey::read_all(&form), Ok(vec![public]), "{form}");
        }
        for bad in ["", "# none", "hello", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "00"]
        {
            assert_eq!(PublicKey::read_all(bad), Err(NotAKey), "{bad}");
        }
        // A key that was replaced stays trusted where its successor's file lists it.
        fs::write(&path, format!("{text}{PUBLIC_HEAD}{}\n", old.public().hex())).unwrap();
        assert_eq!(SigningKey::read_or_make(&path).unwrap().trusted(), [public, old.public()]);
        assert_eq!(public.fingerprint().len(), 64);
        assert_ne!(public.fingerprint(), public.hex());
    }
}
