//! Cues in a tool's input schema: arguments that only a tool which changes something would take.
//! A cue raises an effect and never lowers one, so a schema that hides its arguments gains nothing here.

use serde_json::{Map, Value};

use super::Effect;
use super::lexicon::{self, name_words};

/// How far nested schemas are followed; enough for lists of operations, and bounded for schemas that refer to themselves.
const DEEPEST: usize = 5;

/// Arguments that hold a program or a statement, by their last word.
const PROGRAMS: &[&str] =
    &["sql", "script", "command", "commands", "cmd", "shell", "cypher", "statement", "statements"];

/// Arguments that choose what the tool does.
const OPERATIONS: &[&str] =
    &["operation", "operations", "action", "actions", "op", "method", "mode", "command", "subcommand"];

/// Arguments that choose what the tool does even if the schema does not say which choices there are.
const OPEN_OPERATIONS: &[&str] = &["operation", "action", "op"];

/// Last words of arguments that say which existing thing is meant.
const IDENTIFIERS: &[&str] =
    &["id", "ids", "uuid", "guid", "key", "keys", "slug", "number", "identifier", "sku"];

/// Last words of arguments that say where a thing is or which state of it is expected, and carry nothing to store.
const PLACES: &[&str] = &[
    "owner",
    "org",
    "organization",
    "repo",
    "repository",
    "project",
    "workspace",
    "account",
    "tenant",
    "region",
    "namespace",
    "database",
    "table",
    "collection",
    "sha",
    "etag",
    "revision",
    "version",
];

const CONTENTS: &[&str] = &["content", "contents", "text", "data", "body", "edits"];

/// An argument that speaks against reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchemaCue {
    /// What the tool does, going by the argument.
    pub(super) effect: Effect,
    /// The argument and what it is for, as a phrase.
    pub(super) why: String,
}

/// The strongest cue in a schema.
pub(super) fn strongest(name: &[String], schema: &Value) -> Option<SchemaCue> {
    let arguments = SchemaArguments::of(schema);
    let cue = |effect, why: Option<String>| why.map(|why| SchemaCue { effect, why });
    cue(Effect::Destructive, arguments.program(name))
        .or_else(|| cue(Effect::Destructive, arguments.operation(lexicon::destroys)))
        .or_else(|| cue(Effect::Destructive, arguments.switch()))
        .or_else(|| cue(Effect::Destructive, arguments.replaced(name)))
        .or_else(|| cue(Effect::Destructive, arguments.overwritten(name)))
        .or_else(|| cue(Effect::Write, arguments.operation(lexicon::changes)))
        .or_else(|| cue(Effect::Write, arguments.open_operation(name)))
        .or_else(|| cue(Effect::Write, arguments.output_file(name)))
}

/// The first argument that carries what is to be stored: no tool that only reads asks for it.
pub(super) fn new_content(schema: &Value) -> Option<String> {
    const CARRIED: &[&str] =
        &["content", "contents", "body", "value", "values", "payload", "updates", "changes", "patch"];
    let arguments = SchemaArguments::of(schema);
    let carries = |words: &[String]| match words {
        [only] => CARRIED.contains(&only.as_str()),
        [first, ..] => ["new", "replace", "replacement", "update"].contains(&first.as_str()),
        [] => false,
    };
    let carried = arguments.top().find(|argument| carries(&argument.words) && !argument.is("boolean"))?;
    Some(format!("its argument `{}` carries what to store", carried.name))
}

struct SchemaArgument<'s> {
    name: &'s str,
    words: Vec<String>,
    schema: &'s Value,
    required: bool,
    depth: usize,
    choices: Vec<&'s str>,
}

impl SchemaArgument<'_> {
    fn is(&self, kind: &str) -> bool {
        match self.schema.get("type") {
            Some(Value::String(only)) => only == kind,
            Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
                let branches = self.schema.get("anyOf").and_then(Value::as_array);
                branches.is_some_and(|all| {
                    all.iter().any(|branch| branch.get("type").is_some_and(|one| one == kind))
                })
            }
        }
    }

    /// Whether any text may be given, rather than one of a few.
    fn is_open(&self) -> bool {
        self.choices.is_empty() && !self.is("boolean") && !self.is("number") && !self.is("integer")
    }

    fn ends_with(&self, list: &[&str]) -> bool {
        self.words.last().is_some_and(|word| list.contains(&word.as_str()))
    }

    fn is_named(&self, list: &[&str]) -> bool {
        matches!(self.words.as_slice(), [only] if list.contains(&only.as_str()))
    }

    /// Whether the argument's description speaks of saving; none where there is no description.
    fn is_saved_to(&self) -> Option<bool> {
        const SAVING: &[&str] =
            &["save", "saves", "saved", "write", "writes", "written", "output", "store", "stored"];
        let description = self.schema.get("description").and_then(Value::as_str)?;
        Some(name_words(description).iter().any(|word| SAVING.contains(&word.as_str())))
    }

    fn is_path(&self) -> bool {
        self.is_named(&["path", "file", "filename", "filepath"]) || self.is_file_path()
    }

    fn is_file_path(&self) -> bool {
        matches!(
            self.words.iter().map(String::as_str).collect::<Vec<_>>().as_slice(),
            ["filename" | "filepath"] | ["file", "path" | "name"]
        )
    }
}

