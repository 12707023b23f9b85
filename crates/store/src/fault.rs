//! Faults: something is broken, which is not the same as the law saying no. Each has a message for outside,
//! safe to show, and one for the log. The doors get a refusal made from it; nothing here decides what is allowed.

use std::fmt;

use countersign_core::refusal::{Code, Refusal};

use crate::chance;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The store can't be reached, or did not answer.
    Unavailable,
    /// No room is left.
    Full,
    /// It can be read but not written.
    ReadOnly,
    /// What it holds makes no sense.
    Corrupt,
    /// It was written by a newer version.
    NewerSchema,
    /// It was written by an older version, and was opened to be read only.
    OlderSchema,
    /// There is a database, and nothing of ours in it; it was opened to be read only.
    Empty,
    /// The clock stands before a moment already recorded.
    Clock,
    /// What was to be kept, or the way to the store, can't be used.
    Invalid,
    /// A key file is missing, can't be used, or is not the one of this store.
    Key,
    /// The server did not prove over TLS who it is.
    Untrusted,
}

/// What was being done when it broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doing {
    /// Opening the store.
    Opening,
    /// Reading from it.
    Reading,
    /// Writing to it.
    Writing,
}

/// How far the damage goes, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hurt {
    /// One statement failed, the transaction goes on.
    Statement,
    /// Another holds what a statement needs; the transaction goes on from its mark.
    Busy,
    /// The transaction lost against another and may be tried again.
    Conflict,
    /// The transaction is gone.
    Transaction,
    /// The connection has to be made again.
    Connection,
    /// A sync to disk failed: nobody knows what the disk holds, so nothing more is written.
    Disk,
}

/// Something is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFault {
    kind: FaultKind,
    doing: Doing,
    inside: String,
    incident: String,
    pub(crate) hurt: Hurt,
}

impl StoreFault {
    pub(crate) fn new(kind: FaultKind, hurt: Hurt, inside: impl Into<String>) -> Self {
        let incident = format!("{:08x}", chance::bits() & 0xffff_ffff);
        Self { kind, doing: Doing::Writing, inside: inside.into(), incident, hurt }
    }

    pub(crate) fn invalid(inside: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, Hurt::Statement, inside)
    }

    pub(crate) fn corrupt(inside: impl Into<String>) -> Self {
        Self::new(FaultKind::Corrupt, Hurt::Statement, inside)
    }

    pub(crate) fn unavailable(inside: impl Into<String>) -> Self {
        Self::new(FaultKind::Unavailable, Hurt::Connection, inside)
    }

    #[must_use]
    pub(crate) fn while_(mut self, doing: Doing) -> Self {
        self.doing = doing;
        self
    }

    /// What is broken.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// What was being done.
    pub fn doing(&self) -> Doing {
        self.doing
    }

    /// The name under which the log has the rest.
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

    /// One line for the log.
    pub fn inside(&self) -> String {
        format!("{:?} while {:?}: {} (incident {})", self.kind, self.doing, self.inside, self.incident)
    }

    /// What exactly is wrong, for the person who runs the program; may name files and servers.
    pub fn reason(&self) -> &str {
        &self.inside
    }

    /// The refusal the doors answer with.
    pub fn refusal(&self) -> Refusal {
        let code = match (self.kind, self.doing) {
            (FaultKind::Clock, _) => Code::ClockUntrusted,
            (_, Doing::Writing) => Code::LedgerUnavailable,
            (_, Doing::Opening | Doing::Reading) => Code::StoreUnavailable,
        };
        Refusal::new(code, self.outside()).with("incident", self.incident.as_str())
    }

    /// Whether the same thing may go well later, without anything else being changed.
    pub(crate) fn may_pass(&self) -> bool {
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
        assert_eq!(fault.while_(Doing::Reading).refusal().code, Code::StoreUnavailable);
        let clock = StoreFault::new(FaultKind::Clock, Hurt::Statement, "x");
        assert_eq!(clock.refusal().code, Code::ClockUntrusted);
    }
}
