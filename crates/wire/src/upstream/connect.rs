//! Opening an upstream: which era it speaks, what it says of itself, and the streams it tells its news on.
//! One era per child process: a child that failed the probe is replaced, not reused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::task::AbortHandle;

use super::http::HttpLink;
use super::pending::{Hub, Waiter, owned};
use super::stdio::StdioLink;
use super::{Connect, Deadline, EraChoice, Identity, RequestOptions, Spec};
use crate::era::{Era, Version, key};
use crate::fault::{Failure, FaultKind, WireFault};
use crate::frame::{self, Id, Reply, RpcError, code};
use crate::mirror;
use crate::raw::{self, Raw};
use crate::serve::{ListenFilter, lock};

const LISTEN: &str = "subscriptions/listen";

/// How the upstream is reached.
pub(super) enum Link {
    Stdio(StdioLink),
    Http(Arc<HttpLink>),
}

/// What an upstream said of itself when it was opened.
struct Facts {
    version: Version,
    server_info: Option<Raw>,
    capabilities: Raw,
    instructions: Option<String>,
}

struct Inner {
    link: Link,
    facts: Facts,
    identity: Identity,
    listening: Mutex<(ListenFilter, Option<AbortHandle>)>,
}

/// An open connection to an upstream; cheap to clone. The child or session ends with `close` or the last clone.
#[derive(Clone)]
pub struct Upstream(Arc<Inner>);

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("version", &self.0.facts.version).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Connects, learning the era unless it is known.
    pub async fn connect(spec: &Spec, plan: Connect) -> Result<Self, Failure> {
        let limit = plan.open_timeout;
        match tokio::time::timeout(limit, Self::open(spec, plan)).await {
            Ok(opened) => opened,
            Err(_) => Err(WireFault::unknown(FaultKind::Timeout(limit)).into()),
        }
    }

    async fn open(spec: &Spec, plan: Connect) -> Result<Self, Failure> {
        let start = || -> Result<Link, WireFault> {
            Ok(match spec {
                Spec::Stdio(spec) => Link::Stdio(StdioLink::start(spec, plan.observer.clone(), plan.limits)?),
                Spec::Http(spec) => Link::Http(HttpLink::start(spec, plan.observer.clone(), plan.limits)?),
            })
        };
        let known = match plan.era {
            EraChoice::Known(era) => Some(era),
            EraChoice::Probe => None,
        };
        if known != Some(Era::Legacy) {
            let trial = Trial::new(start()?, &plan, Version::MODERN);
            let mut found = trial.discover(plan.probe_timeout).await;
            if let Err(Failure::Rpc(error)) = &found
                && speaks_modern_after_all(error)
            {
                found = trial.discover(plan.probe_timeout).await;
            }
            match found {
                Ok(facts) => return Ok(trial.settle(facts, &plan).await),
                Err(failure) if known.is_some() || is_final(&failure) => return Err(failure),
                Err(_) => trial.discard(),
            }
        }
        let trial = Trial::new(start()?, &plan, Version::LATEST_LEGACY);
        let facts = trial.initialize().await?;
        Ok(trial.settle(facts, &plan).await)
    }

    /// The era the upstream speaks; give it back as `EraChoice::Known` next time.
    pub fn era(&self) -> Era {
        self.0.facts.version.era()
    }

    /// The revision agreed on.
    pub fn version(&self) -> Version {
        self.0.facts.version
    }

    /// Who the upstream says it is. Self-reported.
    pub fn server_info(&self) -> Option<&RawValue> {
        self.0.facts.server_info.as_deref()
    }

    /// What the upstream says it can do.
    pub fn capabilities(&self) -> &RawValue {
        &self.0.facts.capabilities
    }

    /// The upstream's guidance for the model.
    pub fn instructions(&self) -> Option<&str> {
        self.0.facts.instructions.as_deref()
    }

    /// Why the connection ended, if it did.
    pub fn fault(&self) -> Option<&WireFault> {
        self.hub().fault()
    }

    /// The last words a child wrote to stderr; empty over HTTP.
    pub fn stderr_tail(&self) -> String {
        match &self.0.link {
            Link::Stdio(link) => link.child.stderr().text(),
            Link::Http(_) => String::new(),
        }
    }

    /// The child's process id, which is its group's as well.
    pub fn process_id(&self) -> Option<i32> {
        match &self.0.link {
            Link::Stdio(link) => Some(link.child.id()),
            Link::Http(_) => None,
        }
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Option<&RawValue>) -> Result<(), WireFault> {
        let mut bytes = Vec::new();
        frame::write_notification(&mut bytes, method, params.map(RawValue::get));
        match &self.0.link {
            Link::Stdio(link) => link.send(bytes).await,
            Link::Http(link) => link.post_notice(bytes).await,
        }
    }

    /// Which notifications a modern upstream is asked for right now.
    pub fn listening(&self) -> ListenFilter {
        lock(&self.0.listening).0.clone()
    }

    /// Asks a modern upstream for these notifications instead; legacy ones send theirs anyway.
    pub async fn listen(&self, filter: ListenFilter) {
        if self.era() == Era::Legacy {
            return;
        }
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
            Link::Stdio(link) => link.close().await,
            Link::Http(link) => link.close().await,
        }
    }

    pub(super) fn hub(&self) -> &Arc<Hub> {
        self.0.link.hub()
    }

    pub(super) fn link(&self) -> &Link {
        &self.0.link
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.0.identity
    }
}

