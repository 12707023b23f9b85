//! Names and identifiers as types: a principal is never mistaken for a session, a tool for an upstream.
//! Makes no identifier up: randomness and time come in as arguments.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes the text as it is.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id!(
    /// Who calls: a credential's owner, or the local default of a role.
    PrincipalId
);
text_id!(
    /// The span a mode and a plan belong to.
    SessionId
);
text_id!(
    /// One request as the log and the ledger name it: `req_` and 16 hexadecimal digits.
    RequestId
);
text_id!(
    /// Our own name of an upstream, from the configuration, never the upstream's own claim.
    UpstreamId
);
text_id!(
    /// A tool's name as its upstream spells it.
    ToolName
);
text_id!(
    /// `pln_` and a ULID.
    PlanId
);
text_id!(
    /// `grt_` and a ULID.
    GrantId
);
text_id!(
    /// `crd_` and a ULID.
    CredentialId
);
text_id!(
    /// `run_` and a ULID.
    RunId
);
text_id!(
    /// The ULID of a ledger row.
    LedgerId
);
text_id!(
    /// The name under which one process writes its chain of ledger rows.
    WriterId
);

impl PlanId {
    /// A plan's id from its moment and eighty random bits.
    pub fn mint(now: jiff::Timestamp, random: u128) -> Self {
        Self(format!("pln_{}", ulid(now, random)))
    }
}
impl GrantId {
    /// A grant's id from its moment and eighty random bits.
    pub fn mint(now: jiff::Timestamp, random: u128) -> Self {
        Self(format!("grt_{}", ulid(now, random)))
    }
}
impl CredentialId {
    /// A credential's id from its moment and eighty random bits.
    pub fn mint(now: jiff::Timestamp, random: u128) -> Self {
        Self(format!("crd_{}", ulid(now, random)))
    }
}
impl RunId {
    /// A run's id from its moment and eighty random bits.
    pub fn mint(now: jiff::Timestamp, random: u128) -> Self {
        Self(format!("run_{}", ulid(now, random)))
    }
}
impl LedgerId {
    /// A row's id from its moment and eighty random bits.
    pub fn mint(now: jiff::Timestamp, random: u128) -> Self {
        Self(ulid(now, random))
    }
}

/// 48 bits of milliseconds and 80 random bits in Crockford's base 32: sorts by time.
fn ulid(now: jiff::Timestamp, random: u128) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let millis = u128::try_from(now.as_millisecond().max(0)).unwrap_or(0) & ((1 << 48) - 1);
    let bits = millis << 80 | random & ((1 << 80) - 1);
    (0..26u32)
        .rev()
        .map(|digit| {
            let index = usize::try_from(bits >> (digit * 5) & 31).unwrap_or(0);
            ALPHABET.get(index).map_or('0', |byte| char::from(*byte))
        })
        .collect()
}

/// `upstream:tool`, the full name of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FullName {
    pub upstream: UpstreamId,
    /// The tool's own name, which may hold colons.
    pub tool: ToolName,
}

impl FullName {
    pub fn new(upstream: impl Into<UpstreamId>, tool: impl Into<ToolName>) -> Self {
        Self { upstream: upstream.into(), tool: tool.into() }
    }
}

impl fmt::Display for FullName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name that was given without an upstream is shown as it was given.
        if self.upstream.as_str().is_empty() {
            return write!(f, "{}", self.tool);
        }
        write!(f, "{}:{}", self.upstream, self.tool)
    }
}

/// The text is not `upstream:tool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool's full name is `upstream:tool`")]
pub struct NotAFullName;

impl FromStr for FullName {
    type Err = NotAFullName;

    fn from_str(text: &str) -> Result<Self, NotAFullName> {
        let (upstream, tool) = text.split_once(':').ok_or(NotAFullName)?;
        let (upstream, tool) = (upstream.trim(), tool.trim());
        if upstream.is_empty() || tool.is_empty() {
            return Err(NotAFullName);
        }
        Ok(Self::new(upstream, tool))
    }
}

/// A value that must not be shown: prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulids_are_26_characters_and_sort_by_time() {
        let early = LedgerId::mint(jiff::Timestamp::from_millisecond(1_000).unwrap(), u128::MAX);
        let late = LedgerId::mint(jiff::Timestamp::from_millisecond(1_001).unwrap(), 0);
        assert_eq!(early.as_str().len(), 26);
        assert!(early < late);
        assert_eq!(
            LedgerId::mint(jiff::Timestamp::from_millisecond(1_469_918_176_385).unwrap(), 0).as_str(),
            "01ARYZ6S410000000000000000"
        );
    }

    #[test]
    fn full_names_split_at_the_first_colon() {
        let name: FullName = " github : a:b ".parse().unwrap();
        assert_eq!((name.upstream.as_str(), name.tool.as_str()), ("github", "a:b"));
        for bad in ["", "github", ":x", "x:", " : "] {
            assert_eq!(bad.parse::<FullName>(), Err(NotAFullName), "{bad}");
        }
    }

    #[test]
    fn a_secret_never_prints() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "***");
    }
}
