//! Validates arguments against a tool's input schema. Schemas are compiled once per fingerprint and never fetched. A check that
//! would take too long refuses the call.

mod defaults;
mod shape;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use countersign_mcp::raw::within_nesting;
use countersign_policy::digest::Digest;
use countersign_policy::gate::{SchemaChecker, SchemaFault};
use countersign_policy::tool::Tool;
use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

pub(crate) use self::defaults::with_required_defaults;
use self::shape::{Patterns, SchemaGraph};

pub const LONGEST: usize = 256 << 10;
pub const DEEPEST: usize = 64;
/// The most steps one check may take: some tens of milliseconds where every form fails and all faults are gathered.
const STEPS: u64 = 300_000;
/// How much the compiled form of one pattern may take.
const PATTERN_BYTES: usize = 256 << 10;
/// How often a pattern with look-around may turn back.
pub(crate) const TURNS: usize = 10_000;
/// How many compiled schemas are kept: those that are called, not those that are listed.
const KEPT: usize = 512;
/// How many schemas it is remembered of whether they can be used.
const REMEMBERED: usize = 20_000;
/// How many faults a refusal lists.
const TOLD: usize = 8;

#[derive(Default)]
pub struct Schemas {
    compiled: RwLock<HashMap<Digest, Arc<SchemaCompileResult>>>,
    verdicts: RwLock<HashMap<Digest, Result<(), String>>>,
}

impl std::fmt::Debug for Schemas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schemas").finish_non_exhaustive()
    }
}

/// A schema that can be checked against, or why it can't.
type SchemaCompileResult = Result<CompiledSchema, String>;

struct CompiledSchema {
    validator: Validator,
    shape: SchemaGraph,
}

impl Schemas {
    /// Whether a tool's schema can be used, or why not. Remembered per schema: lists repeat themselves.
    pub fn usable(&self, tool: &Tool) -> Result<(), String> {
        let Some(schema) = tool.definition.get("inputSchema") else { return Ok(()) };
        let text = schema.to_string();
        let key = Digest::plain(text.as_bytes());
        if let Some(known) = self.verdicts.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let verdict = compile(schema, &text).map(|_| ());
        let mut verdicts = self.verdicts.write().unwrap_or_else(PoisonError::into_inner);
        if verdicts.len() >= REMEMBERED {
            verdicts.clear();
        }
        verdicts.insert(key, verdict.clone());
        verdict
    }

    fn compiled(&self, tool: &Tool) -> Arc<SchemaCompileResult> {
        let key = tool.fingerprint;
        if let Some(known) = self.compiled.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Arc::clone(known);
        }
        let schema = tool.input_schema();
        let fresh = Arc::new(compile(&schema, &schema.to_string()));
        let mut compiled = self.compiled.write().unwrap_or_else(PoisonError::into_inner);
        if compiled.len() >= KEPT
            && let Some(any) = compiled.keys().next().copied()
        {
            compiled.remove(&any);
        }
        compiled.insert(key, Arc::clone(&fresh));
        fresh
    }
}

impl SchemaChecker for Schemas {
    fn check(&self, tool: &Tool, arguments: &Map<String, Value>) -> Vec<SchemaFault> {
        match &*self.compiled(tool) {
            Ok(ready) => ready.check(arguments),
            // INVARIANT (closed by default): what can't be checked does not fit.
            Err(why) => {
                vec![SchemaFault { field: String::new(), why: format!("the schema cannot be used: {why}") }]
            }
        }
    }
}

impl CompiledSchema {
    fn check(&self, arguments: &Map<String, Value>) -> Vec<SchemaFault> {
        let value = Value::Object(arguments.clone());
        if !self.shape.within(&value, STEPS) {
            let why = "the arguments take too long to check against the schema".to_owned();
            return vec![SchemaFault { field: String::new(), why }];
        }
        self.validator
            .iter_errors(&value)
            .take(TOLD)
            .flat_map(|error| words::tell(&error))
            .take(TOLD)
            .collect()
    }
}

/// Compiles within bounds; the sentence says why that is not possible.
fn compile(schema: &Value, text: &str) -> SchemaCompileResult {
    if text.len() > LONGEST {
        return Err(format!("its schema is longer than {LONGEST} bytes"));
    }
    if !within_nesting(text, DEEPEST) {
        return Err(format!("its schema nests deeper than {DEEPEST} levels"));
    }
    if !schema.is_object() {
        return Err("its schema is not an object".to_owned());
    }
    let mut shape = SchemaGraph::of(schema)?;
    let broken = |error: jsonschema::ValidationError<'_>| {
        format!("its schema is not valid: {}", crate::escape::excerpt(&error.to_string(), 200))
    };
    // Patterns run in linear time wherever they can. Look-around needs an engine that turns back, so often and no more.
    let linear = PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
    let turning = PatternOptions::fancy_regex()
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
        .backtrack_limit(TURNS);
    let options = || jsonschema::options().offline().should_validate_formats(false);
    let validator = match options().with_pattern_options(linear).build(schema) {
        Ok(validator) => validator,
        Err(_) => {
            shape.patterns = Patterns::Turning;
            options().with_pattern_options(turning).build(schema).map_err(broken)?
        }
    };
    // A schema that refers to itself in place, or fans out, takes for ever even on nothing.
    if !shape.within(&Value::Object(Map::new()), STEPS) {
        return Err("its schema refers to itself without end".to_owned());
    }
    Ok(CompiledSchema { validator, shape })
}

#[cfg(test)]
mod tests;
