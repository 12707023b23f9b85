//! Reads the workspace's own files and dependency graph and fails on what the house rules forbid.
