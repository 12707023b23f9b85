//! One command as a process: started without a shell, in a process group of its own, without our environment. Output, exit, timeout and stop
//! requests become [`ProcessEvent`]s in one place. Knows no run and no call.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use countersign_mcp::client::ProcessGroup;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::output::Output;
use super::stop::StopSignal;
use crate::upstreams::environment::Variable;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long pipes are read after the exit: a process outside the group may still hold them.
const DRAIN: Duration = Duration::from_secs(1);
/// How much is read then: more than any pipe holds.
const MOST_DRAINED: usize = 4 << 20;
/// When new output is first reported.
const FIRST_TICK: Duration = Duration::from_millis(200);
/// How often after that.
const TICK: Duration = Duration::from_secs(1);
const PART: usize = 16 << 10;

#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    /// The whole environment.
    pub(crate) env: Vec<Variable>,
    pub(crate) cwd: PathBuf,
    pub(crate) stdin: Option<Vec<u8>>,
}

/// The variable that tells a preview command the effects of earlier steps of the same plan.
const EARLIER_STEPS: &str = "COUNTERSIGN_EARLIER_STEPS";

impl Launch {
    pub(crate) fn with_earlier(mut self, earlier: Option<&str>) -> Self {
        self.env.extend(earlier.map(|steps| (EARLIER_STEPS.into(), steps.into())));
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Out,
    Err,
}

enum ProcessEvent {
    Wrote(OutputStream, Vec<u8>),
    Closed(OutputStream),
    Exited(Option<ExitStatus>),
    Stopped,
    /// The time of the present phase is up.
    Due,
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    Stopped,
    NotStarted(String),
    /// It never started: what it waited for did not come in time.
    NoTurn,
}

impl ProcessEnd {
    fn of(status: Option<ExitStatus>) -> Self {
        match (status.and_then(|status| status.code()), status.and_then(|status| status.signal())) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(signal)) => Self::Signalled(signal),
            (None, None) => Self::Signalled(0),
        }
    }
}

