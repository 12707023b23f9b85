//! A native upstream served on its own, as `memory serve` and `pack mcp serve` are: a gateway with that one upstream which shows
//! itself as that server. Lists the tools exactly as the upstream defines them and runs every call through the same pipeline as
//! any other. Offers neither the gateway's own tools nor the argument `countersign`, and asks the host nothing.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use countersign_config::{AgentAuth, Config, NativeKind, ToolSurface};
use countersign_mcp::client::BoxFuture;
use countersign_mcp::jsonrpc::{Reply, RpcError};
use countersign_mcp::raw;
use countersign_mcp::server::ServiceDescription;
use countersign_policy::call::{Arguments, Caller, CallerScopes, CatalogStatus, ToolCall};
use countersign_policy::confirm::ConfirmInput;
use countersign_policy::envelope::ErrorEntry;
use countersign_policy::ids::{FullName, PrincipalId, SessionId, UpstreamId};
use countersign_policy::intent::{CallEntryPoint, UncheckedIntent};
use countersign_policy::record::{CallRecord, LOCAL_AGENT, Source};
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_store::Store;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tracing::Instrument as _;

use crate::answer::{Answer, TextForm};
use crate::assemble::{Assembly, CannotBuild, GatewayEnvironment, assemble};
use crate::call_log::{self, CallLog};
use crate::catalog::Listed;
use crate::catalog_refresh::CatalogRefresher;
use crate::pipeline::request::ToolCallRequest;
use crate::pipeline::run_tool_call;
use crate::principal::{ModeLimit, Principal, caller_in_session};
use crate::service::GatewayService;
use crate::state::GatewayState;
use crate::upstreams::native::{NativeContext, NativeFactory, NativeServer};

/// How long a client may keep what the server says of itself.
const DESCRIPTION_TTL_MS: u64 = 3_600_000;

/// What a server on its own says differently from the gateway: its name, and its own words for what the gateway decides.
pub trait StandaloneServer: Send + Sync {
    /// `serverInfo` of the handshake.
    fn server_info(&self) -> Value;

    /// `instructions` of the handshake.
    fn instructions(&self) -> &'static str;

    /// Runs a call, in the server's own protocol and words where they differ from the gateway's.
    fn call<'a>(&'a self, request: ToolCallRequest, governed: GovernedCall<'a>) -> BoxFuture<'a, Answer> {
        Box::pin(async move { governed.run(request).await })
    }

    /// The reply to a call of a tool that does not exist.
    fn unknown_tool(&self, name: &str, error: &ErrorEntry) -> Reply;

    /// The content of the text block of the gateway's own answers.
    fn text_form(&self) -> TextForm {
        TextForm::ForModel
    }
}

/// The gateway's side of one call: the only way from a server on its own to its tools.
pub struct GovernedCall<'a> {
    gateway: &'a Arc<GatewayState>,
    caller: Caller,
}

impl GovernedCall<'_> {
    /// Sends the call through the pipeline.
    pub async fn run(&self, request: ToolCallRequest) -> Answer {
        // Without the request's context: these servers ask the host nothing, and nothing they do is cancelled half way.
        run_tool_call(self.gateway, None, self.caller.clone(), request).await
    }

    /// Refuses the call before the policy sees it; the refusal has its row.
    pub async fn refuse(&self, request: &ToolCallRequest, refusal: &Refusal) -> Answer {
        let call = ToolCall {
            caller: self.caller.clone(),
            name: request.name.clone(),
            catalog_status: CatalogStatus::Unknown(Vec::new()),
            arguments: request.arguments.clone(),
            entry_point: request.entry_point,
            intent: UncheckedIntent::default(),
            mode: None,
            confirm_input: ConfirmInput::default(),
        };
        let mut record = CallRecord::begin(&call);
        record.set_arguments(&self.gateway.redactor, &call.arguments, &[]);
        CallLog { started: None }.refused(&record, refusal);
        if let Err(fault) = self.gateway.store.refused(&record, refusal, self.gateway.now()).await {
            tracing::error!(
                incident = fault.incident(),
                fault = fault.inside(),
                "a refusal could not be recorded"
            );
        }
        Answer::refused(&request.command, refusal)
    }

    pub fn principal(&self) -> &PrincipalId {
        &self.caller.principal
    }
}

/// A native upstream, and who calls it. The role is fixed here: nothing that is sent changes it.
pub struct StandaloneSetup {
    pub config: Config,
    pub native: Arc<dyn NativeServer>,
    pub server: Arc<dyn StandaloneServer>,
    pub folder: PathBuf,
    pub role: Role,
    pub session: SessionId,
    pub source: Source,
}

/// A gateway with one native upstream.
pub struct StandaloneGateway {
    gateway: Arc<GatewayState>,
    server: Arc<dyn StandaloneServer>,
    principal: Principal,
    session: SessionId,
    // The gateway refers to both weakly.
    _kept: (Arc<CatalogRefresher>, Assembly),
}

