//! A call that has to be confirmed: the plan is shown, the person at the terminal agrees with the strength it needs, and the
//! call is brought back with its token. Off a terminal it says how to go on.

use std::sync::Arc;

use countersign_gateway::approval::ApprovalInput;
use countersign_gateway::state::GatewayState;
use countersign_policy::confirm::{ApprovalStrength, Kind, PlanState};
use countersign_policy::effect::Effect;
use countersign_policy::ids::{PlanId, PrincipalId};
use countersign_policy::intent::CallToolVariant;
use countersign_policy::preview::blocks;
use countersign_policy::redact::Redactor;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_store::{PlanRow, StoreUrl};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::call_outcome::{self, CallOutcome};
use super::local_client::Line;
use super::{ToolCallArgs, WHO};
use crate::command_result::{CommandError, CommandResult, Refused};
use crate::commands::approve::decide::{self, ApprovalQuestion};
use crate::commands::plans::sheet;
use crate::output::OutputSettings;
use crate::person::{self, ask};
use crate::records;

pub(super) struct ConfirmContext<'a> {
    pub(super) gateway: &'a Arc<GatewayState>,
    pub(super) url: &'a StoreUrl,
    pub(super) wanted: &'a ToolCallArgs,
    pub(super) variant: CallToolVariant,
    pub(super) voice: OutputSettings,
}

