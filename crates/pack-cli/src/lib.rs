//! `countersign pack`, and the program under the name `agentpack`: agent assets from one repository. Reads the flags, asks before a
//! change, prints. What is planned, refused and written is decided in `countersign-pack`.

mod arguments;
mod assets;
mod command_runner;
mod guide;
mod mcp;
mod registry;
mod repo;
mod show;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign_pack::error::{PackError, UNEXPECTED};
use countersign_pack::place::{PackEnvironment, machine_id};
use countersign_pack::reply::{CommandName, PackCommandReply, envelope};
use countersign_pack::server::TOKEN_LIFE;
use countersign_policy::refusal::Refusal;
use countersign_terminal::command_result::{Answer, CommandError, Refused, Usage};
use countersign_terminal::config_file;
use countersign_terminal::environment;
use countersign_terminal::exit::Exit;
use countersign_terminal::global_args::GlobalArgs;
use countersign_terminal::output::{self, BAD, Format, OutputSettings, paint};

pub use arguments::PackArgs;

/// The name under which the whole program is the pack.
pub const ALIAS: &str = "agentpack";

/// What a command gives back: text for people and the same for programs.
type PackCommandResult = Result<(String, PackCommandReply), PackError>;

/// Runs one of the pack's commands and prints what it answers.
pub fn run(pack: &PackArgs, cli: &GlobalArgs, voice: OutputSettings) -> Exit {
    let name = pack.name();
    if let Some(refused) = pack.not_with_json(voice) {
        return output::finish(voice, name.command, Err(refused));
    }
    let life = match token_life(pack, cli, voice) {
        Ok(life) => life,
        Err(trouble) => return output::finish(voice, name.command, Err(trouble)),
    };
    let told = match place(pack.repo.as_deref(), pack.machine.as_deref()) {
        Ok(place) => command_runner::act(pack, &place, life, voice),
        Err(usage) => return output::finish(voice, name.command, Err(CommandError::Usage(usage))),
    };
    finish(name, told, voice)
}

/// How long tokens live: what the configuration says, for the one command that gives some out. A file that was named must be readable;
/// one that merely lies around need not be.
fn token_life(pack: &PackArgs, cli: &GlobalArgs, voice: OutputSettings) -> Result<Duration, CommandError> {
    if !pack.serves() {
        return Ok(TOKEN_LIFE);
    }
    let named = !cli.config.is_empty() || environment::path("COUNTERSIGN_CONFIG").is_some();
    match config_file::find(&cli.config).and_then(|files| files.map(|files| files.parse()).transpose()) {
        Ok(config) => Ok(config.map_or(TOKEN_LIFE, |config| config.confirm.ttl)),
        Err(trouble) if named => Err(trouble),
        Err(_) => {
            voice.tell(
                "the configuration here can't be used, and tokens live 5 minutes: countersign policy check\n",
            );
            Ok(TOKEN_LIFE)
        }
    }
}

fn finish(name: CommandName, told: PackCommandResult, voice: OutputSettings) -> Exit {
    match (voice.format, told) {
        (Format::Json, told) => {
            let exit = exit(&told);
            let value = envelope(name, told.map(|(_, reply)| reply)).to_value();
            let text =
                if std::io::stdout().is_terminal() { format!("{value:#}\n") } else { format!("{value}\n") };
            match voice.give(&text) {
                Ok(()) => exit,
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit,
                Err(_) => Exit::Fault,
            }
        }
        (Format::Text, Ok((text, reply))) => output::finish(
            voice,
            name.command,
            Ok(Answer { text, data: reply.data, warnings: reply.warnings, ..Answer::default() }),
        ),
        (Format::Text, Err(PackError::Refused(refusal))) => {
            let next = next_line(&refusal);
            let refused = Refused { next, reasons: show::facts(&refusal), ..Refused::from(*refusal) };
            output::finish(voice, name.command, Err(refused.into()))
        }
        (Format::Text, Err(PackError::Broken(broken))) => {
            voice.tell(&format!("{} {broken}\n", paint(BAD, format_args!("fault {UNEXPECTED}:"))));
            Exit::Fault
        }
    }
}

