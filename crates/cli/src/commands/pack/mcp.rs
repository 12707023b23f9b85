//! `pack mcp serve`: the eleven tools on stdin and stdout. Nothing but protocol on stdout; whatever else is to be said goes to
//! stderr.

use std::sync::Arc;
use std::time::Duration;

use countersign_core::record::Source;
use countersign_core::role::Role;
use countersign_pack::place::Place;
use countersign_pack::reply::Reply;
use countersign_pack::stop::Stop;
use countersign_pack::tools::{self, Tools};
use countersign_wire::frame::{Reply as Answered, Request, RpcError};
use countersign_wire::raw;
use countersign_wire::serve::{
    Ctx, Description, HttpRefusal, Opening, SealKey, ServeOptions, Service, Session, SessionId, StdioOptions,
    Tag, serve_line,
};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::{Told, act};

/// The versions whose name we answer with; anything else is answered with the first.
const SPOKEN: [&str; 4] = ["2025-06-18", "2025-03-26", "2025-11-25", "2026-07-28"];

/// How much of a line is looked at before it is passed on.
const PIECE: u64 = 1 << 20;

/// Serves until the client closes the line.
pub(super) fn serve(place: &Place, session: &str, life: Duration) -> Told {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Stop::broken("start", error))?;
    let served = runtime.block_on(async {
        let line = act::line(place, Role::Agent, session, Source::Mcp, life).await?;
        let desk = Arc::new(Desk { tools: Tools::new(line, place.clone()) });
        let options = StdioOptions::new(ServeOptions::new(SealKey::random()), SessionId::new(session));
        let (mut inner, outer) = tokio::io::duplex(64 * 1024);
        let reading = tokio::spawn(async move {
            let mut lines = BufReader::new(tokio::io::stdin());
            let (mut line, mut goes_on) = (Vec::new(), false);
            // An opening fits into one piece; a longer line passes piece by piece, and the wire says that it is too long.
            while (&mut lines).take(PIECE).read_until(b'\n', &mut line).await? > 0 {
                let is_whole = line.ends_with(b"\n");
                let piece = if is_whole && !goes_on { settled(&line) } else { line.clone() };
                inner.write_all(&piece).await?;
                goes_on = !is_whole;
                line.clear();
            }
            inner.shutdown().await
        });
        let served = serve_line(desk, outer, tokio::io::stdout(), options).await;
        reading.abort();
        served.map_err(|error| Stop::broken("serve stdin and stdout", error))
    });
    // A blocked read of stdin must not keep the process.
    runtime.shutdown_background();
    served.map(|()| (String::new(), Reply::default()))
}

/// A client that opens with a version we do not speak is answered with 2025-06-18, as published; the wire itself would offer
/// its newest.
fn settled(line: &[u8]) -> Vec<u8> {
    let rewritten = || {
        let text = std::str::from_utf8(line).ok()?;
        if !text.contains("\"initialize\"") {
            return None;
        }
        let mut message: Value = serde_json::from_str(text).ok()?;
        if message.get("method")?.as_str()? != "initialize" {
            return None;
        }
        let version = message.get_mut("params")?.get_mut("protocolVersion")?;
        if SPOKEN.contains(&version.as_str()?) {
            return None;
        }
        *version = SPOKEN.first().copied().into();
        Some(format!("{message}\n").into_bytes())
    };
    rewritten().unwrap_or_else(|| line.to_vec())
}

struct Desk {
    tools: Tools,
}

impl Service for Desk {
    async fn authenticate(&self, _: &Opening<'_>) -> Result<Tag, HttpRefusal> {
        Ok(Tag::new("local-agent", Arc::new(())))
    }

    async fn describe(&self, _: &Arc<Session>) -> Description {
        Description {
            server_info: raw::to_raw(&json!({"name": "agentpack", "version": env!("CARGO_PKG_VERSION")})),
            capabilities: raw::to_raw(&json!({"tools": {}})),
            instructions: Some(tools::INSTRUCTIONS.to_owned()),
            ttl_ms: 3_600_000,
        }
    }

    async fn request(&self, _: Ctx, request: Request) -> Answered {
        match &*request.method {
            "tools/list" => Ok(raw::to_raw(&json!({"tools": tools::definitions()}))),
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
        let arguments: Map<String, Value> = match given {
            None | Some("null") => Map::new(),
            Some(text) => {
                let read = countersign_core::call::Arguments::parse(text.as_bytes());
                read.map_err(|error| RpcError::invalid_params(&error.to_string()))?.value().clone()
            }
        };
        match self.tools.call(&name, &arguments).await {
            Some(envelope) => {
                let value = envelope.to_value();
                Ok(raw::to_raw(&json!({
                    "content": [{"type": "text", "text": format!("{value:#}")}],
                    "structuredContent": value,
                    "isError": !envelope.ok,
                    "_meta": {"countersign": {"envelope": true}},
                })))
            }
            None => Ok(raw::to_raw(&json!({
                "content": [{"type": "text", "text": format!("unknown tool: {name}")}],
                "isError": true,
            }))),
        }
    }
}
