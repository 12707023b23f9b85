//! Tools: what each needs and why, what changed about it, and accepting exactly what was looked at.

use std::sync::Arc;

use axum::extract::State;
use countersign_core::config::Decided;
use countersign_core::digest::Digest;
use countersign_core::ids::FullName;
use countersign_core::refusal::{Code, Refusal};
use countersign_gateway::catalog::Listed;
use countersign_gateway::search::Query as Search;
use countersign_store::{Pin, PinState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::Person;
use crate::asked::{Body, Named, Query, invalid, limit, number};
use crate::desk::Desk;
use crate::told::{No, Outcome, told};
use crate::views::{self, PinView, ToolView};

/// Which tools are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolQuery")]
pub(crate) struct Wanted {
    /// A few words, or a name; every tool if left out.
    q: Option<String>,
    /// Of which upstream.
    server: Option<String>,
    /// How many of those that were searched for, 1 to 1000; 100 if left out.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// Tools.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolList")]
pub(crate) struct Tools {
    /// The tools.
    tools: Vec<ToolView>,
    /// How many there are.
    total: usize,
}

/// `GET /tools`
pub(crate) async fn list(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Query(wanted): Query<Wanted>,
) -> Outcome<Tools> {
    let most = usize::try_from(limit(wanted.limit, 100)?).unwrap_or(usize::MAX);
    let (catalog, law) = (desk.house.catalog.load_full(), desk.house.law.load_full());
    let of = |listed: &Listed, score: Option<f64>| {
        views::tool(listed, &views::explained(listed, &law.config), score)
    };
    let is_wanted =
        |listed: &&Listed| wanted.server.as_ref().is_none_or(|name| listed.tool.upstream.as_str() == name);
    let Some(q) = &wanted.q else {
        let tools: Vec<ToolView> = catalog.tools().filter(is_wanted).map(|listed| of(listed, None)).collect();
        let total = tools.len();
        return told(Tools { tools, total });
    };
    let mut search = Search::new(q, most);
    search.upstream = wanted.server.as_deref();
    let found = catalog.index().search(&search);
    let hits = found.hits.iter().filter_map(|hit| Some(of(catalog.indexed(hit.doc)?, Some(hit.score))));
    let mut tools: Vec<ToolView> = hits.collect();
    // What is withheld is not in the index, and is what a person may look for.
    let lower = q.to_lowercase();
    let held = catalog.tools().filter(is_wanted).filter(|listed| {
        !listed.is_accepted() && listed.tool.full_name().to_string().to_lowercase().contains(&lower)
    });
    tools.extend(held.map(|listed| of(listed, None)));
    let total = found.total.max(tools.len());
    told(Tools { tools, total })
}

/// One tool, whole.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolAnswer")]
pub(crate) struct One {
    /// The tool with its definition.
    tool: ToolView,
    /// Which rule decided each field.
    #[schemars(with = "Vec<Value>")]
    decided: Vec<Decided>,
}

fn full_name(text: &str) -> Result<FullName, No> {
    let unknown = || Refusal::new(Code::ToolNotFound, "no upstream has a tool of that name");
    text.parse().map_err(|_| unknown().into())
}

/// `GET /tools/{name}`
pub(crate) async fn one(State(desk): State<Arc<Desk>>, _: Person, Named(name): Named) -> Outcome<One> {
    let name = full_name(&name)?;
    let (catalog, law) = (desk.house.catalog.load_full(), desk.house.law.load_full());
    let Some(listed) = catalog.get(&name) else {
        let near = catalog.nearest(&name, &|_| true);
        let refusal = Refusal::new(Code::ToolNotFound, format!("no upstream has a tool `{name}`"));
        return Err(refusal.with("did_you_mean", near).into());
    };
    let explained = views::explained(listed, &law.config);
    let mut tool = views::tool(listed, &explained, None);
    tool.definition = Some(listed.tool.definition.clone());
    told(One { tool, decided: explained.decided })
}

/// What was accepted against what its upstream says now.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolDiff")]
pub(crate) struct Difference {
    /// The pin.
    tool: PinView,
}

async fn pinned(desk: &Desk, name: &FullName) -> Result<Pin, No> {
    let pin = desk.house.store.pin_of(name).await?;
    pin.ok_or_else(|| Refusal::new(Code::ToolNotFound, format!("`{name}` was never listed")).into())
}

/// `GET /tools/{name}/diff`
pub(crate) async fn diff(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Named(name): Named,
) -> Outcome<Difference> {
    let pin = pinned(&desk, &full_name(&name)?).await?;
    told(Difference { tool: views::pin(&pin) })
}

/// What was looked at.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolApproval")]
pub(crate) struct Looked {
    /// The fingerprint of the definition that was looked at; another one is not accepted. What waits now if left out.
    fingerprint: Option<String>,
}

/// A definition that was accepted.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolAccepted")]
pub(crate) struct Accepted {
    /// `upstream:tool`.
    name: String,
    /// What it is pinned by now.
    fingerprint: String,
    /// The row.
    ledger_id: String,
}

/// `POST /tools/{name}/approve`
pub(crate) async fn approve(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Named(name): Named,
    Body(looked): Body<Looked>,
) -> Outcome<Accepted> {
    let name = full_name(&name)?;
    let pin = pinned(&desk, &name).await?;
    if pin.state == PinState::Accepted {
        let message = format!("`{name}` waits for nobody: it is what was accepted");
        return Err(Refusal::new(Code::PlanDecided, message).because("tool_accepted").into());
    }
    let waits = pin.candidate.as_ref().unwrap_or(&pin.pinned).fingerprint;
    let looked_at = match looked.fingerprint.as_deref() {
        Some(text) => text
            .parse::<Digest>()
            .map_err(|_| invalid("fingerprint", "must be 64 lower-case hexadecimal digits"))?,
        None => waits,
    };
    let accepted = desk.house.store.accept_pin(&name, looked_at, &person.name, desk.house.now()).await?;
    let Some(ledger_id) = accepted else {
        let message = format!("`{name}` is not what was looked at: look again");
        return Err(Refusal::new(Code::ToolChanged, message).into());
    };
    // The catalogue learns of it now, not at the next call.
    if let Some(keeper) = desk.house.keeper() {
        keeper.recheck(&name.upstream).await;
    }
    told(Accepted { name: name.to_string(), fingerprint: looked_at.hex(), ledger_id: ledger_id.to_string() })
}
