//! The log of a run: a private file, written as output comes. A call that waits for its command gets one only when its output is longer than an
//! answer.

use std::path::{Path, PathBuf};

use countersign_policy::ids::RunId;
use countersign_policy::words::plural;
use tokio::fs::{DirBuilder, File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

/// A command that never stops writing must not fill the disk.
const LONGEST: u64 = 64 << 20;

pub(crate) struct Log {
    folder: PathBuf,
    name: String,
    file: Option<File>,
    /// The output before there was a file.
    waiting: Vec<u8>,
    /// How much is buffered before a file is made.
    patience: usize,
    written: u64,
    lost: u64,
    broken: bool,
}

impl Log {
    /// A log that becomes a file once there is more than this.
    pub(crate) fn buffered(folder: &Path, id: &RunId, patience: usize) -> Self {
        Self {
            folder: folder.to_owned(),
            name: format!("{id}.log"),
            file: None,
            waiting: Vec::new(),
            patience,
            written: 0,
            lost: 0,
            broken: false,
        }
    }

    pub(crate) async fn now(folder: &Path, id: &RunId) -> std::io::Result<Self> {
        let mut log = Self::buffered(folder, id, 0);
        log.open().await?;
        Ok(log)
    }

    /// Adds bytes. A log that can't be written does not stop the command.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        if self.file.is_none() && !self.broken {
            self.waiting.extend_from_slice(bytes);
            if self.waiting.len() > self.patience {
                self.spill().await;
            }
            return;
        }
        self.put(bytes).await;
    }

    async fn spill(&mut self) {
        if let Err(error) = self.open().await {
            tracing::warn!(log = self.name, %error, "a log could not be opened");
            self.broken = true;
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.put(&waiting).await;
    }

    async fn put(&mut self, bytes: &[u8]) {
        let room = usize::try_from(LONGEST.saturating_sub(self.written)).unwrap_or(usize::MAX);
        let fits = bytes.get(..room).unwrap_or(bytes);
        let kept = match &mut self.file {
            Some(file) => file.write_all(fits).await.is_ok(),
            None => false,
        };
        let kept = if kept { fits.len() } else { 0 };
        self.written += kept as u64;
        self.lost += (bytes.len() - kept) as u64;
    }

    async fn open(&mut self) -> std::io::Result<()> {
        private_folder(&self.folder).await?;
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o600);
        self.file = Some(options.open(self.folder.join(&self.name)).await?);
        Ok(())
    }

    /// Ends it and returns its name. If the answer contains the whole output, a buffered file is not kept.
    pub(super) async fn finish(mut self, whole: bool) -> Option<String> {
        if whole && self.patience > 0 {
            if self.file.take().is_some() {
                let _ = tokio::fs::remove_file(self.folder.join(&self.name)).await;
            }
            return None;
        }
        if self.file.is_none() && !self.broken {
            self.spill().await;
        }
        let mut file = self.file.take()?;
        if self.lost > 0 {
            let _ =
                file.write_all(format!("\n[{} more not kept]\n", plural(self.lost, "byte")).as_bytes()).await;
        }
        let _ = file.flush().await;
        Some(self.name)
    }
}

pub(super) async fn private_folder(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).await
}
