//! `[upstreams.NAME]`: what is governed. An MCP server behind a command or a URL, command lines as tools, or one of our own.
//! Starts and connects nothing.

use std::time::Duration;

use super::command::{self, CommandTool};
use super::diagnostic::{Problem, tick};
use super::reading::{Reader, Section};
use super::source::Place;
use super::template::{self, Gaps, Piece, Template};
use super::tree::{Entry, Node, Table};
use super::upstream_access::{self, UpstreamAccess};
use crate::ids::UpstreamId;
use crate::nearest::nearest;
use crate::words::words;

words! {
    /// Whether what an upstream lists at first is believed.
    pub enum Trust("trust") {
        /// Its tools are pinned as first listed.
        FirstSight = "first-sight",
        /// A person accepts each tool.
        Review = "review",
    }
}

words! {
    /// When an upstream is started.
    pub enum Start("start") {
        /// On first need.
        Lazy = "lazy",
        /// With the gateway.
        Eager = "eager",
    }
}

words! {
    /// An upstream of our own.
    pub enum NativeKind("kind") {
        /// Something to play with.
        Demo = "demo",
        /// Agent assets.
        Pack = "pack",
        /// A governed memory.
        Memory = "memory",
    }
}

/// Whether names on the direct surface carry the upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// `upstream__tool`.
    Upstream,
    /// The tool's own name: only with a single upstream.
    None,
}

/// A name and its value, which may be a secret.
pub type Pair = (String, Template);

/// One upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Our name of it.
    pub id: UpstreamId,
    /// Where it is written.
    pub place: Place,
    /// Whether its first list is believed.
    pub trust: Trust,
    /// When it is started.
    pub start: Start,
    /// How often its list is read again.
    pub relist: Duration,
    /// How long its calls may take, where no rule says.
    pub timeout: Option<Duration>,
    /// How its tools are named on the direct surface.
    pub prefix: Prefix,
    /// What it may do besides offering tools.
    pub access: UpstreamAccess,
    /// What it is.
    pub kind: UpstreamKind,
}

/// What an upstream is.
#[derive(Clone, Debug, PartialEq)]
pub enum UpstreamKind {
    /// An MCP server on standard input and output.
    Stdio {
        /// The program.
        command: Template,
        /// Its arguments.
        args: Vec<Template>,
        /// What its environment has besides the basics.
        env: Vec<Pair>,
        /// Where it runs.
        cwd: Option<Template>,
    },
    /// An MCP server over streamable HTTP.
    Http {
        /// Where.
        url: Template,
        /// Headers of every request.
        headers: Vec<Pair>,
        /// A bearer token.
        bearer: Option<Template>,
        /// Who we are where people sign in: `client_id`, `client_secret`, `scopes`.
        oauth: Vec<Pair>,
    },
    /// Command lines as tools.
    Command {
        /// The tools.
        tools: Vec<CommandTool>,
        /// What their environment has besides the basics.
        env: Vec<Pair>,
        /// Where they run.
        cwd: Option<Template>,
    },
    /// One of our own.
    Native {
        /// Which.
        kind: NativeKind,
        /// Where it works or keeps its data, if not where it usually does.
        folder: Option<Template>,
    },
}

const COMMON: [&str; 5] = ["trust", "start", "relist", "timeout", "prefix"];
const RELIST: Duration = Duration::from_secs(600);

/// The key that says what an upstream is, and the keys that go with it.
const KINDS: [(&str, &[&str]); 4] = [
    ("command", &["args", "env", "cwd", "elicitation", "sampling", "questions", "methods"]),
    ("url", &["headers", "bearer", "oauth", "elicitation", "sampling", "questions", "methods"]),
    ("tools", &["env", "cwd"]),
    ("kind", &["folder"]),
];