fn exit(told: &PackCommandResult) -> Exit {
    match told {
        Ok(_) => Exit::Ok,
        Err(PackError::Refused(refusal)) => countersign_terminal::exit::exit_for(refusal),
        Err(PackError::Broken(_)) => Exit::Fault,
    }
}

/// What a person types next, for the refusals that have such a thing.
fn next_line(refusal: &Refusal) -> Option<String> {
    let next = refusal.next_actions.first()?;
    let line = match next.as_str() {
        "retry_with_yes" => "the same with --yes",
        "retry_with_adopt" => "the same with --adopt; what is overwritten is backed up first",
        "call_deploy" | "run_preview" => "countersign pack preview --diff",
        "run_init" => "countersign pack init",
        "run_lock" | "regenerate_lockfile" => "countersign pack lock",
        "init_git_repo" => "git init",
        "commit_or_stash" => "git commit, or git stash",
        "run_overlay_edit" => "countersign pack overlay edit MODULE_ID",
        "fix_config" => "mend the file that is named",
        "list_snapshots" => "countersign pack snapshots",
        "resolve_import_conflict" => "move away what is in the way, then import again",
        "fix_policy_violations" => "mend what is named above",
        "create_policy_config" | "fix_policy_config" => "write agentpack.org.yaml in the config repo",
        "retry_in_tty" => "the same in a terminal, or without --guided",
        "set_git_remote" => "countersign pack remote set URL",
        _ => return None,
    };
    Some(line.to_owned())
}

/// Where everything is, from what was said and the environment.
pub fn place(repo: Option<&Path>, machine: Option<&str>) -> Result<PackEnvironment, Usage> {
    let missing = |what: &str, next: &str| Usage {
        message: format!("{what} is not known"),
        reason_code: "environment_missing",
        next: next.to_owned(),
    };
    let home = environment::home();
    let home = home.ok_or_else(|| missing("your home folder", "set HOME"))?;
    let cwd = environment::working_folder()
        .map_err(|_| missing("the working folder", "change to a folder that exists"))?;
    let pack_home =
        environment::path("AGENTPACK_HOME").map_or_else(|| home.join(".agentpack"), |path| cwd.join(path));
    let repo = match repo {
        Some(path) => cwd.join(path),
        None => pack_home.join("repo"),
    };
    let machine = machine
        .map(str::to_owned)
        .or_else(|| environment::variable("AGENTPACK_MACHINE_ID"))
        .unwrap_or_else(host_name);
    Ok(PackEnvironment {
        machine: machine_id(&machine),
        codex_home: environment::path("CODEX_HOME").map(|path| cwd.join(path)),
        variables: environment::all(),
        home,
        pack_home,
        repo,
        cwd,
    })
}

fn host_name() -> String {
    let named = environment::variable("HOSTNAME").or_else(|| environment::variable("COMPUTERNAME"));
    let asked = || {
        std::process::Command::new("hostname")
            .output()
            .ok()
            .map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
    };
    named.or_else(asked).unwrap_or_default()
}

/// The program's arguments with `pack` put in, where it was called by the pack's own name.
pub fn under_alias(mut arguments: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    let about_itself = arguments.get(1).is_some_and(|first| first == "--version" || first == "-V");
    if is_alias(&arguments) && !about_itself {
        arguments.insert(1, "pack".into());
    }
    arguments
}

/// Whether the program was called by the pack's own name.
pub fn is_alias(arguments: &[std::ffi::OsString]) -> bool {
    let called = arguments.first().map(PathBuf::from);
    called.as_deref().and_then(Path::file_stem).is_some_and(|stem| stem == ALIAS)
}

/// Text about the program as those read it who call it by the pack's own name.
pub fn by_alias(text: &str) -> String {
    let text = text.replace("agentpack pack", ALIAS).replace("countersign pack", ALIAS);
    // `--version` begins with the name.
    match text.strip_prefix("countersign ") {
        Some(rest) => format!("{ALIAS} {rest}"),
        None => text,
    }
}

/// Asks a person at a terminal; only `y` and `yes` are a yes.
fn prompt_yes_no(voice: OutputSettings, question: &str) -> bool {
    voice.tell(&format!("{question} [y/N] "));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).is_ok()
        && matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}
