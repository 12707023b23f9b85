//! A command of the pack as one governed call: a gateway in this process whose only tool is the command. Its row is in the ledger
//! before the work begins, and its outcome afterwards. Needs a runtime with several threads; asks nobody.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use countersign_gateway::standalone::{StandaloneGateway, StandaloneServer, StandaloneSetup};
use countersign_gateway::upstreams::UpstreamFault;
use countersign_gateway::upstreams::native::{NativeCall, NativeServer};
use countersign_mcp::client::BoxFuture;
use countersign_mcp::fault::DeliveryState;
use countersign_mcp::jsonrpc::{Reply, RpcError};
use countersign_policy::envelope::{Envelope, ErrorEntry};
use countersign_policy::ids::SessionId;
use countersign_policy::record::Source;
use countersign_policy::refusal::Refusal;
use countersign_policy::role::Role;
use countersign_store::{RecordedPermit, Store};
use serde_json::{Value, json};

use crate::audit_row;
use crate::error::{PackError, PackResult, UNEXPECTED};
use crate::reply::PackCommandReply;
use crate::server::{TOKEN_LIFE, configured};
use crate::upstream::result;

/// The person at the terminal has agreed already.
const RULES: &str = "\n[[rules]]\nmatch = \"pack:*\"\neffect = \"write\"\nconfirm = \"none\"\n";

/// What a command does once its row is written.
pub(crate) type CommandWork = Box<dyn FnOnce(&RecordedPermit) -> PackResult<PackCommandReply> + Send>;

/// Runs a command's work as a call of the local person.
pub async fn run(
    store: Store,
    command: String,
    arguments: Value,
    work: CommandWork,
) -> PackResult<PackCommandReply> {
    let upstream = Arc::new(CommandUpstream {
        command: command.clone(),
        store: store.clone(),
        work: Mutex::new(Some(work)),
        outcome: Mutex::new(None),
    });
    let cannot = |cannot| PackError::broken("start", cannot);
    let setup = StandaloneSetup {
        config: configured(RULES, TOKEN_LIFE).map_err(cannot)?,
        native: Arc::clone(&upstream) as _,
        server: Arc::new(CommandServer),
        folder: PathBuf::new(),
        role: Role::Human,
        session: SessionId::new("cli"),
        source: Source::Cli,
    };
    let gateway = StandaloneGateway::open(store, setup).await.map_err(cannot)?;
    let params = json!({"name": command, "arguments": arguments});
    let reply = gateway.request("tools/call", &params).await;
    let outcome = upstream.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    outcome.unwrap_or_else(|| Err(refused(reply)))
}

/// Why the gateway did not run the work.
fn refused(reply: Reply) -> PackError {
    let told = reply.map(|result| {
        let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
        result.pointer("/structuredContent/errors/0").and_then(Refusal::told)
    });
    match told {
        Ok(Some(refusal)) => refusal.into(),
        Ok(None) => PackError::broken("run the command", "the gateway gave no reason"),
        Err(error) => PackError::broken("run the command", error.message()),
    }
}

struct CommandServer;

impl StandaloneServer for CommandServer {
    fn server_info(&self) -> Value {
        json!({"name": "agentpack", "version": env!("CARGO_PKG_VERSION")})
    }

    fn instructions(&self) -> &'static str {
        ""
    }

    fn unknown_tool(&self, _: &str, error: &ErrorEntry) -> Reply {
        Err(RpcError::invalid_params(&error.message))
    }
}

struct CommandUpstream {
    command: String,
    store: Store,
    work: Mutex<Option<CommandWork>>,
    /// Kept beside the answer, which holds less: the command prints it.
    outcome: Mutex<Option<PackResult<PackCommandReply>>>,
}

impl NativeServer for CommandUpstream {
    fn tools(&self) -> Vec<Value> {
        vec![json!({"name": self.command, "inputSchema": {"type": "object"}})]
    }

    fn call<'a>(&'a self, call: NativeCall<'a>) -> BoxFuture<'a, Result<Value, UpstreamFault>> {
        Box::pin(async move {
            let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (Some(permitted), Some(work)) = (call.permitted, work) else {
                let why = "a command runs once, and not as a dry run".to_owned();
                return Err(UpstreamFault::Unavailable { why, sent: DeliveryState::No });
            };
            // It waits for the disk, and borrows the permit: it can't move to another thread.
            let outcome = match tokio::task::block_in_place(|| work(permitted)) {
                Ok(reply) => Ok(audit_row::note(&self.store, permitted.permit().record(), reply).await),
                Err(stop) => Err(stop),
            };
            let envelope = match &outcome {
                Ok(reply) => Envelope::ok(&self.command, reply.data.clone()),
                Err(PackError::Refused(refusal)) => Envelope::refused(&self.command, refusal),
                Err(PackError::Broken(broken)) => {
                    Envelope::fault(&self.command, UNEXPECTED, broken.to_string(), None)
                }
            };
            *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            Ok(result(&envelope, Vec::new()))
        })
    }

    fn server_info(&self) -> Value {
        CommandServer.server_info()
    }
}
