//! The gateway as hosts meet it: the contract's tables as transcripts through the real binary, over stdio and HTTP, with
//! sessions and stateless, before an upstream that records everything it receives.

mod approval_channels;
mod attacks_defaults;
mod attacks_identity;
mod attacks_members;
mod attacks_upstream;
mod bounds;
mod client;
mod closed;
pub(crate) mod collector;
mod dependent_steps;
mod desk;
mod doctor;
mod ecosystem;
mod elsewhere;
mod fidelity;
mod flips;
pub(crate) mod gateway;
mod hosts;
pub(crate) mod http;
mod injection;
mod lists;
mod logs;
mod memory;
mod notify;
mod over_rest;
mod pack;
mod page;
mod people;
mod principals;
mod races;
mod recorded_katana;
mod reload;
pub(crate) mod replicas;
mod runs;
mod scene;
mod self_approval;
mod sessions;
mod simulate;
mod slow_upstream;
#[cfg(feature = "otlp")]
mod telemetry;
mod token_budgets;
mod trace_context;
mod transcript;
mod upstream_words;

/// One test for each transcript; the file's name is the test's.
macro_rules! transcripts {
    ($($name:ident)+) => {
        mod tables {
            $(#[test]
            fn $name() {
                let file = concat!(stringify!($name), ".txt");
                super::transcript::play(file, include_str!(concat!("serve/transcripts/", stringify!($name), ".txt")));
            })+
        }
    };
}

transcripts! { modes max_mode intent lenient confirm looks typed expiry changes series direct refusals closed }
