//! Opens a connection: detects the era, reads the server's description, and subscribes to its notifications. Each child process is
//! used for one era: one that failed the probe is replaced, not reused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::task::AbortHandle;

use super::http::HttpLink;
use super::pending_requests::{PendingRequests, ReplyWaiter, owned};
use super::stdio::StdioLink;
use super::{ClientIdentity, Deadline, EraChoice, RequestOptions, UpstreamOptions, UpstreamSpec};
use crate::era::{Era, Version, key};
use crate::fault::{FaultKind, RequestFailure, TransportFault};
use crate::jsonrpc::{self, JsonRpcId, Reply, RpcError, code};
use crate::mirrored_headers;
use crate::raw::{self, RawJson};
use crate::server::{ListenFilter, lock};

const LISTEN: &str = "subscriptions/listen";

pub(super) enum UpstreamLink {
    Stdio(StdioLink),
    Http(Arc<HttpLink>),
}

/// What an upstream reported when it was opened.
struct UpstreamInfo {
    version: Version,
    server_info: Option<RawJson>,
    capabilities: RawJson,
    instructions: Option<String>,
}

struct UpstreamInner {
    link: UpstreamLink,
    facts: UpstreamInfo,
    identity: ClientIdentity,
    listening: Mutex<(ListenFilter, Option<AbortHandle>)>,
}

/// An open connection; cheap to clone. The child or session ends with `close` or the last clone.
#[derive(Clone)]
pub struct Upstream(Arc<UpstreamInner>);

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("version", &self.0.facts.version).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Connects, and detects the era unless it is known.
    pub async fn connect(spec: &UpstreamSpec, plan: UpstreamOptions) -> Result<Self, RequestFailure> {
        let limit = plan.open_timeout;
        match tokio::time::timeout(limit, Self::open(spec, plan)).await {
            Ok(opened) => opened,
            // Over the whole opening, not per request: two eras and slow starts must not add up.
            Err(_) => Err(TransportFault::unknown(FaultKind::Timeout(limit)).into()),
        }
    }

    async fn open(spec: &UpstreamSpec, plan: UpstreamOptions) -> Result<Self, RequestFailure> {
        let start = || -> Result<UpstreamLink, TransportFault> {
            Ok(match spec {
                UpstreamSpec::Stdio(spec) => {
                    UpstreamLink::Stdio(StdioLink::start(spec, plan.observer.clone(), plan.limits)?)
                }
                UpstreamSpec::Http(spec) => {
                    UpstreamLink::Http(HttpLink::start(spec, plan.observer.clone(), plan.limits)?)
                }
            })
        };
        let legacy = || start().map(|link| TrialConnection::new(link, &plan, Version::LATEST_LEGACY));
        match plan.era {
            EraChoice::Known(Era::Legacy) => {}
            EraChoice::Known(Era::Modern) => {
                let trial = TrialConnection::new(start()?, &plan, Version::MODERN);
                let facts = trial.probe(plan.open_timeout).await?;
                return Ok(trial.settle(facts, &plan).await);
            }
            EraChoice::Probe => {
                let modern = TrialConnection::new(start()?, &plan, Version::MODERN);
                // Modern first: a legacy server answers the probe with an error, while a modern one may not know
                // `initialize`.
                if let Some((trial, facts)) = TrialConnection::race(modern, &legacy, &plan).await? {
                    return Ok(trial.settle(facts, &plan).await);
                }
            }
        }
        let trial = legacy()?;
        let facts = trial.initialize().await?;
        Ok(trial.settle(facts, &plan).await)
    }

    /// For `EraChoice::Known` next time.
    pub fn era(&self) -> Era {
        self.0.facts.version.era()
    }

    pub fn version(&self) -> Version {
        self.0.facts.version
    }

    /// Self-reported.
    pub fn server_info(&self) -> Option<&RawValue> {
        self.0.facts.server_info.as_deref()
    }

    pub fn capabilities(&self) -> &RawValue {
        &self.0.facts.capabilities
    }

    pub fn instructions(&self) -> Option<&str> {
        self.0.facts.instructions.as_deref()
    }

    pub fn fault(&self) -> Option<&TransportFault> {
        self.pending().fault()
    }

    /// The end of the child's stderr; empty over HTTP.
    pub fn stderr_tail(&self) -> String {
        match &self.0.link {
            UpstreamLink::Stdio(link) => link.child.stderr().text(),
            UpstreamLink::Http(_) => String::new(),
        }
    }

    /// The child's process id, which is also its group's.
    pub fn process_id(&self) -> Option<i32> {
        match &self.0.link {
            UpstreamLink::Stdio(link) => Some(link.child.id()),
            UpstreamLink::Http(_) => None,
        }
    }

    pub async fn notify(&self, method: &str, params: Option<&RawValue>) -> Result<(), TransportFault> {
        let mut bytes = Vec::new();
        jsonrpc::write_notification(&mut bytes, method, params.map(RawValue::get));
        match &self.0.link {
            UpstreamLink::Stdio(link) => link.send(bytes).await,
            UpstreamLink::Http(link) => link.post_notice(bytes).await,
        }
    }

    /// The notifications subscribed to at a modern upstream.
    pub fn listening(&self) -> ListenFilter {
        lock(&self.0.listening).0.clone()
    }

    /// Replaces the subscription at a modern upstream; legacy ones send all notifications anyway.
    pub async fn listen(&self, filter: ListenFilter) {
        if self.era() == Era::Legacy {
            return;
        }
        // A category that the server does not offer could make it reject the whole subscription.
        let offered = filter.offered_by(self.capabilities());
        let mut listening = lock(&self.0.listening);
        if let Some(task) = listening.1.take() {
            task.abort();
        }
        if !offered.is_empty() {
            let (weak, offered) = (Arc::downgrade(&self.0), offered.clone());
            listening.1 = Some(tokio::spawn(keep_listening(weak, offered)).abort_handle());
        }
        listening.0 = filter;
    }

    /// Ends the connection: the child and its group, or the HTTP session.
    pub async fn close(&self) {
        if let Some(task) = lock(&self.0.listening).1.take() {
            task.abort();
        }
        match &self.0.link {
            UpstreamLink::Stdio(link) => link.close().await,
            UpstreamLink::Http(link) => link.close().await,
        }
    }

    pub(super) fn pending(&self) -> &Arc<PendingRequests> {
        self.0.link.pending()
    }

    pub(super) fn link(&self) -> &UpstreamLink {
        &self.0.link
    }

    pub(super) fn identity(&self) -> &ClientIdentity {
        &self.0.identity
    }
}

