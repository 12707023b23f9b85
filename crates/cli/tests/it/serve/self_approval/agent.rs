//! One agent that tries: every request of it is counted, and must find a row of the ledger of its own.

use std::time::{Duration, Instant};

use countersign_policy::digest::Digest;
use countersign_policy::grant::{Allowed, Grant};
use countersign_policy::ids::{FullName, GrantId};
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};

use crate::serve::client::{Client, Host, Reply, Way};
use crate::serve::http;
use crate::serve::scene::Scene;

/// One agent with a credential of its own, and what it can reach.
pub(super) struct Agent<'s> {
    pub(super) scene: &'s mut Scene,
    pub(super) address: String,
    pub(super) name: String,
    pub(super) secret: String,
    pub(super) line: Client,
    pub(super) said: Vec<String>,
    pub(super) ledger: rusqlite::Connection,
    /// The last row when the last request had found its own.
    pub(super) mark: i64,
    pub(super) requests: usize,
    /// Requests that left no row.
    pub(super) silent: Vec<String>,
}

/// What a row says, as far as it shows which request it belongs to.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) status: String,
    pub(super) code: Option<String>,
    pub(super) reason: Option<String>,
}

/// What was answered, as far as the row has to show it.
pub(super) struct Told {
    pub(super) said: String,
    pub(super) code: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) refused: bool,
}

impl Told {
    pub(super) fn of(reply: &Reply) -> Self {
        let said = match (reply.code(), &reply.frame["error"]["code"], &reply.result()["resultType"]) {
            (Some(code), _, _) => code.to_owned(),
            (None, Value::Number(code), _) => format!("error {code}"),
            (None, _, Value::String(kind)) if kind == "input_required" => kind.clone(),
            (None, _, _) if reply.ran() => "ran".to_owned(),
            (None, _, _) => reply.data()["status"].as_str().unwrap_or("ok").to_owned(),
        };
        let details = match reply.envelope() {
            Some(envelope) => &envelope["errors"][0]["details"],
            None => &reply.frame["error"]["data"]["details"],
        };
        let reason = details["reason_code"].as_str().map(str::to_owned);
        Self { said, code: reply.code().map(str::to_owned), reason, refused: reply.is_refusal() }
    }

    /// Whether this row is about it.
    pub(super) fn is_in(&self, row: &Row) -> bool {
        match &self.code {
            Some(code) => {
                row.code.as_ref() == Some(code) && (self.reason.is_none() || row.reason == self.reason)
            }
            None if self.refused => row.status == "refused",
            None => row.code.is_none() && ["success", "pending"].contains(&row.status.as_str()),
        }
    }
}

