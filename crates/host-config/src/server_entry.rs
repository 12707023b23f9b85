//! A server as any host may write it down, in one shape. Values stay as the host wrote them; references in them are resolved by `init`.

use std::path::PathBuf;

use countersign_policy::ids::Secret;

/// One server in a host's file.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerEntry {
    pub name: String,
    /// The keys that lead to it, its name last.
    pub path: Vec<String>,
    /// The folder it belongs to, if it belongs to one.
    pub folder: Option<PathBuf>,
    pub kind: ServerEntryKind,
    pub offers: OfferedTools,
}

/// Which tools of a server a host offers to its agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedTools {
    /// These and no others; none is no such list.
    pub only: Option<Vec<String>>,
    pub without: Vec<String>,
}

impl OfferedTools {
    pub fn all(&self) -> bool {
        self.only.is_none() && self.without.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum ServerEntryKind {
    /// A server we can govern.
    Server(HostServerSpec),
    /// Countersign itself.
    Countersign,
    /// Switched off in its host.
    Disabled,
    /// Nothing we can run, and why.
    Foreign(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum HostServerSpec {
    Stdio {
        command: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        cwd: Option<String>,
    },
    Http {
        url: String,
        headers: Vec<(String, String)>,
        /// The variable that holds a bearer token.
        bearer_env: Option<String>,
        /// Headers whose values are in variables.
        env_headers: Vec<(String, String)>,
    },
}

/// How a host reaches the gateway: what is written as our entry in its file.
#[derive(Clone, Debug)]
pub enum GatewayEntry {
    /// The host starts this program and speaks over stdio.
    Command { command: String, args: Vec<String>, env: Vec<(String, String)> },
    /// The host calls a running gateway over HTTP with a credential of its own.
    Address { url: String, secret: Secret },
}

impl GatewayEntry {
    /// The value of the `Authorization` header.
    pub(crate) fn authorization(secret: &Secret) -> String {
        format!("Bearer {}", secret.expose())
    }
}

/// The name of our entry in every host.
pub(crate) const GATEWAY_NAME: &str = "countersign";

/// Programs that fetch and run a package named in their arguments.
const RUNNERS: [&str; 9] = ["npx", "bunx", "pnpm", "npm", "yarn", "uvx", "uv", "pipx", "node"];

/// Whether an entry starts this program: under its own name, through a package runner, or under another name in an entry as we write
/// it. Imported as a server it would become its own upstream.
pub(crate) fn is_gateway_command(name: &str, command: &str, args: &[String]) -> bool {
    let runner = RUNNERS.contains(&program_name(command));
    let run = runner && args.iter().any(|arg| program_name(arg).split('@').next() == Some(GATEWAY_NAME));
    let written = name == GATEWAY_NAME && args.first().is_some_and(|arg| arg == "serve");
    program_name(command) == GATEWAY_NAME || run || written
}

/// Whether a URL is a gateway's: by the entry's name and the path we serve.
pub(crate) fn is_gateway_url(name: &str, url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    name == GATEWAY_NAME && ["/mcp", "/mcp/router", "/mcp/direct"].iter().any(|end| path.ends_with(end))
}

/// The last part of a path of any system, without the extensions of programs.
fn program_name(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    [".exe", ".cmd", ".js"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_never_its_own_upstream() {
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
            assert_eq!(is_gateway_command(name, command, &args), expect, "{name}: {command} {args:?}");
        }
        for (name, url, expect) in [
            ("countersign", "http://127.0.0.1:7878/mcp", true),
            ("countersign", "https://gate.example.com/mcp/direct/", true),
            ("docs", "https://docs.example.com/mcp", false),
            ("countersign", "https://gate.example.com/other", false),
        ] {
            assert_eq!(is_gateway_url(name, url), expect, "{name}: {url}");
        }
    }
}