pub(super) fn read_all(reader: &mut Reader<'_>, root: &Table) -> Vec<Upstream> {
    let Some(node) = root.get("upstreams") else { return Vec::new() };
    let Some(table) = reader.table(node, "upstreams", "{ github = { command = \"npx\" } }") else {
        return Vec::new();
    };
    let all: Vec<Upstream> = table.entries.iter().filter_map(|entry| read(reader, entry)).collect();
    let bare = all.iter().find(|upstream| upstream.prefix == Prefix::None);
    if let Some(bare) = bare.filter(|_| table.entries.len() > 1) {
        let message =
            format!("`{}` has `prefix = false`, and there are {} upstreams", bare.id, table.entries.len());
        let help = "remove `prefix = false`: tools of several upstreams need their names apart".to_owned();
        reader.error(bare.place, Problem::Conflict, message, help);
    }
    all
}

fn read(reader: &mut Reader<'_>, entry: &Entry) -> Option<Upstream> {
    check_id(reader, entry);
    let table = reader.table(&entry.node, &entry.key, "{ command = \"npx\" }")?;
    let where_ = format!("`[upstreams.{}]`", entry.key);
    let marker = kind_of(reader, entry, table, &where_);
    let kind = marker.and_then(|marker| read_kind(reader, entry, table, marker));
    let mut section = Section { reader, table };
    let prefix = match section.truth("prefix", "false") {
        Some(false) => Prefix::None,
        Some(true) | None => Prefix::Upstream,
    };
    let access = upstream_access::read(section.reader, table, prefix);
    let upstream = Upstream {
        id: UpstreamId::new(entry.key.as_str()),
        place: entry.place,
        trust: section.word("trust", "\"review\"").unwrap_or(Trust::FirstSight),
        start: section.word("start", "\"eager\"").unwrap_or(Start::Lazy),
        relist: section.span("relist", "\"10m\"").unwrap_or(RELIST),
        timeout: section.span("timeout", "\"30s\""),
        prefix,
        access,
        kind: kind?,
    };
    Some(upstream)
}

