//! `memory serve`: the memory's tools on stdin and stdout. The role is fixed at the start. Writes nothing but protocol to stdout;
//! messages go to stderr.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use countersign_mcp::server::{SealKey, ServeOptions, SessionId, StdioOptions, serve_stream};
use countersign_memory::{Memory, server};
use countersign_policy::record::Source;
use countersign_policy::role::Role;
use countersign_store::{ConnectOptions, Store, StoreUrl};
use countersign_terminal::command_result::{Answer, CommandError, CommandResult};
use countersign_terminal::global_args::GlobalArgs;
use countersign_terminal::output::{banner, visible};
use countersign_terminal::runtime::{Threads, runtime};
use countersign_terminal::{config_file, records};

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign memory serve
  countersign memory serve --mode human --folder ../project";

/// What `memory serve` takes.
#[derive(Args, Debug)]
pub(crate) struct MemoryServeArgs {
    /// Who is on the line: agent or human
    #[arg(long, default_value = "agent", value_name = "ROLE")]
    mode: String,

    /// The project's folder, for rooms and files; else the configuration's
    #[arg(long, value_name = "PATH")]
    folder: Option<PathBuf>,

    /// The session's name in the ledger
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
}

/// Serves until the client closes the connection.
pub(crate) fn run(args: &MemoryServeArgs, cli: &GlobalArgs, url: &StoreUrl) -> CommandResult {
    let role = role(&args.mode)?;
    let folder = folder(args, cli)?;
    let session = args.session.clone().unwrap_or_else(|| format!("memory-{}", std::process::id()));
    let runtime = runtime(Threads::Workers(1))?;
    let served = runtime.block_on(async {
        let options = ConnectOptions { readers: 2, ..records::options(url) };
        let store = Store::connect(url, options).await.map_err(|fault| records::trouble(&fault, url))?;
        let memory = Memory::new(store.clone(), folder);
        let gateway = server::open(memory, role, &session, Source::Mcp).await;
        let gateway = gateway.map_err(|cannot| broken(&cannot.to_string()))?;
        banner(match role {
            Role::Agent => "\u{1f916} MCP server starting in AGENT mode (restricted)",
            Role::Human => "\u{26a0}\u{fe0f}  MCP server starting in HUMAN mode (full access)",
        });
        let options =
            StdioOptions::new(ServeOptions::new(SealKey::random()), SessionId::new(session.as_str()));
        let service = Arc::new(gateway.service());
        let served = serve_stream(service, tokio::io::stdin(), tokio::io::stdout(), options).await;
        // A read's row may still be on its way.
        store.flush().await.map_err(|fault| records::trouble(&fault, url))?;
        served.map_err(|error| broken(&error.to_string()))
    });
    // A blocked read of stdin must not keep the process.
    runtime.shutdown_background();
    served.map(|()| Answer::default())
}

/// The role a mode names; an empty one is the most restricted.
fn role(mode: &str) -> Result<Role, CommandError> {
    let named = if mode.is_empty() { "agent" } else { mode };
    named.parse().map_err(|_| {
        let message = format!("invalid mode: {} (must be 'agent' or 'human')", visible(mode));
        CommandError::usage("invalid_value", message, "countersign memory serve --mode agent")
    })
}

/// The project: the folder named, else the configuration's, else where the command is typed.
fn folder(args: &MemoryServeArgs, cli: &GlobalArgs) -> Result<PathBuf, CommandError> {
    if let Some(folder) = &args.folder {
        return Ok(folder.clone());
    }
    let folder = config_file::find(&cli.config)?.map(|files| files.folder).unwrap_or_default();
    Ok(if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder })
}

fn broken(inside: &str) -> CommandError {
    CommandError::fault("the memory can't be served", inside)
}
