//! Grants and credentials as REST and `--json` return them, without secrets and redacted values.

use countersign_policy::grant::Allowed;
use countersign_policy::ids::FullName;
use countersign_policy::redact::Redactor;
use countersign_policy::rules::RuleSet;
use countersign_policy::words::words;
use countersign_store::{Credential, GrantRow};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::exact;

/// An approval of later calls.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Grant")]
pub struct GrantView {
    pub grant_id: String,
    /// live, used up, expired, revoked
    pub state: String,
    /// `upstream:tool`.
    pub tool: String,
    /// Whose calls it covers.
    pub principal: String,
    /// Each argument's exact value, or `{"any": true}`.
    pub arguments: Map<String, Value>,
    pub uses_left: u32,
    /// The person who granted it.
    pub by: String,
    pub created_at: String,
    pub expires_at: String,
    pub revoked_at: Option<String>,
    pub last_used_at: Option<String>,
}

words! {
    /// Whether a grant can be used.
    pub enum GrantState("grant state") {
        Live = "live",
        UsedUp = "used up",
        Expired = "expired",
        Revoked = "revoked",
    }
}

pub fn grant_state(row: &GrantRow, now: Timestamp) -> GrantState {
    match row {
        GrantRow { revoked: Some(_), .. } => GrantState::Revoked,
        GrantRow { grant, .. } if grant.uses_left == 0 => GrantState::UsedUp,
        GrantRow { grant, .. } if grant.expires <= now => GrantState::Expired,
        GrantRow { .. } => GrantState::Live,
    }
}

/// The granted arguments, without values that a rule redacts or that look like secrets.
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

pub fn grant(row: &GrantRow, rules: &RuleSet, redactor: &Redactor, now: Timestamp) -> GrantView {
    GrantView {
        grant_id: row.grant.id.to_string(),
        state: grant_state(row, now).to_string(),
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
    pub credential_id: String,
    /// agent or human
    pub role: String,
    /// The principal of its connections.
    pub name: String,
    /// Limits: `{upstreams?, effects?, max_mode?, may_vouch?, any_session?}`.
    pub scopes: Value,
    /// live, expired, revoked
    pub state: String,
    pub created_at: String,
    pub expires_at: Option<String>,
    pub revoked_at: Option<String>,
}

words! {
    /// Whether a credential works.
    pub enum CredentialState("credential state") {
        Live = "live",
        Expired = "expired",
        Revoked = "revoked",
    }
}

pub fn credential_state(one: &Credential, now: Timestamp) -> CredentialState {
    match (one.revoked, one.is_live(now)) {
        (Some(_), _) => CredentialState::Revoked,
        (None, true) => CredentialState::Live,
        (None, false) => CredentialState::Expired,
    }
}

pub fn credential(one: &Credential, now: Timestamp) -> CredentialView {
    CredentialView {
        credential_id: one.id.to_string(),
        role: one.role.to_string(),
        name: one.name.clone(),
        scopes: one.scopes.clone(),
        state: credential_state(one, now).to_string(),
        created_at: exact(one.created),
        expires_at: one.expires.map(exact),
        revoked_at: one.revoked.map(exact),
    }
}
