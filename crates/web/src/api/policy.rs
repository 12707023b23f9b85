//! The rules in force, an explanation of one call, a simulation of other rules. Calls nothing, changes nothing.

use axum::extract::State;
use countersign_config::{self as config, ExplainInput, IntentInput, PolicyExplanation, Source};
use countersign_gateway::simulate::{ChangedDecision, Undecidable};
use countersign_policy::call::{ArgumentFault, Arguments};
use countersign_policy::duration;
use countersign_policy::ids::FullName;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::auth::AuthenticatedPerson;
use crate::request::{Body, invalid, word};
use crate::response::{ApiResult, respond};
use crate::state::{Web, WebState};
use crate::views::{self, RuleView};

/// The policy in force.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Policy {
    /// In order of evaluation: for each field, the first rule that matches and sets it wins.
    rules: Vec<RuleView>,
    /// The default mode of a session.
    mode: String,
    /// The highest mode of a connection, unless its credential sets one.
    max_mode: String,
    /// Whether a call is refused if annotations contradict its intent.
    strict_server_validation: bool,
}

pub(crate) async fn rules(State(web): Web, _: AuthenticatedPerson) -> ApiResult<Policy> {
    let policy = web.gateway.policy.load_full();
    respond(Policy {
        rules: views::rules(&policy.config),
        mode: policy.mode.to_string(),
        max_mode: policy.max_mode.to_string(),
        strict_server_validation: policy.strictness == countersign_policy::intent::IntentStrictness::Strict,
    })
}

/// The call to explain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ExplainQuestion")]
pub(crate) struct ExplainCallBody {
    /// `upstream:tool`.
    tool: String,
    args: Option<Map<String, Value>>,
    /// ask, plan or execute; default the configured one.
    mode: Option<String>,
    /// agent (default) or human
    role: Option<String>,
    /// read, write, destructive or direct; default the one for the tool's effect.
    variant: Option<String>,
    /// The declared intent; default one that suits the variant.
    intent: Option<Map<String, Value>>,
    /// The tool's annotations; default those it is listed with.
    annotations: Option<Map<String, Value>>,
    /// The caller, for rules that read it.
    principal: Option<String>,
}

/// The explanation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ExplainAnswer")]
pub(crate) struct ExplainCallResponse {
    /// The verdict, the rule behind each field, and the verdict in each mode.
    #[schemars(with = "Value")]
    explained: PolicyExplanation,
    warnings: Vec<String>,
}

pub(crate) async fn explain(
    State(web): Web,
    _: AuthenticatedPerson,
    Body(question): Body<ExplainCallBody>,
) -> ApiResult<ExplainCallResponse> {
    let policy = web.gateway.policy.load_full();
    let input = input(&web, question)?;
    let explained = config::explain(&policy.config, &input);
    respond(ExplainCallResponse { warnings: explained.warnings.clone(), explained })
}

fn input(web: &WebState, question: ExplainCallBody) -> Result<ExplainInput, Refusal> {
    let tool: FullName = question.tool.parse().map_err(|_| invalid("tool", "must be `upstream:tool`"))?;
    let mut input = ExplainInput::of(tool.clone(), web.gateway.now());
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
    let listed = web.gateway.catalog.load_full();
    if let Some(listed) = listed.get(&tool) {
        input.describe(&listed.tool.definition);
    }
    input.annotations = question.annotations.or(input.annotations);
    Ok(input)
}

/// The rules to simulate.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SimulateQuestion")]
pub(crate) struct SimulateRulesBody {
    /// TOML as in the configuration; replaces the present rules.
    rules: String,
    /// Which calls: such as `7d` (default) for the last week.
    since: Option<String>,
}

/// The result of a simulation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Simulation")]
pub(crate) struct SimulationReport {
    since: String,
    /// How many calls were evaluated.
    calls: u64,
    /// The same as `calls`, under the command line's name.
    replayed: u64,
    unchanged: u64,
    /// How many calls were not decided by rules.
    left_out: u64,
    /// Calls that would be decided differently, newest first.
    #[schemars(with = "Vec<Value>")]
    changes: Vec<ChangedDecision>,
    /// Calls that can't be evaluated, because a rule reads a redacted argument.
    #[schemars(with = "Vec<Value>")]
    undecidable: Vec<Undecidable>,
}

pub(crate) async fn simulate(
    State(web): Web,
    _: AuthenticatedPerson,
    Body(tried): Body<SimulateRulesBody>,
) -> ApiResult<SimulationReport> {
    let policy = web.gateway.policy.load_full();
    let span = duration::parse(tried.since.as_deref().unwrap_or("7d"))
        .map_err(|why| invalid("since", format_args!("is wrong: {why}")))?;
    let now = web.gateway.now();
    let since = now.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH).max(Timestamp::UNIX_EPOCH);
    let new = [Source::new("new rules", tried.rules)];
    let new = config::parse_instead(policy.config.files.all(), &new).map_err(|found| {
        let all: Vec<String> = found.iter().map(ToString::to_string).collect();
        let first = found.first().map(|one| one.message.clone()).unwrap_or_default();
        Refusal::new(Code::ConfigInvalid, format!("the rules can't be used: {first}")).with("findings", all)
    })?;
    let new = new.placed_like(&policy.config);
    let done =
        countersign_gateway::simulate::simulate(&web.gateway.store, &policy.config, &new, since).await?;
    respond(SimulationReport {
        since: since.to_string(),
        calls: done.replayed,
        replayed: done.replayed,
        unchanged: done.unchanged,
        left_out: done.left_out,
        changes: done.changes,
        undecidable: done.undecidable,
    })
}
