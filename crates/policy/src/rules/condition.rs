//! Conditions: CEL over args, tool, caller, intent, mode and now, with `under(path, dir)`, compiled when the rules are read.
//! A condition answers true or false; anything else is an error, and an error refuses.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString};
use cel::common::value::Val;
use cel::extractors::This;
use cel::{Context, Env, ExecutionError, Program};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::names::{self, ArgumentReads};
use super::paths::{self, PathResolver};
use crate::call::Caller;
use crate::ids::FullName;
use crate::intent::Intent;
use crate::mode::Mode;
use crate::tool::Tool;

/// The names a condition may use.
pub const VARIABLES: [&str; 6] = ["args", "tool", "caller", "intent", "mode", "now"];

/// The function of ours, for paths.
const UNDER: &str = "under";

/// The longest condition, in bytes: longer ones are a mistake or an attack.
const LONGEST: usize = 4_096;

/// The most symbols and words. With the longest chain of operators this stays within [`PARSER_STACK`].
const MOST_SYMBOLS: usize = 1_024;

/// How deep expressions may stand inside one another; `&&` and `||` are balanced and hardly count.
const DEEPEST: usize = 24;

/// Address space, not memory: only what is used is ever mapped.
const PARSER_STACK: usize = 128 << 20;

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
    pub why: String,
    /// Where in the condition, line and column (in characters) from 1, if known.
    pub at: Option<(usize, usize)>,
}

