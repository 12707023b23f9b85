//! One plan as a person reads it before deciding: who asks for what, why it needs them, every argument, the preview,
//! how long is left. Complete, and nothing in it that could pass for something else.

use anstyle::Style;
use countersign_policy::confirm::{ApprovalStrength, Kind, PlanState};
use countersign_policy::effect::Effect;
use countersign_policy::plan::{Plan, Preview, PreviewSource};
use countersign_policy::preview::{ChangeView, WHEN_REACHED};
use countersign_policy::redact::Redactor;
use countersign_policy::strict_json;
use countersign_store::PlanRow;
use countersign_web::views;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::changes;
use crate::commands::call;
use crate::environment;
use crate::output::{BAD, BOLD, DIM, GOOD, NAME, TimeDisplay, WARN, paint, plural, shown, visible};
pub(crate) use crate::output::{left, zone};
use crate::person::value;

/// The state of a plan now: one whose time ran out is expired, even if the store does not say so yet.
pub(crate) fn state(row: &PlanRow, now: Timestamp) -> PlanState {
    views::plan_state(row, now)
}

pub(crate) fn state_style(state: PlanState) -> Style {
    match state {
        PlanState::Pending => WARN,
        PlanState::Approved | PlanState::Done => GOOD,
        PlanState::Rejected | PlanState::Failed | PlanState::OutcomeUnknown => BAD,
        PlanState::Cancelled | PlanState::Expired => DIM,
        PlanState::Executing => Style::new(),
    }
}

pub(crate) fn effect_style(effect: Effect) -> Style {
    match effect {
        Effect::Read => GOOD,
        Effect::Write => WARN,
        Effect::Destructive => BAD,
    }
}

/// What a plan needs, in a few words.
pub(crate) fn needs(plan: &Plan) -> String {
    let who = match plan.requirement.strength {
        ApprovalStrength::Caller => "the caller",
        ApprovalStrength::Host => "the host's user or a person",
        ApprovalStrength::Human => "a person",
    };
    let how = match plan.requirement.kind {
        Kind::None => "nothing",
        Kind::Simple => "a yes",
        Kind::Preview => "a look at the preview and a yes",
        Kind::Type => "a look at the preview and the resource's name, typed",
    };
    format!("{how}, from {who} (confirm {}, strength {})", plan.requirement.kind, plan.requirement.strength)
}

pub(crate) fn sheet(row: &PlanRow, redactor: &Redactor, zone: &TimeDisplay, now: Timestamp) -> String {
    let (plan, state) = (&row.plan, state(row, now));
    let mut sheet = PlanTextBuilder(format!(
        "{}  {}\n",
        paint(BOLD, visible(plan.id.as_str())),
        paint(state_style(state), state)
    ));
    let effect = paint(effect_style(plan.effect), plan.effect);
    sheet.raw("tool", &format!("{}  {effect}", paint(NAME, visible(&plan.tool.to_string()))));
    sheet.line("asked by", &plan.asked_by(environment::home_text().as_deref()));
    if let Some(intent) = &plan.intent {
        let data = intent.data_sensitivity.map(|data| format!(", data {data}")).unwrap_or_default();
        sheet.line("intent", &format!("{}{data}", intent.operation_type));
        if let Some(reason) = &intent.reason {
            sheet.line("reason", &redactor.clean_text(reason));
        }
    }
    sheet.line("needs", &needs(plan));
    let because = match &plan.rule {
        Some(rule) => format!("the rule `{rule}` asks for it"),
        None => format!("that is usual for a {} tool; no rule says otherwise", plan.effect),
    };
    sheet.line("because", &because);
    sheet.line("drafted", &shown(plan.created, zone));
    match state {
        PlanState::Pending | PlanState::Approved => {
            let when = shown(plan.expires, zone);
            sheet.raw("expires", &format!("in {} ({when})", paint(BOLD, left(plan.expires, now))));
            // `countersign call` asks the person who typed it.
            if state == PlanState::Pending && plan.session.as_str() != call::SESSION {
                sheet.line("its call", waiting_call(row, now));
            }
        }
        PlanState::Expired => sheet.line("expired", &shown(plan.expires, zone)),
        PlanState::Rejected
        | PlanState::Cancelled
        | PlanState::Executing
        | PlanState::Done
        | PlanState::Failed
        | PlanState::OutcomeUnknown => {}
    }
    decided(&mut sheet, row, zone);
    let arguments = redactor.clean(plan.arguments.value(), &plan.redact);
    if plan.steps.is_empty() {
        sheet.arguments(arguments);
        sheet.preview(&plan.preview);
    } else {
        sheet.steps(plan, &arguments, redactor);
    }
    sheet.0.push('\n');
    if let Some(meta) = &plan.meta {
        sheet.line("_meta", &redactor.clean(meta.value(), &[]).to_string());
    }
    sheet.quiet("principal", &visible(plan.principal.as_str()));
    sheet.quiet("session", &visible(plan.session.as_str()));
    sheet.quiet("plan hash", &plan.hash.hex());
    sheet.quiet("definition", &plan.fingerprint.hex());
    sheet.0
}

/// What an approval of a pending plan leads to.
pub(crate) fn waiting_call(row: &PlanRow, now: Timestamp) -> &'static str {
    if row.is_held_open(now) {
        "still waits, and runs as soon as it is approved"
    } else {
        "no longer waits: approved, it runs when the agent asks again, or with approve --run"
    }
}

