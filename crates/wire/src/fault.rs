//! What can go wrong between us and an upstream, typed so that a caller can tell whether the upstream may have acted.
//! A fault is never a refusal: nothing here knows policy.

use std::time::Duration;

use crate::frame::RpcError;

/// Whether the upstream may have seen the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Not one byte of it left; asking again is safe.
    No,
    /// It left, or may have: the outcome is not known.
    Unknown,
    /// The upstream saw it and said that it did not act on it (an HTTP status before any processing).
    Refused,
}

/// What happened to the connection or the request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FaultKind {
    /// The program could not be started.
    #[error("could not start `{program}`: {reason}")]
    Spawn {
        /// What was to be started.
        program: String,
        /// Why it did not.
        reason: String,
    },
    /// The HTTP peer could not be reached.
    #[error("could not connect: {0}")]
    Connect(String),
    /// The address the name resolved to is not allowed.
    #[error("address {0} is not allowed")]
    AddressDenied(String),
    /// No reply within the time.
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    /// The connection ended.
    #[error("connection closed: {0}")]
    Closed(String),
    /// An HTTP status that is no MCP reply.
    #[error("HTTP status {status}")]
    Status {
        /// The status.
        status: u16,
        /// The first bytes of the body.
        body: String,
    },
    /// The upstream wants authorization (HTTP 401, 403 with a challenge).
    #[error("HTTP status {status}: authorization needed")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
        /// The `WWW-Authenticate` header.
        challenge: String,
        /// What to do about it, where it is not that a person signs in.
        advice: Option<String>,
    },
    /// The upstream forgot our session (HTTP 404): open a new one.
    #[error("the session expired")]
    SessionExpired,
    /// The upstream sent something that is not the protocol.
    #[error("protocol broken: {0}")]
    Protocol(String),
    /// The upstream's message is over the limit.
    #[error("message is longer than {0} bytes")]
    TooLarge(usize),
    /// The upstream speaks no version we do.
    #[error("no common protocol version: the upstream offers {0}")]
    Version(String),
    /// The upstream asked to go elsewhere.
    #[error("redirect to `{0}` not followed")]
    Redirect(String),
}

/// A fault with what is known about delivery.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{kind}")]
pub struct WireFault {
    /// What happened.
    pub kind: FaultKind,
    /// Whether the upstream may have acted.
    pub sent: Sent,
}

impl WireFault {
    /// The request never left.
    pub fn unsent(kind: FaultKind) -> Self {
        Self { kind, sent: Sent::No }
    }

    /// The request left, or may have.
    pub fn unknown(kind: FaultKind) -> Self {
        Self { kind, sent: Sent::Unknown }
    }

    /// The upstream turned the request away unprocessed.
    pub fn refused(kind: FaultKind) -> Self {
        Self { kind, sent: Sent::Refused }
    }
}

/// Why a request to an upstream gave no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The upstream answered with a JSON-RPC error: it is alive, pass it on.
    #[error("{0}")]
    Rpc(RpcError),
    /// There is no answer.
    #[error(transparent)]
    Wire(#[from] WireFault),
}
