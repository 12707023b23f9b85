//! `memory serve`: the memory's tools on stdin and stdout. The role is fixed here, at the start. Nothing but protocol on
//! stdout; whatever else is to be said goes to stderr.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use countersign_core::call::Arguments;
use countersign_core::record::Source;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_memory::Memory;
use countersign_memory::line::{Line, Said};
use countersign_memory::tools;
use countersign_store::{ConnectOptions, Store, StoreUrl};
use countersign_wire::frame::{Reply as Answered, Request, RpcError};
use countersign_wire::raw;
use countersign_wire::serve::{
    Ctx, Description, HttpRefusal, Opening, SealKey, ServeOptions, Service, Session, SessionId, StdioOptions,
    Tag, serve_line,
};
use serde_json::json;

use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::cli::Cli;
use crate::commands::serve::banner;
use crate::{config_file, records};

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign memory serve
  countersign memory serve --mode human --folder ../project";

/// What `memory serve` takes.
#[derive(Args, Debug)]
pub(crate) struct Serve {
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

/// Serves until the client closes the line.
pub(crate) fn run(args: &Serve, cli: &Cli, url: &StoreUrl) -> Outcome {
    let role: Role = args.mode.parse().map_err(|_| {
        let message = format!("invalid mode `{}`: must be agent or human", args.mode);
        Trouble::usage("invalid_value", message, "countersign memory serve --mode agent")
    })?;
    let folder = folder(args, cli)?;
    let session = args.session.clone().unwrap_or_else(|| format!("memory-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| broken(&error.to_string()))?;
    let served = runtime.block_on(async {
        let options = ConnectOptions { readers: 2, ..records::options(url) };
        let store = Store::connect(url, options).await.map_err(|fault| records::trouble(&fault, url))?;
        let memory = Memory::new(store.clone(), folder);
        let line = Line::new(memory, role, &session, Source::Mcp).map_err(|why| broken(&why))?;
        banner(match role {
            Role::Agent => "MCP server starting in AGENT mode (restricted)",
            Role::Human => "MCP server starting in HUMAN mode (full access)",
        });
        let options =
            StdioOptions::new(ServeOptions::new(SealKey::random()), SessionId::new(session.as_str()));
        let served =
            serve_line(Arc::new(Desk { line }), tokio::io::stdin(), tokio::io::stdout(), options).await;
        // A read's row may still be on its way.
        store.flush().await.map_err(|fault| records::trouble(&fault, url))?;
        served.map_err(|error| broken(&error.to_string()))
    });
    // A blocked read of stdin must not keep the process.
    runtime.shutdown_background();
    served.map(|()| Answer::default())
}

/// The project: the folder named, else the configuration's, else where the command is typed.
fn folder(args: &Serve, cli: &Cli) -> Result<PathBuf, Trouble> {
    if let Some(folder) = &args.folder {
        return Ok(folder.clone());
    }
    let folder = config_file::find(&cli.config)?.map(|files| files.folder).unwrap_or_default();
    Ok(if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder })
}

fn broken(inside: &str) -> Trouble {
    let refusal = Refusal::new(Code::StoreUnavailable, "the memory can't be served");
    Refused { inside: Some(inside.to_owned()), ..refusal.into() }.into()
}

struct Desk {
    line: Line,
}

impl Service for Desk {
    async fn authenticate(&self, _: &Opening<'_>) -> Result<Tag, HttpRefusal> {
        Ok(Tag::new("local", Arc::new(())))
    }

    async fn describe(&self, _: &Arc<Session>) -> Description {
        Description {
            server_info: raw::to_raw(&json!({
                "name": "countersign-memory", "title": "Governed memory", "version": env!("CARGO_PKG_VERSION"),
            })),
            capabilities: raw::to_raw(&json!({"tools": {}})),
            instructions: Some(tools::INSTRUCTIONS.to_owned()),
            ttl_ms: 3_600_000,
        }
    }

    async fn request(&self, _: Ctx, request: Request) -> Answered {
        match &*request.method {
            "tools/list" => Ok(raw::to_raw(&json!({"tools": tools::definitions_for(self.line.role())}))),
            "tools/call" => self.call(&request).await,
            other => Err(RpcError::method_not_found(other)),
        }
    }
}

impl Desk {
    async fn call(&self, request: &Request) -> Answered {
        let params = request.params.as_deref();
        let name = params.and_then(|params| raw::get_str(params, "name"));
        let Some(name) = name else { return Err(RpcError::invalid_params("`name` is missing")) };
        let given = params.and_then(|params| raw::get(params, "arguments")).map(|value| value.get());
        let arguments = match given {
            None | Some("null") => Arguments::none(),
            Some(text) => {
                let read = Arguments::parse(text.as_bytes());
                read.map_err(|error| RpcError::invalid_params(&error.to_string()))?
            }
        };
        match self.line.call(&name, arguments).await {
            Said::Answer(envelope) => {
                let value = envelope.to_value();
                Ok(raw::to_raw(&json!({
                    "content": [{"type": "text", "text": value.to_string()}],
                    "structuredContent": value,
                    "isError": !envelope.ok,
                    "_meta": {"countersign": {"envelope": true}},
                })))
            }
            Said::Denied(refusal) => {
                let data = json!({"code": refusal.code.as_str(), "details": refusal.details_value()});
                Err(RpcError::with_data(-32602, &refusal.message, &data))
            }
        }
    }
}
