//! Reads the tree of a condition without running it: how deep it is, and which names it uses that nothing will ever bind.
//! A misspelt name is found when the rules are read, not when the first call trips over it.

use std::sync::Arc;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue};
use cel::{Context, Env, ExecutionError, Program};

use super::condition::{VARIABLES, with_functions};
use super::paths::LexicalPaths;
use crate::effect::name_words;
use crate::ids::FullName;
use crate::words::choices;

/// A name that means nothing, and where it stands, in bytes from the start of the condition.
pub(super) struct UnknownName {
    pub(super) why: String,
    pub(super) at: Option<usize>,
}

/// How many expressions stand inside one another at most.
pub(super) fn depth(expression: &IdedExpr) -> usize {
    1 + parts(expression).into_iter().map(depth).max().unwrap_or(0)
}

/// The expressions right inside an expression.
fn parts(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(each) => {
            vec![&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => entries(&map.entries),
        Expr::Struct(made) => entries(&made.entries),
        Expr::Select(select) => vec![&*select.operand],
    }
}

fn entries(all: &[IdedEntryExpr]) -> Vec<&IdedExpr> {
    all.iter()
        .flat_map(|entry| match &entry.expr {
            EntryExpr::StructField(field) => vec![&field.value],
            EntryExpr::MapEntry(pair) => vec![&pair.key, &pair.value],
        })
        .collect()
}

/// Which arguments a condition reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentReads {
    /// These, by name; none of them if empty.
    Named(std::collections::BTreeSet<String>),
    /// Any of them: it looks at `args` as a whole.
    All,
}

impl ArgumentReads {
    /// Whether it may look at this argument.
    pub fn reads(&self, name: &str) -> bool {
        match self {
            ArgumentReads::Named(names) => names.contains(name),
            ArgumentReads::All => true,
        }
    }
}

/// Which members of `args` an expression names. Where that can't be told it is all of them.
pub(super) fn arguments(expression: &IdedExpr) -> ArgumentReads {
    let mut found = ArgumentReads::Named(std::collections::BTreeSet::new());
    gather(expression, &mut found);
    found
}

fn gather(here: &IdedExpr, found: &mut ArgumentReads) {
    let is_args = |part: &IdedExpr| matches!(&part.expr, Expr::Ident(name) if name == "args");
    let mut note = |name: &str| {
        if let ArgumentReads::Named(names) = &mut *found {
            names.insert(name.to_owned());
        }
    };
    match &here.expr {
        Expr::Select(select) if is_args(&select.operand) => note(&select.field),
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            ("_[_]", [of, IdedExpr { expr: Expr::Literal(LiteralValue::String(name)), .. }])
                if is_args(of) =>
            {
                note(name.inner());
            }
            _ => call.target.as_deref().into_iter().chain(&call.args).for_each(|part| gather(part, found)),
        },
        Expr::Ident(name) if name == "args" => *found = ArgumentReads::All,
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Comprehension(each) => {
            let parts = [&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result];
            parts.into_iter().for_each(|part| gather(part, found));
        }
        Expr::List(list) => list.elements.iter().for_each(|part| gather(part, found)),
        Expr::Map(map) => entries(&map.entries).into_iter().for_each(|part| gather(part, found)),
        Expr::Struct(made) => entries(&made.entries).into_iter().for_each(|part| gather(part, found)),
        Expr::Select(select) => gather(&select.operand, found),
    }
}

/// The first member with the name of a path on which `startsWith` is called.
pub(super) fn path_prefix(here: &IdedExpr) -> Option<&str> {
    const PATHS: [&str; 7] = ["path", "file", "filename", "dir", "directory", "folder", "cwd"];
    let is_path = |name: &str| name_words(name).last().is_some_and(|last| PATHS.contains(&last.as_str()));
    if let Expr::Call(call) = &here.expr
        && call.func_name == "startsWith"
        && let Some(Expr::Select(select)) = call.target.as_deref().map(|target| &target.expr)
        && is_path(&select.field)
    {
        return Some(&select.field);
    }
    parts(here).into_iter().find_map(path_prefix)
}

/// What an expression always is, by its literals: `x && false` is false even where `x` fails.
pub(super) fn always(expression: &IdedExpr) -> Option<bool> {
    match &expression.expr {
        Expr::Literal(LiteralValue::Boolean(truth)) => Some(*truth.inner()),
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            ("_&&_", [left, right]) => match (always(left), always(right)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                (None, _) | (_, None) => None,
            },
            ("_||_", [left, right]) => match (always(left), always(right)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                (None, _) | (_, None) => None,
            },
            ("!_", [inner]) => always(inner).map(|truth| !truth),
            _ => None,
        },
        Expr::Unspecified
        | Expr::Ident(_)
        | Expr::Literal(_)
        | Expr::Comprehension(_)
        | Expr::List(_)
        | Expr::Map(_)
        | Expr::Struct(_)
        | Expr::Select(_) => None,
    }
}

