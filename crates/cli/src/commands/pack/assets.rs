//! Commands about what people and organisations already have: `import`, `bootstrap`, `policy`.

use std::io::IsTerminal as _;
use std::path::Path;

use countersign_pack::bootstrap;
use countersign_pack::deploy;
use countersign_pack::diff;
use countersign_pack::import;
use countersign_pack::manifest::Scope;
use countersign_pack::plan::Adopt;
use countersign_pack::policy;
use countersign_pack::reply::Reply;
use countersign_pack::stop::Outcome;
use countersign_pack::survey::Survey;
use countersign_pack::system::Real;
use jiff::Timestamp;
use serde_json::json;

use super::act::{Act, Ask};
use super::arguments::Policy;
use super::{Told, show};
use crate::output::Format;

impl Act<'_> {
    pub(super) fn import(&self, apply: bool, home_root: Option<&Path>) -> Told {
        let home = home_root.map_or_else(|| self.place.home.clone(), |path| self.place.cwd.join(path));
        let found = self.patiently("looking around", || import::plan(self.place, &home, &Real))?;
        if !apply || self.pack.dry_run || found.is_empty() {
            let reply = found.reply(self.place, false);
            return Ok((show::imported(&reply), reply));
        }
        found.check()?;
        if self.asks_here() {
            self.voice.tell(&show::imported(&found.reply(self.place, false)));
        }
        self.agreed("import --apply", Ask::AtTerminal, "Import these?")?;
        let place = self.place.clone();
        let arguments = json!({"repo": place.repo, "home_root": home});
        let reply = self.governed("import", arguments, move |_| {
            import::apply(&import::plan(&place, &home, &Real)?, &place, &Real)
        })?;
        Ok((show::imported(&reply), reply))
    }

    /// Whether a person at a terminal is about to be asked.
    fn asks_here(&self) -> bool {
        self.voice.format == Format::Text && !self.pack.yes && std::io::stdin().is_terminal()
    }

    pub(super) fn bootstrap(&self, scope: Scope, adopt: Adopt) -> Told {
        let survey = self.operator_survey(scope)?;
        let shown = show::plan(&survey);
        if self.pack.dry_run || !deploy::is_needed(&survey) {
            let reason = if self.pack.dry_run { "dry_run" } else { "no_changes" };
            let shown = show::diffs(&diff::diffs(&survey, &Real)?) + &shown;
            return Ok((shown, unapplied(&survey, reason)));
        }
        survey.plan.check_adopt(adopt)?;
        if self.asks_here() {
            self.voice.tell(&shown);
        }
        self.agreed("bootstrap", Ask::AtTerminal, "Install these?")?;
        let reply = self.install(scope, adopt)?;
        Ok((shown + "Installed. `countersign pack rollback` takes it back.\n", reply))
    }

    fn operator_survey(&self, scope: Scope) -> Outcome<Survey> {
        bootstrap::survey(self.place, &self.selection(), scope, &Real, Timestamp::now())
    }

    /// Installs the operator assets; whoever calls this has agreement.
    pub(super) fn install(&self, scope: Scope, adopt: Adopt) -> Outcome<Reply> {
        let survey = self.operator_survey(scope)?;
        survey.plan.check_adopt(adopt)?;
        if !deploy::is_needed(&survey) {
            return Ok(unapplied(&survey, "no_changes"));
        }
        self.apply("bootstrap", adopt, survey.plan, move |place, selection| {
            bootstrap::survey(place, selection, scope, &Real, Timestamp::now())
        })
    }

    pub(super) fn policy(&self, policy: Policy) -> Told {
        match policy {
            Policy::Lint => {
                policy::lint(self.place).map(|reply| ("Nothing breaks the rules.\n".to_owned(), reply))
            }
            Policy::Audit => policy::audit(self.place).map(|reply| (show::audited(&reply), reply)),
            Policy::Lock => {
                let place = self.place.clone();
                let reply =
                    self.change("policy lock", "policy_lock", json!({}), Ask::Never, move |system| {
                        policy::lock(&place, system)
                    })?;
                Ok((show::simple(&reply), reply))
            }
        }
    }
}

fn unapplied(survey: &Survey, reason: &str) -> Reply {
    let mut reply = Reply::default().with("applied", false);
    reply.data.append(&mut survey.data());
    reply.with("reason", reason).warn(survey.warnings.clone())
}
