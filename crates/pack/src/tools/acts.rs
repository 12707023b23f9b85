//! What each tool does. Reads run at once; changes go through the line, which has them in the ledger before they happen.

use countersign_core::call::Arguments;
use countersign_core::plan::{Preview, PreviewSource};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::arguments::arguments;
use super::{Given, Tools, command_name};
use crate::deploy::Confirmed;
use crate::doctor::{self, Mend};
use crate::evolve;
use crate::explain::{self, ExplainKind};
use crate::line::unconfirmed;
use crate::lock;
use crate::overlay::Layer;
use crate::plan::Adopt;
use crate::reply::Reply;
use crate::status::{self, DriftKind};
use crate::stop::{Outcome, Stop};
use crate::survey::{Survey, survey};
use crate::system::Real;
use crate::{diff, views};

impl Tools {
    pub(super) async fn answer(&self, tool: &str, members: &Map<String, Value>) -> Outcome<Reply> {
        // Whatever else is wrong with it: what changes something and was not agreed to is said to be just that.
        if lacks_yes(tool, members) {
            return Err(self.unconfirmed(tool, members).await);
        }
        let given = Given::read(tool, members, &self.place)?;
        let tended = blocking({
            let place = given.place.clone();
            move || lock::tend(&place)
        })
        .await?;
        let reply = match tool {
            "deploy" => self.deploy(given).await,
            "deploy_apply" => self.deploy_apply(given).await,
            "rollback" => self.rollback(given).await,
            "evolve_propose" => self.evolve_propose(given).await,
            "evolve_restore" => self.evolve_restore(given).await,
            read => {
                let read = read.to_owned();
                blocking(move || look(&read, &given)).await
            }
        }?;
        Ok(reply.warn(tended.iter().map(crate::apply::Recovery::message).collect()))
    }

    /// Phase 1: the plan and a token for it. Changes nothing.
    async fn deploy(&self, given: Given) -> Outcome<Reply> {
        let wants_token = !given.has("confirm_token");
        let bound = given.bound()?;
        let (reply, preview) = blocking(move || {
            let survey = take(&given)?;
            let (files, mut warnings) = diff::files_value(&diff::diffs(&survey, &Real)?);
            warnings.splice(0..0, survey.warnings.iter().cloned());
            let data = planned(&survey);
            let preview = preview(&survey);
            Ok((Reply::new(data).with("files", files).warn(warnings), preview))
        })
        .await?;
        if !wants_token {
            return Ok(reply);
        }
        // INVARIANT: never issued with a failed plan; whatever failed has returned above.
        let ticket = self.line.hold(&bound, preview, Timestamp::now()).await?;
        Ok(reply
            .with("confirm_token", ticket.token)
            .with("confirm_plan_hash", ticket.hash.hex())
            .with("confirm_token_expires_at", ticket.expires.to_string())
            .with("plan_id", ticket.plan_id.as_str()))
    }

    /// Phase 2: the plan that was shown, or nothing.
    async fn deploy_apply(&self, given: Given) -> Outcome<Reply> {
        if given.says("dry_run") {
            return blocking(move || Ok(Reply::new(planned(&take(&given)?)))).await;
        }
        let bound = given.bound()?;
        let token = given.text("confirm_token").map(str::to_owned);
        self.line.redeem(&bound, token.as_deref(), Timestamp::now()).await?;
        let adopt = if given.says("adopt") { Adopt::Agreed } else { Adopt::Refused };
        let place = given.place.clone();
        // From here to the end nobody else changes anything: the plan that is hashed is the plan that is applied.
        let (lock, recovered, survey) = blocking(move || {
            let (lock, recovered) = lock::acquire(&given.place)?;
            let survey = take(&given)?;
            Ok((lock, recovered, survey))
        })
        .await?;
        // Whoever held the lock before may have spent it: then that is said, and not that the plan has changed.
        let redemption = self.line.redeem(&bound, token.as_deref(), Timestamp::now()).await?;
        let fresh = preview(&survey);
        if fresh.digest == redemption.plan().preview.digest
            && let Err(refusal) = survey.plan.check_adopt(adopt)
        {
            // The token stays good: the same plan may be agreed to with `adopt`.
            return Err(self.line.note(redemption.record(), refusal).await);
        }
        let opened = self.line.settle(redemption, &fresh, Timestamp::now()).await?;
        let reply = self.line.conduct(opened, move |opened| {
            let reply = apply(&Confirmed::by(opened, survey), &place);
            drop(lock);
            reply
        });
        Ok(reply.await?.warn(recovered.iter().map(crate::apply::Recovery::message).collect()))
    }

    async fn rollback(&self, given: Given) -> Outcome<Reply> {
        let to = given.text("to").unwrap_or_default().to_owned();
        let arguments = given.as_given()?;
        self.governed("rollback", &arguments, move || views::rollback(&given.place, &to, &Real)).await
    }

