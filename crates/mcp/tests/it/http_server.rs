//! The HTTP front: the rules of each revision, streams that can be taken up again, sessions across a restart.

use std::time::Duration;

use countersign_mcp::jsonrpc::FrameLimits;
use countersign_mcp::server::{HttpOptions, SessionEnd};
use serde_json::{Value, json};

use super::kit::{Event, House, HttpHouse, http, modern_meta, open_session, serve_options, soon};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

fn call(id: u64, members: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{members}}}}}"#)
}

fn modern_call(id: u64, members: &str) -> String {
    call(id, &format!(r#"{members},"_meta":{{{}}}"#, modern_meta(r#"{"elicitation":{}}"#)))
}

const MODERN: [(&str, &str); 3] =
    [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "echo")];

#[tokio::test]
async fn what_does_not_belong_here_gets_no_further_than_http() {
    let (house, _events) = House::new(None);
    let options = HttpOptions::loopback(serve_options());
    let options = HttpOptions {
        serve: countersign_mcp::server::ServeOptions {
            limits: FrameLimits { frame: 1000, nesting: 64 },
            ..options.serve.clone()
        },
        ..options
    };
    let server = HttpHouse::open_with(house, options).await;
    let url = server.url();
    let id = open_session(&url, "2025-11-25", "{}", "ann").await;
    let session = ("mcp-session-id", &*id);
    let ann = ("authorization", "ann");
    let long =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "x".repeat(2000));
    let check = async |method: &str, headers: &[(&str, &str)], body: &str, status: u16| {
        let answer = http(method, &url, headers, body).await;
        assert_eq!(answer.status, status, "{method} {headers:?}");
    };
    check("POST", &[ann, session], PING, 200).await;
    check("POST", &[ann, session, ("origin", "http://evil.example")], PING, 403).await;
    check("POST", &[ann, session, ("host", "evil.example")], PING, 403).await;
    check("POST", &[("authorization", "Bearer wrong"), session], PING, 401).await;
    check("POST", &[("authorization", "bob"), session], PING, 404).await;
    check("POST", &[ann], PING, 400).await;
    check("POST", &[ann, ("mcp-session-id", "made-up")], PING, 404).await;
    check("POST", &[ann, session, ("mcp-protocol-version", "1999-01-01")], PING, 400).await;
    check("POST", &[ann, session, ("content-type", "text/plain")], PING, 415).await;
    check("POST", &[ann, session, ("accept", "application/json")], PING, 406).await;
    check("POST", &[ann, session], &long, 413).await;
    // Much more than the socket buffers hold: the answer must still arrive.
    check("POST", &[ann, session], &"x".repeat(24 << 20), 413).await;
    check("POST", &[ann, session], "not json", 400).await;
    check("POST", &[ann, session], &format!("[{PING}]"), 400).await;
    check("POST", &[ann, session], r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, 202).await;
    check("PUT", &[ann, session], PING, 405).await;
    check("GET", &[ann], "", 405).await;
    check("GET", &[ann, session, ("mcp-protocol-version", "2026-07-28")], "", 405).await;
    check("GET", &[ann, session, ("accept", "application/json")], "", 406).await;
    check("DELETE", &[ann], "", 405).await;
    check("DELETE", &[("authorization", "bob"), session], "", 404).await;
    check("DELETE", &[ann, session], "", 204).await;
    check("POST", &[ann, session], PING, 404).await;
    let refused = http("POST", &url, &[("authorization", "Bearer wrong")], PING).await;
    assert_eq!(refused.header("www-authenticate"), "Bearer");
}

