//! Grants: created with an approval or alone, listed, revoked.

use std::collections::BTreeMap;

use axum::extract::State;
use countersign_gateway::approval::grants::{
    GrantLimit, GrantSubject, GrantTerms, USUAL_LIFE, USUAL_USES, check_grantable, check_kind, give_grant,
};
use countersign_policy::duration;
use countersign_policy::grant::{Allowed, read_arguments};
use countersign_policy::ids::{FullName, GrantId, PrincipalId};
use countersign_policy::plan::Plan;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::GrantFilter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::auth::AuthenticatedPerson;
use crate::request::{Body, PathName, QueryParams, invalid};
use crate::response::{ApiError, ApiResult, respond};
use crate::state::{Web, WebState};
use crate::views::{self, GrantView, exact};

/// Terms of a grant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewGrantTerms")]
pub(crate) struct GrantTermsBody {
    /// Each argument's exact value, or `{"any": true}`; default the plan's arguments.
    arguments: Option<Map<String, Value>>,
    /// How many calls; default 10.
    #[schemars(range(min = 1, max = 10000))]
    uses: Option<u32>,
    /// Such as `30m`, `2h` or `7d`; default `1h`.
    expires_in: Option<String>,
}

/// The created grant.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GrantGiven")]
pub(crate) struct IssuedGrant {
    grant_id: String,
    /// `upstream:tool`.
    tool: String,
    /// Whose calls it covers.
    principal: String,
    uses: u32,
    expires_at: String,
}

impl GrantTermsBody {
    /// Checks the terms for a plan. Called before the plan is decided, so that a bad grant decides nothing.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), Refusal> {
        check_grantable(plan)?;
        self.terms()?;
        self.arguments().map(drop)
    }

    fn terms(&self) -> Result<GrantTerms, Refusal> {
        let life = duration::parse(self.expires_in.as_deref().unwrap_or(USUAL_LIFE))
            .map_err(|why| invalid("grant.expires_in", format_args!("is wrong: {why}")))?;
        GrantTerms::new(self.uses.unwrap_or(USUAL_USES), life).map_err(|limit| match limit {
            GrantLimit::Uses => invalid("grant.uses", limit),
            GrantLimit::Life => invalid("grant.expires_in", limit),
        })
    }

    fn arguments(&self) -> Result<Option<BTreeMap<String, Allowed>>, Refusal> {
        self.arguments.as_ref().map(read_arguments).transpose()
    }

    /// Creates the grant for calls like the plan.
    pub(crate) async fn create(
        &self,
        web: &WebState,
        plan: &Plan,
        by: &PrincipalId,
    ) -> Result<IssuedGrant, ApiError> {
        self.create_for(web, GrantSubject::of_plan(plan), by).await
    }

    async fn create_for(
        &self,
        web: &WebState,
        mut subject: GrantSubject,
        by: &PrincipalId,
    ) -> Result<IssuedGrant, ApiError> {
        let terms = self.terms()?;
        if let Some(arguments) = self.arguments()? {
            subject.arguments = arguments;
        }
        let grant = give_grant(&web.gateway.store, subject, terms, by, web.gateway.now()).await?;
        Ok(IssuedGrant {
            grant_id: grant.id.to_string(),
            tool: grant.tool,
            principal: grant.principal.to_string(),
            uses: grant.uses_left,
            expires_at: exact(grant.expires),
        })
    }
}

/// The grant to create.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewGrant")]
pub(crate) struct NewGrantBody {
    /// `upstream:tool`.
    tool: String,
    /// Whose calls it covers.
    principal: String,
    /// Each argument's exact value, or `{"any": true}`; default no arguments.
    arguments: Option<Map<String, Value>>,
    /// How many calls; default 10.
    #[schemars(range(min = 1, max = 10000))]
    uses: Option<u32>,
    /// Such as `30m`, `2h` or `7d`; default `1h`.
    expires_in: Option<String>,
}

/// The created grant.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GrantMade")]
pub(crate) struct CreateGrantResponse {
    grant: IssuedGrant,
}

pub(crate) async fn make(
    State(web): Web,
    person: AuthenticatedPerson,
    Body(new): Body<NewGrantBody>,
) -> ApiResult<CreateGrantResponse> {
    let name: FullName = new.tool.parse().map_err(|_| invalid("tool", "must be `upstream:tool`"))?;
    if new.principal.trim().is_empty() || new.principal.len() > 256 {
        return Err(invalid("principal", "must name a principal").into());
    }
    let catalog = web.gateway.catalog.load_full();
    let listed = catalog.get(&name).filter(|listed| listed.is_accepted());
    let listed =
        listed.ok_or_else(|| Refusal::new(Code::ToolNotFound, "there is no such tool that may be called"))?;
    check_kind(listed.outlook.kind, &name)?;
    let terms = GrantTermsBody { arguments: new.arguments, uses: new.uses, expires_in: new.expires_in };
    let subject = GrantSubject {
        principal: PrincipalId::new(new.principal),
        tool: name,
        fingerprint: listed.tool.fingerprint,
        arguments: BTreeMap::new(),
    };
    respond(CreateGrantResponse { grant: terms.create_for(&web, subject, &person.name).await? })
}

/// Filters on grants.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GrantQuery")]
pub(crate) struct ListGrantsQuery {
    /// `true` includes used up, expired and revoked grants.
    all: Option<String>,
}

/// Grants, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GrantList {
    grants: Vec<GrantView>,
}

pub(crate) async fn list(
    State(web): Web,
    _: AuthenticatedPerson,
    QueryParams(wanted): QueryParams<ListGrantsQuery>,
) -> ApiResult<GrantList> {
    let now = web.gateway.now();
    let which = match wanted.all.as_deref() {
        Some("true") => GrantFilter::All,
        None | Some("false") => GrantFilter::Usable(now),
        Some(_) => return Err(invalid("all", "must be true or false").into()),
    };
    let rows = web.gateway.store.grants(which).await?;
    let policy = web.gateway.policy.load();
    let grants =
        rows.iter().map(|row| views::grant(row, &policy.rules, &web.gateway.redactor, now)).collect();
    respond(GrantList { grants })
}

/// The revoked grant.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GrantRevoked")]
pub(crate) struct RevokedGrant {
    grant_id: String,
    ledger_id: String,
}

pub(crate) async fn revoke(
    State(web): Web,
    person: AuthenticatedPerson,
    PathName(id): PathName,
) -> ApiResult<RevokedGrant> {
    let id = GrantId::new(id);
    let revoked = web.gateway.store.revoke_grant(&id, &person.name, web.gateway.now()).await?;
    let Some(ledger_id) = revoked else {
        return Err(Refusal::new(Code::NotFound, "there is no such grant that could be revoked").into());
    };
    respond(RevokedGrant { grant_id: id.to_string(), ledger_id: ledger_id.to_string() })
}
