//! Why a command of the pack does not go on: a refusal with its code, or something broken. Maps what the file system
//! says to codes, in one place.

use std::fmt;
use std::io;
use std::path::Path;

use countersign_core::refusal::{Code, Refusal};

/// A command does not go on.
#[derive(Debug)]
pub enum Stop {
    /// Something has to be different first.
    Refused(Box<Refusal>),
    /// Something is broken.
    Broken(Broken),
}

/// Something is broken: one line for everybody.
#[derive(Debug)]
pub struct Broken {
    /// What was being done, with the path.
    pub doing: String,
    /// What the system said.
    pub why: String,
}

/// The code of what is broken.
pub const UNEXPECTED: &str = "E_UNEXPECTED";

/// What a command of the pack gives back.
pub type Outcome<T> = Result<T, Stop>;

impl Stop {
    /// A refusal with its code's usual reason and next actions.
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Refusal::new(code, message).into()
    }

    /// Something that should not happen.
    pub fn broken(doing: impl Into<String>, why: impl fmt::Display) -> Self {
        Self::Broken(Broken { doing: doing.into(), why: why.to_string() })
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

    /// The refusal, where it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Stop::Refused(refusal) => Some(refusal),
            Stop::Broken(_) => None,
        }
    }

    /// The code a program sees.
    pub fn code(&self) -> &'static str {
        self.refusal().map_or(UNEXPECTED, |refusal| refusal.code.as_str())
    }

    /// The same stop with one more fact, where it is a refusal.
    #[must_use]
    pub fn with(self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        match self {
            Stop::Refused(refusal) => Stop::Refused(Box::new(refusal.with(name, value))),
            Stop::Broken(broken) => Stop::Broken(broken),
        }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Refused(refusal) => write!(f, "{}", refusal.message),
            Stop::Broken(broken) => write!(f, "{broken}"),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "can't {}: {}", self.doing, self.why)
    }
}

impl std::error::Error for Stop {}

/// A path for a message: one line, nothing that moves a terminal's cursor.
pub fn shown(path: &Path) -> String {
    path.display().to_string().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
