//! Errors of the pack: a refusal with its code, or an unexpected failure. Maps file system errors to codes, in one place.

use std::fmt;
use std::io;
use std::path::Path;

use countersign_policy::refusal::{Code, Refusal};

#[derive(Debug)]
pub enum PackError {
    /// Something has to be different first.
    Refused(Box<Refusal>),
    Broken(UnexpectedFailure),
}

pub use countersign_policy::envelope::UNEXPECTED;

/// Something is broken: one line for everybody.
#[derive(Debug)]
pub struct UnexpectedFailure {
    /// What was being done, with the path.
    pub doing: String,
    pub why: String,
}

/// What a command of the pack gives back.
pub type PackResult<T> = Result<T, PackError>;

impl PackError {
    /// A refusal with its code's usual reason and next actions.
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Refusal::new(code, message).into()
    }

    pub fn broken(doing: impl Into<String>, why: impl fmt::Display) -> Self {
        Self::Broken(UnexpectedFailure { doing: doing.into(), why: why.to_string() })
    }

    /// What the file system said while something was done to a path.
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let shown = shown(path);
        let say = |code, what: &str| {
            Refusal::new(code, format!("can't {doing} `{shown}`: {what}")).with("path", shown.as_str())
        };
        let known = [
            (io::ErrorKind::PermissionDenied, Code::IoPermissionDenied, "permission denied"),
            (io::ErrorKind::ReadOnlyFilesystem, Code::IoPermissionDenied, "the file system is read-only"),
            (io::ErrorKind::InvalidFilename, Code::IoPathTooLong, "the name is too long or not allowed"),
            (io::ErrorKind::NotADirectory, Code::IoInvalidPath, "a part of it is a file"),
            (io::ErrorKind::IsADirectory, Code::IoInvalidPath, "it is a folder"),
            (io::ErrorKind::InvalidInput, Code::IoInvalidPath, "it is not a file"),
        ];
        match known.iter().find(|(kind, ..)| *kind == error.kind()) {
            Some((_, code, what)) => say(*code, what).into(),
            None => Self::broken(format!("{doing} `{shown}`"), error),
        }
    }

    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            PackError::Refused(refusal) => Some(refusal),
            PackError::Broken(_) => None,
        }
    }

    pub fn code(&self) -> &'static str {
        self.refusal().map_or(UNEXPECTED, |refusal| refusal.code.as_str())
    }

    /// The same stop with one more fact, where it is a refusal.
    #[must_use]
    pub fn with(self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        match self {
            PackError::Refused(refusal) => PackError::Refused(Box::new(refusal.with(name, value))),
            PackError::Broken(broken) => PackError::Broken(broken),
        }
    }
}

impl From<Refusal> for PackError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackError::Refused(refusal) => write!(f, "{}", refusal.message),
            PackError::Broken(broken) => write!(f, "{broken}"),
        }
    }
}

impl fmt::Display for UnexpectedFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "can't {}: {}", self.doing, self.why)
    }
}

impl std::error::Error for PackError {}

/// A path for a message: one line, nothing that moves a terminal's cursor.
pub fn shown(path: &Path) -> String {
    path.display().to_string().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
