//! The demo step by step: what the agent tries, what the policy says, what the person decides, what is recorded. Every line is printed
//! from a real answer.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use countersign_policy::preview::ChangeView;
use countersign_store::ledger::{self, LedgerFilter};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::agent::{AgentCallResult, DemoAgent};
use super::demo_gateway::DemoGateway;
use super::{DemoDecider, broken};
use crate::browser;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::commands::plans::changes;
use crate::output::{BAD, BOLD, DIM, Format, GOOD, NAME, OutputSettings, WARN, paint, plural, visible};

/// The order everything turns on.
const ORDER: &str = "PO-1041";
const REASON: &str = "it duplicates PO-1040";

/// One performance.
pub(super) struct DemoWalkthrough<'a> {
    stage: &'a DemoGateway,
    voice: OutputSettings,
    person: DemoDecider,
    keep: Option<&'a Path>,
    /// What was said, for programs.
    said: RefCell<Vec<Value>>,
    begun: Instant,
}

impl<'a> DemoWalkthrough<'a> {
    pub(super) fn new(
        stage: &'a DemoGateway,
        voice: OutputSettings,
        person: DemoDecider,
        keep: Option<&'a Path>,
    ) -> Self {
        Self { stage, voice, person, keep, said: RefCell::default(), begun: Instant::now() }
    }

    /// From the first look to the verified ledger.
    pub(super) async fn perform(&self) -> CommandResult {
        let agent = DemoAgent::connect(&self.stage.url, &self.stage.agent_secret).await;
        let agent = agent.map_err(|why| broken("the agent can't connect", &why))?;
        self.print(&format!(
            "\n{}\nAn agent works at the order desk of a bicycle workshop, behind the gate.\nNo change runs on the agent's word: you countersign.\n",
            paint(BOLD, "Countersign")
        ));
        self.look(&agent).await?;
        self.try_at_once(&agent).await?;
        self.plan(&agent).await?;
        let asked = self.ask(&agent).await?;
        let decision = self.decide(&agent, &asked).await?;
        self.go_on(&agent, &asked, &decision).await?;
        agent.leave().await;
        let (rows, whole) = self.ledger(asked.data("plan_id")).await?;
        let seconds = self.begun.elapsed().as_secs();
        let mut text = format!(
            "\n{}\n",
            paint(
                DIM,
                format_args!("{seconds} s, no account, no network. Your own servers: countersign init")
            )
        );
        if let Some(folder) = self.keep {
            let folder = folder.display();
            text = format!(
                "\nkept in {folder}: countersign serve --config {folder}/countersign.toml --http\n{text}"
            );
        }
        self.print(&text);
        Ok(Answer::default()
            .with("decision", decision)
            .with("plan_id", asked.data("plan_id"))
            .with("rows", rows)
            .with("verified", whole)
            .with("said", self.said.take()))
    }

    /// Reading is free.
    async fn look(&self, agent: &DemoAgent) -> Result<(), CommandError> {
        self.line("agent", "What is on order?", NAME).await;
        let listed = self.call(agent, "read", "list_purchase_orders", json!({}), json!({})).await?;
        let orders = listed.body().get("orders").and_then(Value::as_array).cloned().unwrap_or_default();
        for order in &orders {
            let of = |name: &str| order.get(name).map(plain).unwrap_or_default();
            let note = order
                .get("note")
                .and_then(Value::as_str)
                .map(|note| format!("  “{note}”"))
                .unwrap_or_default();
            self.more(&format!(
                "{:<8} {:<20} {:<9} {:>9}{}",
                of("number"),
                visible(&of("supplier")),
                of("status"),
                of("total"),
                paint(DIM, visible(&note))
            ));
        }
        self.gate(
            &format!("{} {}", paint(GOOD, "ran:"), paint(DIM, "reading needs nobody")),
            json!({"ran": true}),
        )
        .await;
        Ok(())
    }