/// `[a-z0-9][a-z0-9-]*(_[a-z0-9-]+)*`, at most 64: `upstream__tool` must fall apart in one way only.
fn check_id(reader: &mut Reader<'_>, entry: &Entry) {
    let id = entry.key.as_str();
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|one| matches!(one, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    if id.split('_').all(is_part) && !id.starts_with('-') && id.len() <= 64 {
        return;
    }
    let mut better: String =
        id.to_lowercase().chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect();
    better.truncate(64);
    let better = better.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    let help = match better.as_str() {
        "" => "write lower-case letters, digits, `-` and single `_`: `[upstreams.github]`".to_owned(),
        better => format!(
            "write `[upstreams.{better}]`: lower-case letters, digits, `-` and single `_`, at most 64"
        ),
    };
    reader.error(entry.place, Problem::BadValue, format!("{} is no name for an upstream", tick(id)), help);
}

/// Which of the four it is, after saying everything that is wrong with its keys.
fn kind_of(reader: &mut Reader<'_>, entry: &Entry, table: &Table, where_: &str) -> Option<&'static str> {
    let given: Vec<&'static str> =
        KINDS.iter().map(|(marker, _)| *marker).filter(|marker| table.get(marker).is_some()).collect();
    let all: Vec<&str> =
        KINDS.iter().flat_map(|(marker, more)| more.iter().chain([marker])).chain(&COMMON).copied().collect();
    reader.unknown_keys(table, where_, &all);
    match given.as_slice() {
        [] => {
            let help = "write `command = \"…\"` or `url = \"…\"` for an MCP server, `[[upstreams.NAME.tools]]` for command lines, or `kind = \"memory\"`";
            reader.missing(entry.place, format!("{where_} does not say what it is"), help);
            None
        }
        [marker] => {
            check_strays(reader, table, where_, marker);
            Some(marker)
        }
        [first, .., last] => {
            let place = table.entry(last).map_or(entry.place, |entry| entry.place);
            let message = format!("{where_} has both `{first}` and `{last}`");
            let help = format!(
                "keep one of them; for the other write a second upstream, `[upstreams.{}-2]`",
                entry.key
            );
            reader.error(place, Problem::Conflict, message, help);
            None
        }
    }
}

/// Keys of another kind of upstream.
fn check_strays(reader: &mut Reader<'_>, table: &Table, where_: &str, marker: &str) {
    let own = KINDS.iter().find(|(name, _)| *name == marker).map_or(&[] as &[&str], |(_, more)| *more);
    for entry in &table.entries {
        let key = entry.key.as_str();
        let home = KINDS.iter().find(|(_, more)| more.contains(&key));
        if let Some((home, _)) = home.filter(|_| !own.contains(&key)) {
            let message = format!("`{key}` means nothing beside `{marker}` in {where_}");
            let help = format!("remove it: `{key}` goes with `{home}`");
            reader.error(entry.place, Problem::Conflict, message, help);
        }
    }
}

fn read_kind(reader: &mut Reader<'_>, entry: &Entry, table: &Table, marker: &str) -> Option<UpstreamKind> {
    let text = |reader: &mut Reader<'_>, key: &str, example: &str| {
        table.get(key).and_then(|node| template::read(reader, node, key, example, Gaps::References))
    };
    match marker {
        "command" => {
            let args = table.get("args").map(|node| templates(reader, node, "args", "[\"-y\", \"server\"]"));
            let (env, cwd) = (environment(reader, table), text(reader, "cwd", "\"/srv/work\""));
            let command = text(reader, "command", "\"npx\"")?;
            Some(UpstreamKind::Stdio { command, args: args.unwrap_or_default(), env, cwd })
        }
        "url" => {
            let headers = pairs(reader, table, "headers", "{ X-Team = \"infra\" }");
            let bearer = text(reader, "bearer", "\"${env:TOKEN}\"");
            let url = text(reader, "url", "\"https://example.com/mcp\"")?;
            check_url(reader, table.get("url")?, &url);
            let oauth = pairs(reader, table, "oauth", "{ client_id = \"countersign\" }");
            check_oauth(reader, table, bearer.is_some());
            Some(UpstreamKind::Http { url, headers, bearer, oauth })
        }
        "tools" => {
            let (env, cwd) = (environment(reader, table), text(reader, "cwd", "\"/srv/work\""));
            let tools = command::read_all(reader, &entry.key, table.get("tools")?);
            Some(UpstreamKind::Command { tools, env, cwd })
        }
        _ => {
            let folder = text(reader, "folder", "\"/srv/work\"");
            let kind = reader.word(table.get("kind")?, "kind", "\"memory\"")?;
            Some(UpstreamKind::Native { kind, folder })
        }
    }
}

/// What `oauth` may say.
const OAUTH: [&str; 5] = ["client_id", "client_secret", "scopes", "grant", "private_key"];

fn check_oauth(reader: &mut Reader<'_>, table: &Table, has_bearer: bool) {
    let Some(node) = table.get("oauth") else { return };
    if has_bearer {
        let help = "remove one of them".to_owned();
        reader.error(node.place, Problem::Conflict, "`oauth` and `bearer` exclude each other", help);
    }
    let entries = node.as_table().map_or(&[] as &[Entry], |table| &table.entries);
    for entry in entries.iter().filter(|entry| !OAUTH.contains(&entry.key.as_str())) {
        let message = format!("{} means nothing in `oauth`", tick(&entry.key));
        let help = match nearest(&entry.key, OAUTH) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "there is `client_id`, `client_secret`, `scopes`, `grant` and `private_key`".to_owned(),
        };
        reader.error(entry.place, Problem::UnknownKey, message, help);
    }
    check_grant(reader, node);
}