/// The first name or function that nothing binds.
pub(super) fn first_unknown(program: &Program, env: &Arc<Env>) -> Option<UnknownName> {
    ExpressionWalker { program, env, bound: Vec::new() }.unknown(program.expression())
}

struct ExpressionWalker<'p> {
    program: &'p Program,
    env: &'p Arc<Env>,
    bound: Vec<&'p str>,
}

impl<'p> ExpressionWalker<'p> {
    fn unknown(&mut self, here: &'p IdedExpr) -> Option<UnknownName> {
        match &here.expr {
            Expr::Unspecified | Expr::Literal(_) => None,
            Expr::Ident(name) => self.unknown_name(name, here),
            Expr::Call(call) => self.unknown_in_call(call, here),
            Expr::Comprehension(each) => self.unknown_in_each(each),
            Expr::List(list) => list.elements.iter().find_map(|element| self.unknown(element)),
            Expr::Map(map) => entries(&map.entries).into_iter().find_map(|part| self.unknown(part)),
            Expr::Struct(made) => entries(&made.entries).into_iter().find_map(|part| self.unknown(part)),
            Expr::Select(select) => self.unknown(&select.operand),
        }
    }

    fn unknown_name(&self, name: &str, here: &IdedExpr) -> Option<UnknownName> {
        let known = VARIABLES.contains(&name) || name.starts_with('@') || self.bound.contains(&name);
        // Names of types (`type(x) == string`) are values as well.
        if known || self.is_declared(name) {
            return None;
        }
        let why = format!("unknown name `{name}`: a condition knows {}", choices(&VARIABLES));
        Some(UnknownName { why, at: self.place(here) })
    }

    fn unknown_in_call(&mut self, call: &'p CallExpr, here: &'p IdedExpr) -> Option<UnknownName> {
        let name = &call.func_name;
        let is_operator = !name.chars().all(|one| one.is_alphanumeric() || one == '_');
        let (probe, target) = match call.target.as_deref() {
            // A namespace, such as `optional` in `optional.none()`, is no value of its own.
            Some(IdedExpr { expr: Expr::Ident(space), .. })
                if self.is_declared(&format!("{space}.{name}()")) =>
            {
                return call.args.iter().find_map(|argument| self.unknown(argument));
            }
            Some(target) => (format!("''.{name}()"), Some(target)),
            None => (format!("{name}()"), None),
        };
        if let Some(unknown) = target.and_then(|target| self.unknown(target)) {
            return Some(unknown);
        }
        if !is_operator && !self.is_declared(&probe) {
            // The place of a call is its bracket; the name stands right before it.
            let at = self.place(here).map(|at| at.saturating_sub(name.len()));
            return Some(UnknownName { why: format!("there is no function `{name}`"), at });
        }
        call.args.iter().find_map(|argument| self.unknown(argument))
    }

    fn unknown_in_each(&mut self, each: &'p ComprehensionExpr) -> Option<UnknownName> {
        if let Some(unknown) = self.unknown(&each.iter_range).or_else(|| self.unknown(&each.accu_init)) {
            return Some(unknown);
        }
        let before = self.bound.len();
        self.bound.push(&each.accu_var);
        self.bound.push(&each.iter_var);
        self.bound.extend(each.iter_var2.as_deref());
        let parts = [&each.loop_cond, &each.loop_step, &each.result];
        let unknown = parts.into_iter().find_map(|part| self.unknown(part));
        self.bound.truncate(before);
        unknown
    }

    /// Whether the language itself knows the name: evaluating it alone fails otherwise, and in no other way.
    fn is_declared(&self, probe: &str) -> bool {
        let nowhere: Arc<dyn super::PathResolver> = Arc::new(LexicalPaths::default());
        let context =
            with_functions(Context::with_env(Arc::clone(self.env)), &FullName::new("", ""), &nowhere);
        self.env.compile(probe).is_ok_and(|program| {
            !matches!(program.execute(&context), Err(ExecutionError::UndeclaredReference(_)))
        })
    }

    fn place(&self, here: &IdedExpr) -> Option<usize> {
        let (start, _) = self.program.source_info().offset_for(here.id)?;
        usize::try_from(start).ok()
    }
}