struct SchemaArguments<'s>(Vec<SchemaArgument<'s>>);

impl<'s> SchemaArguments<'s> {
    fn of(schema: &'s Value) -> Self {
        let mut found = Vec::new();
        gather(schema, schema, 0, &mut found);
        // A single object that holds all arguments is no more than a wrapper.
        if let [wrapper, inner, ..] = found.as_slice()
            && wrapper.is("object")
            && inner.depth == 1
            && found.iter().filter(|argument| argument.depth == 0).count() == 1
        {
            found.iter_mut().for_each(|argument| argument.depth = argument.depth.saturating_sub(1));
        }
        Self(found)
    }

    fn top(&self) -> impl Iterator<Item = &SchemaArgument<'s>> {
        self.0.iter().filter(|argument| argument.depth == 0)
    }

    fn program(&self, name: &[String]) -> Option<String> {
        let found = self.top().filter(|argument| argument.is_open()).find(|argument| {
            argument.ends_with(PROGRAMS)
                || (argument.is_named(&["pipeline"]) && argument.is("array"))
                || (argument.is_named(&["query"]) && runs_queries(name))
                || (argument.is_named(&["code"]) && lexicon::leading_reading(name).is_none())
        })?;
        Some(format!("its argument `{}` is run", found.name))
    }

    fn operation(&self, is_meant: fn(&str) -> bool) -> Option<String> {
        self.0.iter().filter(|argument| argument.ends_with(OPERATIONS)).find_map(|argument| {
            let choice = argument
                .choices
                .iter()
                .find(|choice| name_words(choice).iter().any(|word| is_meant(word)))?;
            Some(format!("its argument `{}` may be `{choice}`", argument.name))
        })
    }

    fn open_operation(&self, name: &[String]) -> Option<String> {
        // For a tool that reads, it names what to read: which operation somebody may perform.
        if lexicon::leading_reading(name).is_some() {
            return None;
        }
        let open = |argument: &&SchemaArgument<'_>| {
            argument.is_open() && argument.is("string") && argument.is_named(OPEN_OPERATIONS)
        };
        let found = self.top().find(open)?;
        Some(format!("its argument `{}` chooses what it does", found.name))
    }

    fn switch(&self) -> Option<String> {
        const SWITCHES: &[&str] = &["overwrite", "delete", "drop", "purge", "wipe", "prune", "clear"];
        let destroys = |argument: &&SchemaArgument<'_>| {
            let first = argument.words.first().is_some_and(|word| SWITCHES.contains(&word.as_str()));
            first && argument.is("boolean")
        };
        self.top().find(destroys).map(|found| format!("its switch `{}`", found.name))
    }

    /// A file, key or name that is given anew: what was there is gone.
    fn replaced(&self, name: &[String]) -> Option<String> {
        let does = |verbs: &[&str]| name.iter().any(|word| verbs.contains(&word.as_str()));
        let takes = |named: &dyn Fn(&SchemaArgument<'_>) -> bool| self.top().any(named);
        let file = || {
            does(&["write", "save", "update", "put", "edit"])
                && takes(&|argument| argument.is_path())
                && takes(&|argument| argument.is_named(CONTENTS))
        };
        // `set` takes a `value`, `set_vector` a `vector`.
        let value = |argument: &SchemaArgument<'_>| match argument.words.as_slice() {
            [only] => only == "value" || name.contains(only),
            [] | [_, _, ..] => false,
        };
        let key = || {
            does(&["set", "put"])
                && takes(&value)
                && takes(&|argument| argument.is_named(&["key", "name", "path", "field"]))
        };
        let place = || {
            does(&["move", "rename"])
                && takes(&|argument| {
                    argument
                        .words
                        .first()
                        .is_some_and(|word| ["destination", "dest", "new"].contains(&word.as_str()))
                })
        };
        (file() || key() || place()).then(|| "by its arguments it replaces what was there".to_owned())
    }

    /// A thing that exists, by the argument that identifies it, and that is given other contents or another place.
    fn overwritten(&self, name: &[String]) -> Option<String> {
        let identifies = |argument: &SchemaArgument<'_>| argument.ends_with(IDENTIFIERS);
        let stored = || self.top().any(|argument| !identifies(argument) && !argument.ends_with(PLACES));
        let overwrites = lexicon::reassigns(name) || (lexicon::revises(name) && stored());
        let found = self.0.iter().filter(|_| overwrites).find(|argument| identifies(argument))?;
        Some(format!("it changes the existing thing that its argument `{}` names", found.name))
    }

    fn output_file(&self, name: &[String]) -> Option<String> {
        const MADE: &[&str] = &["output", "out", "save", "dest", "destination", "download", "export"];
        const FILES: &[&str] = &["path", "file", "filename", "filepath", "dir", "directory", "folder", "to"];
        let reads = lexicon::leading_reading(name).is_some() || lexicon::looked_at(name).is_some();
        let found = self.top().filter(|argument| !argument.is("boolean")).find(|argument| {
            let has = |list: &[&str]| argument.words.iter().any(|word| list.contains(&word.as_str()));
            // A file that must be named is what the tool works on; one that may be named is what it leaves behind, if the schema
            // says so or says nothing and the name does not read.
            let optional = !argument.required && argument.is_file_path();
            (has(MADE) && has(FILES)) || (optional && argument.is_saved_to().unwrap_or(!reads))
        })?;
        Some(format!("its argument `{}` names a file to write", found.name))
    }
}

