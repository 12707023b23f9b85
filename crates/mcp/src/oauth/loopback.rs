//! Receives the response of a sign-in: a small listener on loopback, for one attempt. It serves nothing else.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{OauthFault, SignInAttempt};

const PATH: &str = "/callback";
/// The limits of a request head.
const HEAD: usize = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct LoopbackListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl LoopbackListener {
    /// Listens on this port of 127.0.0.1, or on any.
    pub async fn bind(port: u16) -> Result<Self, OauthFault> {
        let here =
            |error: std::io::Error| OauthFault::Here(format!("can't listen on 127.0.0.1:{port}: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(here)?;
        let address = listener.local_addr().map_err(here)?;
        Ok(Self { listener, address })
    }

    pub fn redirect(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The query of the response to this attempt.
    pub async fn answer(&self, attempt: &SignInAttempt, within: Duration) -> Result<String, OauthFault> {
        tokio::time::timeout(within, self.wait(attempt)).await.map_err(|_| OauthFault::Late)?
    }

    async fn wait(&self, attempt: &SignInAttempt) -> Result<String, OauthFault> {
        loop {
            let (mut line, _) =
                self.listener.accept().await.map_err(|error| OauthFault::Here(error.to_string()))?;
            // A connection that sends nothing must not delay the response for long.
            let head = tokio::time::timeout(PATIENCE, head(&mut line)).await;
            let Ok(Some(head)) = head else { continue };
            match self.query(&head) {
                Some(query) if attempt.is_ours(query) => {
                    reply(
                        &mut line,
                        "200 OK",
                        "Done. You can close this window and go back to the terminal.",
                    )
                    .await;
                    return Ok(query.to_owned());
                }
                Some(_) => {
                    reply(&mut line, "400 Bad Request", "This answer belongs to another sign-in.").await
                }
                None => reply(&mut line, "404 Not Found", "There is nothing here.").await,
            }
        }
    }

    /// The query of a request with the right path and host.
    fn query<'h>(&self, head: &'h str) -> Option<&'h str> {
        let mut lines = head.split("\r\n");
        let target = lines.next()?.strip_prefix("GET ")?.split(' ').next()?;
        let host = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host").then_some(value.trim())
        });
        let names = [self.address.to_string(), format!("localhost:{}", self.address.port())];
        names.iter().any(|name| Some(name.as_str()) == host).then_some(())?;
        target.strip_prefix(PATH)?.strip_prefix('?')
    }
}

async fn head(line: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0u8; 2048];
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = line.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(piece.get(..read)?);
        if bytes.len() > HEAD {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

async fn reply(line: &mut TcpStream, status: &str, sentence: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>Countersign</title><p>{sentence}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         content-security-policy: default-src 'none'\r\nreferrer-policy: no-referrer\r\ncache-control: no-store\r\n\
         connection: close\r\n\r\n",
        page.len()
    );
    // The browser may have gone already.
    let _ = line.write_all(format!("{head}{page}").as_bytes()).await;
    let _ = line.shutdown().await;
}
