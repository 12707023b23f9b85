//! The demo step by step: what the agent tries, what the person decides, what is recorded. Every line is printed
//! from a real answer.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_policy::preview::ChangeView;
use countersign_store::ledger::{self, LedgerFilter};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::agent::{AgentCallResult, DemoAgent};
use super::demo_gateway::DemoGateway;
use super::narrator::Narrator;
use super::proposals::{PROPOSALS, Proposal};
use super::{DemoDecider, broken};
use crate::browser;
use crate::command_result::{Answer, CommandError};
use crate::commands::plans::changes;
use crate::output::{BAD, BOLD, DIM, Format, GOOD, OutputSettings, WARN, paint, plural, visible};

/// A proposal that waits for the person.
struct HeldProposal {
    proposal: &'static Proposal,
    plan_id: String,
    token: String,
}

/// What became of one.
struct DecidedPlan {
    index: usize,
    state: String,
    /// The plan as the agent may see it.
    plan: Value,
}

pub(super) struct DemoWalkthrough<'a> {
    gateway: &'a DemoGateway,
    agent: Arc<DemoAgent>,
    output: OutputSettings,
    narrator: Narrator,
    decider: DemoDecider,
    keep: Option<&'a Path>,
    begun: Instant,
}

impl<'a> DemoWalkthrough<'a> {
    pub(super) async fn start(
        gateway: &'a DemoGateway,
        output: OutputSettings,
        decider: DemoDecider,
        keep: Option<&'a Path>,
    ) -> Result<Self, CommandError> {
        let agent = DemoAgent::connect(&gateway.url, &gateway.agent_secret).await;
        let agent = agent.map_err(|why| broken("the agent can't connect", &why))?;
        let narrator = Narrator::new(output);
        Ok(Self { gateway, agent: Arc::new(agent), output, narrator, decider, keep, begun: Instant::now() })
    }

    /// From the first read to the verified audit log.
    pub(super) async fn perform(&self) -> Result<Answer, CommandError> {
        self.narrator.aside("");
        self.narrator.aside(&paint(BOLD, "Countersign"));
        self.narrator
            .aside("An agent works at the order desk of a bicycle workshop. It may read everything.");
        self.narrator.aside("No change runs on the agent's word: you countersign.");
        self.read_orders().await?;
        let mut held = Vec::new();
        for proposal in &PROPOSALS {
            held.push(self.propose(proposal, held.is_empty()).await?);
        }
        let decisions = self.decide_all(&held).await?;
        let (rows, verified) = self.verify_log(held.first().map_or("", |first| &first.plan_id)).await?;
        Ok(Answer::default()
            .with("plans", decisions)
            .with("rows", rows)
            .with("verified", verified)
            .with("said", self.narrator.transcript()))
    }

    /// Says that everything stays for a look.
    pub(super) fn invite_to_look(&self) {
        let look = format!("The page stays at {}: look around. Ctrl-C ends it.", self.gateway.url);
        self.narrator.aside("");
        self.narrator.aside(&paint(BOLD, look));
    }

    /// The last lines, and the agent leaves.
    pub(super) async fn close(&self) -> String {
        self.agent.leave().await;
        let seconds = self.begun.elapsed().as_secs();
        let mut text = String::from("\n");
        if let Some(folder) = self.keep {
            // A command of its own, not wrapped: it is to be copied.
            let folder = folder.display();
            text.push_str(&format!(
                "Kept in {folder}. To go on with it:\n  countersign serve --config {folder}/countersign.toml --http\n\n"
            ));
        }
        let left = if self.keep.is_some() { "" } else { ", nothing left behind" };
        let words = format!("{seconds} s, no account, no network{left}.");
        text.push_str(&paint(DIM, self.narrator.wrapped(&words)));
        text.push_str(&paint(DIM, "\nPut your own MCP servers behind it: "));
        text.push_str(&paint(BOLD, "countersign init\n"));
        text
    }

    /// Reading needs nobody.
    async fn read_orders(&self) -> Result<(), CommandError> {
        self.narrator.agent("What is on order?").await;
        let arguments = json!({"name": "orders:list_purchase_orders", "intent": {"operation_type": "read"}});
        let listed = self.call("call_tool_read", arguments).await?;
        for order in listed.body().get("orders").and_then(Value::as_array).into_iter().flatten() {
            self.narrator.detail(&order_line(order));
        }
        let words = format!("{} {}", paint(GOOD, "ran:"), paint(DIM, "reading needs no approval"));
        self.narrator.gate(&words, json!({"ran": true})).await;
        Ok(())
    }

