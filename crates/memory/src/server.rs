//! The memory served on its own, as `memory serve` does: a gateway with the memory as its only upstream, under the built-in rules.
//! The role is fixed when it opens; nothing a client sends changes it. Opens no transport.

use std::sync::Arc;

use countersign_config::{self as config, Source as ConfigSource};
use countersign_gateway::answer::Answer;
use countersign_gateway::assemble::CannotBuild;
use countersign_gateway::request::ToolCallRequest;
use countersign_gateway::standalone::{GovernedCall, StandaloneGateway, StandaloneServer, StandaloneSetup};
use countersign_mcp::client::BoxFuture;
use countersign_mcp::jsonrpc::{Reply, RpcError, code};
use countersign_policy::envelope::ErrorEntry;
use countersign_policy::ids::SessionId;
use countersign_policy::record::Source;
use countersign_policy::role::Role;
use countersign_store::memory::UPSTREAM;
use serde_json::{Value, json};

use crate::upstream::{MemoryUpstream, server_info};
use crate::{Memory, tools};

struct MemoryServer;

impl StandaloneServer for MemoryServer {
    fn server_info(&self) -> Value {
        server_info()
    }

    fn instructions(&self) -> &'static str {
        tools::INSTRUCTIONS
    }

    fn call<'a>(&'a self, request: ToolCallRequest, governed: GovernedCall<'a>) -> BoxFuture<'a, Answer> {
        let tool = request.name.tool.to_string();
        Box::pin(async move {
            match governed.run(request).await {
                Answer::Envelope(mut envelope) => {
                    envelope.command = format!("memory.{tool}");
                    envelope.command_id.clone_from(&envelope.command);
                    envelope.command_path = vec!["memory".to_owned(), tool];
                    Answer::Envelope(envelope)
                }
                other @ (Answer::Carded(..) | Answer::Upstream(_) | Answer::Rpc(_)) => other,
            }
        })
    }

    fn unknown_tool(&self, _: &str, error: &ErrorEntry) -> Reply {
        let data = json!({"code": error.code, "details": error.details});
        Err(RpcError::with_data(code::INVALID_PARAMS, &error.message, &data))
    }
}

/// Opens the gateway of a memory for callers of this role.
pub async fn open(
    memory: Memory,
    role: Role,
    session: &str,
    source: Source,
) -> Result<StandaloneGateway, CannotBuild> {
    let cannot = |why: &str| CannotBuild { upstream: UPSTREAM.to_owned(), why: why.to_owned() };
    let text = format!(
        "[gateway]\nmode = \"execute\"\nsurface = \"direct\"\n\n[upstreams.{UPSTREAM}]\nkind = \"memory\"\nprefix = false\n"
    );
    let config = config::parse(&[ConfigSource::new("built-in", text.as_str())])
        .map_err(|_| cannot("the built-in rules can't be read"))?;
    let (store, folder) = (memory.store().clone(), memory.folder.clone());
    let setup = StandaloneSetup {
        config,
        native: MemoryUpstream::new(memory),
        server: Arc::new(MemoryServer),
        folder,
        role,
        session: SessionId::new(session),
        source,
    };
    StandaloneGateway::open(store, setup).await
}
