//! Tool arguments: checked against the published schema, then resolved, so that nothing is left to a default.

use std::path::PathBuf;

use countersign_policy::call::Arguments;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Map, Value, json};

use super::schema;
use crate::desired_state::ProfileSelection;
use crate::error::{PackError, PackResult};
use crate::place::{PackEnvironment, machine_id};

/// Arguments that fit their tool's schema, resolved.
#[derive(Clone, Debug)]
pub(crate) struct ToolArguments {
    /// Where everything is, with the repo and machine that were named.
    pub place: PackEnvironment,
    pub selection: ProfileSelection,
    members: Map<String, Value>,
}

/// Fields that have their own refusal when they are missing.
const OWN_REFUSAL: [&str; 2] = ["yes", "confirm_token"];
/// Fields of `deploy_apply` that its preview, `deploy`, is called with as well.
const OF_APPLY: [&str; 3] = ["adopt", "yes", "confirm_token"];

impl ToolArguments {
    pub(crate) fn read(
        tool: &str,
        members: &Map<String, Value>,
        place: &PackEnvironment,
    ) -> PackResult<Self> {
        check(tool, members)?;
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let mut place = place.clone();
        if let Some(repo) = text("repo") {
            place.repo =
                if repo.starts_with('~') { place.expand(repo) } else { place.cwd.join(PathBuf::from(repo)) };
        }
        if let Some(machine) = text("machine") {
            place.machine = machine_id(machine);
        }
        let selection = ProfileSelection {
            profile: text("profile").unwrap_or("default").to_owned(),
            target: text("target").unwrap_or("all").to_owned(),
        };
        Ok(Self { place, selection, members: members.clone() })
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.members.get(name).and_then(Value::as_str)
    }

    /// Whether something was said to be so.
    pub(crate) fn says(&self, name: &str) -> bool {
        self.members.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        let items = self.members.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).collect()
    }

    /// The resolved parameters, the same whether they were given or left out, and the project they are about.
    pub(crate) fn bound(&self) -> PackResult<Arguments> {
        Ok(self.resolved()?.with("project", absolute(&self.place.project_root()).into()))
    }

    /// The resolved parameters, as the published schemas have them.
    pub(crate) fn resolved(&self) -> PackResult<Arguments> {
        arguments(&json!({
            "repo": absolute(&self.place.repo),
            "profile": self.selection.profile,
            "target": self.selection.target,
            "machine": self.place.machine,
        }))
    }
}

fn absolute(path: &std::path::Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf()).to_string_lossy().into_owned()
}

fn arguments(value: &Value) -> PackResult<Arguments> {
    Arguments::parse(value.to_string().as_bytes()).map_err(|error| {
        Refusal::new(Code::ArgumentsInvalid, error.to_string()).because("arguments_not_strict").into()
    })
}

fn invalid(field: &str, why: impl std::fmt::Display) -> PackError {
    let refusal = Refusal::new(Code::ArgumentsInvalid, format!("`{field}` {why}")).because("schema_mismatch");
    refusal.with("field", field).into()
}

/// The part of JSON Schema our schemas use: type, enum, items, required, no other members.
fn check(tool: &str, members: &Map<String, Value>) -> PackResult<()> {
    let schema = schema(tool);
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    for (name, value) in members {
        match properties.get(name) {
            Some(property) => check_value(name, property, value)?,
            None if tool == "deploy" && OF_APPLY.contains(&name.as_str()) => {}
            None => {
                let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                return Err(invalid(name, "is not an argument of this tool").with("known", known));
            }
        }
    }
    let required =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for name in required.filter(|name| !OWN_REFUSAL.contains(name)) {
        if !members.contains_key(name) {
            return Err(invalid(name, "is missing"));
        }
    }
    Ok(())
}

fn check_value(name: &str, property: &Value, value: &Value) -> PackResult<()> {
    // `yes` must be true where it counts; anything else has its own refusal there.
    let kind = property.get("type").and_then(Value::as_str).unwrap_or("boolean");
    let fits = match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        _ => true,
    };
    if !fits {
        return Err(invalid(name, format_args!("must be of type {kind}")));
    }
    if let Some(allowed) = property.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let words: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        let message = format!("must be {}", countersign_policy::words::choices(&words));
        // The original's own code for a target it does not know.
        return Err(match name {
            "target" => Refusal::new(Code::TargetUnsupported, format!("`target` {message}"))
                .with("supported", words)
                .into(),
            _ => invalid(name, message),
        });
    }
    if let (Some(items), Some(values)) = (property.get("items"), value.as_array()) {
        for value in values {
            check_value(name, items, value)?;
        }
    }
    Ok(())
}
