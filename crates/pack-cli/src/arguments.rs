//! Arguments of the pack's commands, and the name of each command in envelopes.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;
use countersign_pack::explain::ExplainKind;
use countersign_pack::manifest::{ModuleType, TargetScope};
use countersign_pack::overlay::{OverlayKind, OverlayLayer};
use countersign_pack::reply::CommandName;
use countersign_pack::status::DriftKind;
use countersign_terminal::command_result::CommandError;
use countersign_terminal::output::{Format, OutputSettings};

/// What every command of the pack takes, and the commands.
#[derive(Args, Debug)]
#[command(
    disable_help_subcommand = true,
    about = "Deploy agent assets from one repository: plan, confirm, apply, roll back",
    after_help = "Examples:\n  countersign pack init --git\n  countersign pack preview --diff\n  countersign pack deploy --apply\n  countersign pack rollback --to initial"
)]
pub struct PackArgs {
    /// The config repo; without it, $AGENTPACK_HOME/repo
    #[arg(long, global = true, value_name = "PATH", help_heading = "Agent assets")]
    pub(crate) repo: Option<PathBuf>,

    /// The profile whose modules are meant
    #[arg(
        long,
        global = true,
        default_value = "default",
        value_name = "NAME",
        help_heading = "Agent assets"
    )]
    pub(crate) profile: String,

    /// One target, or all of them
    #[arg(long, global = true, default_value = "all", value_name = "TARGET", help_heading = "Agent assets")]
    pub(crate) target: String,

    /// The machine whose overlays count; without it, this one
    #[arg(long, global = true, value_name = "ID", help_heading = "Agent assets")]
    pub(crate) machine: Option<String>,

    /// Say yes to the change
    #[arg(long, short, global = true, help_heading = "Agent assets")]
    pub(crate) yes: bool,

    /// Do everything but write
    #[arg(long, global = true, help_heading = "Agent assets")]
    pub(crate) dry_run: bool,

    #[command(subcommand)]
    pub(crate) command: PackCommand,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum PackCommand {
    /// Make a config repo
    #[command(after_help = "Examples:\n  countersign pack init --git\n  countersign pack init --guided")]
    Init {
        /// Make it a git repository as well
        #[arg(long)]
        git: bool,
        /// Ask which targets it is for; needs a terminal
        #[arg(long)]
        guided: bool,
        /// Put operator assets into it
        #[arg(long)]
        bootstrap: bool,
    },
    /// Make modules of what you already have in your home and this project
    #[command(after_help = "Examples:\n  countersign pack import\n  countersign pack import --apply --yes")]
    Import {
        /// Do it
        #[arg(long)]
        apply: bool,
        /// The home folder to look in; without it, yours
        #[arg(long, value_name = "PATH")]
        home_root: Option<PathBuf>,
    },
    /// Add a module to the manifest
    #[command(after_help = "Examples:\n  countersign pack add skill local:skills/review --tags base")]
    Add {
        /// What it is: instructions, skill, prompt or command
        #[arg(value_name = "TYPE")]
        kind: ModuleType,
        /// Where it comes from: local:PATH or git:URL[#ref=…&subdir=…]
        source: String,
        /// Its id; without it, type and file name
        #[arg(long)]
        id: Option<String>,
        /// Its tags
        #[arg(long, value_delimiter = ',')]
        tags: Vec<String>,
        /// The targets it goes to; without them, all
        #[arg(long, value_delimiter = ',')]
        targets: Vec<String>,
    },
    /// Remove a module from the manifest
    #[command(after_help = "Examples:\n  countersign pack remove skill:review")]
    Remove {
        /// Its id
        #[arg(value_name = "MODULE_ID")]
        id: String,
    },
    /// Pin every module to what it is now
    #[command(after_help = "Examples:\n  countersign pack lock")]
    Lock,
    /// Fetch what the lockfile pins, and check it
    #[command(after_help = "Examples:\n  countersign pack fetch")]
    Fetch,
    /// Lock where there is no lockfile, then fetch
    #[command(after_help = "Examples:\n  countersign pack update")]
    Update {
        /// Lock in any case
        #[arg(long, conflicts_with = "no_lock")]
        lock: bool,
        /// Do not lock
        #[arg(long)]
        no_lock: bool,
        /// Fetch in any case
        #[arg(long, conflicts_with = "no_fetch")]
        fetch: bool,
        /// Do not fetch
        #[arg(long)]
        no_fetch: bool,
    },
    /// Show what would change
    #[command(after_help = "Examples:\n  countersign pack preview --diff")]
    Preview {
        /// And how, line by line
        #[arg(long)]
        diff: bool,
    },
    /// Show which files would be created, updated or deleted
    #[command(
        after_help = "Examples:\n  countersign pack plan\n  countersign pack plan --target codex --json"
    )]
    Plan,
    /// Show how files would change, line by line
    #[command(after_help = "Examples:\n  countersign pack diff --target claude_code")]
    Diff,
    /// Show what deploying would do, or do it with --apply
    #[command(after_help = "Examples:\n  countersign pack deploy\n  countersign pack deploy --apply --yes")]
    Deploy {
        /// Do it
        #[arg(long)]
        apply: bool,
        /// Overwrite files that are there and not managed; they are backed up
        #[arg(long)]
        adopt: bool,
    },
    /// Show what on disk differs from what was deployed
    #[command(after_help = "Examples:\n  countersign pack status --only modified,missing")]
    Status {
        /// Only these kinds: missing, modified, extra
        #[arg(long, value_delimiter = ',')]
        only: Vec<DriftKind>,
    },
    /// Install what teaches agents to use this: a skill and slash commands
    #[command(
        after_help = "Examples:\n  countersign pack bootstrap --dry-run\n  countersign pack bootstrap --scope project --yes"
    )]
    Bootstrap {
        /// Where: user, project or both
        #[arg(long, default_value = "both")]
        scope: TargetScope,
        /// Overwrite files that are there and not managed; they are backed up
        #[arg(long)]
        adopt: bool,
    },
    /// Check the folders things are deployed to
    #[command(after_help = "Examples:\n  countersign pack doctor")]
    Doctor {
        /// Add the line to .gitignore that keeps manifests out of commits
        #[arg(long)]
        fix: bool,
    },
    /// Say which modules and overlays are behind a change or a drift
    #[command(after_help = "Examples:\n  countersign pack explain plan")]
    Explain {
        /// What to explain: plan, diff or status
        kind: ExplainKind,
    },
    /// Bring edits of deployed files back
    Evolve {
        #[command(subcommand)]
        evolve: EvolveCommand,
    },
    /// Go back to what was deployed before
    #[command(after_help = "Examples:\n  countersign pack rollback --to initial --yes")]
    Rollback {
        /// A snapshot's id, or `initial` for the state before the first deployment
        #[arg(long, value_name = "ID")]
        to: String,
    },
    /// List what one can go back to, newest first
    #[command(after_help = "Examples:\n  countersign pack snapshots")]
    Snapshots,
    /// Change a module in a way that outlives its updates
    Overlay {
        #[command(subcommand)]
        overlay: OverlayCommand,
    },
    /// The remote that machines meet at
    Remote {
        #[command(subcommand)]
        remote: RemoteCommand,
    },
    /// Pull and push the config repo
    #[command(after_help = "Examples:\n  countersign pack sync --rebase")]
    Sync {
        /// Put our commits on top of theirs
        #[arg(long)]
        rebase: bool,
        /// The remote's name
        #[arg(long, default_value = "origin")]
        remote: String,
    },
    /// Hold the config repo to an organisation's rules, agentpack.org.yaml
    Policy {
        #[command(subcommand)]
        policy: PackPolicyCommand,
    },
    /// Note how a module did: one JSON object on stdin
    #[command(after_help = "Examples:\n  countersign pack record < event.json")]
    Record,
    /// Show how often modules failed
    #[command(after_help = "Examples:\n  countersign pack score")]
    Score,
    /// Serve the pack to agents
    Mcp {
        #[command(subcommand)]
        mcp: PackMcpCommand,
    },
    /// Show the commands, for people or for programs
    #[command(after_help = "Examples:\n  countersign pack help --markdown")]
    Help {
        /// As Markdown
        #[arg(long)]
        markdown: bool,
    },
    /// Show the shape of what --json prints
    #[command(after_help = "Examples:\n  countersign pack schema")]
    Schema,
    /// Print a shell completion script
    #[command(after_help = "Examples:\n  countersign pack completions bash")]
    Completions {
        /// The shell to write for
        shell: Shell,
    },
}

