//! The child process of an upstream: started without our environment and without a shell, in a process group of its own, with the end of
//! its stderr kept. It is ended as a group.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

use super::StdioSpec;
use super::orphan_keeper::{kill_group, register, unregister};
use crate::fault::{FaultKind, TransportFault};
use crate::one_shot_flag::OneShotFlag as Flag;
use crate::server::lock;

/// The last bytes a child wrote to stderr.
#[derive(Debug)]
pub(super) struct StderrBuffer {
    bytes: Mutex<VecDeque<u8>>,
    limit: usize,
}

impl StderrBuffer {
    fn push(&self, part: &[u8]) {
        let mut bytes = lock(&self.bytes);
        bytes.extend(part);
        // The end, not the beginning: the last words say why it died.
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
pub(super) struct ChildProcess {
    group: i32,
    stderr: Arc<StderrBuffer>,
    /// Raised to end the child.
    stop: Arc<Flag>,
    /// Raised when the child and its group are gone.
    wait_for_exit: Arc<Flag>,
    /// Raised when the child itself has exited, whatever its children do.
    exited: Arc<Flag>,
    status: Arc<Mutex<Option<String>>>,
}

pub(super) struct ChildPipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
}

impl ChildProcess {
    pub(super) fn start(spec: &StdioSpec) -> Result<(Self, ChildPipes), TransportFault> {
        let fault = |reason: String| {
            let program = spec.program.to_string_lossy().into_owned();
            TransportFault::unsent(FaultKind::Spawn { program, reason })
        };
        let mut command = Command::new(&spec.program);
        // Our environment holds secrets of other upstreams; only what the configuration names is passed.
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
        register(group);
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take())
        else {
            kill_group(group, Signal::KILL);
            return Err(fault("its pipes are missing".into()));
        };
        let child = Self {
            group,
            stderr: Arc::new(StderrBuffer { bytes: Mutex::default(), limit: spec.stderr_bytes }),
            stop: Arc::default(),
            wait_for_exit: Arc::default(),
            exited: Arc::default(),
            status: Arc::default(),
        };
        // Read always: a child whose stderr pipe is full blocks in the middle of a call.
        tokio::spawn(keep_stderr(stderr, child.stderr.clone()));
        tokio::spawn(child.supervisor(process, spec.grace));
        Ok((child, ChildPipes { stdin, stdout }))
    }

    /// Waits for the child's exit and ends its whole group.
    fn supervisor(
        &self,
        mut process: tokio::process::Child,
        grace: Duration,
    ) -> impl Future<Output = ()> + use<> {
        let (group, stop, wait_for_exit) = (self.group, self.stop.clone(), self.wait_for_exit.clone());
        let (exited, status) = (self.exited.clone(), self.status.clone());
        async move {
            let ended = tokio::select! {
                ended = process.wait() => Some(ended),
                () = stop.wait() => None,
            };
            let ended = match ended {
                Some(ended) => Some(ended),
                // Its stdin is closed by now, which asks it to exit. SIGTERM and SIGKILL follow.
                None => match tokio::time::timeout(grace, process.wait()).await {
                    Ok(ended) => Some(ended),
                    Err(_) => {
                        kill_group(group, Signal::TERM);
                        tokio::time::timeout(grace, process.wait()).await.ok()
                    }
                },
            };
            // Grandchildren in the group are killed too.
            kill_group(group, Signal::KILL);
            let ended = match ended {
                Some(ended) => ended,
                None => process.wait().await,
            };
            *lock(&status) = ended.ok().map(|status| status.to_string());
            exited.raise();
            unregister(group);
            wait_for_exit.raise();
        }
    }

    /// Asks the child to exit; its stdin must be closed.
    pub(super) fn stop(&self) {
        self.stop.raise();
    }

    /// Resolves when the child and its group are gone.
    pub(super) async fn wait_for_exit(&self) {
        self.wait_for_exit.wait().await;
    }

    pub(super) fn exited(&self) -> Arc<Flag> {
        self.exited.clone()
    }

    pub(super) fn stderr(&self) -> Arc<StderrBuffer> {
        self.stderr.clone()
    }

    pub(super) fn id(&self) -> i32 {
        self.group
    }

    /// How it exited, if it did, with the last line of its stderr.
    pub(super) fn exit_summary(&self) -> String {
        let status = lock(&self.status).clone().unwrap_or_else(|| "it closed its output".to_owned());
        let stderr = self.stderr.text();
        match stderr.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("{status}; last words: {}", line.trim()),
            None => status,
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !self.wait_for_exit.is_raised() {
            kill_group(self.group, Signal::KILL);
            self.stop.raise();
        }
    }
}

async fn keep_stderr(mut stderr: ChildStderr, ring: Arc<StderrBuffer>) {
    let mut part = vec![0u8; 8 << 10];
    while let Ok(length @ 1..) = stderr.read(&mut part).await {
        ring.push(part.get(..length).unwrap_or_default());
    }
}
