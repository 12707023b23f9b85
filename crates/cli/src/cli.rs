//! The command tree and how it is read. Each command's own arguments live in its file under `commands/`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use crate::answer::{Answer, Outcome, Trouble};
use crate::commands::activity::Activity;
use crate::commands::approve::Approve;
use crate::commands::bench::{self, Bench, Echo};
use crate::commands::call::Call;
use crate::commands::completions::Completions;
use crate::commands::demo::Demo;
use crate::commands::doctor::{self, Doctor};
use crate::commands::grants::Grants;
use crate::commands::init::{self, Init};
use crate::commands::man::Man;
use crate::commands::memory::Memory;
use crate::commands::open::Open;
use crate::commands::pack::{self, Pack};
use crate::commands::plans::Plans;
use crate::commands::policy::Policy;
use crate::commands::reject::Reject;
use crate::commands::serve::Serve;
use crate::commands::token::Token;
use crate::commands::tools::Tools;
use crate::commands::upstreams::Upstreams;
use crate::output::{Format, Verbosity, Voice};
use crate::usage;

/// The whole command line.
#[derive(Parser, Debug)]
#[command(
    name = usage::PROGRAM,
    version,
    about = "Agents draft; a person countersigns",
    long_about = "Countersign sits between agent hosts and everything their agents can change. Agents draft; a person countersigns.",
    after_help = "Exit codes: 0 ok, 1 fault, 2 usage, 3 refused, 4 needs confirmation, 5 stopped by drift.",
    disable_help_subcommand = true,
    propagate_version = false
)]
pub(crate) struct Cli {
    /// Read this configuration; several are merged, later ones win
    ///
    /// Without it: $COUNTERSIGN_CONFIG, then ./countersign.toml, then countersign/countersign.toml in the platform's
    /// folder for configuration.
    #[arg(long, global = true, value_name = "PATH", help_heading = "Everywhere")]
    pub(crate) config: Vec<PathBuf>,

    /// Print exactly one JSON envelope on stdout
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,

    /// When to use colours; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN", help_heading = "Everywhere")]
    pub(crate) color: Color,

    /// Say on stderr what is inside a fault
    #[arg(long, short, global = true, help_heading = "Everywhere")]
    pub(crate) verbose: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// Where a terminal shows them
    #[default]
    Auto,
    /// Also in a pipe
    Always,
    /// Not at all
    Never,
}

/// Every command.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// See it work, in a minute
    #[command(after_help = crate::commands::demo::EXAMPLES)]
    Demo(Demo),
    /// Bring what your hosts have under countersign, and point them at it
    #[command(after_help = init::EXAMPLES)]
    Init(Init),
    /// See whether everything is as it should be, and how to mend it
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(Doctor),
    /// Check, explain and test a configuration
    Policy {
        #[command(subcommand)]
        policy: Policy,
    },
    /// Read, export and verify the ledger
    Activity(Activity),
    /// See what waits for a person, and what became of it
    Plans(Plans),
    /// Look at a plan and agree to it
    #[command(after_help = crate::commands::approve::EXAMPLES)]
    Approve(Approve),
    /// Say no to a plan
    #[command(after_help = crate::commands::reject::EXAMPLES)]
    Reject(Reject),
    /// List and revoke approvals given ahead
    Grants(Grants),
    /// Run one tool through the gateway, here
    Call(Call),
    /// List, search, compare and accept tools
    Tools(Tools),
    /// List, test, add and remove upstreams
    Upstreams(Upstreams),
    /// Make, list and revoke credentials
    Token(Token),
    /// Serve the gateway to agent hosts
    #[command(
        after_help = "Examples:\n  countersign serve\n  countersign serve --http 127.0.0.1:7878\n  countersign serve --surface direct --session work\n\nOTEL_EXPORTER_OTLP_ENDPOINT names an OpenTelemetry collector for traces and metrics (docs/guide/telemetry.md)."
    )]
    Serve(Serve),
    /// Open the desk in your browser, signed in
    #[command(after_help = crate::commands::open::EXAMPLES)]
    Open(Open),
    /// Measure what governing a call costs, against calling directly
    #[command(after_help = bench::EXAMPLES)]
    Bench(Bench),
    /// The echo server `bench` measures
    #[command(hide = true)]
    BenchEcho(Echo),
    /// Deploy agent assets from one repository: plan, confirm, apply, roll back
    #[command(
        after_help = "Examples:\n  countersign pack init --git\n  countersign pack preview --diff\n  countersign pack deploy --apply\n  countersign pack rollback --to initial"
    )]
    Pack(Pack),
    /// What the project knows: agents propose, people decide
    Memory(Memory),
    /// Show which program this is
    #[command(after_help = "Examples:\n  countersign version\n  countersign version --json")]
    Version,
    /// Print a script that completes our commands in your shell
    #[command(
        after_help = "Examples:\n  countersign completions bash > countersign.bash\n  countersign completions zsh > _countersign"
    )]
    Completions(Completions),
    /// Print or write our manual pages
    #[command(after_help = "Examples:\n  countersign man > countersign.1\n  countersign man --out man1")]
    Man(Man),
}

