//! The address of a store: `sqlite:PATH`, `sqlite::memory:` or `postgres://…`. Parses it, opens nothing.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::engine::PostgresAddress;

#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    Sqlite(PathBuf),
    /// Lost with the process: for tests and trials.
    Memory,
    /// A server, for several replicas. As it was given; may contain a password.
    Postgres(String),
}

/// The text is not where a store can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a store is `sqlite:PATH`, `sqlite::memory:` or `postgres://…`: {why}")]
pub struct NotAStoreUrl {
    why: String,
}

impl StoreUrl {
    pub fn file(path: impl AsRef<Path>) -> Self {
        Self::Sqlite(path.as_ref().to_path_buf())
    }

    /// The sealing key that a PostgreSQL address names with `sealkey=FILE`.
    pub(crate) fn seal_key(&self) -> Option<PathBuf> {
        match self {
            StoreUrl::Sqlite(_) | StoreUrl::Memory => None,
            StoreUrl::Postgres(url) => PostgresAddress::read(url).ok()?.seal_key,
        }
    }

    /// Which store it is, without any secret.
    pub(crate) fn place(&self) -> String {
        match self {
            StoreUrl::Sqlite(path) => path.display().to_string(),
            StoreUrl::Memory => String::new(),
            StoreUrl::Postgres(url) => {
                PostgresAddress::read(url).map(|address| address.place()).unwrap_or_default()
            }
        }
    }
}

impl FromStr for StoreUrl {
    type Err = NotAStoreUrl;

    fn from_str(text: &str) -> Result<Self, NotAStoreUrl> {
        let refuse = |why: &str| Err(NotAStoreUrl { why: why.to_owned() });
        if text.contains('\0') {
            return refuse("it holds a zero byte");
        }
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                ":memory:" => Ok(Self::Memory),
                "" => refuse("the path is empty"),
                path => Ok(Self::file(path)),
            };
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return match PostgresAddress::read(text) {
                Ok(_) => Ok(Self::Postgres(text.to_owned())),
                // The reason names the part that is wrong, never the password.
                Err(why) => refuse(&why),
            };
        }
        match text.split_once(':') {
            Some((scheme, _)) => refuse(&format!("`{scheme}` is neither `sqlite` nor `postgres`")),
            None => refuse("it has no `sqlite:` or `postgres:` in front"),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            StoreUrl::Memory => f.write_str("sqlite::memory:"),
            StoreUrl::Postgres(_) => f.write_str("postgres://***"),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_forms_and_nothing_else() {
        assert_eq!("sqlite:a/b.db".parse(), Ok(StoreUrl::file("a/b.db")));
        assert_eq!("sqlite:///var/x.db".parse(), Ok(StoreUrl::file("/var/x.db")));
        assert_eq!("sqlite::memory:".parse(), Ok(StoreUrl::Memory));
        assert!(matches!("postgres://u:p@h/d".parse(), Ok(StoreUrl::Postgres(_))));
        for bad in
            ["", "sqlite", "sqlite:", "mysql://x", "postgres://h:port/x", "sqlite:a\0b", "é", "postgres"]
        {
            assert!(bad.parse::<StoreUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let url: StoreUrl = "postgres://bob:hunter2@h/d".parse().unwrap();
        assert!(!format!("{url} {url:?}").contains("hunter2"));
        let bad = "postgres://bob:hunter2@h:x/d".parse::<StoreUrl>().unwrap_err();
        assert!(!bad.to_string().contains("hunter2"));
    }
}
