//! Finding what a person means by a few characters of an id: the whole of it, its beginning or its end.

use std::fmt::Display;

use countersign_policy::confirm::PlanState;
use countersign_policy::ids::PlanId;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{PlanFilter, PlanRow, Store, StoreUrl};

use crate::command_result::CommandError;
use crate::output::visible;
use crate::records;

/// Fewer characters than this mean too much.
const FEWEST: usize = 6;
/// How many plans are looked through for a part of an id: 20 pages.
const PAGES: usize = 20;
const PAGE: u32 = 1000;

#[derive(Clone, Debug)]
pub(crate) struct PartialId<'a> {
    kind: &'static str,
    typed: &'a str,
    bare: String,
}

impl<'a> PartialId<'a> {
    /// A part of an id whose kind is its prefix, such as `pln_`. Ids are read out and retyped: case does not matter.
    pub(crate) fn of(kind: &'static str, typed: &'a str) -> Self {
        let trimmed = typed.trim();
        let bare = match trimmed.split_at_checked(kind.len()) {
            Some((head, rest)) if head.eq_ignore_ascii_case(kind) => rest,
            _ => trimmed,
        };
        Self { kind, typed, bare: bare.to_ascii_uppercase() }
    }

    fn whole(&self) -> Option<String> {
        (self.bare.len() == 26).then(|| format!("{}{}", self.kind, self.bare))
    }

    pub(crate) fn fits(&self, id: &str) -> bool {
        let bare = id.strip_prefix(self.kind).unwrap_or(id);
        bare.starts_with(&self.bare) || bare.ends_with(&self.bare)
    }

    /// A part that is too short to mean one id means none.
    pub(crate) fn check(&self, absent: impl FnOnce() -> Refusal) -> Result<(), CommandError> {
        if self.bare.chars().count() >= FEWEST {
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
