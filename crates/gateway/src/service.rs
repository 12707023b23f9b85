//! The house's face to the wire: who is let in, and which room a request goes to.

use std::pin::pin;
use std::sync::Arc;

use countersign_core::call::{Scopes, Vouching};
use countersign_core::config::{AgentAuth, Surface};
use countersign_core::ids::{PrincipalId, Secret, SessionId};
use countersign_core::record::Source;
use countersign_core::role::Role;
use countersign_store::{Credential, SavedLine, StoreFault, secret_digest};
use countersign_wire::era::{Era, Version};
use countersign_wire::frame::{Notification, Reply, Request, RpcError};
use countersign_wire::mirror::Mirrors;
use countersign_wire::raw::{self, Raw};
use countersign_wire::serve::{
    self as wire, Ctx, Description, End, HttpRefusal, Notice, Opening, Replies, Saved, Service, Session, Tag,
    Transport,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cards::Cards;
use crate::failed_credentials::{self, FailedTry};
use crate::house::House;
use crate::line::{self, ModeLimit, Principal};
use crate::passthrough::{self, Passage};
use crate::surfaces;
use crate::tasks::{self, Tasks};
use crate::trace;

/// Guidance for the model, said when a session opens.
const INSTRUCTIONS: &str = "Every tool here is governed. Modes: ask (inspect), plan (preview), execute (change); set_mode \
    changes the mode of this session. A change asks for confirmation first: an answer with status confirmation_required \
    has changed nothing. Show its preview, end the turn, and go on only after the user agreed.";

/// Answered to a secret that opens nothing. One text for all three: it tells nobody which secrets once worked.
const ENDED: &str =
    "the credential is unknown, expired or revoked: `countersign token create --role agent` makes another";

/// A face of the house on one transport.
pub struct Face {
    house: Arc<House>,
    /// Who a stdio line is; HTTP lines show who they are.
    local: Principal,
    /// Whether HTTP lines on this machine need a credential.
    openness: AgentAuth,
}

impl Face {
    /// A face whose stdio line is `local`.
    pub fn new(house: Arc<House>, local: Principal, openness: AgentAuth) -> Self {
        Self { house, local, openness }
    }
}

impl Face {
    /// Whether a line on this machine may do without a credential: as started, and as configured now. A reload can close
    /// what was open; what was started closed stays closed.
    fn is_open(&self) -> bool {
        self.openness == AgentAuth::LoopbackOpen
            && self.house.law.load().agent_auth == AgentAuth::LoopbackOpen
    }

    /// The live credential of a secret. A try with any other is a row of the ledger.
    async fn by_secret(&self, secret: &Secret, opening: &Opening<'_>) -> Result<Credential, HttpRefusal> {
        let found = self.house.store.credential(secret_digest(secret)).await;
        let found = found.map_err(|fault| unavailable(&fault))?;
        match found {
            Some(credential) if credential.is_live(self.house.now()) => Ok(credential),
            ended => {
                let failed = FailedTry {
                    secret,
                    credential: ended.as_ref(),
                    source: Source::Mcp,
                    peer: opening.peer,
                    route: opening.path,
                };
                Box::pin(failed_credentials::record(&self.house, failed)).await;
                Err(unauthorized(ENDED))
            }
        }
    }

    /// A credential names its holder; without one, on loopback, a line is the local agent, if the configuration lets it.
    async fn over_http(&self, opening: &Opening<'_>) -> Result<Tag, HttpRefusal> {
        let surface = match opening.path {
            "/mcp/router" => Surface::Router,
            "/mcp/direct" => Surface::Direct,
            _ => self.local.surface,
        };
        let bearer = opening.headers.get("authorization").and_then(|value| value.to_str().ok());
        let bearer =
            bearer.and_then(|text| text.strip_prefix("Bearer ").or_else(|| text.strip_prefix("bearer ")));
        let local = opening.peer.is_none_or(|peer| peer.ip().is_loopback());
        match bearer {
            Some(secret) => {
                let credential = self.by_secret(&Secret::new(secret.trim()), opening).await?;
                Ok(line::tag(Principal {
                    surface,
                    ..Principal::of_credential(&credential, self.house.law.load().max_mode)
                }))
            }
            None if local && self.is_open() => {
                // Whatever started this process, an HTTP line without a credential is an agent's, and nothing tells its
                // host from the agent.
                let principal = Principal {
                    id: PrincipalId::new("local-agent"),
                    role: Role::Agent,
                    scopes: Scopes { vouching: Vouching::Denied, ..self.local.scopes.clone() },
                    session: None,
                    surface,
                    ..self.local.clone()
                };
                Ok(line::tag(principal))
            }
            None => Err(unauthorized(
                "a credential is needed, as `Authorization: Bearer …`: `countersign token create --role agent` makes one",
            )),
        }
    }
}

/// A session as the store keeps it.
fn saved_line(saved: &Saved) -> SavedLine {
    let value =
        |text: &Option<Raw>| text.as_ref().and_then(|text| serde_json::from_str::<Value>(text.get()).ok());
    SavedLine {
        owner: saved.tag_key.clone(),
        saved: json!({
            "version": saved.version.as_str(),
            "path": saved.path,
            "client_info": value(&saved.client_info),
            "capabilities": value(&saved.capabilities),
        }),
    }
}

/// A kept session as the wire takes it.
fn restored(line: &SavedLine) -> Option<Saved> {
    let part = |name: &str| line.saved.get(name).filter(|part| !part.is_null()).map(raw::to_raw);
    Some(Saved {
        tag_key: line.owner.clone(),
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

impl Service for Face {
    async fn authenticate(&self, opening: &Opening<'_>) -> Result<Tag, HttpRefusal> {
        match opening.transport {
            Transport::Stdio => Ok(line::tag(self.local.clone())),
            Transport::Http => self.over_http(opening).await,
        }
    }

    async fn describe(&self, session: &Arc<Session>) -> Description {
        // What upstreams offer is said once, when a session opens: they get a moment to say it to us.
        self.house.settled().await;
        Description {
            server_info: raw::to_raw(&json!({
                "name": "countersign",
                "title": "Countersign",
                "version": env!("CARGO_PKG_VERSION"),
            })),
            capabilities: tasks::capability(&self.house, session, passthrough::capabilities(&self.house)),
            instructions: Some(INSTRUCTIONS.to_owned()),
            ttl_ms: 0,
        }
    }

    async fn opened(&self, session: Arc<Session>) {
        self.house.remember(&session);
        if session.transport() == Transport::Http && session.era() == Era::Legacy {
            let id = SessionId::new(session.id().as_str());
            if let Err(fault) =
                self.house.store.save_line(&id, &saved_line(&session.saved()), self.house.now()).await
            {
                tracing::warn!(fault = fault.inside(), "a session will not survive a restart");
            }
        }
    }

    async fn closed(&self, session: Arc<Session>, end: End) {
        let over = match end {
            End::Deleted | End::Expired => true,
            End::LineClosed | End::Shutdown => false,
        };
        if over && session.transport() == Transport::Http {
            // One that stays is swept with the other old ones.
            let _ = self.house.store.forget_line(&SessionId::new(session.id().as_str())).await;
        }
    }

    async fn restore(&self, id: &wire::SessionId, tag: &Tag) -> Option<Saved> {
        let line = self.house.store.saved_line(&SessionId::new(id.as_str())).await.ok()??;
        let saved = restored(&line)?;
        (*saved.tag_key == *tag.key).then_some(saved)
    }

    async fn restored(&self, session: Arc<Session>) {
        self.house.remember(&session);
    }

    async fn mirrors(&self, session: &Arc<Session>, tool: &str) -> Option<Arc<Mirrors>> {
        let direct = session.tag().get::<Principal>()?.surface == Surface::Direct;
        let catalog = self.house.catalog.load();
        catalog.by_direct_name(tool).filter(|_| direct).and_then(|listed| listed.mirrors.clone())
    }

    fn replies(&self, _session: &Session) -> Replies {
        // A server that is served bare answers as the SDKs' servers do: every reply on a stream that can be taken up again.
        if self.house.catalog.load().is_bare() { Replies::Streamed } else { Replies::Plain }
    }

    fn noticed(&self, session: Option<&Session>, notice: Notice) {
        let session = session.map(|session| session.id().as_str().to_owned());
        tracing::info!(?session, ?notice, "noticed on a line");
    }

    async fn request(&self, ctx: Ctx, request: Request) -> Reply {
        let params = request.params.as_deref();
        let facts = || about(&ctx);
        let answer = pin!(self.answer(&ctx, &request.method, params));
        trace::served(self.house.watcher(), &request.method, params, facts, answer).await
    }

    async fn not_resumed(&self, ctx: &Ctx, request: &Request, error: RpcError) -> RpcError {
        let params = request.params.as_deref();
        match line::caller(ctx, params) {
            Ok((caller, _)) => surfaces::refuse_state(&self.house, &caller, params, &error).await,
            Err(_) => error,
        }
    }

    async fn notification(&self, _session: Arc<Session>, notification: Notification) {
        // Roots and whatever extensions say go to the one upstream that is served bare; others have no addressee.
        if let Some(only) = self.house.bare_upstream() {
            only.notify(&notification.method, notification.params.as_deref()).await;
        }
    }
}

/// What is told of the line a request came on.
fn about(ctx: &Ctx) -> Vec<trace::Fact> {
    let transport = match ctx.session().transport() {
        Transport::Stdio => "pipe",
        Transport::Http => "tcp",
    };
    let mut facts = vec![("network.transport", transport.into())];
    if let Some(principal) = ctx.session().tag().get::<Principal>() {
        facts.push(("countersign.role", principal.role.as_str().into()));
    }
    facts
}

impl Face {
    async fn answer(&self, ctx: &Ctx, method: &str, params: Option<&RawValue>) -> Reply {
        let (mut caller, surface) = line::caller(ctx, params)?;
        // What the configuration says now, not what it said when the line was opened.
        let principal = ctx.session().tag().get::<Principal>();
        if principal.is_some_and(|principal| principal.mode_limit == ModeLimit::Gateway) {
            caller.scopes.max_mode = self.house.law.load().max_mode;
        }
        match method {
            "tools/list" => {
                self.house.settled().await;
                surfaces::list(&self.house, &caller, surface, Cards::of(ctx))
            }
            "tools/call" => {
                self.house.settled().await;
                Tasks { house: &self.house, ctx, caller: &caller }.call(surface, params).await
            }
            method if (Tasks { house: &self.house, ctx, caller: &caller }).is_about(method) => {
                let tasks = Tasks { house: &self.house, ctx, caller: &caller };
                Box::pin(tasks.answer(method, params)).await
            }
            other => {
                let passage = Passage { house: &self.house, ctx, caller: &caller };
                Box::pin(passage.request(other, params)).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much room the future of a function takes; the function is not called.
    fn room<'a, F>(_: impl FnOnce(&'a Face, Ctx, Request) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    #[test]
    fn a_request_carries_no_room_for_what_it_does_not_do() {
        // Every request is a task, and a task is copied when it starts: what is rare is boxed where it begins.
        let room = room(|face, ctx, request| face.request(ctx, request));
        assert!(room <= 6 << 10, "{room} bytes");
    }
}
