//! Attacks on the HTTP listener by clients without a credential, and by one principal against the others.

use std::sync::Arc;
use std::time::Duration;

use countersign_mcp::server::{
    Certificate, ConnectionLimits, HttpOptions, HttpServer, ServeOptions, SessionEnd, listen,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::kit::{Event, House, HttpHouse, PATIENCE, http, open_session, serve_options, soon};

const HALF: &[u8] = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthoriz";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#;

async fn open(limits: ConnectionLimits, certificate: Option<Certificate>) -> std::net::SocketAddr {
    let (house, _events) = House::new(None);
    let front = HttpServer::new(house, HttpOptions::loopback(serve_options()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(listen(listener, certificate, front.routes("/mcp"), limits, std::future::pending()));
    address
}

fn short() -> ConnectionLimits {
    let timeout = Duration::from_millis(100);
    ConnectionLimits { header_timeout: timeout, idle_timeout: timeout, ..ConnectionLimits::default() }
}

/// Whether the server ends a connection that says nothing more.
async fn is_ended(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn attack_06_half_sent_heads_keep_nobody_out() {
    let address = open(ConnectionLimits { total: 16, ..ConnectionLimits::default() }, None).await;
    let mut half = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(HALF).await;
        half.push(stream);
    }
    for _ in 0..4 {
        let answer = soon(http("POST", &format!("http://{address}/mcp"), &[], INITIALIZE)).await;
        assert_eq!(answer.status, 200);
    }
    drop(half);
}

#[tokio::test]
async fn attack_06_a_head_that_never_ends_and_a_silent_connection_are_closed() {
    let address = open(short(), None).await;
    for sent in [&b""[..], HALF, b"POST /mcp HTTP/1.1\r\n"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        assert!(is_ended(&mut stream).await, "{:?}", String::from_utf8_lossy(sent));
    }
}

#[tokio::test]
async fn attack_06_a_connection_between_requests_is_closed_but_not_during_one() {
    let address = open(short(), None).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = INITIALIZE;
    // Longer than either timeout, but still answered: a request in progress is not idle.
    let late = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"late","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let head = |body: &str, more: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{more}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let modern = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: late\r\n";
    for request in [head(body, ""), head(late, modern)] {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        while !answer.contains("\"id\":1") {
            let mut bytes = [0; 4096];
            let count = soon(stream.read(&mut bytes)).await.unwrap();
            assert_ne!(count, 0, "closed during a request: {answer}");
            answer.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }
    assert!(is_ended(&mut stream).await);
}

#[tokio::test]
async fn attack_06_a_tls_handshake_that_never_ends_is_closed() {
    let (chain, key) =
        (include_bytes!("../../../cli/tests/tls/cert.pem"), include_bytes!("../../../cli/tests/tls/key.pem"));
    let address = open(short(), Some(Certificate::from_pem(chain, key).unwrap())).await;
    for sent in [&b""[..], &[0x16, 0x03, 0x01]] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        assert!(is_ended(&mut stream).await);
    }
}

#[tokio::test]
async fn attack_06_a_client_that_never_reads_its_answer_is_let_go() {
    let (house, _events) = House::new(None);
    let options = HttpOptions::loopback(serve_options());
    let front = HttpServer::new(house, options);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (told, stopped) = tokio::sync::oneshot::channel::<()>();
    let until = async move { stopped.await.unwrap_or_default() };
    let served = tokio::spawn(listen(listener, None, front.routes("/mcp"), short(), until));
    // An echo larger than what lies between two sockets.
    let text = "x".repeat(12 << 20);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"t":"{text}"}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"x","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    // The listener ends once its connections have: this one only because it is given up on.
    told.send(()).unwrap();
    soon(served).await.unwrap().unwrap();
    drop(stream);
}

fn sessions(most: usize) -> HttpOptions {
    HttpOptions { sessions_per_principal: most, ..HttpOptions::loopback(serve_options()) }
}

#[tokio::test]
async fn attack_06_sessions_without_a_credential_lock_nobody_out() {
    let (house, _events) = House::new(None);
    let server = HttpHouse::open_with(house, HttpOptions { max_sessions: 20, ..sessions(8) }).await;
    let url = server.url();
    let ann = open_session(&url, "2025-11-25", "{}", "ann").await;
    for _ in 0..200 {
        assert_eq!(http("POST", &url, &[], INITIALIZE).await.status, 200);
    }
    assert_eq!(server.front.session_count(), 8 + 1, "they share one small number of places");
    for who in ["bob", "cyd", "dan"] {
        open_session(&url, "2025-11-25", "{}", who).await;
    }
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let headers = [("authorization", "ann"), ("mcp-session-id", &*ann)];
    assert_eq!(http("POST", &url, &headers, ping).await.status, 200, "the others' sessions stay");
}

#[tokio::test]
async fn attack_06_all_places_together_are_bounded_and_the_anonymous_give_way_first() {
    let (house, _events) = House::new(None);
    let server = HttpHouse::open_with(house, HttpOptions { max_sessions: 10, ..sessions(8) }).await;
    let url = server.url();
    for _ in 0..8 {
        assert_eq!(http("POST", &url, &[], INITIALIZE).await.status, 200);
    }
    for number in 0..10 {
        open_session(&url, "2025-11-25", "{}", &format!("who-{number}")).await;
    }
    assert_eq!(server.front.session_count(), 10);
    let late = http("POST", &url, &[("authorization", "late")], INITIALIZE).await;
    assert_eq!(late.status, 503, "nobody's session with a credential is taken for another's");
    assert_ne!(late.header("retry-after"), "");
}

#[tokio::test]
async fn attack_06_the_least_recently_used_idle_session_of_the_same_principal_gives_way() {
    let (house, mut events) = House::new(None);
    let server = HttpHouse::open_with(house.clone(), sessions(3)).await;
    let url = server.url();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(open_session(&url, "2025-11-25", "{}", "ann").await);
    }
    let headers = |id: &str| {
        [("authorization".to_owned(), "ann".to_owned()), ("mcp-session-id".to_owned(), id.to_owned())]
    };
    let send = async |id: &str, body: &str| {
        let all = headers(id);
        let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (&**name, &**value)).collect();
        http("POST", &url, &all, body).await.status
    };
    // The first one listens, the second one was used last: the third one goes.
    let all = headers(&ids[0]);
    let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (&**name, &**value)).collect();
    let listening = http("GET", &url, &all, "").await;
    assert_eq!(listening.status, 200);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(send(&ids[1], ping).await, 200);
    house.saved.lock().unwrap().clear();
    open_session(&url, "2025-11-25", "{}", "ann").await;
    let ended = loop {
        if let Event::Closed(end) = soon(events.recv()).await.unwrap() {
            break end;
        }
    };
    assert_eq!(ended, SessionEnd::Expired);
    assert_eq!(server.front.session_count(), 3);
    let answers = [send(&ids[0], ping).await, send(&ids[1], ping).await, send(&ids[2], ping).await];
    assert_eq!(answers, [200, 200, 404]);
    drop(listening);
}

