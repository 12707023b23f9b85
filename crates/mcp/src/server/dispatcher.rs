//! Routes parsed messages: the protocol's own methods are answered here, everything else by the service. Each request runs in a
//! task of its own and gets exactly one reply, even if its handler panics.

use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::listen_filter::ListenFilter;
use super::parked_requests::{ParkedRequests, RequestBinding, ResumedRequest, SealedRequestState};
use super::request_context::{ContextParams, LiveRequest, ReplyGuard, RequestContext};
use super::session::{ClientInfo, Session, tagged};
use super::{ClientAnomaly, ServeOptions, Service, ServiceDescription, SessionEnd, Transport};
use crate::era::{self, Era, Version, key};
use crate::framing::{FrameOutcome, OutgoingFrame};
use crate::jsonrpc::{self, JsonRpcId, Notification, Reply, Request, Response, RpcError, code};
use crate::log_severity::LogSeverity;
use crate::raw::{self, RawJson};

/// The state both transports share.
pub(crate) struct Dispatcher<S> {
    pub(crate) service: Arc<S>,
    pub(crate) options: ServeOptions,
    pub(crate) parking: Arc<ParkedRequests>,
    server_info: OnceLock<Arc<RawValue>>,
}

impl<S: Service> Dispatcher<S> {
    pub(crate) fn new(service: Arc<S>, options: ServeOptions) -> Arc<Self> {
        let parking = ParkedRequests::new(options.seal.clone(), options.park_ttl);
        Arc::new(Self { service, options, parking, server_info: OnceLock::new() })
    }

    async fn describe(&self, session: &Arc<Session>) -> ServiceDescription {
        let description = self.service.describe(session).await;
        self.server_info.get_or_init(|| Arc::from(description.server_info.clone()));
        description
    }

    pub(crate) async fn initialize_result(&self, session: &Arc<Session>) -> RawJson {
        let description = self.describe(session).await;
        let mut result = serde_json::Map::new();
        result.insert("protocolVersion".into(), session.version().as_str().into());
        let text = raw::to_raw(&result);
        let mut edits = vec![
            raw::MemberEdit::Set("capabilities", description.capabilities.get()),
            raw::MemberEdit::Set("serverInfo", description.server_info.get()),
        ];
        let instructions = description.instructions.as_deref().map(raw::to_raw);
        if let Some(instructions) = &instructions {
            edits.push(raw::MemberEdit::Set("instructions", instructions.get()));
        }
        raw::edit(&text, &edits).unwrap_or(text)
    }

    async fn discover_result(&self, session: &Arc<Session>) -> RawJson {
        let description = self.describe(session).await;
        let versions: Vec<&str> = Version::ALL.iter().map(|version| version.as_str()).collect();
        let base = raw::to_raw(&serde_json::json!({
            "resultType": "complete",
            "supportedVersions": versions,
        }));
        let instructions = description.instructions.as_deref().map(raw::to_raw);
        let ttl = description.ttl_ms.to_string();
        let mut edits = vec![
            raw::MemberEdit::Set("capabilities", description.capabilities.get()),
            raw::MemberEdit::Set("ttlMs", &ttl),
            raw::MemberEdit::Set("cacheScope", "\"private\""),
        ];
        if let Some(instructions) = &instructions {
            edits.push(raw::MemberEdit::Set("instructions", instructions.get()));
        }
        let result = raw::edit(&base, &edits).unwrap_or(base);
        era::with_server_info(result, &description.server_info)
    }