impl Condition {
    /// Compiles, and refuses names that are not among [`VARIABLES`], functions CEL does not have, and what nests too deep.
    pub fn compile(source: &str) -> Result<Self, BadCondition> {
        let refuse = |why| BadCondition { why, at: None };
        if source.len() > LONGEST {
            return Err(refuse(format!(
                "the condition has {} bytes; at most {LONGEST} are allowed",
                source.len()
            )));
        }
        if symbols(source) > MOST_SYMBOLS {
            return Err(refuse(format!("the condition has more than {MOST_SYMBOLS} symbols and words")));
        }
        // The parser needs up to a hundred kilobytes of stack for each bracket: it gets a stack that is always enough.
        let compiled = std::thread::scope(|scope| {
            let roomy = std::thread::Builder::new().stack_size(PARSER_STACK);
            roomy.spawn_scoped(scope, || compile_here(source)).ok().and_then(|thread| thread.join().ok())
        });
        let program = compiled.ok_or_else(|| refuse("the condition could not be compiled".to_owned()))??;
        Ok(Self { source: source.to_owned(), program: Arc::new(program) })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// What it always says, whatever the call; none if that depends on the call, or may.
    pub fn constant(&self) -> Option<Result<bool, String>> {
        let used = self.program.references();
        // Where a path leads depends on the files of the moment.
        if VARIABLES.iter().any(|name| used.has_variable(name)) || used.has_function(UNDER) {
            return names::always(self.program.expression()).map(Ok);
        }
        let none = Map::new();
        Some(self.holds(&World::of_values([&none; 4], Mode::Ask, Timestamp::UNIX_EPOCH)))
    }

    pub fn reads(&self) -> ArgumentReads {
        names::arguments(self.program.expression())
    }

    /// The name of a path that is compared with `startsWith`, if there is one.
    pub fn path_prefix(&self) -> Option<&str> {
        names::path_prefix(self.program.expression())
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

fn compile_here(source: &str) -> Result<Program, BadCondition> {
    let program = ENV.compile(source).map_err(|errors| match errors.errors.first() {
        Some(first) => {
            let place = |number: isize| usize::try_from(number).ok().filter(|number| *number > 0);
            BadCondition { why: plain(&first.msg), at: place(first.pos.0).zip(place(first.pos.1)) }
        }
        None => BadCondition { why: "the condition does not parse".to_owned(), at: None },
    })?;
    // Evaluation recurses as well, on whatever stack the call came on.
    if names::depth(program.expression()) > DEEPEST {
        return Err(BadCondition {
            why: format!("the condition nests deeper than {DEEPEST} levels"),
            at: None,
        });
    }
    match names::first_unknown(&program, &ENV) {
        Some(unknown) => {
            let at = unknown.at.and_then(|offset| line_and_column(source, offset));
            Err(BadCondition { why: unknown.why, at })
        }
        None => Ok(program),
    }
}

/// How many symbols and words there are: a bound on how deep the parser can go.
fn symbols(source: &str) -> usize {
    let mut inside_word = false;
    let counts = source.chars().filter(|one| {
        let is_word = one.is_alphanumeric() || *one == '_';
        let counts = !(one.is_whitespace() || is_word && inside_word);
        inside_word = is_word;
        counts
    });
    counts.count()
}

/// The parser's message without its list of everything that might have stood there.
fn plain(message: &str) -> String {
    if message.contains("Recursion limit") {
        return "the condition nests too deep".to_owned();
    }
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let message = message.split_once(" expecting {").map_or(message, |(short, _)| short);
    message.replace("'<EOF>'", "the end").replace("<EOF>", "the end").replace('\n', " ")
}

fn line_and_column(source: &str, offset: usize) -> Option<(usize, usize)> {
    let before = source.get(..offset)?;
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let column = before.get(line_start..)?.chars().count() + 1;
    Some((before.matches('\n').count() + 1, column))
}

fn explain(error: &ExecutionError) -> String {
    if let ExecutionError::NoSuchKey(key) = error {
        return format!("there is no `{key}` in this call; write `has(…) && …` where it may be absent");
    }
    if let ExecutionError::FunctionError { function, message } = error
        && function == UNDER
    {
        return format!("`under`: {message}");
    }
    error.to_string()
}

/// Adds `under(path, dir)`, which is `path.under(dir)` as well.
pub(super) fn with_functions(
    mut context: Context<'static, 'static>,
    tool: &FullName,
    paths: &Arc<dyn PathResolver>,
) -> Context<'static, 'static> {
    let (tool, paths) = (tool.clone(), Arc::clone(paths));
    let under = move |This(path): This<cel::Value>, dir: cel::Value| -> Result<bool, ExecutionError> {
        let fault = |why: String| ExecutionError::function_error(UNDER, why);
        match (&path, &dir) {
            (cel::Value::String(path), cel::Value::String(dir)) => {
                paths::under(paths.as_ref(), &tool, path, dir).map_err(fault)
            }
            (cel::Value::String(_), other) | (other, _) => {
                Err(fault(format!("a path is a string, not a {}", other.type_of())))
            }
        }
    };
    // It fails for a name that the language has itself: then `under` is not ours, and tests show it.
    let _ = context.add_function(UNDER, under);
    context
}

/// What a condition may look at.
#[derive(Clone, Copy, Debug)]
pub struct ConditionFacts<'a> {
    pub name: &'a FullName,
    /// The tool, where it is known.
    pub tool: Option<&'a Tool>,
    pub arguments: &'a Map<String, Value>,
    pub caller: &'a Caller,
    pub intent: Option<&'a Intent>,
    pub mode: Mode,
    pub now: Timestamp,
}

/// A call as conditions see it.
pub struct World {
    context: Context<'static, 'static>,
}

impl World {
    /// Builds the six variables of a call, and the function for its paths.
    pub fn of(facts: &ConditionFacts<'_>, paths: &Arc<dyn PathResolver>) -> Self {
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
        let Self { context } =
            Self::of_values([facts.arguments, &tool, &caller, &intent], facts.mode, facts.now);
        Self { context: with_functions(context, facts.name, paths) }
    }

    /// The four maps are args, tool, caller and intent.
    fn of_values(maps: [&Map<String, Value>; 4], mode: Mode, now: Timestamp) -> Self {
        let mut context = Context::with_env(Arc::clone(&ENV));
        for (name, members) in ["args", "tool", "caller", "intent"].into_iter().zip(maps) {
            context.add_variable_as_val(name, cel_map(members));
        }
        context.add_variable_from_value("mode", mode.as_str());
        let nanos = u32::try_from(now.subsec_nanosecond().max(0)).unwrap_or(0);
        let moment = chrono::DateTime::from_timestamp(now.as_second(), nanos).unwrap_or_default();
        context.add_variable_from_value("now", cel::Value::Timestamp(moment.fixed_offset()));
        Self { context }
    }
}

/// JSON as CEL sees it: whole numbers are int, so that `args.amount > 10000` works as written. Built in one pass: the
/// crate's own way over its `Value` copies every map once for each level it is nested.
fn cel_value(value: &Value) -> Box<dyn Val> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(truth) => Box::new(CelBool::from(*truth)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Box::new(CelInt::from(whole)),
            (None, Some(real)) => Box::new(CelDouble::from(real)),
            (None, None) => Box::new(CelNull),
        },
        Value::String(text) => Box::new(CelString::from(text.clone())),
        Value::Array(items) => Box::new(CelList::from(items.iter().map(cel_value).collect::<Vec<_>>())),
        Value::Object(members) => cel_map(members),
    }
}

