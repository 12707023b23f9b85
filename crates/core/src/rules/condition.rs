//! Conditions: CEL over args, tool, caller, intent, mode and now, compiled when the rules are read.
//! A condition answers true or false; anything else is an error, and an error refuses.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::call::Caller;
use crate::ids::FullName;
use crate::intent::Intent;
use crate::mode::Mode;
use crate::tool::Tool;

/// The names a condition may use.
pub const VARIABLES: [&str; 6] = ["args", "tool", "caller", "intent", "mode", "now"];

/// The longest condition, in bytes: longer ones are a mistake or an attack.
const LONGEST: usize = 4_096;

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A compiled condition.
#[derive(Clone)]
pub struct Condition {
    source: String,
    program: Arc<Program>,
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Condition({:?})", self.source)
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

/// A condition that does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct BadCondition {
    /// What is wrong.
    pub why: String,
    /// Where in the condition, line and column from 1, if known.
    pub at: Option<(usize, usize)>,
}

impl Condition {
    /// Compiles, and refuses names that are not among [`VARIABLES`].
    pub fn compile(source: &str) -> Result<Self, BadCondition> {
        if source.len() > LONGEST {
            let why = format!("the condition has {} bytes; at most {LONGEST} are allowed", source.len());
            return Err(BadCondition { why, at: None });
        }
        let program = ENV.compile(source).map_err(|errors| match errors.errors.first() {
            Some(first) => {
                let place = |number: isize| usize::try_from(number).unwrap_or(1).max(1);
                BadCondition { why: first.msg.clone(), at: Some((place(first.pos.0), place(first.pos.1))) }
            }
            None => BadCondition { why: "the condition does not parse".to_owned(), at: None },
        })?;
        let references = program.references();
        let mut unknown: Vec<&str> =
            references.variables().into_iter().filter(|name| !VARIABLES.contains(name) && !name.starts_with('@')).collect();
        unknown.sort_unstable();
        // Names bound by macros (`x` in `args.items.all(x, …)`) show up as references too; a dry evaluation tells them apart.
        if let Some(name) = unknown.into_iter().find(|name| is_free(&program, name)) {
            let why = format!("unknown name `{name}`: a condition knows {}", VARIABLES.join(", "));
            return Err(BadCondition { why, at: None });
        }
        Ok(Self { source: source.to_owned(), program: Arc::new(program) })
    }

    /// As it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// True, false, or an error in words.
    pub fn holds(&self, world: &World) -> Result<bool, String> {
        match self.program.execute(&world.context) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(format!("the condition gives a {}, not true or false", other.type_of())),
            Err(error) => Err(explain(&error)),
        }
    }
}

/// Whether evaluation trips over the name: then it is free, and nothing will ever bind it.
fn is_free(program: &Program, name: &str) -> bool {
    let world = World::of_values(Map::new(), Map::new(), Map::new(), Map::new(), Mode::Ask, Timestamp::UNIX_EPOCH);
    match program.execute(&world.context) {
        Err(cel::ExecutionError::UndeclaredReference(missing)) => missing.as_str() == name,
        Ok(_) | Err(_) => false,
    }
}

fn explain(error: &cel::ExecutionError) -> String {
    match error {
        cel::ExecutionError::NoSuchKey(key) => {
            format!("there is no `{key}` in this call; write `has(…) && …` where it may be absent")
        }
        other => other.to_string(),
    }
}

/// What a condition may look at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The tool's full name.
    pub name: &'a FullName,
    /// The tool, where it is known.
    pub tool: Option<&'a Tool>,
    /// The arguments.
    pub arguments: &'a Map<String, Value>,
    /// The line.
    pub caller: &'a Caller,
    /// What was declared.
    pub intent: Option<&'a Intent>,
    /// The mode in force.
    pub mode: Mode,
    /// The moment.
    pub now: Timestamp,
}

/// A call as conditions see it.
pub struct World {
    context: Context<'static, 'static>,
}

impl World {
    /// Builds the six variables of a call.
    pub fn of(facts: &Facts<'_>) -> Self {
        let text = |value: &str| Value::String(value.to_owned());
        let mut tool = Map::new();
        tool.insert("upstream".into(), text(facts.name.upstream.as_str()));
        tool.insert("name".into(), text(facts.name.tool.as_str()));
        tool.insert("full_name".into(), Value::String(facts.name.to_string()));
        let definition = facts.tool.map(|tool| &tool.definition);
        let annotations = definition.and_then(|definition| definition.get("annotations")).cloned();
        tool.insert("annotations".into(), annotations.unwrap_or_else(|| Value::Object(Map::new())));
        tool.insert("description".into(), text(facts.tool.map(Tool::description).unwrap_or_default()));
        let mut caller = Map::new();
        caller.insert("principal".into(), text(facts.caller.principal.as_str()));
        caller.insert("role".into(), text(facts.caller.role.as_str()));
        caller.insert("session".into(), text(facts.caller.session.as_str()));
        let mut intent = Map::new();
        if let Some(declared) = facts.intent {
            intent.insert("operation_type".into(), text(declared.operation_type.as_str()));
            if let Some(sensitivity) = declared.data_sensitivity {
                intent.insert("data_sensitivity".into(), text(sensitivity.as_str()));
            }
            if let Some(reason) = &declared.reason {
                intent.insert("reason".into(), text(reason));
            }
        }
        Self::of_values(facts.arguments.clone(), tool, caller, intent, facts.mode, facts.now)
    }

    fn of_values(
        args: Map<String, Value>,
        tool: Map<String, Value>,
        caller: Map<String, Value>,
        intent: Map<String, Value>,
        mode: Mode,
        now: Timestamp,
    ) -> Self {
        let mut context = Context::with_env(Arc::clone(&ENV));
        for (name, value) in [("args", args), ("tool", tool), ("caller", caller), ("intent", intent)] {
            context.add_variable_from_value(name, cel_value(&Value::Object(value)));
        }
        context.add_variable_from_value("mode", mode.as_str());
        let nanos = u32::try_from(now.subsec_nanosecond().max(0)).unwrap_or(0);
        let moment = chrono::DateTime::from_timestamp(now.as_second(), nanos).unwrap_or_default();
        context.add_variable_from_value("now", cel::Value::Timestamp(moment.fixed_offset()));
        Self { context }
    }
}

/// JSON as CEL sees it: whole numbers are int, so that `args.amount > 10000` works as written.
fn cel_value(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => cel::Value::Int(whole),
            (None, Some(real)) => cel::Value::Float(real),
            (None, None) => cel::Value::Null,
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(cel_value).collect())),
        Value::Object(members) => {
            let members: HashMap<String, cel::Value> =
                members.iter().map(|(name, member)| (name.clone(), cel_value(member))).collect();
            cel::Value::from(members)
        }
    }
}
