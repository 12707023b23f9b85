//! The rules in force, each with its place in the configuration.

use countersign_config::{Config, RuleAuthor};

use countersign_policy::rules::{Rule, RuleField};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// A rule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Rule")]
pub struct RuleView {
    /// Its place, such as `countersign.toml:31`.
    pub name: String,
    /// Globs over `upstream:tool`.
    pub r#match: Vec<String>,
    /// A CEL condition.
    pub when: Option<String>,
    /// The fields it sets.
    pub says: Map<String, Value>,
    /// `rules` for the configuration, `tool` for the declaration of a command tool, `built in` for the gateway's own.
    pub origin: String,
}

/// The rules of a configuration, in order of evaluation.
pub fn rules(config: &Config) -> Vec<RuleView> {
    let authors = config.origins.iter().map(|origin| Some(origin.author));
    let rules = config.rules.rules().iter().zip(authors.chain(std::iter::repeat(None)));
    let view = |(rule, author): (&Rule, Option<RuleAuthor>)| {
        let fields =
            RuleField::ALL.iter().filter_map(|field| Some((field.as_str().to_owned(), rule.value(*field)?)));
        RuleView {
            name: rule.name.0.clone(),
            r#match: rule.globs.clone(),
            when: rule.when.as_ref().map(|when| when.source().to_owned()),
            says: fields.collect(),
            origin: match author {
                Some(RuleAuthor::Rules) => "rules",
                Some(RuleAuthor::Tool) => "tool",
                Some(RuleAuthor::Native) | None => "built in",
            }
            .to_owned(),
        }
    };
    rules.map(view).collect()
}
