//! `countersign call`: one tool, run through the gateway in this process, as an agent's call would be: the same gates, the
//! same ledger. What must be confirmed is asked at the terminal.

mod agree;
mod line;
mod said;

use clap::{Args, Subcommand};
use countersign_core::call::Scopes;
use countersign_core::config::Surface;
use countersign_core::ids::{FullName, PrincipalId, SessionId};
use countersign_core::intent::{Sensitivity, Variant};
use countersign_core::mode::Mode;
use countersign_core::record::Source;
use countersign_core::role::Role;
use countersign_gateway::line::{ModeLimit, Principal};
use serde_json::{Map, Value, json};

use crate::answer::Outcome;
use crate::cli::Cli;
use crate::house::Blueprint;
use crate::output::Voice;

/// Who calls.
const WHO: &str = "local-cli";
/// The session: one for all calls, so that a call made again finds the plan somebody approved meanwhile.
const SESSION: &str = "cli";

/// What `call` takes.
#[derive(Args, Debug)]
pub(crate) struct Call {
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
    Read(Wanted),
    /// Call a tool that changes something
    #[command(
        name = "tool-write",
        after_help = "Examples:
  countersign call tool-write --tool-name=notes:add --mode execute
  countersign call tool-write --tool-name=notes:add --mode plan --json"
    )]
    Write(Wanted),
    /// Call a tool that destroys something
    #[command(
        name = "tool-destructive",
        after_help = "Examples:
  countersign call tool-destructive --tool-name=notes:wipe --mode plan
  countersign call tool-destructive --tool-name=notes:wipe --mode execute"
    )]
    Destructive(Wanted),
}

/// The call.
#[derive(Args, Debug)]
pub(crate) struct Wanted {
    /// The tool's full name
    #[arg(long, value_name = "UPSTREAM:TOOL")]
    tool_name: FullName,

    /// Its arguments, a JSON object
    #[arg(long = "json_args", alias = "json-args", value_name = "JSON")]
    json_args: Option<String>,

    /// Why, for whoever looks at it later
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// How sensitive the data is: public, internal, private or unknown
    #[arg(long, value_name = "LEVEL")]
    sensitivity: Option<Sensitivity>,

    /// What may happen: ask, plan or execute; the configured mode if left out
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,

    /// Go on without being asked, where the caller's own word is enough
    #[arg(long)]
    yes: bool,
}

impl Call {
    /// The dotted path.
    pub(crate) fn path(&self) -> &'static str {
        match self.variant {
            CallCommand::Read(_) => "call.tool-read",
            CallCommand::Write(_) => "call.tool-write",
            CallCommand::Destructive(_) => "call.tool-destructive",
        }
    }

    fn parts(&self) -> (Variant, &Wanted) {
        match &self.variant {
            CallCommand::Read(wanted) => (Variant::Read, wanted),
            CallCommand::Write(wanted) => (Variant::Write, wanted),
            CallCommand::Destructive(wanted) => (Variant::Destructive, wanted),
        }
    }
}

/// Calls it.
pub(crate) fn run(call: &Call, cli: &Cli, voice: Voice) -> Outcome {
    let (variant, wanted) = call.parts();
    let blueprint = Blueprint::read(cli)?;
    blueprint.inhabit(voice, async |house| {
        let principal = Principal {
            id: PrincipalId::new(WHO),
            // Whoever can type a command may be an agent with a shell: people prove themselves where it matters.
            role: Role::Agent,
            credential: None,
            scopes: Scopes { max_mode: blueprint.config.gateway.max_mode, ..Scopes::all() },
            mode_limit: ModeLimit::Gateway,
            session: Some(SessionId::new(SESSION)),
            surface: Surface::Router,
            source: Source::Cli,
        };
        let mut line = line::Line::open(&house, principal, &blueprint.config, voice).await?;
        let asked = wanted.arguments(variant);
        let reply = line.call(variant, &asked).await?;
        match said::read(reply, &wanted.tool_name)? {
            said::Said::Ran(ran) => ran.answer(&wanted.tool_name, voice),
            said::Said::Shown(data, warnings) => Ok(said::shown(data, warnings)),
            said::Said::Refused(refused) => Err(refused.into()),
            said::Said::Asks(plan) => {
                let about = agree::About { house: &house, url: &blueprint.url, wanted, variant, voice };
                about.settle(&mut line, asked, *plan).await
            }
        }
    })
}

impl Wanted {
    /// The arguments of the call tool. Those of the tool itself go along as the text they came as.
    fn arguments(&self, variant: Variant) -> Map<String, Value> {
        let mut intent = Map::from_iter([("operation_type".to_owned(), json!(variant.operation()))]);
        intent.extend(self.sensitivity.map(|level| ("data_sensitivity".to_owned(), json!(level))));
        intent.extend(self.reason.as_ref().map(|reason| ("reason".to_owned(), json!(reason))));
        let mut all = Map::from_iter([
            ("name".to_owned(), json!(self.tool_name.to_string())),
            ("intent".to_owned(), Value::Object(intent)),
            // Whoever typed the command is asked right here: nothing is held open for another rail.
            ("wait_seconds".to_owned(), json!(0)),
        ]);
        all.extend(self.json_args.as_ref().map(|text| ("args_json".to_owned(), json!(text))));
        all.extend(self.mode.map(|mode| ("mode".to_owned(), json!(mode))));
        all
    }
}