enum ProcessPhase {
    Works,
    Leaves(ProcessEnd),
    Killed(ProcessEnd),
    /// Exited; the rest of its output is read.
    Drains(ProcessEnd),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadyPriority {
    TimeFirst,
    OutputFirst,
}

pub(crate) struct Process {
    child: Child,
    group: ProcessGroup,
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    feeding: Option<AbortHandle>,
    exited: bool,
}

impl Process {
    pub(crate) fn start(launch: &Launch) -> std::io::Result<Self> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).env_clear().envs(launch.env.iter().map(|(name, value)| (name, value)));
        command.current_dir(&launch.cwd).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if launch.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        let (mut child, group) = ProcessGroup::start(&mut command)?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let feeding = launch.stdin.clone().zip(child.stdin.take()).map(|(bytes, pipe)| feed(pipe, bytes));
        Ok(Self { child, group, out, err, feeding, exited: false })
    }

    /// Follows it to its end: nothing of its group is left when this returns.
    pub(crate) async fn follow(
        mut self,
        stop: &mut StopSignal,
        deadline: Option<Instant>,
        output: &mut Output,
    ) -> ProcessEnd {
        let (mut phase, mut due) = (ProcessPhase::Works, deadline);
        let mut drained = 0;
        let mut ticks = tokio::time::interval_at(Instant::now() + FIRST_TICK, TICK);
        loop {
            let event = match phase {
                ProcessPhase::Works => tokio::select! {
                    () = stop.raised() => ProcessEvent::Stopped,
                    event = self.event(due, ReadyPriority::TimeFirst) => event,
                    _ = ticks.tick() => ProcessEvent::Tick,
                },
                ProcessPhase::Leaves(_) | ProcessPhase::Killed(_) => {
                    self.event(due, ReadyPriority::TimeFirst).await
                }
                // On a busy machine the time may be up before the last output was read once.
                ProcessPhase::Drains(_) if drained < MOST_DRAINED => {
                    self.event(due, ReadyPriority::OutputFirst).await
                }
                ProcessPhase::Drains(_) => ProcessEvent::Due,
            };
            (phase, due) = match (event, phase) {
                (ProcessEvent::Wrote(stream, bytes), phase) => {
                    if let ProcessPhase::Drains(_) = phase {
                        drained += bytes.len();
                    }
                    output.take(stream, &bytes).await;
                    (phase, due)
                }
                (ProcessEvent::Closed(stream), phase) => {
                    output.end(stream).await;
                    (phase, due)
                }
                (ProcessEvent::Tick, phase) => {
                    output.tick().await;
                    (phase, due)
                }
                (ProcessEvent::Exited(status), phase) => {
                    // Its children are killed too.
                    self.group.kill();
                    let end = match phase {
                        ProcessPhase::Works => ProcessEnd::of(status),
                        ProcessPhase::Leaves(end) | ProcessPhase::Killed(end) | ProcessPhase::Drains(end) => {
                            end
                        }
                    };
                    (ProcessPhase::Drains(end), Some(Instant::now() + DRAIN))
                }
                (ProcessEvent::Stopped, ProcessPhase::Works) => self.ask_to_leave(ProcessEnd::Stopped),
                (ProcessEvent::Due, ProcessPhase::Works) => self.ask_to_leave(ProcessEnd::TimedOut),
                (ProcessEvent::Due | ProcessEvent::Stopped, ProcessPhase::Leaves(end)) => {
                    self.group.kill();
                    (ProcessPhase::Killed(end), Some(Instant::now() + GRACE))
                }
                (
                    ProcessEvent::Due | ProcessEvent::Stopped,
                    ProcessPhase::Killed(end) | ProcessPhase::Drains(end),
                ) => return end,
            };
            if let ProcessPhase::Drains(end) = &phase
                && self.out.is_none()
                && self.err.is_none()
            {
                return end.clone();
            }
        }
    }

    fn ask_to_leave(&self, why: ProcessEnd) -> (ProcessPhase, Option<Instant>) {
        self.group.ask_to_leave();
        (ProcessPhase::Leaves(why), Some(Instant::now() + GRACE))
    }

    /// Cancel-safe.
    async fn event(&mut self, due: Option<Instant>, ready: ReadyPriority) -> ProcessEvent {
        tokio::select! {
            biased;
            () = until(due), if ready == ReadyPriority::TimeFirst => ProcessEvent::Due,
            read = read(&mut self.out), if self.out.is_some() => match read {
                Some(bytes) => ProcessEvent::Wrote(OutputStream::Out, bytes),
                None => { self.out = None; ProcessEvent::Closed(OutputStream::Out) }
            },
            read = read(&mut self.err), if self.err.is_some() => match read {
                Some(bytes) => ProcessEvent::Wrote(OutputStream::Err, bytes),
                None => { self.err = None; ProcessEvent::Closed(OutputStream::Err) }
            },
            status = self.child.wait(), if !self.exited => {
                self.exited = true;
                ProcessEvent::Exited(status.ok())
            }
            () = until(due), if ready == ReadyPriority::OutputFirst => ProcessEvent::Due,
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

pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// None at its end.
async fn read(pipe: &mut Option<impl AsyncRead + Unpin>) -> Option<Vec<u8>> {
    let pipe = pipe.as_mut()?;
    let mut part = Vec::with_capacity(PART);
    match pipe.read_buf(&mut part).await {
        Ok(1..) => Some(part),
        Ok(0) | Err(_) => None,
    }
}

fn feed(mut pipe: ChildStdin, bytes: Vec<u8>) -> AbortHandle {
    let writing = async move {
        // A command may ignore its stdin.
        let _ = pipe.write_all(&bytes).await;
        let _ = pipe.shutdown().await;
    };
    tokio::spawn(writing).abort_handle()
}
