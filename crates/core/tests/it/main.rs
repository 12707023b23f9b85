//! Integration tests of the law, one binary.
mod canonical;
mod strict_json;
