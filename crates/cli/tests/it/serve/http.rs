//! As much of an HTTP/1.1 client as the tests need: one request a connection, JSON or an event stream back.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// How long anything may take before the test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// The head of an answer; the body is read from it.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    body: BufReader<TcpStream>,
    /// What is left of the current chunk; `None` where the body is not chunked.
    chunk: Option<usize>,
}

/// Sends a request; `extra` are header lines.
pub(crate) fn send(
    address: &str,
    method: &str,
    path: &str,
    extra: &[(String, String)],
    body: &str,
) -> std::io::Result<Answer> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in extra {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut writer = stream.try_clone()?;
    writer.write_all(format!("{head}\r\n{body}").as_bytes())?;
    Answer::read(BufReader::new(stream))
}

impl Answer {
    fn read(mut body: BufReader<TcpStream>) -> std::io::Result<Self> {
        let mut line = String::new();
        body.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or_default();
        let mut headers = Vec::new();
        loop {
            line.clear();
            body.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        Ok(Self { status, headers, body, chunk: chunked.then_some(0) })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// The whole body.
    pub(crate) fn text(mut self) -> std::io::Result<String> {
        let mut text = String::new();
        match self.chunk {
            None => {
                self.body.read_to_string(&mut text)?;
            }
            Some(_) => {
                while let Some(line) = self.line()? {
                    text.push_str(&line);
                }
            }
        }
        Ok(text)
    }

    /// The data of the next event that has any.
    pub(crate) fn event(&mut self) -> std::io::Result<Option<String>> {
        let mut data = String::new();
        while let Some(line) = self.line()? {
            let line = line.trim_end_matches(['\r', '\n']);
            match line.strip_prefix("data:") {
                Some(part) => data.push_str(part.trim_start()),
                None if line.is_empty() && !data.is_empty() => return Ok(Some(data)),
                None => {}
            }
        }
        Ok(None)
    }

    /// One line of the body with its end; `None` after the last.
    fn line(&mut self) -> std::io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            if self.chunk == Some(0) && !self.next_chunk()? {
                break;
            }
            let mut byte = [0];
            if self.body.read(&mut byte)? == 0 {
                break;
            }
            if let Some(left) = &mut self.chunk {
                *left -= 1;
                if *left == 0 {
                    // Every chunk ends with a line end of its own.
                    self.body.read_exact(&mut [0; 2])?;
                }
            }
            line.push(byte[0]);
            if byte[0] == b'\n' {
                break;
            }
        }
        Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
    }

    fn next_chunk(&mut self) -> std::io::Result<bool> {
        let mut size = String::new();
        self.body.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        self.chunk = Some(size);
        Ok(size > 0)
    }
}
