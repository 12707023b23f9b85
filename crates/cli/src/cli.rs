//! The command tree and how it is read. Each command's own arguments live in its file under `commands/`.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use countersign_telemetry::LogFilter;
use countersign_terminal::global_args::{Color, GlobalArgs};

use crate::command_result::{CommandError, CommandResult};
use crate::commands::activity::ActivityArgs;
use crate::commands::approve::Approve;
use crate::commands::bench::{self, BenchArgs, EchoArgs};
use crate::commands::call::CallArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::demo::DemoArgs;
use crate::commands::doctor::{self, DoctorArgs};
use crate::commands::grants::GrantsArgs;
use crate::commands::help::{self, HelpArgs};
use crate::commands::init::{self, InitArgs};
use crate::commands::logs::LogsArgs;
use crate::commands::man::ManPageArgs;
use crate::commands::memory::MemoryArgs;
use crate::commands::open::OpenArgs;
use crate::commands::pack::{self, PackArgs};
use crate::commands::plans::PlansArgs;
use crate::commands::policy::PolicyCommand;
use crate::commands::preview_file::PreviewFileArgs;
use crate::commands::reject::Reject;
use crate::commands::serve::ServeArgs;
use crate::commands::status::StatusArgs;
use crate::commands::token::TokenArgs;
use crate::commands::tools::ToolsArgs;
use crate::commands::upstreams::UpstreamsArgs;
use crate::log::LogFormat;
use crate::output::{Format, OutputSettings, Verbosity};
use crate::usage;

#[derive(Parser, Debug)]
#[command(
    name = usage::PROGRAM,
    version,
    about = "MCP gateway with human approval: agents draft, a person countersigns",
    long_about = "Countersign is an MCP gateway between agent hosts and everything their agents can change. Agents draft changes, a person approves them, and an audit log records every call.",
    after_help = "All commands: countersign help --all\nExit codes: 0 ok, 1 fault, 2 usage, 3 refused, 4 needs confirmation, 5 stopped by drift.",
    disable_help_subcommand = true,
    propagate_version = false
)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: GlobalArgs,

    /// Log level on stderr: error, warn, info, debug or trace, or by module (gateway=debug,mcp=trace)
    ///
    /// Without it: $COUNTERSIGN_LOG. A gateway logs at warn unless asked otherwise, other commands not at all.
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Global options")]
    pub(crate) log: Option<LogFilter>,

    /// The format of log lines
    #[arg(long, global = true, value_enum, value_name = "FORMAT", help_heading = "Global options")]
    pub(crate) log_format: Option<LogFormat>,

    #[command(subcommand)]
    pub(crate) command: Command,

    /// The dotted path of the command, as envelopes name it.
    #[arg(skip)]
    pub(crate) path: String,
}

/// Front ends of their own take the global options only. With this, a `&Cli` is one of them.
impl std::ops::Deref for Cli {
    type Target = GlobalArgs;

    fn deref(&self) -> &GlobalArgs {
        &self.global
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a one-minute demonstration
    #[command(after_help = crate::commands::demo::EXAMPLES)]
    Demo(DemoArgs),
    /// Import the MCP servers of your hosts and point the hosts at the gateway
    #[command(after_help = init::EXAMPLES)]
    Init(InitArgs),
    /// Diagnose the installation and suggest fixes
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(DoctorArgs),
    /// Check, explain, test and simulate the policy
    Policy {
        #[command(subcommand)]
        policy: PolicyCommand,
    },
    /// Read, export and verify the audit log
    Activity(ActivityArgs),
    /// List plans that wait for approval, and what became of others
    Plans(PlansArgs),
    /// Review a plan and approve it
    #[command(after_help = crate::commands::approve::EXAMPLES)]
    Approve(Approve),
    /// Reject a plan
    #[command(after_help = crate::commands::reject::EXAMPLES)]
    Reject(Reject),
    /// List and revoke grants: approvals given ahead
    Grants(GrantsArgs),
    /// Call one tool through the gateway
    Call(CallArgs),
    /// List, search, compare and accept tools
    Tools(ToolsArgs),
    /// List, test, add and remove upstreams
    Upstreams(UpstreamsArgs),
    /// Create, list and revoke credentials
    Token(TokenArgs),
    /// Run the MCP gateway for agent hosts
    #[command(
        after_help = "Examples:\n  countersign serve\n  countersign serve --http 127.0.0.1:7878\n  countersign serve --surface direct --session work\n\nOTEL_EXPORTER_OTLP_ENDPOINT names an OpenTelemetry collector for traces and metrics (docs/guide/telemetry.md)."
    )]
    Serve(ServeArgs),
    /// Show the configuration, the page, pending plans and withheld tools
    #[command(after_help = crate::commands::status::EXAMPLES)]
    Status(StatusArgs),
    /// Show the log of this machine's gateways
    #[command(after_help = crate::commands::logs::EXAMPLES)]
    Logs(LogsArgs),
    /// Open the approval page in your browser, signed in
    #[command(after_help = crate::commands::open::EXAMPLES)]
    Open(OpenArgs),
    /// Measure the overhead of governed calls over direct ones
    #[command(after_help = bench::EXAMPLES)]
    Bench(BenchArgs),
    /// The echo server `bench` measures
    #[command(hide = true)]
    BenchEcho(EchoArgs),
    /// What a call that writes or moves a file would change; for `preview` in rules
    #[command(hide = true)]
    PreviewFile(PreviewFileArgs),
    Pack(PackArgs),
    /// What the project knows: agents propose, people decide
    Memory(MemoryArgs),
    /// Print the version
    #[command(after_help = "Examples:\n  countersign version\n  countersign version --json")]
    Version,
    /// Print a shell completion script
    #[command(
        after_help = "Examples:\n  countersign completions bash > countersign.bash\n  countersign completions zsh > _countersign"
    )]
    Completions(CompletionsArgs),
    /// Print or write manual pages
    #[command(after_help = "Examples:\n  countersign man > countersign.1\n  countersign man --out man1")]
    Man(ManPageArgs),
    /// Show the help of a command, or list every command
    #[command(after_help = "Examples:\n  countersign help --all\n  countersign help policy explain")]
    Help(HelpArgs),
}

