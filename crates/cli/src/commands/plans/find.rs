//! Finding the plan a person means by a few characters of its id.

use countersign_policy::confirm::PlanState;
use countersign_policy::ids::PlanId;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{PlanFilter, PlanRow, Store, StoreUrl};
pub(crate) use countersign_terminal::partial_id::PartialId;

use crate::command_result::CommandError;
use crate::output::visible;
use crate::records;

/// How many plans are looked through for a part of an id: 20 pages.
const PAGES: usize = 20;
const PAGE: u32 = 1000;

/// The plan that is meant: among the pending ones first, then among all.
pub(crate) async fn plan(store: &Store, url: &StoreUrl, typed: &str) -> Result<PlanRow, CommandError> {
    let part = PartialId::of("pln_", typed);
    let fault = |fault| records::trouble(&fault, url);
    let message = format!("there is no plan `{}` in `{url}`", visible(typed));
    let absent = || Refusal::new(Code::PlanNotFound, message.clone());
    const LIST: &str = "countersign plans list --all";
    if let Some(whole) = part.whole() {
        let found = store.plan(&PlanId::new(whole)).await.map_err(fault)?;
        return found.ok_or_else(|| CommandError::refused(absent(), LIST));
    }
    part.check(absent)?;
    for state in [Some(PlanState::Pending), None] {
        let mut meant = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES {
            let filter =
                PlanFilter { state, limit: Some(PAGE), cursor: cursor.take(), ..PlanFilter::default() };
            let rows = store.plans(filter).await.map_err(fault)?;
            cursor = rows.last().map(|row| row.plan.id.clone());
            meant.extend(rows.into_iter().filter(|row| part.fits(row.plan.id.as_str())));
            if cursor.is_none() {
                break;
            }
        }
        if !meant.is_empty() {
            return part.one(meant, |row| row.plan.id.to_string(), absent(), LIST);
        }
    }
    Err(CommandError::refused(absent(), LIST))
}
