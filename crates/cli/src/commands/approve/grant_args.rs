//! `approve --grant`: agreeing ahead to calls like the one that was looked at, so many times, until then. Never for what
//! has to be typed.

use std::time::Duration;

use clap::Args;
use countersign_gateway::approval::grants::{
    GrantSubject, GrantTerms, MOST_USES, USUAL_LIFE, USUAL_USES, check_grantable, check_life, give_grant,
};
use countersign_policy::duration;
use countersign_policy::grant::Allowed;
use countersign_policy::ids::PrincipalId;
use countersign_policy::plan::Plan;
use countersign_store::{Store, StoreUrl};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::command_result::CommandError;
use crate::output::{GOOD, exact, paint, visible};
use crate::records;

/// What a grant takes beside the plan it is modelled on.
#[derive(Args, Debug)]
pub(crate) struct ApproveGrantArgs {
    /// Approve later calls of the same tool with the same arguments, too
    #[arg(long)]
    grant: bool,

    /// How many later calls
    #[arg(long, value_name = "N", default_value_t = USUAL_USES, requires = "grant", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_USES)))]
    uses: u32,

    /// For how long, such as 30m, 2h or 7d; at most 90d
    #[arg(long, value_name = "SPAN", default_value = USUAL_LIFE, requires = "grant", value_parser = life)]
    expires: Duration,

    /// An argument that may have any value; repeat for more
    #[arg(long, value_name = "ARGUMENT", requires = "grant")]
    any: Vec<String>,
}

pub(crate) struct GrantOutput {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) warnings: Vec<String>,
}

impl ApproveGrantArgs {
    /// Whether a grant can be given for such a plan at all; asked before anything is decided.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), CommandError> {
        if !self.grant {
            return Ok(());
        }
        check_grantable(plan)
            .map_err(|refusal| CommandError::refused(refusal, format!("countersign approve {}", plan.id)))
    }

    /// Gives the grant, if one was asked for.
    pub(crate) async fn give(
        &self,
        store: &Store,
        url: &StoreUrl,
        plan: &Plan,
        by: &PrincipalId,
    ) -> Result<Option<GrantOutput>, CommandError> {
        if !self.grant {
            return Ok(None);
        }
        let now = Timestamp::now();
        let given = plan.arguments.value();
        let mut subject = GrantSubject::of_plan(plan);
        subject.arguments.extend(self.any.iter().map(|name| (name.clone(), Allowed::Any)));
        let terms = GrantTerms::new(self.uses, self.expires).map_err(|limit| {
            CommandError::usage("invalid_value", format!("the grant {limit}"), "countersign approve --help")
        })?;
        let grant = give_grant(store, subject, terms, by, now)
            .await
            .map_err(|fault| records::trouble(&fault, url))?;
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
        Ok(Some(GrantOutput { text, json, warnings }))
    }
}

/// Reads how long a grant lasts, within the limit that every channel has.
fn life(text: &str) -> Result<Duration, String> {
    let life = duration::parse(text).map_err(|why| why.to_string())?;
    check_life(life).map_err(|limit| limit.to_string())?;
    Ok(life)
}