impl StandaloneGateway {
    /// Builds the gateway and waits until it lists its tools.
    pub async fn open(store: Store, setup: StandaloneSetup) -> Result<Self, CannotBuild> {
        let StandaloneSetup { config, native, server, folder, role, session, source } = setup;
        let around = GatewayEnvironment {
            folder,
            natives: Some(Arc::new(OnlyUpstream(native))),
            // `deploy` only looks: a grant must not make it run what it shows.
            ignores_grants: true,
            ..GatewayEnvironment::default()
        };
        let (gateway, refresher, assembly) = assemble(&config, store, around)?;
        gateway.settled().await;
        let principal = Principal {
            id: PrincipalId::new(match role {
                Role::Agent => LOCAL_AGENT,
                Role::Human => "local-human",
            }),
            role,
            credential: None,
            scopes: CallerScopes::all(),
            mode_limit: ModeLimit::Credential,
            session: Some(session.clone()),
            surface: ToolSurface::Direct,
            source,
            host: None,
            launcher: None,
        };
        Ok(Self { gateway, server, principal, session, _kept: (refresher, assembly) })
    }

    /// The service for one connection.
    pub fn service(&self) -> GatewayService {
        GatewayService::new(Arc::clone(&self.gateway), self.principal.clone(), AgentAuth::Required)
            .shown_as(Arc::clone(&self.server))
    }

    /// Answers a request from this process, which needs no connection.
    pub async fn request(&self, method: &str, params: &Value) -> Reply {
        let caller = caller_in_session(&self.principal, &self.session);
        let span = call_log::request_span(&caller, method);
        let params = raw::to_raw(params);
        answer(&self.gateway, self.server.as_ref(), caller, method, Some(&params)).instrument(span).await
    }

    pub fn role(&self) -> Role {
        self.principal.role
    }

    pub fn store(&self) -> &Store {
        &self.gateway.store
    }
}

/// Makes the one upstream, which exists already.
struct OnlyUpstream(Arc<dyn NativeServer>);

impl fmt::Debug for OnlyUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnlyUpstream").finish_non_exhaustive()
    }
}

impl NativeFactory for OnlyUpstream {
    fn make(&self, _: NativeKind, _: NativeContext<'_>) -> Result<Arc<dyn NativeServer>, String> {
        Ok(Arc::clone(&self.0))
    }
}

pub(crate) fn describe(server: &dyn StandaloneServer) -> ServiceDescription {
    ServiceDescription {
        server_info: raw::to_raw(&server.server_info()),
        capabilities: raw::to_raw(&json!({"tools": {}})),
        instructions: Some(server.instructions().to_owned()),
        ttl_ms: DESCRIPTION_TTL_MS,
    }
}

/// Answers a request; there is nothing but tools.
pub(crate) async fn answer(
    gateway: &Arc<GatewayState>,
    server: &dyn StandaloneServer,
    caller: Caller,
    method: &str,
    params: Option<&RawValue>,
) -> Reply {
    match method {
        "tools/list" => list(gateway, caller.role),
        "tools/call" => {
            let name = params.and_then(|params| raw::get_str(params, "name"));
            let Some(name) = name else { return Err(RpcError::invalid_params("`name` is missing")) };
            let given = params.and_then(|params| raw::get(params, "arguments")).map(RawValue::get);
            let arguments = match given {
                None | Some("null") => Arguments::none(),
                Some(text) => Arguments::parse(text.as_bytes())
                    .map_err(|fault| RpcError::invalid_params(&fault.to_string()))?,
            };
            call(gateway, server, caller, &name, arguments).await
        }
        other => Err(RpcError::method_not_found(other)),
    }
}

#[derive(serde::Serialize)]
struct ToolList<'a> {
    tools: Vec<&'a RawValue>,
}

/// `tools/list`: the definitions as they are, without those a rule keeps for people.
fn list(gateway: &GatewayState, role: Role) -> Reply {
    let catalog = gateway.catalog.load();
    let is_visible = |listed: &&Listed| role == Role::Human || listed.outlook.role != Some(Role::Human);
    let tools = catalog.accepted().filter(is_visible).map(|listed| &*listed.raw).collect();
    Ok(raw::to_raw(&ToolList { tools }))
}

async fn call(
    gateway: &Arc<GatewayState>,
    server: &dyn StandaloneServer,
    caller: Caller,
    tool: &str,
    arguments: Arguments,
) -> Reply {
    let upstream = gateway.bare_upstream().map_or_else(|| UpstreamId::new(""), |only| only.id().clone());
    let name = FullName::new(upstream, tool);
    let request = tool_request(name, arguments);
    let request_id = caller.request_id.clone();
    let answer = server.call(request, GovernedCall { gateway, caller }).await;
    if let Answer::Envelope(envelope) = &answer
        && let Some(error) = envelope.errors.first().filter(|error| error.code == Code::ToolNotFound.as_str())
    {
        return server.unknown_tool(tool, error);
    }
    answer.into_reply_with(server.text_form(), request_id.as_ref())
}

/// A call of a tool on the direct surface, with nothing but its arguments.
pub fn tool_request(name: FullName, arguments: Arguments) -> ToolCallRequest {
    ToolCallRequest {
        command: name.to_string(),
        entry_point: CallEntryPoint::Direct,
        name,
        arguments,
        intent: UncheckedIntent::default(),
        mode: None,
        confirm_input: ConfirmInput::default(),
        wait_seconds: None,
        params: None,
    }
}
