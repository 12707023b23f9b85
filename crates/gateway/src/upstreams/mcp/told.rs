//! What a failed request is told as: which upstream, what happened, what it last complained of, and, truthfully, whether it may
//! have acted. Everything an upstream says is escaped, because it ends up on people's screens.

use std::time::Duration;

use countersign_core::ids::UpstreamId;
use countersign_wire::fault::{Failure, FaultKind, Sent, WireFault};
use countersign_wire::upstream::Deadline;

use crate::escape;
use crate::upstreams::UpstreamFault;

/// How much of an upstream's own words a message shows.
const WORDS: usize = 400;

/// A request that was sent, or was about to be, and came to nothing.
pub(super) fn fault(id: &UpstreamId, failure: Failure, deadline: Deadline, stderr: &str) -> UpstreamFault {
    let fault = match failure {
        Failure::Rpc(error) => return UpstreamFault::Rpc(error),
        Failure::Wire(fault) => fault,
    };
    match &fault.kind {
        FaultKind::Timeout(_) => {
            let why = format!("`{id}` {}{}", silence(deadline), last_words(stderr));
            UpstreamFault::Timeout { why, sent: fault.sent }
        }
        // The end of a child already quotes its last words.
        FaultKind::Closed(_) => unavailable(id, &fault, ""),
        FaultKind::Spawn { .. }
        | FaultKind::Connect(_)
        | FaultKind::AddressDenied(_)
        | FaultKind::Status { .. }
        | FaultKind::Unauthorized { .. }
        | FaultKind::SessionExpired
        | FaultKind::Protocol(_)
        | FaultKind::TooLarge(_)
        | FaultKind::Version(_)
        | FaultKind::Redirect(_) => unavailable(id, &fault, stderr),
    }
}

/// Why an upstream could not be opened, in one line without its name.
pub(super) fn opening(id: &UpstreamId, failure: &Failure) -> String {
    match failure {
        Failure::Rpc(error) => escape::excerpt(&format!("it refused to open: {error}"), WORDS),
        Failure::Wire(fault) => {
            format!("{}{}", escape::excerpt(&fault.to_string(), WORDS), way_in(id, fault))
        }
    }
}

/// Time ran out before anything was sent.
pub(super) fn not_in_time(id: &UpstreamId, limit: Duration, what: &str) -> UpstreamFault {
    UpstreamFault::Timeout { why: format!("`{id}` {what} within {limit:?}"), sent: Sent::No }
}

fn unavailable(id: &UpstreamId, fault: &WireFault, stderr: &str) -> UpstreamFault {
    let said = escape::excerpt(&fault.to_string(), WORDS);
    let why = format!("`{id}`: {said}{}{}", way_in(id, fault), last_words(stderr));
    UpstreamFault::Unavailable { why, sent: fault.sent }
}

/// Whom it wants to see is for a person to show.
fn way_in(id: &UpstreamId, fault: &WireFault) -> String {
    match &fault.kind {
        FaultKind::Unauthorized { advice: Some(advice), .. } => {
            format!("; {}", escape::excerpt(advice, WORDS))
        }
        FaultKind::Unauthorized { advice: None, .. } => {
            format!("; a person signs in with: countersign upstreams login {id}")
        }
        FaultKind::Spawn { .. }
        | FaultKind::Connect(_)
        | FaultKind::AddressDenied(_)
        | FaultKind::Timeout(_)
        | FaultKind::Closed(_)
        | FaultKind::Status { .. }
        | FaultKind::SessionExpired
        | FaultKind::Protocol(_)
        | FaultKind::TooLarge(_)
        | FaultKind::Version(_)
        | FaultKind::Redirect(_) => String::new(),
    }
}

fn silence(deadline: Deadline) -> String {
    match deadline {
        Deadline::Total(limit) => format!("did not answer within {limit:?}"),
        Deadline::Quiet(limit) => format!("was silent for {limit:?}"),
        Deadline::Never => "did not answer".to_owned(),
    }
}

/// The last line of stderr that says something, for the end of a message.
fn last_words(stderr: &str) -> String {
    match stderr.lines().rev().find(|line| !line.trim().is_empty()) {
        Some(line) => format!("; last words: {}", escape::excerpt(line.trim(), WORDS)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(kind: FaultKind, stderr: &str) -> String {
        let deadline = Deadline::Total(Duration::from_secs(60));
        match fault(&UpstreamId::new("files"), WireFault::unknown(kind).into(), deadline, stderr) {
            UpstreamFault::Rpc(error) => error.to_string(),
            UpstreamFault::Unavailable { why, .. } | UpstreamFault::Timeout { why, .. } => why,
        }
    }

    #[test]
    fn messages_name_the_upstream_and_are_safe_to_show() {
        let check = |kind, stderr: &str, expect: &str| assert_eq!(tell(kind, stderr), expect);
        check(FaultKind::Timeout(Duration::from_secs(1)), "", "`files` did not answer within 60s");
        check(
            FaultKind::Timeout(Duration::from_secs(1)),
            "first\nwaiting for\u{1b}[31m lock\n\n",
            "`files` did not answer within 60s; last words: waiting for\\u{1b}[31m lock",
        );
        check(
            FaultKind::Closed("exit status: 3; last words: boom".into()),
            "boom",
            "`files`: connection closed: exit status: 3; last words: boom",
        );
        check(FaultKind::Protocol("a\nb".into()), "", "`files`: protocol broken: a\\nb");
    }
}
