//! The downstream face over an in-memory line: openings, malformed frames, cancellation, questions, batches.

use serde_json::json;

use super::kit::{Event, House, LineClient, modern_meta, soon};

#[tokio::test]
async fn a_legacy_client_is_served_in_its_version() {
    let (house, mut events) = House::new(None);
    let mut client = LineClient::connect(house);
    let opened = client.initialize("2025-06-18", "{}").await;
    assert_eq!(opened["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(opened["result"]["serverInfo"]["name"], "house");
    assert_eq!(opened["result"]["instructions"], "be kind");
    assert_eq!(
        client.exchange(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await,
        json!({"jsonrpc":"2.0","id":"p","result":{}})
    );
    let answer = client.exchange(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    assert_eq!(answer["result"], json!({"tools": []}));
    let unknown = client.exchange(r#"{"jsonrpc":"2.0","id":2,"method":"server/discover"}"#).await;
    assert_eq!(unknown["error"]["code"], -32601);
    client.close().await;
    assert!(
        matches!(soon(events.recv()).await, Some(Event::Notification(n)) if &*n.method == "notifications/initialized")
    );
    assert!(matches!(
        soon(events.recv()).await,
        Some(Event::Closed(countersign_mcp::server::SessionEnd::TransportClosed))
    ));
}

#[tokio::test]
async fn a_modern_client_is_served_statelessly() {
    let (house, _events) = House::new(None);
    let mut client = LineClient::connect(house.clone());
    let meta = modern_meta("{}");
    let found = client
        .exchange(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{"_meta":{{{meta}}}}}}}"#
        ))
        .await;
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    assert_eq!(found["result"]["ttlMs"], 1000);
    let listed = client
        .exchange(&format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{{"_meta":{{{meta}}}}}}}"#
        ))
        .await;
    assert_eq!(
        listed["result"],
        json!({"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
               "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "house", "version": "1"}}})
    );
    let bare = client.exchange(r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#).await;
    assert_eq!(bare["error"]["code"], -32602);
    let future = client.exchange(r#"{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2031-01-01"}}}"#).await;
    assert_eq!(future["error"]["code"], -32022);
    assert_eq!(future["error"]["data"]["supported"][0], "2026-07-28");
    let ping = client
        .exchange(&format!(r#"{{"jsonrpc":"2.0","id":5,"method":"ping","params":{{"_meta":{{{meta}}}}}}}"#))
        .await;
    assert_eq!(ping["error"]["code"], -32601);

    // News only where it was asked for, marked with the listen request's id.
    let session = house.sessions.lock().unwrap()[0].clone();
    session.notify("notifications/tools/list_changed", None).await.unwrap();
    client.send(&format!(r#"{{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{{meta}}}}}}}"#)).await;
    let acknowledged = client.value().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true}));
    // The listen stream is registered right after its acknowledgement was queued.
    loop {
        session.notify("notifications/prompts/list_changed", None).await.unwrap();
        session.notify("notifications/tools/list_changed", None).await.unwrap();
        if let Ok(line) = tokio::time::timeout(std::time::Duration::from_millis(200), client.value()).await {
            assert_eq!(line["method"], "notifications/tools/list_changed");
            assert_eq!(line["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "L");
            break;
        }
    }
    client.close().await;
}

#[tokio::test]
async fn a_probe_may_turn_back_to_initialize() {
    let (house, _events) = House::new(None);
    let mut client = LineClient::connect(house);
    let meta = modern_meta("{}");
    client
        .exchange(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{"_meta":{{{meta}}}}}}}"#
        ))
        .await;
    let opened = client.initialize("2025-11-25", "{}").await;
    assert_eq!(opened["result"]["protocolVersion"], "2025-11-25");
    client.close().await;
}

#[tokio::test]
async fn the_line_survives_what_is_malformed() {
    let (house, mut events) = House::new(None);
    let mut client = LineClient::connect(house);
    client.initialize("2025-11-25", "{}").await;
    assert_eq!(client.exchange("not json").await["error"]["code"], -32700);
    assert_eq!(
        client.exchange(r#"{"jsonrpc":"2.0","id":7,"method":5}"#).await,
        json!({"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"`method` must be a string"}})
    );
    assert_eq!(
        client.exchange(r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#).await["error"]["code"],
        -32600
    );
    tokio::io::AsyncWriteExt::write_all(&mut client.to, b"{\"id\":1,\"x\":\"\xff\"}\n").await.unwrap();
    assert_eq!(client.value().await["error"]["code"], -32700);
    // 17 MiB in one line: refused by name, then business as usual.
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{{"x":"{}"}}}}"#,
        "y".repeat(17 << 20)
    );
    let answer = client.exchange(&long).await;
    assert_eq!((answer["id"].as_str(), answer["error"]["code"].as_i64()), (Some("long"), Some(-32600)));
    let panicked =
        client.exchange(r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"panic"}}"#).await;
    assert_eq!((panicked["id"].as_i64(), panicked["error"]["code"].as_i64()), (Some(8), Some(-32603)));
    assert_eq!(client.exchange(r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#).await["result"], json!({}));
    client.close().await;
    let mut malformed = 0;
    while let Ok(event) = events.try_recv() {
        malformed += usize::from(matches!(event, Event::Notice(_)));
    }
    assert_eq!(malformed, 4);
}

#[tokio::test]
async fn batches_exist_in_one_revision() {
    let (house, _events) = House::new(None);
    let mut client = LineClient::connect(house);
    client.initialize("2025-03-26", "{}").await;
    let answer = client
        .exchange(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":2,"method":"tools/list"},{"id":3}]"#)
        .await;
    let mut ids: Vec<i64> =
        answer.as_array().unwrap().iter().map(|part| part["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
    client.close().await;
}

#[tokio::test]
async fn a_cancelled_request_gets_no_reply() {
    let (house, mut events) = House::new(None);
    let mut client = LineClient::connect(house);
    client.initialize("2025-11-25", "{}").await;
    client.send(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"wait"}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#).await;
    loop {
        if matches!(soon(events.recv()).await.unwrap(), Event::Cancelled) {
            break;
        }
    }
    // Another request with the same id is a new one, and the next line is its reply.
    assert_eq!(client.exchange(r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#).await["id"], 6);
    client.close().await;
}

#[tokio::test]
async fn questions_travel_as_requests_in_the_legacy_era() {
    let (house, mut events) = House::new(None);
    let mut client = LineClient::connect(house);
    client.initialize("2025-11-25", r#"{"elicitation":{}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"ask"}}"#).await;
    let question = client.value().await;
    assert_eq!(question["method"], "elicitation/create");
    let id = &question["id"];
    let answer =
        client.exchange(&json!({"jsonrpc":"2.0","id":id,"result":{"action":"accept"}}).to_string()).await;
    assert_eq!(answer, json!({"jsonrpc":"2.0","id":5,"result":{"answer":{"action":"accept"}}}));
    // The same answer again is late.
    client.send(&json!({"jsonrpc":"2.0","id":id,"result":{"action":"accept"}}).to_string()).await;
    loop {
        if matches!(
            soon(events.recv()).await.unwrap(),
            Event::Notice(countersign_mcp::server::ClientAnomaly::LateAnswer)
        ) {
            break;
        }
    }
    // A question nobody waits for any more is withdrawn.
    client.send(r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"ask briefly"}}"#).await;
    let question = client.value().await;
    let withdrawn = client.value().await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(client.value().await["result"], json!({"given_up": true}));
    client.close().await;
}

#[tokio::test]
async fn a_client_that_did_not_offer_is_not_asked() {
    let (house, _events) = House::new(None);
    let mut client = LineClient::connect(house);
    client.initialize("2025-11-25", "{}").await;
    let answer =
        client.exchange(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"ask"}}"#).await;
    assert_eq!(answer["error"]["code"], -32601);
    client.close().await;
}

#[tokio::test]
async fn questions_park_the_request_in_the_modern_era() {
    let (house, _events) = House::new(None);
    let mut client = LineClient::connect(house);
    let meta = modern_meta(r#"{"elicitation":{}}"#);
    let ask = |id: &str, name: &str, more: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}"{more},"_meta":{{{meta}}}}}}}"#
        )
    };
    let answers =
        |state: &str| format!(r#","inputResponses":{{"q1":{{"action":"accept"}}}},"requestState":"{state}""#);

    let first = client.exchange(&ask("1", "ask", "")).await;
    assert_eq!(first["result"]["resultType"], "input_required");
    assert_eq!(first["result"]["inputRequests"]["q1"]["method"], "elicitation/create");
    let state = first["result"]["requestState"].as_str().unwrap().to_owned();
    // Another target with the same state is refused, and does not use the state up.
    let foreign = client.exchange(&ask("2", "echo", &answers(&state))).await;
    assert_eq!(foreign["error"]["code"], -32602);
    let done = client.exchange(&ask("3", "ask", &answers(&state))).await;
    assert_eq!(done["result"]["answer"], json!({"action": "accept"}));
    assert_eq!(done["result"]["resultType"], "complete");
    // Good once.
    let again = client.exchange(&ask("4", "ask", &answers(&state))).await;
    assert_eq!(again["error"]["code"], -32602);
    let mut forged = state.clone();
    forged.replace_range(state.len() - 4.., "AAAA");
    let forged = client.exchange(&ask("5", "ask", &answers(&forged))).await;
    assert_eq!(forged["error"]["code"], -32602);
    // A state of somebody else's making is the service's business, not ours.
    let foreign = client.exchange(&ask("51", "echo", &answers("cs1.other.AAAA"))).await;
    assert_eq!(foreign["result"]["params"]["requestState"], "cs1.other.AAAA");

    // Two rounds, and an answer left out is asked for again.
    let round = client.exchange(&ask("6", "ask twice", "")).await;
    let state = round["result"]["requestState"].as_str().unwrap().to_owned();
    let round = client.exchange(&ask("7", "ask twice", &format!(r#","requestState":"{state}""#))).await;
    assert_eq!(round["result"]["resultType"], "input_required");
    let state = round["result"]["requestState"].as_str().unwrap().to_owned();
    let round = client.exchange(&ask("8", "ask twice", &answers(&state))).await;
    assert_eq!(round["result"]["resultType"], "input_required");
    let state = round["result"]["requestState"].as_str().unwrap().to_owned();
    let done = client.exchange(&ask("9", "ask twice", &answers(&state))).await;
    assert_eq!(done["result"]["answers"], json!([{"action": "accept"}, {"action": "accept"}]));

    // Questions put side by side are one round; one that is dropped at once leaves the reply alone.
    let round = client.exchange(&ask("20", "ask both", "")).await;
    assert_eq!(round["result"]["inputRequests"].as_object().unwrap().len(), 2);
    let state = &round["result"]["requestState"];
    let both = format!(r#","inputResponses":{{"q1":{{"n":1}},"q2":{{"n":2}}}},"requestState":{state}"#);
    let done = client.exchange(&ask("21", "ask both", &both)).await;
    assert_eq!(done["result"]["answers"], json!([{"n": 1}, {"n": 2}]));
    let done = client.exchange(&ask("22", "ask and go on", "")).await;
    assert_eq!(done["result"]["asked"], false);

    // Decided elsewhere while the client was away: its return finds the result.
    let round = client.exchange(&ask("10", "ask briefly", "")).await;
    let state = round["result"]["requestState"].as_str().unwrap().to_owned();
    tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    let done = client.exchange(&ask("11", "ask briefly", &answers(&state))).await;
    assert_eq!(done["result"]["given_up"], true);
    client.close().await;
}
