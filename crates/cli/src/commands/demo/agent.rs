//! The demo's agent: a real MCP client of the gateway, with no other access.

use std::sync::Arc;

use countersign_mcp::client::{
    ClientIdentity, Deadline, HttpSpec, Observer, RequestOptions, Upstream, UpstreamOptions, UpstreamSpec,
};
use countersign_mcp::jsonrpc::Notification;
use countersign_mcp::raw;
use countersign_policy::ids::Secret;
use serde_json::{Value, json};

/// What a tool call came to.
pub(super) struct AgentCallResult {
    /// The result, as it came.
    pub(super) result: Value,
}

impl AgentCallResult {
    /// The structure of the result.
    pub(super) fn body(&self) -> &Value {
        self.result.get("structuredContent").unwrap_or(&Value::Null)
    }

    /// A text of the answer's data.
    pub(super) fn data(&self, path: &str) -> &str {
        self.body().pointer(&format!("/data/{path}")).and_then(Value::as_str).unwrap_or_default()
    }

    /// The code and message of a refusal.
    pub(super) fn refusal(&self) -> Option<(&str, &str)> {
        let error = self.body().pointer("/errors/0")?;
        Some((error.get("code")?.as_str()?, error.get("message")?.as_str()?))
    }
}

struct NoopObserver;

impl Observer for NoopObserver {
    fn notification(&self, _: Notification) {}
}

/// A line to the gateway.
pub(super) struct DemoAgent {
    line: Upstream,
}

impl DemoAgent {
    /// Connects as any host would, with a credential in its header.
    pub(super) async fn connect(desk: &str, secret: &Secret) -> Result<Self, String> {
        let identity = ClientIdentity {
            client_info: raw::to_raw(&json!({"name": "demo-agent", "version": env!("CARGO_PKG_VERSION")})),
            capabilities: raw::empty_object(),
        };
        let mut spec = HttpSpec::new(format!("{desk}/mcp"));
        spec.headers.push(("Authorization".to_owned(), format!("Bearer {}", secret.expose())));
        let line = Upstream::connect(
            &UpstreamSpec::Http(spec),
            UpstreamOptions::new(identity, Arc::new(NoopObserver)),
        )
        .await;
        line.map(|line| Self { line }).map_err(|failure| failure.to_string())
    }

    /// Calls a tool.
    pub(super) async fn call(&self, name: &str, arguments: Value) -> Result<AgentCallResult, String> {
        let params = raw::to_raw(&json!({"name": name, "arguments": arguments}));
        let options = RequestOptions { deadline: Deadline::Never, ..RequestOptions::default() };
        let result = self.line.request("tools/call", Some(&params), options).await;
        let result = result.map_err(|failure| failure.to_string())?;
        let result = serde_json::from_str(result.get()).map_err(|error| error.to_string())?;
        Ok(AgentCallResult { result })
    }

    /// Leaves.
    pub(super) async fn leave(&self) {
        self.line.close().await;
    }
}
