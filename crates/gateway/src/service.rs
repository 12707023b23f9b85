//! The gateway as an MCP service: identifies callers, and routes each request to tools, tasks or pass-through. Decides nothing
//! about calls.

use std::pin::pin;
use std::sync::Arc;

use countersign_config::{AgentAuth, ToolSurface};
use countersign_mcp::era::{Era, Version};
use countersign_mcp::jsonrpc::{Notification, Reply, Request, RpcError};
use countersign_mcp::mirrored_headers::MirroredHeaders;
use countersign_mcp::raw::{self, RawJson};
use countersign_mcp::server::{
    self as wire, CallerIdentity, CallerInfo, ClientAnomaly, HttpRefusal, ReplyDelivery, RequestContext,
    SavedSession, Service, ServiceDescription, Session, SessionEnd, Transport,
};
use countersign_policy::call::{Caller, CallerScopes, HostVouching};
use countersign_policy::ids::{PrincipalId, Secret, SessionId};
use countersign_policy::record::{LOCAL_AGENT, Source};
use countersign_policy::role::Role;
use countersign_store::{Credential, SavedLine, StoreFault, secret_digest};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tracing::Instrument as _;

use crate::answer;
use crate::call_log;
use crate::cards::CardSupport;
use crate::failed_credentials::{self, FailedTry};
use crate::instructions::instructions;
use crate::members;
use crate::passthrough::{self, Passthrough};
use crate::principal::{self, ModeLimit, Principal};
use crate::standalone::{self, StandaloneServer};
use crate::state::GatewayState;
use crate::surfaces;
use crate::tasks::{self, TaskRequest};
use crate::trace;

// One text for all three cases: it must not tell which secrets once worked.
const UNUSABLE_CREDENTIAL: &str =
    "the credential is unknown, expired or revoked: `countersign token create --role agent` makes another";

pub struct GatewayService {
    gateway: Arc<GatewayState>,
    /// The caller on stdio. HTTP callers bring a credential.
    local: Principal,
    /// Whether HTTP callers on this machine need a credential.
    agent_auth: AgentAuth,
    /// The native upstream it shows itself as, where it is served alone.
    standalone: Option<Arc<dyn StandaloneServer>>,
}

impl GatewayService {
    pub fn new(gateway: Arc<GatewayState>, local: Principal, agent_auth: AgentAuth) -> Self {
        Self { gateway, local, agent_auth, standalone: None }
    }

    /// The same service, shown to clients as this server.
    #[must_use]
    pub(crate) fn shown_as(self, server: Arc<dyn StandaloneServer>) -> Self {
        Self { standalone: Some(server), ..self }
    }
}

impl GatewayService {
    /// Whether a caller on this machine may do without a credential: as started, and as configured now. A reload can require
    /// one; it can't drop the requirement.
    fn allows_anonymous(&self) -> bool {
        self.agent_auth == AgentAuth::LoopbackOpen
            && self.gateway.policy.load().agent_auth == AgentAuth::LoopbackOpen
    }

    /// The live credential of a secret. Every other secret is recorded as a failed try.
    async fn find_credential(
        &self,
        secret: &Secret,
        opening: &CallerInfo<'_>,
    ) -> Result<Credential, HttpRefusal> {
        let found = self.gateway.store.credential(secret_digest(secret)).await;
        let found = found.map_err(|fault| unavailable(&fault))?;
        match found {
            Some(credential) if credential.is_live(self.gateway.now()) => Ok(credential),
            ended => {
                let failed = FailedTry {
                    secret,
                    credential: ended.as_ref(),
                    source: Source::Mcp,
                    peer: opening.peer,
                    route: opening.path,
                };
                Box::pin(failed_credentials::record(&self.gateway, failed)).await;
                Err(unauthorized(UNUSABLE_CREDENTIAL))
            }
        }
    }

    /// A credential names its holder. Without one, a caller on loopback is the local agent, if the configuration allows that.
    async fn identify_http_caller(&self, opening: &CallerInfo<'_>) -> Result<CallerIdentity, HttpRefusal> {
        let surface = match opening.path {
            "/mcp/router" => ToolSurface::Router,
            "/mcp/direct" => ToolSurface::Direct,
            _ => self.local.surface,
        };
        let bearer = opening.headers.get("authorization").and_then(|value| value.to_str().ok());
        let bearer =
            bearer.and_then(|text| text.strip_prefix("Bearer ").or_else(|| text.strip_prefix("bearer ")));
        let local = opening.peer.is_none_or(|peer| peer.ip().is_loopback());
        match bearer {
            Some(secret) => {
                let credential = self.find_credential(&Secret::new(secret.trim()), opening).await?;
                let policy = self.gateway.policy.load();
                let mut principal =
                    Principal { surface, ..Principal::of_credential(&credential, policy.max_mode) };
                let (role, upstreams) = (principal.role, &policy.config.upstreams);
                principal::keep_to_audience(&mut principal.scopes, role, &principal.id, upstreams);
                Ok(principal::tag(principal))
            }
            None if local && self.allows_anonymous() => {
                // Never more than an agent, even where a person started this process: nothing tells the host's answers from the agent's.
                let id = PrincipalId::new(LOCAL_AGENT);
                let mut scopes = CallerScopes { vouching: HostVouching::Denied, ..self.local.scopes.clone() };
                let policy = self.gateway.policy.load();
                principal::keep_to_audience(&mut scopes, Role::Agent, &id, &policy.config.upstreams);
                let principal = Principal {
                    id,
                    role: Role::Agent,
                    scopes,
                    session: None,
                    surface,
                    host: None,
                    launcher: None,
                    ..self.local.clone()
                };
                Ok(principal::tag(principal).anonymous())
            }
            None => Err(unauthorized(
                "a credential is needed, as `Authorization: Bearer …`: `countersign token create --role agent` makes one",
            )),
        }
    }
}

