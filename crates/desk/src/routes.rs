//! Every route of the desk, once: what it takes, what it tells, and who handles it. The router and the OpenAPI description are
//! both made from this list, so that neither can know a route the other does not.

use std::sync::Arc;

use axum::extract::State;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Json, Router, middleware};
use countersign_core::refusal::{Code, Refusal};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::api::{activity, credentials, decide, grants, memory, plans, policy, runs, tools, upstreams};
use crate::desk::Desk;
use crate::told::{No, Told};
use crate::{access, events, openapi, page, people};

/// Before every REST route.
pub(crate) const ROOT: &str = "/api/v1";

/// How a route is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Delete,
}

impl Verb {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Post => "post",
            Verb::Delete => "delete",
        }
    }
}

/// A type's schema.
pub(crate) type Shape = fn(&mut SchemaGenerator) -> Schema;

/// What a route answers when it goes well.
pub(crate) enum Answers {
    /// JSON of this shape.
    Json(Shape),
    /// Something else.
    Other(&'static [&'static str]),
}

/// One route.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) query: Option<Shape>,
    pub(crate) body: Option<Shape>,
    pub(crate) answers: Answers,
    /// Statuses besides those every route may have.
    pub(crate) statuses: &'static [u16],
    handler: MethodRouter<Arc<Desk>>,
}

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl Route {
    fn new<H, T>(verb: Verb, path: &'static str, id: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<Desk>>,
        T: 'static,
    {
        let handler = match verb {
            Verb::Get => get(handler),
            Verb::Post => post(handler),
            Verb::Delete => delete(handler),
        };
        let answers = Answers::Other(&[]);
        Self { verb, path, id, summary, query: None, body: None, answers, statuses: &[], handler }
    }

    fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(shape::<T>);
        self
    }

    fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(shape::<T>);
        self
    }

    fn tells<T: JsonSchema>(mut self) -> Self {
        self.answers = Answers::Json(shape::<Told<T>>);
        self
    }

    fn streams(mut self, kinds: &'static [&'static str]) -> Self {
        self.answers = Answers::Other(kinds);
        self
    }

    fn may(mut self, statuses: &'static [u16]) -> Self {
        self.statuses = statuses;
        self
    }
}

