//! Explains each change or drift: the modules and the overlay layer behind it. Reads only.

use serde_json::{Map, Value, json};

use crate::desired_state::{DesiredState, FileKey, key};
use crate::reply::{PackCommandReply, put_path};
use crate::status::DriftedFile;
use crate::survey::DeploymentSurvey;
use countersign_policy::words::words;

words! {
    pub enum ExplainKind("kind") {
        Plan = "plan",
        Diff = "diff",
        Status = "status",
    }
}

/// The answer of `explain plan` and `explain diff`.
pub fn changes(survey: &DeploymentSurvey) -> PackCommandReply {
    let changes: Vec<Value> = survey
        .plan
        .changes
        .iter()
        .map(|change| {
            let mut entry = Map::new();
            entry.insert("op".into(), change.op.as_str().into());
            entry.insert("target".into(), change.target.as_str().into());
            put_path(&mut entry, "path", &change.path);
            entry.insert("reason".into(), change.reason.into());
            entry.insert("modules".into(), modules(&survey.desired, &key(change.target, &change.path)));
            Value::Object(entry)
        })
        .collect();
    PackCommandReply::new(survey.head()).with("changes", changes).warn(survey.warnings.clone())
}

/// The answer of `explain status`.
pub fn drift(survey: &DeploymentSurvey, drift: &[DriftedFile], warnings: Vec<String>) -> PackCommandReply {
    // A file nobody planned has no module to name.
    let planned = drift.iter().filter(|item| item.expected.is_some());
    let drift: Vec<Value> = planned
        .map(|item| {
            let mut entry = item.to_value();
            let wanted = survey.desired.outputs.get(&key(item.target, &item.path));
            let ids = wanted.map_or(&item.module_ids, |output| &output.module_ids);
            entry.insert("modules".into(), json!(ids));
            Value::Object(entry)
        })
        .collect();
    PackCommandReply::new(survey.head()).with("drift", drift).warn(warnings)
}

fn modules(desired: &DesiredState, key: &FileKey) -> Value {
    let Some(output) = desired.outputs.get(key) else { return json!([]) };
    let behind = desired.modules.iter().filter(|module| output.module_ids.contains(&module.id));
    behind
        .map(|module| {
            let layer = module.files.get(&output.source).and_then(|file| file.layer);
            json!({
                "module_id": module.id,
                "module_type": format!("{:?}", module.kind),
                "layer": layer.map_or("upstream", |layer| layer.as_str()),
                "module_path": output.source,
            })
        })
        .collect()
}
