//! `[upstreams.NAME]`: what is governed. An MCP server behind a command or a URL, command lines as tools, or one of our own.
//! Starts and connects nothing.

use std::time::Duration;

use super::command::{self, CommandTool};
use super::config_reader::{ConfigReader, SectionReader};
use super::diagnostic::DiagnosticKind::{BadValue, Conflict, MissingKey, UnknownKey, UnknownWord};
use super::diagnostic::tick;
use super::template::{self, AllowedPlaceholders};
use super::tree::{TomlEntry, TomlNode, TomlTable};
use super::upstream_access::{self, UpstreamAccess};
use super::upstream_audience::{self, UpstreamAudience};
use countersign_policy::command_template::{Place, Template, TemplatePair, TemplatePiece};
use countersign_policy::ids::UpstreamId;
use countersign_policy::nearest::nearest;
use countersign_policy::words::words;

words! {
    /// Whether what an upstream lists at first is believed.
    pub enum UpstreamTrust("trust") {
        /// Its tools are pinned as first listed.
        FirstSight = "first-sight",
        /// A person accepts each tool.
        Review = "review",
    }
}

words! {
    /// When an upstream is started.
    pub enum UpstreamStart("start") {
        Lazy = "lazy",
        Eager = "eager",
    }
}

words! {
    /// An upstream of our own.
    pub enum NativeKind("kind") {
        Demo = "demo",
        Pack = "pack",
        Memory = "memory",
    }
}

/// Whether names on the direct surface carry the upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolNamePrefix {
    Upstream,
    /// The tool's own name: only with a single upstream.
    None,
}

/// One upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    pub id: UpstreamId,
    pub place: Place,
    pub trust: UpstreamTrust,
    pub start: UpstreamStart,
    pub relist: Duration,
    /// How long its calls may take, where no rule says.
    pub timeout: Option<Duration>,
    /// How its tools are named on the direct surface.
    pub prefix: ToolNamePrefix,
    /// What it may do besides offering tools.
    pub access: UpstreamAccess,
    /// For which hosts and folders it is.
    pub audience: UpstreamAudience,
    pub kind: UpstreamKind,
}

/// What an upstream is.
#[derive(Clone, Debug, PartialEq)]
pub enum UpstreamKind {
    /// An MCP server on standard input and output.
    Stdio {
        command: Template,
        args: Vec<Template>,
        /// What its environment has besides the basics.
        env: Vec<TemplatePair>,
        cwd: Option<Template>,
    },
    /// An MCP server over streamable HTTP.
    Http {
        url: Template,
        headers: Vec<TemplatePair>,
        bearer: Option<Template>,
        /// Who we are where people sign in: `client_id`, `client_secret`, `scopes`.
        oauth: Vec<TemplatePair>,
    },
    Command {
        tools: Vec<CommandTool>,
        /// What their environment has besides the basics.
        env: Vec<TemplatePair>,
        cwd: Option<Template>,
    },
    Native {
        kind: NativeKind,
        /// Where it works or keeps its data, if not where it usually does.
        folder: Option<Template>,
    },
}

const COMMON: [&str; 7] = ["trust", "start", "relist", "timeout", "prefix", "hosts", "folders"];
const RELIST: Duration = Duration::from_secs(600);

/// The key that says what an upstream is, and the keys that go with it.
const KINDS: [(&str, &[&str]); 4] = [
    ("command", &["args", "env", "cwd", "elicitation", "sampling", "questions", "methods"]),
    ("url", &["headers", "bearer", "oauth", "elicitation", "sampling", "questions", "methods"]),
    ("tools", &["env", "cwd"]),
    ("kind", &["folder"]),
];

pub(crate) fn read_all(reader: &mut ConfigReader<'_>, root: &TomlTable) -> Vec<Upstream> {
    let Some(node) = root.get("upstreams") else { return Vec::new() };
    let Some(table) = reader.table(node, "upstreams", "{ github = { command = \"npx\" } }") else {
        return Vec::new();
    };
    let all: Vec<Upstream> = table.entries.iter().filter_map(|entry| read(reader, entry)).collect();
    let bare = all.iter().find(|upstream| upstream.prefix == ToolNamePrefix::None);
    if let Some(bare) = bare.filter(|_| table.entries.len() > 1) {
        let message =
            format!("`{}` has `prefix = false`, and there are {} upstreams", bare.id, table.entries.len());
        let help = "remove `prefix = false`: tools of several upstreams need their names apart";
        reader.error(bare.place, Conflict, message, help);
    }
    all
}

