//! A survey: what should be, what is, and the plan between the two, taken at one moment. Every command starts with one.

use countersign_core::digest::Digest;
use serde_json::{Map, Value, json};

use crate::actual::{self, Actual};
use crate::desired::{self, Desired, Selection};
use crate::digests::Digests;
use crate::manifest::Manifest;
use crate::place::{LOCKFILE, Place, Project};
use crate::plan::{self, Plan};
use crate::snapshot::SnapshotKind;
use crate::stop::Outcome;
use crate::system::{self, System};

/// What should be, what is, and the plan.
#[derive(Debug)]
pub struct Survey {
    /// What applying it is.
    pub kind: SnapshotKind,
    /// What was asked for.
    pub selection: Selection,
    /// The project.
    pub project: Project,
    /// What should be.
    pub desired: Desired,
    /// What is.
    pub actual: Actual,
    /// What has to change.
    pub plan: Plan,
    /// What should be known.
    pub warnings: Vec<String>,
    /// The lockfile's digest, where there is one.
    pub lockfile_sha256: Option<String>,
}

/// Takes a survey.
pub fn survey(
    place: &Place,
    selection: &Selection,
    system: &dyn System,
    now: jiff::Timestamp,
) -> Outcome<Survey> {
    let (manifest, mut warnings) = Manifest::load(place)?;
    let project = Project::at(&place.project_root());
    let memory = place.state().join("digests");
    let nanos = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
    let mut digests = Digests::load(&memory, nanos);
    let desired = desired::desired(place, &project, &manifest, selection, system, &mut digests)?;
    let mut actual = actual::actual(&desired, &place.snapshots(), system, &mut digests)?;
    digests.save(&memory);
    let plan = plan::plan(&desired, &actual);
    warnings.append(&mut actual.warnings);
    if desired.roots.is_empty() {
        warnings.push("no target is configured, so nothing is deployed".to_owned());
    }
    let lockfile = system::digest_if_there(system, &place.repo.join(LOCKFILE)).ok().flatten();
    Ok(Survey {
        kind: SnapshotKind::Deploy,
        selection: selection.clone(),
        project,
        desired,
        actual,
        plan,
        warnings,
        lockfile_sha256: lockfile.as_ref().map(Digest::hex),
    })
}

impl Survey {
    /// `{profile, targets, changes, summary}`.
    pub fn data(&self) -> Map<String, Value> {
        let mut data = self.head();
        data.insert("changes".into(), self.plan.changes_value());
        data.insert("summary".into(), self.plan.summary());
        data
    }

    /// `{profile, targets}`.
    pub fn head(&self) -> Map<String, Value> {
        let mut data = Map::new();
        data.insert("profile".into(), self.selection.profile.as_str().into());
        data.insert("targets".into(), json!(self.desired.target_names()));
        data
    }
}
