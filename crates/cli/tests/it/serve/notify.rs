//! Notification targets receive a signed event for a pending plan, with a link to decide; failed deliveries are
//! retried; a target cannot decide.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ring::hmac;
use serde_json::{Value, json};

use super::client::{Host, Way};
use super::scene::Scene;

const PATIENCE: Duration = Duration::from_secs(30);
const SECRET: &str = "a-secret-of-some-length";

/// One POST as it came.
struct Posted {
    headers: Vec<(String, String)>,
    body: String,
}

impl Posted {
    fn header(&self, name: &str) -> &str {
        &self.headers.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    /// Checks the signature as a receiver would.
    fn is_signed(&self, secret: &str) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signed = self.header("countersign-signature").strip_prefix("v1=").unwrap().to_owned();
        let bytes: Vec<u8> = (0..signed.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&signed[at..at + 2], 16).unwrap())
            .collect();
        let text = format!("{}.{}", self.header("countersign-timestamp"), self.body);
        hmac::verify(&key, text.as_bytes(), &bytes).is_ok()
    }
}

/// A receiver on this machine that answers these statuses in turn, then 200, each with an answer that would like to decide.
fn receiver(statuses: &'static [u16]) -> (String, Receiver<Posted>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert!(line.starts_with("POST /hook "), "{line}");
            let mut headers = Vec::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let Some((name, value)) = line.trim_end().split_once(": ") else { break };
                headers.push((name.to_ascii_lowercase(), value.to_owned()));
            }
            let length =
                headers.iter().find(|(name, _)| name == "content-length").unwrap().1.parse().unwrap();
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let status = statuses.get(number).copied().unwrap_or(200);
            let answer = r#"{"decision":"approve","approve":true}"#;
            let head = format!(
                "HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
                answer.len()
            );
            reader.get_mut().write_all(head.as_bytes()).unwrap();
            if tell.send(Posted { headers, body: String::from_utf8(body).unwrap() }).is_err() {
                return;
            }
        }
    });
    (url, told)
}

fn erase(id: &str) -> String {
    format!(
        r#"{{"name":"notes:erase_all","args":{{"id":"{id}"}},"intent":{{"operation_type":"destructive","reason":"tidy \u202eup"}}}}"#
    )
}

fn config(url: &str, more: &str) -> String {
    format!("[gateway]\nmode = \"execute\"\n\n[notify]\nwebhook = {url:?}\nsecret = {SECRET:?}\n{more}")
}

#[test]
fn a_webhook_is_told_signed_and_again_until_it_hears() {
    let (url, told) = receiver(&[500, 302]);
    let mut scene = Scene::open(Way::StdioLegacy, &config(&url, ""));
    let line = scene.line(Host::None);
    let put = r#"{"name":"notes:put_note","args":{"id":"a"},"intent":{"operation_type":"write"}}"#;
    scene.call(&line, "call_tool_write", put);
    let asked = scene.call(&line, "call_tool_destructive", &erase("a"));
    let joined = scene.call(&line, "call_tool_destructive", &erase("a"));
    assert_eq!(asked.data()["plan_id"], joined.data()["plan_id"]);
    let tries: Vec<Posted> = (0..3).map(|_| told.recv_timeout(PATIENCE).unwrap()).collect();
    for posted in &tries {
        assert!(posted.is_signed(SECRET) && !posted.is_signed("another secret"), "{:?}", posted.headers);
        assert_eq!(posted.header("countersign-delivery"), tries[0].header("countersign-delivery"));
        let event: Value = serde_json::from_str(&posted.body).unwrap();
        assert_eq!(event["event"], "plan_pending");
        assert_eq!(event["host"]["program"], "transcript", "{event}");
        assert!(event["asked_by"].as_str().unwrap().starts_with("transcript"), "{event}");
        assert_eq!(
            (&event["plan_id"], &event["tool"]),
            (&asked.data()["plan_id"], &json!("notes:erase_all"))
        );
        assert_eq!(event["strength"], "host");
        assert_eq!(event["reason"], "tidy \\u{202e}up", "what an agent wrote can't turn the text around");
        let plan = asked.data()["plan_id"].as_str().unwrap();
        assert_eq!(event["approve_command"], format!("countersign approve {plan}"));
        assert!(
            !posted.body.contains("confirm_token") && !posted.body.contains("arguments"),
            "{}",
            posted.body
        );
    }
    assert!(
        told.recv_timeout(Duration::from_millis(300)).is_err(),
        "told once, and not of what the agent confirms itself"
    );
    let look = json!({"plan_id": asked.data()["plan_id"]}).to_string();
    assert_eq!(
        scene.call(&line, "get_plan", &look).data()["plan"]["state"],
        "pending",
        "an answer decides nothing"
    );
    assert_eq!(scene.reached(), []);
    scene.finish(vec![line]);
}

