//! The house: every MCP server behind one gate.
pub mod search;
