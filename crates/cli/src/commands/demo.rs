//! `countersign demo`: a gateway, its page and an order desk in one process, an agent that works in the terminal, and a person who decides
//! on the page. Stays after the decisions, so that people can look around. Needs no account and no network, and leaves nothing behind.

mod agent;
mod demo_gateway;
mod narrator;
mod proposals;
mod walkthrough;

use std::path::{Path, PathBuf};

use clap::Args;

use self::demo_gateway::DemoGateway;
use self::walkthrough::DemoWalkthrough;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::commands::serve;
use crate::output::{Format, OutputSettings};
use crate::runtime::{Threads, runtime};
use crate::{config_file, environment};

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign demo --hands-off
  countersign demo --hands-off --reject --json

Without --hands-off you decide: the approvals page opens in your browser, or
its address is printed. It stays until Ctrl-C.";

/// What `demo` takes.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Let the person's part be played, too: for a look without a browser, and for CI
    #[arg(long)]
    hands_off: bool,

    /// With --hands-off: the person rejects everything
    #[arg(long, requires = "hands_off")]
    reject: bool,

    /// Print the page's address and open nothing
    #[arg(long)]
    print: bool,

    /// Keep configuration, audit log and orders in this new folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DemoDecider {
    /// The person at this machine; the page is opened in their browser or only named.
    Here { opens: bool },
    /// Nobody: the answer is played.
    Played { agrees: bool },
}

/// Plays it.
pub(crate) fn run(args: &DemoArgs, voice: OutputSettings) -> CommandResult {
    let person = if args.hands_off {
        DemoDecider::Played { agrees: !args.reject }
    } else {
        DemoDecider::Here { opens: !args.print && voice.is_watched() }
    };
    let folder = DemoFolder::make(args.keep.as_deref())?;
    let runtime = runtime(Threads::Workers(2))?;
    let played = runtime.block_on(async {
        let gateway = DemoGateway::set(&folder.folder).await?;
        let played = play(&gateway, voice, person, args.keep.as_deref()).await;
        gateway.strike().await;
        played
    });
    drop(runtime);
    drop(folder);
    played
}

/// Performs it, and stays for a look where a person decides. A signal ends it at any point.
async fn play(
    gateway: &DemoGateway,
    voice: OutputSettings,
    person: DemoDecider,
    keep: Option<&Path>,
) -> CommandResult {
    let walkthrough = DemoWalkthrough::start(gateway, voice, person, keep).await?;
    let mut answer = tokio::select! {
        performed = walkthrough.perform() => performed?,
        () = serve::stopped() => return Ok(Answer::text(walkthrough.close().await)),
    };
    // A program waits for its envelope.
    if matches!(person, DemoDecider::Here { .. }) && voice.format == Format::Text {
        walkthrough.invite_to_look();
        serve::stopped().await;
    }
    answer.text = walkthrough.close().await;
    Ok(answer)
}

fn broken(what: &str, inside: &str) -> CommandError {
    CommandError::fault(what, inside)
}

/// The folder of one performance; gone when it ends unless it is to be kept.
struct DemoFolder {
    folder: PathBuf,
    kept: bool,
}

impl DemoFolder {
    fn make(keep: Option<&Path>) -> Result<Self, CommandError> {
        let folder = match keep {
            Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()),
            None => environment::temporary().join(format!("countersign-demo-{}", uuid::Uuid::new_v4())),
        };
        let cannot = |error: &std::io::Error| {
            let message = format!("can't use `{}`: {}", folder.display(), config_file::why(error));
            CommandError::usage("invalid_value", message, "countersign demo --keep NEW-FOLDER")
        };
        let mut make = std::fs::DirBuilder::new();
        make.recursive(keep.is_some());
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt as _;
            make.mode(0o700);
        }
        make.create(&folder).map_err(|error| cannot(&error))?;
        // Somebody's folder is not written into.
        let empty = std::fs::read_dir(&folder).map_err(|error| cannot(&error))?.next().is_none();
        if !empty {
            let message = format!("`{}` is not empty", folder.display());
            return Err(CommandError::usage("invalid_value", message, "countersign demo --keep NEW-FOLDER"));
        }
        Ok(Self { folder, kept: keep.is_some() })
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        if !self.kept {
            // What can't be removed lies in the system's folder for temporary files.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
