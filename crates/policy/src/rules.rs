//! Rules: compiled once, resolved for each call. For each field the first matching rule wins, top to bottom; every
//! matching `deny` denies. A condition that fails refuses the call, because skipping the rule could let it through.

mod condition;
mod fields;
mod names;
mod paths;
mod resolution;

use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

pub use condition::{BadCondition, Condition, ConditionFacts, VARIABLES};
pub use fields::{DecidedBy, Rule, RuleField, RuleResolution};
pub use names::ArgumentReads;
pub use paths::{LONGEST_PATH, LexicalPaths, PathBase, PathBases, PathResolver, is_absolute, normalized};
pub use resolution::RuleFault;

use crate::command_template::PreviewCommand;
use crate::ids::FullName;
use crate::preview::PreviewStyle;
use crate::profile::StrengthDefaults;
use crate::words::words;

/// A name for a rule in messages and records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleName(pub String);

impl std::fmt::Display for RuleName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

words! {
    /// What happens to a tool that no rule allows by name.
    pub enum UnlistedToolPolicy("unlisted") {
        /// It is governed by its effect.
        Govern = "govern",
        Deny = "deny",
    }
}

/// Compiled rules.
#[derive(Clone, Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    globs: GlobSet,
    owners: Vec<usize>,
    unlisted: UnlistedToolPolicy,
    strengths: StrengthDefaults,
    paths: Arc<dyn PathResolver>,
}

impl Default for RuleSet {
    fn default() -> Self {
        Self::over(Vec::new(), GlobSet::default(), Vec::new(), UnlistedToolPolicy::Govern)
    }
}

/// A glob that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{glob}` is not a glob: {why}")]
pub struct BadGlob {
    pub glob: String,
    /// Which rule, counted from 0.
    pub rule: usize,
    pub why: String,
}

impl RuleSet {
    /// Compiles the globs of the rules.
    pub fn compile(rules: Vec<Rule>, unlisted: UnlistedToolPolicy) -> Result<Self, BadGlob> {
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
        Ok(Self::over(rules, globs, owners, unlisted))
    }

    fn over(rules: Vec<Rule>, globs: GlobSet, owners: Vec<usize>, unlisted: UnlistedToolPolicy) -> Self {
        let (strengths, paths) = (StrengthDefaults::default(), Arc::new(LexicalPaths::default()));
        Self { rules, globs, owners, unlisted, strengths, paths }
    }

    /// The same rules with another way to resolve paths.
    #[must_use]
    pub fn with_paths(self, paths: Arc<dyn PathResolver>) -> Self {
        Self { paths, ..self }
    }

    /// The same rules over other default strengths.
    #[must_use]
    pub fn with_strengths(self, strengths: StrengthDefaults) -> Self {
        Self { strengths, ..self }
    }

    pub fn paths(&self) -> &Arc<dyn PathResolver> {
        &self.paths
    }

    /// What decides the strength of calls whose rules do not.
    pub fn strengths(&self) -> StrengthDefaults {
        self.strengths
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The commands that rules preview by.
    pub fn commands(&mut self) -> impl Iterator<Item = &mut PreviewCommand> {
        self.rules.iter_mut().filter_map(|rule| match &mut rule.preview {
            Some(PreviewStyle::Command(command)) => Some(Arc::make_mut(command)),
            Some(PreviewStyle::Argument { .. } | PreviewStyle::Companion { .. } | PreviewStyle::Computed)
            | None => None,
        })
    }

    /// What happens to tools no rule allows.
    pub fn unlisted(&self) -> UnlistedToolPolicy {
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
    pub fn resolve(&self, facts: &ConditionFacts<'_>) -> RuleResolution {
        resolution::resolve(self, facts)
    }
}
