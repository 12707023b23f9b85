//! What the pack's commands take, as people type it, and what each is called in envelopes.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;
use countersign_pack::explain::ExplainKind;
use countersign_pack::manifest::{ModuleType, Scope};
use countersign_pack::overlay::{Layer, OverlayKind};
use countersign_pack::reply::Name;
use countersign_pack::status::DriftKind;

use crate::answer::Trouble;
use crate::output::{Format, Voice};

/// What every command of the pack takes, and the commands.
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Pack {
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
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
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
        scope: Scope,
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
        evolve: Evolve,
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
        overlay: Overlay,
    },
    /// The remote that machines meet at
    Remote {
        #[command(subcommand)]
        remote: Remote,
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
        policy: Policy,
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
        mcp: Mcp,
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
    /// Print a script that completes our commands in your shell
    #[command(after_help = "Examples:\n  countersign pack completions bash")]
    Completions {
        /// The shell to write for
        shell: Shell,
    },
}

/// Bringing edits back.
#[derive(Subcommand, Debug)]
pub(crate) enum Evolve {
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
        scope: Layer,
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
pub(crate) enum Overlay {
    /// Make an overlay, or open the one there is
    #[command(after_help = "Examples:\n  countersign pack overlay edit skill:review --scope machine")]
    Edit {
        /// The module
        #[arg(value_name = "MODULE_ID")]
        id: String,
        /// Where it counts: global, machine or project
        #[arg(long, default_value = "global")]
        scope: Layer,
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
        scope: Layer,
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
        scope: Layer,
    },
}

/// An organisation's rules.
#[derive(Clone, Copy, Subcommand, Debug)]
pub(crate) enum Policy {
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
pub(crate) enum Remote {
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
pub(crate) enum Mcp {
    /// Serve this process's stdin and stdout
    #[command(after_help = "Examples:\n  countersign pack mcp serve")]
    Serve {
        /// Tokens are good in every process that names the same session
        #[arg(long, default_value = "pack", value_name = "NAME")]
        session: String,
    },
}

impl Pack {
    /// What the command is called in its envelope.
    pub(crate) fn name(&self) -> Name {
        match &self.command {
            Command::Init { .. } => Name::new("init", "init"),
            Command::Import { apply: true, .. } => Name::new("import", "import --apply"),
            Command::Import { apply: false, .. } => Name::new("import", "import"),
            Command::Bootstrap { .. } => Name::new("bootstrap", "bootstrap"),
            Command::Snapshots => Name::new("snapshots", "snapshots"),
            Command::Policy { policy: Policy::Lint } => Name::new("policy.lint", "policy lint"),
            Command::Policy { policy: Policy::Audit } => Name::new("policy.audit", "policy audit"),
            Command::Policy { policy: Policy::Lock } => Name::new("policy.lock", "policy lock"),
            Command::Add { .. } => Name::new("add", "add"),
            Command::Remove { .. } => Name::new("remove", "remove"),
            Command::Lock => Name::new("lock", "lock"),
            Command::Fetch => Name::new("fetch", "fetch"),
            Command::Update { .. } => Name::new("update", "update"),
            Command::Preview { .. } => Name::new("preview", "preview"),
            Command::Plan => Name::new("plan", "plan"),
            Command::Diff => Name::new("diff", "diff"),
            Command::Deploy { apply: true, .. } => Name::new("deploy", "deploy --apply"),
            Command::Deploy { apply: false, .. } => Name::new("deploy", "deploy"),
            Command::Status { .. } => Name::new("status", "status"),
            Command::Doctor { fix: true } => Name::new("doctor", "doctor --fix"),
            Command::Doctor { fix: false } => Name::new("doctor", "doctor"),
            Command::Explain { kind: ExplainKind::Plan } => Name::new("explain.plan", "explain plan"),
            Command::Explain { kind: ExplainKind::Diff } => Name::new("explain.diff", "explain diff"),
            Command::Explain { kind: ExplainKind::Status } => Name::new("explain.status", "explain status"),
            Command::Evolve { evolve: Evolve::Propose { .. } } => {
                Name::new("evolve.propose", "evolve propose")
            }
            Command::Evolve { evolve: Evolve::Restore { .. } } => {
                Name::new("evolve.restore", "evolve restore")
            }
            Command::Rollback { .. } => Name::new("rollback", "rollback"),
            Command::Overlay { overlay: Overlay::Edit { .. } } => Name::new("overlay.edit", "overlay edit"),
            Command::Overlay { overlay: Overlay::Rebase { .. } } => {
                Name::new("overlay.rebase", "overlay rebase")
            }
            Command::Overlay { overlay: Overlay::Path { .. } } => Name::new("overlay.path", "overlay path"),
            Command::Remote { remote: Remote::Set { .. } } => Name::new("remote.set", "remote set"),
            Command::Sync { .. } => Name::new("sync", "sync"),
            Command::Record => Name::new("record", "record"),
            Command::Score => Name::new("score", "score"),
            Command::Mcp { .. } => Name::new("mcp.serve", "mcp serve"),
            Command::Help { .. } => Name::new("help", "help"),
            Command::Schema => Name::new("schema", "schema"),
            Command::Completions { .. } => Name::new("completions", "completions"),
        }
    }

    /// Whether it serves agents.
    pub(super) fn serves(&self) -> bool {
        matches!(self.command, Command::Mcp { .. })
    }

    /// A server's stdout is the protocol's: there is no envelope to print.
    pub(super) fn not_with_json(&self, voice: Voice) -> Option<Trouble> {
        (self.serves() && voice.format == Format::Json).then(|| {
            let message = "`mcp serve` speaks MCP on stdout and can't print an envelope there";
            Trouble::usage("argument_conflict", message, "countersign pack mcp serve")
        })
    }
}
