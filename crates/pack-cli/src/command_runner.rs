//! Runs the pack's commands: a survey and its answer, or a change that is confirmed, recorded in the ledger and then applied.

use std::io::IsTerminal as _;
use std::time::Duration;

use countersign_pack::deploy::{self, ConfirmedPlan};
use countersign_pack::desired_state::ProfileSelection;
use countersign_pack::doctor::{self, RepairMode};
use countersign_pack::error::{PackError, PackResult};
use countersign_pack::evolve;
use countersign_pack::explain::{self, ExplainKind};
use countersign_pack::overlay::OverlayLayer;
use countersign_pack::place::PackEnvironment;
use countersign_pack::plan::{AdoptPolicy, Plan};
use countersign_pack::reply::PackCommandReply;
use countersign_pack::repo::ModuleAddition;
use countersign_pack::server::unconfirmed;
use countersign_pack::status;
use countersign_pack::survey::{DeploymentSurvey, survey};
use countersign_pack::system::{DryRun, FileSystem, RealFileSystem};
use countersign_pack::{command, diff, events, lock, rollback, snapshot, views};
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{ConnectOptions, Store, StoreUrl};
use countersign_terminal::output::{Format, OutputSettings, Progress};
use countersign_terminal::person::ask::can_ask;
use countersign_terminal::runtime::{self, Threads};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::arguments::{EvolveCommand, PackArgs, PackCommand, PackMcpCommand, RemoteCommand};
use super::repo::wish;
use super::{PackCommandResult, mcp, prompt_yes_no, registry, show};

/// One command with everything it needs.
pub(crate) struct PackRunner<'a> {
    pub(crate) pack: &'a PackArgs,
    pub(crate) place: &'a PackEnvironment,
    /// How long a token lives.
    pub(crate) life: Duration,
    pub(crate) voice: OutputSettings,
}

/// Does what was typed.
pub(crate) fn act(
    pack: &PackArgs,
    place: &PackEnvironment,
    life: Duration,
    voice: OutputSettings,
) -> PackCommandResult {
    let act = PackRunner { pack, place, life, voice };
    // What a crash left half done comes first; a dry run leaves even that.
    let tended = if pack.dry_run { None } else { lock::recover_if_stale(place)? };
    let (text, reply) = act.run()?;
    Ok((text, reply.warn(tended.iter().map(|recovery| recovery.message()).collect())))
}

