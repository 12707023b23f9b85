//! Rules: what the operator wrote, compiled once, resolved per call. First match per field wins, top to bottom;
//! every matching `deny` denies, and a condition that errors refuses. Never lowers a verdict because something broke.

mod condition;
mod names;
mod resolution;

use std::sync::Arc;
use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

pub use condition::{BadCondition, Condition, Facts, VARIABLES};
pub use names::Reads;
pub use resolution::{DecidedBy, Field, Resolution, RuleFault};

use crate::config::PreviewCommand;
use crate::confirm::{Kind, Strength};
use crate::duration::Rate;
use crate::effect::Effect;
use crate::ids::FullName;
use crate::preview::Style;
use crate::profile::StrengthDefaults;
use crate::role::Role;

/// A name for a rule in messages and records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleName(pub String);

impl std::fmt::Display for RuleName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One rule as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Where it stands, such as `countersign.toml:31`.
    pub name: RuleName,
    /// Globs over `upstream:tool`, any of which matches.
    pub globs: Vec<String>,
    /// A condition over the call.
    pub when: Option<Condition>,
    /// What the tool does.
    pub effect: Option<Effect>,
    /// Which second step.
    pub confirm: Option<Kind>,
    /// Whose value is typed.
    pub type_field: Option<String>,
    /// Who has to agree.
    pub strength: Option<Strength>,
    /// Where the preview comes from.
    pub preview: Option<Style>,
    /// Who may call it.
    pub role: Option<Role>,
    /// Why it is denied.
    pub deny: Option<String>,
    /// Whether it is listed as allowed.
    pub allow: Option<bool>,
    /// How often.
    pub limit: Option<Rate>,
    /// Argument paths that records and pages must not show.
    pub redact: Vec<String>,
    /// How long a call may take.
    pub timeout: Option<Duration>,
}

impl Rule {
    /// A rule that matches and says nothing yet.
    pub fn named(name: impl Into<String>, globs: &[&str]) -> Self {
        Self {
            name: RuleName(name.into()),
            globs: globs.iter().map(|glob| (*glob).to_owned()).collect(),
            when: None,
            effect: None,
            confirm: None,
            type_field: None,
            strength: None,
            preview: None,
            role: None,
            deny: None,
            allow: None,
            limit: None,
            redact: Vec::new(),
            timeout: None,
        }
    }
}

/// What happens to a tool that no rule allows by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlisted {
    /// It is governed by its effect.
    #[default]
    Govern,
    /// It is denied.
    Deny,
}

/// Compiled rules.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    globs: GlobSet,
    owners: Vec<usize>,
    unlisted: Unlisted,
    strengths: StrengthDefaults,
}

/// A glob that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{glob}` is not a glob: {why}")]
pub struct BadGlob {
    /// The glob as written.
    pub glob: String,
    /// Which rule, counted from 0.
    pub rule: usize,
    /// What is wrong.
    pub why: String,
}

impl RuleSet {
    /// Compiles the globs of the rules.
    pub fn compile(rules: Vec<Rule>, unlisted: Unlisted) -> Result<Self, BadGlob> {
        let mut builder = GlobSetBuilder::new();
        let mut owners = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            for glob in &rule.globs {
                let bad = |why: &dyn std::fmt::Display| BadGlob {
                    glob: glob.clone(),
                    rule: index,
                    why: why.to_string(),
                };
                // A backslash escapes on every platform, or a configuration would mean different things.
                let compiled = GlobBuilder::new(glob).backslash_escape(true).build();
                builder.add(compiled.map_err(|error| bad(error.kind()))?);
                owners.push(index);
            }
        }
        let globs = builder.build().map_err(|error| BadGlob {
            glob: error.glob().unwrap_or_default().to_owned(),
            rule: 0,
            why: error.kind().to_string(),
        })?;
        Ok(Self { rules, globs, owners, unlisted, strengths: StrengthDefaults::default() })
    }

    /// The same rules over other default strengths.
    #[must_use]
    pub fn with_strengths(self, strengths: StrengthDefaults) -> Self {
        Self { strengths, ..self }
    }

    /// What decides the strength of calls whose rules do not.
    pub fn strengths(&self) -> StrengthDefaults {
        self.strengths
    }

    /// The rules as written.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The commands that rules preview by.
    pub(crate) fn commands(&mut self) -> impl Iterator<Item = &mut PreviewCommand> {
        self.rules.iter_mut().filter_map(|rule| match &mut rule.preview {
            Some(Style::Command(command)) => Some(Arc::make_mut(command)),
            Some(Style::Argument { .. } | Style::Companion { .. } | Style::Computed) | None => None,
        })
    }

    /// What happens to tools no rule allows.
    pub fn unlisted(&self) -> Unlisted {
        self.unlisted
    }

    /// The indices of the rules whose glob matches, in order.
    pub fn matching(&self, name: &FullName) -> Vec<usize> {
        let globs = self.globs.matches(name.to_string());
        let mut found: Vec<usize> =
            globs.into_iter().filter_map(|glob| self.owners.get(glob).copied()).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// What the rules say of a call.
    pub fn resolve(&self, facts: &Facts<'_>) -> Resolution {
        resolution::resolve(self, facts)
    }
}