#[tokio::test]
async fn attack_15_a_raw_line_end_in_a_string_is_a_parse_error_in_every_era() {
    let (house, _events) = House::new(None);
    let server = HttpHouse::open(house).await;
    let url = server.url();
    let id = open_session(&url, "2025-11-25", "{}", "ann").await;
    let legacy = [("authorization", "ann"), ("mcp-session-id", &*id)];
    for raw in ["\n", "\r", "\r\n", "\t", "\u{1}"] {
        let members = format!(r#""name":"echo","arguments":{{"note":"a{raw}b"}}"#);
        for (headers, body) in [(&legacy[..], call(1, &members)), (&MODERN[..], modern_call(1, &members))] {
            let answer = http("POST", &url, headers, &body).await;
            assert_eq!(answer.status, 400, "{body:?}");
            assert_eq!(answer.json().await["error"]["code"], -32700, "{body:?}");
        }
    }
    let pretty = "{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 1,\n  \"method\": \"tools/call\",\n  \"params\": {\n    \"name\": \"echo\",\n    \"arguments\": {\"note\": \"a\\nb\"}\n  }\n}";
    let answer = http("POST", &url, &legacy, pretty).await.json().await;
    assert_eq!(answer["result"]["params"]["arguments"], json!({"note": "a\nb"}));
}

#[tokio::test]
async fn modern_headers_must_agree_with_the_body() {
    let (house, _events) = House::new(None);
    let server = HttpHouse::open(house).await;
    let url = server.url();
    let body = modern_call(7, r#""name":"echo""#);
    let done = http("POST", &url, &MODERN, &body).await;
    assert_eq!(
        (done.status, done.header("mcp-session-id"), done.header("content-type")),
        (200, "", "application/json")
    );
    let value = done.json().await;
    assert_eq!((value["id"].as_i64(), value["result"]["resultType"].as_str()), (Some(7), Some("complete")));

    let check = async |headers: &[(&str, &str)], body: &str, status: u16, code: i64| {
        let answer = http("POST", &url, headers, body).await;
        let got = answer.status;
        let value = answer.json().await;
        assert_eq!((got, value["error"]["code"].as_i64()), (status, Some(code)), "{headers:?} {value}");
    };
    check(&MODERN[1..], &body, 400, -32020).await;
    check(&MODERN[..2], &body, 400, -32020).await;
    check(&[MODERN[0], MODERN[1], ("mcp-name", "other")], &body, 400, -32020).await;
    check(&[MODERN[0], ("mcp-method", "tools/list"), MODERN[2]], &body, 400, -32020).await;
    check(&[("mcp-protocol-version", "2025-11-25"), MODERN[1], MODERN[2]], &body, 400, -32020).await;
    check(&MODERN, &call(1, r#""name":"echo""#), 400, -32602).await;
    let future = body.replace("2026-07-28", "2031-01-01");
    check(&[("mcp-protocol-version", "2031-01-01"), MODERN[1], MODERN[2]], &future, 400, -32022).await;
    let meta = modern_meta("{}");
    let unknown = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"no/such","params":{{"_meta":{{{meta}}}}}}}"#);
    check(&[MODERN[0], ("mcp-method", "no/such")], &unknown, 404, -32601).await;
    let wrapped =
        http("POST", &url, &[MODERN[0], MODERN[1], ("mcp-name", "=?base64?ZWNobw==?=")], &body).await;
    assert_eq!(wrapped.status, 200);
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(http("POST", &url, &MODERN[..1], notice).await.status, 202);
}

#[tokio::test]
async fn modern_streams_parks_and_hangs_up() {
    let (house, mut events) = House::new(None);
    let server = HttpHouse::open(house).await;
    let url = server.url();
    let headers = |name| [MODERN[0], MODERN[1], ("mcp-name", name)];

    let meta = modern_meta("{}");
    let body = call(1, &format!(r#""name":"progress","_meta":{{"progressToken":"p",{meta}}}"#));
    let mut stream = http("POST", &url, &headers("progress"), &body).await;
    assert_eq!(
        (stream.header("content-type"), stream.header("x-accel-buffering")),
        ("text/event-stream", "no")
    );
    for n in 1..=50 {
        assert_eq!(stream.event_value().await["params"], json!({"progressToken": "p", "progress": n}));
    }
    assert_eq!(stream.event_value().await["id"], 1);
    assert!(stream.event().await.is_none());

    let parked = http("POST", &url, &headers("ask"), &modern_call(2, r#""name":"ask""#)).await.json().await;
    let state = &parked["result"]["requestState"];
    let retry =
        format!(r#""name":"ask","inputResponses":{{"q1":{{"action":"accept"}}}},"requestState":{state}"#);
    let mut foreign = headers("ask").to_vec();
    foreign.push(("authorization", "eve"));
    let stolen = http("POST", &url, &foreign, &modern_call(3, &retry)).await.json().await;
    assert_eq!(stolen["error"]["code"], -32602);
    let done = http("POST", &url, &headers("ask"), &modern_call(4, &retry)).await.json().await;
    assert_eq!(done["result"]["answer"], json!({"action": "accept"}));

    // A reply that takes long gets a stream to wait on.
    let late = http("POST", &url, &headers("late"), &modern_call(6, r#""name":"late""#)).await;
    assert_eq!(late.header("content-type"), "text/event-stream");

    // Hanging up is cancelling.
    let body = modern_call(5, r#""name":"wait""#);
    let waiting = tokio::spawn(async move { http("POST", &url, &headers("wait"), &body).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    waiting.abort();
    loop {
        if matches!(soon(events.recv()).await.unwrap(), Event::Cancelled) {
            break;
        }
    }
}

#[tokio::test]
async fn modern_news_comes_on_listen_streams() {
    let (house, mut events) = House::new(None);
    let server = HttpHouse::open(house.clone()).await;
    let meta = modern_meta("{}");
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{{meta}}}}}}}"#
    );
    let mut stream =
        http("POST", &server.url(), &[MODERN[0], ("mcp-method", "subscriptions/listen")], &body).await;
    assert_eq!(stream.event_value().await["method"], "notifications/subscriptions/acknowledged");
    let session = house.sessions.lock().unwrap()[0].clone();
    let told = async {
        loop {
            session.notify("notifications/tools/list_changed", None).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let news: Value = tokio::select! {
        news = stream.event_value() => news,
        () = told => unreachable!(),
    };
    assert_eq!(news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "L");
    drop(stream);
    loop {
        if matches!(soon(events.recv()).await.unwrap(), Event::Closed(SessionEnd::TransportClosed)) {
            break;
        }
    }
}

#[tokio::test]
async fn legacy_streams_can_be_taken_up_again() {
    let (house, _events) = House::new(None);
    let server = HttpHouse::open(house.clone()).await;
    let url = server.url();
    for (version, primed) in [("2025-06-18", false), ("2025-11-25", true)] {
        let id = open_session(&url, version, "{}", "ann").await;
        let headers = [("authorization", "ann"), ("mcp-session-id", &*id), ("mcp-protocol-version", version)];
        let body = call(1, r#""name":"progress","_meta":{"progressToken":"p"}"#);
        let mut stream = http("POST", &url, &headers, &body).await;
        if primed {
            let (first, data) = stream.event().await.unwrap();
            assert!(first.ends_with("-0") && data.is_empty());
        }
        let mut last = String::new();
        for n in 1..=20 {
            let (id, data) = stream.event().await.unwrap();
            assert_eq!(serde_json::from_str::<Value>(&data).unwrap()["params"]["progress"], n);
            last = id;
        }
        drop(stream);
        let mut again = headers.to_vec();
        again.push(("last-event-id", &last));
        let mut stream = http("GET", &url, &again, "").await;
        if primed {
            stream.event().await.unwrap();
        }
        for n in 21..=50 {
            assert_eq!(stream.event_value().await["params"]["progress"], n);
        }
        assert_eq!(stream.event_value().await["id"], 1);
        assert!(stream.event().await.is_none());
    }
}

#[tokio::test]
async fn legacy_questions_and_news() {
    let (house, mut events) = House::new(None);
    let server = HttpHouse::open(house.clone()).await;
    let url = server.url();
    let id = open_session(&url, "2025-06-18", r#"{"elicitation":{}}"#, "ann").await;
    let headers = [("authorization", "ann"), ("mcp-session-id", &*id)];
    let mut stream = http("POST", &url, &headers, &call(1, r#""name":"ask""#)).await;
    let question = stream.event_value().await;
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}).to_string();
    assert_eq!(http("POST", &url, &headers, &answer).await.status, 202);
    assert_eq!(stream.event_value().await["result"]["answer"], json!({"action": "accept"}));

    // News waits for the GET stream, and reaches it.
    let session = house.sessions.lock().unwrap()[0].clone();
    session.notify("notifications/tools/list_changed", None).await.unwrap();
    let mut news = http("GET", &url, &headers, "").await;
    assert_eq!(news.event_value().await["method"], "notifications/tools/list_changed");
    session.notify("notifications/prompts/list_changed", None).await.unwrap();
    assert_eq!(news.event_value().await["method"], "notifications/prompts/list_changed");

    // A legacy client cancels by saying so.
    let body = call(2, r#""name":"wait""#);
    let waiting = tokio::spawn({
        let (url, id) = (url.clone(), id.clone());
        async move { http("POST", &url, &[("authorization", "ann"), ("mcp-session-id", &id)], &body).await.status }
    });
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    soon(async {
        while !waiting.is_finished() {
            http("POST", &url, &headers, cancel).await;
        }
    })
    .await;
    loop {
        if matches!(soon(events.recv()).await.unwrap(), Event::Cancelled) {
            break;
        }
    }
    assert_eq!(http("DELETE", &url, &headers, "").await.status, 204);
    assert!(news.event().await.is_none());
}

#[tokio::test]
async fn sessions_survive_a_restart_for_their_own_principal() {
    let (house, mut events) = House::new(None);
    let first = HttpHouse::open(house.clone()).await;
    let id = open_session(&first.url(), "2025-06-18", "{}", "ann").await;
    first.front.shutdown().await;
    assert!(matches!(soon(events.recv()).await, Some(Event::Closed(SessionEnd::Shutdown))));
    let second = HttpHouse::open(house).await;
    let ask = async |who: &str| {
        http("POST", &second.url(), &[("authorization", who), ("mcp-session-id", &id)], PING).await.status
    };
    assert_eq!(ask("bob").await, 404);
    assert_eq!(ask("ann").await, 200);
}

#[tokio::test]
async fn batches_over_http_exist_in_one_revision() {
    let (house, _events) = House::new(None);
    let server = HttpHouse::open(house).await;
    let id = open_session(&server.url(), "2025-03-26", "{}", "ann").await;
    let headers = [("authorization", "ann"), ("mcp-session-id", &*id)];
    let batch = format!("[{PING},{}]", PING.replace('1', "2"));
    let mut stream = http("POST", &server.url(), &headers, &batch).await;
    let mut ids = [stream.event_value().await["id"].as_i64(), stream.event_value().await["id"].as_i64()];
    ids.sort_unstable();
    assert_eq!(ids, [Some(1), Some(2)]);
    assert!(stream.event().await.is_none());
}

#[tokio::test]
async fn quiet_streams_say_that_they_live() {
    let (house, _events) = House::new(None);
    let options =
        HttpOptions { keep_alive: Duration::from_millis(10), ..HttpOptions::loopback(serve_options()) };
    let server = HttpHouse::open_with(house, options).await;
    let id = open_session(&server.url(), "2025-06-18", "{}", "ann").await;
    let stream = http("GET", &server.url(), &[("authorization", "ann"), ("mcp-session-id", &*id)], "").await;
    let seen = tokio::time::timeout(Duration::from_millis(300), stream.text()).await;
    // The stream stays open; only raw bytes show the comments.
    assert!(seen.is_err());
    let stream = http("GET", &server.url(), &[("authorization", "ann"), ("mcp-session-id", &*id)], "").await;
    assert!(stream.first_bytes().await.starts_with(": alive"));
}

#[tokio::test]
async fn a_service_may_want_every_reply_on_a_stream() {
    let (house, _events) = House::new(None);
    house.streamed.store(true, std::sync::atomic::Ordering::Relaxed);
    let server = HttpHouse::open(house).await;
    let url = server.url();
    let id = open_session(&url, "2025-11-25", "{}", "ann").await;
    let session = [("authorization", "ann"), ("mcp-session-id", &*id)];
    let mut stream = http("POST", &url, &session, PING).await;
    assert_eq!(stream.header("content-type"), "text/event-stream");
    // First where to take the stream up again and when, then the reply, then the end.
    let (first, data) = stream.event().await.unwrap();
    assert!(!first.is_empty() && data.is_empty());
    assert_eq!(stream.event_value().await["id"], 1);
    assert!(stream.event().await.is_none());

    let mut modern = http("POST", &url, &MODERN, &modern_call(7, r#""name":"echo""#)).await;
    assert_eq!((modern.status, modern.header("content-type")), (200, "text/event-stream"));
    assert_eq!(modern.event_value().await["result"]["resultType"], "complete");
    assert!(modern.event().await.is_none());
    // An error keeps its status.
    let meta = modern_meta("{}");
    let unknown = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"no/such","params":{{"_meta":{{{meta}}}}}}}"#);
    let refused = http("POST", &url, &[MODERN[0], ("mcp-method", "no/such")], &unknown).await;
    assert_eq!((refused.status, refused.header("content-type")), (404, "application/json"));
}
