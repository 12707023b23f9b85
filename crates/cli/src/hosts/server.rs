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
    /// Which of its tools its host offers.
    pub(crate) offers: Offers,
}

/// Which tools of a server a host offers to its agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offers {
    /// These and no others; none is no such list.
    pub(crate) only: Option<Vec<String>>,
    /// Not these.
    pub(crate) without: Vec<String>,
}

impl Offers {
    /// Whether it offers everything.
    pub(crate) fn all(&self) -> bool {
        self.only.is_none() && self.without.is_empty()
    }
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

/// Programs that fetch and run another one, which they are told by name.
const RUNNERS: [&str; 9] = ["npx", "bunx", "pnpm", "npm", "yarn", "uvx", "uv", "pipx", "node"];

/// Whether an entry starts this program: under its own name, through whatever runs packages, or under another name in an entry as
/// we write it. Taken for a server like any other it would be put behind itself.
pub(crate) fn is_ours(name: &str, command: &str, args: &[String]) -> bool {
    let runner = RUNNERS.contains(&last_part(command));
    let run = runner && args.iter().any(|arg| last_part(arg).split('@').next() == Some(NAME));
    let written = name == NAME && args.first().is_some_and(|arg| arg == "serve");
    last_part(command) == NAME || run || written
}

/// Whether an address is a gateway's of ours: by the entry's name and the path we serve.
pub(crate) fn is_our_address(name: &str, url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    name == NAME && ["/mcp", "/mcp/router", "/mcp/direct"].iter().any(|end| path.ends_with(end))
}

/// The name in a path of any system, without what only programs of one system have.
fn last_part(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    [".exe", ".cmd", ".js"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_never_put_behind_ourselves() {
        for (name, command, args, expect) in [
            ("x", "countersign", &["serve"][..], true),
            ("x", "/usr/local/bin/countersign", &[], true),
            ("x", r"C:\tools\countersign.exe", &["serve"], true),
            ("x", "npx", &["-y", "countersign", "serve"], true),
            ("x", "npx.cmd", &["-y", "countersign@0.1.0", "serve"], true),
            ("x", "uvx", &["countersign", "serve"], true),
            ("x", "node", &["/n/countersign/bin/countersign.js", "serve"], true),
            ("countersign", "/opt/cs", &["serve", "--config", "c.toml"], true),
            ("countersign", "npx", &["-y", "another"], false),
            ("other", "/opt/cs", &["serve"], false),
            ("x", "npx", &["-y", "@countersign/other"], false),
            ("x", "npx", &["-y", "countersigner"], false),
            ("x", "python3", &["countersign"], false),
        ] {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert_eq!(is_ours(name, command, &args), expect, "{name}: {command} {args:?}");
        }
        for (name, url, expect) in [
            ("countersign", "http://127.0.0.1:7878/mcp", true),
            ("countersign", "https://gate.example.com/mcp/direct/", true),
            ("docs", "https://docs.example.com/mcp", false),
            ("countersign", "https://gate.example.com/other", false),
        ] {
            assert_eq!(is_our_address(name, url), expect, "{name}: {url}");
        }
    }
}
