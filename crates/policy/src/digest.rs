//! Digests: SHA-256 values with a domain tag per use, so that bytes hashed for one purpose never
//! stand for another. The plan hash and the tool fingerprint are plain by contract. Keyed (HMAC) where what is hashed must not be
//! guessed from its digest. Never truncated.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// What a digest is for. The tag is hashed before the bytes, with a zero byte between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestDomain {
    /// Canonical arguments of a call.
    Arguments,
    /// A value kept out of a record by `redact`.
    Redacted,
    /// What keeps a plan's hash from giving away arguments that are kept out of records.
    HashSalt,
    /// A preview as it was shown.
    Preview,
    /// The rules a decision was made under.
    Policy,
    /// A result of an upstream.
    Outcome,
    /// A confirm token at rest.
    Token,
    /// A card's nonce at rest.
    Nonce,
    Credential,
    /// A one-time sign-in code at rest.
    SignIn,
    /// A session of the page at rest.
    PageSession,
    /// What the page proves with that a change comes from itself.
    PageProof,
    /// One row of the ledger.
    LedgerRow,
    /// The head of a ledger chain that has no rows.
    LedgerGenesis,
}

impl DigestDomain {
    /// The tag that is hashed first.
    pub const fn tag(self) -> &'static str {
        match self {
            DigestDomain::Arguments => "countersign/arguments/v1",
            DigestDomain::Redacted => "countersign/redacted/v1",
            DigestDomain::HashSalt => "countersign/hash-salt/v1",
            DigestDomain::Preview => "countersign/preview/v1",
            DigestDomain::Policy => "countersign/policy/v1",
            DigestDomain::Outcome => "countersign/outcome/v1",
            DigestDomain::Token => "countersign/token/v1",
            DigestDomain::Nonce => "countersign/nonce/v1",
            DigestDomain::Credential => "countersign/credential/v1",
            DigestDomain::SignIn => "countersign/sign-in/v1",
            DigestDomain::PageSession => "countersign/page-session/v1",
            DigestDomain::PageProof => "countersign/page-proof/v1",
            DigestDomain::LedgerRow => "countersign/ledger-row/v1",
            DigestDomain::LedgerGenesis => "countersign/ledger-genesis/v1",
        }
    }
}

/// A SHA-256 value, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// SHA-256 over the domain's tag, a zero byte and the bytes.
    pub fn of(domain: DigestDomain, bytes: &[u8]) -> Self {
        Self::of_parts(domain, &[bytes])
    }

    /// The same over parts that stand one after the other, without putting them together first.
    pub fn of_parts(domain: DigestDomain, parts: &[&[u8]]) -> Self {
        let mut sha = Sha256::new();
        sha.update(domain.tag().as_bytes());
        sha.update([0]);
        for part in parts {
            sha.update(part);
        }
        Self(sha.finalize().into())
    }

    /// HMAC-SHA-256 (RFC 2104) under a key, over the domain's tag, a zero byte and the bytes. Who does not have the key can't try
    /// values until one fits.
    pub fn keyed(key: &[u8], domain: DigestDomain, bytes: &[u8]) -> Self {
        const BLOCK: usize = 64;
        let mut block = [0u8; BLOCK];
        let short: [u8; 32] = Sha256::digest(key).into();
        let key = if key.len() > BLOCK { short.as_slice() } else { key };
        block.iter_mut().zip(key).for_each(|(slot, byte)| *slot = *byte);
        let pad = |with: u8| block.map(|byte| byte ^ with);
        let mut inner = Sha256::new();
        inner.update(pad(0x36));
        inner.update(domain.tag().as_bytes());
        inner.update([0]);
        inner.update(bytes);
        let mut outer = Sha256::new();
        outer.update(pad(0x5c));
        outer.update(inner.finalize());
        Self(outer.finalize().into())
    }

    /// SHA-256 over the bytes alone: for the plan hash and the tool fingerprint, whose shapes the contract fixes.
    pub fn plain(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 32 bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// From 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// 64 lower-case hex digits.
    pub fn hex(&self) -> String {
        let mut text = String::with_capacity(64);
        self.push_hex(&mut text);
        text
    }

    /// Writes the digits at the end of a text. The ledger writes thousands a second, so they do not go through a formatter.
    pub fn push_hex(&self, text: &mut String) {
        let digit = |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 });
        text.reserve(64);
        for byte in self.0 {
            text.push(digit(byte >> 4));
            text.push(digit(byte & 15));
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The text is not 64 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hex digits")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        fn nibble(byte: u8) -> Option<u8> {
            match byte {
                b'0'..=b'9' => Some(byte - b'0'),
                b'a'..=b'f' => Some(byte - b'a' + 10),
                _ => None,
            }
        }
        let bytes = text.as_bytes();
        if bytes.len() != 64 {
            return Err(NotADigest);
        }
        let mut out = [0u8; 32];
        for (slot, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
            let [high, low] = pair else { return Err(NotADigest) };
            *slot = nibble(*high).ok_or(NotADigest)? << 4 | nibble(*low).ok_or(NotADigest)?;
        }
        Ok(Self(out))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_is_sha256_as_everyone_computes_it() {
        assert_eq!(
            Digest::plain(b"abc").hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn keyed_is_hmac_as_everyone_computes_it() {
        // `printf 'countersign/redacted/v1\0"hunter2"' | openssl dgst -sha256 -hmac KEY`, with a short and a long key.
        let keyed = |key: &str| Digest::keyed(key.as_bytes(), DigestDomain::Redacted, b"\"hunter2\"").hex();
        assert_eq!(
            keyed("0123456789abcdef"),
            "506a5b0046730c3f325ffb39f811ea69752afab07f6a02dd0aabb232ee5937ae"
        );
        assert_eq!(
            keyed(&"k".repeat(100)),
            "366228f6c47fc446a586338151b127ca2fd1f9ddc066994fc970b2b62035527f"
        );
    }

    #[test]
    fn domains_never_meet() {
        assert_ne!(Digest::of(DigestDomain::Token, b"x"), Digest::of(DigestDomain::Nonce, b"x"));
        assert_ne!(Digest::of(DigestDomain::Token, b""), Digest::plain(b"countersign/token/v1"));
    }

    #[test]
    fn hex_survives_a_round_trip_and_bad_hex_is_refused() {
        let digest = Digest::of(DigestDomain::Policy, b"rules");
        assert_eq!(digest.hex().parse(), Ok(digest));
        for bad in ["", "00", &"G".repeat(64), &"A".repeat(64), &"é".repeat(32)] {
            assert_eq!(bad.parse::<Digest>(), Err(NotADigest), "{bad}");
        }
    }
}
