//! Where `serve` listens: for hosts, for people, or for both at one address. Addresses are bound before the gateway is built, so
//! that plans can say where a person decides. What others can reach needs credentials and TLS, or a proxy that is said to be there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use countersign_config::{AgentAuth, Config, ListenerGuards, TlsFiles, exposure};
use countersign_gateway::state::GatewayState;
use countersign_mcp::server::{Certificate, ConnectionLimits, listen};
use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::Store;
use countersign_web::{WebOptions, WebState, mount, mount_alone};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::PATIENCE;
use crate::command_result::{CommandError, Fault};
use crate::config_file;
use crate::output::banner;

/// The longest certificate chain or key that is read.
const LONGEST: u64 = 1 << 20;

pub(super) struct BoundListener {
    listener: TcpListener,
    certificate: Option<Certificate>,
    limits: ConnectionLimits,
}

impl BoundListener {
    async fn take(
        address: SocketAddr,
        certificate: Option<Certificate>,
        config: &Config,
    ) -> Result<Self, CommandError> {
        Ok(Self { listener: bind(address).await?, certificate, limits: connection_limits(config) })
    }

    /// Where it is reached, as far as it knows itself.
    pub(super) fn url(&self, hosts: &[String]) -> Result<String, CommandError> {
        let local = self
            .listener
            .local_addr()
            .map_err(|error| CommandError::fault("the address is unknown", error))?;
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        let host = match (local.ip().is_unspecified(), hosts.first()) {
            (true, None) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), local.port()).to_string(),
            (true, Some(name)) => format!("{name}:{}", local.port()),
            (false, _) => local.to_string(),
        };
        Ok(format!("{scheme}://{host}"))
    }

    pub(super) async fn serve(
        self,
        router: axum::Router,
        until: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        listen(self.listener, self.certificate, router, self.limits, until).await
    }
}

pub(super) struct Listeners {
    pub(super) hosts: Option<BoundListener>,
    /// For people, where that is an address of its own.
    people: Option<BoundListener>,
    pub(super) desk_url: Option<String>,
    aside: ImplicitDesk,
    options: WebOptions,
}

/// Whether the page was not asked for: beside a stdio connection, on loopback, at any free port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ImplicitDesk {
    Yes,
    No,
}

/// How long a desk may take to answer before it counts as gone.
const KNOCK: std::time::Duration = std::time::Duration::from_millis(300);

/// Ports of pages beside stdio connections: below those that systems give to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// The port of a configuration's page: the same at each start, so that an open page and a bookmark go on working.
pub(super) fn usual_port(config: &Path) -> u16 {
    let digest = Digest::plain(config.as_os_str().as_encoded_bytes());
    let number =
        digest.bytes().iter().fold(0_u64, |sum, byte| sum.wrapping_mul(257).wrapping_add(u64::from(*byte)));
    let span = u64::from(PORTS.end - PORTS.start);
    PORTS.start.saturating_add(u16::try_from(number % span).unwrap_or_default())
}

/// The page beside a stdio connection, at its configuration's port; where that is taken, at any other.
async fn beside(usual_port: u16, config: &Config) -> Option<BoundListener> {
    let at = |port: u16| BoundListener::take((Ipv4Addr::LOCALHOST, port).into(), None, config);
    if let Ok(listening) = at(usual_port).await {
        return Some(listening);
    }
    let other = at(0).await.ok()?;
    let url = other.url(&[]).ok()?;
    banner(&format!(
        "port {usual_port}, where the page of this configuration usually is, is taken, maybe by another host's gateway: this one is at {url}"
    ));
    Some(other)
}

/// Remembers a desk for `countersign open`. One aside gives way to one that is there already and outlives it.
async fn remember(store: Store, url: String, aside: ImplicitDesk) {
    if aside == ImplicitDesk::Yes
        && let Ok(Some(known)) = store.desk_url().await
        && let Some(authority) = known.split_once("://").and_then(|(_, rest)| rest.split('/').next())
        && let Ok(Ok(_)) = tokio::time::timeout(KNOCK, tokio::net::TcpStream::connect(authority)).await
    {
        return;
    }
    // Only `countersign open` needs it, and says so when it is missing.
    let _ = store.set_desk_url(&url).await;
}

impl Listeners {
    /// Takes the addresses. People can decide on a page wherever agents ask, beside a stdio line too; there it is a help, not a
    /// need: where its address is taken, another gateway of this configuration has it.
    pub(super) async fn take(
        http: Option<SocketAddr>,
        config: &Config,
        folder: &Path,
        usual_port: u16,
    ) -> Result<Self, CommandError> {
        let hosts = match http {
            Some(address) => {
                guarded(address, config.gateway.guards())?;
                let certificate = certificate(config.gateway.tls.as_ref(), folder)?;
                Some(BoundListener::take(address, certificate, config).await?)
            }
            None => None,
        };
        let mut aside = ImplicitDesk::No;
        let people = match (config.desk.listen, http) {
            (None, Some(_)) => None,
            // Where people decide is said to be elsewhere.
            (None, None) if config.desk.url.is_some() => None,
            (None, None) => {
                aside = ImplicitDesk::Yes;
                beside(usual_port, config).await
            }
            (Some(address), _) => {
                let tls = config.desk.tls.as_ref().or(config.gateway.tls.as_ref());
                // Nobody comes in at the desk without a credential, whatever agents may do.
                guarded(
                    address,
                    ListenerGuards { tls, agent_auth: AgentAuth::Required, ..config.gateway.guards() },
                )?;
                match (BoundListener::take(address, certificate(tls, folder)?, config).await, http) {
                    (Ok(listening), _) => Some(listening),
                    (Err(trouble), Some(_)) => return Err(trouble),
                    (Err(_), None) => {
                        banner(&format!("no desk here: {address} is taken"));
                        None
                    }
                }
            }
        };
        let found = match people.as_ref().or(hosts.as_ref()) {
            Some(listening) => Some(listening.url(&config.gateway.hosts)?),
            None => None,
        };
        let desk_url = config.desk.url.clone().or(found);
        let options = WebOptions {
            allowed_hosts: allowed_hosts(config, &WebOptions::loopback().allowed_hosts),
            secure: desk_url.as_deref().is_some_and(|url| url.starts_with("https://")),
            ..WebOptions::loopback()
        };
        Ok(Self { hosts, people, desk_url, aside, options })
    }