/// What an upstream answered, as it is shown in a sheet.
pub(crate) fn result(result: &Value) -> String {
    let mut sheet = PlanTextBuilder(String::new());
    sheet.view(&ChangeView::of_result(result));
    sheet.0
}

fn decided(sheet: &mut PlanTextBuilder, row: &PlanRow, zone: &TimeDisplay) {
    if let Some(approval) = &row.approval {
        let grant = approval.grant.as_ref().map(|grant| format!(", grant {grant}")).unwrap_or_default();
        let when = shown(approval.at, zone);
        sheet.line("approved", &format!("by {} over {} at {when}{grant}", approval.by, approval.channel));
        if let Some(note) = &approval.note {
            sheet.line("note", note);
        }
    } else if let Some(decided) = row.decided {
        sheet.line("decided", &shown(decided, zone));
    }
    if let Some(note) = &row.note {
        sheet.line("note", note);
    }
    if let Some(code) = &row.code {
        sheet.line("code", code);
    }
    if let Some(ended) = row.ended {
        let bytes = row
            .result_bytes
            .map(|bytes| format!(", {} came back", plural(bytes, "byte")))
            .unwrap_or_default();
        sheet.line("ended", &format!("{}{bytes}", shown(ended, zone)));
    }
}

struct PlanTextBuilder(String);

impl PlanTextBuilder {
    fn raw(&mut self, name: &str, safe: &str) {
        self.0.push_str(&format!("  {} {safe}\n", paint(DIM, format_args!("{name:<10}"))));
    }

    fn line(&mut self, name: &str, text: &str) {
        self.raw(name, &visible(text));
    }

    fn quiet(&mut self, name: &str, text: &str) {
        self.0.push_str(&format!("{}\n", paint(DIM, format_args!("  {name:<10} {text}"))));
    }

    fn title(&mut self, title: &str) {
        self.0.push_str(&format!("\n{}\n", paint(BOLD, title)));
    }

    /// A plan of several: each step as it would be shown alone.
    fn steps(&mut self, plan: &Plan, arguments: &Value, redactor: &Redactor) {
        if let Some(title) = arguments.get("title").and_then(Value::as_str) {
            self.title(&format!("{}: {}", plural(plan.steps.len(), "step"), visible(title)));
        }
        if let Some(reason) = plan.preview.shown.get("reason").and_then(Value::as_str) {
            self.line("reason", &redactor.clean_text(reason));
        }
        for (number, step) in plan.steps.iter().enumerate() {
            let effect = paint(effect_style(step.effect), step.effect);
            let name = paint(NAME, visible(&step.tool.to_string()));
            self.0.push_str(&format!(
                "\n{} {name}  {effect}\n",
                paint(BOLD, format_args!("step {}", number + 1))
            ));
            if let Some(reason) = step.intent.as_ref().and_then(|intent| intent.reason.as_ref()) {
                self.line("reason", &redactor.clean_text(reason));
            }
            self.arguments(views::step_arguments(arguments, number));
            self.preview(&step.preview);
        }
    }

    fn arguments(&mut self, arguments: Value) {
        let Value::Object(members) = arguments else { return };
        if members.is_empty() {
            self.title("no arguments");
            return;
        }
        self.title("arguments");
        self.members(&members);
    }

    /// One member after the other, names in a column.
    fn members(&mut self, members: &Map<String, Value>) {
        let names: Vec<String> = members.keys().map(|name| visible(name).into_owned()).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default().min(24);
        for (name, member) in names.iter().zip(members.values()) {
            let mut lines = value::lines(member).into_iter();
            let first = lines.next().unwrap_or_default();
            let gap = " ".repeat((width + 1).saturating_sub(name.chars().count()).max(1));
            let first = if first.is_empty() { first } else { format!("{gap}{first}") };
            self.0.push_str(&format!("  {}{first}\n", paint(NAME, name)));
            for line in lines {
                self.0.push_str(&format!("  {line}\n"));
            }
        }
    }

    fn preview(&mut self, preview: &Preview) {
        let from = match preview.source {
            PreviewSource::Argument => "the tool's own dry run",
            PreviewSource::Companion => "another tool of the same upstream",
            PreviewSource::Command => "a configured command",
            PreviewSource::Chained => {
                "a dry run that knows of the steps above; made again when it is reached"
            }
            PreviewSource::Computed => "",
            PreviewSource::WhenReached => return self.title(WHEN_REACHED),
        };
        if preview.source == PreviewSource::Computed {
            self.title("no preview");
            self.0.push_str("  the upstream offers no dry run: the tool will run with the arguments above\n");
            return;
        }
        self.title(&format!("preview, by {from}"));
        self.view(&ChangeView::of(preview));
    }

    fn view(&mut self, view: &ChangeView) {
        for line in changes::lines(view) {
            self.0.push_str(&format!("  {line}\n"));
        }
    }
}

/// The plan for programs, as REST tells it: what came back keeps every digit.
pub(crate) fn json_text(row: &PlanRow, redactor: &Redactor, now: Timestamp) -> String {
    serde_json::to_string(&views::plan(row, redactor, now, environment::home_text().as_deref()))
        .unwrap_or_else(|_| "null".to_owned())
}

/// The plan as a value; what would lose a digit as text.
pub(crate) fn json(row: &PlanRow, redactor: &Redactor, now: Timestamp) -> Value {
    strict_json::read_to_show(&json_text(row, redactor, now)).unwrap_or_default()
}
