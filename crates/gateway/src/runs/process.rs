//! One command as a process: started without a shell, in a group of its own, with nothing of our environment. Everything that
//! can happen to it from outside (output, exit, time, a wish to stop) becomes one [`Event`] in one place. Knows no run and no call.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use countersign_wire::upstream::Group;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::output::Output;
use super::stop::Stop;
use crate::upstreams::environment::Variable;

/// How long a command may take to leave after it was asked to, before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How long pipes are read after the command is gone: someone who left its group may still hold them.
const DRAIN: Duration = Duration::from_secs(1);
/// How much is read then: more than any pipe holds.
const MOST_DRAINED: usize = 4 << 20;
/// When those who watch are first told what is new.
const FIRST_TICK: Duration = Duration::from_millis(200);
/// How often after that.
const TICK: Duration = Duration::from_secs(1);
/// How much is read at a time.
const PART: usize = 16 << 10;

/// What to start.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    /// The whole environment.
    pub(crate) env: Vec<Variable>,
    pub(crate) cwd: PathBuf,
    /// What it reads; nothing otherwise.
    pub(crate) stdin: Option<Vec<u8>>,
}

/// Which of a command's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Everything that can happen to a process from outside.
enum Event {
    Wrote(Stream, Vec<u8>),
    Closed(Stream),
    Exited(Option<ExitStatus>),
    /// Someone wants it to end.
    Stopped,
    /// The time of its present phase is up.
    Due,
    Tick,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself.
    Exited(i32),
    /// By a signal of someone else.
    Signalled(i32),
    /// It took too long, and was killed with its group.
    TimedOut,
    /// It was stopped, with its group.
    Stopped,
    /// It never began, and why.
    NotStarted(String),
    /// It never began: what it waited for did not come in time.
    NoTurn,
}

impl End {
    fn of(status: Option<ExitStatus>) -> Self {
        match (status.and_then(|status| status.code()), status.and_then(|status| status.signal())) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(signal)) => Self::Signalled(signal),
            (None, None) => Self::Signalled(0),
        }
    }
}

/// Where a process stands, and what it waits for.
enum Phase {
    /// At work, until its deadline.
    Works,
    /// Asked to leave, for this reason, until the grace is over.
    Leaves(End),
    /// Killed, for this reason.
    Killed(End),
    /// Gone; its last words are read.
    Drains(End),
}

/// What counts when output and the end of the time are there at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    TimeFirst,
    OutputFirst,
}

/// A process under way.
pub(crate) struct Process {
    child: Child,
    group: Group,
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    feeding: Option<AbortHandle>,
    exited: bool,
}

impl Process {
    /// Starts it.
    pub(crate) fn start(launch: &Launch) -> std::io::Result<Self> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).env_clear().envs(launch.env.iter().map(|(name, value)| (name, value)));
        command.current_dir(&launch.cwd).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if launch.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        let (mut child, group) = Group::start(&mut command)?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let feeding = launch.stdin.clone().zip(child.stdin.take()).map(|(bytes, pipe)| feed(pipe, bytes));
        Ok(Self { child, group, out, err, feeding, exited: false })
    }

    /// Follows it to its end: nothing of its group is left when this returns.
    pub(crate) async fn follow(
        mut self,
        stop: &mut Stop,
        deadline: Option<Instant>,
        output: &mut Output,
    ) -> End {
        let (mut phase, mut due) = (Phase::Works, deadline);
        let mut drained = 0;
        let mut ticks = tokio::time::interval_at(Instant::now() + FIRST_TICK, TICK);
        loop {
            let event = match phase {
                Phase::Works => tokio::select! {
                    () = stop.raised() => Event::Stopped,
                    event = self.event(due, Ready::TimeFirst) => event,
                    _ = ticks.tick() => Event::Tick,
                },
                Phase::Leaves(_) | Phase::Killed(_) => self.event(due, Ready::TimeFirst).await,
                // On a busy machine the time may be up before the last words were read once.
                Phase::Drains(_) if drained < MOST_DRAINED => self.event(due, Ready::OutputFirst).await,
                Phase::Drains(_) => Event::Due,
            };
            (phase, due) = match (event, phase) {
                (Event::Wrote(stream, bytes), phase) => {
                    if let Phase::Drains(_) = phase {
                        drained += bytes.len();
                    }
                    output.take(stream, &bytes).await;
                    (phase, due)
                }
                (Event::Closed(stream), phase) => {
                    output.end(stream).await;
                    (phase, due)
                }
                (Event::Tick, phase) => {
                    output.tick().await;
                    (phase, due)
                }
                (Event::Exited(status), phase) => {
                    // Whoever it started goes with it.
                    self.group.kill();
                    let end = match phase {
                        Phase::Works => End::of(status),
                        Phase::Leaves(end) | Phase::Killed(end) | Phase::Drains(end) => end,
                    };
                    (Phase::Drains(end), Some(Instant::now() + DRAIN))
                }
                (Event::Stopped, Phase::Works) => self.ask_to_leave(End::Stopped),
                (Event::Due, Phase::Works) => self.ask_to_leave(End::TimedOut),
                (Event::Due | Event::Stopped, Phase::Leaves(end)) => {
                    self.group.kill();
                    (Phase::Killed(end), Some(Instant::now() + GRACE))
                }
                (Event::Due | Event::Stopped, Phase::Killed(end) | Phase::Drains(end)) => return end,
            };
            if let Phase::Drains(end) = &phase
                && self.out.is_none()
                && self.err.is_none()
            {
                return end.clone();
            }
        }
    }

    fn ask_to_leave(&self, why: End) -> (Phase, Option<Instant>) {
        self.group.ask_to_leave();
        (Phase::Leaves(why), Some(Instant::now() + GRACE))
    }

    /// The next thing that happens; nothing is lost if this is dropped.
    async fn event(&mut self, due: Option<Instant>, ready: Ready) -> Event {
        tokio::select! {
            biased;
            () = until(due), if ready == Ready::TimeFirst => Event::Due,
            read = read(&mut self.out), if self.out.is_some() => match read {
                Some(bytes) => Event::Wrote(Stream::Out, bytes),
                None => { self.out = None; Event::Closed(Stream::Out) }
            },
            read = read(&mut self.err), if self.err.is_some() => match read {
                Some(bytes) => Event::Wrote(Stream::Err, bytes),
                None => { self.err = None; Event::Closed(Stream::Err) }
            },
            status = self.child.wait(), if !self.exited => {
                self.exited = true;
                Event::Exited(status.ok())
            }
            () = until(due), if ready == Ready::OutputFirst => Event::Due,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(feeding) = &self.feeding {
            feeding.abort();
        }
    }
}

/// Returns when the time is up, if there is a time.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The next bytes of a pipe; none at its end.
async fn read(pipe: &mut Option<impl AsyncRead + Unpin>) -> Option<Vec<u8>> {
    let pipe = pipe.as_mut()?;
    let mut part = Vec::with_capacity(PART);
    match pipe.read_buf(&mut part).await {
        Ok(1..) => Some(part),
        Ok(0) | Err(_) => None,
    }
}

/// Writes what the command reads, and closes.
fn feed(mut pipe: ChildStdin, bytes: Vec<u8>) -> AbortHandle {
    let writing = async move {
        // A command that does not read all of it is free to.
        let _ = pipe.write_all(&bytes).await;
        let _ = pipe.shutdown().await;
    };
    tokio::spawn(writing).abort_handle()
}