impl Link {
    pub(super) fn hub(&self) -> &Arc<Hub> {
        match self {
            Link::Stdio(link) => &link.hub,
            Link::Http(link) => &link.hub,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.listening).1.take() {
            task.abort();
        }
        if let Link::Http(link) = &self.link {
            link.shut();
        }
    }
}

/// Whether a failed probe says that trying the other era is pointless.
fn is_final(failure: &Failure) -> bool {
    match failure {
        Failure::Rpc(_) => false,
        Failure::Wire(fault) => match &fault.kind {
            FaultKind::Spawn { .. }
            | FaultKind::Connect(_)
            | FaultKind::AddressDenied(_)
            | FaultKind::Unauthorized { .. }
            | FaultKind::Redirect(_) => true,
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

/// Whether a refused version comes with a list in which ours stands: it is asked for once more.
fn speaks_modern_after_all(error: &RpcError) -> bool {
    let supported = raw::get_in(error.as_raw(), &["data", "supported"]).map_or("[]", RawValue::get);
    let supported: Vec<String> = serde_json::from_str(supported).unwrap_or_default();
    error.code() == code::UNSUPPORTED_VERSION && supported.iter().any(|one| one == Version::MODERN.as_str())
}

/// A connection that is not known to work yet.
struct Trial(Upstream);

impl Trial {
    fn new(link: Link, plan: &Connect, version: Version) -> Self {
        if let Link::Http(link) = &link
            && version.era() == Era::Modern
        {
            link.speak(version);
        }
        let facts =
            Facts { version, server_info: None, capabilities: raw::empty_object(), instructions: None };
        Self(Upstream(Arc::new(Inner {
            link,
            facts,
            identity: plan.identity.clone(),
            listening: Mutex::default(),
        })))
    }

    async fn discover(&self, limit: Duration) -> Result<Facts, Failure> {
        let options = RequestOptions { deadline: Deadline::Total(limit), ..RequestOptions::default() };
        let result = self.0.request("server/discover", None, options).await?;
        let versions = raw::get(&result, "supportedVersions").map_or("[]", RawValue::get);
        let offered: Vec<String> = serde_json::from_str(versions).unwrap_or_default();
        if !offered.iter().any(|version| version == Version::MODERN.as_str()) {
            return Err(WireFault::refused(FaultKind::Version(offered.join(", "))).into());
        }
        let info = raw::get_in(&result, &["_meta", key::SERVER_INFO]).map(ToOwned::to_owned);
        Ok(facts_of(&result, Version::MODERN, info))
    }

    async fn initialize(&self) -> Result<Facts, Failure> {
        let identity = self.0.identity();
        let params = raw::to_raw(&serde_json::json!({ "protocolVersion": Version::LATEST_LEGACY.as_str() }));
        let edits = [
            raw::Edit::Set("capabilities", identity.capabilities.get()),
            raw::Edit::Set("clientInfo", identity.client_info.get()),
        ];
        let params = raw::edit(&params, &edits).unwrap_or(params);
        let options = RequestOptions { deadline: Deadline::Never, ..RequestOptions::default() };
        let result = self.0.request("initialize", Some(&params), options).await?;
        let chosen = raw::get_str(&result, "protocolVersion").unwrap_or_default();
        let Some(version) = Version::parse(&chosen).filter(|version| version.era() == Era::Legacy) else {
            return Err(WireFault::refused(FaultKind::Version(chosen.into_owned())).into());
        };
        if let Link::Http(link) = self.0.link() {
            link.speak(version);
        }
        self.0.notify("notifications/initialized", None).await?;
        Ok(facts_of(&result, version, owned(&result, "serverInfo")))
    }

    /// The connection works: write down what was learned and open its news streams.
    async fn settle(self, facts: Facts, plan: &Connect) -> Upstream {
        let mut upstream = self.0;
        if let Some(inner) = Arc::get_mut(&mut upstream.0) {
            inner.facts = facts;
        }
        upstream.hub().settle();
        match (upstream.era(), &upstream.0.link) {
            (Era::Modern, _) => upstream.listen(plan.listen.clone()).await,
            (Era::Legacy, Link::Http(link)) => link.open_news(),
            (Era::Legacy, Link::Stdio(_)) => {}
        }
        upstream
    }

    /// Ends a failed attempt in the background; nobody should wait for its manners.
    fn discard(self) {
        tokio::spawn(async move { self.0.close().await });
    }
}

fn facts_of(result: &RawValue, version: Version, server_info: Option<Raw>) -> Facts {
    Facts {
        version,
        server_info,
        capabilities: owned(result, "capabilities").unwrap_or_else(raw::empty_object),
        instructions: raw::get_str(result, "instructions").map(|text| text.into_owned()),
    }
}

/// Holds `subscriptions/listen` open, and opens it again with growing pauses when it ends.
async fn keep_listening(upstream: std::sync::Weak<Inner>, filter: ListenFilter) {
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
        // Only the line is needed from here on: holding the upstream would keep it alive for its own news.
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
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(30));
    }
}

/// One open `subscriptions/listen`; dropping it cancels the subscription.
struct Listening {
    waiter: Waiter,
    http: Option<(Arc<HttpLink>, Vec<u8>)>,
    owner: std::sync::Weak<Inner>,
}

impl Upstream {
    async fn start_listen(&self, params: &RawValue) -> Result<Listening, WireFault> {
        let id = self.hub().next_id();
        let options = RequestOptions::default();
        let text = self.prepare_plain(id, params, &options);
        let mut bytes = Vec::new();
        frame::write_request(&mut bytes, &Id::number(id), LISTEN, text.as_deref());
        let waiter = self.hub().open(id, None, false, None)?;
        let owner = Arc::downgrade(&self.0);
        match &self.0.link {
            Link::Stdio(link) => {
                link.send(bytes).await?;
                Ok(Listening { waiter, http: None, owner })
            }
            Link::Http(link) => Ok(Listening { waiter, http: Some((link.clone(), bytes)), owner }),
        }
    }
}

impl Listening {
    async fn wait(&mut self) -> Result<Reply, WireFault> {
        let id = self.waiter.id;
        let wait = self.waiter.wait(None, Deadline::Never);
        let Some((link, bytes)) = &self.http else { return wait.await };
        let pump = link.pump(id, bytes.clone(), mirror::outgoing(LISTEN, None, None));
        tokio::pin!(wait, pump);
        tokio::select! {
            biased;
            reply = &mut wait => reply,
            ended = &mut pump => match ended {
                Ok(()) => wait.await,
                Err(fault) => Err(fault),
            },
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        match self.owner.upgrade().as_deref() {
            Some(Inner { link: Link::Stdio(link), .. }) => link.cancel(&self.waiter, "no longer listening"),
            Some(Inner { link: Link::Http(_), .. }) | None => drop(self.waiter.abandon()),
        }
    }
}
