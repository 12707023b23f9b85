//! `pack mcp serve`: the eleven tools on stdin and stdout. Writes nothing but protocol to stdout; messages go to stderr.

use std::sync::Arc;
use std::time::Duration;

use countersign_mcp::server::{SealKey, ServeOptions, SessionId, StdioOptions, serve_stream};
use countersign_pack::error::PackError;
use countersign_pack::place::PackEnvironment;
use countersign_pack::reply::PackCommandReply;
use countersign_pack::server;
use countersign_policy::role::Role;
use countersign_terminal::runtime::{self, Threads};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::{PackCommandResult, command_runner};

/// The versions whose name we answer with; anything else is answered with the first.
const SPOKEN: [&str; 4] = ["2025-06-18", "2025-03-26", "2025-11-25", "2026-07-28"];

/// How much of a line is looked at before it is passed on.
const PIECE: u64 = 1 << 20;

/// Serves until the client closes the connection.
pub(crate) fn serve(place: &PackEnvironment, session: &str, life: Duration) -> PackCommandResult {
    let runtime = runtime::build(Threads::Workers(1));
    let runtime = runtime.map_err(|error| PackError::broken("start", error))?;
    let served = runtime.block_on(async {
        let store = command_runner::open_store(place).await?;
        let gateway = server::open(store.clone(), place.clone(), Role::Agent, session, life).await;
        let gateway = gateway.map_err(|cannot| PackError::broken("start", cannot))?;
        let options = StdioOptions::new(ServeOptions::new(SealKey::random()), SessionId::new(session));
        let (mut inner, outer) = tokio::io::duplex(64 * 1024);
        let reading = tokio::spawn(async move {
            let mut lines = BufReader::new(tokio::io::stdin());
            let (mut line, mut goes_on) = (Vec::new(), false);
            // An opening fits into one piece; a longer line passes piece by piece, and the protocol layer reports that it is too long.
            while (&mut lines).take(PIECE).read_until(b'\n', &mut line).await? > 0 {
                let is_whole = line.ends_with(b"\n");
                let piece = if is_whole && !goes_on { settled(&line) } else { line.clone() };
                inner.write_all(&piece).await?;
                goes_on = !is_whole;
                line.clear();
            }
            inner.shutdown().await
        });
        let service = Arc::new(gateway.service());
        let served = serve_stream(service, outer, tokio::io::stdout(), options).await;
        reading.abort();
        // A read's row may still be on its way.
        store.flush().await.map_err(|fault| PackError::from(fault.refusal()))?;
        served.map_err(|error| PackError::broken("serve stdin and stdout", error))
    });
    // A blocked read of stdin must not keep the process.
    runtime.shutdown_background();
    served.map(|()| (String::new(), PackCommandReply::default()))
}

/// A client that opens with a version we do not speak is answered with 2025-06-18, as published; the protocol layer would offer
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
