//! Integration tests of the law, one binary.
mod canonical;
mod config;
mod confirm;
mod law;
mod matrix;
mod strict_json;
mod world;
