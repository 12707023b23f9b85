//! Newline-delimited frames over a byte stream: a reader with a length limit and a writer that batches queued frames. It does not
//! parse them.

use std::io;
use std::os::fd::OwnedFd;

use memchr::memchr;
use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// Frames that may wait for the writer before senders wait too.
pub(crate) const QUEUE: usize = 256;
/// The approximate size of one write.
const WRITE_BYTES: usize = 256 << 10;
/// A buffer that grew beyond this for one large frame is freed afterwards.
const KEEP_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;
const HEAD_BYTES: usize = 1024;
const TAIL_BYTES: usize = 256;

#[derive(Debug)]
pub(crate) struct OutgoingFrame {
    /// Without a line end.
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: FrameOutcome,
}

/// Whether a frame is the reply of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameOutcome {
    /// More may follow.
    Open,
    Result,
    Error(i64),
}

impl OutgoingFrame {
    pub(crate) fn message(bytes: Vec<u8>) -> Self {
        Self { bytes, end: FrameOutcome::Open }
    }
}

/// Writes queued frames until the queue closes or the peer goes away.
pub(crate) async fn write_lines<W: AsyncWrite + Unpin>(
    mut queue: mpsc::Receiver<OutgoingFrame>,
    mut to: W,
) -> io::Result<()> {
    let mut batch: Vec<OutgoingFrame> = Vec::with_capacity(64);
    while queue.recv_many(&mut batch, 64).await > 0 {
        let mut frames = batch.drain(..);
        let mut buffer = frames.next().map(|out| out.bytes).unwrap_or_default();
        buffer.push(b'\n');
        for out in frames {
            // Many small frames in one write; a large one is not copied behind others.
            if buffer.len() + out.bytes.len() > WRITE_BYTES {
                to.write_all(&buffer).await?;
                buffer = out.bytes;
            } else {
                buffer.extend_from_slice(&out.bytes);
            }
            buffer.push(b'\n');
        }
        to.write_all(&buffer).await?;
        to.flush().await?;
    }
    to.shutdown().await
}

#[derive(Debug)]
pub(crate) enum InputLine<'a> {
    /// Without its end.
    Whole(&'a [u8]),
    /// Over the limit; only its first and last bytes were kept.
    TooLong { head: Vec<u8>, tail: Vec<u8>, length: usize },
}

/// Reads lines up to a limit and skips longer ones.
pub(crate) struct LineReader<R> {
    from: R,
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    limit: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(from: R, limit: usize) -> Self {
        Self { from, buffer: Vec::with_capacity(READ_BYTES), start: 0, limit }
    }

    /// The next line; `None` at the end. Cancel-safe: a dropped call loses nothing.
    pub(crate) async fn next(&mut self) -> io::Result<Option<InputLine<'_>>> {
        let mut scanned = self.start;
        loop {
            if let Some(at) = self.buffer.get(scanned..).and_then(|rest| memchr(b'\n', rest)) {
                let range = self.start..scanned + at;
                self.start = range.end + 1;
                return Ok(self.buffer.get(range).map(InputLine::Whole));
            }
            scanned = self.buffer.len();
            // Skipped, not fatal: the peer gets an error with the id, and the connection lives on.
            if scanned - self.start > self.limit {
                return self.skip_long().await.map(Some);
            }
            self.make_room(&mut scanned);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                let rest = self.start..self.buffer.len();
                self.start = rest.end;
                // A last line without an end still counts.
                return Ok(if rest.is_empty() { None } else { self.buffer.get(rest).map(InputLine::Whole) });
            }
        }
    }

    fn make_room(&mut self, scanned: &mut usize) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            // One large frame must not cost its size for the rest of the connection.
            if self.buffer.capacity() > KEEP_BYTES {
                self.buffer = Vec::with_capacity(READ_BYTES);
            }
        } else if self.start > 0 {
            self.buffer.drain(..self.start);
        }
        *scanned = self.buffer.len();
        self.start = 0;
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES / 2 {
            self.buffer.reserve(READ_BYTES.max(self.buffer.len()));
        }
    }

    /// Reads to the end of an overlong line, keeping its first and last bytes.
    async fn skip_long(&mut self) -> io::Result<InputLine<'_>> {
        let long = self.buffer.get(self.start..).unwrap_or_default();
        // The id of a request is near its beginning or its end, and the error should carry it.
        let head = long.get(..HEAD_BYTES.min(long.len())).unwrap_or_default().to_vec();
        let mut tail = last(long).to_vec();
        let mut length = long.len();
        self.buffer = Vec::with_capacity(READ_BYTES);
        self.start = 0;
        loop {
            self.buffer.clear();
            let ended = self.from.read_buf(&mut self.buffer).await? == 0;
            let end = memchr(b'\n', &self.buffer);
            let part = self.buffer.get(..end.unwrap_or(self.buffer.len())).unwrap_or_default();
            length += part.len();
            tail.extend_from_slice(last(part));
            tail = last(&tail).to_vec();
            if ended || end.is_some() {
                self.start = end.map_or(self.buffer.len(), |at| at + 1);
                return Ok(InputLine::TooLong { head, tail, length });
            }
        }
    }
}

fn last(bytes: &[u8]) -> &[u8] {
    bytes.get(bytes.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default()
}

pub(crate) type StdioReader = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type StdioWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// Opens stdin and stdout. Pipes and sockets use the reactor; files and terminals use tokio's threads.
pub(crate) fn own_stdio() -> io::Result<(StdioReader, StdioWriter)> {
    use std::os::fd::AsFd;
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    let reader: StdioReader = match file_type(&input)? {
        FileType::Fifo => Box::new(pipe::Receiver::from_owned_fd(input)?),
        FileType::Socket => Box::new(socket(input)?),
        FileType::RegularFile
        | FileType::Directory
        | FileType::Symlink
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Box::new(tokio::io::stdin()),
    };
    let writer: StdioWriter = match file_type(&output)? {
        FileType::Fifo => Box::new(pipe::Sender::from_owned_fd(output)?),
        FileType::Socket => Box::new(socket(output)?),
        FileType::RegularFile
        | FileType::Directory
        | FileType::Symlink
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Box::new(tokio::io::stdout()),
    };
    Ok((reader, writer))
}

fn file_type(fd: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

fn socket(fd: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_of_any_cut() {
        let (mut to, from) = tokio::io::duplex(7);
        let writer = tokio::spawn(async move {
            to.write_all(b"one\n\ntwo two two\n0123456789012345678901234567890\nlast").await.unwrap();
        });
        let mut lines = LineReader::new(from, 20);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            seen.push(match line {
                InputLine::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                InputLine::TooLong { length, .. } => format!("<{length}>"),
            });
        }
        assert_eq!(seen, ["one", "", "two two two", "<31>", "last"]);
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn queued_frames_are_one_write() {
        let (queue, frames) = mpsc::channel(8);
        for text in ["a", "b", "c"] {
            queue.send(OutgoingFrame::message(text.into())).await.unwrap();
        }
        drop(queue);
        let mut sink = tokio_test_sink();
        write_lines(frames, &mut sink).await.unwrap();
        assert_eq!(sink.writes, [b"a\nb\nc\n".to_vec()]);
    }

    #[derive(Default)]
    struct Sink {
        writes: Vec<Vec<u8>>,
    }

    fn tokio_test_sink() -> Sink {
        Sink::default()
    }

    impl AsyncWrite for Sink {
        fn poll_write(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            bytes: &[u8],
        ) -> std::task::Poll<io::Result<usize>> {
            self.writes.push(bytes.to_vec());
            std::task::Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn poll_shutdown(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Ok(()))
        }
    }
}