    async fn evolve_propose(&self, given: Given) -> Outcome<Reply> {
        let layer: Layer = given.text("scope").and_then(|scope| scope.parse().ok()).unwrap_or(Layer::Global);
        let request = views::ProposeRequest {
            module_id: given.text("module_id").map(str::to_owned),
            layer,
            branch: given.text("branch").map(str::to_owned),
        };
        if given.says("dry_run") {
            return blocking(move || {
                let survey = take(&given)?;
                let module = request.module_id.as_deref();
                Ok(evolve::survey_proposal(&given.place, &survey, module, request.layer, &Real)?
                    .reply("dry_run"))
            })
            .await;
        }
        let arguments = given.as_given()?;
        self.governed("evolve_propose", &arguments, move || {
            views::propose(&given.place, &given.selection, &request, &Real)
        })
        .await
    }

    async fn evolve_restore(&self, given: Given) -> Outcome<Reply> {
        let module_id = given.text("module_id").map(str::to_owned);
        if given.says("dry_run") {
            return blocking(move || {
                Ok(evolve::dry_reply(&evolve::missing(&take(&given)?, module_id.as_deref())))
            })
            .await;
        }
        let arguments = given.as_given()?;
        self.governed("evolve_restore", &arguments, move || {
            let survey = take(&given)?;
            evolve::restore(&survey, &evolve::missing(&survey, module_id.as_deref()), &Real)
        })
        .await
    }

    /// The refusal of a change nobody said yes to, which is in the ledger too.
    async fn unconfirmed(&self, tool: &str, members: &Map<String, Value>) -> Stop {
        let stop = unconfirmed(command_name(tool, members).map_or(tool, |name| name.id));
        match arguments(&Value::Object(members.clone())) {
            Ok(arguments) => self.line.note_call(tool, &arguments, stop).await,
            Err(stop) => stop,
        }
    }

    /// Something that changes and needs no second step: in the ledger, then under the lock.
    async fn governed(
        &self,
        tool: &str,
        arguments: &Arguments,
        work: impl FnOnce() -> Outcome<Reply> + Send + 'static,
    ) -> Outcome<Reply> {
        let opened = self.line.open(tool, arguments, Timestamp::now()).await?;
        let place = self.place.clone();
        self.line
            .conduct(opened, move |_| {
                let (_lock, recovered) = lock::acquire(&place)?;
                Ok(work()?.warn(recovered.iter().map(crate::apply::Recovery::message).collect()))
            })
            .await
    }
}

/// Whether a call would change something and nobody said yes to it. Only `true` is a yes.
fn lacks_yes(tool: &str, members: &Map<String, Value>) -> bool {
    let says = |name: &str| members.get(name) == Some(&Value::Bool(true));
    match tool {
        "deploy_apply" | "rollback" => !says("yes"),
        "evolve_propose" | "evolve_restore" => !says("yes") && !says("dry_run"),
        _ => false,
    }
}

/// Work that waits for the disk, away from the line's own thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Stop::broken("do the work", error))?
}

pub(crate) fn take(given: &Given) -> Outcome<Survey> {
    survey(&given.place, &given.selection, &Real, Timestamp::now())
}

/// `deploy` without applying.
pub(crate) fn planned(survey: &Survey) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("applied".into(), false.into());
    data.append(&mut survey.data());
    data
}

/// What is shown before a deployment, and the part that must not change until it is applied.
fn preview(survey: &Survey) -> Preview {
    let decisive = json!({
        "profile": survey.selection.profile,
        "targets": survey.desired.target_names(),
        "changes": survey.plan.changes_value(),
    });
    Preview::new(PreviewSource::Companion, Value::Object(survey.data()), &decisive)
}

/// Applies and says what was done.
fn apply(confirmed: &Confirmed, place: &crate::place::Place) -> Outcome<Reply> {
    views::applied(confirmed, place, &Real)
}

pub(crate) fn look(tool: &str, given: &Given) -> Outcome<Reply> {
    let survey = take(given)?;
    match tool {
        "plan" => Ok(Reply::new(survey.data()).warn(survey.warnings.clone())),
        "diff" => views::diff(&survey, &Real),
        "preview" => views::preview(&survey, given.says("diff"), &Real),
        "status" => {
            let only: Vec<DriftKind> =
                given.list("only").into_iter().filter_map(|word| word.parse().ok()).collect();
            let mut warnings = survey.warnings.clone();
            let drift = status::drift(&survey, &Real, &mut warnings)?;
            Ok(status::reply(&survey, &drift, &only, warnings))
        }
        "doctor" => doctor::doctor(&given.place, &survey, Mend::Look, &Real),
        _ => match given.text("kind").and_then(|kind| kind.parse().ok()).unwrap_or(ExplainKind::Plan) {
            ExplainKind::Plan | ExplainKind::Diff => Ok(explain::changes(&survey)),
            ExplainKind::Status => {
                let mut warnings = survey.warnings.clone();
                let drift = status::drift(&survey, &Real, &mut warnings)?;
                Ok(explain::drift(&survey, &drift, warnings))
            }
        },
    }
}
