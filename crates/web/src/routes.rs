//! The table of REST routes: method, path, request and response types, handler. The router and the OpenAPI document are both made
//! from it, so that they can't differ.

use std::sync::Arc;

use axum::extract::State;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Json, Router, middleware};
use countersign_policy::refusal::{Code, Refusal};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::api::{
    activity, chart, credentials, decide, grants, memory, plans, policy, runs, tools, upstreams,
};
use crate::response::{ApiError, ApiResponse};
use crate::state::{Web, WebState};
use crate::{auth, events, openapi, page, sign_in};

/// The prefix of every REST route.
pub(crate) const ROOT: &str = "/api/v1";

/// Adds the schema of a type to a generator.
pub(crate) type SchemaFunction = fn(&mut SchemaGenerator) -> Schema;

/// The response of a successful request.
pub(crate) enum RouteResponse {
    Json(SchemaFunction),
    /// Another media type, or one of several.
    Other(&'static [&'static str]),
}

pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) query: Option<SchemaFunction>,
    pub(crate) body: Option<SchemaFunction>,
    pub(crate) response: RouteResponse,
    /// Statuses besides those that every route may have.
    pub(crate) statuses: &'static [u16],
    handler: MethodRouter<Arc<WebState>>,
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl Route {
    /// `route` is the method and the path.
    fn new<H, T>(route: &'static str, id: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<WebState>>,
        T: 'static,
    {
        let (method, path) = route.split_once(' ').unwrap_or(("get", route));
        let handler = match method {
            "post" => post(handler),
            "delete" => delete(handler),
            _ => get(handler),
        };
        let response = RouteResponse::Other(&[]);
        Self { method, path, id, summary, query: None, body: None, response, statuses: &[], handler }
    }

    fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(schema_of::<T>);
        self
    }

    fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(schema_of::<T>);
        self
    }

    fn returns<T: JsonSchema>(mut self) -> Self {
        self.response = RouteResponse::Json(schema_of::<ApiResponse<T>>);
        self
    }

    fn streams(mut self, media_types: &'static [&'static str]) -> Self {
        self.response = RouteResponse::Other(media_types);
        self
    }

    fn may(mut self, statuses: &'static [u16]) -> Self {
        self.statuses = statuses;
        self
    }
}

