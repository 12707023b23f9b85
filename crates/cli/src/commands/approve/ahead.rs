//! `approve --grant`: agreeing ahead to calls like the one that was looked at, so many times, until then. Never for what
//! has to be typed.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use countersign_core::confirm::Kind;
use countersign_core::duration;
use countersign_core::grant::{Allowed, Grant};
use countersign_core::ids::{GrantId, PrincipalId};
use countersign_core::plan::Plan;
use countersign_core::refusal::{Code, Refusal};
use countersign_store::{Store, StoreUrl};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::answer::Trouble;
use crate::output::{GOOD, exact, paint, visible};
use crate::{person, records};

/// What a grant takes beside the plan it is modelled on.
#[derive(Args, Debug)]
pub(crate) struct Ahead {
    /// Approve later calls of the same tool with the same arguments, too
    #[arg(long)]
    grant: bool,

    /// How many later calls
    #[arg(long, value_name = "N", default_value_t = 10, requires = "grant", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    uses: u32,

    /// For how long, such as 30m, 2h or 7d
    #[arg(long, value_name = "SPAN", default_value = "1h", requires = "grant", value_parser = duration::parse)]
    expires: Duration,

    /// An argument that may have any value; repeat for more
    #[arg(long, value_name = "ARGUMENT", requires = "grant")]
    any: Vec<String>,
}

/// A grant that was given.
pub(crate) struct Granted {
    /// For people.
    pub(crate) text: String,
    /// For programs.
    pub(crate) json: Value,
    /// For both.
    pub(crate) warnings: Vec<String>,
}

impl Ahead {
    /// Whether a grant can be given for such a plan at all; asked before anything is decided.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), Trouble> {
        let message = match plan {
            _ if !self.grant => return Ok(()),
            Plan { need, tool, .. } if need.kind == Kind::Type => {
                format!("`{tool}` is confirmed by typing a name: no grant can stand for that")
            }
            Plan { steps, .. } if !steps.is_empty() => {
                format!("`{}` is a list of calls: a grant is for one tool", plan.id)
            }
            _ => return Ok(()),
        };
        let next = format!("countersign approve {}", plan.id);
        Err(Trouble::refused(Refusal::new(Code::GrantForbidden, message), next))
    }

    /// Gives the grant, if one was asked for.
    pub(crate) async fn give(
        &self,
        store: &Store,
        url: &StoreUrl,
        plan: &Plan,
        by: &PrincipalId,
    ) -> Result<Option<Granted>, Trouble> {
        if !self.grant {
            return Ok(None);
        }
        let now = Timestamp::now();
        let given = plan.arguments.value();
        let exact_values = given.iter().map(|(name, value)| (name.clone(), Allowed::Exact(value.clone())));
        let mut arguments: BTreeMap<String, Allowed> = exact_values.collect();
        arguments.extend(self.any.iter().map(|name| (name.clone(), Allowed::Any)));
        let grant = Grant {
            id: GrantId::mint(now, person::chance()?),
            principal: plan.principal.clone(),
            tool: plan.tool.to_string(),
            fingerprint: plan.fingerprint,
            arguments,
            uses_left: self.uses,
            expires: now.checked_add(self.expires).unwrap_or(Timestamp::MAX),
            by: by.clone(),
        };
        store.grant(&grant, now).await.map_err(|fault| records::trouble(&fault, url))?;
        let odd = self.any.iter().filter(|name| !given.contains_key(*name));
        let text = format!(
            "{} {}: {} more of {} for {}, until {}\n",
            paint(GOOD, "granted"),
            grant.id,
            grant.uses_left,
            visible(&grant.tool),
            visible(grant.principal.as_str()),
            exact(grant.expires),
        );
        let json = json!({
            "grant_id": grant.id,
            "tool": grant.tool,
            "principal": grant.principal,
            "uses": grant.uses_left,
            "expires_at": exact(grant.expires),
        });
        let warnings = odd
            .map(|name| {
                format!("`{name}` is no argument of this call; later calls may bring it with any value")
            })
            .collect();
        Ok(Some(Granted { text, json, warnings }))
    }
}