fn read(reader: &mut ConfigReader<'_>, entry: &TomlEntry) -> Option<Upstream> {
    check_id(reader, entry);
    let table = reader.table(&entry.node, &entry.key, "{ command = \"npx\" }")?;
    let where_ = format!("`[upstreams.{}]`", entry.key);
    let marker = kind_of(reader, entry, table, &where_);
    let kind = marker.and_then(|marker| read_kind(reader, entry, table, marker));
    let mut section = SectionReader { reader, table };
    let prefix = match section.truth("prefix", "false") {
        Some(false) => ToolNamePrefix::None,
        Some(true) | None => ToolNamePrefix::Upstream,
    };
    let access = upstream_access::read(section.reader, table, prefix);
    let audience = upstream_audience::read(section.reader, table);
    let upstream = Upstream {
        id: UpstreamId::new(entry.key.as_str()),
        place: entry.place,
        trust: section.word("trust", "\"review\"").unwrap_or(UpstreamTrust::FirstSight),
        start: section.word("start", "\"eager\"").unwrap_or(UpstreamStart::Lazy),
        relist: section.span("relist", "\"10m\"").unwrap_or(RELIST),
        timeout: section.span("timeout", "\"30s\""),
        prefix,
        access,
        audience,
        kind: kind?,
    };
    Some(upstream)
}

/// `[a-z0-9][a-z0-9-]*(_[a-z0-9-]+)*`, at most 64: `upstream__tool` must fall apart in one way only.
fn check_id(reader: &mut ConfigReader<'_>, entry: &TomlEntry) {
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
    reader.error(entry.place, BadValue, format!("{} is no name for an upstream", tick(id)), help);
}

/// Which of the four it is, after saying everything that is wrong with its keys.
fn kind_of(
    reader: &mut ConfigReader<'_>,
    entry: &TomlEntry,
    table: &TomlTable,
    where_: &str,
) -> Option<&'static str> {
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
            reader.error(place, Conflict, message, help);
            None
        }
    }
}

/// Keys of another kind of upstream.
fn check_strays(reader: &mut ConfigReader<'_>, table: &TomlTable, where_: &str, marker: &str) {
    let own = KINDS.iter().find(|(name, _)| *name == marker).map_or(&[] as &[&str], |(_, more)| *more);
    for entry in &table.entries {
        let key = entry.key.as_str();
        let home = KINDS.iter().find(|(_, more)| more.contains(&key));
        if let Some((home, _)) = home.filter(|_| !own.contains(&key)) {
            let message = format!("`{key}` means nothing beside `{marker}` in {where_}");
            let help = format!("remove it: `{key}` goes with `{home}`");
            reader.error(entry.place, Conflict, message, help);
        }
    }
}

fn read_kind(
    reader: &mut ConfigReader<'_>,
    entry: &TomlEntry,
    table: &TomlTable,
    marker: &str,
) -> Option<UpstreamKind> {
    let text = |reader: &mut ConfigReader<'_>, key: &str, example: &str| {
        table
            .get(key)
            .and_then(|node| template::read(reader, node, key, example, AllowedPlaceholders::References))
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

fn check_oauth(reader: &mut ConfigReader<'_>, table: &TomlTable, has_bearer: bool) {
    let Some(node) = table.get("oauth") else { return };
    if has_bearer {
        let help = "remove one of them";
        reader.error(node.place, Conflict, "`oauth` and `bearer` exclude each other", help);
    }
    let entries = node.as_table().map_or(&[] as &[TomlEntry], |table| &table.entries);
    for entry in entries.iter().filter(|entry| !OAUTH.contains(&entry.key.as_str())) {
        let message = format!("{} means nothing in `oauth`", tick(&entry.key));
        let help = match nearest(&entry.key, OAUTH) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "there is `client_id`, `client_secret`, `scopes`, `grant` and `private_key`".to_owned(),
        };
        reader.error(entry.place, UnknownKey, message, help);
    }
    check_grant(reader, node);
}