    /// In ask mode nothing changes, and the refusal explains.
    async fn try_at_once(&self, agent: &DemoAgent) -> Result<(), CommandError> {
        self.line("agent", &format!("{ORDER} duplicates PO-1040. I delete it."), NAME).await;
        let told = self.delete(agent, json!({})).await?;
        self.refused(&told).await;
        let explain = told.body().pointer("/data/explain").cloned().unwrap_or_default();
        let of = |name: &str| explain.get(name).map(plain).unwrap_or_default();
        self.more(&format!(
            "it {}; it would need confirm `{}` and the yes of a {}",
            of("risk"),
            of("confirm"),
            who(&of("strength"))
        ));
        Ok(())
    }

    /// In plan mode the order desk previews, and nothing changes.
    async fn plan(&self, agent: &DemoAgent) -> Result<(), CommandError> {
        self.line("agent", "What would that change?", NAME).await;
        let told = self.delete(agent, json!({"mode": "plan"})).await?;
        let shown = told.body().pointer("/data/preview/shown").cloned().unwrap_or_default();
        self.gate(
            &format!("{} {}", paint(GOOD, "preview:"), paint(DIM, "nothing has changed")),
            json!({"preview": true}),
        )
        .await;
        let view =
            ChangeView { message: None, target: None, next: Vec::new(), ..ChangeView::of_result(&shown) };
        for line in changes::lines(&view) {
            self.more(&line);
        }
        Ok(())
    }

    /// In execute mode it is held, and the agent's own yes is not enough.
    async fn ask(&self, agent: &DemoAgent) -> Result<AgentCallResult, CommandError> {
        self.line("agent", "Then I ask for it.", NAME).await;
        let asked = self.delete(agent, json!({"mode": "execute", "wait_seconds": 0})).await?;
        let id = asked.data("plan_id").to_owned();
        if id.is_empty() {
            return Err(broken("the plan was not held", &asked.result.to_string()));
        }
        let held = format!("{} {}", paint(WARN, "held:"), visible(&id));
        self.gate(&held, json!({"held": id})).await;
        self.line("agent", "I say yes myself.", NAME).await;
        let hasty = self.confirm(agent, &asked).await?;
        self.refused(&hasty).await;
        Ok(asked)
    }

    /// The person's turn: on the page, or played.
    async fn decide(&self, agent: &DemoAgent, asked: &AgentCallResult) -> Result<String, CommandError> {
        let id = asked.data("plan_id");
        match self.person {
            DemoDecider::Played { agrees } => {
                self.line(
                    "you",
                    &format!("{} (played)", if agrees { "approve it" } else { "reject it" }),
                    WARN,
                )
                .await;
                self.answer_as_person(id, agrees).await?;
            }
            DemoDecider::Here { opens } => self.invite(id, opens).await?,
        }
        let mut invited = Instant::now();
        loop {
            let told = agent.call("get_plan", json!({"plan_id": id, "wait_seconds": 20})).await;
            let told = told.map_err(|why| broken("the agent lost its line", &why))?;
            let plan = told.body().pointer("/data/plan").cloned().unwrap_or_default();
            let state = plan.get("state").and_then(Value::as_str).unwrap_or_default().to_owned();
            if state != "pending" {
                let by = plan.pointer("/approval/by").map(plain).unwrap_or_default();
                let note = plan
                    .get("note")
                    .and_then(Value::as_str)
                    .map(|note| format!(": “{note}”"))
                    .unwrap_or_default();
                let word = match state.as_str() {
                    "approved" | "executing" | "done" | "failed" => {
                        paint(GOOD, format_args!("approved by {}", visible(&by)))
                    }
                    "rejected" => paint(BAD, format_args!("rejected{}", visible(&note))),
                    other => paint(WARN, visible(other)),
                };
                self.gate(&word, json!({"state": state, "by": by})).await;
                return Ok(state);
            }
            // A link lives a minute; a later visitor needs another.
            if invited.elapsed() >= Duration::from_secs(58) && matches!(self.person, DemoDecider::Here { .. })
            {
                invited = Instant::now();
                self.more(&self.stage.link(id).await?);
            }
        }
    }

