//! The tools that only read, and the survey behind every tool.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::ToolArguments;
use crate::doctor::{self, RepairMode};
use crate::error::{PackError, PackResult};
use crate::explain::{self, ExplainKind};
use crate::reply::PackCommandReply;
use crate::status::{self, DriftKind};
use crate::survey::{DeploymentSurvey, survey};
use crate::system::RealFileSystem;
use crate::views;

/// Work that waits for the disk, away from the threads that serve requests.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> PackResult<T> + Send + 'static,
) -> PackResult<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| PackError::broken("do the work", error))?
}

pub(crate) fn take_survey(given: &ToolArguments) -> PackResult<DeploymentSurvey> {
    survey(&given.place, &given.selection, &RealFileSystem, Timestamp::now())
}

/// `deploy` without applying.
pub(crate) fn planned(survey: &DeploymentSurvey) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("applied".into(), false.into());
    data.append(&mut survey.data());
    data
}

pub(crate) fn run_read(tool: &str, given: &ToolArguments) -> PackResult<PackCommandReply> {
    let survey = take_survey(given)?;
    match tool {
        "plan" => Ok(PackCommandReply::new(survey.data()).warn(survey.warnings.clone())),
        "diff" => views::diff(&survey, &RealFileSystem),
        "preview" => views::preview(&survey, given.says("diff"), &RealFileSystem),
        "status" => {
            let only: Vec<DriftKind> =
                given.list("only").into_iter().filter_map(|word| word.parse().ok()).collect();
            let mut warnings = survey.warnings.clone();
            let drift = status::drift(&survey, &RealFileSystem, &mut warnings)?;
            Ok(status::reply(&survey, &drift, &only, warnings))
        }
        "doctor" => doctor::doctor(&given.place, &survey, RepairMode::Look, &RealFileSystem),
        _ => match given.text("kind").and_then(|kind| kind.parse().ok()).unwrap_or(ExplainKind::Plan) {
            ExplainKind::Plan | ExplainKind::Diff => Ok(explain::changes(&survey)),
            ExplainKind::Status => {
                let mut warnings = survey.warnings.clone();
                let drift = status::drift(&survey, &RealFileSystem, &mut warnings)?;
                Ok(explain::drift(&survey, &drift, warnings))
            }
        },
    }
}
