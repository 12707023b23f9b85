//! Answers that commands and tools share: of a survey, an apply, a rollback.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::deploy::{self, ConfirmedPlan};
use crate::desired_state::ProfileSelection;
use crate::error::PackResult;
use crate::evolve;
use crate::manifest::Manifest;
use crate::overlay::OverlayLayer;
use crate::place::PackEnvironment;
use crate::reply::PackCommandReply;
use crate::survey::{DeploymentSurvey, survey};
use crate::system::FileSystem;
use crate::{diff as diffs, rollback as back};

/// The answer of `diff`.
pub fn diff(survey: &DeploymentSurvey, system: &dyn FileSystem) -> PackResult<PackCommandReply> {
    let (files, warnings) = diffs::files_value(&diffs::diffs(survey, system)?);
    Ok(PackCommandReply::new(survey.data()).with("files", files).warn(survey.warnings.clone()).warn(warnings))
}

/// The answer of `preview`.
pub fn preview(
    survey: &DeploymentSurvey,
    with_diff: bool,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    let plan = json!({"changes": survey.plan.changes_value(), "summary": survey.plan.summary()});
    let mut reply = PackCommandReply::new(survey.head()).with("plan", plan).warn(survey.warnings.clone());
    if with_diff {
        let (files, warnings) = diffs::files_value(&diffs::diffs(survey, system)?);
        let diff =
            json!({"changes": survey.plan.changes_value(), "summary": survey.plan.summary(), "files": files});
        reply = reply.with("diff", diff).warn(warnings);
    }
    Ok(reply)
}

/// Applies a plan that was agreed to and answers as `deploy` does.
pub fn applied(
    confirmed: &ConfirmedPlan,
    place: &PackEnvironment,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    let survey = confirmed.survey();
    let head = |applied: bool| {
        let mut data = serde_json::Map::new();
        data.insert("applied".into(), applied.into());
        data.append(&mut survey.data());
        PackCommandReply::new(data).warn(survey.warnings.clone())
    };
    if !deploy::is_needed(survey) {
        return Ok(head(false).with("reason", "no_changes"));
    }
    let applied = deploy::deploy(confirmed, place, system, Timestamp::now())?;
    Ok(head(true).with("snapshot_id", applied.snapshot_id))
}

/// Goes back and answers as `rollback` does.
pub fn rollback(place: &PackEnvironment, to: &str, system: &dyn FileSystem) -> PackResult<PackCommandReply> {
    rollback_answer(&back::plan(place, to, system)?, place, system)
}

/// Goes back as planned and answers as `rollback` does.
pub(crate) fn rollback_answer(
    plan: &back::RollbackPlan,
    place: &PackEnvironment,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    let applied = back::apply_rollback(plan, place, system, Timestamp::now())?;
    let files: Vec<Value> = plan.changes().iter().map(back::RollbackChange::to_value).collect();
    Ok(PackCommandReply::default()
        .with("rolled_back_to", plan.to())
        .with("event_snapshot_id", applied.snapshot_id)
        .with("changes", files))
}

#[derive(Clone, Debug)]
pub struct ProposeRequest {
    pub module_id: Option<String>,
    pub layer: OverlayLayer,
    /// On this branch; one is named where none is.
    pub branch: Option<String>,
}

/// Proposes edits and answers as `evolve propose` does.
pub fn propose(
    place: &PackEnvironment,
    selection: &ProfileSelection,
    request: &ProposeRequest,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    let now = Timestamp::now();
    let survey = survey(place, selection, system, now)?;
    let found = evolve::survey_proposal(place, &survey, request.module_id.as_deref(), request.layer, system)?;
    if let Some(reason) = found.nothing() {
        return Ok(found.reply(reason));
    }
    let (manifest, _) = Manifest::load(place)?;
    let branch = request.branch.clone().unwrap_or_else(|| branch_name(&found, request.layer, now));
    evolve::propose(place, &manifest, &survey.project, &found, request.layer, &branch, system)
}

/// `evolve/propose-<scope>-<module|multi>-<time>-<nanos>`.
fn branch_name(found: &evolve::OverlayProposal, layer: OverlayLayer, now: Timestamp) -> String {
    let mut ids: Vec<&str> = found.candidates.iter().map(|candidate| candidate.module_id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let of: String = match ids.as_slice() {
        [only] => only.chars().map(plain).collect(),
        _ => "multi".to_owned(),
    };
    let time = now.to_string().replace(['-', ':'], "");
    let (seconds, _) = time.split_once('.').unwrap_or((time.trim_end_matches('Z'), ""));
    format!("evolve/propose-{layer}-{of}-{seconds}Z-{:09}", now.subsec_nanosecond())
}
