//! The four combinations of client and upstream era: results, questions and errors arrive in the client's own words.

use serde_json::{Value, json};

use super::kit::{House, LineClient, connect, modern_meta};

const ASKS: &str = r#"{"elicitation":{}}"#;

/// A client of either era with the same verbs.
struct Client {
    line: LineClient,
    modern: bool,
    next: u64,
}

impl Client {
    async fn request(&mut self, method: &str, members: &str) -> Value {
        self.next += 1;
        let meta = if self.modern { format!(r#""_meta":{{{}}}"#, modern_meta(ASKS)) } else { String::new() };
        let comma = if members.is_empty() || meta.is_empty() { "" } else { "," };
        self.line
            .exchange(&format!(
                r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{{{members}{comma}{meta}}}}}"#,
                self.next
            ))
            .await
    }

    /// Calls a tool that asks, and says yes the way its era does.
    async fn ask(&mut self) -> Value {
        let first = self.request("tools/call", r#""name":"ask","arguments":{}"#).await;
        if self.modern {
            assert_eq!(first["result"]["resultType"], "input_required", "{first}");
            let (name, question) =
                first["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
            assert_eq!(question["method"], "elicitation/create");
            assert_eq!(question["params"]["message"], "sure?");
            let state = &first["result"]["requestState"];
            let members = format!(
                r#""name":"ask","arguments":{{}},"inputResponses":{{"{name}":{{"action":"accept"}}}},"requestState":{state}"#
            );
            self.request("tools/call", &members).await
        } else {
            assert_eq!(first["method"], "elicitation/create", "{first}");
            assert_eq!(first["params"]["message"], "sure?");
            let answer = json!({"jsonrpc": "2.0", "id": first["id"], "result": {"action": "accept"}});
            self.line.exchange(&answer.to_string()).await
        }
    }
}

async fn cell(modern_client: bool, upstream_mode: &str) {
    let (upstream, _) = connect(upstream_mode).await;
    let (house, _events) = House::new(Some(upstream.clone()));
    let mut client = Client { line: LineClient::connect(house), modern: modern_client, next: 0 };
    if !modern_client {
        client.line.initialize("2025-11-25", ASKS).await;
    }
    let listed = client.request("tools/list", "").await;
    assert_eq!(listed["result"]["tools"][0]["name"], "echo", "{listed}");
    let says = |value: &Value, name: &str| value["result"].get(name).is_some();
    assert_eq!(says(&listed, "resultType"), modern_client);
    assert_eq!(says(&listed, "ttlMs"), modern_client);
    assert_eq!(says(&listed, "cacheScope"), modern_client);

    let echoed = client.request("tools/call", r#""name":"echo","arguments":{"n":1.0}"#).await;
    let params = &echoed["result"]["params"];
    let speaks = params["_meta"].get("io.modelcontextprotocol/protocolVersion").is_some();
    assert_eq!(speaks, upstream_mode == "modern", "{params}");

    let answered = client.ask().await;
    assert_eq!(answered["result"]["answer"], json!({"action": "accept"}), "{answered}");

    let wrong = client.request("tools/call", r#""name":"none","arguments":{}"#).await;
    assert_eq!(wrong["error"]["code"], -32602);
    client.line.close().await;
    upstream.close().await;
}

#[tokio::test]
async fn legacy_client_legacy_upstream() {
    cell(false, "legacy").await;
}

#[tokio::test]
async fn legacy_client_modern_upstream() {
    cell(false, "modern").await;
}

#[tokio::test]
async fn modern_client_legacy_upstream() {
    cell(true, "legacy").await;
}

#[tokio::test]
async fn modern_client_modern_upstream() {
    cell(true, "modern").await;
}
