//! The file of tokens: one entry an upstream's address, readable by its owner alone, replaced whole, changed by one process at
//! a time. It never leaves this machine and is never shown.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_wire::upstream::oauth::{Guard, OauthFault, Registered, Tokens};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What signing in to one upstream left.
#[derive(Clone, Serialize, Deserialize)]
pub struct Key {
    /// Who signed a person in.
    pub guard: Guard,
    /// Who we are to them.
    pub client: Registered,
    /// Where answers to us go.
    pub redirect: String,
    /// What was granted.
    pub scope: Option<String>,
    /// The token.
    pub access_token: String,
    /// The token for the next one.
    pub refresh_token: Option<String>,
    /// When it ends, in seconds since 1970.
    pub expires_at: Option<i64>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("issuer", &self.guard.issuer).finish_non_exhaustive()
    }
}

impl Key {
    pub(super) fn ends_within(&self, seconds: i64) -> bool {
        self.expires_at.is_some_and(|end| end - Timestamp::now().as_second() <= seconds)
    }

    /// The same sign-in with newly granted tokens.
    pub(super) fn with(&self, granted: Tokens) -> Self {
        let seconds = granted.expires_in.and_then(|span| i64::try_from(span.as_secs()).ok());
        Self {
            scope: granted.scope.or_else(|| self.scope.clone()),
            access_token: granted.access_token,
            refresh_token: granted.refresh_token,
            expires_at: seconds.map(|seconds| Timestamp::now().as_second().saturating_add(seconds)),
            ..self.clone()
        }
    }
}

/// One entry of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    key: Option<Key>,
    /// What the upstream last said when it turned us away.
    challenge: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Book {
    v: u32,
    upstreams: BTreeMap<String, Kept>,
}

