//! The fault matrix on HTTP, against a server of a few lines that speaks 2025-11-25 and fails as its tools are called.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_gateway::upstreams::mcp::{McpSettings, McpUpstream};
use countersign_gateway::upstreams::{Condition, Upstream};
use countersign_mcp::client::{HttpSpec, UpstreamSpec};
use countersign_mcp::era::Era;
use countersign_policy::ids::UpstreamId;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::peer::{Ear, LONG, Peer, SHORT, call, identity, told, why};

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<HashMap<String, usize>>>);

impl Seen {
    fn note(&self, what: &str) -> usize {
        let mut all = self.0.lock().unwrap();
        let count = all.entry(what.to_owned()).or_default();
        *count += 1;
        *count
    }
    fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().get(what).copied().unwrap_or(0)
    }
}

/// One request: its method and body.
async fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&bytes[end..]).unwrap_or(Value::Null);
    Some((head.split(' ').next()?.to_owned(), body))
}

async fn write(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let text = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes()).await;
}

async fn answer(stream: &mut TcpStream, headers: &str, id: &Value, result: Value) {
    let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    write(stream, "200 OK", &format!("content-type: application/json\r\n{headers}"), &body).await;
}

async fn serve(mut stream: TcpStream, seen: Seen) {
    let Some((verb, body)) = read(&mut stream).await else { return };
    if verb != "post" {
        return write(&mut stream, "405 Method Not Allowed", "", "").await;
    }
    let method = body["method"].as_str().unwrap_or_default();
    match method {
        "initialize" => {
            let session = seen.note("opened");
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "h", "version": "1"}});
            answer(&mut stream, &format!("mcp-session-id: s{session}\r\n"), &body["id"], result).await;
        }
        "tools/list" => answer(&mut stream, "", &body["id"], json!({"tools": [{"name": "echo"}]})).await,
        "tools/call" => fail(stream, &body, &seen).await,
        _ => write(&mut stream, "202 Accepted", "", "").await,
    }
}

async fn fail(mut stream: TcpStream, body: &Value, seen: &Seen) {
    let name = body["params"]["name"].as_str().unwrap_or_default();
    seen.note(name);
    match name {
        "status_500" => write(&mut stream, "500 Internal Server Error", "", "broken").await,
        "status_429" => write(&mut stream, "429 Too Many Requests", "retry-after: 1\r\n", "slow down").await,
        "status_401" => write(&mut stream, "401 Unauthorized", "www-authenticate: Bearer\r\n", "").await,
        "redirect" => {
            write(&mut stream, "307 Temporary Redirect", "location: http://127.0.0.1:1/elsewhere\r\n", "")
                .await
        }
        "expired" => write(&mut stream, "404 Not Found", "", "").await,
        "wrong_type" => write(&mut stream, "200 OK", "content-type: text/html\r\n", "<html>").await,
        "not_json" => {
            write(&mut stream, "200 OK", "content-type: application/json\r\n", "{\"jsonrpc\":").await
        }
        "reset" => drop(stream),
        "cut" => {
            let _ = stream
                .write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{",
                )
                .await;
        }
        "hang" => std::future::pending().await,
        "endless" => {
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(head).await;
            while stream.write_all(b": still here\n\n").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        "huge" => {
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\"";
            let _ = stream.write_all(head).await;
            while stream.write_all(&[b'x'; 1 << 16]).await.is_ok() {}
        }
        _ => answer(&mut stream, "", &body["id"], json!({"content": [{"type": "text", "text": name}]})).await,
    }
}

async fn start() -> (Arc<McpUpstream>, Seen, tokio::task::AbortHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, seen) = (format!("http://{}/mcp", listener.local_addr().unwrap()), Seen::default());
    let for_server = seen.clone();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, for_server.clone()));
        }
    });
    let mut settings = McpSettings::new(UpstreamSpec::Http(HttpSpec::new(url)), identity());
    settings.era = Some(Era::Legacy);
    let upstream = McpUpstream::new(UpstreamId::new("web"), settings, Arc::new(Ear::default()));
    (Arc::new(upstream), seen, server.abort_handle())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_is_told_as_it_was() {
    let (upstream, seen, _server) = start().await;
    let good = Peer::new("good");
    for (fault, limit, expect) in [
        ("status_500", LONG, "unavailable unknown"),
        ("status_429", LONG, "unavailable refused"),
        ("status_401", LONG, "unavailable refused"),
        ("redirect", LONG, "unavailable refused"),
        ("wrong_type", LONG, "unavailable unknown"),
        ("not_json", LONG, "unavailable unknown"),
        ("reset", LONG, "unavailable unknown"),
        ("cut", LONG, "unavailable unknown"),
        ("huge", LONG, "too large"),
        ("hang", SHORT, "timeout unknown"),
        ("endless", SHORT, "timeout unknown"),
    ] {
        let (result, other) = tokio::join!(call(&*upstream, fault, json!({}), limit), good.text("echo"));
        assert_eq!(told(&result), expect, "{fault}: {}", why(&result));
        assert!(!other.is_empty());
        assert_eq!(seen.count(fault), 1, "{fault} was sent again");
        let next = call(&*upstream, "echo", json!({}), LONG).await;
        assert_eq!(told(&next), "ok", "after {fault}: {}", why(&next));
    }
    assert_eq!(seen.count("opened"), 1);
    assert_eq!(upstream.health().condition, Condition::Up);
    upstream.close().await;
    good.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_session_is_opened_again_for_the_next_request_only() {
    let (upstream, seen, _server) = start().await;
    assert_eq!(told(&call(&*upstream, "echo", json!({}), LONG).await), "ok");
    let expired = call(&*upstream, "expired", json!({}), LONG).await;
    assert_eq!(
        (told(&expired).as_str(), why(&expired).as_str()),
        ("unavailable refused", "`web`: the session expired")
    );
    assert_eq!(told(&call(&*upstream, "echo", json!({}), LONG).await), "ok");
    assert_eq!((seen.count("expired"), seen.count("opened")), (1, 2));
    upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_was_not_sent_anything() {
    let (upstream, _, server) = start().await;
    assert_eq!(told(&call(&*upstream, "echo", json!({}), LONG).await), "ok");
    server.abort();
    // The listener closes with its task.
    super::peer::until("it is gone", || server.is_finished()).await;
    let gone = call(&*upstream, "echo", json!({}), LONG).await;
    assert_eq!(told(&gone), "unavailable no", "{}", why(&gone));
    upstream.close().await;
    let (never, _, server) = start().await;
    server.abort();
    super::peer::until("it is gone", || server.is_finished()).await;
    let gone = call(&*never, "echo", json!({}), LONG).await;
    assert_eq!(told(&gone), "unavailable no", "{}", why(&gone));
}
