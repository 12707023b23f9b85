//! `countersign serve`: the gateway on stdio or HTTP. Stdout carries protocol only; everything for people goes to stderr.

mod checkpoints;
mod listen;
mod reload;
mod retention;

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use countersign_config::{AgentAuth, Config, ReadDurability, ToolSurface};
use countersign_gateway::assemble::{GatewayEnvironment, assemble, frame_limits};
use countersign_gateway::http;
use countersign_gateway::principal::{ModeLimit, Principal};
use countersign_gateway::service::GatewayService;
use countersign_host_config::Host;
use countersign_mcp::server::{self as wire, HttpOptions, SealKey, ServeOptions, StdioOptions};
use countersign_policy::call::{CallerScopes, HostVouching};
use countersign_policy::digest::Digest;
use countersign_policy::ids::{PrincipalId, SessionId, WriterId};
use countersign_policy::mode::Mode;
use countersign_policy::record::{HostInfo, Source};
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_store::{ConnectOptions, ReadRows, Store, StoreUrl};
use countersign_telemetry::Telemetry;

use self::listen::Listeners;
use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::config_file::{self, ConfigFiles};
use crate::natives::BundledUpstreams;
use crate::output::{banner, plural, visible};
use crate::runtime::{Threads, runtime};
use crate::{environment, log, person, records};

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Serve this process's stdin and stdout; the default
    #[arg(long, conflicts_with = "http")]
    stdio: bool,

    /// Serve streamable HTTP at this address; without one, at `gateway.listen`
    #[arg(long, value_name = "ADDR", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "absent, given without an address, given with one")]
    http: Option<Option<SocketAddr>>,

    /// The role of the stdio connection: agent or human
    #[arg(long, default_value = "agent", value_name = "ROLE")]
    role: String,

    /// The default mode of sessions: ask, plan or execute
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,

    /// The tool surface hosts see: router or direct
    #[arg(long, value_name = "SURFACE")]
    surface: Option<ToolSurface>,

    /// Write the log to this file instead of stderr
    #[arg(long, value_name = "PATH")]
    log_file: Option<std::path::PathBuf>,

    /// The same as `--log-format json`
    #[arg(long)]
    log_json: bool,

    /// Resume the session of this name, with its mode and open plans
    #[arg(long, value_name = "NAME")]
    session: Option<String>,

    /// The host that starts this process: its pauses, grants, limits and rows are its own
    ///
    /// `init` writes it into each host's entry. Together with the folder and the user it names the principal, such as
    /// `claude-code@ada:/home/ada/shop`. Without it the principal is `local-agent`, which all such hosts share.
    #[arg(long, value_name = "NAME", value_parser = plain_name, conflicts_with = "http")]
    host: Option<String>,

    /// The project the host works in, for hosts that start programs elsewhere; else the working directory
    ///
    /// Upstreams with `folders` are served only in those folders.
    #[arg(long, value_name = "DIR", conflicts_with = "http")]
    folder: Option<std::path::PathBuf>,

    /// The name of this gateway's chain in an audit log that several gateways share
    #[arg(long, value_name = "NAME", value_parser = plain_name)]
    replica: Option<String>,
}

/// A name that can be told from others on every page it is shown.
fn plain_name(name: &str) -> Result<String, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if (1..=64).contains(&name.len()) && name.chars().all(plain) {
        Ok(name.to_owned())
    } else {
        Err("a name has 1 to 64 letters, digits, `.`, `_` or `-`".to_owned())
    }
}

/// Who is on a stdio connection. The host's name is what it was started with, never what its client claims: a claim must not
/// open another host's grants.
fn local_principal(role: Role, host: Option<&str>, folder: Option<&str>) -> PrincipalId {
    match (role, host) {
        (Role::Agent, Some(host)) => host_principal(host, &person::our_name(), folder.unwrap_or_default()),
        // A person is one, wherever they are.
        (Role::Agent, None) | (Role::Human, _) => PrincipalId::new(format!("local-{role}")),
    }
}

/// What is known of the host before its client says anything.
fn local_host(host: Option<&str>, folder: Option<&str>) -> Option<HostInfo> {
    let title = host.and_then(Host::named).map(|known| known.title);
    HostInfo::new(host, None, folder).map(|host| host.with_title(title))
}