/// Whether a tool's `query` is a statement to run rather than words to search for.
fn runs_queries(name: &[String]) -> bool {
    let has = |list: &[&str]| name.iter().any(|word| list.contains(&word.as_str()));
    name.last().is_some_and(|last| last == "query" || last == "queries")
        || has(&["run", "execute", "exec", "sql", "cypher", "graphql"])
        || (lexicon::leading_reading(name).is_none() && has(&["db", "database", "write"]))
}

/// Every argument of a schema, with nested ones behind those they are part of.
fn gather<'s>(root: &'s Value, schema: &'s Value, depth: usize, found: &mut Vec<SchemaArgument<'s>>) {
    if depth > DEEPEST {
        return;
    }
    let schema = resolved(root, schema);
    let required = schema.get("required").and_then(Value::as_array);
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::iter);
    for (name, property) in properties {
        let property = resolved(root, property);
        found.push(SchemaArgument {
            name,
            words: name_words(name),
            schema: property,
            required: required.is_some_and(|all| all.iter().any(|one| one == name)),
            depth,
            choices: choices(root, property, 0),
        });
        gather(root, property, depth + 1, found);
    }
    if let Some(items) = schema.get("items") {
        gather(root, items, depth + 1, found);
    }
    for branch in branches(schema) {
        gather(root, branch, depth, found);
    }
}

fn branches(schema: &Value) -> impl Iterator<Item = &Value> {
    ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|name| schema.get(name)?.as_array()).flatten()
}

/// The texts a schema offers to choose from.
fn choices<'s>(root: &'s Value, schema: &'s Value, depth: usize) -> Vec<&'s str> {
    if depth > DEEPEST {
        return Vec::new();
    }
    let schema = resolved(root, schema);
    let listed =
        schema.get("enum").and_then(Value::as_array).into_iter().flatten().chain(schema.get("const"));
    let mut all: Vec<&str> = listed.filter_map(Value::as_str).collect();
    let inner = branches(schema).chain(schema.get("items"));
    all.extend(inner.flat_map(|part| choices(root, part, depth + 1)));
    all
}

