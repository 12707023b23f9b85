//! Roles: who is on the line, fixed by how the line was opened. Nothing sent over the line changes it.

use crate::words::words;

words! {
    /// Who is on the line.
    pub enum Role("role") {
        /// A model drafts; it can't agree to its own plans.
        Agent = "agent",
        /// A person with a human credential.
        Human = "human",
    }
}
