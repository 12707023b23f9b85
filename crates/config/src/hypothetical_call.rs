//! Judges a call that is not made: the tool as far as it is known, a caller, and the real gate.
//! Does not check limits, schemas, tokens or grants.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::cases::{CallRoute, VerdictWord};
use super::upstream::UpstreamKind;
use super::{CommandTool, Config};
use countersign_policy::call::{Arguments, Caller, CallerScopes, CatalogStatus, ToolCall};
use countersign_policy::confirm::ConfirmInput;
use countersign_policy::effect::Effect;
use countersign_policy::gate::{self, NoLimits, NoSchema, PolicySnapshot, Verdict, WriteStatus};
use countersign_policy::ids::{FullName, PrincipalId, SessionId};
use countersign_policy::intent::{CallEntryPoint, CallToolVariant, UncheckedIntent};
use countersign_policy::mode::Mode;
use countersign_policy::record::Source;
use countersign_policy::redact::Redactor;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_policy::rules::RuleResolution;
use countersign_policy::tool::Tool;

/// What the caller of a call tool says about intent.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum IntentInput {
    /// What the variant stands for.
    #[default]
    Suited,
    Missing,
    Given(Map<String, Value>),
}

/// A call to be explained.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainInput {
    pub tool: FullName,
    pub arguments: Arguments,
    /// The call's mode; the configured one if none.
    pub mode: Option<Mode>,
    pub role: Role,
    /// Through which call tool; the one that suits the tool's effect if none.
    pub way: Option<CallRoute>,
    pub intent: IntentInput,
    /// The tool's annotations, where the catalogue is not at hand.
    pub annotations: Option<Map<String, Value>>,
    pub description: Option<String>,
    /// The tool's input schema, which may offer a dry run.
    pub input_schema: Option<Value>,
    /// What the whole definition is pinned by, where it is known: rules may be about one definition.
    pub fingerprint: Option<countersign_policy::digest::Digest>,
    /// The principal, if a rule looks at it.
    pub principal: Option<String>,
    /// The session, if a rule looks at it.
    pub session: Option<String>,
    /// The moment, for rules that look at it.
    pub now: Timestamp,
}

impl ExplainInput {
    /// Takes over what the catalogue knows of the tool.
    pub fn describe(&mut self, definition: &Map<String, Value>) {
        let annotations = definition.get("annotations").and_then(Value::as_object).cloned();
        self.annotations = Some(annotations.unwrap_or_default());
        self.description = definition.get("description").and_then(Value::as_str).map(str::to_owned);
        self.input_schema = definition.get("inputSchema").cloned();
        self.fingerprint = Some(countersign_policy::tool::fingerprint(definition));
    }

    /// An agent's call of a tool without arguments, in the configured mode.
    pub fn of(tool: FullName, now: Timestamp) -> Self {
        Self {
            tool,
            arguments: Arguments::none(),
            mode: None,
            role: Role::Agent,
            way: None,
            intent: IntentInput::Suited,
            annotations: None,
            description: None,
            input_schema: None,
            fingerprint: None,
            principal: None,
            session: None,
            now,
        }
    }
}

/// The tool as the configuration knows it, or as little as the question says.
pub(crate) fn tool_of(config: &Config, input: &ExplainInput) -> Tool {
    if let Some(passage) = Tool::passage(&input.tool).filter(|_| input.annotations.is_none()) {
        return passage;
    }
    let mut definition = command_tool(config, &input.tool).map(CommandTool::definition).unwrap_or_default();
    definition.insert("name".into(), input.tool.tool.as_str().into());
    if let Some(annotations) = &input.annotations {
        definition.insert("annotations".into(), Value::Object(annotations.clone()));
    }
    if let Some(description) = &input.description {
        definition.insert("description".into(), description.as_str().into());
    }
    if let Some(schema) = &input.input_schema {
        definition.insert("inputSchema".into(), schema.clone());
    }
    let annotations = countersign_policy::tool::ToolAnnotations::read(definition.get("annotations"));
    Tool {
        upstream: input.tool.upstream.clone(),
        name: input.tool.tool.clone(),
        fingerprint: input.fingerprint.unwrap_or_else(|| countersign_policy::tool::fingerprint(&definition)),
        annotations,
        definition,
    }
}

pub(crate) fn command_tool<'c>(config: &'c Config, name: &FullName) -> Option<&'c CommandTool> {
    match &config.upstream(&name.upstream)?.kind {
        UpstreamKind::Command { tools, .. } => tools.iter().find(|tool| tool.name == name.tool),
        UpstreamKind::Stdio { .. } | UpstreamKind::Http { .. } | UpstreamKind::Native { .. } => None,
    }
}

