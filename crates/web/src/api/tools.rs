//! Tools: what each call needs and why, changed definitions, and their acceptance by fingerprint.

use axum::extract::State;
use countersign_config::DecidedField;
use countersign_gateway::catalog::Listed;
use countersign_gateway::search::SearchQuery;
use countersign_policy::digest::Digest;
use countersign_policy::ids::FullName;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{DefinitionAcceptance, ToolPin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::auth::AuthenticatedPerson;
use crate::request::{Body, PathName, QueryParams, invalid, limit, number};
use crate::response::{ApiError, ApiResult, respond};
use crate::state::{Web, WebState};
use crate::views::{self, PinView, ToolView};

/// Filters on tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolQuery")]
pub(crate) struct ListToolsQuery {
    /// Words or a name to search for.
    q: Option<String>,
    /// The upstream.
    server: Option<String>,
    /// Limits a search; default 100.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// Tools.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolList {
    tools: Vec<ToolView>,
    total: usize,
}

pub(crate) async fn list(
    State(web): Web,
    _: AuthenticatedPerson,
    QueryParams(wanted): QueryParams<ListToolsQuery>,
) -> ApiResult<ToolList> {
    let most = usize::try_from(limit(wanted.limit, 100)?).unwrap_or(usize::MAX);
    let (catalog, policy) = (web.gateway.catalog.load_full(), web.gateway.policy.load_full());
    let of = |listed: &Listed, score: Option<f64>| {
        views::tool(listed, &views::explained(listed, &policy.config), score)
    };
    let is_wanted =
        |listed: &&Listed| wanted.server.as_ref().is_none_or(|name| listed.tool.upstream.as_str() == name);
    let Some(q) = &wanted.q else {
        let tools: Vec<ToolView> = catalog.tools().filter(is_wanted).map(|listed| of(listed, None)).collect();
        let total = tools.len();
        return respond(ToolList { tools, total });
    };
    let mut search = SearchQuery::new(q, most);
    search.upstream = wanted.server.as_deref();
    let found = catalog.index().search(&search);
    let hits = found.hits.iter().filter_map(|hit| Some(of(catalog.indexed(hit.doc)?, Some(hit.score))));
    let mut tools: Vec<ToolView> = hits.collect();
    // The index holds no withheld tools, but a person may look for one.
    let lower = q.to_lowercase();
    let held = catalog.tools().filter(is_wanted).filter(|listed| {
        !listed.is_accepted() && listed.tool.full_name().to_string().to_lowercase().contains(&lower)
    });
    tools.extend(held.map(|listed| of(listed, None)));
    let total = found.total.max(tools.len());
    respond(ToolList { tools, total })
}

/// One tool with its definition.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolAnswer")]
pub(crate) struct ToolDetail {
    tool: ToolView,
    /// The rule behind each field.
    #[schemars(with = "Vec<Value>")]
    decided: Vec<DecidedField>,
}

fn full_name(text: &str) -> Result<FullName, ApiError> {
    let unknown = || Refusal::new(Code::ToolNotFound, "no upstream has a tool of that name");
    text.parse().map_err(|_| unknown().into())
}

pub(crate) async fn one(
    State(web): Web,
    _: AuthenticatedPerson,
    PathName(name): PathName,
) -> ApiResult<ToolDetail> {
    let name = full_name(&name)?;
    let (catalog, policy) = (web.gateway.catalog.load_full(), web.gateway.policy.load_full());
    let Some(listed) = catalog.get(&name) else {
        let near = catalog.nearest(&name, &|_| true);
        let refusal = Refusal::new(Code::ToolNotFound, format!("no upstream has a tool `{name}`"));
        return Err(refusal.with("did_you_mean", near).into());
    };
    let explained = views::explained(listed, &policy.config);
    let mut tool = views::tool(listed, &explained, None);
    tool.definition = Some(listed.tool.definition.clone());
    respond(ToolDetail { tool, decided: explained.decided })
}

/// The accepted definition and the one that waits.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolDiff")]
pub(crate) struct DefinitionDiff {
    tool: PinView,
}

async fn pinned(web: &WebState, name: &FullName) -> Result<ToolPin, ApiError> {
    let pin = web.gateway.store.pin_of(name).await?;
    pin.ok_or_else(|| Refusal::new(Code::ToolNotFound, format!("`{name}` was never listed")).into())
}

pub(crate) async fn diff(
    State(web): Web,
    _: AuthenticatedPerson,
    PathName(name): PathName,
) -> ApiResult<DefinitionDiff> {
    let pin = pinned(&web, &full_name(&name)?).await?;
    respond(DefinitionDiff { tool: views::pin(&pin) })
}

/// What to accept.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolApproval")]
pub(crate) struct ApproveToolBody {
    /// The fingerprint that was reviewed: no other definition is accepted. Default the waiting one.
    fingerprint: Option<String>,
    /// Accept all known definitions as a set: each of them counts as accepted.
    #[serde(default)]
    known: bool,
    /// With `known`: the fingerprints that were reviewed. No other set is accepted.
    fingerprints: Option<Vec<String>>,
    /// Accept this definition alone: ends the set.
    #[serde(default)]
    only: bool,
}

impl ApproveToolBody {
    fn acceptance(&self, name: &FullName, pin: &ToolPin) -> Result<DefinitionAcceptance, ApiError> {
        match (self.known, self.only) {
            (true, true) => return Err(invalid("only", "goes without `known`").into()),
            (true, false) if self.fingerprint.is_some() => {
                return Err(invalid("fingerprint", "goes without `known`; send `fingerprints`").into());
            }
            (true, false) => return self.known_set(name, pin),
            (false, _) if self.fingerprints.is_some() => {
                return Err(invalid("fingerprints", "goes with `known`").into());
            }
            (false, _) => {}
        }
        let looked_at = self.fingerprint.as_deref().map(|text| digest("fingerprint", text)).transpose()?;
        let ends_set = self.only && pin.accepted_set().next().is_some();
        let Some(now) = pin.waiting().or(ends_set.then_some(&pin.pinned)) else {
            let message = format!("`{name}` waits for nobody: it is what was accepted");
            return Err(Refusal::new(Code::PlanDecided, message).because("tool_accepted").into());
        };
        let looked_at = looked_at.unwrap_or(now.fingerprint);
        Ok(if self.only {
            DefinitionAcceptance::Only(looked_at)
        } else {
            DefinitionAcceptance::Waiting(looked_at)
        })
    }

    fn known_set(&self, name: &FullName, pin: &ToolPin) -> Result<DefinitionAcceptance, ApiError> {
        let offered: Vec<Digest> =
            pin.offered_set().iter().map(|known| known.definition.fingerprint).collect();
        if offered.is_empty() {
            let why = format!("needs two definitions of `{name}` that were accepted; there is one at most");
            return Err(invalid("known", why).into());
        }
        let looked_at = match &self.fingerprints {
            Some(all) => {
                all.iter().map(|text| digest("fingerprints", text)).collect::<Result<_, ApiError>>()?
            }
            None => offered,
        };
        Ok(DefinitionAcceptance::Known(looked_at))
    }
}

fn digest(field: &str, text: &str) -> Result<Digest, ApiError> {
    text.parse().map_err(|_| invalid(field, "must be 64 lower-case hexadecimal digits").into())
}

/// The accepted definition.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolAccepted")]
pub(crate) struct AcceptedDefinition {
    /// `upstream:tool`.
    name: String,
    /// The pinned definition.
    fingerprint: String,
    /// The set, if one was accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fingerprints: Vec<String>,
    ledger_id: String,
}

pub(crate) async fn approve(
    State(web): Web,
    person: AuthenticatedPerson,
    PathName(name): PathName,
    Body(body): Body<ApproveToolBody>,
) -> ApiResult<AcceptedDefinition> {
    let name = full_name(&name)?;
    let pin = pinned(&web, &name).await?;
    let acceptance = body.acceptance(&name, &pin)?;
    let (fingerprint, fingerprints) = match &acceptance {
        DefinitionAcceptance::Waiting(one) | DefinitionAcceptance::Only(one) => (*one, Vec::new()),
        DefinitionAcceptance::Known(all) => {
            let flipped = pin.flipped_to().map(|known| known.definition.fingerprint);
            (flipped.unwrap_or(pin.pinned.fingerprint), all.iter().map(Digest::hex).collect())
        }
    };
    let (store, now) = (&web.gateway.store, web.gateway.now());
    let accepted = store.accept_definitions(&name, acceptance, &person.name, now).await?;
    let Some(ledger_id) = accepted else {
        let message = format!("`{name}` is not what was looked at: look again");
        return Err(Refusal::new(Code::ToolChanged, message).into());
    };
    // Without this the catalogue would notice only at the next call.
    if let Some(refresher) = web.gateway.refresher() {
        refresher.recheck(&name.upstream).await;
    }
    let (name, ledger_id) = (name.to_string(), ledger_id.to_string());
    respond(AcceptedDefinition { name, fingerprint: fingerprint.hex(), fingerprints, ledger_id })
}
