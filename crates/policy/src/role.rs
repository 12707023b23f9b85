//! Roles: agent or human, fixed when the connection is authenticated. No message on the connection changes it.

use crate::words::words;

words! {
    /// Who uses the connection.
    pub enum Role("role") {
        /// A model drafts; it can't agree to its own plans.
        Agent = "agent",
        /// A person with a human credential.
        Human = "human",
    }
}
