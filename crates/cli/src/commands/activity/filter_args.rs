//! Which rows are wanted: the ledger's filters as options, the same for every command that reads rows.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use countersign_policy::effect::Effect;
use countersign_policy::record::{ActorRole, RowKind, RowStatus};
use countersign_store::ledger::LedgerFilter;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::time_argument::TimeArgument;

#[derive(Args, Debug)]
#[command(next_help_heading = "Which rows")]
pub(crate) struct ActivityFilterArgs {
    /// Rows of this kind
    #[arg(long = "type", value_name = "KIND", value_parser = PossibleValuesParser::new(RowKind::ALL.iter().map(|word| word.as_str())).try_map(|word| word.parse::<RowKind>()))]
    kind: Option<RowKind>,

    /// Rows with this status
    #[arg(long, value_parser = PossibleValuesParser::new(RowStatus::ALL.iter().map(|word| word.as_str())).try_map(|word| word.parse::<RowStatus>()))]
    status: Option<RowStatus>,

    /// Of this upstream
    #[arg(long, value_name = "UPSTREAM")]
    server: Option<String>,

    /// Of this tool: `upstream:tool`, or the tool's own name
    #[arg(long)]
    tool: Option<String>,

    /// With this declared operation
    #[arg(long, value_name = "OPERATION", value_parser = PossibleValuesParser::new(Effect::ALL.iter().map(|word| word.as_str())).try_map(|word| word.parse::<Effect>()))]
    intent_type: Option<Effect>,

    /// Of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    /// Of this request, as the log names it
    #[arg(long, value_name = "ID")]
    request: Option<String>,

    /// By this principal
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,

    /// By agents, by the user interface of a host, or by people
    #[arg(long, value_parser = PossibleValuesParser::new(ActorRole::ALL.iter().map(|word| word.as_str())).try_map(|word| word.parse::<ActorRole>()))]
    role: Option<ActorRole>,

    /// About this plan
    #[arg(long, value_name = "ID")]
    plan: Option<String>,

    /// With this code, such as E_MODE_ASK
    #[arg(long)]
    code: Option<String>,

    /// With this text in tool, reason, arguments, code, principal or detail
    #[arg(long, value_name = "TEXT")]
    q: Option<String>,

    /// Since: a duration ago such as 2h or 7d, a day, or an exact time
    #[arg(long, value_name = "WHEN")]
    since: Option<TimeArgument>,

    /// Until: written like --since
    #[arg(long, value_name = "WHEN")]
    until: Option<TimeArgument>,
}

impl ActivityFilterArgs {
    pub(crate) fn filter(&self, now: Timestamp) -> LedgerFilter {
        let zone = TimeZone::system();
        let moment = |when: &Option<TimeArgument>| when.as_ref().map(|when| when.resolve(now, &zone));
        let (of_tool, tool) = match self.tool.as_deref().map(|tool| tool.split_once(':').ok_or(tool)) {
            Some(Ok((upstream, tool))) => (Some(upstream), Some(tool)),
            Some(Err(tool)) => (None, Some(tool)),
            None => (None, None),
        };
        LedgerFilter {
            kind: self.kind,
            status: self.status,
            server: self.server.as_deref().or(of_tool).map(Into::into),
            tool: tool.map(Into::into),
            intent_type: self.intent_type,
            session_id: self.session.as_deref().map(Into::into),
            request_id: self.request.as_deref().map(Into::into),
            principal: self.principal.as_deref().map(Into::into),
            role: self.role,
            plan_id: self.plan.as_deref().map(Into::into),
            code: self.code.clone(),
            q: self.q.clone(),
            start_time: moment(&self.since),
            end_time: moment(&self.until),
            limit: None,
            cursor: None,
            search_limit: None,
        }
    }
}
