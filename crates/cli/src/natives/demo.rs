//! The order desk as a native upstream. A dry run reaches it as a preview, whatever its arguments say.

use std::sync::Arc;

use countersign_demo::OrderDesk;
use countersign_gateway::upstreams::UpstreamFault;
use countersign_gateway::upstreams::native::{NativeCall, NativeContext, NativeServer};
use countersign_mcp::client::BoxFuture;
use countersign_mcp::fault::DeliveryState;
use serde_json::{Map, Value, json};

/// The file of its data, in its own folder or the configuration's.
const FILE: &str = "order-desk.db";

/// The order desk as one of our own upstreams.
pub(crate) struct DemoUpstream {
    desk: Arc<OrderDesk>,
}

impl DemoUpstream {
    /// Opens the order desk where the configuration says.
    pub(crate) fn open(ground: NativeContext<'_>) -> Result<Arc<dyn NativeServer>, String> {
        let folder = ground.own_folder.unwrap_or(ground.folder);
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("`{}` can't be made: {error}", folder.display()))?;
        let desk = OrderDesk::open(&folder.join(FILE)).map_err(|fault| fault.to_string())?;
        Ok(Arc::new(Self { desk: Arc::new(desk) }))
    }
}

impl NativeServer for DemoUpstream {
    fn tools(&self) -> Vec<Value> {
        countersign_demo::definitions()
    }

    fn call<'a>(&'a self, visit: NativeCall<'a>) -> BoxFuture<'a, Result<Value, UpstreamFault>> {
        let (desk, tool) = (Arc::clone(&self.desk), visit.tool.to_owned());
        let arguments = serde_json::from_str::<Map<String, Value>>(visit.arguments);
        let dry = visit.permitted.is_none();
        Box::pin(async move {
            let broken = |why: String, sent| UpstreamFault::Unavailable { why, sent };
            let mut arguments = arguments.map_err(|error| broken(error.to_string(), DeliveryState::No))?;
            if dry {
                arguments.insert("preview".to_owned(), true.into());
            }
            // SQLite waits for the disk: not on a thread that serves lines.
            tokio::task::spawn_blocking(move || desk.call(&tool, &arguments))
                .await
                .map_err(|error| broken(error.to_string(), DeliveryState::Unknown))
        })
    }

    fn server_info(&self) -> Value {
        json!({"name": "order-desk", "title": "Order desk (demonstration)", "version": env!("CARGO_PKG_VERSION")})
    }
}