/// What a reference within the schema refers to; anything else is itself.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let pointer = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
    pointer.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cue(name: &str, properties: Value) -> Option<Effect> {
        strongest(&name_words(name), &json!({"type": "object", "properties": properties}))
            .map(|cue| cue.effect)
    }

    #[test]
    fn arguments_that_are_run_destroy() {
        let text = json!({"type": "string"});
        for (name, argument) in [
            ("query", "sql"),
            ("node", "code"),
            ("page", "initScript"),
            ("shell", "command"),
            ("write_query", "query"),
            ("db", "query"),
        ] {
            assert_eq!(cue(name, json!({argument: text})), Some(Effect::Destructive), "{name} {argument}");
        }
        assert_eq!(cue("aggregate", json!({"pipeline": {"type": "array"}})), Some(Effect::Destructive));
        for (name, argument) in [
            ("search_notes", "query"),
            ("get_country", "code"),
            ("hybrid_search", "query"),
            ("run", "command_id"),
        ] {
            assert_eq!(cue(name, json!({argument: text})), None, "{name} {argument}");
        }
    }

    #[test]
    fn an_operation_counts_by_its_worst_choice() {
        let among = |choices: Value| json!({"operation": {"type": "string", "enum": choices}});
        assert_eq!(cue("context", among(json!(["get", "set"]))), Some(Effect::Write));
        assert_eq!(cue("context", among(json!(["get", "deleteAll"]))), Some(Effect::Destructive));
        assert_eq!(cue("context", among(json!(["get", "list"]))), None);
        assert_eq!(cue("context", json!({"operation": {"type": "string"}})), Some(Effect::Write));
        assert_eq!(
            cue("fetch", json!({"method": {"anyOf": [{"enum": ["GET", "DELETE"]}, {"type": "null"}]}})),
            Some(Effect::Destructive)
        );
    }

    #[test]
    fn operations_are_found_in_lists_and_behind_references() {
        let schema = json!({
            "properties": {"batch": {"type": "array", "items": {"$ref": "#/$defs/step"}}},
            "$defs": {"step": {"properties": {"action": {"enum": ["read", "remove"]}}}},
        });
        assert_eq!(strongest(&name_words("get_all"), &schema).unwrap().effect, Effect::Destructive);
        let endless = json!({"properties": {"a": {"$ref": "#"}}});
        assert_eq!(strongest(&name_words("get_all"), &endless), None);
    }

    #[test]
    fn files_that_may_be_named_are_written() {
        let text = json!({"type": "string"});
        assert_eq!(cue("take_screenshot", json!({"filename": text})), Some(Effect::Write));
        assert_eq!(cue("get_page", json!({"outputPath": text})), Some(Effect::Write));
        assert_eq!(cue("search_code", json!({"filename": text})), None);
        let required = json!({"properties": {"filename": text}, "required": ["filename"]});
        assert_eq!(strongest(&name_words("outline"), &required), None);
    }

    #[test]
    fn what_is_given_anew_replaces_what_was_there() {
        let text = json!({"type": "string"});
        assert_eq!(cue("json_set", json!({"path": text, "value": text})), Some(Effect::Destructive));
        assert_eq!(cue("write_file", json!({"path": text, "content": text})), Some(Effect::Destructive));
        assert_eq!(cue("rename", json!({"old_key": text, "new_key": text})), Some(Effect::Destructive));
        assert_eq!(
            cue("create_workbook", json!({"overwrite": {"type": "boolean"}})),
            Some(Effect::Destructive)
        );
        assert_eq!(cue("set_vector", json!({"name": text, "vector": text})), Some(Effect::Destructive));
        assert_eq!(cue("add_paragraph", json!({"path": text, "text": text})), None);
    }

    #[test]
    fn an_existing_thing_that_gets_other_contents_or_another_place_loses_what_it_had() {
        let text = json!({"type": "string"});
        let takes = |names: &[&str]| -> Value {
            names.iter().map(|name| ((*name).to_owned(), text.clone())).collect::<Map<_, _>>().into()
        };
        for (name, arguments) in [
            ("update_task", ["taskId", "title"]),
            ("crm-edit-contact", ["contact_id", "email"]),
            ("tracker_change_status", ["issue_key", "status"]),
            ("create_or_update_page", ["pageID", "body"]),
            ("assign_ticket", ["ticket_id", "agent_id"]),
            ("move_card", ["card_id", "list_id"]),
            ("transition_issue", ["issue_number", "to"]),
        ] {
            assert_eq!(cue(name, takes(&arguments)), Some(Effect::Destructive), "{name}");
        }
        let batch = json!({"records": {"type": "array", "items": {"properties": takes(&["id", "fields"])}}});
        assert_eq!(cue("update_records", batch), Some(Effect::Destructive));
        for (name, arguments) in [
            // Nothing to store is given, no thing is named, or the verb is a noun or adds.
            ("update_branch", ["pull_number", "expected_head_sha"]),
            ("update_index", ["depth", "language"]),
            ("get_update", ["update_id", "format"]),
            ("create_change", ["project_id", "title"]),
            ("change_history", ["issue_id", "format"]),
            ("add_comment", ["issue_id", "body"]),
        ] {
            assert_eq!(cue(name, takes(&arguments)), None, "{name}");
        }
    }
}
