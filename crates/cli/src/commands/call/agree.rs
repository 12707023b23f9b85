//! A call that has to be confirmed: the plan is shown, the person at the terminal agrees with the strength it needs, and the
//! call is brought back with its token. Off a terminal it says how to go on.

use std::sync::Arc;

use countersign_core::confirm::{Approval, Kind, PlanState, Rail, Strength};
use countersign_core::ids::{PlanId, PrincipalId};
use countersign_core::intent::Variant;
use countersign_core::record::Source;
use countersign_core::redact::Redactor;
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_gateway::house::House;
use countersign_store::{PlanRow, StoreUrl};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::line::Line;
use super::said::{self, Said};
use super::{WHO, Wanted};
use crate::answer::{Outcome, Refused, Trouble};
use crate::commands::approve::decide::{self, Whose};
use crate::commands::plans::sheet;
use crate::output::Voice;
use crate::person::{self, ask};
use crate::records;

/// What the question is about.
pub(super) struct About<'a> {
    pub(super) house: &'a Arc<House>,
    pub(super) url: &'a StoreUrl,
    pub(super) wanted: &'a Wanted,
    pub(super) variant: Variant,
    pub(super) voice: Voice,
}

impl About<'_> {
    /// Finds out whether someone agrees, and runs what was agreed to.
    pub(super) async fn settle(
        &self,
        line: &mut Line,
        mut asked: Map<String, Value>,
        data: Map<String, Value>,
    ) -> Outcome {
        let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let row = self.plan(&PlanId::new(text("plan_id"))).await?;
        let caller_is_enough = row.plan.need.strength == Strength::Caller && row.plan.need.kind != Kind::Type;
        // Somebody has approved the same call before: it only has to be brought back.
        if row.state != PlanState::Approved {
            if ask::can_ask(self.voice) && !self.wanted.yes {
                self.ask(&row, &mut asked).await?;
            } else if !(self.wanted.yes && caller_is_enough) {
                return Err(self.needs_someone(&row, data));
            }
        }
        asked.insert("confirm_token".into(), json!(text("confirm_token")));
        asked.insert("yes".into(), json!(true));
        let reply = line.call(self.variant, &asked).await?;
        match said::read(reply, &self.wanted.tool_name)? {
            Said::Ran(ran) => ran.answer(&self.wanted.tool_name, self.voice),
            Said::Shown(data, warnings) => Ok(said::shown(data, warnings)),
            Said::Refused(refused) => Err(refused.into()),
            Said::Asks(_) => Err(self.needs_someone(&row, data)),
        }
    }

    async fn plan(&self, id: &PlanId) -> Result<PlanRow, Trouble> {
        let found = self.house.store.plan(id).await.map_err(|fault| records::trouble(&fault, self.url))?;
        found.ok_or_else(|| {
            let refusal = Refusal::new(Code::PlanNotFound, format!("`{id}` is gone"));
            Trouble::refused(refusal, "countersign plans list --all")
        })
    }

    /// Asks the person at the terminal. What needs more than the caller's word needs their credential, too.
    async fn ask(&self, row: &PlanRow, asked: &mut Map<String, Value>) -> Result<(), Trouble> {
        let (plan, now) = (&row.plan, Timestamp::now());
        let redactor = Redactor::new(self.house.store.salt());
        let person = match plan.need.strength {
            Strength::Caller => None,
            Strength::Host | Strength::Human => {
                Some(person::prove(&self.house.store, self.url, self.voice).await?)
            }
        };
        let shown = sheet::sheet(row, &redactor, &sheet::zone(self.voice, now), now);
        self.voice.tell(&format!("{shown}\n"));
        match decide::ask(self.voice, Whose::Own, &plan.need, &plan.tool, None) {
            Ok(ask::Said::Yes) => {}
            Ok(ask::Said::No | ask::Said::Reject) => return Err(self.withdraw(plan.id.clone()).await),
            Err(refused) => return Err(Trouble::Refused(refused)),
        }
        let now = Timestamp::now();
        match person {
            Some(person) => {
                let approval = Approval::over(Rail::Cli, person.name, now);
                if let Err(refused) = self
                    .house
                    .store
                    .approve_shown(&plan.id, Some(plan.into()), approval, Some(Source::Cli), now)
                    .await
                {
                    return Err(decide::lost(&self.house.store, self.url, row, refused, self.voice).await);
                }
                self.house.announce(plan.id.clone());
            }
            None => {
                if let Some(typed) = &plan.need.typed {
                    asked.insert("confirm_text".into(), json!(typed));
                }
            }
        }
        Ok(())
    }

    /// A plan its own caller does not want is not left for others to decide.
    async fn withdraw(&self, id: PlanId) -> Trouble {
        let cancelled = self.house.store.cancel(&id, &PrincipalId::new(WHO), Timestamp::now()).await;
        let what = if cancelled.is_ok() { "the plan is cancelled" } else { "the plan stays as it is" };
        let refusal =
            Refusal::new(Code::ConfirmRequired, format!("not confirmed: nothing was changed, and {what}"));
        Trouble::refused(refusal.with("plan_id", id.as_str()), "the same command asks again")
    }

    /// Nobody can be asked here, or the caller's word is not enough.
    fn needs_someone(&self, row: &PlanRow, mut data: Map<String, Value>) -> Trouble {
        let plan = &row.plan;
        let approve = format!("countersign approve {}", plan.id);
        let caller = plan.need.strength == Strength::Caller && plan.need.kind != Kind::Type;
        let (message, next) = if caller {
            let message = format!("`{}` has to be confirmed, and nobody can be asked here", plan.tool);
            (message, format!("the same command with --yes, or {approve}, then the same command"))
        } else {
            let message = format!("`{}` waits for a person: strength {}", plan.tool, plan.need.strength);
            (message, format!("{approve}, then the same command"))
        };
        data.insert("approve_command".into(), json!(approve));
        let refusal = Refusal::new(Code::ConfirmRequired, message)
            .with("plan_id", plan.id.as_str())
            .next(&[NextAction::AskPerson, NextAction::RetryWithYes]);
        let mut refused = Refused::from(refusal);
        let redactor = Redactor::new(self.house.store.salt());
        let now = Timestamp::now();
        refused.findings = sheet::sheet(row, &redactor, &sheet::zone(self.voice, now), now);
        refused.data = data;
        refused.next = Some(next);
        refused.into()
    }
}