impl UpstreamLink {
    pub(super) fn pending(&self) -> &Arc<PendingRequests> {
        match self {
            UpstreamLink::Stdio(link) => &link.pending,
            UpstreamLink::Http(link) => &link.pending,
        }
    }
}

impl Drop for UpstreamInner {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.listening).1.take() {
            task.abort();
        }
        if let UpstreamLink::Http(link) = &self.link {
            link.stop_streams();
        }
    }
}

/// Whether a failed probe makes trying the other era pointless.
fn is_final(failure: &RequestFailure) -> bool {
    match failure {
        RequestFailure::Rpc(_) => false,
        RequestFailure::Wire(fault) => match &fault.kind {
            FaultKind::Spawn { .. }
            | FaultKind::Connect(_)
            | FaultKind::AddressDenied(_)
            | FaultKind::Unauthorized { .. }
            // These happen before any server speaks MCP.
            | FaultKind::Redirect(_) => true,
            // 500 alone is not final: legacy servers answer an unknown method with it.
            FaultKind::Status { status, .. } => *status == 429 || *status > 500,
            FaultKind::Timeout(_)
            | FaultKind::Closed(_)
            | FaultKind::SessionExpired
            | FaultKind::Protocol(_)
            | FaultKind::TooLarge(_)
            | FaultKind::Version(_) => false,
        },
    }
}

/// Whether a rejection lists a version that we speak: the request is then sent once more.
fn speaks_modern_after_all(error: &RpcError) -> bool {
    let supported = raw::get_in(error.as_raw(), &["data", "supported"]).map_or("[]", RawValue::get);
    let supported: Vec<String> = serde_json::from_str(supported).unwrap_or_default();
    error.code() == code::UNSUPPORTED_VERSION && supported.iter().any(|one| one == Version::MODERN.as_str())
}

/// A connection that is not known to work yet.
struct TrialConnection(Upstream);

impl TrialConnection {
    fn new(link: UpstreamLink, plan: &UpstreamOptions, version: Version) -> Self {
        // A modern request names its revision in a header; `initialize` must not name one before it is agreed on.
        if let UpstreamLink::Http(link) = &link
            && version.era() == Era::Modern
        {
            link.set_version(version);
        }
        let facts = UpstreamInfo {
            version,
            server_info: None,
            capabilities: raw::empty_object(),
            instructions: None,
        };
        Self(Upstream(Arc::new(UpstreamInner {
            link,
            facts,
            identity: plan.identity.clone(),
            listening: Mutex::default(),
        })))
    }

