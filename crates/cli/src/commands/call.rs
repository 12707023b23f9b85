//! `countersign call`: one tool, run through the gateway in this process, as an agent's call would be: the same gates, the
//! same ledger. What must be confirmed is asked at the terminal.

mod agree;
mod call_outcome;
mod local_client;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use countersign_config::ToolSurface;
use countersign_gateway::principal::{ModeLimit, Principal};
use countersign_policy::call::CallerScopes;
use countersign_policy::ids::{FullName, PrincipalId, SessionId};
use countersign_policy::intent::{CallToolVariant, DataSensitivity};
use countersign_policy::mode::Mode;
use countersign_policy::record::{HostInfo, Source};
use countersign_policy::role::Role;
use serde_json::{Map, Value, json};

use crate::cli::Cli;
use crate::command_result::CommandResult;
use crate::commands::completions::candidates;
use crate::commands::serve;
use crate::local_gateway::ResolvedConfig;
use crate::output::OutputSettings;
use crate::person::ask;

const WHO: &str = "local-cli";
/// The session: one for all calls, so that a call made again finds the plan somebody approved meanwhile.
pub(crate) const SESSION: &str = "cli";

#[derive(Args, Debug)]
pub(crate) struct CallArgs {
    #[command(subcommand)]
    variant: CallCommand,
}

/// The three ways to call a tool.
#[derive(Subcommand, Debug)]
pub(crate) enum CallCommand {
    /// Call a tool that only reads
    #[command(
        name = "tool-read",
        after_help = "Examples:
  countersign call tool-read --tool-name=github:get_issue
  countersign call tool-read --tool-name=notes:list --json_args '{\"n\":5}'"
    )]
    Read(ToolCallArgs),
    /// Call a tool that changes something
    #[command(
        name = "tool-write",
        after_help = "Examples:
  countersign call tool-write --tool-name=notes:add --yes
  countersign call tool-write --tool-name=notes:add --dry-run --json"
    )]
    Write(ToolCallArgs),
    /// Call a tool that deletes or overwrites something
    #[command(
        name = "tool-destructive",
        after_help = "Examples:
  countersign call tool-destructive --tool-name=notes:wipe --dry-run
  countersign call tool-destructive --tool-name=notes:wipe --mode execute"
    )]
    Destructive(ToolCallArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ToolCallArgs {
    /// The tool's full name
    #[arg(long, value_name = "UPSTREAM:TOOL", add = ArgValueCandidates::new(candidates::tool_names))]
    tool_name: FullName,

    /// Its arguments, a JSON object
    #[arg(long = "json_args", alias = "json-args", value_name = "JSON")]
    json_args: Option<String>,

    /// The reason, kept in the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// How sensitive the data is: public, internal, private or unknown
    #[arg(long, value_name = "LEVEL")]
    sensitivity: Option<DataSensitivity>,

    /// The mode: ask, plan or execute
    ///
    /// Without it a change that you confirm here, at the terminal or with --yes, runs in execute mode: you have chosen the
    /// command that changes something. Everything else is in the configured mode.
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,

    /// Only show what would happen: plan mode
    #[arg(long, conflicts_with_all = ["mode", "yes"])]
    dry_run: bool,

    /// Confirm a write as yourself without being asked; what destroys still needs `countersign approve`
    #[arg(long, short = 'y', visible_alias = "force")]
    yes: bool,
}

impl CallArgs {
    fn parts(&self) -> (CallToolVariant, &ToolCallArgs) {
        match &self.variant {
            CallCommand::Read(wanted) => (CallToolVariant::Read, wanted),
            CallCommand::Write(wanted) => (CallToolVariant::Write, wanted),
            CallCommand::Destructive(wanted) => (CallToolVariant::Destructive, wanted),
        }
    }
}

pub(crate) fn run(call: &CallArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let (variant, wanted) = call.parts();
    let blueprint = ResolvedConfig::read(cli)?.without_roots();
    blueprint.with_gateway(voice, async |gateway| {
        let principal = Principal {
            id: PrincipalId::new(WHO),
            // An agent with a shell can type this command, too: a person proves who they are where that matters.
            role: Role::Agent,
            credential: None,
            scopes: CallerScopes { max_mode: blueprint.config.gateway.max_mode, ..CallerScopes::all() },
            mode_limit: ModeLimit::Gateway,
            session: Some(SessionId::new(SESSION)),
            surface: ToolSurface::Router,
            source: Source::Cli,
            host: HostInfo::new(None, None, serve::working_folder().as_deref()),
            launcher: None,
        };
        let mut line = local_client::Line::open(&gateway, principal, &blueprint.config, voice).await?;
        let mode = wanted.chosen_mode(variant, ask::can_ask(voice));
        let asked = wanted.arguments(variant, mode);
        if let Some(mode) =
            mode.filter(|mode| wanted.mode.is_none() && *mode != blueprint.config.gateway.mode)
        {
            voice.tell(&format!(
                "mode: {mode}, by this command; the gateway's is {}\n",
                blueprint.config.gateway.mode
            ));
        }
        let reply = line.call(variant, &asked).await?;
        match call_outcome::read(reply, &wanted.tool_name)? {
            call_outcome::CallOutcome::Ran(ran) => ran.answer(&wanted.tool_name, voice),
            call_outcome::CallOutcome::Shown(data, warnings) => Ok(call_outcome::shown(data, warnings)),
            call_outcome::CallOutcome::Refused(refused) => Err(refused.into()),
            call_outcome::CallOutcome::Asks(plan) => {
                let about =
                    agree::ConfirmContext { gateway: &gateway, url: &blueprint.url, wanted, variant, voice };
                about.settle(&mut line, asked, *plan).await
            }
        }
    })
}

impl ToolCallArgs {
    /// The mode the command itself says: a person who types the command for changes and confirms it has chosen to run it. One that
    /// nobody confirms here stays in the configured mode, because an agent with a shell can type commands, too.
    fn chosen_mode(&self, variant: CallToolVariant, can_ask: bool) -> Option<Mode> {
        let is_confirmed_here = self.yes || can_ask;
        match variant {
            _ if self.mode.is_some() => self.mode,
            _ if self.dry_run => Some(Mode::Plan),
            CallToolVariant::Write | CallToolVariant::Destructive if is_confirmed_here => Some(Mode::Execute),
            CallToolVariant::Read | CallToolVariant::Write | CallToolVariant::Destructive => None,
        }
    }

    /// The arguments of the call tool. Those of the tool itself go along as the text they came as.
    fn arguments(&self, variant: CallToolVariant, mode: Option<Mode>) -> Map<String, Value> {
        let mut intent = Map::from_iter([("operation_type".to_owned(), json!(variant.operation()))]);
        intent.extend(self.sensitivity.map(|level| ("data_sensitivity".to_owned(), json!(level))));
        intent.extend(self.reason.as_ref().map(|reason| ("reason".to_owned(), json!(reason))));
        let mut all = Map::from_iter([
            ("name".to_owned(), json!(self.tool_name.to_string())),
            ("intent".to_owned(), Value::Object(intent)),
            // The person who typed the command is asked right here: nothing is held open for another channel.
            ("wait_seconds".to_owned(), json!(0)),
        ]);
        all.extend(self.json_args.as_ref().map(|text| ("args_json".to_owned(), json!(text))));
        all.extend(mode.map(|mode| ("mode".to_owned(), json!(mode))));
        all
    }
}
