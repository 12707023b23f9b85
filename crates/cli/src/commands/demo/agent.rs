//! The agent: a real MCP client on a line to the gateway. Knows what any agent knows, and has no other way in.

use std::sync::Arc;

use countersign_core::ids::Secret;
use countersign_wire::frame::Notification;
use countersign_wire::raw;
use countersign_wire::upstream::{
    Connect, Deadline, HttpSpec, Identity, Observer, RequestOptions, Spec, Upstream,
};
use serde_json::{Value, json};

/// What a tool call came to.
pub(super) struct Told {
    /// The result, as it came.
    pub(super) result: Value,
}

impl Told {
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

struct Deaf;

impl Observer for Deaf {
    fn notification(&self, _: Notification) {}
}

/// A line to the gateway.
pub(super) struct Agent {
    line: Upstream,
}

impl Agent {
    /// Connects as any host would, with a credential in its header.
    pub(super) async fn connect(desk: &str, secret: &Secret) -> Result<Self, String> {
        let identity = Identity {
            client_info: raw::to_raw(&json!({"name": "demo-agent", "version": env!("CARGO_PKG_VERSION")})),
            capabilities: raw::empty_object(),
        };
        let mut spec = HttpSpec::new(format!("{desk}/mcp"));
        spec.headers.push(("Authorization".to_owned(), format!("Bearer {}", secret.expose())));
        let line = Upstream::connect(&Spec::Http(spec), Connect::new(identity, Arc::new(Deaf))).await;
        line.map(|line| Self { line }).map_err(|failure| failure.to_string())
    }

    /// Calls a tool.
    pub(super) async fn call(&self, name: &str, arguments: Value) -> Result<Told, String> {
        let params = raw::to_raw(&json!({"name": name, "arguments": arguments}));
        let options = RequestOptions { deadline: Deadline::Never, ..RequestOptions::default() };
        let result = self.line.request("tools/call", Some(&params), options).await;
        let result = result.map_err(|failure| failure.to_string())?;
        let result = serde_json::from_str(result.get()).map_err(|error| error.to_string())?;
        Ok(Told { result })
    }

    /// Leaves.
    pub(super) async fn leave(&self) {
        self.line.close().await;
    }
}
