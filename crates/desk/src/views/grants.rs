//! Grants and credentials as programs are told of them: never a secret, never what a rule hides.

use countersign_core::grant::Allowed;
use countersign_core::ids::FullName;
use countersign_core::redact::Redactor;
use countersign_core::rules::RuleSet;
use countersign_store::{Credential, GrantRow};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::exact;

/// An approval given ahead.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Grant")]
pub struct GrantView {
    /// Its id.
    pub grant_id: String,
    /// live, used up, expired, revoked.
    pub state: String,
    /// `upstream:tool`.
    pub tool: String,
    /// Whose calls it covers.
    pub principal: String,
    /// Each argument's exact value, or `{"any": true}`.
    pub arguments: Map<String, Value>,
    /// Uses that are left.
    pub uses_left: u32,
    /// The person who gave it.
    pub by: String,
    /// When it was given.
    pub created_at: String,
    /// Until when it works.
    pub expires_at: String,
    /// When it was taken back.
    pub revoked_at: Option<String>,
    /// When it was last used.
    pub last_used_at: Option<String>,
}

/// How a grant stands, in a word.
pub fn grant_state(row: &GrantRow, now: Timestamp) -> &'static str {
    match row {
        GrantRow { revoked: Some(_), .. } => "revoked",
        GrantRow { grant, .. } if grant.uses_left == 0 => "used up",
        GrantRow { grant, .. } if grant.expires <= now => "expired",
        GrantRow { .. } => "live",
    }
}

/// The arguments in the form they are granted in, without what a rule for the tool hides and what looks like a secret.
pub fn grant_arguments(row: &GrantRow, rules: &RuleSet, redactor: &Redactor) -> Map<String, Value> {
    let tool: Option<FullName> = row.grant.tool.parse().ok();
    let matching = tool.map(|tool| rules.matching(&tool)).unwrap_or_default();
    let hidden: Vec<String> = matching
        .into_iter()
        .filter_map(|index| rules.rules().get(index))
        .flat_map(|rule| rule.redact.iter().cloned())
        .collect();
    let exact = row.grant.arguments.iter().filter_map(|(name, allowed)| match allowed {
        Allowed::Exact(value) => Some((name.clone(), value.clone())),
        Allowed::Any => None,
    });
    let Value::Object(mut all) = redactor.clean(&exact.collect(), &hidden) else { return Map::new() };
    let any = row.grant.arguments.iter().filter(|(_, allowed)| **allowed == Allowed::Any);
    all.extend(any.map(|(name, _)| (name.clone(), json!({"any": true}))));
    all
}

/// A grant for programs.
pub fn grant(row: &GrantRow, rules: &RuleSet, redactor: &Redactor, now: Timestamp) -> GrantView {
    GrantView {
        grant_id: row.grant.id.to_string(),
        state: grant_state(row, now).to_owned(),
        tool: row.grant.tool.clone(),
        principal: row.grant.principal.to_string(),
        arguments: grant_arguments(row, rules, redactor),
        uses_left: row.grant.uses_left,
        by: row.grant.by.to_string(),
        created_at: exact(row.created),
        expires_at: exact(row.grant.expires),
        revoked_at: row.revoked.map(exact),
        last_used_at: row.last_used.map(exact),
    }
}

/// A credential, without its secret.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Credential")]
pub struct CredentialView {
    /// Its id.
    pub credential_id: String,
    /// agent or human.
    pub role: String,
    /// Whose it is: the principal of its lines.
    pub name: String,
    /// How far it reaches: `{upstreams?, effects?, max_mode?}`.
    pub scopes: Value,
    /// live, expired, revoked.
    pub state: String,
    /// When it was made.
    pub created_at: String,
    /// Until when it works.
    pub expires_at: Option<String>,
    /// When it was revoked.
    pub revoked_at: Option<String>,
}

/// How a credential stands, in a word.
pub fn credential_state(one: &Credential, now: Timestamp) -> &'static str {
    match (one.revoked, one.is_live(now)) {
        (Some(_), _) => "revoked",
        (None, true) => "live",
        (None, false) => "expired",
    }
}

/// A credential for programs.
pub fn credential(one: &Credential, now: Timestamp) -> CredentialView {
    CredentialView {
        credential_id: one.id.to_string(),
        role: one.role.to_string(),
        name: one.name.clone(),
        scopes: one.scopes.clone(),
        state: credential_state(one, now).to_owned(),
        created_at: exact(one.created),
        expires_at: one.expires.map(exact),
        revoked_at: one.revoked.map(exact),
    }
}