/// Every REST route.
pub(crate) fn all() -> Vec<Route> {
    use Verb::{Delete, Get, Post};
    vec![
        Route::new(Get, "/me", "me", "Who is signed in", people::me).tells::<people::Me>(),
        Route::new(
            Post,
            "/me/passphrase",
            "set_passphrase",
            "Set a pass phrase to sign in with",
            people::set_phrase,
        )
        .body::<people::NewPhrase>()
        .tells::<people::PhraseSet>(),
        Route::new(Post, "/session", "sign_in", "Sign the page in", people::sign_in)
            .body::<people::SignIn>()
            .tells::<people::Me>()
            .may(&[429]),
        Route::new(Delete, "/session", "sign_out", "Sign the page out", people::sign_out)
            .tells::<people::SignedOut>(),
        Route::new(Get, "/plans", "list_plans", "Plans, newest first", plans::list)
            .query::<plans::Wanted>()
            .tells::<plans::Plans>(),
        Route::new(
            Post,
            "/plans/decide",
            "decide_plans",
            "Decide a burst of plans, each for itself",
            decide::burst,
        )
        .body::<decide::Burst>()
        .tells::<decide::Results>(),
        Route::new(Get, "/plans/{id}", "get_plan", "One plan, whole, with its story", plans::one)
            .tells::<plans::One>(),
        Route::new(Post, "/plans/{id}/approve", "approve_plan", "Agree to a plan", decide::approve)
            .body::<decide::Agreed>()
            .tells::<decide::Approved>()
            .may(&[409, 422]),
        Route::new(Post, "/plans/{id}/reject", "reject_plan", "Say no to a plan", decide::reject)
            .body::<decide::Refusing>()
            .tells::<decide::Rejected>()
            .may(&[409]),
        Route::new(
            Post,
            "/plans/{id}/steps",
            "remove_steps",
            "Take steps out of a plan of several",
            decide::steps,
        )
        .body::<decide::Taken>()
        .tells::<decide::Left>()
        .may(&[409]),
        Route::new(Get, "/pauses", "list_pauses", "Whose writes are paused", plans::pauses)
            .tells::<plans::Pauses>(),
        Route::new(Post, "/pauses/{principal}/resume", "resume_principal", "Let writes go on", plans::resume)
            .tells::<plans::Resumed>(),
        Route::new(Get, "/activity", "list_activity", "Rows of the ledger, newest first", activity::list)
            .query::<activity::Wanted>()
            .tells::<activity::Activities>(),
        Route::new(
            Get,
            "/activity/summary",
            "summarize_activity",
            "What happened, counted",
            activity::summary,
        )
        .query::<activity::Period>()
        .tells::<activity::Summary>(),
        Route::new(
            Get,
            "/activity/export",
            "export_activity",
            "Rows as text, oldest first",
            activity::export,
        )
        .query::<activity::Exported>()
        .streams(&["application/jsonl", "text/csv"]),
        Route::new(Get, "/activity/{id}", "get_activity", "One row", activity::one).tells::<activity::One>(),
        Route::new(Get, "/tools", "list_tools", "Tools, and what each needs", tools::list)
            .query::<tools::Wanted>()
            .tells::<tools::Tools>(),
        Route::new(Get, "/tools/{name}", "get_tool", "One tool, whole", tools::one).tells::<tools::One>(),
        Route::new(
            Get,
            "/tools/{name}/diff",
            "diff_tool",
            "What was accepted, and what is said now",
            tools::diff,
        )
        .tells::<tools::Difference>(),
        Route::new(Post, "/tools/{name}/approve", "approve_tool", "Accept a definition", tools::approve)
            .body::<tools::Looked>()
            .tells::<tools::Accepted>()
            .may(&[409]),
        Route::new(Get, "/upstreams", "list_upstreams", "Upstreams, and how each is", upstreams::list)
            .tells::<upstreams::Upstreams>(),
        Route::new(Get, "/grants", "list_grants", "Approvals given ahead", grants::list)
            .query::<grants::Wanted>()
            .tells::<grants::Grants>(),
        Route::new(Post, "/grants", "make_grant", "Approve calls ahead", grants::make)
            .body::<grants::New>()
            .tells::<grants::Made>()
            .may(&[404, 422]),
        Route::new(Delete, "/grants/{id}", "revoke_grant", "Take a grant back", grants::revoke)
            .tells::<grants::Revoked>(),
        Route::new(
            Get,
            "/credentials",
            "list_credentials",
            "Credentials, without secrets",
            credentials::list,
        )
        .tells::<credentials::Credentials>(),
        Route::new(Post, "/credentials", "make_credential", "Make a credential", credentials::make)
            .body::<credentials::New>()
            .tells::<credentials::Made>(),
        Route::new(Delete, "/credentials/{id}", "revoke_credential", "End a credential", credentials::revoke)
            .tells::<credentials::Revoked>(),
        Route::new(
            Get,
            "/memory/proposals",
            "list_proposals",
            "What agents would have everyone remember",
            memory::list,
        )
        .query::<memory::Wanted>()
        .tells::<memory::Proposals>(),
        Route::new(
            Get,
            "/memory/proposals/{id}",
            "get_proposal",
            "One proposal with what stands beside it",
            memory::one,
        )
        .tells::<memory::One>(),
        Route::new(
            Post,
            "/memory/proposals/{id}/approve",
            "approve_proposal",
            "Make a proposal true",
            memory::approve,
        )
        .body::<memory::Agreed>()
        .tells::<memory::Decided>()
        .may(&[409]),
        Route::new(
            Post,
            "/memory/proposals/{id}/reject",
            "reject_proposal",
            "Say no to a proposal",
            memory::reject,
        )
        .body::<memory::Refusing>()
        .tells::<memory::Decided>()
        .may(&[409]),
        Route::new(
            Post,
            "/memory/decide",
            "decide_proposals",
            "Decide a burst of proposals, each for itself",
            memory::burst,
        )
        .body::<memory::Burst>()
        .tells::<memory::Results>(),
        Route::new(Get, "/policy", "get_policy", "The rules in force", policy::rules)
            .tells::<policy::Policy>(),
        Route::new(
            Post,
            "/policy/explain",
            "explain_policy",
            "What the law makes of a call",
            policy::explain,
        )
        .body::<policy::Question>()
        .tells::<policy::Answer>(),
        Route::new(
            Post,
            "/policy/simulate",
            "simulate_policy",
            "What other rules would have done",
            policy::simulate,
        )
        .body::<policy::Tried>()
        .tells::<policy::Simulated>(),
        Route::new(Get, "/runs", "list_runs", "Calls in the background", runs::list)
            .query::<runs::Wanted>()
            .tells::<runs::Runs>(),
        Route::new(Get, "/runs/{id}", "get_run", "One run with its last lines", runs::one)
            .tells::<runs::One>(),
        Route::new(Post, "/runs/{id}/stop", "stop_run", "Stop a run", runs::stop)
            .tells::<runs::Stopping>()
            .may(&[409]),
        Route::new(Get, "/events", "listen", "What happens, as it happens", events::stream)
            .streams(&["text/event-stream"]),
    ]
}

/// Every REST route as `(method, path)`, for whoever checks that none is forgotten.
pub fn route_list() -> Vec<(&'static str, String)> {
    all().into_iter().map(|route| (route.verb.as_str(), format!("{ROOT}{}", route.path))).collect()
}

/// The desk's router: REST, its description, the page.
pub fn mount(desk: &Arc<Desk>) -> Router {
    let mut rest = Router::new();
    for route in all() {
        rest = rest.route(route.path, route.handler);
    }
    let rest = rest
        .fallback(nowhere)
        .method_not_allowed_fallback(not_so)
        .layer(middleware::from_fn_with_state(Arc::clone(desk), access::rest));
    let mut open = Router::new().route("/openapi.json", get(openapi)).route("/page/{name}", get(page::asset));
    for path in page::PATHS {
        open = open.route(path, get(page::document));
    }
    let open = open.layer(middleware::from_fn_with_state(Arc::clone(desk), access::page));
    Router::new().nest(ROOT, rest).merge(open).with_state(Arc::clone(desk))
}

/// The same at an address of its own: how the desk is, is asked there as well.
pub fn mount_alone(desk: &Arc<Desk>) -> Router {
    let health = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .layer(middleware::from_fn_with_state(Arc::clone(desk), access::page))
        .with_state(Arc::clone(desk));
    mount(desk).merge(health)
}

/// People can decide: what they decide can be written.
async fn ready(State(desk): State<Arc<Desk>>) -> Response {
    match desk.house.store.flush().await {
        Ok(()) => "ready\n".into_response(),
        Err(fault) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", fault.outside())).into_response(),
    }
}

async fn nowhere() -> No {
    Refusal::new(Code::NotFound, "there is no such route: see /openapi.json").into()
}

async fn not_so() -> Response {
    let refusal = Refusal::new(Code::NotFound, "this route is not asked like that: see /openapi.json");
    No::from(refusal).status(StatusCode::METHOD_NOT_ALLOWED).into_response()
}

async fn openapi(State(_): State<Arc<Desk>>) -> Response {
    Json(openapi::document()).into_response()
}