/// Bringing edits back.
#[derive(Subcommand, Debug)]
pub(crate) enum EvolveCommand {
    /// Commit edits of deployed files as overlays on a branch
    #[command(
        after_help = "Examples:\n  countersign pack evolve propose --dry-run\n  countersign pack evolve propose --module-id skill:review --yes"
    )]
    Propose {
        /// Only edits of this module
        #[arg(long, value_name = "ID")]
        module_id: Option<String>,
        /// The scope of the overlays: global, machine or project
        #[arg(long, default_value = "global")]
        scope: OverlayLayer,
        /// The branch's name
        #[arg(long)]
        branch: Option<String>,
    },
    /// Create files again that are missing
    #[command(after_help = "Examples:\n  countersign pack evolve restore --dry-run")]
    Restore {
        /// Only files of this module
        #[arg(long, value_name = "ID")]
        module_id: Option<String>,
    },
}

/// Overlays.
#[derive(Subcommand, Debug)]
pub(crate) enum OverlayCommand {
    /// Make an overlay, or open the one there is
    #[command(after_help = "Examples:\n  countersign pack overlay edit skill:review --scope machine")]
    Edit {
        /// The module
        #[arg(value_name = "MODULE_ID")]
        id: String,
        /// Where it counts: global, machine or project
        #[arg(long, default_value = "global")]
        scope: OverlayLayer,
        /// How it is kept: dir or patch
        #[arg(long, default_value = "dir")]
        kind: OverlayKind,
        /// Start without the module's files
        #[arg(long, conflicts_with = "materialize")]
        sparse: bool,
        /// Copy the files it lacks
        #[arg(long)]
        materialize: bool,
        /// The old way to say --scope project
        #[arg(long, hide = true, conflicts_with = "scope")]
        project: bool,
    },
    /// Merge a module's news into its overlay
    #[command(after_help = "Examples:\n  countersign pack overlay rebase skill:review")]
    Rebase {
        /// The module
        #[arg(value_name = "MODULE_ID")]
        id: String,
        /// Where it counts: global, machine or project
        #[arg(long, default_value = "global")]
        scope: OverlayLayer,
        /// Drop files that equal the module's afterwards
        #[arg(long)]
        sparsify: bool,
    },
    /// Print where an overlay is
    #[command(after_help = "Examples:\n  countersign pack overlay path skill:review")]
    Path {
        /// The module
        #[arg(value_name = "MODULE_ID")]
        id: String,
        /// Where it counts: global, machine or project
        #[arg(long, default_value = "global")]
        scope: OverlayLayer,
    },
}