#[test]
fn what_is_decided_is_no_news_any_more() {
    let (url, told) = receiver(&[500; 32]);
    let mut scene = Scene::open(Way::StdioLegacy, &config(&url, ""));
    let line = scene.line(Host::None);
    let asked = scene.call(&line, "call_tool_destructive", &erase("a"));
    told.recv_timeout(PATIENCE).unwrap();
    scene.reject(asked.data()["plan_id"].as_str().unwrap());
    // One try may be under way already; then it is over.
    let start = Instant::now();
    let more = std::iter::from_fn(|| told.recv_timeout(Duration::from_secs(5)).ok()).count();
    assert!(more <= 1, "told {more} more times in {:?}", start.elapsed());
    scene.finish(vec![line]);
}

#[test]
fn a_command_gets_the_event_and_nothing_else() {
    let hook = r#"import json, os, sys
event = json.load(sys.stdin)
event["argv"] = sys.argv[1:]
event["environment"] = sorted(name for name in os.environ if not name.startswith("LC_"))
with open("told.json", "a") as file:
    file.write(json.dumps(event) + "\n")
print("approve")
"#;
    let config = "[gateway]\nmode = \"execute\"\n\n[notify]\ncommand = [\"python3\", \"hook.py\", \"a b\", \"$(touch owned)\"]\nstrength = \"caller\"\n";
    let mut scene = Scene::open(Way::StdioLegacy, config);
    scene.world.write("hook.py", hook);
    let line = scene.line(Host::None);
    let put = r#"{"name":"notes:put_note","args":{"id":"a"},"intent":{"operation_type":"write"}}"#;
    let asked = scene.call(&line, "call_tool_write", put);
    let start = Instant::now();
    let path = scene.world.work().join("told.json");
    let event: Value = loop {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Some(line) = text.lines().next() {
            break serde_json::from_str(line).unwrap();
        }
        assert!(start.elapsed() < PATIENCE, "the command was never run");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(event["plan_id"], asked.data()["plan_id"]);
    assert_eq!(event["argv"], json!(["a b", "$(touch owned)"]));
    let named = event["environment"].as_array().unwrap();
    assert!(
        named.iter().all(|name| ["PATH", "HOME", "LANG", "TMPDIR"].contains(&name.as_str().unwrap())),
        "{named:?}"
    );
    let look = json!({"plan_id": asked.data()["plan_id"]}).to_string();
    assert_eq!(scene.call(&line, "get_plan", &look).data()["plan"]["state"], "pending");
    scene.finish(vec![line]);
}

#[test]
fn mistakes_in_notify_are_said_where_they_stand() {
    let world = crate::world::World::new();
    for (text, expect) in [
        ("[notify]\nwebhook = \"https://a.example/x\"\n", "there is no `secret` to sign with"),
        ("[notify]\nwebhook = \"http://a.example/x\"\nsecret = \"0123456789abcdef\"\n", "in the clear"),
        ("[notify]\nwebhook = \"https://a.example/x\"\nsecret = \"short\"\n", "can be guessed"),
        ("[notify]\ncommand = \"notify-send hello\"\n", "no shell is used"),
        ("[notify]\ncomand = [\"x\"]\n", "did you mean `command`?"),
        ("[notify]\nstrength = \"humans\"\n", "did you mean `human`?"),
    ] {
        world.write("countersign.toml", text);
        let said = world.run(&["policy", "check"]);
        assert_eq!(said.code, Some(3), "{said}");
        assert!(said.stderr.contains(expect) || said.stdout.contains(expect), "{expect}: {said}");
    }
}