    /// The agent asks for a change, and it is held. The first one is shown in full, and the agent's own yes is not enough for it.
    async fn propose(
        &self,
        proposal: &'static Proposal,
        is_first: bool,
    ) -> Result<HeldProposal, CommandError> {
        self.narrator.agent(proposal.says).await;
        let (tool, arguments) = proposal.request();
        let asked = self.call(&tool, arguments).await?;
        let held = HeldProposal {
            proposal,
            plan_id: asked.data("plan_id").to_owned(),
            token: asked.data("confirm_token").to_owned(),
        };
        if held.plan_id.is_empty() {
            return Err(broken("the plan was not held", &asked.result.to_string()));
        }
        let shown = asked.body().pointer("/data/preview/shown").unwrap_or(&Value::Null);
        let steps = shown.get("steps").and_then(Value::as_array);
        let what = match steps {
            Some(steps) => format!("one plan of {} waits for you", plural(steps.len(), "step")),
            None if is_first => "nothing has changed. This would:".to_owned(),
            None => "nothing has changed; it waits for you".to_owned(),
        };
        let words = format!("{} {what}", paint(WARN, "held:"));
        self.narrator.gate(&words, json!({"held": held.plan_id})).await;
        for (at, step) in steps.into_iter().flatten().enumerate() {
            self.narrator.detail(&step_line(at, step));
        }
        if is_first {
            for line in preview_lines(shown) {
                self.narrator.detail(&line);
            }
            self.narrator.agent("I say yes myself.").await;
            let own_yes = self.run(&held).await?;
            self.narrator.refused(&own_yes).await;
        }
        Ok(held)
    }

    /// The person's turn. Tells each decision when it is made, in the order in which it is made.
    async fn decide_all(&self, held: &[HeldProposal]) -> Result<Vec<Value>, CommandError> {
        let mut decisions = Vec::new();
        if let DemoDecider::Played { agrees } = self.decider {
            for (index, one) in held.iter().enumerate() {
                self.answer_as_person(&one.plan_id, agrees && one.proposal.played_yes).await?;
                let decided = wait_for_decision(Arc::clone(&self.agent), index, one.plan_id.clone()).await;
                decisions.push(self.tell(one, decided).await?);
            }
            return Ok(decisions);
        }
        self.invite(held).await?;
        let mut waits = JoinSet::new();
        for (index, one) in held.iter().enumerate() {
            waits.spawn(wait_for_decision(Arc::clone(&self.agent), index, one.plan_id.clone()));
        }
        while let Some(decided) = waits.join_next().await {
            let decided = decided.map_err(|error| broken("a decision was lost", &error.to_string()))?;
            let at = decided.as_ref().ok().and_then(|decided| held.get(decided.index));
            if let Some(one) = at.or(held.first()) {
                decisions.push(self.tell(one, decided).await?);
            }
            let left = plural(waits.len(), "change");
            if !waits.is_empty() {
                self.narrator.detail(&paint(DIM, format_args!("{left} left on the page")));
            }
        }
        Ok(decisions)
    }

    async fn invite(&self, held: &[HeldProposal]) -> Result<(), CommandError> {
        let link = self.gateway.link().await?;
        let opens = matches!(self.decider, DemoDecider::Here { opens: true });
        let opened = opens && browser::open(&link);
        let place = if opened { "the page that has opened" } else { "this page" };
        let words = format!("{} wait on {place}:", plural(held.len(), "change"));
        self.narrator.you(&words, json!({"wait": held.len()})).await;
        if !opened {
            match self.output.format {
                Format::Text => self.narrator.detail(&paint(BOLD, &link)),
                // stdout carries one envelope, later: the link is for the person at the terminal.
                Format::Json => self.output.tell(&format!("{link}\n")),
            }
        }
        for (at, one) in held.iter().enumerate() {
            let advice = paint(DIM, format_args!("– {}", one.proposal.advice));
            self.narrator.detail(&format!("{}. {} {advice}", at + 1, one.proposal.title));
        }
        Ok(())
    }