/// Who signs in: a person (the usual way), or the gateway as itself, which then has to be able to prove who it is.
fn check_grant(reader: &mut ConfigReader<'_>, node: &TomlNode) {
    let Some(oauth) = node.as_table() else { return };
    let alone = match oauth.get("grant").map(|node| (node, node.as_text())) {
        None | Some((_, Some("authorization_code"))) => false,
        Some((_, Some("client_credentials"))) => true,
        Some((node, _)) => {
            let message = "`grant` must be `authorization_code` or `client_credentials`";
            let help = "leave it out where a person signs in";
            return reader.error(node.place, UnknownWord, message, help);
        }
    };
    let has = |key: &str| oauth.get(key).is_some();
    let proofs = usize::from(has("client_secret")) + usize::from(has("private_key"));
    if alone && (!has("client_id") || proofs != 1) {
        let message =
            "`grant = \"client_credentials\"` needs `client_id` and either `client_secret` or `private_key`";
        let help = "write `private_key = \"${file:/run/secrets/gateway.pem}\"`, or `client_secret = \"${env:NAME}\"`";
        reader.error(node.place, MissingKey, message, help);
    } else if let (false, Some(key)) = (alone, oauth.get("private_key")) {
        let help = "write `grant = \"client_credentials\"` beside it";
        reader.error(key.place, Conflict, "`private_key` is for a gateway that signs in as itself", help);
    }
}

fn check_url(reader: &mut ConfigReader<'_>, node: &TomlNode, url: &Template) {
    let Some(TemplatePiece::Literal(text)) = url.pieces().first() else { return };
    if !["https://", "http://"].iter().any(|scheme| text.starts_with(scheme)) {
        let help = "write `url = \"https://example.com/mcp\"`";
        reader.error(node.place, BadValue, "`url` must start with `https://` or `http://`", help);
    }
}

/// A list of texts.
pub(crate) fn templates(
    reader: &mut ConfigReader<'_>,
    node: &TomlNode,
    what: &str,
    example: &str,
) -> Vec<Template> {
    let items = reader.list(node, what, example).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| template::read_item(reader, item, what, AllowedPlaceholders::References))
        .collect()
}

/// `env` of an upstream or a tool.
pub(crate) fn environment(reader: &mut ConfigReader<'_>, table: &TomlTable) -> Vec<TemplatePair> {
    let pairs = pairs(reader, table, "env", "{ TOKEN = \"${env:TOKEN}\" }");
    let entries =
        table.get("env").and_then(TomlNode::as_table).map_or(&[] as &[TomlEntry], |table| &table.entries);
    for entry in entries.iter().filter(|entry| entry.key.is_empty() || entry.key.contains(['=', '\0'])) {
        let message = format!("{} is no name for a variable", tick(&entry.key));
        reader.error(entry.place, BadValue, message, "write letters, digits and `_`");
    }
    pairs
}

fn pairs(reader: &mut ConfigReader<'_>, table: &TomlTable, what: &str, example: &str) -> Vec<TemplatePair> {
    let Some(node) = table.get(what) else { return Vec::new() };
    let Some(table) = reader.table(node, what, example) else { return Vec::new() };
    let read = |entry: &TomlEntry| {
        let value = template::read_item(reader, &entry.node, what, AllowedPlaceholders::References)?;
        Some((entry.key.clone(), value))
    };
    table.entries.iter().filter_map(read).collect()
}

/// A name that is not among the known upstreams, and the one that was meant.
pub(crate) fn nearest_upstream<'u>(name: &str, upstreams: &'u [Upstream]) -> Option<&'u str> {
    nearest(name, upstreams.iter().map(|upstream| upstream.id.as_str()))
}

impl Upstream {
    /// Every text of it that may have to be looked up.
    pub(crate) fn templates(&mut self) -> Vec<&mut Template> {
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