/// The folder this process works in, as text.
pub(crate) fn working_folder() -> Option<String> {
    std::env::current_dir().map(|folder| folder.display().to_string()).ok()
}

/// The longest folder a principal's name shows, in bytes.
const LONGEST_FOLDER: usize = 160;

/// `host@user:folder`. The colon keeps it apart from every credential's name, which has none.
fn host_principal(host: &str, user: &str, folder: &str) -> PrincipalId {
    let folder = match folder.len() {
        0..=LONGEST_FOLDER => visible(folder).into_owned(),
        _ => Digest::plain(folder.as_bytes()).hex(),
    };
    PrincipalId::new(format!("{host}@{}:{folder}", visible(user)))
}

/// Serves until the connection closes or the process is asked to stop.
pub(crate) fn run(args: &ServeArgs, cli: &Cli) -> CommandResult {
    let role: Role = args.role.parse().map_err(|_| {
        let message = format!("invalid role `{}`: must be agent or human", args.role);
        CommandError::usage("invalid_value", message, "countersign serve --role agent")
    })?;
    let telemetry = log::start_serving(cli, args.log_file.as_deref(), args.log_json)?;
    let served = ServeSetup::read(args, cli, role)?;
    // One line is quickest on one thread; many lines want two.
    let runtime = match served.http {
        None => runtime(Threads::Current)?,
        Some(_) => runtime(Threads::Workers(2))?,
    };
    banner(match role {
        Role::Agent => "MCP server starting in AGENT mode (restricted)",
        Role::Human => "MCP server starting in HUMAN mode (full access)",
    });
    let (transport, version) =
        (if served.http.is_some() { "http" } else { "stdio" }, env!("CARGO_PKG_VERSION"));
    tracing::info!(version, transport, role = role.as_str(), "gateway starting");
    let ended = runtime.block_on(served.serve(telemetry));
    tracing::info!(ok = ended.is_ok(), "gateway stopped");
    ended
}

/// Everything `serve` needs, read before anything starts.
struct ServeSetup {
    config: Config,
    store: StoreUrl,
    around: GatewayEnvironment,
    local: Principal,
    session: SessionId,
    http: Option<SocketAddr>,
    files: ConfigFiles,
    mode: Option<Mode>,
    /// Who started this process over stdio; none where it serves many, or a person.
    audience: Option<HostConnection>,
    replica: Option<String>,
}

/// The host and the folder of a stdio connection.
#[derive(Clone, Debug)]
struct HostConnection {
    host: Option<String>,
    folder: Option<String>,
}

impl HostConnection {
    /// Takes out upstreams that are for other hosts or folders: they are not even started.
    fn keep_own(&self, config: &mut Config) {
        let folder = self.folder.as_ref().map(std::path::Path::new);
        config.upstreams.retain(|one| one.audience.admits(self.host.as_deref(), folder));
    }
}

impl ServeSetup {
    fn read(args: &ServeArgs, cli: &Cli, role: Role) -> Result<Self, CommandError> {
        let files = match config_file::find(&cli.config)? {
            Some(files) => files,
            None => {
                banner(&format!(
                    "no configuration found, serving the defaults without upstreams: {} would be read, \
                     and countersign init writes one",
                    config_file::looked_for()
                ));
                ConfigFiles::none()
            }
        };
        let parsed = files.parse()?;
        let mut config =
            parsed.settle(&|reference| files.look_up(reference)).map_err(|found| files.invalid(&found))?;
        config.gateway.mode = args.mode.unwrap_or(config.gateway.mode);
        let folder = args.folder.as_ref().map(|folder| folder.display().to_string()).or_else(working_folder);
        let audience = (args.http.is_none() && role == Role::Agent)
            .then(|| HostConnection { host: args.host.clone(), folder: folder.clone() });
        if let Some(connection) = &audience {
            connection.keep_own(&mut config);
        }
        let name = match &args.session {
            Some(name) => SessionId::new(format!("stdio:{name}")),
            None => SessionId::new(format!("stdio:{}", uuid::Uuid::new_v4())),
        };
        let local = Principal {
            id: local_principal(role, args.host.as_deref(), folder.as_deref()),
            role,
            credential: None,
            // The host started this process: what its user interface answers is the host's word.
            scopes: CallerScopes {
                max_mode: config.gateway.max_mode,
                vouching: HostVouching::Allowed,
                ..CallerScopes::all()
            },
            mode_limit: ModeLimit::Gateway,
            session: Some(name.clone()),
            surface: args.surface.unwrap_or(config.gateway.surface),
            source: Source::Mcp,
            host: local_host(args.host.as_deref(), folder.as_deref()),
            launcher: environment::launcher(),
        };
        Ok(Self {
            store: records::locate(None, cli)?,
            around: GatewayEnvironment {
                ambient: environment::all(),
                folder: absolute(&files.folder),
                desk_url: None,
                expects_roots: false,
                natives: Some(Arc::new(BundledUpstreams)),
                keys: crate::local_gateway::keys(),
                ignores_grants: false,
            },
            http: args.http.map(|address| address.unwrap_or(config.gateway.listen)),
            local,
            session: name,
            config,
            files,
            mode: args.mode,
            audience,
            replica: args.replica.clone(),
        })
    }

