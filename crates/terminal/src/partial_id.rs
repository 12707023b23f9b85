//! Finding what a person means by a few characters of an id: the whole of it, its beginning or its end.

use std::fmt::Display;

use countersign_policy::refusal::Refusal;

use crate::command_result::CommandError;
use crate::output::visible;

/// Fewer characters than this mean too much. As many are shown of a short id.
const FEWEST: usize = 5;

/// An id as lists show it: its kind and its end, such as `pln_…VH33T`. Every command takes it.
pub fn short_id(id: &str) -> String {
    let (kind, bare) = id.split_once('_').map_or(("", id), |(kind, bare)| (kind, bare));
    let end: String = bare.chars().rev().take(FEWEST).collect::<Vec<_>>().into_iter().rev().collect();
    if kind.is_empty() { format!("…{end}") } else { format!("{kind}_…{end}") }
}

#[derive(Clone, Debug)]
pub struct PartialId<'a> {
    kind: &'static str,
    typed: &'a str,
    bare: String,
    /// Its end, where it was typed as `beginning…end`.
    end: Option<String>,
}

impl<'a> PartialId<'a> {
    /// A part of an id whose kind is its prefix, such as `pln_`. Ids are read out and retyped: case does not matter.
    pub fn of(kind: &'static str, typed: &'a str) -> Self {
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

    pub fn whole(&self) -> Option<String> {
        (self.bare.len() == 26 && self.end.is_none()).then(|| format!("{}{}", self.kind, self.bare))
    }

    pub fn fits(&self, id: &str) -> bool {
        let bare = id.strip_prefix(self.kind).unwrap_or(id);
        match &self.end {
            Some(end) => bare.starts_with(&self.bare) && bare.ends_with(end),
            None => bare.starts_with(&self.bare) || bare.ends_with(&self.bare),
        }
    }

    /// A part that is too short to mean one id means none.
    pub fn check(&self, absent: impl FnOnce() -> Refusal) -> Result<(), CommandError> {
        if self.bare.chars().chain(self.end.iter().flat_map(|end| end.chars())).count() >= FEWEST {
            return Ok(());
        }
        Err(CommandError::refused(
            absent(),
            format!("copy the id from the list, {FEWEST} characters of it at least"),
        ))
    }

    /// The one of several that is meant.
    pub fn one<T>(
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
