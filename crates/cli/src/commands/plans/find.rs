//! Finding what a person means by a few characters of an id: the whole of it, its beginning or its end.

use std::fmt::Display;

use countersign_policy::confirm::PlanState;
use countersign_policy::ids::{LedgerId, PlanId};
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::ledger::{LedgerFilter, LedgerRow};
use countersign_store::{PlanFilter, PlanRow, Store, StoreUrl};

use crate::command_result::CommandError;
use crate::output::visible;
use crate::records;

/// Fewer characters than this mean too much. As many are shown of a short id.
const FEWEST: usize = 5;
/// How many plans are looked through for a part of an id: 20 pages.
const PAGES: usize = 20;
const PAGE: u32 = 1000;

/// An id as lists show it: its kind and its end, such as `pln_…VH33T`. Every command takes it.
pub(crate) fn short_id(id: &str) -> String {
    let (kind, bare) = id.split_once('_').map_or(("", id), |(kind, bare)| (kind, bare));
    let end: String = bare.chars().rev().take(FEWEST).collect::<Vec<_>>().into_iter().rev().collect();
    if kind.is_empty() { format!("…{end}") } else { format!("{kind}_…{end}") }
}

#[derive(Clone, Debug)]
pub(crate) struct PartialId<'a> {
    kind: &'static str,
    typed: &'a str,
    bare: String,
    /// Its end, where it was typed as `beginning…end`.
    end: Option<String>,
}

impl<'a> PartialId<'a> {
    /// A part of an id whose kind is its prefix, such as `pln_`. Ids are read out and retyped: case does not matter.
    pub(crate) fn of(kind: &'static str, typed: &'a str) -> Self {
        let trimmed = typed.trim();
        let bare = match trimmed.split_at_checked(kind.len()) {
            Some((head, rest)) if head.eq_ignore_ascii_case(kind) => rest,
            _ => trimmed,
        };
        let bare = bare.to_ascii_uppercase().replace("...", "…");
        match bare.split_once('…') {
            Some((head, end)) => Self { kind, typed, bare: head.to_owned(), end: Some(end.to_owned()) },
            None => Self { kind, typed, bare, end: None },
        }
    }

    fn whole(&self) -> Option<String> {
        (self.bare.len() == 26 && self.end.is_none()).then(|| format!("{}{}", self.kind, self.bare))
    }

    pub(crate) fn fits(&self, id: &str) -> bool {
        let bare = id.strip_prefix(self.kind).unwrap_or(id);
        match &self.end {
            Some(end) => bare.starts_with(&self.bare) && bare.ends_with(end),
            None => bare.starts_with(&self.bare) || bare.ends_with(&self.bare),
        }
    }

    /// A part that is too short to mean one id means none.
    pub(crate) fn check(&self, absent: impl FnOnce() -> Refusal) -> Result<(), CommandError> {
        if self.bare.chars().chain(self.end.iter().flat_map(|end| end.chars())).count() >= FEWEST {
            return Ok(());
        }
        Err(CommandError::refused(
            absent(),
            format!("copy the id from the list, {FEWEST} characters of it at least"),
        ))
    }

    /// The one of several that is meant.
    pub(crate) fn one<T>(
        &self,
        all: impl IntoIterator<Item = T>,
        id: impl Fn(&T) -> String,
        absent: Refusal,
        list: &str,
    ) -> Result<T, CommandError> {
        self.check(|| absent.clone())?;
        let mut meant: Vec<T> = all.into_iter().filter(|one| self.fits(&id(one))).collect();
        match (meant.pop(), meant.len()) {
            (Some(only), 0) => Ok(only),
            (Some(last), _) => {
                meant.push(last);
                Err(self.several(&meant.iter().map(id).collect::<Vec<_>>(), list))
            }
            (None, _) => Err(CommandError::refused(absent, list)),
        }
    }

    fn several<T: Display>(&self, meant: &[T], list: &str) -> CommandError {
        let names: Vec<String> = meant.iter().take(5).map(|id| format!("`{id}`")).collect();
        let more = if meant.len() > names.len() { " and more" } else { "" };
        let message = format!("`{}` means {}{more}", visible(self.typed), names.join(" and "));
        CommandError::usage("invalid_value", message, format!("type more of the id, from {list}"))
    }
}

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
