//! A server as any host may write it down, in one shape. Values stay as the host wrote them; what they mean is found out elsewhere.

use std::path::PathBuf;

/// One server in a host's file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Its name there.
    pub(crate) name: String,
    /// The keys that lead to it, its name last.
    pub(crate) path: Vec<String>,
    /// The folder it belongs to, if it belongs to one.
    pub(crate) folder: Option<PathBuf>,
    /// What it is.
    pub(crate) kind: Kind,
}

/// What an entry is to us.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A server we can govern.
    Server(Server),
    /// Countersign itself.
    Countersign,
    /// Switched off in its host.
    Disabled,
    /// Nothing we can run, and why.
    Foreign(String),
}

/// A server we can govern.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Server {
    /// A program.
    Stdio {
        /// Its name or path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its variables.
        env: Vec<(String, String)>,
        /// Where it runs.
        cwd: Option<String>,
    },
    /// An address.
    Http {
        /// Which.
        url: String,
        /// What every request carries.
        headers: Vec<(String, String)>,
        /// The variable that holds a bearer token.
        bearer_env: Option<String>,
        /// Headers whose values are in variables.
        env_headers: Vec<(String, String)>,
    },
}

/// How a host starts us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ours {
    /// The program.
    pub(crate) command: String,
    /// Its arguments.
    pub(crate) args: Vec<String>,
}

/// The name of our entry in every host.
pub(crate) const NAME: &str = "countersign";

/// Whether a program is this one, by its name.
pub(crate) fn is_ours(command: &str) -> bool {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    name.strip_suffix(".exe").unwrap_or(name) == NAME
}
