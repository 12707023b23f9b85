//! Finding what a person means by a few characters of an id: the whole of it, its beginning or its end.

use std::fmt::Display;

use countersign_policy::refusal::Refusal;

use crate::command_result::CommandError;
use crate::output::visible;

/// Fewer characters than this mean too much.
const FEWEST: usize = 6;

#[derive(Clone, Debug)]
pub struct PartialId<'a> {
    kind: &'static str,
    typed: &'a str,
    bare: String,
}

impl<'a> PartialId<'a> {
    /// A part of an id whose kind is its prefix, such as `pln_`. Ids are read out and retyped: case does not matter.
    pub fn of(kind: &'static str, typed: &'a str) -> Self {
        let trimmed = typed.trim();
        let bare = match trimmed.split_at_checked(kind.len()) {
            Some((head, rest)) if head.eq_ignore_ascii_case(kind) => rest,
            _ => trimmed,
        };
        Self { kind, typed, bare: bare.to_ascii_uppercase() }
    }

    pub fn whole(&self) -> Option<String> {
        (self.bare.len() == 26).then(|| format!("{}{}", self.kind, self.bare))
    }

    pub fn fits(&self, id: &str) -> bool {
        let bare = id.strip_prefix(self.kind).unwrap_or(id);
        bare.starts_with(&self.bare) || bare.ends_with(&self.bare)
    }

    /// A part that is too short to mean one id means none.
    pub fn check(&self, absent: impl FnOnce() -> Refusal) -> Result<(), CommandError> {
        if self.bare.chars().count() >= FEWEST {
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
