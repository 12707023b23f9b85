//! A collector of OpenTelemetry on this machine: takes whatever is exported to it, and keeps it as it came.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// One export as it came.
#[derive(Clone)]
pub(crate) struct Export {
    pub(crate) path: String,
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "only telemetry's own tests look inside"))]
    pub(crate) headers: Vec<(String, String)>,
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "only telemetry's own tests look inside"))]
    pub(crate) body: Vec<u8>,
}

/// A collector on this machine: takes what it gets.
#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) url: String,
    pub(crate) got: Arc<Mutex<Vec<Export>>>,
}

impl Collector {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector =
            Self { url: format!("http://{}", listener.local_addr().unwrap()), got: Arc::default() };
        let got = Arc::clone(&collector.got);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let got = Arc::clone(&got);
                std::thread::spawn(move || while take(stream.as_ref().unwrap(), &got).is_some() {});
            }
        });
        collector
    }

    /// What came to a path.
    pub(crate) fn exports(&self, path: &str) -> Vec<Export> {
        self.got.lock().unwrap().iter().filter(|export| export.path == path).cloned().collect()
    }
}

/// One request of a connection; none when it is over.
fn take(stream: &TcpStream, got: &Mutex<Vec<Export>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    got.lock().unwrap().push(Export { path, headers, body });
    let mut stream = stream;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
        .ok()
}
