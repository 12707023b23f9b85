//! What each command does: a survey and a look, or a change that is asked for, written in the ledger, and then done.

use std::io::IsTerminal as _;
use std::time::Duration;

use countersign_core::call::Arguments;
use countersign_core::record::Source;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_pack::deploy::{self, Confirmed};
use countersign_pack::desired::Selection;
use countersign_pack::doctor::{self, Mend};
use countersign_pack::evolve;
use countersign_pack::explain::{self, ExplainKind};
use countersign_pack::line::{Line, unconfirmed};
use countersign_pack::overlay::Layer;
use countersign_pack::place::Place;
use countersign_pack::plan::{Adopt, Plan};
use countersign_pack::reply::Reply;
use countersign_pack::repo::Addition;
use countersign_pack::status;
use countersign_pack::stop::{Outcome, Stop};
use countersign_pack::survey::{Survey, survey};
use countersign_pack::system::{DryRun, Real, System};
use countersign_pack::{diff, events, lock, rollback, snapshot, views};
use countersign_store::{ConnectOptions, Store, StoreUrl};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::arguments::{Command, Evolve, Mcp, Pack, Remote};
use super::repo::wish;
use super::{Told, asks, mcp, registry, show};
use crate::output::{Format, Progress, Voice};

/// One command with everything it needs.
pub(super) struct Act<'a> {
    pub(super) pack: &'a Pack,
    pub(super) place: &'a Place,
    /// How long a token lives.
    pub(super) life: Duration,
    pub(super) voice: Voice,
}

/// Does what was typed.
pub(super) fn act(pack: &Pack, place: &Place, life: Duration, voice: Voice) -> Told {
    let act = Act { pack, place, life, voice };
    // What a crash left half done comes first; a dry run leaves even that.
    let tended = if pack.dry_run { None } else { lock::tend(place)? };
    let (text, reply) = act.run()?;
    Ok((text, reply.warn(tended.iter().map(|recovery| recovery.message()).collect())))
}

