//! The law of Countersign: who may do what, when, and with whose agreement.
//! Pure and total: no I/O, no clock, no randomness, no async; `now` and nonces are arguments.

pub mod call;
pub mod canonical;
pub mod config;
pub mod confirm;
pub mod digest;
pub mod duration;
pub mod effect;
pub mod envelope;
pub mod fold;
pub mod gate;
pub mod grant;
pub mod ids;
pub mod intent;
pub mod memory;
pub mod mode;
pub mod nearest;
pub mod plan;
pub mod preview;
pub mod profile;
pub mod python;
pub mod record;
pub mod redact;
pub mod refusal;
pub mod role;
pub mod rules;
pub mod strict_json;
pub mod suggest;
pub mod tool;
pub mod visible_text;
pub mod words;
