//! Grants: given with an approval or by themselves, listed, taken back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use countersign_core::confirm::Kind;
use countersign_core::digest::Digest;
use countersign_core::duration;
use countersign_core::grant::{Allowed, Grant, read_arguments};
use countersign_core::ids::{FullName, GrantId, PrincipalId};
use countersign_core::plan::Plan;
use countersign_core::refusal::{Code, Refusal};
use countersign_store::Grants as Which;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::access::Person;
use crate::asked::{Body, Named, Query, invalid};
use crate::chance;
use crate::desk::Desk;
use crate::told::{No, Outcome, told};
use crate::views::{self, GrantView, exact};

const MOST_USES: u32 = 10_000;
const USUAL_USES: u32 = 10;
const USUAL_LIFE: &str = "1h";
const LONGEST_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);

/// An approval of later calls.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewGrantTerms")]
pub(crate) struct Ahead {
    /// Each argument's exact value, or `{"any": true}`; those of the plan if left out.
    arguments: Option<Map<String, Value>>,
    /// How many later calls, 1 to 10000; 10 if left out.
    #[schemars(range(min = 1, max = 10000))]
    uses: Option<u32>,
    /// For how long, such as `30m`, `2h` or `7d`; an hour if left out.
    expires_in: Option<String>,
}

/// A grant that was given.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GrantGiven")]
pub(crate) struct Given {
    /// Its id.
    grant_id: String,
    /// `upstream:tool`.
    tool: String,
    /// Whose calls it covers.
    principal: String,
    /// How many.
    uses: u32,
    /// Until when.
    expires_at: String,
}

/// How many, for how long, and for which values, where they are named.
struct Terms {
    uses: u32,
    life: Duration,
    arguments: Option<BTreeMap<String, Allowed>>,
}

/// What a grant is for.
struct Subject<'a> {
    principal: &'a PrincipalId,
    tool: String,
    fingerprint: Digest,
    usual: Map<String, Value>,
}

impl Ahead {
    /// Whether such a grant can be given for such a plan; asked before anything is decided.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), Refusal> {
        let message = match plan {
            Plan { need, tool, .. } if need.kind == Kind::Type => {
                format!("`{tool}` is confirmed by typing a name: no grant can stand for that")
            }
            Plan { steps, .. } if !steps.is_empty() => {
                format!("`{}` is a list of calls: a grant is for one tool", plan.id)
            }
            _ => return self.terms().map(drop),
        };
        Err(Refusal::new(Code::GrantForbidden, message))
    }

    fn terms(&self) -> Result<Terms, Refusal> {
        let uses = self.uses.unwrap_or(USUAL_USES);
        if !(1..=MOST_USES).contains(&uses) {
            return Err(invalid("grant.uses", format_args!("must be a number from 1 to {MOST_USES}")));
        }
        let life = duration::parse(self.expires_in.as_deref().unwrap_or(USUAL_LIFE))
            .map_err(|why| invalid("grant.expires_in", format_args!("is wrong: {why}")))?;
        if life.is_zero() || life > LONGEST_LIFE {
            return Err(invalid("grant.expires_in", "must be more than nothing and at most 90d"));
        }
        let arguments = self.arguments.as_ref().map(read_arguments).transpose()?;
        Ok(Terms { uses, life, arguments })
    }

    /// Gives the grant, modelled on a plan.
    pub(crate) async fn give(&self, desk: &Desk, plan: &Plan, by: &PrincipalId) -> Result<Given, No> {
        let subject = Subject {
            principal: &plan.principal,
            tool: plan.tool.to_string(),
            fingerprint: plan.fingerprint,
            usual: plan.arguments.value().clone(),
        };
        self.give_for(desk, subject, by).await
    }

    async fn give_for(&self, desk: &Desk, subject: Subject<'_>, by: &PrincipalId) -> Result<Given, No> {
        let Terms { uses, life, arguments } = self.terms()?;
        let arguments = arguments.unwrap_or_else(|| {
            subject.usual.into_iter().map(|(name, value)| (name, Allowed::Exact(value))).collect()
        });
        let now = desk.house.now();
        let grant = Grant {
            id: GrantId::mint(now, chance::bits()),
            principal: subject.principal.clone(),
            tool: subject.tool,
            fingerprint: subject.fingerprint,
            arguments,
            uses_left: uses,
            expires: now.checked_add(life).unwrap_or(Timestamp::MAX),
            by: by.clone(),
        };
        desk.house.store.grant(&grant, now).await?;
        Ok(Given {
            grant_id: grant.id.to_string(),
            tool: grant.tool,
            principal: grant.principal.to_string(),
            uses: grant.uses_left,
            expires_at: exact(grant.expires),
        })
    }
}