    /// Starts a request; its notifications and its reply go to `outlet`. Returns no context if the request was answered at once.
    pub(crate) async fn launch(
        self: &Arc<Self>,
        session: &Arc<Session>,
        outlet: mpsc::Sender<OutgoingFrame>,
        mut request: Request,
    ) -> Option<RequestContext> {
        let modern = session.era() == Era::Modern;
        // Before anything else: without `_meta` neither the client nor its capabilities are known.
        if modern && let Err(error) = era::check_modern_meta(request.params.as_deref()) {
            reply_now(&outlet, &request.id, Err(error)).await;
            return None;
        }
        let token =
            request.params.as_deref().and_then(|params| raw::get_in(params, &["_meta", "progressToken"]));
        let live = LiveRequest { id: request.id.clone(), outlet, token: token.map(ToOwned::to_owned) };
        let (mut carried, mut refused) = (Vec::new(), None);
        if modern
            && let Some(state) = self.parking.state_of(&request)
            // An ambiguous request must not consume a ticket: the service rejects it first.
            && self.service.accepts(&request)
        {
            let key = &session.identity().key;
            match state {
                SealedRequestState::Ours(sealed) => match self.parking.take(&sealed, key, &request) {
                    Ok(back) => return Some(resume(session, live, back)),
                    Err(error) => refused = Some(error),
                },
                SealedRequestState::Elsewhere(sealed) => match self.parking.carry(&sealed, key, &request) {
                    Ok(Some(answers)) => {
                        carried = answers;
                        // The state is ours, not the upstream's: it must not be passed on.
                        request.params = request.params.map(unsealed);
                    }
                    Ok(None) => {}
                    Err(error) => refused = Some(error),
                },
            }
        }
        let ctx = RequestContext::new(ContextParams {
            session: session.clone(),
            client: modern.then(|| ClientInfo::of_meta(request.params.as_deref())),
            bound: (modern && era::may_ask(&request.method))
                .then(|| RequestBinding::of(request.params.as_deref())),
            level: if modern {
                LogSeverity::of(request.params.as_deref(), &["_meta", key::LOG_LEVEL])
            } else {
                None
            },
            server_info: if modern { self.server_info.get().cloned() } else { None },
            method: request.method.clone(),
            live: live.clone(),
            carried,
        });
        // A cancellation names only the id: of two requests with one id it could hit the wrong one.
        if !session.enter(request.id.clone(), ctx.clone()) {
            let error = RpcError::new(code::INVALID_REQUEST, "a request with this id is in flight already");
            reply_now(&live.outlet, &request.id, Err(error)).await;
            return None;
        }
        let dispatcher = self.clone();
        tokio::spawn(dispatcher.run(ctx.clone(), live, request, refused));
        Some(ctx)
    }

    async fn run(
        self: Arc<Self>,
        ctx: RequestContext,
        live: LiveRequest,
        request: Request,
        refused: Option<RpcError>,
    ) {
        let guard = ReplyGuard::new(ctx.clone());
        let reply = match refused {
            Some(error) => Err(Box::pin(self.service.not_resumed(&ctx, &request, error)).await),
            None => self.reply(&ctx, live, request).await,
        };
        guard.answer(reply).await;
    }

    async fn reply(&self, ctx: &RequestContext, live: LiveRequest, request: Request) -> Reply {
        let session = ctx.session().clone();
        match (session.era(), &*request.method) {
            (_, "ping" | "server/discover" | "subscriptions/listen") if !self.service.accepts(&request) => {
                self.ask_service(ctx, request).await
            }
            (Era::Legacy, "ping") => Ok(raw::empty_object()),
            (Era::Legacy, "initialize") => {
                Err(RpcError::new(code::INVALID_REQUEST, "the session is initialized already"))
            }
            (Era::Legacy, "server/discover" | "subscriptions/listen") => {
                Err(RpcError::method_not_found(&request.method))
            }
            // Boxed: otherwise the future of every call reserves memory for these.
            (Era::Modern, "server/discover") => Ok(Box::pin(self.discover_result(&session)).await),
            (Era::Modern, "subscriptions/listen") => Box::pin(self.listen(ctx, live, &request)).await,
            (Era::Modern, method) if era::is_legacy_only(method) => Err(RpcError::method_not_found(method)),
            (Era::Legacy | Era::Modern, _) => {
                // A flood of one client waits here, not in the service.
                match session.slot().await {
                    Some(slot) => {
                        ctx.set_slot(Some(slot));
                        let reply = self.ask_service(ctx, request).await;
                        ctx.set_slot(None);
                        reply
                    }
                    None => Err(RpcError::new(code::INTERNAL, "too many requests in flight")),
                }
            }
        }
    }

