//! The words of the governed memory: what is remembered, where it holds, and what counts as true. The one place that
//! decides which records are authoritative. Keeps and finds nothing itself.

use crate::words::words;

words! {
    /// What a record is.
    pub enum RecordKind("kind of record") {
        /// What was decided; true only once a person agreed.
        Decision = "decision",
        /// What was learnt; true only once a person agreed.
        Learning = "learning",
        /// A thought to come back to; never governed, and nothing stands behind it.
        Idea = "idea",
    }
}

words! {
    /// Where a record holds, nearest first.
    pub enum Scope("scope") {
        File = "file",
        /// In one room of the project.
        Room = "room",
        /// Everywhere in the project.
        Palace = "palace",
    }
}

words! {
    /// What supports a record.
    pub enum RecordAuthority("authority") {
        Proposed = "proposed",
        Approved = "approved",
        /// It was there before there was governance.
        LegacyApproved = "legacy_approved",
    }
}

impl RecordAuthority {
    /// Whether agents may read it as true. Nothing else decides this.
    pub const fn is_authoritative(self) -> bool {
        match self {
            RecordAuthority::Approved | RecordAuthority::LegacyApproved => true,
            RecordAuthority::Proposed => false,
        }
    }
}

words! {
    /// Where a proposal stands.
    pub enum ProposalStatus("status of a proposal") {
        /// It waits for a person.
        Pending = "pending",
        /// A person agreed; a record came of it.
        Approved = "approved",
        Rejected = "rejected",
        Expired = "expired",
    }
}

words! {
    /// Where a record stands.
    pub enum RecordStatus("status of a record") {
        Active = "active",
        Superseded = "superseded",
        Reversed = "reversed",
        Obsolete = "obsolete",
        Archived = "archived",
        /// An idea that is looked into.
        Exploring = "exploring",
        /// An idea that was carried out.
        Implemented = "implemented",
        /// An idea that was let go.
        Dropped = "dropped",
    }
}

impl RecordStatus {
    /// Whether the record still holds: only such records are given to agents.
    pub const fn holds(self) -> bool {
        match self {
            RecordStatus::Active | RecordStatus::Exploring | RecordStatus::Implemented => true,
            RecordStatus::Superseded
            | RecordStatus::Reversed
            | RecordStatus::Obsolete
            | RecordStatus::Archived
            | RecordStatus::Dropped => false,
        }
    }
}

words! {
    /// What came of a decision.
    pub enum DecisionOutcome("outcome") {
        Unknown = "unknown",
        Successful = "successful",
        Failed = "failed",
        Mixed = "mixed",
    }
}

words! {
    /// How one record stands to another.
    pub enum RecordRelation("relation") {
        Supports = "supports",
        Contradicts = "contradicts",
        Implements = "implements",
        Supersedes = "supersedes",
        InspiredBy = "inspired_by",
        Related = "related",
    }
}

words! {
    /// What a session did.
    pub enum SessionActivityKind("kind of activity") {
        FileRead = "file_read",
        FileEdit = "file_edit",
        Search = "search",
        Command = "command",
    }
}

words! {
    /// How a session ended.
    pub enum SessionOutcome("outcome of a session") {
        /// What it was for is done.
        Success = "success",
        Failure = "failure",
        Partial = "partial",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_person_stands_behind_is_authoritative() {
        let all: Vec<(&str, bool)> =
            RecordAuthority::ALL.iter().map(|one| (one.as_str(), one.is_authoritative())).collect();
        assert_eq!(all, [("proposed", false), ("approved", true), ("legacy_approved", true)]);
    }
}