/// A grant given by itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewGrant")]
pub(crate) struct New {
    /// `upstream:tool`.
    tool: String,
    /// Whose calls it covers.
    principal: String,
    /// Each argument's exact value, or `{"any": true}`; none if left out.
    arguments: Option<Map<String, Value>>,
    /// How many calls, 1 to 10000; 10 if left out.
    #[schemars(range(min = 1, max = 10000))]
    uses: Option<u32>,
    /// For how long, such as `30m`, `2h` or `7d`; an hour if left out.
    expires_in: Option<String>,
}

/// A grant that was given.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GrantMade")]
pub(crate) struct Made {
    /// The grant.
    grant: Given,
}

/// `POST /grants`
pub(crate) async fn make(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Body(new): Body<New>,
) -> Outcome<Made> {
    let name: FullName = new.tool.parse().map_err(|_| invalid("tool", "must be `upstream:tool`"))?;
    if new.principal.trim().is_empty() || new.principal.len() > 256 {
        return Err(invalid("principal", "must name a principal").into());
    }
    let catalog = desk.house.catalog.load_full();
    let listed = catalog.get(&name).filter(|listed| listed.is_accepted());
    let listed =
        listed.ok_or_else(|| Refusal::new(Code::ToolNotFound, "there is no such tool that may be called"))?;
    if listed.outlook.kind == Kind::Type {
        let message = format!("`{name}` is confirmed by typing a name: no grant can stand for that");
        return Err(Refusal::new(Code::GrantForbidden, message).into());
    }
    let ahead = Ahead { arguments: new.arguments, uses: new.uses, expires_in: new.expires_in };
    let principal = PrincipalId::new(new.principal);
    let subject = Subject {
        principal: &principal,
        tool: name.to_string(),
        fingerprint: listed.tool.fingerprint,
        usual: Map::new(),
    };
    told(Made { grant: ahead.give_for(&desk, subject, &person.name).await? })
}

/// Which grants are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GrantQuery")]
pub(crate) struct Wanted {
    /// `true` for those that are used up, expired or revoked, too.
    all: Option<String>,
}

/// Grants, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GrantList")]
pub(crate) struct Grants {
    /// The grants.
    grants: Vec<GrantView>,
}

/// `GET /grants`
pub(crate) async fn list(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Query(wanted): Query<Wanted>,
) -> Outcome<Grants> {
    let now = desk.house.now();
    let which = match wanted.all.as_deref() {
        Some("true") => Which::All,
        None | Some("false") => Which::Usable(now),
        Some(_) => return Err(invalid("all", "must be true or false").into()),
    };
    let rows = desk.house.store.grants(which).await?;
    let law = desk.house.law.load();
    let grants = rows.iter().map(|row| views::grant(row, &law.rules, &desk.house.redactor, now)).collect();
    told(Grants { grants })
}

/// A grant that was taken back.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GrantRevoked")]
pub(crate) struct Revoked {
    /// Its id.
    grant_id: String,
    /// The row.
    ledger_id: String,
}

/// `DELETE /grants/{id}`
pub(crate) async fn revoke(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Named(id): Named,
) -> Outcome<Revoked> {
    let id = GrantId::new(id);
    let revoked = desk.house.store.revoke_grant(&id, &person.name, desk.house.now()).await?;
    let Some(ledger_id) = revoked else {
        return Err(Refusal::new(Code::NotFound, "there is no such grant that could be revoked").into());
    };
    told(Revoked { grant_id: id.to_string(), ledger_id: ledger_id.to_string() })
}