    /// The port of the page beside a stdio connection, by the configuration's path.
    fn usual_port(&self) -> u16 {
        let name = self.files.sources.first().map(|source| source.name.clone()).unwrap_or_default();
        let path = std::path::Path::new(&name);
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| self.around.folder.join(path));
        listen::usual_port(&path)
    }

    async fn serve(self, mut telemetry: Telemetry) -> CommandResult {
        let url = self.store.clone();
        let options = ConnectOptions {
            reads: match self.config.ledger.reads {
                ReadDurability::Soon => ReadRows::Soon,
                ReadDurability::Sync => ReadRows::Sync,
            },
            ..records::options(&self.store)
        };
        let options =
            checkpoints::with_place(options, self.config.ledger.checkpoints.as_ref(), &self.around.folder);
        let options = match &self.replica {
            Some(name) => ConnectOptions { writer: WriterId::new(name.as_str()), ..options },
            None => options,
        };
        let store =
            Store::connect(&self.store, options).await.map_err(|fault| records::trouble(&fault, &url))?;
        let recovered =
            store.recover(jiff::Timestamp::now()).await.map_err(|fault| records::trouble(&fault, &url))?;
        if !recovered.plans.is_empty() {
            let plans = plural(recovered.plans.len(), "plan");
            banner(&format!("under way when the last gateway died, outcome unknown: {plans}"));
        }
        let openness = self.config.gateway.agent_auth;
        let mut listeners =
            Listeners::take(self.http, &self.config, &self.around.folder, self.usual_port()).await?;
        let around = GatewayEnvironment {
            desk_url: listeners.desk_url.clone(),
            expects_roots: listeners.hosts.is_some(),
            ..self.around
        };
        let built = assemble(&self.config, store.clone(), around);
        let (gateway, refresher, assembly) = built.map_err(|cannot| {
            let refusal = Refusal::new(Code::ConfigInvalid, cannot.to_string());
            CommandError::refused(refusal, "countersign policy check")
        })?;
        telemetry.observe(&gateway);
        countersign_gateway::replicas::join(&gateway);
        let overrides = reload::ServeOverrides { mode: self.mode, audience: self.audience };
        tokio::spawn(reload::follow(self.files, overrides, Arc::clone(&gateway), refresher, assembly));
        if let Some(keep) = self.config.ledger.keep {
            tokio::spawn(retention::keep(store.clone(), url.clone(), keep));
        }
        let mut opened = listeners.open_desk(&gateway, &store).await;
        let face = GatewayService::new(Arc::clone(&gateway), self.local, openness);
        let mut serve = ServeOptions::new(seal_key(&store));
        serve.limits = frame_limits(&self.config);
        let ended = match listeners.hosts {
            None => {
                let options = StdioOptions::new(serve, wire::SessionId::new(self.session.as_str()));
                let ended = wire::serve_stdio(Arc::new(face), options).await;
                if let Some(desk) = &mut opened {
                    desk.stop();
                }
                ended
            }
            Some(listening) => {
                let usual = HttpOptions::loopback(serve);
                let options = HttpOptions {
                    allowed_hosts: listen::allowed_hosts(&self.config, &usual.allowed_hosts),
                    sessions_per_principal: listen::count(self.config.limits.sessions),
                    // One principal never has all the connections.
                    requests_per_principal: listen::count(self.config.limits.connections / 2).max(1),
                    ..usual
                };
                let (mut router, front) = http::routes(Arc::clone(&gateway), face, options);
                banner(&format!("listening on {}/mcp", listening.url(&self.config.gateway.hosts)?));
                banner(match openness {
                    AgentAuth::Required => {
                        "agents need a credential there: countersign token create --role agent --may-vouch"
                    }
                    AgentAuth::LoopbackOpen => {
                        "agent_auth = \"loopback-open\": every program on this machine may call as an agent"
                    }
                });
                let mut at_the_end: Option<Box<dyn FnOnce() + Send>> = None;
                if let Some(desk) = &mut opened {
                    if let Some(pages) = desk.pages.take() {
                        router = router.merge(pages);
                    }
                    at_the_end = Some(desk.stopper());
                }
                let (told, stopping) = tokio::sync::oneshot::channel();
                let listeners = Arc::clone(&front);
                let until = async move {
                    stopped().await;
                    // Pages and hosts that listen would keep the listener open.
                    if let Some(stop) = at_the_end {
                        stop();
                    }
                    listeners.close_event_streams();
                    let _ = told.send(());
                };
                let served = tokio::select! {
                    served = listening.serve(router, until) => served,
                    () = patience(stopping) => Ok(()),
                };
                front.shutdown().await;
                served
            }
        };
        if let Some(desk) = opened {
            desk.ended().await;
        }
        for upstream in gateway.upstreams.load().values() {
            upstream.close().await;
        }
        if let Some(runs) = gateway.runs() {
            runs.close().await;
        }
        let flushed = store.flush().await;
        telemetry.close().await;
        flushed.map_err(|fault| records::trouble(&fault, &url))?;
        ended.map_err(|error| CommandError::fault("serving ended", error))?;
        Ok(Answer::default())
    }
}