/// Why a token could not be read, kept or renewed.
#[derive(Debug, thiserror::Error)]
pub enum KeysFault {
    /// The file is not fit to hold secrets, or can't be read or written.
    #[error("`{}` can't be used: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The guard did not help.
    #[error(transparent)]
    Guard(#[from] OauthFault),
}

/// The file.
#[derive(Debug)]
pub struct Keys {
    path: PathBuf,
}

/// The longest text of a refusal that is kept.
const LONGEST: usize = 4096;

impl Keys {
    /// The file at this path; it is made when something is to be kept.
    pub fn at(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path })
    }

    /// What is kept of an upstream.
    pub async fn of(self: &Arc<Self>, url: &str) -> Result<Option<Key>, KeysFault> {
        let (keys, url) = (Arc::clone(self), url.to_owned());
        apart(&self.path, move || Ok(keys.read()?.upstreams.remove(&url).and_then(|kept| kept.key))).await
    }

    /// What the upstream last said when it turned us away.
    pub async fn challenge(self: &Arc<Self>, url: &str) -> Result<Option<String>, KeysFault> {
        let (keys, url) = (Arc::clone(self), url.to_owned());
        apart(&self.path, move || Ok(keys.read()?.upstreams.remove(&url).and_then(|kept| kept.challenge)))
            .await
    }

    /// Keeps a new sign-in.
    pub async fn keep(self: &Arc<Self>, url: &str, key: Key) -> Result<(), KeysFault> {
        self.change(url, move |kept| *kept = Kept { key: Some(key), challenge: None }).await
    }

    /// Forgets a sign-in; true if there was one.
    pub async fn forget(self: &Arc<Self>, url: &str) -> Result<bool, KeysFault> {
        let was = self.of(url).await?.is_some();
        if was {
            self.change(url, |kept| *kept = Kept::default()).await?;
        }
        Ok(was)
    }

    pub(super) async fn note_challenge(
        self: &Arc<Self>,
        url: &str,
        challenge: &str,
    ) -> Result<(), KeysFault> {
        if self.challenge(url).await?.as_deref() == Some(challenge) || challenge.len() > LONGEST {
            return Ok(());
        }
        let challenge = challenge.to_owned();
        self.change(url, move |kept| kept.challenge = Some(challenge)).await
    }

    /// Forgets tokens that are no longer good, unless others took their place.
    pub(super) async fn forget_tokens(self: &Arc<Self>, url: &str, old: &Key) -> Result<(), KeysFault> {
        let old = old.access_token.clone();
        self.change(url, move |kept| {
            kept.key.take_if(|key| key.access_token == old);
        })
        .await
    }

    /// Renews a key while no other process does: a refresh token is good once. One that was renewed meanwhile is taken.
    pub(super) async fn renew(
        self: &Arc<Self>,
        url: &str,
        old: &Key,
        work: impl Future<Output = Result<Key, OauthFault>>,
    ) -> Result<Key, KeysFault> {
        let keys = Arc::clone(self);
        let lock = apart(&self.path, move || keys.lock()).await?;
        if let Some(other) = self.of(url).await?.filter(|key| key.access_token != old.access_token) {
            return Ok(other);
        }
        let fresh = work.await?;
        let (keys, name, kept) = (Arc::clone(self), url.to_owned(), fresh.clone());
        apart(&self.path, move || {
            let mut book = keys.read()?;
            book.upstreams.entry(name).or_default().key = Some(kept);
            keys.write(book)
        })
        .await?;
        drop(lock);
        Ok(fresh)
    }

    async fn change(
        self: &Arc<Self>,
        url: &str,
        work: impl FnOnce(&mut Kept) + Send + 'static,
    ) -> Result<(), KeysFault> {
        let (keys, url) = (Arc::clone(self), url.to_owned());
        apart(&self.path, move || {
            let lock = keys.lock()?;
            let mut book = keys.read()?;
            let mut kept = book.upstreams.remove(&url).unwrap_or_default();
            work(&mut kept);
            if kept.key.is_some() || kept.challenge.is_some() {
                book.upstreams.insert(url, kept);
            }
            keys.write(book)?;
            drop(lock);
            Ok(())
        })
        .await
    }

    fn lock(&self) -> io::Result<File> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let lock = private().create(true).truncate(false).open(self.path.with_extension("lock"))?;
        lock.lock()?;
        Ok(lock)
    }

    fn read(&self) -> io::Result<Book> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Book { v: 1, ..Book::default() });
            }
            Err(error) => return Err(error),
        };
        check_private(&self.path)?;
        let book: Book = serde_json::from_str(&text).map_err(|error| {
            // Where it is broken, never what stands there.
            io::Error::other(format!("line {} is not what we wrote", error.line()))
        })?;
        if book.v != 1 {
            return Err(io::Error::other("it was written by another version"));
        }
        Ok(book)
    }

    fn write(&self, book: Book) -> io::Result<()> {
        let aside = self.path.with_extension(format!("{}.new", std::process::id()));
        // One that is left from a crash is ours to replace.
        let _ = fs::remove_file(&aside);
        let mut file = private().create_new(true).open(&aside)?;
        let text = serde_json::to_string_pretty(&book).map_err(io::Error::other)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let placed = written.and_then(|()| fs::rename(&aside, &self.path));
        if placed.is_err() {
            let _ = fs::remove_file(&aside);
        }
        placed
    }
}

fn private() -> fs::OpenOptions {
    let mut open = fs::OpenOptions::new();
    open.write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        open.mode(0o600);
    }
    open
}

#[cfg(unix)]
fn check_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let open_to_others = fs::metadata(path)?.permissions().mode() & 0o077 != 0;
    if open_to_others {
        return Err(io::Error::other(format!("others can read it: chmod 600 {}", path.display())));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_private(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Work on files, away from the threads that serve.
async fn apart<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, KeysFault> {
    let done = tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(io::Error::other("it was interrupted")));
    done.map_err(|error| KeysFault::File { path: path.to_owned(), why: error.to_string() })
}
