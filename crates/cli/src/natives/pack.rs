//! The pack behind the gateway's seam: its tools as published, confirmed and recorded by the house. What it is handed without a permit
//! it only shows.

use std::sync::Arc;

use countersign_core::call::Arguments;
use countersign_gateway::upstreams::UpstreamFault;
use countersign_gateway::upstreams::native::{Ground, Native, Visit};
use countersign_pack::native::{self, Inside};
use countersign_pack::tools;
use countersign_wire::fault::Sent;
use countersign_wire::frame::RpcError;
use countersign_wire::upstream::Later;
use serde_json::{Map, Value, json};

use crate::commands::pack;

/// The pack as one of our own upstreams.
pub(crate) struct Pack {
    inside: Inside,
}

impl Pack {
    /// The pack of this machine; `folder` is its config repo.
    pub(crate) fn open(ground: Ground<'_>) -> Result<Arc<dyn Native>, String> {
        let place = pack::place(ground.own_folder, None).map_err(|usage| usage.message)?;
        Ok(Arc::new(Self { inside: Inside::new(place, ground.store.clone()) }))
    }
}

impl Native for Pack {
    fn tools(&self) -> Vec<Value> {
        tools::definitions().into_iter().map(Value::Object).collect()
    }

    fn filled(&self, tool: &str, arguments: Arguments) -> Arguments {
        native::filled(tool, arguments)
    }

    fn call<'a>(&'a self, visit: Visit<'a>) -> Later<'a, Result<Value, UpstreamFault>> {
        let read = serde_json::from_str::<Map<String, Value>>(visit.arguments);
        Box::pin(async move {
            let broken = |error: serde_json::Error| UpstreamFault::Unavailable {
                why: error.to_string(),
                sent: Sent::No,
            };
            let arguments = read.map_err(broken)?;
            let answer = self.inside.call(visit.tool, &arguments, visit.permitted).await;
            let Some(answer) = answer else {
                return Err(UpstreamFault::Rpc(RpcError::invalid_params(&format!(
                    "unknown tool: {}",
                    visit.tool
                ))));
            };
            let value = answer.envelope.to_value();
            // A person who decides reads the list and the difference; a program reads the envelope.
            let content: Vec<Value> = if answer.texts.is_empty() {
                vec![json!({"type": "text", "text": format!("{value:#}")})]
            } else {
                let for_people =
                    |text| json!({"type": "text", "text": text, "annotations": {"audience": ["user"]}});
                answer.texts.into_iter().map(for_people).collect()
            };
            Ok(json!({"content": content, "structuredContent": value, "isError": !answer.envelope.ok}))
        })
    }

    fn server_info(&self) -> Value {
        json!({"name": "agentpack", "title": "Agent assets", "version": env!("CARGO_PKG_VERSION")})
    }
}
