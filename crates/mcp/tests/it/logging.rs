//! Log levels are each client's own: what one asked for neither reaches nor silences another on the same upstream.

use serde_json::Value;

use super::kit::{House, LineClient, connect, modern_meta};

async fn set_level(line: &mut LineClient, level: &str) {
    let ask =
        format!(r#"{{"jsonrpc":"2.0","id":90,"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#);
    assert!(line.exchange(&ask).await.get("result").is_some());
}

/// Calls the tool that logs at `info` and `error`; the levels that arrived before the reply.
async fn logged(line: &mut LineClient, meta: &str) -> Vec<String> {
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"log","arguments":{{}},"_meta":{{{meta}}}}}}}"#
    );
    let mut heard = Vec::new();
    let mut next: Value = line.exchange(&call).await;
    while let Some(level) = next["params"]["level"].as_str() {
        heard.push(level.to_owned());
        next = line.value().await;
    }
    assert_eq!(next["id"], 7, "{next}");
    heard
}

#[tokio::test]
async fn a_level_holds_for_the_client_that_set_it() {
    let (house, _events) = House::new(None);
    let mut ann = LineClient::connect(house.clone());
    let mut bob = LineClient::connect(house.clone());
    ann.initialize("2025-11-25", "{}").await;
    bob.initialize("2025-11-25", "{}").await;
    assert_eq!(logged(&mut ann, "").await, ["info", "error"]);
    set_level(&mut ann, "warning").await;
    assert_eq!(logged(&mut ann, "").await, ["error"]);
    assert_eq!(logged(&mut bob, "").await, ["info", "error"]);
    set_level(&mut ann, "debug").await;
    assert_eq!(logged(&mut ann, "").await, ["info", "error"]);
}

#[tokio::test]
async fn a_modern_request_hears_what_it_asked_for_and_nothing_unasked() {
    let (house, _events) = House::new(None);
    let mut line = LineClient::connect(house);
    let meta = modern_meta("{}");
    assert!(logged(&mut line, &meta).await.is_empty());
    let with = |level: &str| format!(r#"{meta},"io.modelcontextprotocol/logLevel":"{level}""#);
    assert_eq!(logged(&mut line, &with("debug")).await, ["info", "error"]);
    assert_eq!(logged(&mut line, &with("error")).await, ["error"]);
    assert!(logged(&mut line, &with("emergency")).await.is_empty());
}

#[tokio::test]
async fn a_modern_upstream_is_told_the_level_of_the_session_that_calls() {
    let (upstream, _) = connect("modern").await;
    let (house, _events) = House::new(Some(upstream.clone()));
    let mut ann = LineClient::connect(house.clone());
    let mut bob = LineClient::connect(house);
    ann.initialize("2025-11-25", "{}").await;
    bob.initialize("2025-11-25", "{}").await;
    set_level(&mut ann, "error").await;
    let echo = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
    let told = |value: &Value| value["result"]["params"]["_meta"]["io.modelcontextprotocol/logLevel"].clone();
    assert_eq!(told(&ann.exchange(echo).await), "error");
    assert_eq!(told(&bob.exchange(echo).await), Value::Null);
    upstream.close().await;
}
