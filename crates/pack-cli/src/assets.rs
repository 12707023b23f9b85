//! Commands about what people and organisations already have: `import`, `bootstrap`, `policy`.

use std::io::IsTerminal as _;
use std::path::Path;

use countersign_pack::bootstrap;
use countersign_pack::deploy;
use countersign_pack::diff;
use countersign_pack::error::PackResult;
use countersign_pack::import;
use countersign_pack::manifest::TargetScope;
use countersign_pack::plan::AdoptPolicy;
use countersign_pack::policy;
use countersign_pack::reply::PackCommandReply;
use countersign_pack::survey::DeploymentSurvey;
use countersign_pack::system::RealFileSystem;
use countersign_terminal::output::Format;
use jiff::Timestamp;
use serde_json::json;

use super::arguments::PackPolicyCommand;
use super::command_runner::{PackRunner, PromptMode};
use super::{PackCommandResult, show};

impl PackRunner<'_> {
    pub(crate) fn import(&self, apply: bool, home_root: Option<&Path>) -> PackCommandResult {
        let home = home_root.map_or_else(|| self.place.home.clone(), |path| self.place.cwd.join(path));
        let found =
            self.with_progress("looking around", || import::plan(self.place, &home, &RealFileSystem))?;
        if !apply || self.pack.dry_run || found.is_empty() {
            let mut reply = found.reply(self.place, false);
            if apply && !self.pack.dry_run {
                reply = reply.with("reason", "no_changes");
            }
            return Ok((show::imported(&reply), reply));
        }
        found.check()?;
        if self.asks_here() {
            self.voice.tell(&show::imported(&found.reply(self.place, false)));
        }
        self.agreed("import --apply", PromptMode::AtTerminal, "Import these?")?;
        let place = self.place.clone();
        let arguments = json!({"repo": place.repo, "home_root": home});
        let reply = self.governed("import", arguments, move |_| {
            import::apply(&import::plan(&place, &home, &RealFileSystem)?, &place, &RealFileSystem)
        })?;
        Ok((show::imported(&reply), reply))
    }

    /// Whether a person at a terminal is about to be asked.
    fn asks_here(&self) -> bool {
        self.voice.format == Format::Text && !self.pack.yes && std::io::stdin().is_terminal()
    }

    pub(crate) fn bootstrap(&self, scope: TargetScope, adopt: AdoptPolicy) -> PackCommandResult {
        let survey = self.operator_survey(scope)?;
        let shown = show::plan(&survey);
        if self.pack.dry_run || !deploy::is_needed(&survey) {
            let reason = if self.pack.dry_run { "dry_run" } else { "no_changes" };
            let shown = show::diffs(&diff::diffs(&survey, &RealFileSystem)?) + &shown;
            return Ok((shown, unapplied(&survey, reason).with("scope", scope.as_str())));
        }
        survey.plan.check_adopt(adopt)?;
        if self.asks_here() {
            self.voice.tell(&shown);
        }
        self.agreed("bootstrap", PromptMode::AtTerminal, "Install these?")?;
        let reply = self.install(scope, adopt)?;
        Ok((shown + "Installed. `countersign pack rollback` takes it back.\n", reply))
    }

    fn operator_survey(&self, scope: TargetScope) -> PackResult<DeploymentSurvey> {
        bootstrap::survey(self.place, &self.selection(), scope, &RealFileSystem, Timestamp::now())
    }

    /// Installs the operator assets. The caller has asked.
    pub(crate) fn install(&self, scope: TargetScope, adopt: AdoptPolicy) -> PackResult<PackCommandReply> {
        let survey = self.operator_survey(scope)?;
        survey.plan.check_adopt(adopt)?;
        if !deploy::is_needed(&survey) {
            return Ok(unapplied(&survey, "no_changes").with("scope", scope.as_str()));
        }
        let applied = self.apply("bootstrap", adopt, survey.plan, move |place, selection| {
            bootstrap::survey(place, selection, scope, &RealFileSystem, Timestamp::now())
        })?;
        Ok(applied.with("scope", scope.as_str()))
    }

    pub(crate) fn policy(&self, policy: PackPolicyCommand) -> PackCommandResult {
        match policy {
            PackPolicyCommand::Lint => {
                policy::lint(self.place).map(|reply| ("Nothing breaks the rules.\n".to_owned(), reply))
            }
            PackPolicyCommand::Audit => policy::audit(self.place).map(|reply| (show::audited(&reply), reply)),
            PackPolicyCommand::Lock => {
                let place = self.place.clone();
                let reply =
                    self.change("policy lock", "policy_lock", json!({}), PromptMode::Never, move |system| {
                        policy::lock(&place, system)
                    })?;
                Ok((show::simple(&reply), reply))
            }
        }
    }
}

fn unapplied(survey: &DeploymentSurvey, reason: &str) -> PackCommandReply {
    let mut reply = PackCommandReply::default().with("applied", false);
    reply.data.append(&mut survey.data());
    reply.with("reason", reason).warn(survey.warnings.clone())
}