impl Command {
    /// The dotted path of the command, as envelopes name it.
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Command::Init(_) => "init",
            Command::Doctor(_) => "doctor",
            Command::Policy { policy } => policy.path(),
            Command::Activity(activity) => activity.path(),
            Command::Plans(plans) => plans.path(),
            Command::Approve(_) => "approve",
            Command::Reject(_) => "reject",
            Command::Grants(grants) => grants.path(),
            Command::Call(call) => call.path(),
            Command::Tools(tools) => tools.path(),
            Command::Upstreams(upstreams) => upstreams.path(),
            Command::Token(token) => token.path(),
            Command::Serve(_) => "serve",
            Command::Open(_) => "open",
            Command::Demo(_) => "demo",
            Command::Bench(_) => "bench",
            Command::BenchEcho(_) => "bench-echo",
            Command::Pack(pack) => pack.name().command,
            Command::Memory(memory) => memory.path(),
            Command::Version => "version",
            Command::Completions(_) => "completions",
            Command::Man(_) => "man",
        }
    }
}

/// A command line that leads to no command: a mistake, or a question about the program itself.
pub(crate) struct NotRead {
    /// How to answer.
    pub(crate) voice: Voice,
    /// The commands that were understood, dotted.
    pub(crate) path: String,
    /// The help asked for, or what is wrong.
    pub(crate) result: Outcome,
}

/// Reads the arguments.
pub(crate) fn read(arguments: &[OsString]) -> Result<Cli, Box<NotRead>> {
    let mut tree = Cli::command();
    let matches = tree.try_get_matches_from_mut(arguments);
    matches.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches)).map_err(|error| {
        let hasty = Hasty::of(&tree, arguments);
        let words = hasty.words.clone();
        let (called, below) = match words.split_first() {
            // Its first word was put in for whoever calls the program by the pack's own name.
            Some((_, below)) if pack::is_alias(arguments) => (pack::ALIAS, below),
            _ => (usage::PROGRAM, &*words),
        };
        let path = if below.is_empty() { called.to_owned() } else { below.join(".") };
        let result = answer(&error, &tree, &hasty);
        let result = if pack::is_alias(arguments) { in_its_own_name(result) } else { result };
        Box::new(NotRead { voice: hasty.voice(), path, result })
    })
}

/// Help and mistakes as those read them who call the program by the pack's own name.
fn in_its_own_name(result: Outcome) -> Outcome {
    match result {
        Ok(mut answer) => {
            answer.text = pack::by_alias(&answer.text);
            if let Some(serde_json::Value::String(help)) = answer.data.get_mut("help") {
                *help = pack::by_alias(help);
            }
            Ok(answer)
        }
        Err(Trouble::Usage(mut usage)) => {
            usage.message = pack::by_alias(&usage.message);
            usage.next = pack::by_alias(&usage.next);
            Err(Trouble::Usage(usage))
        }
        Err(trouble) => Err(trouble),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "clap's kinds are open-ended; all others are mistakes")]
fn answer(error: &clap::Error, tree: &clap::Command, hasty: &Hasty) -> Outcome {
    let text = error.render();
    let help = |text: &clap::builder::StyledStr| {
        Ok(Answer::text(text.ansi().to_string()).with("help", text.to_string()))
    };
    match error.kind() {
        ErrorKind::DisplayHelp => help(&text),
        ErrorKind::DisplayVersion => crate::commands::version::run(),
        // Someone who types nothing but the name wants to know what there is.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if hasty.words.is_empty() && hasty.format == Format::Text =>
        {
            help(&text)
        }
        _ => Err(Trouble::Usage(usage::usage(error, tree, &hasty.words))),
    }
}

/// What can be told of arguments that could not be read: which commands they name and who will read the answer.
struct Hasty {
    words: Vec<String>,
    format: Format,
    color: Color,
}

impl Hasty {
    fn of(tree: &clap::Command, arguments: &[OsString]) -> Self {
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

    fn voice(&self) -> Voice {
        Voice::new(self.format, self.color, Verbosity::Outside)
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
