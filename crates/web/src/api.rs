//! The REST routes, one file a subject. Each parses its request, calls the gateway or the store, and returns the answer.

pub(crate) mod activity;
pub(crate) mod chart;
pub(crate) mod credentials;
pub(crate) mod decide;
pub(crate) mod grants;
pub(crate) mod memory;
pub(crate) mod plans;
pub(crate) mod policy;
pub(crate) mod runs;
pub(crate) mod tools;
pub(crate) mod upstreams;
