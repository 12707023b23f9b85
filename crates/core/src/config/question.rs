//! One call put to the law without being made: a tool as far as it is known, a caller, and the real gate's verdict.
//! Limits, schemas, tokens and grants are not asked.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::cases::{VerdictWord, Way};
use super::upstream::UpstreamKind;
use super::{CommandTool, Config};
use crate::call::{Arguments, Call, Caller, Scopes, Standing};
use crate::confirm::Brought;
use crate::effect::Effect;
use crate::gate::{self, NoLimits, NoSchema, Snapshot, Verdict, Writes};
use crate::ids::{FullName, PrincipalId, SessionId};
use crate::intent::{Door, Spoken, Variant};
use crate::mode::Mode;
use crate::record::Source;
use crate::redact::Redactor;
use crate::refusal::{Code, Refusal};
use crate::role::Role;
use crate::rules::Resolution;
use crate::tool::Tool;

/// What the caller of a call tool says about intent.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum IntentInput {
    /// What the variant stands for.
    #[default]
    Suited,
    /// Nothing.
    Missing,
    /// This.
    Given(Map<String, Value>),
}

/// A call to be explained.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainInput {
    /// The tool.
    pub tool: FullName,
    /// Its arguments.
    pub arguments: Arguments,
    /// The call's mode; the configured one if none.
    pub mode: Option<Mode>,
    /// Who is on the line.
    pub role: Role,
    /// Through which call tool; the one that suits the tool's effect if none.
    pub way: Option<Way>,
    /// What is declared.
    pub intent: IntentInput,
    /// The tool's annotations, where the catalogue is not at hand.
    pub annotations: Option<Map<String, Value>>,
    /// The tool's description.
    pub description: Option<String>,
    /// The tool's input schema, which may offer a dry run.
    pub input_schema: Option<Value>,
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
            principal: None,
            session: None,
            now,
        }
    }
}

/// The tool as the configuration knows it, or as little as the question says.
pub(super) fn tool_of(config: &Config, input: &ExplainInput) -> Tool {
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
    let annotations = crate::tool::Annotations::read(definition.get("annotations"));
    Tool {
        upstream: input.tool.upstream.clone(),
        name: input.tool.tool.clone(),
        fingerprint: crate::tool::fingerprint(&definition),
        annotations,
        definition,
    }
}

pub(super) fn command_tool<'c>(config: &'c Config, name: &FullName) -> Option<&'c CommandTool> {
    match &config.upstream(&name.upstream)?.kind {
        UpstreamKind::Command { tools, .. } => tools.iter().find(|tool| tool.name == name.tool),
        UpstreamKind::Stdio { .. } | UpstreamKind::Http { .. } | UpstreamKind::Native { .. } => None,
    }
}

pub(super) fn spoken(input: &ExplainInput, way: Way) -> Result<Spoken, Box<Refusal>> {
    let intent = match (&input.intent, way.door()) {
        (IntentInput::Given(given), _) => given.clone(),
        (IntentInput::Suited, Door::Router(variant)) => {
            Map::from_iter([("operation_type".to_owned(), variant.operation().as_str().into())])
        }
        (IntentInput::Suited, Door::Direct) | (IntentInput::Missing, _) => return Ok(Spoken::default()),
    };
    Spoken::read(&Map::from_iter([("intent".to_owned(), Value::Object(intent))])).map_err(Box::new)
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
        source: Source::Cli,
        scopes: Scopes { max_mode, ..Scopes::all() },
    }
}

/// The arguments the call would be sent with, and what the rules say of them.
pub(super) fn resolve(
    config: &Config,
    input: &ExplainInput,
    tool: &Tool,
    mode: Mode,
    spoken: &Spoken,
    door: Door,
) -> (Arguments, Resolution) {
    let call = call(config, input, tool, mode, spoken, door);
    gate::effective(call, tool, &law(config, &Redactor::default()), mode, input.now)
}

fn call(config: &Config, input: &ExplainInput, tool: &Tool, mode: Mode, spoken: &Spoken, door: Door) -> Call {
    Call {
        caller: caller(config, input),
        name: input.tool.clone(),
        standing: Standing::Accepted(Arc::new(tool.clone())),
        arguments: input.arguments.clone(),
        door,
        intent: spoken.clone(),
        mode: Some(mode.as_str().to_owned()),
        brought: Brought::default(),
    }
}

fn law<'c>(config: &'c Config, redactor: &'c Redactor) -> Snapshot<'c> {
    Snapshot {
        rules: &config.rules,
        strictness: config.intent.strictness,
        configured_mode: config.gateway.mode,
        session_mode: None,
        held: None,
        grants: &[],
        usage: &NoLimits,
        writes: Writes::Open,
        schema: &NoSchema,
        redactor,
    }
}

pub(super) struct Judged {
    pub(super) verdict: VerdictWord,
    pub(super) refusal: Option<Refusal>,
    pub(super) warnings: Vec<String>,
}

impl Judged {
    pub(super) fn no(refusal: Refusal) -> Self {
        Self { verdict: VerdictWord::Refuse, refusal: Some(refusal), warnings: Vec::new() }
    }
}

pub(super) fn judge(
    config: &Config,
    input: &ExplainInput,
    tool: &Tool,
    mode: Mode,
    way: Way,
    spoken: &Spoken,
) -> Judged {
    let call = call(config, input, tool, mode, spoken, way.door());
    match gate::judge(call, &law(config, &Redactor::default()), input.now) {
        Verdict::Go(permit) => yes(VerdictWord::Go, permit.warnings()),
        Verdict::Hold(draft) => yes(VerdictWord::Hold, &draft.warnings),
        Verdict::Preview(draft) => yes(VerdictWord::Preview, &draft.warnings),
        Verdict::Explain(explanation) => Judged {
            verdict: VerdictWord::Explain,
            refusal: Some(explanation.refusal),
            warnings: explanation.warnings,
        },
        Verdict::Refuse(refused) => Judged::no(refused.refusal),
        // No token is brought, so none is redeemed; were it otherwise, the honest word is no.
        Verdict::Redeem(_) => Judged::no(Refusal::new(Code::ConfirmTokenRequired, "no token was brought")),
    }
}

fn yes(verdict: VerdictWord, warnings: &[String]) -> Judged {
    Judged { verdict, refusal: None, warnings: warnings.to_vec() }
}

impl Way {
    /// The door it stands for.
    pub fn door(self) -> Door {
        match self {
            Way::Read => Door::Router(Variant::Read),
            Way::Write => Door::Router(Variant::Write),
            Way::Destructive => Door::Router(Variant::Destructive),
            Way::Direct => Door::Direct,
        }
    }

    pub(super) fn suited(effect: Effect) -> Self {
        match effect {
            Effect::Read => Way::Read,
            Effect::Write => Way::Write,
            Effect::Destructive => Way::Destructive,
        }
    }
}
