//! What REST answers: `{success, data}` or `{success, error: {code, message, details}}`. The one place where codes of the law
//! become HTTP statuses.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_core::refusal::{Code, Refusal};
use countersign_store::{DecideRefused, StoreFault};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// What every handler gives back.
pub(crate) type Outcome<T> = Result<Told<T>, No>;

/// It went well.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Told<T> {
    success: Yes,
    data: T,
}

/// Always true.
#[derive(Debug, Serialize)]
#[serde(into = "bool")]
#[derive(Clone, Copy)]
struct Yes;

impl From<Yes> for bool {
    fn from(_: Yes) -> Self {
        true
    }
}

impl JsonSchema for Yes {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Yes".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"const": true})
    }
}

/// An answer with this data.
pub(crate) fn told<T>(data: T) -> Outcome<T> {
    Ok(Told { success: Yes, data })
}

impl<T: Serialize> IntoResponse for Told<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self).into_response();
        no_store(&mut response);
        response
    }
}

/// Records change, and are for one person's eyes.
pub(crate) fn no_store(response: &mut Response) {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// It did not: a refusal, with the HTTP status its code stands for unless the protocol itself says another.
#[derive(Debug)]
pub(crate) struct No {
    refusal: Box<Refusal>,
    status: Option<StatusCode>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl No {
    /// The same with another status.
    #[must_use]
    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// The same with a header.
    #[must_use]
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn refusal(&self) -> &Refusal {
        &self.refusal
    }
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        Self { refusal: Box::new(refusal), status: None, headers: Vec::new() }
    }
}

impl From<StoreFault> for No {
    fn from(fault: StoreFault) -> Self {
        tracing::error!(
            incident = fault.incident(),
            fault = fault.inside(),
            "the desk could not use the store"
        );
        fault.refusal().into()
    }
}

impl From<DecideRefused> for No {
    fn from(refused: DecideRefused) -> Self {
        match refused {
            DecideRefused::Fault(fault) => fault.into(),
            DecideRefused::NotDecided(why) => why.refusal().into(),
        }
    }
}

/// A refusal as REST says it.
pub(crate) fn error(refusal: &Refusal) -> Value {
    json!({"code": refusal.code.as_str(), "message": refusal.message, "details": refusal.details_value()})
}

/// What is said of a refusal; for the generated description only.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Refused")]
#[allow(dead_code, reason = "its shape is what counts: it is never built")]
pub(crate) struct RefusedShape {
    /// Always false.
    success: bool,
    /// What stands against it.
    error: ErrorShape,
}

/// The refusal itself.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
#[allow(dead_code, reason = "its shape is what counts: it is never built")]
pub(crate) struct ErrorShape {
    /// A stable code; docs/refusals.md lists them.
    code: String,
    /// One line for a person.
    message: String,
    /// `reason_code`, `next_actions` and facts.
    details: Map<String, Value>,
}

impl IntoResponse for No {
    fn into_response(self) -> Response {
        let status = self.status.unwrap_or_else(|| status(self.refusal.code));
        let body = json!({"success": false, "error": error(&self.refusal)});
        let mut response = (status, Json(body)).into_response();
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        no_store(&mut response);
        response
    }
}

/// The status a code stands for.
pub(crate) fn status(code: Code) -> StatusCode {
    match code {
        Code::CredentialRequired => StatusCode::UNAUTHORIZED,
        Code::OriginForbidden
        | Code::RoleForbidden
        | Code::ScopeForbidden
        | Code::ModeForbidden
        | Code::RuleDenied => StatusCode::FORBIDDEN,
        Code::PlanNotFound | Code::NotFound | Code::ToolNotFound | Code::SnapshotNotFound => {
            StatusCode::NOT_FOUND
        }
        Code::ArgumentsInvalid
        | Code::IntentRequired
        | Code::IntentOperationRequired
        | Code::IntentOperationInvalid
        | Code::IntentMismatch
        | Code::IntentServerMismatch
        | Code::ModeInvalid
        | Code::ConfigInvalid => StatusCode::BAD_REQUEST,
        Code::LimitExceeded => StatusCode::TOO_MANY_REQUESTS,
        Code::LedgerUnavailable | Code::StoreUnavailable | Code::ClockUntrusted => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Code::ConfirmTextMismatch | Code::ConfirmRequired | Code::GrantForbidden => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        // Everything else stands against the state of things: it could be done, but not as things are.
        Code::ModeAsk
        | Code::ToolChanged
        | Code::ToolQuarantined
        | Code::RuleError
        | Code::PrincipalPaused
        | Code::UpstreamUnavailable
        | Code::UpstreamTimeout
        | Code::PreviewFailed
        | Code::ConfirmTokenRequired
        | Code::ConfirmTokenMismatch
        | Code::ConfirmTokenUsed
        | Code::ConfirmTokenExpired
        | Code::PlanCancelled
        | Code::ApprovalRejected
        | Code::ApprovalPending
        | Code::PlanDecided
        | Code::Duplicate
        | Code::ProposalDecided
        | Code::StepFailed
        | Code::LedgerTampered
        | Code::LedgerUnverified
        | Code::AdoptConfirmRequired
        | Code::ApplyDrifted
        | Code::ConfigMissing
        | Code::ConfigUnsupportedVersion
        | Code::LockfileMissing
        | Code::LockfileInvalid
        | Code::LockfileUnsupportedVersion
        | Code::TargetUnsupported
        | Code::DesiredStateConflict
        | Code::OverlayNotFound
        | Code::OverlayBaselineMissing
        | Code::OverlayBaselineUnsupported
        | Code::OverlayRebaseConflict
        | Code::OverlayPatchApplyFailed
        | Code::ImportConflict
        | Code::PolicyViolations
        | Code::PolicyConfigMissing
        | Code::PolicyConfigInvalid
        | Code::PolicyConfigUnsupportedVersion
        | Code::GitNotFound
        | Code::GitRepoRequired
        | Code::GitWorktreeDirty
        | Code::GitDetachedHead
        | Code::GitRemoteMissing
        | Code::GitFailed
        | Code::IoPermissionDenied
        | Code::IoInvalidPath
        | Code::IoPathTooLong
        | Code::TtyRequired => StatusCode::CONFLICT,
    }
}
