//! `countersign serve`: the gateway on stdio or HTTP. Stdout carries protocol only; everything for people goes to stderr.

mod checkpoints;
mod listen;
mod reload;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use countersign_core::call::{Scopes, Vouching};
use countersign_core::config::{AgentAuth, Config, Reads, Surface};
use countersign_core::digest::Digest;
use countersign_core::ids::{PrincipalId, SessionId, WriterId};
use countersign_core::mode::Mode;
use countersign_core::record::Source;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_gateway::assemble::{Surroundings, assemble, frame_limits};
use countersign_gateway::http;
use countersign_gateway::line::{ModeLimit, Principal};
use countersign_gateway::service::Face;
use countersign_store::{ConnectOptions, ReadRows, Store, StoreUrl};
use countersign_wire::serve::{self as wire, HttpOptions, SealKey, ServeOptions, StdioOptions};

use self::listen::Listeners;
use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::cli::Cli;
use crate::config_file::{self, ConfigFiles};
use crate::natives::Own;
use crate::output::plural;
use crate::telemetry::Telemetry;
use crate::{environment, records};

/// What `serve` takes.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Serve this process's stdin and stdout; the default
    #[arg(long, conflicts_with = "http")]
    stdio: bool,

    /// Serve streamable HTTP at this address; without one, at `gateway.listen`
    #[arg(long, value_name = "ADDR", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "absent, given without an address, given with one")]
    http: Option<Option<SocketAddr>>,

    /// Who is on a stdio line: agent or human
    #[arg(long, default_value = "agent", value_name = "ROLE")]
    role: String,

    /// The default mode of sessions: ask, plan or execute
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,

    /// What hosts see: router or direct
    #[arg(long, value_name = "SURFACE")]
    surface: Option<Surface>,

    /// How much is logged
    #[arg(long, value_enum, default_value_t = Level::Warn, value_name = "LEVEL")]
    log: Level,

    /// Write the log to this file instead of stderr
    #[arg(long, value_name = "PATH")]
    log_file: Option<std::path::PathBuf>,

    /// Write the log as JSON lines
    #[arg(long)]
    log_json: bool,

    /// Take up the session of this name again, with its mode and open plans
    #[arg(long, value_name = "NAME")]
    session: Option<String>,

    /// This gateway's own chain in a ledger that several gateways share
    #[arg(long, value_name = "NAME", value_parser = replica_name)]
    replica: Option<String>,
}

/// A name that can be told from others on every page it is shown.
fn replica_name(name: &str) -> Result<String, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if (1..=64).contains(&name.len()) && name.chars().all(plain) {
        Ok(name.to_owned())
    } else {
        Err("a name has 1 to 64 letters, digits, `.`, `_` or `-`".to_owned())
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// What is broken
    Error,
    /// And what is odd
    Warn,
    /// And what happens
    Info,
    /// And how
    Debug,
}

/// Logs go to stderr or a file, never to stdout, which is the protocol's.
fn start_log(args: &Serve) -> Result<(), Trouble> {
    let level = match args.log {
        Level::Error => tracing::Level::ERROR,
        Level::Warn => tracing::Level::WARN,
        Level::Info => tracing::Level::INFO,
        Level::Debug => tracing::Level::DEBUG,
    };
    let base = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_target(false);
    let set = match (&args.log_file, args.log_json) {
        (None, false) => base.with_writer(std::io::stderr).try_init(),
        (None, true) => base.json().with_writer(std::io::stderr).try_init(),
        (Some(path), json) => {
            let open = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let file = open.map_err(|error| {
                let message = format!("can't write `{}`: {}", path.display(), config_file::why(&error));
                Trouble::usage("invalid_value", message, "countersign serve --log-file PATH")
            })?;
            let file = std::sync::Mutex::new(file);
            if json { base.json().with_writer(file).try_init() } else { base.with_writer(file).try_init() }
        }
    };
    // A second subscriber can't be set: the first one goes on.
    let _ = set;
    Ok(())
}

