//! Faults: something is broken, which is not a refusal by the policy. Each has a message that is safe to show and one for the log.

use std::fmt;

use countersign_policy::refusal::{Code, Refusal};

use crate::random;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The store can't be reached, or did not answer.
    Unavailable,
    Full,
    ReadOnly,
    Corrupt,
    NewerSchema,
    /// It was written by an older version, and it was opened for reading.
    OlderSchema,
    /// The database has no tables of ours, and it was opened for reading.
    Empty,
    /// The clock is behind a moment already recorded.
    Clock,
    /// A value can't be stored, or an option can't be used.
    Invalid,
    /// A key file is missing, can't be used, or is not the one of this store.
    Key,
    /// The server did not prove over TLS who it is.
    Untrusted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreOperation {
    Opening,
    Reading,
    Writing,
}

/// How much a failure breaks, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailureScope {
    /// One statement failed; the transaction continues.
    Statement,
    /// Another transaction holds a lock that a statement needs; this one continues from its savepoint.
    Busy,
    /// The transaction lost against another and can be retried.
    Conflict,
    Transaction,
    /// The connection has to be made again.
    Connection,
    /// A sync to disk failed: what the disk holds is unknown, so nothing more is written.
    Disk,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFault {
    kind: FaultKind,
    doing: StoreOperation,
    inside: String,
    incident: String,
    pub(crate) scope: FailureScope,
}

impl StoreFault {
    pub(crate) fn new(kind: FaultKind, scope: FailureScope, inside: impl Into<String>) -> Self {
        let incident = format!("{:08x}", random::bits() & 0xffff_ffff);
        Self { kind, doing: StoreOperation::Writing, inside: inside.into(), incident, scope }
    }

    pub(crate) fn invalid(inside: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, FailureScope::Statement, inside)
    }

    pub(crate) fn corrupt(inside: impl Into<String>) -> Self {
        Self::new(FaultKind::Corrupt, FailureScope::Statement, inside)
    }

    pub(crate) fn unavailable(inside: impl Into<String>) -> Self {
        Self::new(FaultKind::Unavailable, FailureScope::Connection, inside)
    }

    #[must_use]
    pub(crate) fn during(mut self, doing: StoreOperation) -> Self {
        self.doing = doing;
        self
    }

    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    pub fn doing(&self) -> StoreOperation {
        self.doing
    }

    /// The id under which the log has the details.
    pub fn incident(&self) -> &str {
        &self.incident
    }

    /// One line that may be shown to anyone.
    pub fn outside(&self) -> String {
        let what = match self.kind {
            FaultKind::Unavailable => "the store can't be reached",
            FaultKind::Full => "the store has no room left",
            FaultKind::ReadOnly => "the store can't be written: it is read-only",
            FaultKind::Corrupt => "the store holds something that makes no sense",
            FaultKind::NewerSchema => "the store was written by a newer version",
            FaultKind::OlderSchema => {
                "the store was written by an older version, and reading does not bring it up to date"
            }
            FaultKind::Empty => "nothing of ours was ever kept there",
            FaultKind::Clock => "the clock stands before a moment already recorded",
            FaultKind::Invalid => "the store can't be used with what was given",
            FaultKind::Key => {
                "the key file of the store is missing, can't be used, or belongs to another store"
            }
            FaultKind::Untrusted => {
                "the database server did not prove over TLS that it is the one that was named"
            }
        };
        format!("{what} (incident {})", self.incident)
    }

    pub fn inside(&self) -> String {
        format!("{:?} while {:?}: {} (incident {})", self.kind, self.doing, self.inside, self.incident)
    }

    /// The exact cause, for the operator; may name files and servers.
    pub fn reason(&self) -> &str {
        &self.inside
    }

    pub fn refusal(&self) -> Refusal {
        let code = match (self.kind, self.doing) {
            (FaultKind::Clock, _) => Code::ClockUntrusted,
            (_, StoreOperation::Writing) => Code::LedgerUnavailable,
            (_, StoreOperation::Opening | StoreOperation::Reading) => Code::StoreUnavailable,
        };
        Refusal::new(code, self.outside()).with("incident", self.incident.as_str())
    }

    /// Whether a retry may succeed without any other change.
    pub(crate) fn is_transient(&self) -> bool {
        match self.kind {
            FaultKind::Unavailable | FaultKind::Full | FaultKind::ReadOnly => true,
            FaultKind::Corrupt
            | FaultKind::NewerSchema
            | FaultKind::OlderSchema
            | FaultKind::Empty
            | FaultKind::Clock
            | FaultKind::Invalid
            | FaultKind::Key
            | FaultKind::Untrusted => false,
        }
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.outside())
    }
}

impl std::error::Error for StoreFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inside_stays_inside() {
        let fault = StoreFault::unavailable("host db-7 refused user bob");
        assert!(!fault.outside().contains("bob") && fault.inside().contains("bob"));
        assert_eq!(fault.refusal().code, Code::LedgerUnavailable);
        assert_eq!(fault.during(StoreOperation::Reading).refusal().code, Code::StoreUnavailable);
        let clock = StoreFault::new(FaultKind::Clock, FailureScope::Statement, "x");
        assert_eq!(clock.refusal().code, Code::ClockUntrusted);
    }
}