fn saved_line(saved: &SavedSession) -> SavedLine {
    let value = |text: &Option<RawJson>| {
        text.as_ref().and_then(|text| serde_json::from_str::<Value>(text.get()).ok())
    };
    SavedLine {
        owner: saved.identity_key.clone(),
        saved: json!({
            "version": saved.version.as_str(),
            "path": saved.path,
            "client_info": value(&saved.client_info),
            "capabilities": value(&saved.capabilities),
        }),
    }
}

fn restored(line: &SavedLine) -> Option<SavedSession> {
    let part = |name: &str| line.saved.get(name).filter(|part| !part.is_null()).map(raw::to_raw);
    Some(SavedSession {
        identity_key: line.owner.clone(),
        version: Version::parse(line.saved.get("version")?.as_str()?)?,
        path: line.saved.get("path")?.as_str()?.to_owned(),
        client_info: part("client_info"),
        capabilities: part("capabilities"),
    })
}

fn unauthorized(message: &str) -> HttpRefusal {
    HttpRefusal {
        status: 401,
        headers: vec![("WWW-Authenticate".to_owned(), "Bearer realm=\"countersign\"".to_owned())],
        message: message.to_owned(),
    }
}

fn unavailable(fault: &StoreFault) -> HttpRefusal {
    HttpRefusal { status: 503, headers: Vec::new(), message: fault.outside() }
}

impl Service for GatewayService {
    async fn authenticate(&self, opening: &CallerInfo<'_>) -> Result<CallerIdentity, HttpRefusal> {
        match opening.transport {
            Transport::Stdio => Ok(principal::tag(self.local.clone())),
            Transport::Http => self.identify_http_caller(opening).await,
        }
    }

    async fn describe(&self, session: &Arc<Session>) -> ServiceDescription {
        self.gateway.need_upstreams_for(session.client());
        self.gateway.wait_for_lists().await;
        if let Some(server) = &self.standalone {
            return standalone::describe(server.as_ref());
        }
        let principal = session.identity().get::<Principal>().unwrap_or(&self.local);
        let instructions = instructions(&self.gateway, principal.surface, &principal.scopes, principal.role);
        ServiceDescription {
            server_info: raw::to_raw(&json!({
                "name": "countersign",
                "title": "Countersign",
                "version": env!("CARGO_PKG_VERSION"),
            })),
            capabilities: tasks::capability(&self.gateway, session, passthrough::capabilities(&self.gateway)),
            instructions: Some(instructions),
            ttl_ms: 0,
        }
    }

    async fn opened(&self, session: Arc<Session>) {
        self.gateway.remember(&session);
        if session.transport() == Transport::Http && session.era() == Era::Legacy {
            let id = SessionId::new(session.id().as_str());
            if let Err(fault) =
                self.gateway.store.save_line(&id, &saved_line(&session.saved()), self.gateway.now()).await
            {
                tracing::warn!(fault = fault.inside(), "a session will not survive a restart");
            }
        }
    }

    async fn closed(&self, session: Arc<Session>, end: SessionEnd) {
        let over = match end {
            SessionEnd::Deleted | SessionEnd::Expired => true,
            SessionEnd::TransportClosed | SessionEnd::Shutdown => false,
        };
        if over && session.transport() == Transport::Http {
            // One that can't be removed now is removed with the other old ones later.
            let _ = self.gateway.store.forget_line(&SessionId::new(session.id().as_str())).await;
        }
    }

    async fn restore(&self, id: &wire::SessionId, tag: &CallerIdentity) -> Option<SavedSession> {
        let line = self.gateway.store.saved_line(&SessionId::new(id.as_str())).await.ok()??;
        let saved = restored(&line)?;
        (*saved.identity_key == *tag.key).then_some(saved)
    }

    async fn restored(&self, session: Arc<Session>) {
        self.gateway.need_upstreams_for(session.client());
        self.gateway.remember(&session);
    }

    async fn mirrors(&self, session: &Arc<Session>, tool: &str) -> Option<Arc<MirroredHeaders>> {
        let direct = session.identity().get::<Principal>()?.surface == ToolSurface::Direct;
        let catalog = self.gateway.catalog.load();
        catalog.by_direct_name(tool).filter(|_| direct).and_then(|listed| listed.mirrors.clone())
    }