    /// Serves the desk: at its own address until the end, or as a router for the hosts' listener.
    pub(super) async fn open_desk(&mut self, gateway: &Arc<GatewayState>, store: &Store) -> Option<OpenDesk> {
        // Without a listener the desk is somewhere else, if anywhere.
        if self.people.is_none() && self.hosts.is_none() {
            return None;
        }
        let url = self.desk_url.clone()?;
        let desk = WebState::new(Arc::clone(gateway), self.options.clone());
        let remembering = remember(store.clone(), url.clone(), self.aside);
        match self.aside {
            // The connection was asked for, not the page: do not wait for it.
            ImplicitDesk::Yes => drop(tokio::spawn(remembering)),
            ImplicitDesk::No => {
                remembering.await;
                banner(&format!("desk at {url}/ (countersign open signs you in)"));
            }
        }
        match self.people.take() {
            None => {
                let pages = Some(mount(&desk));
                Some(OpenDesk { desk, pages, stop: None, listening: None })
            }
            Some(listening) => {
                let (stop, stopped) = oneshot::channel::<()>();
                let until = async move { stopped.await.unwrap_or_default() };
                let listening = Some(tokio::spawn(listening.serve(mount_alone(&desk), until)));
                Some(OpenDesk { desk, pages: None, stop: Some(stop), listening })
            }
        }
    }
}

pub(super) struct OpenDesk {
    desk: Arc<WebState>,
    /// Its routes, where it shares the hosts' listener.
    pub(super) pages: Option<axum::Router>,
    stop: Option<oneshot::Sender<()>>,
    listening: Option<JoinHandle<std::io::Result<()>>>,
}

impl OpenDesk {
    /// Ends the streams of pages that listen, and takes no more requests.
    pub(super) fn stop(&mut self) {
        self.stopper()();
    }

    pub(super) fn stopper(&mut self) -> Box<dyn FnOnce() + Send> {
        let (desk, stop) = (Arc::clone(&self.desk), self.stop.take());
        Box::new(move || {
            desk.close();
            drop(stop);
        })
    }

    /// Waits until requests in progress were answered.
    pub(super) async fn ended(self) {
        let Some(listening) = self.listening else { return };
        if tokio::time::timeout(PATIENCE, listening).await.is_err() {
            banner("requests at the desk were cut off: what they had begun is in the ledger");
        }
    }
}

/// A number of the configuration as a number of things.
pub(super) fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// `[limits]` as a listener takes them.
fn connection_limits(config: &Config) -> ConnectionLimits {
    let limits = &config.limits;
    ConnectionLimits {
        total: count(limits.connections),
        per_peer: count(limits.connections_per_peer),
        header_timeout: limits.header_timeout,
        idle_timeout: limits.idle_timeout,
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address).await.map_err(|error| {
        let next = Some("name a free address: countersign serve --http 127.0.0.1:0".to_owned());
        let (message, inside) = (format!("can't listen on {address}: {error}"), error.to_string());
        CommandError::Fault(Box::new(Fault { message, next, inside }))
    })
}

/// Refuses an address that others can reach and nothing guards.
fn guarded(address: SocketAddr, guards: ListenerGuards<'_>) -> Result<(), CommandError> {
    exposure(address, guards).map_err(|exposed| {
        CommandError::refused(Refusal::new(Code::ConfigInvalid, exposed.to_string()), exposed.remedy())
    })
}

fn certificate(files: Option<&TlsFiles>, folder: &Path) -> Result<Option<Certificate>, CommandError> {
    let Some(files) = files else { return Ok(None) };
    let bad = |path: &Path, why: &str| {
        let refusal = Refusal::new(Code::ConfigInvalid, format!("`{}`: {why}", path.display()));
        CommandError::refused(refusal, "write [gateway.tls] with a certificate chain and its key, both PEM")
    };
    let read = |name: &str| {
        let path = folder.join(name);
        config_file::read_text(&path, LONGEST).map_err(|why| bad(&path, &why))
    };
    let (chain, key) = (read(&files.cert)?, read(&files.key)?);
    let made = Certificate::from_pem(chain.as_bytes(), key.as_bytes());
    made.map(Some).map_err(|why| bad(&folder.join(&files.cert), &why))
}

/// The names this gateway answers to: those of this machine for itself, what is configured, and its own address.
pub(super) fn allowed_hosts(config: &Config, local: &[String]) -> Vec<String> {
    let mut names = local.to_vec();
    names.extend(config.gateway.hosts.iter().cloned());
    let listens = [Some(config.gateway.listen), config.desk.listen];
    for ip in listens.into_iter().flatten().map(|address| address.ip()).filter(|ip| !ip.is_unspecified()) {
        names.push(if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() });
    }
    if let Some(host) = config.desk.url.as_deref().and_then(host_of) {
        names.push(host.to_owned());
    }
    names
}

/// The name in an address, without scheme, port and path.
fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some(name),
        _ => Some(authority),
    }
}