#[rustfmt::skip]
pub(crate) fn all() -> Vec<Route> {
    vec![
        Route::new("get /me", "me", "The signed-in person", sign_in::me).returns::<sign_in::CurrentUser>(),
        Route::new("post /me/passphrase", "set_passphrase", "Set a pass phrase for sign-in", sign_in::set_phrase)
            .body::<sign_in::NewPhrase>().returns::<sign_in::PhraseSet>(),
        Route::new("post /session", "sign_in", "Sign in to the page", sign_in::sign_in)
            .body::<sign_in::SignIn>().returns::<sign_in::CurrentUser>().may(&[429]),
        Route::new("delete /session", "sign_out", "Sign out of the page", sign_in::sign_out)
            .returns::<sign_in::SignedOut>(),
        Route::new("get /plans", "list_plans", "List plans, newest first", plans::list)
            .query::<plans::ListPlansQuery>().returns::<plans::PlanPage>(),
        Route::new("post /plans/decide", "decide_plans", "Decide several plans, each on its own", decide::decide_many)
            .body::<decide::DecidePlansBody>().returns::<decide::PlanDecisionResults>(),
        Route::new("get /plans/{id}", "get_plan", "Get one plan in full, with its history", plans::one)
            .returns::<plans::PlanWithHistory>(),
        Route::new("post /plans/{id}/approve", "approve_plan", "Approve a plan", decide::approve)
            .body::<decide::ApprovePlanBody>().returns::<decide::Approved>().may(&[409, 422]),
        Route::new("post /plans/{id}/reject", "reject_plan", "Reject a plan", decide::reject)
            .body::<decide::RejectPlanBody>().returns::<decide::Rejected>().may(&[409]),
        Route::new("post /plans/{id}/steps", "remove_steps", "Remove steps from a plan", decide::steps)
            .body::<decide::RemoveStepsBody>().returns::<decide::RemainingPlan>().may(&[409]),
        Route::new("get /pauses", "list_pauses", "List principals whose writes are paused", plans::pauses)
            .returns::<plans::Pauses>(),
        Route::new("post /pauses/{principal}/resume", "resume_principal", "Resume the writes of a principal", plans::resume)
            .returns::<plans::Resumed>(),
        Route::new("get /activity", "list_activity", "List rows of the audit log, newest first", activity::list)
            .query::<activity::ActivityFilter>().returns::<activity::ActivityPage>(),
        Route::new("get /activity/summary", "summarize_activity", "Count the rows of a period", activity::summary)
            .query::<activity::SummaryQuery>().returns::<activity::Summary>(),
        Route::new("get /activity/chart", "chart_activity", "Count the rows of a period over time", chart::chart)
            .query::<chart::ChartQuery>().returns::<chart::Chart>(),
        Route::new("get /activity/export", "export_activity", "Export rows of the audit log, oldest first", activity::export)
            .query::<activity::ExportQuery>().streams(&["application/jsonl", "text/csv"]),
        Route::new("get /activity/{id}", "get_activity", "Get one row of the audit log", activity::one)
            .returns::<activity::ActivityDetail>(),
        Route::new("get /tools", "list_tools", "List tools and what each call needs", tools::list)
            .query::<tools::ListToolsQuery>().returns::<tools::ToolList>(),
        Route::new("get /tools/{name}", "get_tool", "Get one tool with its definition", tools::one)
            .returns::<tools::ToolDetail>(),
        Route::new("get /tools/{name}/diff", "diff_tool", "Compare the accepted and the waiting definition", tools::diff)
            .returns::<tools::DefinitionDiff>(),
        Route::new("post /tools/{name}/approve", "approve_tool", "Accept a definition", tools::approve)
            .body::<tools::ApproveToolBody>().returns::<tools::AcceptedDefinition>().may(&[409]),
        Route::new("get /upstreams", "list_upstreams", "List upstreams and their health", upstreams::list)
            .returns::<upstreams::UpstreamList>(),
        Route::new("get /grants", "list_grants", "List grants", grants::list)
            .query::<grants::ListGrantsQuery>().returns::<grants::GrantList>(),
        Route::new("post /grants", "make_grant", "Create a grant: approve later calls", grants::make)
            .body::<grants::NewGrantBody>().returns::<grants::CreateGrantResponse>().may(&[404, 422]),
        Route::new("delete /grants/{id}", "revoke_grant", "Revoke a grant", grants::revoke)
            .returns::<grants::RevokedGrant>(),
        Route::new("get /credentials", "list_credentials", "List credentials, without secrets", credentials::list)
            .returns::<credentials::CredentialList>(),
        Route::new("post /credentials", "make_credential", "Create a credential", credentials::make)
            .body::<credentials::NewCredentialBody>().returns::<credentials::CreateCredentialResponse>(),
        Route::new("delete /credentials/{id}", "revoke_credential", "Revoke a credential", credentials::revoke)
            .returns::<credentials::RevokedCredential>(),
        Route::new("get /memory/proposals", "list_proposals", "List proposals to the shared memory", memory::list)
            .query::<memory::ListProposalsQuery>().returns::<memory::ProposalList>(),
        Route::new("get /memory/proposals/{id}", "get_proposal", "Get one proposal", memory::one)
            .returns::<memory::ProposalDetail>(),
        Route::new("post /memory/proposals/{id}/approve", "approve_proposal", "Approve a proposal", memory::approve)
            .body::<memory::ApproveProposalBody>().returns::<memory::DecidedProposal>().may(&[409]),
        Route::new("post /memory/proposals/{id}/reject", "reject_proposal", "Reject a proposal", memory::reject)
            .body::<memory::RejectProposalBody>().returns::<memory::DecidedProposal>().may(&[409]),
        Route::new("post /memory/decide", "decide_proposals", "Decide several proposals, each on its own", memory::decide_many)
            .body::<memory::DecideProposalsBody>().returns::<memory::ProposalDecisionResults>(),
        Route::new("get /policy", "get_policy", "Get the rules in force", policy::rules).returns::<policy::Policy>(),
        Route::new("post /policy/explain", "explain_policy", "Explain how the policy decides a call", policy::explain)
            .body::<policy::ExplainCallBody>().returns::<policy::ExplainCallResponse>(),
        Route::new("post /policy/simulate", "simulate_policy", "Evaluate other rules on past calls", policy::simulate)
            .body::<policy::SimulateRulesBody>().returns::<policy::SimulationReport>(),
        Route::new("get /runs", "list_runs", "List background runs", runs::list)
            .query::<runs::ListRunsQuery>().returns::<runs::RunList>(),
        Route::new("get /runs/{id}", "get_run", "Get one run with its output", runs::one).returns::<runs::RunDetail>(),
        Route::new("post /runs/{id}/stop", "stop_run", "Stop a run", runs::stop).returns::<runs::StoppingRun>().may(&[409]),
        Route::new("get /events", "listen", "Stream events", events::stream).streams(&["text/event-stream"]),
    ]
}

/// Every REST route as `(method, path)`, for tests.
pub fn route_list() -> Vec<(&'static str, String)> {
    all().into_iter().map(|route| (route.method, format!("{ROOT}{}", route.path))).collect()
}

/// The router: REST, its OpenAPI document, the page.
pub fn mount(web: &Arc<WebState>) -> Router {
    let mut rest = Router::new();
    for route in all() {
        rest = rest.route(route.path, route.handler);
    }
    let rest = rest
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(web), auth::rest));
    let mut open = Router::new().route("/openapi.json", get(openapi)).route("/page/{name}", get(page::asset));
    for path in page::PATHS {
        open = open.route(path, get(page::document));
    }
    let open = open.layer(middleware::from_fn_with_state(Arc::clone(web), auth::page));
    Router::new().nest(ROOT, rest).merge(open).with_state(Arc::clone(web))
}

/// The router for a listener of its own, with health checks.
pub fn mount_alone(web: &Arc<WebState>) -> Router {
    let health = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .layer(middleware::from_fn_with_state(Arc::clone(web), auth::page))
        .with_state(Arc::clone(web));
    mount(web).merge(health)
}

/// Ready means that decisions can be written.
async fn ready(State(web): Web) -> Response {
    match web.gateway.store.flush().await {
        Ok(()) => "ready\n".into_response(),
        Err(fault) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", fault.outside())).into_response(),
    }
}

async fn unknown_route() -> ApiError {
    Refusal::new(Code::NotFound, "there is no such route: see /openapi.json").into()
}

async fn wrong_method() -> Response {
    let refusal = Refusal::new(Code::NotFound, "this route is not asked like that: see /openapi.json");
    ApiError::from(refusal).status(StatusCode::METHOD_NOT_ALLOWED).into_response()
}

async fn openapi() -> Response {
    Json(openapi::document()).into_response()
}