    async fn invite(&self, id: &str, opens: bool) -> Result<(), CommandError> {
        let link = self.stage.link(id).await?;
        let opened = opens && browser::open(&link);
        self.line(
            "you",
            if opened { "Decide on the page that has opened." } else { "Decide on this page:" },
            WARN,
        )
        .await;
        match (opened, self.voice.format) {
            (true, _) => self.more(&paint(DIM, &self.stage.url)),
            (false, Format::Text) => self.more(&link),
            // stdout carries one envelope, later: the link is for the person at the terminal.
            (false, Format::Json) => self.voice.tell(&format!("{link}\n")),
        }
        Ok(())
    }

    /// The same call again, with its token: exactly what was shown runs, or nothing.
    async fn go_on(
        &self,
        agent: &DemoAgent,
        asked: &AgentCallResult,
        decision: &str,
    ) -> Result<(), CommandError> {
        if matches!(decision, "done" | "failed" | "executing") {
            self.line("agent", "You ran it yourself; I ask what came of it.", NAME).await;
            let told =
                agent.call("get_plan", json!({"plan_id": asked.data("plan_id"), "wait_seconds": 20})).await;
            let told = told.map_err(|why| broken("the agent lost its line", &why))?;
            self.outcome(told.body().pointer("/data/plan/result").unwrap_or(&Value::Null)).await;
        } else {
            self.line("agent", "The same call again, with its token.", NAME).await;
            let told = self.confirm(agent, asked).await?;
            match told.refusal() {
                Some(_) => self.refused(&told).await,
                None => self.outcome(&told.result).await,
            }
            if decision == "approved" {
                self.line("agent", "And once more?", NAME).await;
                let again = self.confirm(agent, asked).await?;
                self.refused(&again).await;
            }
        }
        let left = self.call(agent, "read", "get_order", json!({"number": ORDER}), json!({})).await?;
        let there = left.result.get("isError") != Some(&Value::Bool(true));
        self.more(&format!("{ORDER} {}", if there { "is still there" } else { "is gone" }));
        Ok(())
    }

    async fn outcome(&self, result: &Value) {
        let failed = result.get("isError") == Some(&Value::Bool(true));
        let body = result.get("structuredContent").unwrap_or(&Value::Null);
        let message = body.get("message").and_then(Value::as_str).unwrap_or_default();
        let word = if failed { paint(BAD, "failed:") } else { paint(GOOD, "ran:") };
        self.gate(&format!("{word} {}", visible(message)), json!({"ran": !failed, "message": message})).await;
    }

    /// Everything is on record, and the record is whole.
    async fn ledger(&self, plan: &str) -> Result<(u64, bool), CommandError> {
        let fault =
            |fault: countersign_store::StoreFault| broken("the ledger can't be read", &fault.inside());
        self.stage.store.flush().await.map_err(fault)?;
        let page = self
            .stage
            .store
            .activity(LedgerFilter { limit: Some(100), ..LedgerFilter::default() })
            .await
            .map_err(fault)?;
        let report = ledger::verify(&self.stage.store, None).await.map_err(fault)?;
        let whole = report.first_bad.is_none();
        let word = if whole {
            paint(GOOD, "✓ every row is as it was written")
        } else {
            paint(BAD, "✗ a row is not as it was written")
        };
        self.line("ledger", &format!("{}, {word}", plural(report.rows, "row")), GOOD).await;
        let of_plan =
            page.rows.iter().rev().filter(|row| row.plan_id.as_ref().is_some_and(|id| id.as_str() == plan));
        for row in of_plan {
            let role = row.role.as_ref().map(ToString::to_string).unwrap_or_default();
            let mut line = format!("{:<9} {:<8} {role}", row.kind.to_string(), row.status.to_string());
            if let Some(code) = &row.code {
                line.push_str(&format!("  {}", paint(DIM, visible(&code.to_string()))));
            }
            self.more(&line);
        }
        self.said.borrow_mut().push(json!({"who": "ledger", "rows": report.rows, "verified": whole}));
        Ok((report.rows, whole))
    }

