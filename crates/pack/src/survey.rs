//! A survey: desired state, actual state and the plan between them, taken at one moment. Every command starts with one.

use countersign_policy::digest::Digest;
use serde_json::{Map, Value, json};

use crate::actual_state::{self, ActualState};
use crate::desired_state::{self, DesiredState, ProfileSelection};
use crate::digests::DigestCache;
use crate::error::PackResult;
use crate::manifest::Manifest;
use crate::place::{LOCKFILE, PackEnvironment, Project};
use crate::plan::{self, Plan};
use crate::snapshot::SnapshotKind;
use crate::system::{self, FileSystem};

/// What should be, what is, and the plan.
#[derive(Debug)]
pub struct DeploymentSurvey {
    pub kind: SnapshotKind,
    pub selection: ProfileSelection,
    pub project: Project,
    pub desired: DesiredState,
    pub(crate) actual: ActualState,
    pub plan: Plan,
    pub warnings: Vec<String>,
    /// The lockfile's digest, where there is one.
    pub(crate) lockfile_sha256: Option<String>,
}

pub fn survey(
    place: &PackEnvironment,
    selection: &ProfileSelection,
    system: &dyn FileSystem,
    now: jiff::Timestamp,
) -> PackResult<DeploymentSurvey> {
    let (manifest, mut warnings) = Manifest::load(place)?;
    let project = Project::at(&place.project_root());
    let memory = place.state().join("digests");
    let nanos = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
    let mut digests = DigestCache::load(&memory, nanos);
    let desired = desired_state::desired(place, &project, &manifest, selection, system, &mut digests)?;
    let mut actual = actual_state::actual(&desired, &place.snapshots(), system, &mut digests)?;
    digests.save(&memory);
    let plan = plan::plan(&desired, &actual);
    warnings.append(&mut actual.warnings);
    if desired.roots.is_empty() {
        warnings.push("no target is configured, so nothing is deployed".to_owned());
    }
    let lockfile = system::digest_if_there(system, &place.repo.join(LOCKFILE)).ok().flatten();
    Ok(DeploymentSurvey {
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

impl DeploymentSurvey {
    /// `{profile, targets, changes, summary}`.
    pub fn data(&self) -> Map<String, Value> {
        let mut data = self.head();
        data.insert("changes".into(), self.plan.changes_value());
        data.insert("summary".into(), self.plan.summary());
        data
    }

    /// What a command that is suggested begins with: the program and what was selected.
    pub fn command_prefix(&self) -> String {
        let mut prefix = "agentpack".to_owned();
        for (name, value, usual) in
            [("profile", &self.selection.profile, "default"), ("target", &self.selection.target, "all")]
        {
            if value != usual {
                prefix.push_str(&format!(" --{name} {value}"));
            }
        }
        prefix
    }

    /// `{profile, targets}`.
    pub fn head(&self) -> Map<String, Value> {
        let mut data = Map::new();
        data.insert("profile".into(), self.selection.profile.as_str().into());
        data.insert("targets".into(), json!(self.desired.target_names()));
        data
    }
}
