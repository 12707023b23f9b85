//! Plans: the inbox, one plan with its story, and who is paused.

use std::sync::Arc;

use axum::extract::State;
use countersign_core::confirm::PlanState;
use countersign_core::ids::{PlanId, PrincipalId};
use countersign_core::refusal::{Code, Refusal};
use countersign_gateway::house::House;
use countersign_store::{Filter, PlanFilter, PlanRow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::Person;
use crate::asked::{Named, Query, invalid, limit, number, word};
use crate::desk::Desk;
use crate::told::{No, Outcome, told};
use crate::views::{self, Activity, PlanView, exact};

/// Which plans are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PlanQuery")]
pub(crate) struct Wanted {
    /// Those in this state: pending, approved, rejected, cancelled, expired, executing, done, failed, outcome_unknown.
    state: Option<String>,
    /// Those of this principal.
    principal: Option<String>,
    /// How many, 1 to 1000; 50 if left out.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: Option<u32>,
    /// Where the page before ended.
    cursor: Option<String>,
}

/// Some plans, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlanList")]
pub(crate) struct Plans {
    /// The plans.
    plans: Vec<PlanView>,
    /// The cursor of the next page, if there is one.
    next_cursor: Option<String>,
}

/// `GET /plans`
pub(crate) async fn list(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Query(wanted): Query<Wanted>,
) -> Outcome<Plans> {
    let state: Option<PlanState> = word("state", wanted.state.as_deref())?;
    let limit = limit(wanted.limit, 50)?;
    let cursor = wanted.cursor.as_deref().map(plan_id).transpose()?;
    if wanted.cursor.is_some() && cursor.is_none() {
        return Err(invalid("cursor", "is not one that a page gave out").into());
    }
    let filter = PlanFilter {
        state,
        principal: wanted.principal.map(PrincipalId::new),
        // One more than asked for tells whether there is a next page.
        limit: Some((limit + 1).min(1000)),
        cursor,
    };
    let mut rows = desk.house.plans(filter).await?;
    let most = usize::try_from(limit).unwrap_or(usize::MAX).min(999);
    let more = rows.len() > most;
    rows.truncate(most);
    let next_cursor = rows.last().filter(|_| more).map(|row| row.plan.id.to_string());
    let now = desk.house.now();
    let plans = rows.iter().map(|row| views::plan(row, &desk.house.redactor, now)).collect();
    told(Plans { plans, next_cursor })
}

fn plan_id(text: &str) -> Result<PlanId, Refusal> {
    let is_id = text.starts_with("pln_")
        && text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if is_id { Ok(PlanId::new(text)) } else { Err(invalid("cursor", "is not one that a page gave out")) }
}

/// The plan of the same tool that was approved before.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Previous {
    /// Its id.
    plan_id: String,
    /// Its arguments, without what must not be shown.
    arguments: Value,
    /// Who agreed.
    by: String,
    /// When.
    approved_at: String,
    /// What became of it.
    state: String,
}

/// One plan, whole.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlanWhole")]
pub(crate) struct Whole {
    /// The plan.
    #[serde(flatten)]
    plan: PlanView,
    /// The last approved plan of the same tool, to see what changed since.
    previous_approval: Option<Previous>,
    /// The program the agent lives in, where it is still on the line: what it calls itself.
    host: Option<Value>,
}

/// One plan and its rows.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlanAnswer")]
pub(crate) struct One {
    /// The plan.
    plan: Whole,
    /// Every row of the ledger about it, oldest first.
    story: Vec<Activity>,
}

/// A plan as it stands now.
pub(crate) async fn find(house: &House, id: &str) -> Result<PlanRow, No> {
    let found = house.plan(&PlanId::new(id)).await?;
    found.ok_or_else(|| {
        let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
        Refusal::new(Code::PlanNotFound, format!("there is no plan `{shown}`")).into()
    })
}

/// `GET /plans/{id}`
pub(crate) async fn one(State(desk): State<Arc<Desk>>, _: Person, Named(id): Named) -> Outcome<One> {
    let row = find(&desk.house, &id).await?;
    let (store, redactor, now) = (&desk.house.store, &desk.house.redactor, desk.house.now());
    let previous = store.approved_before(&row.plan).await?.and_then(|before| {
        let approval = before.approval.clone()?;
        Some(Previous {
            plan_id: before.plan.id.to_string(),
            arguments: redactor.clean(before.plan.arguments.value(), &before.plan.redact),
            by: approval.by.to_string(),
            approved_at: exact(approval.at),
            state: views::plan_state(&before, now).to_string(),
        })
    });
    let filter = Filter { plan_id: Some(row.plan.id.clone()), limit: Some(500), ..Filter::default() };
    let mut story = store.activity(filter).await?.rows;
    story.reverse();
    let host = desk.house.host_of(&row.plan.session);
    let plan = Whole { plan: views::plan(&row, redactor, now), previous_approval: previous, host };
    told(One { plan, story: story.iter().map(views::activity).collect() })
}

/// Somebody whose writes are paused.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pause {
    /// Who.
    principal: String,
    /// Since when.
    since: String,
}

/// Everyone who is paused.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pauses {
    /// Them.
    pauses: Vec<Pause>,
}

/// `GET /pauses`
pub(crate) async fn pauses(State(desk): State<Arc<Desk>>, _: Person) -> Outcome<Pauses> {
    let all = desk.house.store.all_paused().await?;
    let pauses = all.iter().map(|(who, since)| Pause { principal: who.to_string(), since: exact(*since) });
    told(Pauses { pauses: pauses.collect() })
}

/// That somebody's writes go on.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Resumed {
    /// Whose.
    principal: String,
    /// The row.
    ledger_id: String,
}

/// `POST /pauses/{principal}/resume`
pub(crate) async fn resume(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Named(principal): Named,
) -> Outcome<Resumed> {
    let who = PrincipalId::new(principal);
    let resumed = desk.house.store.resume(&who, &person.name, desk.house.now()).await?;
    let Some(ledger_id) = resumed else {
        let message = "the writes of that principal are not paused";
        return Err(Refusal::new(Code::NotFound, message).into());
    };
    told(Resumed { principal: who.to_string(), ledger_id: ledger_id.to_string() })
}