    // --- calls -------------------------------------------------------------------------------------------------------

    async fn call(
        &self,
        agent: &DemoAgent,
        operation: &str,
        tool: &str,
        args: Value,
        more: Value,
    ) -> Result<AgentCallResult, CommandError> {
        let mut arguments = json!({
            "name": format!("orders:{tool}"),
            "args": args,
            "intent": {"operation_type": operation, "reason": REASON},
        });
        if let (Some(all), Some(more)) = (arguments.as_object_mut(), more.as_object()) {
            all.extend(more.clone());
        }
        let told = agent.call(&format!("call_tool_{operation}"), arguments).await;
        told.map_err(|why| broken("the agent lost its line", &why))
    }

    async fn delete(&self, agent: &DemoAgent, more: Value) -> Result<AgentCallResult, CommandError> {
        self.call(agent, "destructive", "delete_purchase_order", json!({"number": ORDER}), more).await
    }

    async fn confirm(
        &self,
        agent: &DemoAgent,
        asked: &AgentCallResult,
    ) -> Result<AgentCallResult, CommandError> {
        let token = asked.data("confirm_token");
        self.delete(agent, json!({"mode": "execute", "confirm_token": token, "yes": true})).await
    }

    /// What the page does when its button is clicked, with the person's own credential.
    async fn answer_as_person(&self, plan: &str, agrees: bool) -> Result<(), CommandError> {
        let host = self.stage.url.trim_start_matches("http://");
        let (verb, body) =
            if agrees { ("approve", "{}") } else { ("reject", r#"{"note":"check with Brightspoke first"}"#) };
        let request = format!(
            "POST /api/v1/plans/{plan}/{verb} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.stage.secret.expose(),
            body.len()
        );
        let said = async {
            let mut stream = TcpStream::connect(host).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<String, std::io::Error>(answer)
        };
        let said = said.await.map_err(|error| broken("the desk does not answer", &error.to_string()))?;
        if said.starts_with("HTTP/1.1 200") {
            Ok(())
        } else {
            Err(broken("the desk refused the decision", &said))
        }
    }

    // --- lines -------------------------------------------------------------------------------------------------------

    /// A line of somebody's, after a breath where somebody watches.
    async fn line(&self, who: &str, words: &str, style: anstyle::Style) {
        if self.voice.is_watched() {
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        if matches!(who, "agent" | "you") {
            self.said.borrow_mut().push(json!({"who": who, "says": words}));
        }
        self.print(&format!("\n{} {words}\n", paint(style.bold(), format_args!("{who:>7}"))));
    }

    async fn gate(&self, words: &str, fact: Value) {
        if self.voice.is_watched() {
            tokio::time::sleep(Duration::from_millis(450)).await;
        }
        let mut fact = fact;
        if let Some(members) = fact.as_object_mut() {
            members.insert("who".to_owned(), "gate".into());
        }
        self.said.borrow_mut().push(fact);
        self.print(&format!("{} {words}\n", paint(DIM, format_args!("{:>7}", "gate"))));
    }

    async fn refused(&self, told: &AgentCallResult) {
        let (code, message) = told.refusal().unwrap_or(("", "it was let through"));
        let words = format!("{} {}", paint(BAD, format_args!("refused {code}:")), visible(message));
        self.gate(&words, json!({"refused": code, "message": message})).await;
    }

    fn more(&self, words: &str) {
        self.print(&format!("        {words}\n"));
    }

    fn print(&self, text: &str) {
        if self.voice.format == Format::Text {
            // A reader that closed stdout does not want the rest.
            let _ = self.voice.say(text);
        }
    }
}

fn who(strength: &str) -> &'static str {
    match strength {
        "human" => "person with a credential",
        "host" => "host's user",
        _ => "caller",
    }
}

/// A value in a line: amounts with their cents.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map(|number| format!("{number:.2}")).unwrap_or_default(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
