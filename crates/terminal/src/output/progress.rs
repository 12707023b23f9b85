//! Progress of long work: one line on stderr that is written over, only where a person watches, gone when done.

use std::future::Future;
use std::time::{Duration, Instant};

use super::OutputSettings;
use super::style::{DIM, paint};

/// Nothing is shown before this, and no oftener than a tenth of it: short work stays quiet.
const PATIENCE: Duration = Duration::from_millis(400);

#[derive(Debug)]
pub struct Progress {
    voice: OutputSettings,
    what: &'static str,
    began: Instant,
    last: Option<Instant>,
    written: usize,
}

impl Progress {
    /// Starts to count; `what` is said after the number.
    pub fn begin(voice: OutputSettings, what: &'static str) -> Self {
        Self { voice, what, began: Instant::now(), last: None, written: 0 }
    }

    pub fn at(&mut self, done: u64) {
        let rate = done as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        self.show(&format!("{done} {} · {rate:.0}/s", self.what));
    }

    fn show(&mut self, line: &str) {
        let due = self.last.map_or(self.began + PATIENCE, |last| last + PATIENCE / 10);
        let now = Instant::now();
        if now < due || !self.voice.shows_progress() {
            return;
        }
        self.last = Some(now);
        // Blanks instead of an erasing escape: they also work where escapes are off.
        let width = line.chars().count();
        let blanks = " ".repeat(self.written.saturating_sub(width));
        self.voice.tell(&format!("\r{}{blanks}", paint(DIM, line)));
        self.written = width;
    }

    /// Waits for work that does not count, and shows that it goes on.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(PATIENCE / 4) => self.show(&format!("{} · {} s", self.what, self.began.elapsed().as_secs())),
            }
        }
    }

    /// Does work that does not count, and shows that it goes on.
    pub fn beside<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        if !self.voice.shows_progress() {
            return work();
        }
        let (over, ended) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(PATIENCE / 4) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    let seconds = self.began.elapsed().as_secs();
                    self.show(&format!("{} · {seconds} s", self.what));
                }
            });
            let done = work();
            drop(over);
            done
        })
    }

    /// How long it has taken so far.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.is_some() {
            self.voice.tell(&format!("\r{}\r", " ".repeat(self.written)));
        }
    }
}