/// An organisation's rules.
#[derive(Clone, Copy, Subcommand, Debug)]
pub(crate) enum PackPolicyCommand {
    /// Check skills, commands and sources; what breaks a rule is refused
    #[command(after_help = "Examples:\n  countersign pack policy lint --repo . --json")]
    Lint,
    /// Report where every module comes from, by the lockfile
    #[command(after_help = "Examples:\n  countersign pack policy audit --json")]
    Audit,
    /// Pin the policy pack to what it is now
    #[command(after_help = "Examples:\n  countersign pack policy lock")]
    Lock,
}

/// The remote.
#[derive(Subcommand, Debug)]
pub(crate) enum RemoteCommand {
    /// Set it
    #[command(after_help = "Examples:\n  countersign pack remote set git@example.com:team/agents.git")]
    Set {
        /// Where it is
        url: String,
        /// What it is called
        #[arg(long, default_value = "origin")]
        name: String,
    },
}

/// Serving.
#[derive(Subcommand, Debug)]
pub(crate) enum PackMcpCommand {
    /// Serve this process's stdin and stdout
    #[command(after_help = "Examples:\n  countersign pack mcp serve")]
    Serve {
        /// Tokens are good in every process that names the same session
        #[arg(long, default_value = "pack", value_name = "NAME")]
        session: String,
    },
}