/// What `--help` lists, in the order people need it; `help --all` lists the others, too.
const FIRST_COMMANDS: [&str; 8] = ["demo", "init", "doctor", "serve", "open", "plans", "approve", "activity"];

/// The command tree with only the first commands shown. The others are still read.
fn short_tree() -> clap::Command {
    Cli::command().mut_subcommands(|command| {
        match FIRST_COMMANDS.iter().position(|name| *name == command.get_name()) {
            Some(place) => command.display_order(place),
            None => command.hide(true),
        }
    })
}

/// A command line that leads to no command: a mistake, or a question about the program itself.
pub(crate) struct NotRead {
    pub(crate) voice: OutputSettings,
    pub(crate) path: String,
    /// The help asked for, or what is wrong.
    pub(crate) result: CommandResult,
}

pub(crate) fn read(arguments: &[OsString]) -> Result<Cli, Box<NotRead>> {
    let mut tree = short_tree();
    let parsed = tree.try_get_matches_from_mut(arguments).and_then(|mut matches| {
        let path = dotted_path(&matches);
        let mut cli = Cli::from_arg_matches_mut(&mut matches)?;
        cli.path = path;
        if let Command::Pack(pack) = &cli.command {
            cli.path = pack.name().command.to_owned();
        }
        Ok(cli)
    });
    parsed.map_err(|error| {
        let hasty = PartialArgs::parse(&tree, arguments);
        let words = hasty.words.clone();
        let (called, below) = match words.split_first() {
            // `under_alias` inserted the first word for a program called by the pack's own name.
            Some((_, below)) if pack::is_alias(arguments) => (pack::ALIAS, below),
            _ => (usage::PROGRAM, &*words),
        };
        let path = if below.is_empty() { called.to_owned() } else { below.join(".") };
        let result = answer(&error, &hasty);
        let result = if pack::is_alias(arguments) { in_its_own_name(result) } else { result };
        Box::new(NotRead { voice: hasty.voice(), path, result })
    })
}

fn dotted_path(matches: &clap::ArgMatches) -> String {
    let mut names = Vec::new();
    let mut at = matches.subcommand();
    while let Some((name, below)) = at {
        names.push(name);
        at = below.subcommand();
    }
    names.join(".")
}

/// Help and mistakes as those read them who call the program by the pack's own name.
fn in_its_own_name(result: CommandResult) -> CommandResult {
    match result {
        Ok(mut answer) => {
            answer.text = pack::by_alias(&answer.text);
            if let Some(serde_json::Value::String(help)) = answer.data.get_mut("help") {
                *help = pack::by_alias(help);
            }
            Ok(answer)
        }
        Err(CommandError::Usage(mut usage)) => {
            usage.message = pack::by_alias(&usage.message);
            usage.next = pack::by_alias(&usage.next);
            Err(CommandError::Usage(usage))
        }
        Err(trouble) => Err(trouble),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "clap's kinds are open-ended; all others are mistakes")]
fn answer(error: &clap::Error, hasty: &PartialArgs) -> CommandResult {
    let text = error.render();
    match error.kind() {
        ErrorKind::DisplayHelp => Ok(help::answer(&text)),
        ErrorKind::DisplayVersion => crate::commands::version::run(),
        // Someone who types nothing but the name wants to know what there is.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if hasty.words.is_empty() && hasty.format == Format::Text =>
        {
            Ok(help::answer(&text))
        }
        // The whole tree: a command that the short help leaves out may be meant, too.
        _ => Err(CommandError::Usage(usage::usage(error, &Cli::command(), &hasty.words))),
    }
}

/// What can be told of arguments that could not be read: which commands they name and who will read the answer.
struct PartialArgs {
    words: Vec<String>,
    format: Format,
    color: Color,
}

impl PartialArgs {
    fn parse(tree: &clap::Command, arguments: &[OsString]) -> Self {
        let mut hasty = Self { words: Vec::new(), format: Format::Text, color: Color::Auto };
        let mut at = tree;
        let mut rest = arguments.iter().skip(1).map(|argument| argument.to_string_lossy());
        while let Some(argument) = rest.next() {
            if argument == "--" {
                break;
            }
            if let Some(option) = argument.strip_prefix("--") {
                let (name, mut value) = match option.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (option, None),
                };
                // Its value may look like a command, and is none.
                if value.is_none() && takes_value(tree, at, name) {
                    value = rest.next().map(|value| value.into_owned());
                }
                match (name, value) {
                    ("json", None) => hasty.format = Format::Json,
                    ("color", Some(value)) => hasty.color = Color::from_str(&value, true).unwrap_or_default(),
                    _ => {}
                }
            } else if let Some(next) = at.find_subcommand(argument.as_ref()) {
                hasty.words.push(next.get_name().to_owned());
                at = next;
            }
        }
        hasty
    }

    fn voice(&self) -> OutputSettings {
        OutputSettings::new(self.format, self.color, Verbosity::Outside)
    }
}

fn takes_value(tree: &clap::Command, at: &clap::Command, name: &str) -> bool {
    let named = |command: &clap::Command| {
        command
            .get_arguments()
            .find(|arg| arg.get_long() == Some(name))
            .map(|arg| arg.get_action().takes_values())
    };
    named(at).or_else(|| named(tree)).unwrap_or(false)
}
