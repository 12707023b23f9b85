//! Grants: approvals of later calls. One set of limits for every channel that gives them; how they are spent is the store's part.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use countersign_policy::confirm::Kind;
use countersign_policy::digest::Digest;
use countersign_policy::grant::{Allowed, Grant};
use countersign_policy::ids::{FullName, GrantId, PrincipalId};
use countersign_policy::plan::Plan;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{Store, StoreFault};
use jiff::Timestamp;

/// How many calls a grant may cover at most.
pub const MOST_USES: u32 = 10_000;
/// How many calls it covers where nothing is said.
pub const USUAL_USES: u32 = 10;
/// For how long a grant may last at most: 90 days.
pub const LONGEST_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// For how long it lasts where nothing is said.
pub const USUAL_LIFE: &str = "1h";

/// A limit that a grant would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantLimit {
    Uses,
    Life,
}

impl fmt::Display for GrantLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uses => write!(f, "must be a number from 1 to {MOST_USES}"),
            Self::Life => f.write_str("must be more than nothing and at most 90d"),
        }
    }
}

/// How many calls a grant covers and for how long, within the limits.
#[derive(Clone, Copy, Debug)]
pub struct GrantTerms {
    uses: u32,
    life: Duration,
}

impl GrantTerms {
    pub fn new(uses: u32, life: Duration) -> Result<Self, GrantLimit> {
        if !(1..=MOST_USES).contains(&uses) {
            return Err(GrantLimit::Uses);
        }
        check_life(life)?;
        Ok(Self { uses, life })
    }
}

/// Checks how long a grant is to last.
pub fn check_life(life: Duration) -> Result<(), GrantLimit> {
    if life.is_zero() || life > LONGEST_LIFE { Err(GrantLimit::Life) } else { Ok(()) }
}

#[derive(Clone, Debug)]
pub struct GrantSubject {
    pub principal: PrincipalId,
    pub tool: FullName,
    /// The tool's definition: a grant ends when that changes.
    pub fingerprint: Digest,
    pub arguments: BTreeMap<String, Allowed>,
}

impl GrantSubject {
    /// Calls equal to the one of a plan.
    pub fn of_plan(plan: &Plan) -> Self {
        let exact =
            |(name, value): (&String, &serde_json::Value)| (name.clone(), Allowed::Exact(value.clone()));
        Self {
            principal: plan.principal.clone(),
            tool: plan.tool.clone(),
            fingerprint: plan.fingerprint,
            arguments: plan.arguments.value().iter().map(exact).collect(),
        }
    }
}

/// Refuses a grant modelled on a plan that no grant can stand for. Channels ask before anything is decided.
pub fn check_grantable(plan: &Plan) -> Result<(), Refusal> {
    check_kind(plan.requirement.kind, &plan.tool)?;
    if plan.steps.is_empty() {
        return Ok(());
    }
    let message = format!("`{}` is a list of calls: a grant is for one tool", plan.id);
    Err(Refusal::new(Code::GrantForbidden, message))
}

/// Refuses a grant for a tool that is confirmed by typing: a text typed once confirms one resource, not later calls.
pub fn check_kind(kind: Kind, tool: &FullName) -> Result<(), Refusal> {
    if kind != Kind::Type {
        return Ok(());
    }
    let message = format!("`{tool}` is confirmed by typing a name: no grant can stand for that");
    Err(Refusal::new(Code::GrantForbidden, message))
}

pub async fn give_grant(
    store: &Store,
    subject: GrantSubject,
    terms: GrantTerms,
    by: &PrincipalId,
    now: Timestamp,
) -> Result<Grant, StoreFault> {
    let grant = Grant {
        id: GrantId::mint(now, uuid::Uuid::new_v4().as_u128()),
        principal: subject.principal,
        tool: subject.tool.to_string(),
        fingerprint: subject.fingerprint,
        arguments: subject.arguments,
        uses_left: terms.uses,
        expires: now.checked_add(terms.life).unwrap_or(Timestamp::MAX),
        by: by.clone(),
    };
    store.grant(&grant, now).await?;
    Ok(grant)
}