    fn replies(&self, _session: &Session) -> ReplyDelivery {
        // A single upstream without prefix answers as the SDKs' servers do: every reply on a stream that can be resumed.
        if self.gateway.catalog.load().is_bare() { ReplyDelivery::Streamed } else { ReplyDelivery::Plain }
    }

    fn client_anomaly(&self, session: Option<&Session>, notice: ClientAnomaly) {
        let session = session.map(|session| session.id().as_str().to_owned());
        tracing::info!(?session, ?notice, "client anomaly");
    }

    fn accepts(&self, request: &Request) -> bool {
        members::check_member_names(&request.method, request.params.as_deref()).is_ok()
    }

    async fn request(&self, ctx: RequestContext, request: Request) -> Reply {
        self.gateway.need_upstreams_for(ctx.client());
        let params = request.params.as_deref();
        let facts = || span_attributes(&ctx);
        let answer = pin!(self.answer_request(&ctx, &request.method, params));
        trace::served(self.gateway.watcher(), &request.method, params, facts, answer).await
    }

    async fn not_resumed(&self, ctx: &RequestContext, request: &Request, error: RpcError) -> RpcError {
        let params = request.params.as_deref();
        match principal::identify_caller(ctx, params) {
            Ok((caller, _)) => surfaces::refuse_request_state(&self.gateway, &caller, params, &error).await,
            Err(_) => error,
        }
    }

    async fn notification(&self, session: Arc<Session>, notification: Notification) {
        if let Err(refusal) =
            members::check_member_names(&notification.method, notification.params.as_deref())
        {
            tracing::info!(method = %notification.method, why = %refusal.message, "a notification was dropped");
            return;
        }
        passthrough::notification(&self.gateway, &session, &notification).await;
    }
}

fn span_attributes(ctx: &RequestContext) -> Vec<trace::SpanAttribute> {
    let transport = match ctx.session().transport() {
        Transport::Stdio => "pipe",
        Transport::Http => "tcp",
    };
    let mut facts = vec![("network.transport", transport.into())];
    if let Some(principal) = ctx.session().identity().get::<Principal>() {
        facts.push(("countersign.role", principal.role.as_str().into()));
    }
    facts
}

impl GatewayService {
    async fn answer_request(&self, ctx: &RequestContext, method: &str, params: Option<&RawValue>) -> Reply {
        let (mut caller, surface) = principal::identify_caller(ctx, params)?;
        let request_id = caller.request_id.clone();
        let identified = |error| answer::with_request_id(error, request_id.as_ref());
        if let Err(refusal) = members::check_member_names(method, params) {
            let refused = surfaces::refuse_members(&self.gateway, &caller, method, params, refusal);
            return Box::pin(refused).await.map_err(identified);
        }
        // The limit of the configuration as it is now, not as it was when the connection opened.
        let principal = ctx.session().identity().get::<Principal>();
        let policy = self.gateway.policy.load_full();
        if principal.is_some_and(|principal| principal.mode_limit == ModeLimit::Gateway) {
            caller.scopes.max_mode = policy.max_mode;
        }
        // The same of audiences. A stdio gateway has only upstreams that are for its host.
        if ctx.session().transport() == Transport::Http {
            let upstreams = &policy.config.upstreams;
            principal::keep_to_audience(&mut caller.scopes, caller.role, &caller.principal, upstreams);
        }
        let span = call_log::request_span(&caller, method);
        let reply = pin!(self.route_request(ctx, caller, surface, method, params)).instrument(span).await;
        reply.map_err(identified)
    }

    async fn route_request(
        &self,
        ctx: &RequestContext,
        caller: Caller,
        surface: ToolSurface,
        method: &str,
        params: Option<&RawValue>,
    ) -> Reply {
        if let Some(server) = &self.standalone {
            let answering = standalone::answer(&self.gateway, server.as_ref(), caller, method, params);
            return Box::pin(answering).await;
        }
        match method {
            "tools/list" => {
                self.gateway.wait_for_lists().await;
                surfaces::list_tools(&self.gateway, &caller, surface, CardSupport::of(ctx))
            }
            "tools/call" => {
                TaskRequest { gateway: &self.gateway, ctx, caller: &caller }.call(surface, params).await
            }
            method if (TaskRequest { gateway: &self.gateway, ctx, caller: &caller }).is_about(method) => {
                let tasks = TaskRequest { gateway: &self.gateway, ctx, caller: &caller };
                Box::pin(tasks.answer(method, params)).await
            }
            other => {
                let through = Passthrough { gateway: &self.gateway, ctx, caller: &caller };
                Box::pin(through.request(other, params)).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of a function's future; the function is not called.
    fn future_size<'a, F>(_: impl FnOnce(&'a GatewayService, RequestContext, Request) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    #[test]
    fn the_future_of_a_request_stays_small() {
        // Every request is a task, and a task is copied when it starts: rare stages are boxed.
        let size = future_size(|service, ctx, request| service.request(ctx, request));
        assert!(size <= 6 << 10, "{size} bytes");
    }
}