    /// Probes the modern era. A silent upstream is not given up, as it may start slowly on a busy machine: after `probe_timeout` a second
    /// connection tries the legacy era, and the first answer wins. None if the modern era was rejected and the legacy one is still to
    /// be tried.
    async fn race(
        modern: Self,
        legacy: &impl Fn() -> Result<Self, TransportFault>,
        plan: &UpstreamOptions,
    ) -> Result<Option<(Self, UpstreamInfo)>, RequestFailure> {
        let mut probe = Box::pin(modern.probe(plan.open_timeout));
        let early = tokio::time::timeout(plan.probe_timeout, &mut probe).await;
        let found = match early {
            Ok(found) => found,
            Err(_) => {
                tracing::debug!(after = ?plan.probe_timeout, "server/discover unanswered, trying initialize too");
                // A child of its own: one that got `server/discover` first may have given up on its client.
                let other = legacy()?;
                let mut opening = Box::pin(other.initialize());
                let first = tokio::select! {
                    found = &mut probe => Err(found),
                    opened = &mut opening => Ok(opened),
                };
                match first {
                    Err(Ok(facts)) => Ok(facts),
                    Err(Err(_)) => {
                        let facts = opening.await?;
                        return Ok(Some((other, facts)));
                    }
                    Ok(Ok(facts)) => {
                        drop(opening);
                        return Ok(Some((other, facts)));
                    }
                    Ok(Err(failure)) => Ok(probe.as_mut().await.map_err(|_| failure)?),
                }
            }
        };
        drop(probe);
        match found {
            Ok(facts) => Ok(Some((modern, facts))),
            // A server that is down, redirects or wants a token does so in every era: report that, not the legacy error.
            Err(failure) if is_final(&failure) => Err(failure),
            Err(failure) => {
                tracing::debug!(%failure, "server/discover rejected, trying initialize");
                modern.discard();
                Ok(None)
            }
        }
    }

    /// Sends `server/discover`, once more if the rejection lists our version.
    async fn probe(&self, limit: Duration) -> Result<UpstreamInfo, RequestFailure> {
        match self.discover(limit).await {
            Err(RequestFailure::Rpc(error)) if speaks_modern_after_all(&error) => self.discover(limit).await,
            found => found,
        }
    }

    async fn discover(&self, limit: Duration) -> Result<UpstreamInfo, RequestFailure> {
        let options = RequestOptions { deadline: Deadline::Total(limit), ..RequestOptions::default() };
        let result = self.0.request("server/discover", None, options).await?;
        let versions = raw::get(&result, "supportedVersions").map_or("[]", RawValue::get);
        let offered: Vec<String> = serde_json::from_str(versions).unwrap_or_default();
        // A newer server may answer `server/discover` without speaking our revision.
        if !offered.iter().any(|version| version == Version::MODERN.as_str()) {
            return Err(TransportFault::refused(FaultKind::Version(offered.join(", "))).into());
        }
        let info = raw::get_in(&result, &["_meta", key::SERVER_INFO]).map(ToOwned::to_owned);
        Ok(facts_of(&result, Version::MODERN, info))
    }

    async fn initialize(&self) -> Result<UpstreamInfo, RequestFailure> {
        let identity = self.0.identity();
        let params = raw::to_raw(&serde_json::json!({ "protocolVersion": Version::LATEST_LEGACY.as_str() }));
        let edits = [
            raw::MemberEdit::Set("capabilities", identity.capabilities.get()),
            raw::MemberEdit::Set("clientInfo", identity.client_info.get()),
        ];
        let params = raw::edit(&params, &edits).unwrap_or(params);
        // `connect` has the deadline; a second one here would cut off a child that starts slowly.
        let options = RequestOptions { deadline: Deadline::Never, ..RequestOptions::default() };
        let result = self.0.request("initialize", Some(&params), options).await?;
        let chosen = raw::get_str(&result, "protocolVersion").unwrap_or_default();
        // The server chooses. Whatever it names, we must speak it from now on.
        let Some(version) = Version::parse(&chosen).filter(|version| version.era() == Era::Legacy) else {
            return Err(TransportFault::refused(FaultKind::Version(chosen.into_owned())).into());
        };
        if let UpstreamLink::Http(link) = self.0.link() {
            link.set_version(version);
        }
        // Before anything else: a legacy server may reject requests until it has seen this.
        self.0.notify("notifications/initialized", None).await?;
        Ok(facts_of(&result, version, owned(&result, "serverInfo")))
    }