pub(crate) fn spoken(input: &ExplainInput, way: CallRoute) -> Result<UncheckedIntent, Box<Refusal>> {
    let intent = match (&input.intent, way.entry_point()) {
        (IntentInput::Given(given), _) => given.clone(),
        (IntentInput::Suited, CallEntryPoint::Router(variant)) => {
            Map::from_iter([("operation_type".to_owned(), variant.operation().as_str().into())])
        }
        (IntentInput::Suited, CallEntryPoint::Direct) | (IntentInput::Missing, _) => {
            return Ok(UncheckedIntent::default());
        }
    };
    UncheckedIntent::read(&Map::from_iter([("intent".to_owned(), Value::Object(intent))])).map_err(Box::new)
}

fn caller(config: &Config, input: &ExplainInput) -> Caller {
    let max_mode = match input.role {
        Role::Agent => config.gateway.max_mode,
        Role::Human => Mode::Execute,
    };
    Caller {
        principal: PrincipalId::new(input.principal.as_deref().unwrap_or(input.role.as_str())),
        credential: None,
        role: input.role,
        session: SessionId::new(input.session.as_deref().unwrap_or("policy")),
        request_id: None,
        source: Source::Cli,
        host: None,
        scopes: CallerScopes { max_mode, ..CallerScopes::all() },
    }
}

/// The arguments the call would be sent with, and what the rules say of them.
pub(crate) fn resolve(
    config: &Config,
    input: &ExplainInput,
    tool: &Tool,
    mode: Mode,
    spoken: &UncheckedIntent,
    entry_point: CallEntryPoint,
) -> (Arguments, RuleResolution) {
    let call = call(config, input, tool, mode, spoken, entry_point);
    gate::effective(call, tool, &policy_snapshot(config, &Redactor::default()), mode, input.now)
}

fn call(
    config: &Config,
    input: &ExplainInput,
    tool: &Tool,
    mode: Mode,
    spoken: &UncheckedIntent,
    entry_point: CallEntryPoint,
) -> ToolCall {
    ToolCall {
        caller: caller(config, input),
        name: input.tool.clone(),
        catalog_status: CatalogStatus::Accepted(Arc::new(tool.clone())),
        arguments: input.arguments.clone(),
        entry_point,
        intent: spoken.clone(),
        mode: Some(mode.as_str().to_owned()),
        confirm_input: ConfirmInput::default(),
    }
}

fn policy_snapshot<'c>(config: &'c Config, redactor: &'c Redactor) -> PolicySnapshot<'c> {
    PolicySnapshot {
        rules: &config.rules,
        strictness: config.intent.strictness,
        configured_mode: config.gateway.mode,
        session_mode: None,
        pending_plan: None,
        grants: &[],
        usage: &NoLimits,
        writes: WriteStatus::Open,
        schema: &NoSchema,
        redactor,
    }
}

pub(crate) struct HypotheticalVerdict {
    pub(crate) verdict: VerdictWord,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) warnings: Vec<String>,
}

impl HypotheticalVerdict {
    pub(crate) fn no(refusal: Refusal) -> Self {
        Self { verdict: VerdictWord::Refuse, refusal: Some(refusal), warnings: Vec::new() }
    }
}

pub(crate) fn judge(
    config: &Config,
    input: &ExplainInput,
    tool: &Tool,
    mode: Mode,
    way: CallRoute,
    spoken: &UncheckedIntent,
) -> HypotheticalVerdict {
    let call = call(config, input, tool, mode, spoken, way.entry_point());
    match gate::judge(call, &policy_snapshot(config, &Redactor::default()), input.now) {
        Verdict::Go(permit) => yes(VerdictWord::Go, permit.warnings()),
        Verdict::Hold(draft) => yes(VerdictWord::Hold, &draft.warnings),
        Verdict::Preview(draft) => yes(VerdictWord::Preview, &draft.warnings),
        Verdict::Explain(explanation) => HypotheticalVerdict {
            verdict: VerdictWord::Explain,
            refusal: Some(explanation.refusal),
            warnings: explanation.warnings,
        },
        Verdict::Refuse(refused) => HypotheticalVerdict::no(refused.refusal),
        // Unreachable without a token. If it is reached, refusing is the safe answer.
        Verdict::Redeem(_) => {
            HypotheticalVerdict::no(Refusal::new(Code::ConfirmTokenRequired, "no token was brought"))
        }
    }
}

fn yes(verdict: VerdictWord, warnings: &[String]) -> HypotheticalVerdict {
    HypotheticalVerdict { verdict, refusal: None, warnings: warnings.to_vec() }
}

impl CallRoute {
    pub fn entry_point(self) -> CallEntryPoint {
        match self {
            CallRoute::Read => CallEntryPoint::Router(CallToolVariant::Read),
            CallRoute::Write => CallEntryPoint::Router(CallToolVariant::Write),
            CallRoute::Destructive => CallEntryPoint::Router(CallToolVariant::Destructive),
            CallRoute::Direct => CallEntryPoint::Direct,
        }
    }

    pub(crate) fn suited(effect: Effect) -> Self {
        match effect {
            Effect::Read => CallRoute::Read,
            Effect::Write => CallRoute::Write,
            Effect::Destructive => CallRoute::Destructive,
        }
    }
}
