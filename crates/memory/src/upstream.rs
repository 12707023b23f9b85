//! The memory as a native upstream of the gateway: role, principal and session of a call are those of its permit. Decides nothing
//! about the call itself.

use std::sync::Arc;

use countersign_gateway::answer::model_text;
use countersign_gateway::upstreams::UpstreamFault;
use countersign_gateway::upstreams::native::{NativeCall, NativeServer};
use countersign_mcp::client::BoxFuture;
use countersign_mcp::fault::DeliveryState;
use countersign_mcp::jsonrpc::RpcError;
use countersign_policy::call::Arguments;
use countersign_store::memory::MemoryActor;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Memory, arguments, tools};

pub struct MemoryUpstream {
    memory: Memory,
}

impl MemoryUpstream {
    pub fn new(memory: Memory) -> Arc<Self> {
        Arc::new(Self { memory })
    }
}

/// `serverInfo`, behind a gateway and alone.
pub(crate) fn server_info() -> Value {
    json!({"name": "countersign-memory", "title": "Governed memory", "version": env!("CARGO_PKG_VERSION")})
}

impl NativeServer for MemoryUpstream {
    fn tools(&self) -> Vec<Value> {
        tools::definitions().into_iter().map(Value::Object).collect()
    }

    fn filled(&self, tool: &str, arguments: Arguments) -> Arguments {
        arguments::normalized(arguments, &tools::known(tool))
    }

    fn call<'a>(&'a self, call: NativeCall<'a>) -> BoxFuture<'a, Result<Value, UpstreamFault>> {
        Box::pin(async move {
            let not_sent = |why: String| UpstreamFault::Unavailable { why, sent: DeliveryState::No };
            let Some(permitted) = call.permitted else {
                return Err(not_sent("the memory has no dry runs".to_owned()));
            };
            let record = permitted.permit().record();
            let actor = MemoryActor {
                principal: record.principal.clone(),
                role: record.role,
                session: Some(record.session.clone()),
                source: record.source,
                named: None,
            };
            let arguments =
                Arguments::parse(call.arguments.as_bytes()).map_err(|error| not_sent(error.to_string()))?;
            let called = self.memory.call(call.tool, arguments.value(), &actor, Timestamp::now()).await;
            let Some(envelope) = called else {
                let message = format!("there is no tool `{}`", call.tool);
                return Err(UpstreamFault::Rpc(RpcError::invalid_params(&message)));
            };
            Ok(json!({
                "content": [{"type": "text", "text": model_text(&envelope)}],
                "structuredContent": envelope.to_value(),
                "isError": !envelope.ok,
            }))
        })
    }

    fn server_info(&self) -> Value {
        server_info()
    }
}