    async fn ask_service(&self, ctx: &RequestContext, request: Request) -> Reply {
        let level = match (ctx.era(), &*request.method) {
            (Era::Legacy, "logging/setLevel") => LogSeverity::of(request.params.as_deref(), &["level"]),
            (Era::Legacy | Era::Modern, _) => None,
        };
        let reply = self.service.request(ctx.clone(), request).await;
        // The level belongs to one client. Others on the same upstream keep theirs.
        if let (Some(level), Ok(_)) = (level, &reply) {
            ctx.session().set_level(level);
        }
        reply
    }

    /// Keeps a listen stream open until the client ends it.
    async fn listen(&self, ctx: &RequestContext, live: LiveRequest, request: &Request) -> Reply {
        let session = ctx.session();
        let Some(wanted) = ListenFilter::from_params(request.params.as_deref()) else {
            return Err(RpcError::invalid_params("`notifications` must be an object"));
        };
        let own_session = session.transport() == Transport::Http;
        if own_session {
            self.service.opened(session.clone()).await;
        }
        let accepted = self.service.listening(session, wanted).await;
        let params = raw::to_raw(&serde_json::json!({ "notifications": accepted }));
        let bytes = tagged("notifications/subscriptions/acknowledged", Some(&params), &live.id);
        // Queued before `notify` knows the stream: the acknowledgement must be its first message.
        let acknowledged = live.outlet.send(OutgoingFrame::message(bytes)).await;
        if acknowledged.is_ok() {
            session.add_listen(live.id.clone(), accepted.clone(), live.outlet.clone());
            tokio::select! {
                () = ctx.cancelled() => {}
                () = session.ended() => {}
                () = live.outlet.closed() => {}
            }
            session.drop_listen(&live.id);
        }
        self.service.unlistened(session, accepted).await;
        if own_session && session.end() {
            self.service.closed(session.clone(), SessionEnd::TransportClosed).await;
        }
        let meta =
            format!(r#"{{"resultType":"complete","_meta":{{"{}":{}}}}}"#, key::SUBSCRIPTION_ID, live.id);
        Ok(raw::from_text(meta).unwrap_or_else(raw::empty_object))
    }

    pub(crate) async fn notification(&self, session: &Arc<Session>, notification: Notification) {
        if &*notification.method == "notifications/cancelled" {
            let id = notification.params.as_deref().and_then(|params| raw::get(params, "requestId"));
            if let Some(id) = id.and_then(JsonRpcId::from_raw) {
                session.cancel(&id);
            }
            return;
        }
        self.service.notification(session.clone(), notification).await;
    }

    pub(crate) fn response(&self, session: &Session, response: Response) {
        if !session.answer(response.id.as_ref(), response.reply) {
            self.service.client_anomaly(Some(session), ClientAnomaly::LateAnswer);
        }
    }
}

/// Continues a parked request.
fn resume(session: &Arc<Session>, live: LiveRequest, back: ResumedRequest) -> RequestContext {
    session.enter(live.id.clone(), back.ctx.clone());
    // A task of its own: the kept notifications may be more than the client's queue holds.
    let (ctx, unanswered) = (back.ctx.clone(), back.unanswered);
    tokio::spawn(async move { ctx.resume(live, unanswered).await });
    back.ctx
}

/// Removes the members that were meant for us.
fn unsealed(params: RawJson) -> RawJson {
    let edits = [raw::MemberEdit::Remove("requestState"), raw::MemberEdit::Remove("inputResponses")];
    raw::edit(&params, &edits).unwrap_or(params)
}

/// Answers without a context.
pub(crate) async fn reply_now(outlet: &mpsc::Sender<OutgoingFrame>, id: &JsonRpcId, reply: Reply) {
    let _ = outlet.send(reply_out(Some(id), &reply)).await;
}

pub(crate) fn reply_out(id: Option<&JsonRpcId>, reply: &Reply) -> OutgoingFrame {
    let mut bytes = Vec::new();
    jsonrpc::write_response(&mut bytes, id, reply);
    let end = match reply {
        Ok(_) => FrameOutcome::Result,
        Err(error) => FrameOutcome::Error(error.code()),
    };
    OutgoingFrame { bytes, end }
}