impl ConfirmContext<'_> {
    /// Finds out whether someone agrees, and runs what was agreed to.
    pub(super) async fn settle(
        &self,
        line: &mut Line,
        mut asked: Map<String, Value>,
        data: Map<String, Value>,
    ) -> CommandResult {
        let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let row = self.plan(&PlanId::new(text("plan_id"))).await?;
        let caller_is_enough = row.plan.requirement.strength == ApprovalStrength::Caller
            && row.plan.requirement.kind != Kind::Type;
        // Somebody has approved the same call before: it only has to be brought back.
        if row.state != PlanState::Approved {
            match (self.wanted.yes, caller_is_enough) {
                (false, _) if ask::can_ask(self.voice) => self.ask(&row, &mut asked).await?,
                (true, true) => {}
                (true, false) if may_agree_ahead(&row) => self.agree_as_person(&row).await?,
                (false | true, _) => return Err(self.needs_someone(&row, data)),
            }
        }
        asked.insert("confirm_token".into(), json!(text("confirm_token")));
        asked.insert("yes".into(), json!(true));
        let reply = line.call(self.variant, &asked).await?;
        match call_outcome::read(reply, &self.wanted.tool_name)? {
            CallOutcome::Ran(ran) => ran.answer(&self.wanted.tool_name, self.voice),
            CallOutcome::Shown(data, warnings) => Ok(call_outcome::shown(data, warnings)),
            CallOutcome::Refused(refused) => Err(refused.into()),
            CallOutcome::Asks(_) => Err(self.needs_someone(&row, data)),
        }
    }

    async fn plan(&self, id: &PlanId) -> Result<PlanRow, CommandError> {
        let found = self.gateway.store.plan(id).await.map_err(|fault| records::trouble(&fault, self.url))?;
        found.ok_or_else(|| {
            let refusal = Refusal::new(Code::PlanNotFound, format!("`{id}` is gone"));
            CommandError::refused(refusal, "countersign plans list --all")
        })
    }

    /// Asks the person at the terminal. What needs more than the caller's word needs their credential, too.
    async fn ask(&self, row: &PlanRow, asked: &mut Map<String, Value>) -> Result<(), CommandError> {
        let (plan, now) = (&row.plan, Timestamp::now());
        let redactor = Redactor::new(self.gateway.store.salt());
        let person = match plan.requirement.strength {
            ApprovalStrength::Caller => None,
            ApprovalStrength::Host | ApprovalStrength::Human => {
                Some(person::prove(&self.gateway.store, self.url, self.voice).await?)
            }
        };
        let shown = sheet::sheet(row, &redactor, &sheet::zone(self.voice, now), now);
        self.voice.tell(&format!("{shown}\n"));
        let answer = decide::ask(self.voice, ApprovalQuestion::OwnCall, &plan.requirement, &plan.tool, None);
        match answer.said {
            ask::PromptAnswer::Yes => {}
            ask::PromptAnswer::No | ask::PromptAnswer::Reject => {
                return Err(self.withdraw(plan.id.clone()).await);
            }
        }
        match person {
            Some(person) => self.record_approval(row, &person, answer.typed.as_deref()).await?,
            None => {
                // The caller's word is enough: the gateway compares the text when the call comes back, and records it.
                if let Some(typed) = answer.typed {
                    asked.insert("confirm_text".into(), json!(typed));
                }
            }
        }
        Ok(())
    }

    /// `--yes` of the person of this machine: the same proof and the same row as `countersign approve --yes`.
    async fn agree_as_person(&self, row: &PlanRow) -> Result<(), CommandError> {
        let person = person::prove(&self.gateway.store, self.url, self.voice).await?;
        self.record_approval(row, &person, None).await
    }

    async fn record_approval(
        &self,
        row: &PlanRow,
        person: &person::Person,
        typed: Option<&str>,
    ) -> Result<(), CommandError> {
        let (plan, store) = (&row.plan, &self.gateway.store);
        let input = ApprovalInput { typed, ..ApprovalInput::of(plan.into()) };
        let decided = decide::decider(store, person).approve_plan(&plan.id, input, Timestamp::now()).await;
        if let Err(error) = decided {
            return Err(decide::lost(store, self.url, row, error, self.voice).await);
        }
        self.gateway.announce(plan.id.clone());
        Ok(())
    }

    /// A plan its own caller does not want is not left for others to decide.
    async fn withdraw(&self, id: PlanId) -> CommandError {
        let cancelled = self.gateway.store.cancel(&id, &PrincipalId::new(WHO), Timestamp::now()).await;
        let what = if cancelled.is_ok() { "the plan is cancelled" } else { "the plan stays as it is" };
        let refusal =
            Refusal::new(Code::ConfirmRequired, format!("not confirmed: nothing was changed, and {what}"));
        CommandError::refused(refusal.with("plan_id", id.as_str()), "the same command asks again")
    }

    /// Nobody can be asked here, or the caller's word is not enough.
    fn needs_someone(&self, row: &PlanRow, mut data: Map<String, Value>) -> CommandError {
        let plan = &row.plan;
        let approve = format!("countersign approve {}", plan.id);
        let caller =
            plan.requirement.strength == ApprovalStrength::Caller && plan.requirement.kind != Kind::Type;
        let (message, next) = if caller {
            let message = format!("`{}` has to be confirmed, and nobody can be asked here", plan.tool);
            (message, format!("the same command with --yes, or {approve}, then the same command"))
        } else {
            let message =
                format!("`{}` waits for a person: strength {}", plan.tool, plan.requirement.strength);
            (message, format!("{approve}, then the same command"))
        };
        data.insert("approve_command".into(), json!(approve));
        let refusal = Refusal::new(Code::ConfirmRequired, message)
            .with("plan_id", plan.id.as_str())
            .next(&[NextAction::AskPerson, NextAction::RetryWithYes]);
        let mut refused = Refused::from(refusal);
        let redactor = Redactor::new(self.gateway.store.salt());
        let now = Timestamp::now();
        refused.findings = sheet::sheet(row, &redactor, &sheet::zone(self.voice, now), now);
        refused.data = data;
        refused.next = Some(next);
        refused.into()
    }
}

/// Whether `--yes` may agree to a plan unseen: it destroys nothing, nothing has to be typed, and its preview does not forbid it.
fn may_agree_ahead(row: &PlanRow) -> bool {
    let plan = &row.plan;
    plan.effect == Effect::Write && plan.requirement.kind != Kind::Type && blocks(plan).is_empty()
}