#[tokio::test]
async fn attack_06_one_principal_never_has_all_the_connections() {
    let (house, _events) = House::new(None);
    let options = HttpOptions { requests_per_principal: 4, ..HttpOptions::loopback(serve_options()) };
    let server = HttpHouse::open_with(house, options).await;
    let url = server.url();
    let mut open = Vec::new();
    for _ in 0..4 {
        let id = open_session(&url, "2025-11-25", "{}", "ann").await;
        let headers = [("authorization", "ann"), ("mcp-session-id", &*id)];
        open.push(http("GET", &url, &headers, "").await);
        assert_eq!(open.last().unwrap().status, 200);
    }
    let more = http("POST", &url, &[("authorization", "ann")], INITIALIZE).await;
    assert_eq!(more.status, 429);
    assert_ne!(more.header("retry-after"), "");
    open_session(&url, "2025-11-25", "{}", "bob").await;
    drop(open.pop());
    for _ in 0..100 {
        if http("POST", &url, &[("authorization", "ann")], INITIALIZE).await.status == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("a stream that ended makes room again");
}

#[tokio::test]
async fn attack_06_what_a_client_says_of_itself_is_bounded() {
    let (house, _events) = House::new(None);
    let server = HttpHouse::open_with(house, sessions(8)).await;
    let large = INITIALIZE.replace("\"name\":\"x\"", &format!("\"name\":\"{}\"", "x".repeat(100 << 10)));
    assert_eq!(http("POST", &server.url(), &[], &large).await.status, 400);
    assert_eq!(server.front.session_count(), 0);
}

#[tokio::test]
async fn attack_06_waiting_requests_hold_no_turn() {
    let (house, _events) = House::new(None);
    let serve = ServeOptions { in_flight: 2, ..serve_options() };
    let server = Arc::new(HttpHouse::open_with(house, HttpOptions::loopback(serve)).await);
    let url = server.url();
    let id = open_session(&url, "2025-11-25", "{}", "ann").await;
    let mut waiting = Vec::new();
    for number in 10..40 {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"wait off turn"}}}}"#
        );
        waiting.push(http("POST", &url, &[("authorization", "ann"), ("mcp-session-id", &id)], &body).await);
    }
    let echo = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;
    let answer = soon(http("POST", &url, &[("authorization", "ann"), ("mcp-session-id", &id)], echo)).await;
    assert!(answer.text().await.contains("params"));
    drop(waiting);
}