    /// The connection works: stores its description and opens its notification streams.
    async fn settle(self, facts: UpstreamInfo, plan: &UpstreamOptions) -> Upstream {
        let mut upstream = self.0;
        // The trial is not shared yet, so this always succeeds.
        if let Some(inner) = Arc::get_mut(&mut upstream.0) {
            inner.facts = facts;
        }
        // Ends are reported from now on: that of a discarded trial is no outage of the upstream.
        upstream.pending().settle();
        let (version, era) = (upstream.version().as_str(), upstream.era());
        let transport = match &upstream.0.link {
            UpstreamLink::Stdio(_) => "stdio",
            UpstreamLink::Http(_) => "http",
        };
        tracing::debug!(version, ?era, transport, "protocol negotiated with an upstream");
        match (upstream.era(), &upstream.0.link) {
            (Era::Modern, _) => upstream.listen(plan.listen.clone()).await,
            (Era::Legacy, UpstreamLink::Http(link)) => link.open_notification_stream(),
            (Era::Legacy, UpstreamLink::Stdio(_)) => {}
        }
        upstream
    }

    /// Ends a failed attempt in the background, so that nobody waits for its exit.
    fn discard(self) {
        tokio::spawn(async move { self.0.close().await });
    }
}

fn facts_of(result: &RawValue, version: Version, server_info: Option<RawJson>) -> UpstreamInfo {
    UpstreamInfo {
        version,
        server_info,
        capabilities: owned(result, "capabilities").unwrap_or_else(raw::empty_object),
        instructions: raw::get_str(result, "instructions").map(|text| text.into_owned()),
    }
}

/// Keeps `subscriptions/listen` open and reopens it with growing pauses.
async fn keep_listening(upstream: std::sync::Weak<UpstreamInner>, filter: ListenFilter) {
    let params = raw::to_raw(&serde_json::json!({ "notifications": filter }));
    let mut pause = Duration::from_millis(500);
    loop {
        let Some(inner) = upstream.upgrade() else { return };
        let upstream_now = Upstream(inner);
        if upstream_now.fault().is_some() {
            return;
        }
        let started = tokio::time::Instant::now();
        let opened = upstream_now.start_listen(&params).await;
        // Holds only the link: holding the upstream would keep it alive for its own notifications.
        drop(upstream_now);
        if let Ok(mut listening) = opened {
            // An error reply: the upstream does not offer it after all.
            if let Ok(Err(_)) = listening.wait().await {
                return;
            }
        }
        if started.elapsed() > Duration::from_secs(60) {
            pause = Duration::from_millis(500);
        }
        tracing::debug!(?pause, "listen stream ended, reopening");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(30));
    }
}

/// One open `subscriptions/listen`; dropping it cancels the subscription.
struct UpstreamSubscription {
    waiter: ReplyWaiter,
    http: Option<(Arc<HttpLink>, Vec<u8>)>,
    owner: std::sync::Weak<UpstreamInner>,
}

impl Upstream {
    async fn start_listen(&self, params: &RawValue) -> Result<UpstreamSubscription, TransportFault> {
        let id = self.pending().next_id();
        let options = RequestOptions::default();
        let text = self.prepare_plain(id, params, &options);
        let mut bytes = Vec::new();
        jsonrpc::write_request(&mut bytes, &JsonRpcId::number(id), LISTEN, text.as_deref());
        let waiter = self.pending().open(id, None, false, None)?;
        let owner = Arc::downgrade(&self.0);
        match &self.0.link {
            UpstreamLink::Stdio(link) => {
                link.send(bytes).await?;
                Ok(UpstreamSubscription { waiter, http: None, owner })
            }
            UpstreamLink::Http(link) => {
                Ok(UpstreamSubscription { waiter, http: Some((link.clone(), bytes)), owner })
            }
        }
    }
}

impl UpstreamSubscription {
    async fn wait(&mut self) -> Result<Reply, TransportFault> {
        let id = self.waiter.id;
        let wait = self.waiter.wait(None, Deadline::Never);
        let Some((link, bytes)) = &self.http else { return wait.await };
        let send_and_read =
            link.send_and_read(id, bytes.clone(), mirrored_headers::outgoing(LISTEN, None, None));
        tokio::pin!(wait, send_and_read);
        tokio::select! {
            biased;
            reply = &mut wait => reply,
            ended = &mut send_and_read => match ended {
                Ok(()) => wait.await,
                Err(fault) => Err(fault),
            },
        }
    }
}

impl Drop for UpstreamSubscription {
    fn drop(&mut self) {
        match self.owner.upgrade().as_deref() {
            Some(UpstreamInner { link: UpstreamLink::Stdio(link), .. }) => {
                link.cancel(&self.waiter, "no longer listening")
            }
            Some(UpstreamInner { link: UpstreamLink::Http(_), .. }) | None => drop(self.waiter.abandon()),
        }
    }
}
