//! The policy decision of Countersign: who may call which tool, in which mode, and with whose approval.
//! Pure and total: no I/O, clock, randomness or async. The caller passes `now` and nonces as arguments.

pub mod call;
pub mod canonical;
pub mod command_template;
pub mod confirm;
pub mod digest;
pub mod duration;
pub mod effect;
pub mod envelope;
pub mod fold;
pub mod gate;
pub mod grant;
pub mod headline;
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