impl Act<'_> {
    fn run(&self) -> Told {
        match &self.pack.command {
            Command::Preview { diff } => self.preview(*diff),
            Command::Plan => self.plan(),
            Command::Diff => self.diff(),
            Command::Deploy { apply, adopt } => {
                self.deploy(*apply, if *adopt { Adopt::Agreed } else { Adopt::Refused })
            }
            Command::Status { only } => self.status(only),
            Command::Doctor { fix } => self.doctor(*fix),
            Command::Explain { kind } => self.explain(*kind),
            Command::Evolve { evolve } => self.evolve(evolve),
            Command::Rollback { to } => self.rollback(to),
            Command::Overlay { overlay } => self.overlay(overlay),
            Command::Mcp { mcp: Mcp::Serve { session } } => mcp::serve(self.place, session, self.life),
            Command::Help { markdown } => Ok(registry::help(*markdown)),
            Command::Schema => Ok(registry::schema()),
            Command::Completions { shell } => Ok(registry::completions(*shell)),
            Command::Score => events::score(self.place).map(|reply| (show::score(&reply), reply)),
            Command::Init { git, guided, bootstrap } => self.init(*git, *guided, *bootstrap),
            Command::Import { apply, home_root } => self.import(*apply, home_root.as_deref()),
            Command::Bootstrap { scope, adopt } => {
                self.bootstrap(*scope, if *adopt { Adopt::Agreed } else { Adopt::Refused })
            }
            Command::Snapshots => {
                snapshot::listing(self.place, &Real).map(|reply| (show::snapshots(&reply), reply))
            }
            Command::Policy { policy } => self.policy(*policy),
            Command::Add { kind, source, id, tags, targets } => self.add(Addition {
                kind: *kind,
                source: source.clone(),
                id: id.clone(),
                tags: tags.clone(),
                targets: targets.clone(),
            }),
            Command::Remove { id } => self.remove(id),
            Command::Lock => self.lock(),
            Command::Fetch => self.fetch(),
            Command::Update { lock, no_lock, fetch, no_fetch } => {
                self.update(wish(*lock, *no_lock), wish(*fetch, *no_fetch))
            }
            Command::Remote { remote: Remote::Set { url, name } } => self.set_remote(url, name),
            Command::Sync { rebase, remote } => self.sync(*rebase, remote),
            Command::Record => self.record(),
        }
    }

    pub(super) fn selection(&self) -> Selection {
        Selection { profile: self.pack.profile.clone(), target: self.pack.target.clone() }
    }

    fn survey(&self) -> Outcome<Survey> {
        self.patiently("comparing files", || survey(self.place, &self.selection(), &Real, Timestamp::now()))
    }

    /// Work that may take its time, with a line that says so where a person watches.
    pub(super) fn patiently<T: Send>(&self, what: &'static str, work: impl FnOnce() -> T + Send) -> T {
        Progress::begin(self.voice, what).beside(work)
    }

    fn plan(&self) -> Told {
        let survey = self.survey()?;
        let reply = Reply::new(survey.data()).warn(survey.warnings.clone());
        Ok((show::plan(&survey), reply))
    }

    fn diff(&self) -> Told {
        let survey = self.survey()?;
        Ok((
            show::diffs(&diff::diffs(&survey, &Real)?) + &show::counts(&survey),
            views::diff(&survey, &Real)?,
        ))
    }

    fn preview(&self, with_diff: bool) -> Told {
        let survey = self.survey()?;
        let reply = views::preview(&survey, with_diff, &Real)?;
        let text = if with_diff { show::diffs(&diff::diffs(&survey, &Real)?) } else { String::new() };
        Ok((text + &show::plan(&survey), reply))
    }

    fn status(&self, only: &[status::DriftKind]) -> Told {
        let survey = self.survey()?;
        let mut warnings = survey.warnings.clone();
        let drift = status::drift(&survey, &Real, &mut warnings)?;
        let reply = status::reply(&survey, &drift, only, warnings);
        Ok((show::drift(&drift, only, !survey.plan.changes.is_empty()), reply))
    }

    fn explain(&self, kind: ExplainKind) -> Told {
        let survey = self.survey()?;
        let reply = match kind {
            ExplainKind::Plan | ExplainKind::Diff => explain::changes(&survey),
            ExplainKind::Status => {
                let mut warnings = survey.warnings.clone();
                let drift = status::drift(&survey, &Real, &mut warnings)?;
                explain::drift(&survey, &drift, warnings)
            }
        };
        Ok((show::explained(&reply), reply))
    }

    fn doctor(&self, fix: bool) -> Told {
        let survey = self.survey()?;
        let place = self.place.clone();
        let reply = if fix {
            self.change("doctor --fix", "doctor_fix", json!({}), Ask::Never, move |system| {
                doctor::doctor(&place, &survey, Mend::Fix, system)
            })?
        } else {
            doctor::doctor(self.place, &survey, Mend::Look, &Real)?
        };
        Ok((show::doctor(&reply), reply))
    }

    fn deploy(&self, apply: bool, adopt: Adopt) -> Told {
        let survey = self.survey()?;
        let shown = show::diffs(&diff::diffs(&survey, &Real)?) + &show::plan(&survey);
        let planned = |reason: Option<&str>| {
            let mut reply = Reply::default().with("applied", false);
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
            let mut reply = Reply::default().with("applied", false);
            reply.data.append(&mut survey.data());
            return Ok((shown + "Dry run: nothing was written.\n", reply.with("reason", "dry_run")));
        }
        if self.voice.format == Format::Text && !self.pack.yes && std::io::stdin().is_terminal() {
            self.voice.tell(&shown);
        }
        self.agreed("deploy --apply", Ask::AtTerminal, "Apply these changes?")?;
        let reply = self.apply("deploy", adopt, survey.plan, |place, selection| {
            countersign_pack::survey::survey(place, selection, &Real, Timestamp::now())
        })?;
        let id = reply.data.get("snapshot_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let text = format!(
            "{shown}Applied. To undo it: countersign pack rollback --to SNAPSHOT, or --to initial. This is snapshot {id}.\n"
        );
        Ok((text, reply))
    }

    /// Applies the plan that was shown, unless something changed while the person was thinking.
    pub(super) fn apply(
        &self,
        tool: &str,
        adopt: Adopt,
        reviewed: Plan,
        again: impl FnOnce(&Place, &Selection) -> Outcome<Survey> + Send + 'static,
    ) -> Outcome<Reply> {
        let (selection, place) = (self.selection(), self.place.clone());
        let arguments = json!({
            "repo": place.repo, "profile": selection.profile, "target": selection.target, "machine": place.machine,
            "adopt": adopt == Adopt::Agreed, "changes": reviewed.changes.len(),
        });
        self.governed(tool, arguments, move |opened| {
            let (_lock, recovered) = lock::acquire(&place)?;
            let fresh = again(&place, &selection)?;
            if fresh.plan != reviewed {
                let message = "what would change is not what was shown any more; nothing was written";
                return Err(Refusal::new(Code::ApplyDrifted, message).into());
            }
            let reply = views::applied(&Confirmed::by(opened, fresh), &place, &Real)?;
            Ok(reply.warn(recovered.iter().map(|recovery| recovery.message()).collect()))
        })
    }

    fn rollback(&self, to: &str) -> Told {
        let plan = rollback::plan(self.place, to, &Real)?;
        let shown = show::restored(&plan);
        if self.pack.dry_run {
            let files: Vec<Value> = plan.changes().iter().map(rollback::Restored::to_value).collect();
            let reply =
                Reply::default().with("rolled_back_to", to).with("reason", "dry_run").with("changes", files);
            return Ok((shown, reply));
        }
        if self.voice.format == Format::Text && !self.pack.yes && std::io::stdin().is_terminal() {
            self.voice.tell(&shown);
        }
        self.agreed("rollback", Ask::AtTerminal, "Go back?")?;
        let (place, to) = (self.place.clone(), to.to_owned());
        let reply = self.governed("rollback", json!({"to": to}), move |_| {
            let (_lock, _) = lock::acquire(&place)?;
            views::rollback(&place, &to, &Real)
        })?;
        Ok((shown + "Done.\n", reply))
    }

    fn evolve(&self, evolve: &Evolve) -> Told {
        match evolve {
            Evolve::Propose { module_id, scope, branch } => {
                self.propose(module_id.clone(), *scope, branch.clone())
            }
            Evolve::Restore { module_id } => self.restore(module_id.clone()),
        }
    }

    fn propose(&self, module_id: Option<String>, layer: Layer, branch: Option<String>) -> Told {
        let survey = self.survey()?;
        let found = evolve::survey_proposal(self.place, &survey, module_id.as_deref(), layer, &Real)?;
        let reason = if self.pack.dry_run { Some("dry_run") } else { found.nothing() };
        if let Some(reason) = reason {
            let reply = found.reply(reason);
            return Ok((show::proposal(&reply), reply));
        }
        self.agreed("evolve propose", Ask::AtTerminal, "Commit these edits on a branch?")?;
        let request = views::ProposeRequest { module_id, layer, branch };
        let (place, selection) = (self.place.clone(), self.selection());
        let arguments = json!({"module_id": request.module_id, "scope": layer, "branch": request.branch});
        let reply = self.governed("evolve_propose", arguments, move |_| {
            views::propose(&place, &selection, &request, &Real)
        })?;
        Ok((show::proposal(&reply), reply))
    }

    fn restore(&self, module_id: Option<String>) -> Told {
        let missing = evolve::missing(&self.survey()?, module_id.as_deref());
        if self.pack.dry_run || missing.is_empty() {
            let reply = evolve::dry_reply(&missing);
            return Ok((show::restoring(&reply), reply));
        }
        self.agreed("evolve restore", Ask::AtTerminal, "Create the missing files again?")?;
        let (place, selection) = (self.place.clone(), self.selection());
        let reply = self.governed("evolve_restore", json!({"module_id": module_id}), move |_| {
            let (_lock, _) = lock::acquire(&place)?;
            let survey = survey(&place, &selection, &Real, Timestamp::now())?;
            evolve::restore(&survey, &evolve::missing(&survey, module_id.as_deref()), &Real)
        })?;
        Ok((show::restoring(&reply), reply))
    }

    /// Whether somebody said yes, or says it now.
    pub(super) fn agreed(&self, command: &str, ask: Ask, question: &str) -> Outcome<()> {
        if self.pack.yes {
            return Ok(());
        }
        match (self.voice.format, ask) {
            (Format::Json, _) => Err(unconfirmed(command)),
            (Format::Text, Ask::Never) => Ok(()),
            (Format::Text, Ask::AtTerminal) => {
                let asked = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
                if asked && asks(question) { Ok(()) } else { Err(unconfirmed(command)) }
            }
        }
    }

    /// A change of the config repo: agreed to, in the ledger, done; or only thought through in a dry run.
    pub(super) fn change(
        &self,
        command: &str,
        tool: &str,
        arguments: Value,
        ask: Ask,
        work: impl FnOnce(&dyn System) -> Outcome<Reply> + Send + 'static,
    ) -> Outcome<Reply> {
        if self.pack.dry_run {
            return match tool {
                // These leave the machine or write elsewhere: there is nothing to think through.
                "fetch" | "remote_set" | "sync" | "record" => Ok(Reply::default().with("reason", "dry_run")),
                _ => Ok(work(&DryRun::default())?.with("dry_run", true)),
            };
        }
        self.agreed(command, ask, "Go on?")?;
        self.governed(tool, arguments, move |_| work(&Real))
    }

    /// Something that is in the ledger before it is done.
    pub(super) fn governed(
        &self,
        tool: &str,
        arguments: Value,
        work: impl FnOnce(&countersign_store::Opened) -> Outcome<Reply> + Send + 'static,
    ) -> Outcome<Reply> {
        let arguments = Arguments::parse(arguments.to_string().as_bytes())
            .map_err(|error| Stop::broken("write the ledger", error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Stop::broken("start", error))?;
        runtime.block_on(async {
            let line = line(self.place, Role::Human, "cli", Source::Cli, self.life).await?;
            let opened = line.open(tool, &arguments, Timestamp::now()).await?;
            let mut progress = Progress::begin(self.voice, "working");
            progress.during(line.conduct(opened, work)).await
        })
    }
}

/// Whether a person at a terminal is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    AtTerminal,
    Never,
}

/// A line to the pack's own records.
pub(super) async fn line(
    place: &Place,
    role: Role,
    session: &str,
    source: Source,
    life: Duration,
) -> Outcome<Line> {
    let folder = place.state();
    std::fs::create_dir_all(&folder).map_err(|error| Stop::io("make", &folder, &error))?;
    let url = StoreUrl::file(folder.join("countersign.db"));
    let store =
        Store::connect(&url, ConnectOptions::default()).await.map_err(|fault| Stop::from(fault.refusal()))?;
    Line::new(store, role, session, source, life)
}
