//! The REST routes, a file for each thing they are about. Each reads what was asked, asks the house or the store, and tells.

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
