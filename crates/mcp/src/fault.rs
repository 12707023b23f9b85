//! Faults between us and an upstream, typed so that a caller can tell whether the upstream may have acted. A fault is never a policy
//! refusal.

use std::time::Duration;

use crate::jsonrpc::RpcError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// No byte of it was sent; sending it again is safe.
    No,
    /// It was sent, or may have been: the outcome is unknown.
    Unknown,
    /// The upstream received it and reported that it did not act (an HTTP status before any processing).
    Refused,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum FaultKind {
    #[error("could not start `{program}`: {reason}")]
    Spawn { program: String, reason: String },
    #[error("could not connect: {0}")]
    Connect(String),
    #[error("address {0} is not allowed")]
    AddressDenied(String),
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    #[error("connection closed: {0}")]
    Closed(String),
    #[error("HTTP status {status}")]
    Status {
        status: u16,
        /// The first bytes of the body.
        body: String,
    },
    /// HTTP 401, or 403 with a challenge.
    #[error("HTTP status {status}: authorization needed")]
    Unauthorized {
        status: u16,
        /// The `WWW-Authenticate` header.
        challenge: String,
        /// What to do about it, where it is not that a person signs in.
        advice: Option<String>,
    },
    /// The upstream lost our session (HTTP 404): open a new one.
    #[error("the session expired")]
    SessionExpired,
    #[error("protocol broken: {0}")]
    Protocol(String),
    #[error("message is longer than {0} bytes")]
    TooLarge(usize),
    #[error("no common protocol version: the upstream offers {0}")]
    Version(String),
    #[error("redirect to `{0}` not followed")]
    Redirect(String),
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("{kind}")]
pub struct TransportFault {
    pub kind: FaultKind,
    pub sent: DeliveryState,
}

impl TransportFault {
    pub fn unsent(kind: FaultKind) -> Self {
        Self { kind, sent: DeliveryState::No }
    }

    pub fn unknown(kind: FaultKind) -> Self {
        Self { kind, sent: DeliveryState::Unknown }
    }

    /// The upstream rejected the request before processing it.
    pub fn refused(kind: FaultKind) -> Self {
        Self { kind, sent: DeliveryState::Refused }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestFailure {
    /// A JSON-RPC error: the upstream is up, and the error is passed on.
    #[error("{0}")]
    Rpc(RpcError),
    #[error(transparent)]
    Wire(#[from] TransportFault),
}
