//! Nothing lost, changed or reordered between a client and an upstream, whatever passes.

use serde_json::Value;

use super::kit::{House, LineClient, connect, soon};

#[tokio::test]
async fn invariant_nothing_dropped() {
    let (upstream, _) = connect("legacy").await;
    let (house, _events) = House::new(Some(upstream.clone()));
    let mut client = LineClient::connect(house);
    client.initialize("2025-11-25", "{}").await;
    let params = r#"{"name":"echo", "z" : 1.50,"arguments":{"b":12345678901234567890123,"a":"\u00e9\/","n":-0.0,"e":1E400},"vendor":{"k":[ ]},"_meta":{"x/y": true ,"progressToken":"t"}}"#;
    client.send(&format!(r#"{{"jsonrpc":"2.0","id":"id","method":"tools/call","params":{params}}}"#)).await;
    let line = client.line().await;
    let start = r#"{"jsonrpc":"2.0","id":"id","result":{"content":[],"params":"#;
    // The one byte that differs is the progress token, which is the hop's own.
    let echoed = line.strip_prefix(start).unwrap().strip_suffix("}}").unwrap();
    let (before, after) = params.split_once(r#""t""#).unwrap();
    assert!(echoed.starts_with(before) && echoed.ends_with(after), "{echoed}");
    client.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    assert_eq!(
        client.line().await,
        r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"echo","inputSchema":{"z":1,"a":2},"execution":{"taskSupport":"optional"},"annotations":{"vendor/x":12345678901234567890123}}],"odd":1.50}}"#
    );
    client.close().await;
    upstream.close().await;
}

#[tokio::test]
async fn a_mebibyte_passes() {
    let (upstream, _) = connect("legacy").await;
    let (house, _events) = House::new(Some(upstream.clone()));
    let mut client = LineClient::connect(house);
    client.initialize("2025-11-25", "{}").await;
    let answer = client
        .exchange(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"big","arguments":{"count":1048576}}}"#)
        .await;
    assert_eq!(answer["result"]["content"][0]["text"].as_str().unwrap().len(), 1 << 20);
    client.close().await;
    upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_progress_messages_then_the_result_a_hundred_times() {
    for mode in ["legacy", "modern"] {
        let (upstream, _) = connect(mode).await;
        let (house, _events) = House::new(Some(upstream.clone()));
        let mut client = LineClient::connect(house);
        client.initialize("2025-11-25", "{}").await;
        for round in 0..100 {
            client
                .send(&format!(
                    r#"{{"jsonrpc":"2.0","id":{round},"method":"tools/call","params":{{"name":"progress","arguments":{{"count":50}},"_meta":{{"progressToken":"t{round}"}}}}}}"#
                ))
                .await;
            for n in 1..=50 {
                let note = client.value().await;
                assert_eq!(note["params"]["progress"], n, "round {round}: {note}");
                assert_eq!(note["params"]["progressToken"], format!("t{round}"));
            }
            let reply = client.value().await;
            assert_eq!(reply["id"], round);
            assert_eq!(reply["result"], serde_json::json!({"content": []}));
        }
        client.close().await;
        upstream.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_keep_their_replies_and_progress_apart() {
    let (upstream, _) = connect("legacy").await;
    let (house, _events) = House::new(Some(upstream.clone()));
    let mut clients = Vec::new();
    for _ in 0..4 {
        let house = house.clone();
        clients.push(tokio::spawn(async move {
            let mut client = LineClient::connect(house);
            client.initialize("2025-11-25", "{}").await;
            for id in 1..=32 {
                client
                    .send(&format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"progress","arguments":{{"count":{id}}},"_meta":{{"progressToken":{id}}}}}}}"#
                    ))
                    .await;
            }
            let mut progress = [0u64; 33];
            let mut replies = 0;
            while replies < 32 {
                let message: Value = client.value().await;
                match message["id"].as_u64() {
                    Some(id) => {
                        assert_eq!(progress[usize::try_from(id).unwrap()], id);
                        replies += 1;
                    }
                    None => {
                        let id = usize::try_from(message["params"]["progressToken"].as_u64().unwrap()).unwrap();
                        progress[id] += 1;
                        assert_eq!(message["params"]["progress"], progress[id]);
                    }
                }
            }
            client.close().await;
        }));
    }
    for client in clients {
        soon(client).await.unwrap();
    }
    upstream.close().await;
}