/// Serves until the line closes or the process is told to stop.
pub(crate) fn run(args: &Serve, cli: &Cli) -> Outcome {
    let role: Role = args.role.parse().map_err(|_| {
        let message = format!("invalid role `{}`: must be agent or human", args.role);
        Trouble::usage("invalid_value", message, "countersign serve --role agent")
    })?;
    start_log(args)?;
    let served = Served::read(args, cli, role)?;
    // One line is quickest on one thread; many lines want two.
    let runtime = match served.http {
        None => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        Some(_) => tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build(),
    };
    let runtime = runtime.map_err(|error| broken("the runtime can't be started", &error))?;
    banner(match role {
        Role::Agent => "MCP server starting in AGENT mode (restricted)",
        Role::Human => "MCP server starting in HUMAN mode (full access)",
    });
    runtime.block_on(served.serve())
}

/// Everything `serve` needs, read before anything starts.
struct Served {
    config: Config,
    store: StoreUrl,
    around: Surroundings,
    local: Principal,
    session: SessionId,
    http: Option<SocketAddr>,
    files: ConfigFiles,
    mode: Option<Mode>,
    replica: Option<String>,
}

impl Served {
    fn read(args: &Serve, cli: &Cli, role: Role) -> Result<Self, Trouble> {
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
        let name = match &args.session {
            Some(name) => SessionId::new(format!("stdio:{name}")),
            None => SessionId::new(format!("stdio:{}", uuid::Uuid::new_v4())),
        };
        let local = Principal {
            id: PrincipalId::new(format!("local-{role}")),
            role,
            credential: None,
            // The host started this process: what its user interface answers is the host's word.
            scopes: Scopes {
                max_mode: config.gateway.max_mode,
                vouching: Vouching::Allowed,
                ..Scopes::all()
            },
            mode_limit: ModeLimit::Gateway,
            session: Some(name.clone()),
            surface: args.surface.unwrap_or(config.gateway.surface),
            source: Source::Mcp,
        };
        Ok(Self {
            store: records::locate(None, cli)?,
            around: Surroundings {
                ambient: environment::all(),
                folder: absolute(&files.folder),
                desk_url: None,
                natives: Some(Arc::new(Own)),
                keys: crate::house::keys(),
            },
            http: args.http.map(|address| address.unwrap_or(config.gateway.listen)),
            local,
            session: name,
            config,
            files,
            mode: args.mode,
            replica: args.replica.clone(),
        })
    }

    async fn serve(self) -> Outcome {
        let url = self.store.clone();
        let options = ConnectOptions {
            reads: match self.config.ledger.reads {
                Reads::Soon => ReadRows::Soon,
                Reads::Sync => ReadRows::Sync,
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
        let mut listeners = Listeners::take(self.http, &self.config, &self.around.folder).await?;
        let around = Surroundings { desk_url: listeners.desk_url.clone(), ..self.around };
        let built = assemble(&self.config, store.clone(), around);
        let (house, keeper, assembly) = built.map_err(|cannot| {
            let refusal = Refusal::new(Code::ConfigInvalid, cannot.to_string());
            Trouble::refused(refusal, "countersign policy check")
        })?;
        let telemetry = Telemetry::watch(&house);
        countersign_gateway::replicas::join(&house);
        tokio::spawn(reload::follow(self.files, self.mode, Arc::clone(&house), keeper, assembly));
        let mut opened = listeners.open_desk(&house, &store).await;
        let face = Face::new(Arc::clone(&house), self.local, openness);
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
                let (mut router, front) = http::routes(Arc::clone(&house), face, options);
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
                    listeners.hush();
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
        for upstream in house.upstreams.load().values() {
            upstream.close().await;
        }
        if let Some(runs) = house.runs() {
            runs.close().await;
        }
        let flushed = store.flush().await;
        telemetry.close().await;
        flushed.map_err(|fault| records::trouble(&fault, &url))?;
        ended.map_err(|error| broken("serving ended", &error))?;
        Ok(Answer::default())
    }
}

/// How long calls that are under way keep a gateway that was told to stop.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Ends when those who are still here had their time since the gateway was told to stop.
async fn patience(stopping: tokio::sync::oneshot::Receiver<()>) {
    match stopping.await {
        Ok(()) => tokio::time::sleep(PATIENCE).await,
        // Whoever would tell is gone with the listener, which says why itself.
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

/// A line for people, on stderr. One that can't be read by anyone is no reason to stop.
pub(crate) fn banner(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns when the process is told to stop.
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

fn broken(what: &str, error: &std::io::Error) -> Trouble {
    let refusal = Refusal::new(Code::StoreUnavailable, what.to_owned());
    Refused { inside: Some(error.to_string()), ..refusal.into() }.into()
}