impl PackRunner<'_> {
    fn run(&self) -> PackCommandResult {
        match &self.pack.command {
            PackCommand::Preview { diff } => self.preview(*diff),
            PackCommand::Plan => self.plan(),
            PackCommand::Diff => self.diff(),
            PackCommand::Deploy { apply, adopt } => {
                self.deploy(*apply, if *adopt { AdoptPolicy::Agreed } else { AdoptPolicy::Refused })
            }
            PackCommand::Status { only } => self.status(only),
            PackCommand::Doctor { fix } => self.doctor(*fix),
            PackCommand::Explain { kind } => self.explain(*kind),
            PackCommand::Evolve { evolve } => self.evolve(evolve),
            PackCommand::Rollback { to } => self.rollback(to),
            PackCommand::Overlay { overlay } => self.overlay(overlay),
            PackCommand::Mcp { mcp: PackMcpCommand::Serve { session } } => {
                mcp::serve(self.place, session, self.life)
            }
            PackCommand::Help { markdown } => Ok(registry::help(*markdown)),
            PackCommand::Schema => Ok(registry::schema()),
            PackCommand::Completions { shell } => Ok(registry::completions(*shell)),
            PackCommand::Score => events::score(self.place).map(|reply| (show::score(&reply), reply)),
            PackCommand::Init { git, guided, bootstrap } => self.init(*git, *guided, *bootstrap),
            PackCommand::Import { apply, home_root } => self.import(*apply, home_root.as_deref()),
            PackCommand::Bootstrap { scope, adopt } => {
                self.bootstrap(*scope, if *adopt { AdoptPolicy::Agreed } else { AdoptPolicy::Refused })
            }
            PackCommand::Snapshots => {
                snapshot::listing(self.place, &RealFileSystem).map(|reply| (show::snapshots(&reply), reply))
            }
            PackCommand::Policy { policy } => self.policy(*policy),
            PackCommand::Add { kind, source, id, tags, targets } => self.add(ModuleAddition {
                kind: *kind,
                source: source.clone(),
                id: id.clone(),
                tags: tags.clone(),
                targets: targets.clone(),
            }),
            PackCommand::Remove { id } => self.remove(id),
            PackCommand::Lock => self.lock(),
            PackCommand::Fetch => self.fetch(),
            PackCommand::Update { lock, no_lock, fetch, no_fetch } => {
                self.update(wish(*lock, *no_lock), wish(*fetch, *no_fetch))
            }
            PackCommand::Remote { remote: RemoteCommand::Set { url, name } } => self.set_remote(url, name),
            PackCommand::Sync { rebase, remote } => self.sync(*rebase, remote),
            PackCommand::Record => self.record(),
        }
    }

    pub(crate) fn selection(&self) -> ProfileSelection {
        ProfileSelection { profile: self.pack.profile.clone(), target: self.pack.target.clone() }
    }

    fn survey(&self) -> PackResult<DeploymentSurvey> {
        self.with_progress("comparing files", || {
            survey(self.place, &self.selection(), &RealFileSystem, Timestamp::now())
        })
    }

    /// Work that may take its time, with a line that says so where a person watches.
    pub(crate) fn with_progress<T: Send>(&self, what: &'static str, work: impl FnOnce() -> T + Send) -> T {
        Progress::begin(self.voice, what).beside(work)
    }

    fn plan(&self) -> PackCommandResult {
        let survey = self.survey()?;
        let reply = PackCommandReply::new(survey.data()).warn(survey.warnings.clone());
        Ok((show::plan(&survey), reply))
    }

    fn diff(&self) -> PackCommandResult {
        let survey = self.survey()?;
        Ok((
            show::diffs(&diff::diffs(&survey, &RealFileSystem)?) + &show::counts(&survey),
            views::diff(&survey, &RealFileSystem)?,
        ))
    }

    fn preview(&self, with_diff: bool) -> PackCommandResult {
        let survey = self.survey()?;
        let reply = views::preview(&survey, with_diff, &RealFileSystem)?;
        let text =
            if with_diff { show::diffs(&diff::diffs(&survey, &RealFileSystem)?) } else { String::new() };
        Ok((text + &show::plan(&survey), reply))
    }

    fn status(&self, only: &[status::DriftKind]) -> PackCommandResult {
        let survey = self.survey()?;
        let mut warnings = survey.warnings.clone();
        let drift = status::drift(&survey, &RealFileSystem, &mut warnings)?;
        let reply = status::reply(&survey, &drift, only, warnings);
        Ok((show::drift(&drift, only, !survey.plan.changes.is_empty()), reply))
    }

    fn explain(&self, kind: ExplainKind) -> PackCommandResult {
        let survey = self.survey()?;
        let reply = match kind {
            ExplainKind::Plan | ExplainKind::Diff => explain::changes(&survey),
            ExplainKind::Status => {
                let mut warnings = survey.warnings.clone();
                let drift = status::drift(&survey, &RealFileSystem, &mut warnings)?;
                explain::drift(&survey, &drift, warnings)
            }
        };
        Ok((show::explained(&reply), reply))
    }

    fn doctor(&self, fix: bool) -> PackCommandResult {
        let survey = self.survey()?;
        let place = self.place.clone();
        let reply = if fix {
            self.change("doctor --fix", "doctor_fix", json!({}), PromptMode::Never, move |system| {
                doctor::doctor(&place, &survey, RepairMode::Fix, system)
            })?
        } else {
            doctor::doctor(self.place, &survey, RepairMode::Look, &RealFileSystem)?
        };
        Ok((show::doctor(&reply), reply))
    }

    fn deploy(&self, apply: bool, adopt: AdoptPolicy) -> PackCommandResult {
        let survey = self.survey()?;
        let shown = show::diffs(&diff::diffs(&survey, &RealFileSystem)?) + &show::plan(&survey);
        let planned = |reason: Option<&str>| {
            let mut reply = PackCommandReply::default().with("applied", false);
            reply.data.append(&mut survey.data());
            let reply = reply.warn(survey.warnings.clone());
            match reason {
                Some(reason) => reply.with("reason", reason),
                None => reply,
            }
        };
        if !apply {
            return Ok((shown, planned(None)));
        }
        if !deploy::is_needed(&survey) {
            return Ok((shown, planned(Some("no_changes"))));
        }
        survey.plan.check_adopt(adopt)?;
        if self.pack.dry_run {
            // The same code over another system; nothing is written.
            let (_, survey) = deploy::dry_run(survey, self.place, Timestamp::now())?;
            let mut reply = PackCommandReply::default().with("applied", false);
            reply.data.append(&mut survey.data());
            return Ok((shown + "Dry run: nothing was written.\n", reply.with("reason", "dry_run")));
        }
        if self.voice.format == Format::Text && !self.pack.yes && std::io::stdin().is_terminal() {
            self.voice.tell(&shown);
        }
        self.agreed("deploy --apply", PromptMode::AtTerminal, "Apply these changes?")?;
        let reply = self.apply("deploy", adopt, survey.plan, |place, selection| {
            countersign_pack::survey::survey(place, selection, &RealFileSystem, Timestamp::now())
        })?;
        let id = reply.data.get("snapshot_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let text = format!(
            "{shown}Applied. To undo it: countersign pack rollback --to SNAPSHOT, or --to initial. This is snapshot {id}.\n"
        );
        Ok((text, reply))
    }

    /// Applies the plan that was shown, unless something changed while the person was thinking.
    pub(crate) fn apply(
        &self,
        tool: &str,
        adopt: AdoptPolicy,
        reviewed: Plan,
        again: impl FnOnce(&PackEnvironment, &ProfileSelection) -> PackResult<DeploymentSurvey> + Send + 'static,
    ) -> PackResult<PackCommandReply> {
        let (selection, place) = (self.selection(), self.place.clone());
        let arguments = json!({
            "repo": place.repo, "profile": selection.profile, "target": selection.target, "machine": place.machine,
            "adopt": adopt == AdoptPolicy::Agreed, "changes": reviewed.changes.len(),
        });
        self.governed(tool, arguments, move |opened| {
            let (_lock, recovered) = lock::acquire(&place)?;
            let fresh = again(&place, &selection)?;
            if fresh.plan != reviewed {
                let message = "what would change is not what was shown any more; nothing was written";
                return Err(Refusal::new(Code::ApplyDrifted, message).into());
            }
            let reply = views::applied(&ConfirmedPlan::by(opened, fresh), &place, &RealFileSystem)?;
            Ok(reply.warn(recovered.iter().map(|recovery| recovery.message()).collect()))
        })
    }

    fn rollback(&self, to: &str) -> PackCommandResult {
        let plan = rollback::plan(self.place, to, &RealFileSystem)?;
        let shown = show::restored(&plan);
        if self.pack.dry_run {
            let files: Vec<Value> = plan.changes().iter().map(rollback::RollbackChange::to_value).collect();
            let reply = PackCommandReply::default()
                .with("rolled_back_to", to)
                .with("reason", "dry_run")
                .with("changes", files);
            return Ok((shown, reply));
        }
        if self.voice.format == Format::Text && !self.pack.yes && std::io::stdin().is_terminal() {
            self.voice.tell(&shown);
        }
        self.agreed("rollback", PromptMode::AtTerminal, "Go back?")?;
        let (place, to) = (self.place.clone(), to.to_owned());
        let reply = self.governed("rollback", json!({"to": to}), move |_| {
            let (_lock, _) = lock::acquire(&place)?;
            views::rollback(&place, &to, &RealFileSystem)
        })?;
        Ok((shown + "Done.\n", reply))
    }

    fn evolve(&self, evolve: &EvolveCommand) -> PackCommandResult {
        match evolve {
            EvolveCommand::Propose { module_id, scope, branch } => {
                self.propose(module_id.clone(), *scope, branch.clone())
            }
            EvolveCommand::Restore { module_id } => self.restore(module_id.clone()),
        }
    }

    fn propose(
        &self,
        module_id: Option<String>,
        layer: OverlayLayer,
        branch: Option<String>,
    ) -> PackCommandResult {
        let survey = self.survey()?;
        let found =
            evolve::survey_proposal(self.place, &survey, module_id.as_deref(), layer, &RealFileSystem)?;
        let reason = found.nothing().or(self.pack.dry_run.then_some("dry_run"));
        if let Some(reason) = reason {
            let reply = found.reply(reason);
            return Ok((show::proposal(&reply), reply));
        }
        self.agreed("evolve propose", PromptMode::AtTerminal, "Commit these edits on a branch?")?;
        let request = views::ProposeRequest { module_id, layer, branch };
        let (place, selection) = (self.place.clone(), self.selection());
        let arguments = json!({"module_id": request.module_id, "scope": layer, "branch": request.branch});
        let reply = self.governed("evolve_propose", arguments, move |_| {
            views::propose(&place, &selection, &request, &RealFileSystem)
        })?;
        Ok((show::proposal(&reply), reply))
    }

    fn restore(&self, module_id: Option<String>) -> PackCommandResult {
        let found = self.survey()?;
        let missing = evolve::missing(&found, module_id.as_deref());
        if self.pack.dry_run || missing.is_empty() {
            let reply = evolve::dry_reply(&found, &missing, module_id.as_deref());
            return Ok((show::restoring(&reply), reply));
        }
        self.agreed("evolve restore", PromptMode::AtTerminal, "Create the missing files again?")?;
        let (place, selection) = (self.place.clone(), self.selection());
        let reply = self.governed("evolve_restore", json!({"module_id": module_id}), move |_| {
            let (_lock, _) = lock::acquire(&place)?;
            let survey = survey(&place, &selection, &RealFileSystem, Timestamp::now())?;
            let missing = evolve::missing(&survey, module_id.as_deref());
            evolve::restore(&survey, &missing, module_id.as_deref(), &RealFileSystem)
        })?;
        Ok((show::restoring(&reply), reply))
    }

    /// Whether somebody said yes, or says it now.
    pub(crate) fn agreed(&self, command: &str, ask: PromptMode, question: &str) -> PackResult<()> {
        if self.pack.yes {
            return Ok(());
        }
        match (self.voice.format, ask) {
            (Format::Json, _) => Err(unconfirmed(command)),
            (Format::Text, PromptMode::Never) => Ok(()),
            (Format::Text, PromptMode::AtTerminal) => {
                let asked = can_ask(self.voice);
                if asked && prompt_yes_no(self.voice, question) { Ok(()) } else { Err(unconfirmed(command)) }
            }
        }
    }

    /// A change of the config repo: agreed to, in the ledger, done; or only thought through in a dry run.
    pub(crate) fn change(
        &self,
        command: &str,
        tool: &str,
        arguments: Value,
        ask: PromptMode,
        work: impl FnOnce(&dyn FileSystem) -> PackResult<PackCommandReply> + Send + 'static,
    ) -> PackResult<PackCommandReply> {
        if self.pack.dry_run {
            return match tool {
                // These leave the machine or write elsewhere: there is nothing to think through.
                "fetch" | "remote_set" | "sync" | "record" => {
                    Ok(PackCommandReply::default().with("reason", "dry_run"))
                }
                _ => Ok(work(&DryRun::default())?.with("dry_run", true)),
            };
        }
        self.agreed(command, ask, "Go on?")?;
        self.governed(tool, arguments, move |_| work(&RealFileSystem))
    }

    /// Something that is in the ledger before it is done.
    pub(crate) fn governed(
        &self,
        tool: &str,
        arguments: Value,
        work: impl FnOnce(&countersign_store::RecordedPermit) -> PackResult<PackCommandReply> + Send + 'static,
    ) -> PackResult<PackCommandReply> {
        // The work blocks the thread it runs on; another one shows that it goes on.
        let runtime = runtime::build(Threads::Workers(1));
        let runtime = runtime.map_err(|error| PackError::broken("start", error))?;
        runtime.block_on(async {
            let store = open_store(self.place).await?;
            let call = command::run(store, tool.to_owned(), arguments, Box::new(work));
            let mut progress = Progress::begin(self.voice, "working");
            let done = progress.during(tokio::spawn(call)).await;
            done.map_err(|error| PackError::broken("carry out a call", error))?
        })
    }
}

/// Whether a person at a terminal is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromptMode {
    AtTerminal,
    Never,
}

/// Opens the pack's own store.
pub(crate) async fn open_store(place: &PackEnvironment) -> PackResult<Store> {
    let folder = place.state();
    std::fs::create_dir_all(&folder).map_err(|error| PackError::io("make", &folder, &error))?;
    let url = StoreUrl::file(folder.join("countersign.db"));
    let connected = Store::connect(&url, ConnectOptions::default()).await;
    connected.map_err(|fault| PackError::from(fault.refusal()))
}
