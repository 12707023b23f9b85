//! Checks the conventions of this codebase; all checks are in `tests/it`.
//! No product code depends on this crate.
