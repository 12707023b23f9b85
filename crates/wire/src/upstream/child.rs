//! A child process of an upstream: started with nothing of our environment, in a group of its own, its stderr kept in a ring,
//! ended as a group. It never goes through a shell.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

use super::StdioSpec;
use super::orphan::{kill_group, unwatch, watch};
use crate::fault::{FaultKind, WireFault};
use crate::serve::lock;
use crate::signal::Signal as Flag;

/// The last bytes a child wrote to stderr.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: Mutex<VecDeque<u8>>,
    limit: usize,
}

impl Ring {
    fn push(&self, part: &[u8]) {
        let mut bytes = lock(&self.bytes);
        bytes.extend(part);
        let over = bytes.len().saturating_sub(self.limit);
        bytes.drain(..over);
    }

    pub(super) fn text(&self) -> String {
        let bytes: Vec<u8> = lock(&self.bytes).iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A running child; dropping it kills its group.
#[derive(Debug)]
pub(super) struct Child {
    group: i32,
    stderr: Arc<Ring>,
    /// Raised to end the child.
    stop: Arc<Flag>,
    /// Raised when it has ended and its group is gone.
    gone: Arc<Flag>,
    /// Raised when the child itself has exited, whatever its children do.
    exited: Arc<Flag>,
    status: Arc<Mutex<Option<String>>>,
}

/// The ends of a child's pipes.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
}

impl Child {
    pub(super) fn start(spec: &StdioSpec) -> Result<(Self, Pipes), WireFault> {
        let fault = |reason: String| {
            let program = spec.program.to_string_lossy().into_owned();
            WireFault::unsent(FaultKind::Spawn { program, reason })
        };
        let mut command = Command::new(&spec.program);
        command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
        if let Some(cwd) = &spec.cwd {
            command.current_dir(cwd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut process = command.spawn().map_err(|error| fault(error.to_string()))?;
        let group = process
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .ok_or_else(|| fault("ended at once".into()))?;
        watch(group);
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take())
        else {
            kill_group(group, Signal::KILL);
            return Err(fault("its pipes are missing".into()));
        };
        let child = Self {
            group,
            stderr: Arc::new(Ring { bytes: Mutex::default(), limit: spec.stderr_bytes }),
            stop: Arc::default(),
            gone: Arc::default(),
            exited: Arc::default(),
            status: Arc::default(),
        };
        tokio::spawn(keep_stderr(stderr, child.stderr.clone()));
        tokio::spawn(child.supervisor(process, spec.grace));
        Ok((child, Pipes { stdin, stdout }))
    }

    /// Waits for the child's end and sees its whole group off.
    fn supervisor(
        &self,
        mut process: tokio::process::Child,
        grace: Duration,
    ) -> impl Future<Output = ()> + use<> {
        let (group, stop, gone) = (self.group, self.stop.clone(), self.gone.clone());
        let (exited, status) = (self.exited.clone(), self.status.clone());
        async move {
            let ended = tokio::select! {
                ended = process.wait() => Some(ended),
                () = stop.wait() => None,
            };
            let ended = match ended {
                Some(ended) => Some(ended),
                // Its stdin is closed by now: that asks it to leave. Then less and less politely.
                None => match tokio::time::timeout(grace, process.wait()).await {
                    Ok(ended) => Some(ended),
                    Err(_) => {
                        kill_group(group, Signal::TERM);
                        tokio::time::timeout(grace, process.wait()).await.ok()
                    }
                },
            };
            // Grandchildren in the group go too.
            kill_group(group, Signal::KILL);
            let ended = match ended {
                Some(ended) => ended,
                None => process.wait().await,
            };
            *lock(&status) = ended.ok().map(|status| status.to_string());
            exited.raise();
            unwatch(group);
            gone.raise();
        }
    }

    /// Asks the child to end; its stdin must have been closed.
    pub(super) fn stop(&self) {
        self.stop.raise();
    }

    /// Returns when the child and its group are gone.
    pub(super) async fn gone(&self) {
        self.gone.wait().await;
    }

    /// Returns when the child itself has exited.
    pub(super) fn exited(&self) -> Arc<Flag> {
        self.exited.clone()
    }

    pub(super) fn stderr(&self) -> Arc<Ring> {
        self.stderr.clone()
    }

    pub(super) fn id(&self) -> i32 {
        self.group
    }

    /// How it ended, if it did, with the last line it complained with.
    pub(super) fn epitaph(&self) -> String {
        let status = lock(&self.status).clone().unwrap_or_else(|| "it closed its output".to_owned());
        let stderr = self.stderr.text();
        match stderr.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("{status}; last words: {}", line.trim()),
            None => status,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.gone.is_raised() {
            kill_group(self.group, Signal::KILL);
            self.stop.raise();
        }
    }
}

async fn keep_stderr(mut stderr: ChildStderr, ring: Arc<Ring>) {
    let mut part = vec![0u8; 8 << 10];
    while let Ok(length @ 1..) = stderr.read(&mut part).await {
        ring.push(part.get(..length).unwrap_or_default());
    }
}