impl PackArgs {
    /// What the command is called in its envelope.
    pub fn name(&self) -> CommandName {
        match &self.command {
            PackCommand::Init { .. } => CommandName::new("init", "init"),
            PackCommand::Import { apply: true, .. } if !self.dry_run => {
                CommandName::new("import", "import --apply")
            }
            PackCommand::Import { .. } => CommandName::new("import", "import"),
            PackCommand::Bootstrap { .. } => CommandName::new("bootstrap", "bootstrap"),
            PackCommand::Snapshots => CommandName::new("snapshots", "snapshots"),
            PackCommand::Policy { policy: PackPolicyCommand::Lint } => {
                CommandName::new("policy.lint", "policy lint")
            }
            PackCommand::Policy { policy: PackPolicyCommand::Audit } => {
                CommandName::new("policy.audit", "policy audit")
            }
            PackCommand::Policy { policy: PackPolicyCommand::Lock } => {
                CommandName::new("policy.lock", "policy lock")
            }
            PackCommand::Add { .. } => CommandName::new("add", "add"),
            PackCommand::Remove { .. } => CommandName::new("remove", "remove"),
            PackCommand::Lock => CommandName::new("lock", "lock"),
            PackCommand::Fetch => CommandName::new("fetch", "fetch"),
            PackCommand::Update { .. } => CommandName::new("update", "update"),
            PackCommand::Preview { .. } => CommandName::new("preview", "preview"),
            PackCommand::Plan => CommandName::new("plan", "plan"),
            PackCommand::Diff => CommandName::new("diff", "diff"),
            PackCommand::Deploy { apply: true, .. } if !self.dry_run => {
                CommandName::new("deploy", "deploy --apply")
            }
            PackCommand::Deploy { .. } => CommandName::new("deploy", "deploy"),
            PackCommand::Status { .. } => CommandName::new("status", "status"),
            PackCommand::Doctor { fix: true } => CommandName::new("doctor", "doctor --fix"),
            PackCommand::Doctor { fix: false } => CommandName::new("doctor", "doctor"),
            PackCommand::Explain { kind: ExplainKind::Plan } => {
                CommandName::new("explain.plan", "explain plan")
            }
            PackCommand::Explain { kind: ExplainKind::Diff } => {
                CommandName::new("explain.diff", "explain diff")
            }
            PackCommand::Explain { kind: ExplainKind::Status } => {
                CommandName::new("explain.status", "explain status")
            }
            PackCommand::Evolve { evolve: EvolveCommand::Propose { .. } } => {
                CommandName::new("evolve.propose", "evolve propose")
            }
            PackCommand::Evolve { evolve: EvolveCommand::Restore { .. } } => {
                CommandName::new("evolve.restore", "evolve restore")
            }
            PackCommand::Rollback { .. } => CommandName::new("rollback", "rollback"),
            PackCommand::Overlay { overlay: OverlayCommand::Edit { .. } } => {
                CommandName::new("overlay.edit", "overlay edit")
            }
            PackCommand::Overlay { overlay: OverlayCommand::Rebase { .. } } => {
                CommandName::new("overlay.rebase", "overlay rebase")
            }
            PackCommand::Overlay { overlay: OverlayCommand::Path { .. } } => {
                CommandName::new("overlay.path", "overlay path")
            }
            PackCommand::Remote { remote: RemoteCommand::Set { .. } } => {
                CommandName::new("remote.set", "remote set")
            }
            PackCommand::Sync { .. } => CommandName::new("sync", "sync"),
            PackCommand::Record => CommandName::new("record", "record"),
            PackCommand::Score => CommandName::new("score", "score"),
            PackCommand::Mcp { .. } => CommandName::new("mcp.serve", "mcp serve"),
            PackCommand::Help { .. } => CommandName::new("help", "help"),
            PackCommand::Schema => CommandName::new("schema", "schema"),
            PackCommand::Completions { .. } => CommandName::new("completions", "completions"),
        }
    }

    /// Whether it serves agents.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.command, PackCommand::Mcp { .. })
    }

    /// A server's stdout is the protocol's: there is no envelope to print.
    pub(crate) fn not_with_json(&self, voice: OutputSettings) -> Option<CommandError> {
        (self.serves() && voice.format == Format::Json).then(|| {
            let message = "`mcp serve` speaks MCP on stdout and can't print an envelope there";
            CommandError::usage("argument_conflict", message, "countersign pack mcp serve")
        })
    }
}
