//! The upstream face over HTTP: both eras against our own front, and servers that fail in every way HTTP can.

use std::sync::Arc;
use std::time::Duration;

use countersign_mcp::client::{
    BoxFuture, Deadline, EraChoice, HttpSpec, NotificationRelay, QuestionResponder, Questions,
    RequestOptions, Upstream, UpstreamOptions, UpstreamSpec,
};
use countersign_mcp::era::Era;
use countersign_mcp::fault::{DeliveryState, FaultKind, RequestFailure, TransportFault};
use countersign_mcp::jsonrpc::{FrameLimits, Notification, Reply};
use countersign_mcp::raw::{self, RawJson};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::kit::{Ears, Event, House, HttpHouse, call, plan, raw, soon};

async fn connect(url: &str, era: EraChoice) -> Result<(Upstream, Arc<Ears>), RequestFailure> {
    let ears = Arc::new(Ears::default());
    let connect = UpstreamOptions { era, ..plan(&ears) };
    let upstream = soon(Upstream::connect(&UpstreamSpec::Http(HttpSpec::new(url)), connect)).await?;
    Ok((upstream, ears))
}

/// Says yes and counts progress.
#[derive(Default)]
struct Person {
    progress: std::sync::Mutex<Vec<String>>,
}

impl QuestionResponder for Person {
    fn ask<'a>(&'a self, method: &'a str, _: Option<RawJson>) -> BoxFuture<'a, Reply> {
        assert_eq!(method, "elicitation/create");
        Box::pin(std::future::ready(Ok(raw(r#"{"action":"accept"}"#))))
    }
}

impl NotificationRelay for Person {
    fn notification(&self, notification: Notification) -> BoxFuture<'_, ()> {
        self.progress.lock().unwrap().push(notification.params.unwrap().get().to_owned());
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn both_eras_of_our_own_front() {
    for known in [EraChoice::Probe, EraChoice::Known(Era::Legacy)] {
        let (house, mut events) = House::new(None);
        let server = HttpHouse::open(house.clone()).await;
        let (upstream, ears) = connect(&server.url(), known).await.unwrap();
        let era = if known == EraChoice::Probe { Era::Modern } else { Era::Legacy };
        assert_eq!(upstream.era(), era);
        assert_eq!(upstream.instructions(), Some("be kind"));

        let params = r#"{"name":"echo","arguments":{"b":12345678901234567890123,"a" : 1.50}}"#;
        let result = soon(upstream.request("tools/call", Some(&raw(params)), RequestOptions::default()))
            .await
            .unwrap();
        let echoed = raw::get(&result, "params").unwrap();
        assert_eq!(
            raw::get(echoed, "arguments").unwrap().get(),
            r#"{"b":12345678901234567890123,"a" : 1.50}"#
        );

        let person = Arc::new(Person::default());
        let options = RequestOptions {
            relay: Some(person.clone()),
            questions: Questions::Bridge(person.clone()),
            ..RequestOptions::default()
        };
        let params = raw(r#"{"name":"progress","_meta":{"progressToken":"mine"}}"#);
        soon(upstream.request("tools/call", Some(&params), options.clone())).await.unwrap();
        let expected: Vec<String> =
            (1..=50).map(|n| format!(r#"{{"progressToken":"mine","progress":{n}}}"#)).collect();
        assert_eq!(*person.progress.lock().unwrap(), expected);

        let asked = soon(upstream.request("tools/call", Some(&call("ask", "{}")), options)).await.unwrap();
        assert_eq!(raw::get(&asked, "answer").unwrap().get(), r#"{"action":"accept"}"#);

        // Notifications: the GET stream or the listen stream, as soon as it is open.
        let session = soon(async {
            loop {
                if let Some(session) = house.sessions.lock().unwrap().last().cloned() {
                    return session;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        soon(async {
            while ears.heard.lock().unwrap().is_empty() {
                session.notify("notifications/tools/list_changed", None).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert!(ears.heard.lock().unwrap()[0].starts_with("notifications/tools/list_changed"));

        // A dropped request is cancelled, by word or by hanging up.
        let params = call("wait", "{}");
        let request = upstream.request("tools/call", Some(&params), RequestOptions::default());
        assert!(tokio::time::timeout(Duration::from_millis(50), request).await.is_err());
        loop {
            if matches!(soon(events.recv()).await.unwrap(), Event::Cancelled) {
                break;
            }
        }
        upstream.close().await;
        assert!(era == Era::Modern || server.front.session_count() == 0);
    }
}

#[tokio::test]
async fn a_forgotten_session_is_said_so() {
    let (house, _events) = House::new(None);
    let server = HttpHouse::open(house.clone()).await;
    let (upstream, _) = connect(&server.url(), EraChoice::Known(Era::Legacy)).await.unwrap();
    house.saved.lock().unwrap().clear();
    server.front.shutdown().await;
    let failure = soon(upstream.request("tools/list", None, RequestOptions::default())).await.unwrap_err();
    assert!(matches!(
        failure,
        RequestFailure::Wire(TransportFault {
            kind: FaultKind::SessionExpired,
            sent: DeliveryState::Refused
        })
    ));
}

/// A server that answers every connection with the same bytes, after reading the request.
async fn canned(response: impl Into<Vec<u8>>) -> String {
    let response: Arc<[u8]> = response.into().into();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let response = response.clone();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                let mut part = [0u8; 4096];
                while !seen.windows(4).any(|window| window == b"\r\n\r\n") {
                    match stream.read(&mut part).await {
                        Ok(length @ 1..) => seen.extend_from_slice(&part[..length]),
                        _ => return,
                    }
                }
                let endless = response.ends_with(b"...");
                let _ = stream.write_all(&response).await;
                while endless && stream.write_all(b": tick\n\n").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn every_way_http_can_fail_has_a_name() {
    let check = async |response: &str, expect: &dyn Fn(&TransportFault) -> bool| {
        let url = canned(response).await;
        let ears = Arc::new(Ears::default());
        let connect = UpstreamOptions {
            era: EraChoice::Known(Era::Modern),
            open_timeout: Duration::from_secs(2),
            limits: FrameLimits { frame: 64 << 10, nesting: 64 },
            ..plan(&ears)
        };
        let failure =
            soon(Upstream::connect(&UpstreamSpec::Http(HttpSpec::new(url)), connect)).await.unwrap_err();
        match failure {
            RequestFailure::Wire(fault) => assert!(expect(&fault), "{response:?}: {fault:?}"),
            RequestFailure::Rpc(error) => panic!("{response:?}: {error:?}"),
        }
    };
    let status = |wanted: u16, sent: DeliveryState| {
        move |fault: &TransportFault| {
            matches!(fault.kind, FaultKind::Status { status, .. } if status == wanted) && fault.sent == sent
        }
    };
    check("HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\nno", &status(500, DeliveryState::Unknown)).await;
    check("HTTP/1.1 429 Slow\r\ncontent-length: 0\r\n\r\n", &status(429, DeliveryState::Refused)).await;
    check(
        "HTTP/1.1 302 Go\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
        &|fault| matches!(&fault.kind, FaultKind::Redirect(to) if to == "http://169.254.169.254/"),
    )
    .await;
    check("HTTP/1.1 401 Who\r\nwww-authenticate: Bearer realm=x\r\ncontent-length: 0\r\n\r\n", &|fault| {
        matches!(&fault.kind, FaultKind::Unauthorized { status: 401, challenge, .. } if challenge == "Bearer realm=x")
    })
    .await;
    // Cut off in the middle: nobody knows.
    check("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{", &|fault| {
        matches!(fault.kind, FaultKind::Closed(_)) && fault.sent == DeliveryState::Unknown
    })
    .await;
    check("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 0\r\n\r\n", &|fault| {
        matches!(fault.kind, FaultKind::Protocol(_))
    })
    .await;
    check("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n{}x", &|fault| {
        matches!(fault.kind, FaultKind::Protocol(_))
    })
    .await;
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    check(&format!("{stream}data: {}\n\n", "x".repeat(200_000)), &|fault| {
        matches!(fault.kind, FaultKind::TooLarge(_))
    })
    .await;
    check(&format!("{stream}..."), &|fault| matches!(fault.kind, FaultKind::Timeout(_))).await;
    check(&format!("{stream}data: {{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{{}}}}\n\n"), &|fault| {
        matches!(fault.kind, FaultKind::Closed(_)) && fault.sent == DeliveryState::Unknown
    })
    .await;
}

#[tokio::test]
async fn attack_15_a_reply_with_a_raw_line_end_in_a_string_is_refused() {
    let reply = |end: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"supportedVersions":["2026-07-28"],"instructions":"a{end}b"}}}}"#
        )
    };
    let body = reply("\n");
    let json = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // The lines of one event are joined by a line end.
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let events = format!("{stream}data: {}\n\n", reply("\ndata: "));
    for response in [json, events] {
        let url = canned(response.clone()).await;
        let Err(RequestFailure::Wire(fault)) = connect(&url, EraChoice::Known(Era::Modern)).await else {
            panic!("{response}")
        };
        assert!(matches!(fault.kind, FaultKind::Protocol(_)), "{response} {fault:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_was_not_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let Err(RequestFailure::Wire(fault)) = connect(&url, EraChoice::Probe).await else { panic!("no fault") };
    assert!(matches!(fault.kind, FaultKind::Connect(_)) && fault.sent == DeliveryState::No, "{fault:?}");

    let deny: countersign_mcp::client::AddressRule = Arc::new(|address| !address.is_loopback());
    for url in ["http://127.0.0.1:9/mcp", "http://localhost:9/mcp", "http://[::1]:9/mcp"] {
        let ears = Arc::new(Ears::default());
        let spec = HttpSpec { addresses: Some(deny.clone()), ..HttpSpec::new(url) };
        let failure = soon(Upstream::connect(&UpstreamSpec::Http(spec), plan(&ears))).await.unwrap_err();
        let RequestFailure::Wire(fault) = failure else { panic!("{url}") };
        assert!(
            matches!(fault.kind, FaultKind::AddressDenied(_)) && fault.sent == DeliveryState::No,
            "{url} {fault:?}"
        );
    }
    let Err(RequestFailure::Wire(fault)) = connect("http://169.254.169.254/latest", EraChoice::Probe).await
    else {
        panic!("no fault")
    };
    assert!(matches!(fault.kind, FaultKind::AddressDenied(_)));
}

#[tokio::test]
async fn a_legacy_server_is_found_behind_its_refusal() {
    // Refuses everything that is not `initialize`, as session servers do.
    let app = axum::Router::new().route(
        "/mcp",
        axum::routing::post(|body: String| async move {
            let json = [("content-type", "application/json"), ("mcp-session-id", "s1")];
            if body.contains(r#""initialize""#) {
                let id = raw::get(&raw(body), "id").unwrap().get().to_owned();
                let result =
                    r#"{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"old"}}"#;
                (http::StatusCode::OK, json, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
            } else if body.contains("notifications/initialized") {
                (http::StatusCode::ACCEPTED, json, String::new())
            } else {
                let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}"#;
                (http::StatusCode::BAD_REQUEST, json, error.to_owned())
            }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let (upstream, _) = connect(&url, EraChoice::Probe).await.unwrap();
    assert_eq!((upstream.era(), upstream.version().as_str()), (Era::Legacy, "2025-03-26"));
    let options =
        RequestOptions { deadline: Deadline::Total(Duration::from_secs(5)), ..RequestOptions::default() };
    let failure = soon(upstream.request("tools/list", None, options)).await.unwrap_err();
    assert!(matches!(failure, RequestFailure::Rpc(error) if error.code() == -32000));
    upstream.close().await;
}

#[tokio::test]
async fn a_stream_the_server_closes_is_taken_up_again_and_the_request_is_not_sent_twice() {
    let posts = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = posts.clone();
    let post = async move |body: String| {
        let (json, events) = ("application/json", "text/event-stream");
        let reply =
            |kind: &'static str, text: String| ([("content-type", kind), ("mcp-session-id", "s1")], text);
        let id = raw::get(&raw(body.clone()), "id").map(|id| id.get().to_owned()).unwrap_or_default();
        if body.contains(r#""initialize""#) {
            let result =
                r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"polled"}}"#;
            return reply(json, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
        }
        if body.contains("tools/call") {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            // Says where it stands, and hangs up: come back in 10 ms.
            return reply(events, format!("id: at-{id}\nretry: 10\ndata: \n\n"));
        }
        reply(json, String::new())
    };
    let get = async |headers: http::HeaderMap| {
        let last = headers.get("last-event-id").map(|last| last.to_str().unwrap().to_owned());
        let Some(id) = last.as_deref().and_then(|last| last.strip_prefix("at-")) else {
            return (http::StatusCode::METHOD_NOT_ALLOWED, [("content-type", "text/plain")], String::new());
        };
        let text = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"late\":true}}}}\n\n");
        (http::StatusCode::OK, [("content-type", "text/event-stream")], text)
    };
    let app = axum::Router::new().route("/mcp", axum::routing::post(post).get(get));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let (upstream, _) = connect(&url, EraChoice::Known(Era::Legacy)).await.unwrap();
    let result = soon(upstream.request("tools/call", Some(&call("x", "{}")), RequestOptions::default()))
        .await
        .unwrap();
    assert_eq!(result.get(), r#"{"late":true}"#);
    assert_eq!(posts.load(std::sync::atomic::Ordering::Relaxed), 1);
    upstream.close().await;
}
