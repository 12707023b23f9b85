//! The messages of failed requests: which upstream, what happened, the end of its stderr, and whether it may have acted. Text of an
//! upstream is escaped, because it ends up on people's screens.

use std::time::Duration;

use countersign_mcp::client::Deadline;
use countersign_mcp::fault::{DeliveryState, FaultKind, RequestFailure, TransportFault};
use countersign_policy::ids::UpstreamId;

use crate::escape;
use crate::upstreams::UpstreamFault;

const WORDS: usize = 400;

pub(super) fn fault(
    id: &UpstreamId,
    failure: RequestFailure,
    deadline: Deadline,
    stderr: &str,
) -> UpstreamFault {
    let fault = match failure {
        RequestFailure::Rpc(error) => return UpstreamFault::Rpc(error),
        RequestFailure::Wire(fault) => fault,
    };
    match &fault.kind {
        FaultKind::Timeout(_) => {
            let why = format!("`{id}` {}{}", timeout_message(deadline), stderr_end(stderr));
            UpstreamFault::Timeout { why, sent: fault.sent }
        }
        FaultKind::TooLarge(limit) => UpstreamFault::TooLarge {
            why: format!(
                "the answer of `{id}` is longer than {limit} bytes; `limits.frame` says how much is taken"
            ),
        },
        // The fault of an exited child already quotes its stderr.
        FaultKind::Closed(_) => unavailable(id, &fault, ""),
        FaultKind::Spawn { .. }
        | FaultKind::Connect(_)
        | FaultKind::AddressDenied(_)
        | FaultKind::Status { .. }
        | FaultKind::Unauthorized { .. }
        | FaultKind::SessionExpired
        | FaultKind::Protocol(_)
        | FaultKind::Version(_)
        | FaultKind::Redirect(_) => unavailable(id, &fault, stderr),
    }
}

/// Why an upstream could not be opened, in one line without its name.
pub(super) fn opening(id: &UpstreamId, failure: &RequestFailure) -> String {
    match failure {
        RequestFailure::Rpc(error) => escape::excerpt(&format!("it refused to open: {error}"), WORDS),
        RequestFailure::Wire(fault) => {
            format!("{}{}", escape::excerpt(&fault.to_string(), WORDS), authorization_message(id, fault))
        }
    }
}

pub(super) fn not_in_time(id: &UpstreamId, limit: Duration, what: &str) -> UpstreamFault {
    UpstreamFault::Timeout { why: format!("`{id}` {what} within {limit:?}"), sent: DeliveryState::No }
}

fn unavailable(id: &UpstreamId, fault: &TransportFault, stderr: &str) -> UpstreamFault {
    let said = escape::excerpt(&fault.to_string(), WORDS);
    let why = format!("`{id}`: {said}{}{}", authorization_message(id, fault), stderr_end(stderr));
    UpstreamFault::Unavailable { why, sent: fault.sent }
}

/// A rejection for authorization: a person has to sign in.
fn authorization_message(id: &UpstreamId, fault: &TransportFault) -> String {
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

fn timeout_message(deadline: Deadline) -> String {
    match deadline {
        Deadline::Total(limit) => format!("did not answer within {limit:?}"),
        Deadline::Quiet(limit) => format!("was silent for {limit:?}"),
        Deadline::Never => "did not answer".to_owned(),
    }
}

/// The last line of stderr that is not empty, for the end of a message.
fn stderr_end(stderr: &str) -> String {
    match stderr.lines().rev().find(|line| !line.trim().is_empty()) {
        Some(line) => format!("; last words: {}", escape::excerpt(line.trim(), WORDS)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: FaultKind, stderr: &str) -> String {
        let deadline = Deadline::Total(Duration::from_secs(60));
        match fault(&UpstreamId::new("files"), TransportFault::unknown(kind).into(), deadline, stderr) {
            UpstreamFault::Rpc(error) => error.to_string(),
            UpstreamFault::Unavailable { why, .. }
            | UpstreamFault::Timeout { why, .. }
            | UpstreamFault::TooLarge { why } => why,
        }
    }

    #[test]
    fn messages_name_the_upstream_and_are_safe_to_show() {
        let check = |kind, stderr: &str, expect: &str| assert_eq!(message(kind, stderr), expect);
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