/// Who signs in: a person (the usual way), or the gateway as itself, which then has to be able to prove who it is.
fn check_grant(reader: &mut Reader<'_>, node: &Node) {
    let Some(oauth) = node.as_table() else { return };
    let alone = match oauth.get("grant").map(|node| (node, node.as_text())) {
        None | Some((_, Some("authorization_code"))) => false,
        Some((_, Some("client_credentials"))) => true,
        Some((node, _)) => {
            let message = "`grant` must be `authorization_code` or `client_credentials`";
            let help = "leave it out where a person signs in".to_owned();
            return reader.error(node.place, Problem::UnknownWord, message, help);
        }
    };
    let has = |key: &str| oauth.get(key).is_some();
    let proofs = usize::from(has("client_secret")) + usize::from(has("private_key"));
    if alone && (!has("client_id") || proofs != 1) {
        let message =
            "`grant = \"client_credentials\"` needs `client_id` and either `client_secret` or `private_key`";
        let help = "write `private_key = \"${file:/run/secrets/gateway.pem}\"`, or `client_secret = \"${env:NAME}\"`";
        reader.error(node.place, Problem::MissingKey, message, help.to_owned());
    } else if let (false, Some(key)) = (alone, oauth.get("private_key")) {
        let help = "write `grant = \"client_credentials\"` beside it".to_owned();
        reader.error(
            key.place,
            Problem::Conflict,
            "`private_key` is for a gateway that signs in as itself",
            help,
        );
    }
}

fn check_url(reader: &mut Reader<'_>, node: &Node, url: &Template) {
    let Some(Piece::Literal(text)) = url.pieces().first() else { return };
    if !["https://", "http://"].iter().any(|scheme| text.starts_with(scheme)) {
        let help = "write `url = \"https://example.com/mcp\"`".to_owned();
        reader.error(node.place, Problem::BadValue, "`url` must start with `https://` or `http://`", help);
    }
}

/// A list of texts.
pub(super) fn templates(reader: &mut Reader<'_>, node: &Node, what: &str, example: &str) -> Vec<Template> {
    let items = reader.list(node, what, example).unwrap_or_default();
    items.iter().filter_map(|item| template::read_item(reader, item, what, Gaps::References)).collect()
}

/// `env` of an upstream or a tool.
pub(super) fn environment(reader: &mut Reader<'_>, table: &Table) -> Vec<Pair> {
    let pairs = pairs(reader, table, "env", "{ TOKEN = \"${env:TOKEN}\" }");
    let entries = table.get("env").and_then(Node::as_table).map_or(&[] as &[Entry], |table| &table.entries);
    for entry in entries.iter().filter(|entry| entry.key.is_empty() || entry.key.contains(['=', '\0'])) {
        let message = format!("{} is no name for a variable", tick(&entry.key));
        reader.error(entry.place, Problem::BadValue, message, "write letters, digits and `_`".to_owned());
    }
    pairs
}

fn pairs(reader: &mut Reader<'_>, table: &Table, what: &str, example: &str) -> Vec<Pair> {
    let Some(node) = table.get(what) else { return Vec::new() };
    let Some(table) = reader.table(node, what, example) else { return Vec::new() };
    let read = |entry: &Entry| {
        let value = template::read_item(reader, &entry.node, what, Gaps::References)?;
        Some((entry.key.clone(), value))
    };
    table.entries.iter().filter_map(read).collect()
}

/// A name that is not among the known upstreams, and the one that was meant.
pub(super) fn nearest_upstream<'u>(name: &str, upstreams: &'u [Upstream]) -> Option<&'u str> {
    nearest(name, upstreams.iter().map(|upstream| upstream.id.as_str()))
}

impl Upstream {
    /// Every text of it that may have to be looked up.
    pub(super) fn templates(&mut self) -> Vec<&mut Template> {
        match &mut self.kind {
            UpstreamKind::Stdio { command, args, env, cwd } => {
                let env = env.iter_mut().map(|(_, value)| value);
                std::iter::once(command).chain(args).chain(env).chain(cwd).collect()
            }
            UpstreamKind::Http { url, headers, bearer, oauth } => {
                let pairs = headers.iter_mut().chain(oauth).map(|(_, value)| value);
                std::iter::once(url).chain(pairs).chain(bearer).collect()
            }
            UpstreamKind::Command { tools, env, cwd } => {
                let env = env.iter_mut().map(|(_, value)| value);
                tools.iter_mut().flat_map(CommandTool::templates).chain(env).chain(cwd).collect()
            }
            UpstreamKind::Native { kind: _, folder } => folder.iter_mut().collect(),
        }
    }
}
