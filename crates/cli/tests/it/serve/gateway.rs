//! `countersign serve` as a process: started in a world, heard on stderr, ended by name. Knows nothing of what is said.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::http::PATIENCE;
use crate::world::World;

/// A gateway that runs.
pub(crate) struct Gateway {
    child: Child,
    told: Arc<Told>,
    pub(crate) pipes: Option<(ChildStdin, ChildStdout)>,
}

/// What it said on stderr so far.
#[derive(Default)]
pub(crate) struct Told {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

impl Gateway {
    /// Starts `countersign serve` with these flags. Its stdin and stdout are left in `pipes`.
    pub(crate) fn start(world: &World, flags: &[&str]) -> Self {
        let mut command = world.countersign(&["serve"]);
        command.args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let told = Arc::new(Told::default());
        let (stderr, hearing) = (child.stderr.take().unwrap(), Arc::clone(&told));
        std::thread::spawn(move || hearing.hear(stderr));
        let pipes = child.stdin.take().zip(child.stdout.take());
        Self { child, told, pipes }
    }

    /// Where it listens, once it says so.
    pub(crate) fn address(&self) -> String {
        let line = self.told.wait_for(0, |line| line.starts_with("listening on http://"));
        line.trim_start_matches("listening on http://").trim_end_matches("/mcp").to_owned()
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn told(&self) -> &Arc<Told> {
        &self.told
    }

    /// Asks it to end, or, where stdin was closed already, waits until it did.
    pub(crate) fn end(mut self, how: End) {
        self.signal(how);
        self.pipes = None;
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "the gateway does not end\n{}", self.told.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Gateway {
    /// Sends the signal of that end, if it has one. One that is to be killed must not see its stdin close before.
    pub(crate) fn signal(&self, how: End) {
        match how {
            End::Asked => signal(self.child.id(), "TERM"),
            End::Killed => signal(self.child.id(), "KILL"),
            End::Closed => {}
        }
    }
}

/// How a gateway ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By a signal it may answer.
    Asked,
    /// By one it can't.
    Killed,
    /// Its stdin was closed.
    Closed,
}

fn signal(process: u32, name: &str) {
    Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap();
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A test that failed half-way leaves nothing running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Told {
    fn hear(&self, stderr: ChildStderr) {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            self.lines.lock().unwrap().push(line);
            self.more.notify_all();
        }
    }

    /// How many lines there are; a place to look on from.
    pub(crate) fn mark(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    pub(crate) fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// The first line after a mark that is wanted, as soon as it is there.
    #[track_caller]
    pub(crate) fn wait_for(&self, mark: usize, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.lines.lock().unwrap();
        loop {
            if let Some(line) = lines.iter().skip(mark).find(|line| wanted(line)) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the gateway did not say what was waited for:\n{}", lines.join("\n"));
            lines = self.more.wait_timeout(lines, left).unwrap().0;
        }
    }
}
