//! Policy for people: the rules in force, and what the law would make of a call. Calls nothing, changes nothing.

use std::sync::Arc;

use axum::extract::State;
use countersign_core::call::{ArgumentFault, Arguments};
use countersign_core::config::{self, ExplainInput, Explained, IntentInput, Source};
use countersign_core::duration;
use countersign_core::ids::FullName;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_gateway::simulate::{Changed, Undecidable};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::access::Person;
use crate::asked::{Body, invalid, word};
use crate::desk::Desk;
use crate::told::{Outcome, told};
use crate::views::{self, RuleView};

/// The law in force.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Policy {
    /// The rules, in the order in which they are asked: the first match per field wins.
    rules: Vec<RuleView>,
    /// The mode of a session that set none.
    mode: String,
    /// The highest mode of a line without a credential that says otherwise.
    max_mode: String,
    /// Whether annotations that contradict the intent refuse.
    strict_server_validation: bool,
}

/// `GET /policy`
pub(crate) async fn rules(State(desk): State<Arc<Desk>>, _: Person) -> Outcome<Policy> {
    let law = desk.house.law.load_full();
    told(Policy {
        rules: views::rules(&law.config),
        mode: law.mode.to_string(),
        max_mode: law.max_mode.to_string(),
        strict_server_validation: law.strictness == countersign_core::intent::Strictness::Strict,
    })
}

/// A call to be explained.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ExplainQuestion")]
pub(crate) struct Question {
    /// `upstream:tool`.
    tool: String,
    /// The call's arguments.
    args: Option<Map<String, Value>>,
    /// ask, plan or execute; the configured one if left out.
    mode: Option<String>,
    /// agent or human; agent if left out.
    role: Option<String>,
    /// read, write, destructive or direct; the one that suits the tool if left out.
    variant: Option<String>,
    /// What is declared; what suits the variant if left out.
    intent: Option<Map<String, Value>>,
    /// The annotations the upstream gives the tool; those it is listed with if left out.
    annotations: Option<Map<String, Value>>,
    /// Who calls, for rules that look at it.
    principal: Option<String>,
}

/// What the law makes of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ExplainAnswer")]
pub(crate) struct Answer {
    /// The verdict, which rule decided each field, and what would happen in each mode.
    #[schemars(with = "Value")]
    explained: Explained,
    /// What else should be known.
    warnings: Vec<String>,
}

/// `POST /policy/explain`
pub(crate) async fn explain(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Body(question): Body<Question>,
) -> Outcome<Answer> {
    let law = desk.house.law.load_full();
    let input = input(&desk, question)?;
    let explained = config::explain(&law.config, &input);
    told(Answer { warnings: explained.warnings.clone(), explained })
}

fn input(desk: &Desk, question: Question) -> Result<ExplainInput, Refusal> {
    let tool: FullName = question.tool.parse().map_err(|_| invalid("tool", "must be `upstream:tool`"))?;
    let mut input = ExplainInput::of(tool.clone(), desk.house.now());
    if let Some(args) = question.args {
        let text = Value::Object(args).to_string();
        input.arguments = Arguments::parse(text.as_bytes()).map_err(|fault| match fault {
            ArgumentFault::NotStrict(why) => invalid("args", why).because("arguments_not_strict"),
            ArgumentFault::NotAnObject => invalid("args", "must be an object"),
        })?;
    }
    input.mode = word("mode", question.mode.as_deref())?;
    input.role = word("role", question.role.as_deref())?.unwrap_or(Role::Agent);
    input.way = word("variant", question.variant.as_deref())?;
    input.principal = question.principal;
    if let Some(intent) = question.intent {
        input.intent = IntentInput::Given(intent);
    }
    let listed = desk.house.catalog.load_full();
    if let Some(listed) = listed.get(&tool) {
        input.describe(&listed.tool.definition);
    }
    input.annotations = question.annotations.or(input.annotations);
    Ok(input)
}

/// Rules to be tried.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SimulateQuestion")]
pub(crate) struct Tried {
    /// The rules, as they would stand in the configuration, in place of the present ones.
    rules: String,
    /// How far back, such as `7d`; a week if left out.
    since: Option<String>,
}

/// What they would have done.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Simulation")]
pub(crate) struct Simulated {
    /// From when.
    since: String,
    /// How many calls were put to them.
    calls: u64,
    /// How many calls were put to them, under the name the command line has for it.
    replayed: u64,
    /// How many would have been decided as they were.
    unchanged: u64,
    /// How many something else than rules decided.
    left_out: u64,
    /// Those that would have been decided differently, newest first.
    #[schemars(with = "Vec<Value>")]
    changes: Vec<Changed>,
    /// Those nobody can tell about.
    #[schemars(with = "Vec<Value>")]
    undecidable: Vec<Undecidable>,
}

/// `POST /policy/simulate`
pub(crate) async fn simulate(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Body(tried): Body<Tried>,
) -> Outcome<Simulated> {
    let law = desk.house.law.load_full();
    let span = duration::parse(tried.since.as_deref().unwrap_or("7d"))
        .map_err(|why| invalid("since", format_args!("is wrong: {why}")))?;
    let now = desk.house.now();
    let since = now.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH).max(Timestamp::UNIX_EPOCH);
    let new = [Source::new("new rules", tried.rules)];
    let new = config::parse_instead(law.config.files.all(), &new).map_err(|found| {
        let all: Vec<String> = found.iter().map(ToString::to_string).collect();
        let first = found.first().map(|one| one.message.clone()).unwrap_or_default();
        Refusal::new(Code::ConfigInvalid, format!("the rules can't be used: {first}")).with("findings", all)
    })?;
    let done = countersign_gateway::simulate::simulate(&desk.house.store, &law.config, &new, since).await?;
    told(Simulated {
        since: since.to_string(),
        calls: done.replayed,
        replayed: done.replayed,
        unchanged: done.unchanged,
        left_out: done.left_out,
        changes: done.changes,
        undecidable: done.undecidable,
    })
}
