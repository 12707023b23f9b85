//! REST responses: `{success, data}` or `{success, error: {code, message, details}}`. The only place that maps refusal codes to
//! HTTP statuses.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::DecisionError;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{DecideRefused, StoreFault};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

pub(crate) type ApiResult<T> = Result<ApiResponse<T>, ApiError>;

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct ApiResponse<T> {
    #[schemars(schema_with = "always_true")]
    success: bool,
    data: T,
}

fn always_true(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"const": true})
}

pub(crate) fn respond<T>(data: T) -> ApiResult<T> {
    Ok(ApiResponse { success: true, data })
}

impl<T: Serialize> IntoResponse for ApiResponse<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self).into_response();
        no_store(&mut response);
        response
    }
}

/// Forbids caching: answers change, and are for one person only.
pub(crate) fn no_store(response: &mut Response) {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// A refusal, with the HTTP status of its code unless another is set.
#[derive(Debug)]
pub(crate) struct ApiError {
    refusal: Box<Refusal>,
    status: Option<StatusCode>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ApiError {
    #[must_use]
    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    #[must_use]
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn refusal(&self) -> &Refusal {
        &self.refusal
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self { refusal: Box::new(refusal), status: None, headers: Vec::new() }
    }
}

impl From<StoreFault> for ApiError {
    fn from(fault: StoreFault) -> Self {
        tracing::error!(incident = fault.incident(), fault = fault.inside(), "request failed in the store");
        fault.refusal().into()
    }
}

impl From<DecideRefused> for ApiError {
    fn from(refused: DecideRefused) -> Self {
        match refused {
            DecideRefused::Fault(fault) => fault.into(),
            DecideRefused::NotDecided(why) => why.refusal().into(),
        }
    }
}

impl From<DecisionError> for ApiError {
    fn from(error: DecisionError) -> Self {
        match error {
            DecisionError::Input(refusal) => refusal.into(),
            DecisionError::Store(refused) => refused.into(),
        }
    }
}

/// The `error` member of a response.
pub(crate) fn error_body(refusal: &Refusal) -> Value {
    json!({"code": refusal.code.as_str(), "message": refusal.message, "details": refusal.details_value()})
}

/// A failed request. Only its schema is used.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Refused")]
#[allow(dead_code, reason = "only the schema is used")]
pub(crate) struct RefusedShape {
    success: bool,
    error: ErrorShape,
}

/// Why the request failed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
#[allow(dead_code, reason = "only the schema is used")]
pub(crate) struct ErrorShape {
    /// A stable code; docs/refusals.md lists them.
    code: String,
    /// One line of text.
    message: String,
    /// `reason_code`, `next_actions` and more facts.
    details: Map<String, Value>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status.unwrap_or_else(|| status(self.refusal.code));
        let body = json!({"success": false, "error": error_body(&self.refusal)});
        let mut response = (status, Json(body)).into_response();
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        no_store(&mut response);
        response
    }
}

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
        // Everything else conflicts with the present state.
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
