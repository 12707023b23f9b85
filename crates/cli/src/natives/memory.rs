//! The governed memory behind the gateway's seam: the role, the principal and the session are the line's.

use std::sync::Arc;

use countersign_core::call::Arguments;
use countersign_gateway::upstreams::UpstreamFault;
use countersign_gateway::upstreams::native::{Ground, Native, Visit};
use countersign_memory::{Memory as Room, tools};
use countersign_store::memory::Actor;
use countersign_wire::fault::Sent;
use countersign_wire::frame::RpcError;
use countersign_wire::upstream::Later;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The memory as one of our own upstreams.
pub(crate) struct Memory {
    room: Room,
}

impl Memory {
    /// The memory in the gateway's records, of the project in the upstream's folder or the configuration's.
    pub(crate) fn open(ground: Ground<'_>) -> Result<Arc<dyn Native>, String> {
        let folder = ground.own_folder.unwrap_or(ground.folder);
        Ok(Arc::new(Self { room: Room::new(ground.store.clone(), folder) }))
    }
}

impl Native for Memory {
    fn tools(&self) -> Vec<Value> {
        tools::definitions().into_iter().map(Value::Object).collect()
    }

    fn call<'a>(&'a self, visit: Visit<'a>) -> Later<'a, Result<Value, UpstreamFault>> {
        Box::pin(async move {
            let not_sent = |why: String| UpstreamFault::Unavailable { why, sent: Sent::No };
            let Some(opened) = visit.permitted else {
                return Err(not_sent("the memory has no dry runs".to_owned()));
            };
            let record = opened.permit().record();
            let actor = Actor {
                principal: record.principal.clone(),
                role: record.role,
                session: Some(record.session.clone()),
                source: record.source,
                named: None,
            };
            let arguments =
                Arguments::parse(visit.arguments.as_bytes()).map_err(|error| not_sent(error.to_string()))?;
            let called = self.room.call(visit.tool, arguments.value(), &actor, Timestamp::now()).await;
            let Some(envelope) = called else {
                let message = format!("there is no tool `{}`", visit.tool);
                return Err(UpstreamFault::Rpc(RpcError::invalid_params(&message)));
            };
            let value = envelope.to_value();
            Ok(json!({
                "content": [{"type": "text", "text": value.to_string()}],
                "structuredContent": value,
                "isError": !envelope.ok,
            }))
        })
    }

    fn server_info(&self) -> Value {
        json!({"name": "countersign-memory", "title": "Governed memory", "version": env!("CARGO_PKG_VERSION")})
    }
}
