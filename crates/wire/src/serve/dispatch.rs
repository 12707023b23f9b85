//! From a parsed message to whoever answers it: the wire's own methods here, everything else the service's.
//! One task per request, one reply per task, whatever happens in it.

use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::ctx::{Ctx, Live, Setting, Unanswered};
use super::listen::ListenFilter;
use super::parking::{Bound, Parking, Return, State};
use super::session::{Client, Session, tagged};
use super::{Description, End, Notice, ServeOptions, Service, Transport};
use crate::era::{self, Era, Version, key};
use crate::frame::{self, Id, Notification, Reply, Request, Response, RpcError, code};
use crate::line::{Ending, Out};
use crate::raw::{self, Raw};
use crate::severity::Severity;

/// What both transports share.
pub(crate) struct Front<S> {
    pub(crate) service: Arc<S>,
    pub(crate) options: ServeOptions,
    pub(crate) parking: Arc<Parking>,
    server_info: OnceLock<Arc<RawValue>>,
}

impl<S: Service> Front<S> {
    pub(crate) fn new(service: Arc<S>, options: ServeOptions) -> Arc<Self> {
        let parking = Parking::new(options.seal.clone(), options.park_ttl);
        Arc::new(Self { service, options, parking, server_info: OnceLock::new() })
    }

    async fn describe(&self, session: &Arc<Session>) -> Description {
        let description = self.service.describe(session).await;
        self.server_info.get_or_init(|| Arc::from(description.server_info.clone()));
        description
    }

    /// The result of `initialize`.
    pub(crate) async fn initialize_result(&self, session: &Arc<Session>) -> Raw {
        let description = self.describe(session).await;
        let mut result = serde_json::Map::new();
        result.insert("protocolVersion".into(), session.version().as_str().into());
        let text = raw::to_raw(&result);
        let mut edits = vec![
            raw::Edit::Set("capabilities", description.capabilities.get()),
            raw::Edit::Set("serverInfo", description.server_info.get()),
        ];
        let instructions = description.instructions.as_deref().map(raw::to_raw);
        if let Some(instructions) = &instructions {
            edits.push(raw::Edit::Set("instructions", instructions.get()));
        }
        raw::edit(&text, &edits).unwrap_or(text)
    }

    /// The result of `server/discover`.
    async fn discover_result(&self, session: &Arc<Session>) -> Raw {
        let description = self.describe(session).await;
        let versions: Vec<&str> = Version::ALL.iter().map(|version| version.as_str()).collect();
        let base = raw::to_raw(&serde_json::json!({
            "resultType": "complete",
            "supportedVersions": versions,
        }));
        let instructions = description.instructions.as_deref().map(raw::to_raw);
        let ttl = description.ttl_ms.to_string();
        let mut edits = vec![
            raw::Edit::Set("capabilities", description.capabilities.get()),
            raw::Edit::Set("ttlMs", &ttl),
            raw::Edit::Set("cacheScope", "\"private\""),
        ];
        if let Some(instructions) = &instructions {
            edits.push(raw::Edit::Set("instructions", instructions.get()));
        }
        let result = raw::edit(&base, &edits).unwrap_or(base);
        era::with_server_info(result, &description.server_info)
    }

    /// Starts a request; the reply and all that belongs to it go to `outlet`. Gives the context unless it was answered at once.
    pub(crate) async fn launch(
        self: &Arc<Self>,
        session: &Arc<Session>,
        outlet: mpsc::Sender<Out>,
        mut request: Request,
    ) -> Option<Ctx> {
        let modern = session.era() == Era::Modern;
        if modern && let Err(error) = era::check_modern_meta(request.params.as_deref()) {
            reply_now(&outlet, &request.id, Err(error)).await;
            return None;
        }
        let token =
            request.params.as_deref().and_then(|params| raw::get_in(params, &["_meta", "progressToken"]));
        let live = Live { id: request.id.clone(), outlet, token: token.map(ToOwned::to_owned) };
        let (mut carried, mut refused) = (Vec::new(), None);
        if modern
            && let Some(state) = self.parking.state_of(&request)
            && self.service.accepts(&request)
        {
            let key = &session.tag().key;
            match state {
                State::Ours(sealed) => match self.parking.take(&sealed, key, &request) {
                    Ok(back) => return Some(resume(session, live, back)),
                    Err(error) => refused = Some(error),
                },
                State::Elsewhere(sealed) => match self.parking.carry(&sealed, key, &request) {
                    Ok(Some(answers)) => {
                        carried = answers;
                        request.params = request.params.map(unsealed);
                    }
                    Ok(None) => {}
                    Err(error) => refused = Some(error),
                },
            }
        }
        let ctx = Ctx::new(Setting {
            session: session.clone(),
            client: modern.then(|| Client::of_meta(request.params.as_deref())),
            bound: (modern && era::may_ask(&request.method)).then(|| Bound::of(request.params.as_deref())),
            level: if modern {
                Severity::of(request.params.as_deref(), &["_meta", key::LOG_LEVEL])
            } else {
                None
            },
            server_info: if modern { self.server_info.get().cloned() } else { None },
            method: request.method.clone(),
            live: live.clone(),
            carried,
        });
        if !session.enter(request.id.clone(), ctx.clone()) {
            let error = RpcError::new(code::INVALID_REQUEST, "a request with this id is in flight already");
            reply_now(&live.outlet, &request.id, Err(error)).await;
            return None;
        }
        let front = self.clone();
        tokio::spawn(front.run(ctx.clone(), live, request, refused));
        Some(ctx)
    }

