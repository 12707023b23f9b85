//! `countersign logs`: the log that gateways of this machine keep. What they decided is in `activity`, which is complete and signed;
//! the log says how they did.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::json;

use crate::command_result::{Answer, CommandError, CommandResult};
use crate::log;
use crate::output::{OutputSettings, visible};
use crate::runtime::{Threads, runtime};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign logs
  countersign logs --lines 200 --json";

/// How often a log that is followed is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How much of the end of a log is read at once.
const LONGEST_TAIL: u64 = 1 << 20;

#[derive(Args, Debug)]
pub(crate) struct LogsArgs {
    /// How many lines, at most 10000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    lines: u64,

    /// Go on with new lines until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    follow: bool,

    /// Another log, as `serve --log-file` wrote it
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &LogsArgs, voice: OutputSettings) -> CommandResult {
    let path = match (&args.file, log::usual_file().filter(|path| path.exists())) {
        (Some(named), _) => named.clone(),
        (None, Some(usual)) => usual,
        (None, None) => {
            let nothing = "no gateway has kept a log here yet".to_owned();
            let answer = Answer::default().with("file", json!(null)).with("lines", json!([]));
            return Ok(Answer { warnings: vec![nothing], ..answer });
        }
    };
    let unreadable = |error: io::Error| {
        let message = format!("can't read `{}`: {}", path.display(), crate::config_file::why(&error));
        CommandError::refused(Refusal::new(Code::NotFound, message), "countersign logs --file PATH")
    };
    let mut tail = LogTail::open(&path).map_err(unreadable)?;
    let text = tail.read_new().map_err(unreadable)?;
    let all: Vec<&str> = text.lines().collect();
    let most = usize::try_from(args.lines).unwrap_or(usize::MAX);
    let lines = all.get(all.len().saturating_sub(most)..).unwrap_or_default();
    if !args.follow {
        let data = Answer::text(safe_lines(lines)).with("file", path.display().to_string());
        return Ok(data.with("lines", json!(lines)));
    }
    let say = |lines: &[&str]| match voice.say(&safe_lines(lines)) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::Output(format!("can't write the log: {error}")))
        }
        said => Ok(said.is_ok()),
    };
    let mut goes_on = say(lines)?;
    runtime(Threads::Current)?.block_on(async {
        while goes_on {
            tokio::select! {
                // An end that was asked for is a good one.
                _ = tokio::signal::ctrl_c() => return Ok(Answer::default()),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            let new = tail.read_new().map_err(unreadable)?;
            goes_on = say(&new.lines().collect::<Vec<_>>())?;
        }
        Ok(Answer::default())
    })
}

/// The lines as they can be shown. A log may hold what an upstream wrote.
fn safe_lines(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{}\n", visible(line))).collect()
}

/// The end of a log, read on from where it was read last.
struct LogTail {
    file: File,
    at: u64,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
}

impl LogTail {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let at = file.metadata()?.len().saturating_sub(LONGEST_TAIL);
        Ok(Self { file, at, begun: Vec::new() })
    }

    /// Whole lines that were not read before.
    fn read_new(&mut self) -> io::Result<String> {
        self.file.seek(SeekFrom::Start(self.at))?;
        let read = self.file.by_ref().take(LONGEST_TAIL).read_to_end(&mut self.begun)?;
        self.at += read as u64;
        let whole = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.begun.split_off(whole);
        Ok(String::from_utf8_lossy(&std::mem::replace(&mut self.begun, rest)).into_owned())
    }
}
