//! Where checkpoints go besides the store and the usual file: one more file, the system's log, or a server. Nothing waits for them; what
//! can't be taken there becomes a row.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use countersign_config::CheckpointPlace;
use countersign_mcp::post_endpoint::post_json;
use countersign_store::ConnectOptions;
use countersign_store::ledger::{Checkpoint, CheckpointFile, CheckpointSink};
use tokio::sync::mpsc;

/// How many checkpoints may wait for a server; one more is not taken.
const WAITING: usize = 64;
const TRIES: u32 = 5;
/// The pause before the second try; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

/// The options with the configured place added. Runs inside the runtime that will send.
pub(super) fn with_place(
    mut options: ConnectOptions,
    place: Option<&CheckpointPlace>,
    folder: &Path,
) -> ConnectOptions {
    let sink: Option<Arc<dyn CheckpointSink>> = match place {
        None => None,
        Some(CheckpointPlace::File(path)) => Some(Arc::new(CheckpointFile::new(folder.join(path)))),
        Some(CheckpointPlace::Syslog) => Some(Arc::new(Syslog)),
        Some(CheckpointPlace::Webhook(url)) => Some(Arc::new(Webhook::start(url))),
    };
    options.sinks.extend(sink);
    options
}

#[derive(Debug)]
struct Syslog;

impl CheckpointSink for Syslog {
    #[cfg(unix)]
    fn keep(&self, checkpoint: &Checkpoint) -> Result<(), String> {
        send_to_log(Path::new("/dev/log"), checkpoint)
            .map_err(|error| format!("can't write to the system's log: {error}"))
    }

    #[cfg(not(unix))]
    fn keep(&self, _: &Checkpoint) -> Result<(), String> {
        Err("this system has no log to write to".to_owned())
    }
}

/// Facility `authpriv`, severity `notice`; never waits.
#[cfg(unix)]
fn send_to_log(socket: &Path, checkpoint: &Checkpoint) -> std::io::Result<()> {
    let log = std::os::unix::net::UnixDatagram::unbound()?;
    log.set_nonblocking(true)?;
    let line = format!("<85>countersign[{}]: checkpoint {checkpoint}", std::process::id());
    log.send_to(line.as_bytes(), socket).map(drop)
}

/// A server that takes each checkpoint as JSON. Its body is signed by the ledger's key already.
#[derive(Debug)]
struct Webhook {
    waiting: mpsc::Sender<String>,
}

impl Webhook {
    fn start(url: &str) -> Self {
        let (waiting, mut taken) = mpsc::channel::<String>(WAITING);
        let url = url.to_owned();
        tokio::spawn(async move {
            while let Some(body) = taken.recv().await {
                deliver(&url, &body).await;
            }
        });
        Self { waiting }
    }
}

impl CheckpointSink for Webhook {
    fn keep(&self, checkpoint: &Checkpoint) -> Result<(), String> {
        let taken = self.waiting.try_send(checkpoint.to_string());
        taken.map_err(|_| format!("{WAITING} checkpoints wait for the server already"))
    }
}

async fn deliver(url: &str, body: &str) {
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=TRIES {
        let headers = [("countersign-event", "checkpoint".to_owned())];
        let why = match post_json(url, &headers, body.as_bytes().to_vec(), PATIENCE).await {
            Ok(200..=299) => return,
            Ok(status) => format!("it answered {status}"),
            Err(fault) => fault.to_string(),
        };
        tracing::warn!(attempt, why, "a checkpoint did not get through");
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        let line = r#"{"v":1,"time":"2026-01-01T00:00:00Z","heads":[],"public_key":"","signature":""}"#;
        line.parse().unwrap()
    }

    #[test]
    fn attack_08_the_system_log_gets_each_checkpoint_whole() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("log");
        assert!(send_to_log(&path, &checkpoint()).is_err(), "nobody listens");
        let log = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        send_to_log(&path, &checkpoint()).unwrap();
        let mut bytes = [0; 4096];
        let length = log.recv(&mut bytes).unwrap();
        let line = String::from_utf8_lossy(bytes.get(..length).unwrap()).into_owned();
        let (head, body) = line.split_once(": checkpoint ").unwrap();
        assert!(head.starts_with("<85>countersign["), "{head}");
        assert_eq!(body.parse::<Checkpoint>().unwrap(), checkpoint());
    }

    #[tokio::test]
    async fn attack_08_a_slow_server_is_not_waited_for() {
        let webhook = Webhook::start("http://127.0.0.1:9/");
        let taken = (0..1000).filter(|_| webhook.keep(&checkpoint()).is_ok()).count();
        assert!(taken <= WAITING + 1, "{taken}");
    }
}