    async fn run(self: Arc<Self>, ctx: Ctx, live: Live, request: Request, refused: Option<RpcError>) {
        let guard = Unanswered::new(ctx.clone());
        let reply = match refused {
            Some(error) => Err(Box::pin(self.service.not_resumed(&ctx, &request, error)).await),
            None => self.reply(&ctx, live, request).await,
        };
        guard.answer(reply).await;
    }

    async fn reply(&self, ctx: &Ctx, live: Live, request: Request) -> Reply {
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
            // Boxed, so that a call does not carry the room that these need.
            (Era::Modern, "server/discover") => Ok(Box::pin(self.discover_result(&session)).await),
            (Era::Modern, "subscriptions/listen") => Box::pin(self.listen(ctx, live, &request)).await,
            (Era::Modern, method) if era::is_legacy_only(method) => Err(RpcError::method_not_found(method)),
            (Era::Legacy | Era::Modern, _) => {
                // Held while the request runs: a flood of one client waits here, not in the service.
                match session.turn().await {
                    Some(turn) => {
                        ctx.set_turn(Some(turn));
                        let reply = self.ask_service(ctx, request).await;
                        ctx.set_turn(None);
                        reply
                    }
                    None => Err(RpcError::new(code::INTERNAL, "too many requests in flight")),
                }
            }
        }
    }

    async fn ask_service(&self, ctx: &Ctx, request: Request) -> Reply {
        let level = match (ctx.era(), &*request.method) {
            (Era::Legacy, "logging/setLevel") => Severity::of(request.params.as_deref(), &["level"]),
            (Era::Legacy | Era::Modern, _) => None,
        };
        let reply = self.service.request(ctx.clone(), request).await;
        // What one client asked for is its own: another's messages, on the same upstream, are judged by its own level.
        if let (Some(level), Ok(_)) = (level, &reply) {
            ctx.session().set_level(level);
        }
        reply
    }

    /// Keeps a listen stream open until the client ends it.
    async fn listen(&self, ctx: &Ctx, live: Live, request: &Request) -> Reply {
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
        // The acknowledgement is queued before the stream is known to `notify`, so it is always first.
        let acknowledged = live.outlet.send(Out::message(bytes)).await;
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
            self.service.closed(session.clone(), End::LineClosed).await;
        }
        let meta =
            format!(r#"{{"resultType":"complete","_meta":{{"{}":{}}}}}"#, key::SUBSCRIPTION_ID, live.id);
        Ok(raw::from_text(meta).unwrap_or_else(raw::empty_object))
    }

    /// A notification from the client.
    pub(crate) async fn notification(&self, session: &Arc<Session>, notification: Notification) {
        if &*notification.method == "notifications/cancelled" {
            let id = notification.params.as_deref().and_then(|params| raw::get(params, "requestId"));
            if let Some(id) = id.and_then(Id::from_raw) {
                session.cancel(&id);
            }
            return;
        }
        self.service.notification(session.clone(), notification).await;
    }

    /// An answer from the client to a question of ours.
    pub(crate) fn response(&self, session: &Session, response: Response) {
        if !session.answer(response.id.as_ref(), response.reply) {
            self.service.noticed(Some(session), Notice::LateAnswer);
        }
    }
}

/// Goes on with a parked request.
fn resume(session: &Arc<Session>, live: Live, back: Return) -> Ctx {
    session.enter(live.id.clone(), back.ctx.clone());
    // In a task: what was said meanwhile may be more than the client's queue holds.
    let (ctx, unanswered) = (back.ctx.clone(), back.unanswered);
    tokio::spawn(async move { ctx.resume(live, unanswered).await });
    back.ctx
}

/// The params without what was for us.
fn unsealed(params: Raw) -> Raw {
    let edits = [raw::Edit::Remove("requestState"), raw::Edit::Remove("inputResponses")];
    raw::edit(&params, &edits).unwrap_or(params)
}

/// Answers without a context.
pub(crate) async fn reply_now(outlet: &mpsc::Sender<Out>, id: &Id, reply: Reply) {
    let _ = outlet.send(reply_out(Some(id), &reply)).await;
}

pub(crate) fn reply_out(id: Option<&Id>, reply: &Reply) -> Out {
    let mut bytes = Vec::new();
    frame::write_response(&mut bytes, id, reply);
    let end = match reply {
        Ok(_) => Ending::Result,
        Err(error) => Ending::Error(error.code()),
    };
    Out { bytes, end }
}