    /// Tells a decision, and what the agent makes of it.
    async fn tell(
        &self,
        held: &HeldProposal,
        decided: Result<DecidedPlan, String>,
    ) -> Result<Value, CommandError> {
        let DecidedPlan { state, plan, .. } =
            decided.map_err(|why| broken("the agent lost its line", &why))?;
        let title = held.proposal.title;
        let is_agreed = matches!(state.as_str(), "approved" | "executing" | "done" | "failed");
        let word = match state.as_str() {
            _ if is_agreed => paint(GOOD, "approved"),
            "rejected" => paint(BAD, "rejected"),
            other => paint(WARN, visible(other)),
        };
        let note = plan.get("note").and_then(Value::as_str).map(|note| format!(" “{}”", visible(note)));
        let played = if matches!(self.decider, DemoDecider::Played { .. }) { " (played)" } else { "" };
        let words = format!("{word}: {title}{}{played}", note.unwrap_or_default());
        self.narrator.you(&words, json!({"state": state, "plan": title})).await;
        self.go_on(held, &state, &plan).await?;
        if let Some(order) = held.proposal.order {
            let arguments = json!({"name": "orders:get_order", "args": {"number": order}, "intent": {"operation_type": "read"}});
            let found = self.call("call_tool_read", arguments).await?;
            let is_there = found.result.get("isError") != Some(&Value::Bool(true));
            self.narrator.detail(&format!("{order} {}", if is_there { "is still there" } else { "is gone" }));
        }
        Ok(json!({"title": title, "plan_id": held.plan_id, "decision": state}))
    }

    /// Exactly what was shown runs, or nothing.
    async fn go_on(&self, held: &HeldProposal, state: &str, plan: &Value) -> Result<(), CommandError> {
        if matches!(state, "done" | "failed") {
            self.narrator.agent("You ran it for me. What came of it?").await;
            self.outcome(plan.get("result").unwrap_or(&Value::Null)).await;
            return Ok(());
        }
        let is_approved = state == "approved";
        self.narrator.agent(if is_approved { "Then I run it." } else { "I try it anyway." }).await;
        let ran = self.run(held).await?;
        if ran.refusal().is_some() {
            self.narrator.refused(&ran).await;
            return Ok(());
        }
        self.outcome(&ran.result).await;
        if held.proposal.played_yes && held.proposal.order.is_some() {
            self.narrator.agent("And once more?").await;
            let again = self.run(held).await?;
            self.narrator.refused(&again).await;
        }
        Ok(())
    }

    /// The outcome of a single call, or of each step.
    async fn outcome(&self, result: &Value) {
        let body = result.get("structuredContent").unwrap_or(result);
        let steps = body.pointer("/data/steps").or_else(|| body.get("steps")).and_then(Value::as_array);
        if let Some(steps) = steps {
            let is_done = |step: &&Value| step.get("state").is_some_and(|state| state == "done");
            let done = steps.iter().filter(is_done).count();
            let words = format!("{} {done} of {}", paint(GOOD, "ran:"), plural(steps.len(), "step"));
            self.narrator.gate(&words, json!({"ran": done == steps.len(), "steps": done})).await;
            return;
        }
        let failed = result.get("isError") == Some(&Value::Bool(true));
        let message = body.get("message").and_then(Value::as_str).unwrap_or_default();
        let word = if failed { paint(BAD, "failed:") } else { paint(GOOD, "ran:") };
        let words = format!("{word} {}", visible(message));
        self.narrator.gate(&words, json!({"ran": !failed, "message": message})).await;
    }