/// How long calls that are under way keep a gateway that was told to stop.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Ends when those who are still here had their time since the gateway was told to stop.
async fn patience(stopping: tokio::sync::oneshot::Receiver<()>) {
    match stopping.await {
        Ok(()) => tokio::time::sleep(PATIENCE).await,
        // The sender is gone with the listener, which reports the reason itself.
        Err(_) => std::future::pending().await,
    }
}

/// What seals the questions stateless clients carry: the same for all replicas of a store, and after a restart.
fn seal_key(store: &Store) -> SealKey {
    let secret = Digest::plain(&[b"countersign request state\0", store.salt()].concat());
    SealKey::new(secret.bytes())
}

fn absolute(folder: &std::path::Path) -> std::path::PathBuf {
    // An empty path means here, and only `.` can be made absolute.
    let here = if folder.as_os_str().is_empty() { std::path::Path::new(".") } else { folder };
    std::path::absolute(here).unwrap_or_else(|_| here.to_owned())
}

/// Returns when the process is asked to stop.
pub(crate) async fn stopped() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = interrupt => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = interrupt.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_the_host_the_user_and_the_folder() {
        let name = |host, user, folder: &str| host_principal(host, user, folder).to_string();
        assert_eq!(name("codex", "ada", "/home/ada/shop"), "codex@ada:/home/ada/shop");
        assert_ne!(name("codex", "ada", "/a"), name("codex", "ada", "/b"));
        // What can't be seen is shown, and no folder makes a name without an end.
        assert!(!name("codex", "a\u{202e}", "/a\u{1b}[2J").chars().any(char::is_control));
        let (one, other) = (name("codex", "ada", &"x".repeat(9000)), name("codex", "ada", &"x".repeat(9001)));
        assert!(one.len() < 100 && one != other, "{one}");
        assert_eq!(local_principal(Role::Human, Some("codex"), None).as_str(), "local-human");
        assert_eq!(local_principal(Role::Agent, None, None).as_str(), "local-agent");
    }
}