impl Agent<'_> {
    /// Another line of the same agent.
    pub(super) fn another(&self, host: Host, path: &'static str, session: &str) -> Client {
        let secret = Some(self.secret.clone());
        Client::http_as(Way::HttpModern, host, &self.address, path, session, secret)
    }

    /// Rows of this agent and its helpers that are newer than the mark.
    pub(super) fn rows(&self) -> Vec<Row> {
        let sql = "SELECT status, code, json_extract(detail, '$.reason_code') FROM ledger
                   WHERE sequence > ?1 AND (principal = ?2 OR principal LIKE ?2 || '-%') ORDER BY sequence";
        let mut statement = self.ledger.prepare_cached(sql).unwrap();
        let rows = statement.query_map((self.mark, &self.name), |row| {
            Ok(Row { status: row.get(0)?, code: row.get(1)?, reason: row.get(2)? })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Finds a row of its own for each of these answers, among those written since the ones before had theirs.
    pub(super) fn account(&mut self, told: Vec<Told>) {
        self.requests += told.len();
        let start = Instant::now();
        loop {
            let mut rows = self.rows();
            let missing: Vec<&Told> = told
                .iter()
                .filter(|told| match rows.iter().position(|row| told.is_in(row)) {
                    Some(at) => {
                        rows.remove(at);
                        false
                    }
                    None => true,
                })
                .collect();
            // Rows of reads may come a moment after their answer.
            if missing.is_empty() || start.elapsed() > Duration::from_secs(3) {
                let seen = self.rows();
                let lost = missing.iter().map(|told| format!("{}: no row among {seen:?}", told.said));
                self.silent.extend(lost);
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.mark = self.last();
        self.said.extend(told.into_iter().map(|told| told.said));
    }

    pub(super) fn last(&self) -> i64 {
        self.ledger.query_row("SELECT MAX(sequence) FROM ledger", [], |row| row.get(0)).unwrap()
    }

    pub(super) fn keep(&mut self, reply: Reply) -> Reply {
        self.account(vec![Told::of(&reply)]);
        reply
    }

    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Reply {
        self.text(tool, &arguments.to_string())
    }

    pub(super) fn text(&mut self, tool: &str, arguments: &str) -> Reply {
        let reply = self.line.call(tool, arguments);
        self.keep(reply)
    }

    /// A destructive call that needs a person.
    pub(super) fn erase(&mut self, extra: Value) -> Reply {
        self.call("call_tool_destructive", merged(erase("x"), extra))
    }

    /// Asks for it, and has the plan and its token.
    pub(super) fn plan(&mut self) -> (String, String) {
        let asked = self.erase(json!({}));
        let text =
            |field: &str| asked.data()[field].as_str().unwrap_or_else(|| panic!("{}", asked.text)).to_owned();
        (text("plan_id"), text("confirm_token"))
    }

    pub(super) fn rest(&mut self, method: &str, path: &str, body: Value, more: &[(&str, &str)]) -> u16 {
        let mut headers = vec![
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("Authorization".to_owned(), format!("Bearer {}", self.secret)),
        ];
        headers.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let answer = http::send(&self.address, method, path, &headers, &body).unwrap();
        let status = answer.status;
        assert!(status >= 400, "{method} {path}: {status}");
        let told: Value = serde_json::from_str(&answer.text().unwrap()).unwrap();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (code, reason) = (&told["error"]["code"], &told["error"]["details"]["reason_code"]);
        let said = format!("HTTP {status}");
        self.account(vec![Told { said, code: text(code), reason: text(reason), refused: true }]);
        status
    }

    /// What came before was honest: it does not count.
    pub(super) fn honest(&mut self) {
        self.scene.reached();
        self.said.clear();
    }

    pub(super) fn grant(&self, arguments: &[(&str, Value)], uses: u32) {
        let tool: FullName = "notes:put_note".parse().unwrap();
        let now = Timestamp::now();
        let arguments = arguments
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Allowed::Exact(value.clone())))
            .collect();
        let principal = self.name.as_str().into();
        self.scene.store(async |store| {
            let fingerprint: Digest = store.pin_of(&tool).await.unwrap().unwrap().pinned.fingerprint;
            let grant = Grant {
                id: GrantId::new(format!("grt_{principal}")),
                principal,
                tool: tool.to_string(),
                fingerprint,
                arguments,
                uses_left: uses,
                expires: now + 10.minutes(),
                by: "ada".into(),
            };
            store.grant(&grant, now).await.unwrap();
        });
    }
}

pub(super) fn merged(mut base: Value, extra: Value) -> Value {
    let members = base.as_object_mut().unwrap();
    members.extend(extra.as_object().unwrap().clone());
    base
}

pub(super) fn call(tool: &str, operation: &str, args: Value) -> Value {
    json!({"name": tool, "args": args, "intent": {"operation_type": operation}})
}

pub(super) fn erase(id: &str) -> Value {
    call("notes:erase_all", "destructive", json!({"id": id}))
}

pub(super) fn put(id: &str) -> Value {
    call("notes:put_note", "write", json!({"id": id}))
}

pub(super) fn bring(token: &str) -> Value {
    json!({"confirm_token": token, "yes": true})
}
