//! The rules in force, each with where it is written.

use countersign_core::config::{Author, Config};
use countersign_core::preview::Style;
use countersign_core::rules::Rule;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A rule and where it comes from.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Rule")]
pub struct RuleView {
    /// Where it stands, such as `countersign.toml:31`.
    pub name: String,
    /// Globs over `upstream:tool`.
    pub r#match: Vec<String>,
    /// Its condition.
    pub when: Option<String>,
    /// What it says, by field.
    pub says: Map<String, Value>,
    /// `rules` for a written one, `tool` for what a command tool says of itself, `built in` for ours.
    pub origin: String,
}

/// The rules of a configuration, in the order in which they are asked.
pub fn rules(config: &Config) -> Vec<RuleView> {
    let authors = config.origins.iter().map(|origin| Some(origin.author));
    let rules = config.rules.rules().iter().zip(authors.chain(std::iter::repeat(None)));
    let view = |(rule, author): (&Rule, Option<Author>)| {
        let preview = rule.preview.as_ref().map(|preview| match preview {
            Style::Argument { arg, preview, apply } => {
                json!({"arg": arg, "preview": preview, "apply": apply})
            }
            Style::Companion { tool, digest } => json!({"tool": tool, "digest": digest}),
            Style::Command(command) => command.shown(),
            Style::Computed => json!("computed"),
        });
        let fields = [
            ("effect", rule.effect.map(|effect| json!(effect))),
            ("confirm", rule.confirm.map(|kind| json!(kind))),
            ("type_field", rule.type_field.as_ref().map(|field| json!(field))),
            ("strength", rule.strength.map(|strength| json!(strength))),
            ("preview", preview),
            ("role", rule.role.map(|role| json!(role))),
            ("deny", rule.deny.as_ref().map(|why| json!(why))),
            ("allow", rule.allow.map(|allow| json!(allow))),
            ("limit", rule.limit.as_ref().map(|rate| json!(rate.to_string()))),
            ("redact", (!rule.redact.is_empty()).then(|| json!(rule.redact))),
            ("timeout", rule.timeout.map(|timeout| json!(format!("{}ms", timeout.as_millis())))),
        ];
        RuleView {
            name: rule.name.0.clone(),
            r#match: rule.globs.clone(),
            when: rule.when.as_ref().map(|when| when.source().to_owned()),
            says: fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
            origin: match author {
                Some(Author::Rules) => "rules",
                Some(Author::Tool) => "tool",
                Some(Author::Native) | None => "built in",
            }
            .to_owned(),
        }
    };
    rules.map(view).collect()
}
