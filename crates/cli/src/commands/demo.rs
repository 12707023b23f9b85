//! `countersign demo`: a minute of what this is for. A gateway, a desk and an order desk in one process, an agent that works in the
//! terminal, and a person who decides on the page. No account, no network, nothing left behind.

mod agent;
mod play;
mod stage;

use std::path::{Path, PathBuf};

use clap::Args;
use countersign_core::refusal::{Code, Refusal};

use self::play::Play;
use self::stage::Stage;
use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::commands::serve;
use crate::output::Voice;
use crate::{config_file, environment};

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign demo --hands-off
  countersign demo --hands-off --reject --json

Without --hands-off you decide: the desk opens in your browser, or its
address is printed.";

/// What `demo` takes.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Let the person's part be played, too: for a look without a browser, and for CI
    #[arg(long)]
    hands_off: bool,

    /// With --hands-off: the person says no
    #[arg(long, requires = "hands_off")]
    reject: bool,

    /// Print the desk's address and open nothing
    #[arg(long)]
    print: bool,

    /// Keep configuration, ledger and orders in this new folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Person {
    /// Whoever sits here; the desk is opened in their browser or only named.
    Here { opens: bool },
    /// Nobody: the answer is played.
    Played { agrees: bool },
}

/// Plays it.
pub(crate) fn run(args: &Demo, voice: Voice) -> Outcome {
    let person = if args.hands_off {
        Person::Played { agrees: !args.reject }
    } else {
        Person::Here { opens: !args.print && voice.is_watched() }
    };
    let room = Room::make(args.keep.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| broken("the runtime can't be started", &error.to_string()))?;
    let played = runtime.block_on(async {
        let stage = Stage::set(&room.folder).await?;
        let play = Play::new(&stage, voice, person, args.keep.as_deref());
        let played = tokio::select! {
            played = play.perform() => played,
            () = serve::stopped() => Ok(Answer::text("\nstopped\n")),
        };
        stage.strike().await;
        played
    });
    drop(runtime);
    drop(room);
    played
}

fn broken(what: &str, inside: &str) -> Trouble {
    let refusal = Refusal::new(Code::StoreUnavailable, what.to_owned());
    Refused { inside: Some(inside.to_owned()), ..refusal.into() }.into()
}

/// The folder of one performance; gone when it ends unless it is to be kept.
struct Room {
    folder: PathBuf,
    kept: bool,
}

impl Room {
    fn make(keep: Option<&Path>) -> Result<Self, Trouble> {
        let folder = match keep {
            Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()),
            None => environment::temporary().join(format!("countersign-demo-{}", uuid::Uuid::new_v4())),
        };
        let cannot = |error: &std::io::Error| {
            let message = format!("can't use `{}`: {}", folder.display(), config_file::why(error));
            Trouble::usage("invalid_value", message, "countersign demo --keep NEW-FOLDER")
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
            return Err(Trouble::usage("invalid_value", message, "countersign demo --keep NEW-FOLDER"));
        }
        Ok(Self { folder, kept: keep.is_some() })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.kept {
            // What can't be removed lies in the system's folder for temporary files.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