fn cel_map(members: &Map<String, Value>) -> Box<dyn Val> {
    let members: HashMap<CelMapKey<'static>, Box<dyn Val>> =
        members.iter().map(|(name, member)| (CelMapKey::from(name.clone()), cel_value(member))).collect();
    Box::new(CelMap::from(members))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(source: &str) -> (String, Option<(usize, usize)>) {
        let bad = Condition::compile(source).unwrap_err();
        (bad.why, bad.at)
    }

    #[test]
    fn names_and_functions_are_known_when_the_rules_are_read() {
        for good in [
            "args.amount > 10000",
            "args.items.all(x, x.price < 5 && x.tags.exists(t, t == 'new'))",
            "type(args.a) == string && tool.name.startsWith('get')",
            "has(args.a) && args.a.size() > 0 && size(args.b) in [1, 2]",
            "now < timestamp('2026-01-01T00:00:00Z') || now.getHours() > 18",
            "optional.none().hasValue()",
            "args.map(k, k + 'x').exists(k, k == 'ax') && !(mode == 'ask')",
            "{'a': args.x, 'b': [intent]}.size() > 0 ? true : false",
        ] {
            Condition::compile(good).unwrap_or_else(|bad| panic!("{good}: {bad}"));
        }
        let unknown = |name| {
            format!("unknown name `{name}`: a condition knows args, tool, caller, intent, mode, or now")
        };
        // Found although evaluation would never get there.
        assert_eq!(refused("has(args.x) && agrs.y"), (unknown("agrs"), Some((1, 16))));
        assert_eq!(refused("args.all(x, x > 1) &&\n  'ü' == x"), (unknown("x"), Some((2, 10))));
        assert_eq!(
            refused("args.a.upper() == 'X'"),
            ("there is no function `upper`".to_owned(), Some((1, 8)))
        );
        assert_eq!(refused("1 < lenght(args.a)"), ("there is no function `lenght`".to_owned(), Some((1, 5))));
    }

    #[test]
    fn syntax_errors_say_where() {
        assert_eq!(refused("args.amount >> 1"), ("extraneous input '>'".to_owned(), Some((1, 14))));
        assert_eq!(
            refused("mode == 'ask' &&\n  args."),
            ("no viable alternative at input '.'".to_owned(), Some((2, 8)))
        );
        assert_eq!(refused(""), ("mismatched input the end".to_owned(), Some((1, 1))));
    }

    #[test]
    fn no_condition_overflows_the_stack() {
        let nest =
            |open: &str, close: &str, times: usize| format!("{}1{}", open.repeat(times), close.repeat(times));
        for times in [8, 20, 90, 100, 500, 1_000] {
            for (open, close) in [
                ("(", ")"),
                ("[", "]"),
                ("!(", ")"),
                ("-(", ")"),
                ("args[", "]"),
                ("{1:", "}"),
                ("[1].all(x,", ")"),
            ] {
                let _ =
                    Condition::compile(&nest(open, close, times)).map(|condition| condition.holds(&empty()));
            }
            for chain in ["1+", "1==", "1 in ", "!", "-", "args.", "true&&", "true?1:", "size(args)*"] {
                let source = format!("{}1", chain.repeat(times));
                let _ = Condition::compile(&source).map(|condition| condition.holds(&empty()));
            }
            let _ = Condition::compile(&format!("args{}", "[0]".repeat(times)));
            let _ = Condition::compile(&format!("args{}", ".f()".repeat(times)));
        }
        assert!(refused(&nest("!(", ")", 60)).0.contains("nests"));
    }

    fn empty() -> World {
        World::of_values([&Map::new(); 4], Mode::Ask, Timestamp::UNIX_EPOCH)
    }
}
