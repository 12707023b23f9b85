//! The echo server that is measured: a real MCP server on our own wire, with as many tools as wanted.

use std::sync::Arc;

use clap::Args;
use countersign_mcp::jsonrpc::{Reply, Request, RpcError};
use countersign_mcp::raw::{self, RawJson};
use countersign_mcp::server::{
    CallerIdentity, CallerInfo, ConnectionLimits, HttpOptions, HttpRefusal, HttpServer, RequestContext,
    SealKey, ServeOptions, Service, ServiceDescription, Session, SessionId, StdioOptions, listen,
    serve_stdio,
};
use serde_json::json;

use crate::command_result::{Answer, CommandError, CommandResult};
use crate::runtime::{Threads, runtime};

#[derive(Args, Debug)]
pub(crate) struct EchoArgs {
    /// How many tools it lists
    #[arg(long, default_value_t = 1)]
    tools: u32,

    /// Serve HTTP and print the address, instead of stdio
    #[arg(long)]
    http: bool,
}

pub(crate) fn run(args: &EchoArgs) -> CommandResult {
    let runtime = runtime(Threads::Current)?;
    let service = Arc::new(EchoService { list: list(args.tools) });
    let options = ServeOptions::new(SealKey::random());
    let served = if args.http {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            crate::output::banner(&format!("listening on http://{address}/mcp"));
            let front = HttpServer::new(service, HttpOptions::loopback(options));
            listen(listener, None, front.routes("/mcp"), ConnectionLimits::default(), std::future::pending())
                .await
        })
    } else {
        runtime.block_on(serve_stdio(service, StdioOptions::new(options, SessionId::new("echo"))))
    };
    served.map_err(|error| CommandError::fault("serving ended", error))?;
    Ok(Answer::default())
}

struct EchoService {
    list: RawJson,
}

fn list(tools: u32) -> RawJson {
    let tool = |number: u32| {
        let name = if number == 0 { "echo".to_owned() } else { format!("echo_{number}") };
        json!({
            "name": name,
            "description": format!("Echoes the message, number {number}"),
            "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
            "annotations": {"readOnlyHint": true},
        })
    };
    raw::to_raw(&json!({"tools": (0..tools).map(tool).collect::<Vec<_>>()}))
}

impl Service for EchoService {
    async fn authenticate(&self, _: &CallerInfo<'_>) -> Result<CallerIdentity, HttpRefusal> {
        Ok(CallerIdentity::new("anyone", Arc::new(())))
    }

    async fn describe(&self, _: &Arc<Session>) -> ServiceDescription {
        ServiceDescription {
            server_info: raw::to_raw(&json!({"name": "echo", "version": "1"})),
            capabilities: raw::to_raw(&json!({"tools": {}})),
            instructions: None,
            ttl_ms: 0,
        }
    }

    async fn request(&self, _: RequestContext, request: Request) -> Reply {
        match &*request.method {
            "tools/list" => Ok(self.list.clone()),
            "tools/call" => {
                let params = request.params.as_deref();
                let message = params.and_then(|params| raw::get_in(params, &["arguments", "message"]));
                let text = message.map_or("\"\"", |message| message.get());
                raw::from_text(format!("{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}]}}"))
                    .ok_or_else(|| RpcError::invalid_params("the message is no string"))
            }
            other => Err(RpcError::method_not_found(other)),
        }
    }
}