    /// Everything is on record, and the record is whole. Lists the rows of one plan.
    async fn verify_log(&self, plan: &str) -> Result<(u64, bool), CommandError> {
        let fault =
            |fault: countersign_store::StoreFault| broken("the audit log can't be read", &fault.inside());
        let store = &self.gateway.store;
        store.flush().await.map_err(fault)?;
        let newest = LedgerFilter { limit: Some(100), ..LedgerFilter::default() };
        let page = store.activity(newest).await.map_err(fault)?;
        let report = ledger::verify(store, None).await.map_err(fault)?;
        let verified = report.first_bad.is_none();
        let word = if verified {
            paint(GOOD, "✓ unchanged since they were written")
        } else {
            paint(BAD, "✗ a row was changed")
        };
        let words = format!("{}, {word}. Those of {}:", plural(report.rows, "row"), PROPOSALS[0].title);
        self.narrator.log(&words, json!({"rows": report.rows, "verified": verified})).await;
        let is_of_plan = |id: &countersign_policy::ids::PlanId| id.as_str() == plan;
        for row in page.rows.iter().rev().filter(|row| row.plan_id.as_ref().is_some_and(is_of_plan)) {
            let role = row.role.as_ref().map(ToString::to_string).unwrap_or_default();
            self.narrator.detail(&format!(
                "{:<9} {:<8} {role}",
                row.kind.to_string(),
                row.status.to_string()
            ));
        }
        Ok((report.rows, verified))
    }

    // --- calls -------------------------------------------------------------------------------------------------------

    async fn call(&self, tool: &str, arguments: Value) -> Result<AgentCallResult, CommandError> {
        let answer = self.agent.call(tool, arguments).await;
        answer.map_err(|why| broken("the agent lost its line", &why))
    }

    async fn run(&self, held: &HeldProposal) -> Result<AgentCallResult, CommandError> {
        let arguments = json!({"plan_id": held.plan_id, "confirm_token": held.token, "yes": true});
        self.call("run_plan", arguments).await
    }

    /// What the page does when its button is clicked, with the person's own credential.
    async fn answer_as_person(&self, plan: &str, agrees: bool) -> Result<(), CommandError> {
        let host = self.gateway.url.trim_start_matches("http://");
        let (verb, body) =
            if agrees { ("approve", "{}") } else { ("reject", r#"{"note":"ask the customer first"}"#) };
        let request = format!(
            "POST /api/v1/plans/{plan}/{verb} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.gateway.secret.expose(),
            body.len()
        );
        let said = async {
            let mut stream = TcpStream::connect(host).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<String, std::io::Error>(answer)
        };
        let said = said.await.map_err(|error| broken("the page does not answer", &error.to_string()))?;
        if said.starts_with("HTTP/1.1 200") {
            Ok(())
        } else {
            Err(broken("the page refused the decision", &said))
        }
    }
}

/// Waits until a plan is decided; where the person also runs it, until it has run.
async fn wait_for_decision(
    agent: Arc<DemoAgent>,
    index: usize,
    plan_id: String,
) -> Result<DecidedPlan, String> {
    let mut was_approved = false;
    loop {
        let seen = agent.call("get_plan", json!({"plan_id": plan_id, "wait_seconds": 20})).await?;
        let plan = seen.body().pointer("/data/plan").cloned().unwrap_or_default();
        let state = plan.get("state").and_then(Value::as_str).unwrap_or_default().to_owned();
        match state.as_str() {
            "pending" => {}
            // "Approve and run" is two steps: between them the plan looks as if the agent should run it.
            "executing" => tokio::time::sleep(Duration::from_millis(200)).await,
            "approved" if !was_approved => {
                was_approved = true;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            _ => return Ok(DecidedPlan { index, state, plan }),
        }
    }
}

fn order_line(order: &Value) -> String {
    let of = |name: &str| order.get(name).map(plain).unwrap_or_default();
    let note = order.get("note").and_then(Value::as_str).map(|note| format!("  “{}”", visible(note)));
    format!(
        "{:<8} {:<20} {:<8} {:>8}{}",
        of("number"),
        visible(&of("supplier")),
        of("status"),
        of("total"),
        paint(DIM, note.unwrap_or_default())
    )
}

fn preview_lines(shown: &Value) -> Vec<String> {
    let view = ChangeView { message: None, target: None, next: Vec::new(), ..ChangeView::of_result(shown) };
    changes::lines(&view)
}

/// A step by its tool and what it is about.
fn step_line(at: usize, step: &Value) -> String {
    let tool = step.get("tool").and_then(Value::as_str).unwrap_or_default();
    let words = tool.rsplit(':').next().unwrap_or_default().replace('_', " ");
    let about = |name: &str| step.pointer(&format!("/arguments/{name}")).and_then(Value::as_str);
    let target = about("supplier").or_else(|| about("sku")).unwrap_or_default();
    format!("{}. {} {}", at + 1, visible(&words), paint(DIM, visible(target)))
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
