//! Finding the plan or the row of the audit log that a person means by a few characters of its id.

use countersign_policy::confirm::PlanState;
use countersign_policy::ids::{LedgerId, PlanId};
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::ledger::{LedgerFilter, LedgerRow};
use countersign_store::{PlanFilter, PlanRow, Store, StoreUrl};
pub(crate) use countersign_terminal::partial_id::{PartialId, short_id};

use crate::command_result::CommandError;
use crate::output::visible;
use crate::records;

/// How many plans are looked through for a part of an id: 20 pages.
const PAGES: usize = 20;
const PAGE: u32 = 1000;

/// The row of the audit log that is meant: among the newest ones.
pub(crate) async fn row(store: &Store, url: &StoreUrl, typed: &str) -> Result<LedgerRow, CommandError> {
    let part = PartialId::of("", typed);
    let fault = |fault| records::trouble(&fault, url);
    let message = format!("there is no row `{}` in `{url}`", visible(typed));
    let absent = || Refusal::new(Code::NotFound, message.clone());
    const LIST: &str = "countersign activity list";
    if let Some(whole) = part.whole() {
        let found = store.activity_row(&LedgerId::new(whole)).await.map_err(fault)?;
        return found.ok_or_else(|| CommandError::refused(absent(), LIST));
    }
    part.check(absent)?;
    let (mut meant, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES {
        let filter = LedgerFilter { limit: Some(PAGE), cursor: cursor.take(), ..LedgerFilter::default() };
        let page = store.activity(filter).await.map_err(fault)?;
        meant.extend(page.rows.into_iter().filter(|row| part.fits(row.id.as_str())));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    part.one(meant, |row| row.id.to_string(), absent(), LIST)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids_are_shown_and_accepted() {
        let id = "pln_01KA4Z7Q3V9M5T2X8R6W0VH33T";
        assert_eq!(short_id(id), "pln_…VH33T");
        assert_eq!(short_id("01KA4Z7Q3V9M5T2X8R6W0VH33T"), "…VH33T");
        let fits = |typed: &str| PartialId::of("pln_", typed).fits(id);
        for typed in ["pln_…VH33T", "PLN_...vh33t", "…VH33T", "vh33t", "pln_01KA4", "01KA4…33T", id] {
            assert!(fits(typed), "{typed}");
        }
        for typed in ["pln_…VH33X", "01KB…33T", "VH33"] {
            let part = PartialId::of("pln_", typed);
            let absent = || Refusal::new(Code::PlanNotFound, "none");
            assert!(!part.fits(id) || part.check(absent).is_err(), "{typed}");
        }
    }
}
