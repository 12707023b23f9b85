//! Connects one command to the gateway in its own process: MCP over a pipe in memory, so that a call from here passes every
//! stage an agent's call passes. Declares no capabilities, so upstreams can ask it nothing.

use std::sync::Arc;

use countersign_config::Config;
use countersign_gateway::assemble::frame_limits;
use countersign_gateway::principal::Principal;
use countersign_gateway::service::GatewayService;
use countersign_gateway::state::GatewayState;
use countersign_mcp::raw;
use countersign_mcp::server::{SealKey, ServeOptions, SessionId, StdioOptions, serve_stream};
use countersign_policy::intent::CallToolVariant;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::strict_json;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};

use crate::command_result::{CommandError, Refused};
use crate::output::{DIM, OutputSettings, paint, visible};

/// How much may be on its way in memory.
const PIPE: usize = 1 << 20;
const VERSION: &str = "2025-11-25";

pub(super) struct Line {
    reader: BufReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
    voice: OutputSettings,
    next: u64,
    told: bool,
}

/// A reply: a result with the text it came in, or a JSON-RPC error.
pub(super) type GatewayCallReply = Result<(Value, String), Value>;

impl Line {
    /// Opens a line for this principal and says hello.
    pub(super) async fn open(
        gateway: &Arc<GatewayState>,
        principal: Principal,
        config: &Config,
        voice: OutputSettings,
    ) -> Result<Self, CommandError> {
        let (near, far) = tokio::io::duplex(PIPE);
        let name = principal.session.as_ref().map(|session| session.as_str().to_owned()).unwrap_or_default();
        let face = Arc::new(GatewayService::new(Arc::clone(gateway), principal, config.gateway.agent_auth));
        let mut serve = ServeOptions::new(SealKey::random());
        serve.limits = frame_limits(config);
        let (far_reader, far_writer) = tokio::io::split(far);
        tokio::spawn(serve_stream(
            face,
            far_reader,
            far_writer,
            StdioOptions::new(serve, SessionId::new(name)),
        ));
        let (reader, writer) = tokio::io::split(near);
        let mut line = Self { reader: BufReader::new(reader), writer, voice, next: 0, told: false };
        let hello = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "countersign call", "version": env!("CARGO_PKG_VERSION")},
        });
        line.request("initialize", hello).await?.map_err(|error| broken(&error.to_string()))?;
        line.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        Ok(line)
    }

    pub(super) async fn call(
        &mut self,
        variant: CallToolVariant,
        arguments: &Map<String, Value>,
    ) -> Result<GatewayCallReply, CommandError> {
        let mut params = json!({"name": variant.call_tool(), "arguments": arguments});
        if let (true, Some(members)) = (self.voice.shows_progress(), params.as_object_mut()) {
            members.insert("_meta".into(), json!({"progressToken": self.next}));
        }
        let reply = self.request("tools/call", params).await;
        if std::mem::take(&mut self.told) {
            self.voice.tell("\n");
        }
        reply
    }

    async fn request(&mut self, method: &str, params: Value) -> Result<GatewayCallReply, CommandError> {
        let id = json!(self.next);
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        loop {
            let (mut message, line) = self.receive().await?;
            match (message.get("method").and_then(Value::as_str), message.get("id")) {
                (None, Some(of)) if *of == id => {
                    let mut take = |name: &str| message.get_mut(name).map(Value::take);
                    return Ok(match (take("result"), take("error")) {
                        (Some(result), _) => {
                            Ok((result, raw::get_text(&line, "result").unwrap_or("null").to_owned()))
                        }
                        (None, error) => Err(error.unwrap_or_default()),
                    });
                }
                (Some("notifications/progress"), None) => self.tell_progress(&message),
                (Some(method), Some(of)) => {
                    let answer = match method {
                        "ping" => json!({"jsonrpc": "2.0", "id": of, "result": {}}),
                        _ => {
                            json!({"jsonrpc": "2.0", "id": of, "error": {"code": -32601, "message": "nobody answers here"}})
                        }
                    };
                    self.send(&answer).await?;
                }
                (Some(_) | None, _) => {}
            }
        }
    }

    fn tell_progress(&mut self, message: &Value) {
        let params = message.get("params");
        let part = |name: &str| params.and_then(|params| params.get(name));
        let text = part("message").and_then(Value::as_str).unwrap_or("working");
        let done = match (part("progress"), part("total")) {
            (Some(done), Some(total)) => format!(" {done}/{total}"),
            (Some(done), None) => format!(" {done}"),
            (None, _) => String::new(),
        };
        // Each overwrites the one before; the blanks cover what was longer.
        self.voice.tell(&format!("\r{}          ", paint(DIM, format_args!("{}{done}", visible(text)))));
        self.told = true;
    }

    async fn send(&mut self, message: &Value) -> Result<(), CommandError> {
        let sent = self.writer.write_all(format!("{message}\n").as_bytes()).await;
        sent.map_err(|error| broken(&error.to_string()))
    }

    async fn receive(&mut self) -> Result<(Value, String), CommandError> {
        let mut text = String::new();
        let read = self.reader.read_line(&mut text).await.map_err(|error| broken(&error.to_string()))?;
        if read == 0 {
            return Err(broken("the line closed"));
        }
        let message = strict_json::read_to_show(&text).ok_or_else(|| broken("no JSON"))?;
        Ok((message, text))
    }
}

fn broken(inside: &str) -> CommandError {
    let refusal = Refusal::new(Code::UpstreamUnavailable, "the gateway in this process gave no answer");
    Refused { inside: Some(inside.to_owned()), ..refusal.into() }.into()
}
