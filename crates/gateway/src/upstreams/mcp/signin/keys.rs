//! The token file: one entry per upstream address, readable by its owner alone, replaced as a whole, changed by one process at a time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_mcp::oauth::{AuthorizationServer, ClientRegistration, OauthFault, OauthTokens};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
pub struct SignInTokens {
    pub guard: AuthorizationServer,
    pub client: ClientRegistration,
    pub redirect: String,
    pub scope: Option<String>,
    pub access_token: String,
    pub refresh_token: Option<String>,
    /// In seconds since 1970.
    pub expires_at: Option<i64>,
}

impl std::fmt::Debug for SignInTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignInTokens").field("issuer", &self.guard.issuer).finish_non_exhaustive()
    }
}

impl SignInTokens {
    pub(super) fn ends_within(&self, seconds: i64) -> bool {
        self.expires_at.is_some_and(|end| end - Timestamp::now().as_second() <= seconds)
    }

    /// The same sign-in with newly granted tokens.
    pub(super) fn with(&self, granted: OauthTokens) -> Self {
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

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct TokenFileEntry {
    key: Option<SignInTokens>,
    /// The challenge of the upstream's last rejection.
    challenge: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct TokenFileContents {
    v: u32,
    upstreams: BTreeMap<String, TokenFileEntry>,
}

#[derive(Debug, thiserror::Error)]
pub enum KeysFault {
    /// The file is not private, or can't be read or written.
    #[error("`{}` can't be used: {why}", path.display())]
    File { path: PathBuf, why: String },
    #[error(transparent)]
    Guard(#[from] OauthFault),
}

#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
}

const LONGEST: usize = 4096;

impl TokenFile {
    /// The file is created with the first entry.
    pub fn at(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path })
    }

    pub async fn of(self: &Arc<Self>, url: &str) -> Result<Option<SignInTokens>, KeysFault> {
        let (keys, url) = (Arc::clone(self), url.to_owned());
        off_runtime(&self.path, move || Ok(keys.read()?.upstreams.remove(&url).and_then(|kept| kept.key)))
            .await
    }

    /// The challenge of the upstream's last rejection.
    pub async fn challenge(self: &Arc<Self>, url: &str) -> Result<Option<String>, KeysFault> {
        let (keys, url) = (Arc::clone(self), url.to_owned());
        off_runtime(&self.path, move || {
            Ok(keys.read()?.upstreams.remove(&url).and_then(|kept| kept.challenge))
        })
        .await
    }

    pub async fn keep(self: &Arc<Self>, url: &str, key: SignInTokens) -> Result<(), KeysFault> {
        self.change(url, move |kept| *kept = TokenFileEntry { key: Some(key), challenge: None }).await
    }

    /// True if there was one.
    pub async fn forget(self: &Arc<Self>, url: &str) -> Result<bool, KeysFault> {
        let was = self.of(url).await?.is_some();
        if was {
            self.change(url, |kept| *kept = TokenFileEntry::default()).await?;
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

    /// Removes tokens that are no longer valid, unless others replaced them.
    pub(super) async fn forget_tokens(
        self: &Arc<Self>,
        url: &str,
        old: &SignInTokens,
    ) -> Result<(), KeysFault> {
        let old = old.access_token.clone();
        self.change(url, move |kept| {
            kept.key.take_if(|key| key.access_token == old);
        })
        .await
    }

    /// Renews a token while no other process does: a refresh token works once. One that was renewed meanwhile is returned.
    pub(super) async fn renew(
        self: &Arc<Self>,
        url: &str,
        old: &SignInTokens,
        work: impl Future<Output = Result<SignInTokens, OauthFault>>,
    ) -> Result<SignInTokens, KeysFault> {
        let keys = Arc::clone(self);
        let lock = off_runtime(&self.path, move || keys.lock()).await?;
        if let Some(other) = self.of(url).await?.filter(|key| key.access_token != old.access_token) {
            return Ok(other);
        }
        let fresh = work.await?;
        let (keys, name, kept) = (Arc::clone(self), url.to_owned(), fresh.clone());
        off_runtime(&self.path, move || {
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
        work: impl FnOnce(&mut TokenFileEntry) + Send + 'static,
    ) -> Result<(), KeysFault> {
        let (keys, url) = (Arc::clone(self), url.to_owned());
        off_runtime(&self.path, move || {
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

    fn read(&self) -> io::Result<TokenFileContents> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(TokenFileContents { v: 1, ..TokenFileContents::default() });
            }
            Err(error) => return Err(error),
        };
        check_private(&self.path)?;
        let book: TokenFileContents = serde_json::from_str(&text).map_err(|error| {
            // Reports the place of an error, never the content.
            io::Error::other(format!("line {} is not what we wrote", error.line()))
        })?;
        if book.v != 1 {
            return Err(io::Error::other("it was written by another version"));
        }
        Ok(book)
    }

    fn write(&self, book: TokenFileContents) -> io::Result<()> {
        let aside = self.path.with_extension(format!("{}.new", std::process::id()));
        // A file left by a crash is ours to replace.
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

/// Runs file access off the async threads.
async fn off_runtime<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, KeysFault> {
    let done = tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(io::Error::other("it was interrupted")));
    done.map_err(|error| KeysFault::File { path: path.to_owned(), why: error.to_string() })
}
