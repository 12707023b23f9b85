//! A command's output, line by line: secrets removed, head and tail for the answer, everything for the log, and the last lines for a look at
//! the running command.

use std::collections::VecDeque;
use std::sync::Arc;

use super::log::Log;
use super::mask::Mask;
use super::process::OutputStream;
use super::progress::ProgressReporter;
use super::report::RunReporter;

/// A longer line is cut into several.
const LONGEST_LINE: usize = 64 << 10;
const TAIL_LINES: usize = 1_000;
const TAIL_BYTES: usize = 64 << 10;
const TAIL_LINE: usize = 2_000;

/// The first and the last bytes of a stream.
#[derive(Debug, Default)]
pub(crate) struct CapturedOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    limit: usize,
    left_out: u64,
}

impl CapturedOutput {
    fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = (self.limit / 2).saturating_sub(self.head.len()).min(bytes.len());
        // Once something went to the tail, the head is complete.
        let room = if self.tail.is_empty() { room } else { 0 };
        let (head, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(self.limit - self.limit / 2);
        self.tail.drain(..over);
        self.left_out += over as u64;
    }

    /// How many bytes in the middle are missing.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The kept bytes, with `gap` where some are missing.
    pub(crate) fn text(&self, gap: &str) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.left_out == 0 {
            // Joined first: a character may span the two halves.
            return String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
        }
        format!("{}{gap}{}", String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail))
    }
}

#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Tail {
    fn push(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = String::from_utf8_lossy(line.get(..TAIL_LINE).unwrap_or(line)).into_owned();
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > TAIL_LINES || self.bytes > TAIL_BYTES {
            let Some(first) = self.lines.pop_front() else { return };
            self.bytes -= first.len();
        }
    }
}

pub(crate) struct Output {
    mask: Arc<Mask>,
    begun: [Vec<u8>; 2],
    captured: [CapturedOutput; 2],
    tail: Tail,
    log: Log,
    report: Option<RunReporter>,
    progress: Option<ProgressReporter>,
    told: bool,
}

fn index(stream: OutputStream) -> usize {
    match stream {
        OutputStream::Out => 0,
        OutputStream::Err => 1,
    }
}

impl Output {
    /// Keeps at most so many bytes of each stream; the rest goes to the log.
    pub(crate) fn new(mask: Arc<Mask>, limit: usize, log: Log, report: Option<RunReporter>) -> Self {
        Self {
            mask,
            begun: Default::default(),
            captured: [CapturedOutput::new(limit), CapturedOutput::new(limit)],
            tail: Tail::default(),
            log,
            report,
            progress: None,
            told: true,
        }
    }

    pub(crate) fn with_progress(self, progress: Option<ProgressReporter>) -> Self {
        Self { progress, ..self }
    }

    /// Reports the start. False if that could not be recorded.
    pub(super) async fn begins(&mut self) -> bool {
        match &mut self.report {
            Some(report) => report.running(Vec::new()).await,
            None => true,
        }
    }

    /// Called at intervals: reports new output, and progress to a waiting client.
    pub(super) async fn tick(&mut self) {
        self.report().await;
        if let Some(progress) = &self.progress {
            progress.report(self.tail.lines.back().map(String::as_str)).await;
        }
    }

    pub(super) async fn take(&mut self, stream: OutputStream, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(begun) = self.begun.get_mut(index(stream)) else { return };
            begun.extend_from_slice(part);
            if begun.ends_with(b"\n") || begun.len() >= LONGEST_LINE {
                let line = std::mem::take(begun);
                self.line(stream, line).await;
            }
        }
    }

    /// The end of a stream ends its last line.
    pub(super) async fn end(&mut self, stream: OutputStream) {
        let last = self.begun.get_mut(index(stream)).map(std::mem::take).unwrap_or_default();
        if !last.is_empty() {
            self.line(stream, last).await;
        }
    }

    async fn line(&mut self, stream: OutputStream, line: Vec<u8>) {
        let line = self.mask.clean(line);
        if let Some(captured) = self.captured.get_mut(index(stream)) {
            captured.take(&line);
        }
        self.tail.push(&line);
        self.log.write(&line).await;
        self.told = false;
    }

    /// Adds a line of our own to the log.
    pub(super) async fn note(&mut self, note: &str) {
        self.line(OutputStream::Err, format!("{note}\n").into_bytes()).await;
    }

    async fn report(&mut self) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let tail = self.tail();
        if let Some(report) = &mut self.report {
            report.running(tail).await;
        }
    }

    pub(super) fn tail(&self) -> Vec<String> {
        self.tail.lines.iter().cloned().collect()
    }

    /// Ends the log; returns what was kept of both streams, and the log's name if there is more.
    pub(crate) async fn finish(mut self) -> (CapturedOutput, CapturedOutput, Option<String>) {
        // A stream held by a process outside the group has not ended by itself.
        for stream in [OutputStream::Out, OutputStream::Err] {
            self.end(stream).await;
        }
        let whole = self.captured.iter().all(|captured| captured.left_out == 0);
        let log = self.log.finish(whole).await;
        let [out, err] = self.captured;
        (out, err, log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_stay_and_the_middle_is_counted() {
        let check = |limit: usize, parts: &[&str], expect: &str, left_out: u64| {
            let mut captured = CapturedOutput::new(limit);
            parts.iter().for_each(|part| captured.take(part.as_bytes()));
            assert_eq!((captured.text("…").as_str(), captured.left_out()), (expect, left_out));
        };
        check(8, &["abc"], "abc", 0);
        check(8, &["abcdefgh"], "abcdefgh", 0);
        check(8, &["abcdefghi"], "abcd…fghi", 1);
        check(8, &["a", "bcdef", "ghijklm", "n"], "abcd…klmn", 6);
        check(7, &["abcdefghij"], "abc…ghij", 3);
        check(4, &["aäöüb"], "a\u{fffd}…\u{fffd}b", 4);
    }

    #[test]
    fn the_last_lines_stay_within_bounds() {
        let mut tail = Tail::default();
        for number in 0..5_000 {
            tail.push(format!("{number}\r\n").as_bytes());
        }
        assert_eq!(tail.lines.len(), TAIL_LINES);
        assert_eq!(tail.lines.back().unwrap(), "4999");
        tail.push(&vec![b'x'; LONGEST_LINE]);
        assert_eq!(tail.lines.back().unwrap().len(), TAIL_LINE);
        for _ in 0..100 {
            tail.push(&vec![b'x'; LONGEST_LINE]);
        }
        assert!(tail.lines.iter().map(String::len).sum::<usize>() <= TAIL_BYTES);
    }
}
