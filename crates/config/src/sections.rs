//! The plain sections: gateway, intent, confirm, ledger, desk. What each may hold, and what holds where nothing is written.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::config_reader::{ConfigReader, SectionReader};
use super::diagnostic::DiagnosticKind::{BadReference, BadValue, Conflict};
use super::diagnostic::{did_you_mean, tick};
use super::remote_access::{self, ListenerGuards, ProxyPlacement, TlsFiles};
use super::template::{self, AllowedPlaceholders};
use super::tree::{TomlNode, TomlTable};
use countersign_policy::command_template::{Template, TemplatePiece};
use countersign_policy::intent::IntentStrictness;
use countersign_policy::mode::Mode;
use countersign_policy::profile::{ConfirmProfile, StrengthDefaults};
use countersign_policy::rules::UnlistedToolPolicy;
use countersign_policy::words::{choices, words};

words! {
    /// What tools a host sees.
    pub enum ToolSurface("surface") {
        /// Three ways to call, and a search.
        Router = "router",
        /// Every tool under its own name.
        Direct = "direct",
    }
}

words! {
    /// Who may open an agent line over HTTP.
    pub enum AgentAuth("agent_auth") {
        /// Anyone on this machine, as an agent that cannot vouch.
        LoopbackOpen = "loopback-open",
        /// Only who brings a credential.
        Required = "required",
    }
}

words! {
    /// When the row of a read is on disk.
    pub enum ReadDurability("reads") {
        /// Within 100 ms of the call.
        Soon = "soon",
        Sync = "sync",
    }
}

/// `[gateway]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// The mode of a session that set none.
    pub mode: Mode,
    /// The highest mode of a connection, unless its credential says otherwise.
    pub max_mode: Mode,
    pub surface: ToolSurface,
    /// Where `serve --http` listens.
    pub listen: SocketAddr,
    /// Where the records are: `sqlite:PATH` or `postgres://…`.
    pub store: Template,
    /// What happens to a tool no rule allows.
    pub unlisted: UnlistedToolPolicy,
    /// Who may open an agent line over HTTP.
    pub agent_auth: AgentAuth,
    /// Other names of our own tools: the name, and the tool it means.
    pub aliases: Vec<(String, &'static str)>,
    pub hosts: Vec<String>,
    pub tls: Option<TlsFiles>,
    pub proxy: ProxyPlacement,
}

impl Gateway {
    pub fn guards(&self) -> ListenerGuards<'_> {
        ListenerGuards {
            agent_auth: self.agent_auth,
            tls: self.tls.as_ref(),
            proxy: self.proxy,
            hosts: &self.hosts,
        }
    }
}

/// Our own tools, which an alias may mean.
pub const OWN_TOOLS: [&str; 9] = [
    "retrieve_tools",
    "set_mode",
    "draft_plan",
    "run_plan",
    "get_status",
    "get_plan",
    "cancel_plan",
    "list_runs",
    "get_run",
];

/// `[intent]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentSection {
    pub strictness: IntentStrictness,
}

/// `[confirm]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmSection {
    /// How long a token lives: one second to ten minutes.
    pub ttl: Duration,
    /// Who has to agree where no rule says: the profile, and what overrides it.
    pub strengths: StrengthDefaults,
    /// How long a first call waits for somebody to decide.
    pub hold: Duration,
    /// Answers of a host's dialog that come faster than this are a program's.
    pub automatic_below: Duration,
}

/// `[ledger]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSection {
    pub reads: ReadDurability,
    /// Where checkpoints go besides the store and the usual file.
    pub checkpoints: Option<CheckpointPlace>,
    /// How long rows are kept; for ever where none is written.
    pub keep: Option<Duration>,
}

/// Where checkpoints go besides the store and the usual file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointPlace {
    /// One more file, one checkpoint a line; a relative path starts at the configuration's folder.
    File(String),
    Syslog,
    /// A server that takes each as JSON.
    Webhook(String),
}

/// `[desk]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeskSection {
    /// Where page and REST listen, if not with the gateway.
    pub listen: Option<SocketAddr>,
    /// Where people reach it, if not where it listens: another process, or a proxy in front of it.
    pub url: Option<String>,
    /// The certificate of its listener, if not the gateway's.
    pub tls: Option<TlsFiles>,
}

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7878);
const STORE: &str = "sqlite:countersign.db";
const TTL: Duration = Duration::from_secs(300);
const SHORTEST_KEEP: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST_TTL: Duration = Duration::from_secs(1);
const LONGEST_TTL: Duration = Duration::from_secs(600);
const HOLD: Duration = Duration::from_secs(50);
const LONGEST_HOLD: Duration = Duration::from_secs(600);
const AUTOMATIC_BELOW: Duration = Duration::from_millis(400);
const LONGEST_AUTOMATIC: Duration = Duration::from_secs(5);

static EMPTY: TomlTable = TomlTable { entries: Vec::new() };

/// The table of a section, an empty one where it is not written.
fn table_of<'t>(
    reader: &mut ConfigReader<'_>,
    root: &'t TomlTable,
    name: &str,
    example: &str,
) -> &'t TomlTable {
    root.get(name).and_then(|node| reader.table(node, name, example)).unwrap_or(&EMPTY)
}

pub(crate) fn gateway(reader: &mut ConfigReader<'_>, root: &TomlTable) -> Gateway {
    const KEYS: [&str; 11] = [
        "mode",
        "max_mode",
        "surface",
        "listen",
        "store",
        "unlisted",
        "agent_auth",
        "aliases",
        "hosts",
        "tls",
        "behind_proxy",
    ];
    let table = table_of(reader, root, "gateway", "{ mode = \"ask\" }");
    let mut section = SectionReader::open(reader, table, "`[gateway]`", &KEYS);
    let mode = section.word("mode", "\"ask\"").unwrap_or(Mode::Ask);
    let max_mode = section.word("max_mode", "\"execute\"").unwrap_or(Mode::Execute);
    let surface = section.word("surface", "\"router\"").unwrap_or(ToolSurface::Router);
    let unlisted = section.word("unlisted", "\"deny\"").unwrap_or(UnlistedToolPolicy::Govern);
    let behind = section.truth("behind_proxy", "true").unwrap_or(false);
    let proxy = if behind { ProxyPlacement::InFront } else { ProxyPlacement::None };
    let agent_auth = agent_auth(&mut section, proxy);
    if let Some(node) = table.get("mode")
        && mode > max_mode
    {
        let message = format!("the default mode `{mode}` is above `max_mode = \"{max_mode}\"`");
        reader.error(
            node.place,
            Conflict,
            message,
            format!("write `mode = \"{max_mode}\"`, or raise `max_mode`"),
        );
    }
    Gateway {
        mode,
        max_mode,
        surface,
        listen: table.get("listen").and_then(|node| address(reader, node)).unwrap_or(LISTEN),
        store: table
            .get("store")
            .and_then(|node| store(reader, node))
            .unwrap_or_else(|| Template::literal(STORE)),
        unlisted,
        agent_auth,
        aliases: table.get("aliases").map(|node| aliases(reader, node)).unwrap_or_default(),
        hosts: table.get("hosts").map(|node| remote_access::hosts(reader, node)).unwrap_or_default(),
        tls: table.get("tls").and_then(|node| remote_access::tls(reader, node, "`[gateway.tls]`")),
        proxy,
    }
}

/// Behind a proxy everybody seems to come from where the proxy is: no line is trusted for that.
fn agent_auth(section: &mut SectionReader<'_, '_, '_>, proxy: ProxyPlacement) -> AgentAuth {
    let said = section.word("agent_auth", "\"required\"");
    match (said, proxy, section.table.get("agent_auth")) {
        (Some(AgentAuth::LoopbackOpen), ProxyPlacement::InFront, Some(node)) => {
            let message =
                "behind a proxy every caller seems to be on this machine: none may do without a credential";
            let help = "write `agent_auth = \"required\"`, or leave it out";
            section.reader.error(node.place, Conflict, message, help);
            AgentAuth::Required
        }
        (Some(said), _, _) => said,
        (None, ProxyPlacement::InFront | ProxyPlacement::None, _) => AgentAuth::Required,
    }
}

/// `{ amof_set_mode = "set_mode" }`: a name of its own for one of our tools. None of our names can mean something else.
fn aliases(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Vec<(String, &'static str)> {
    let example = "{ amof_set_mode = \"set_mode\" }";
    let Some(table) = reader.table(node, "aliases", example) else { return Vec::new() };
    let mut read = Vec::new();
    for entry in &table.entries {
        let name = entry.key.as_str();
        let plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) || name.contains("__") {
            let help = "write at most 64 letters, digits, `_` and `-`, and no `__`";
            let message = format!("{} is no name for a tool", tick(name));
            reader.error(entry.place, BadValue, message, help);
        } else if OWN_TOOLS.contains(&name) || name.starts_with("call_tool") {
            let message = format!("{} is one of our own tools and means itself", tick(name));
            reader.error(entry.place, Conflict, message, "choose another name");
        }
        let Some(meant) = reader.text(&entry.node, name, "\"set_mode\"") else { continue };
        match OWN_TOOLS.iter().find(|own| **own == meant) {
            Some(own) => read.push((name.to_owned(), *own)),
            None => {
                let help =
                    did_you_mean(meant, OWN_TOOLS, || format!("name one of them: {}", choices(&OWN_TOOLS)));
                let message = format!("{} is none of our own tools", tick(meant));
                reader.error(entry.node.place, BadReference, message, help);
            }
        }
    }
    read
}

/// `ip:port`, or `localhost:port`.
fn address(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<SocketAddr> {
    let example = "\"127.0.0.1:7878\"";
    let text = reader.text(node, "listen", example)?;
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let address = local.map(|port| SocketAddr::new(LISTEN.ip(), port)).or_else(|| text.parse().ok());
    if address.is_none() {
        let message = format!("{} is not an address and a port", tick(text));
        reader.error(node.place, BadValue, message, format!("write `listen = {example}`"));
    }
    address
}

fn store(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<Template> {
    let template =
        template::read(reader, node, "store", "\"sqlite:countersign.db\"", AllowedPlaceholders::References)?;
    let known = match template.pieces().first() {
        Some(TemplatePiece::Literal(text)) => {
            ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme))
        }
        // Known only once it is looked up.
        Some(TemplatePiece::Reference(..) | TemplatePiece::Found(_) | TemplatePiece::Input(_)) | None => true,
    };
    if !known {
        let help = "write `store = \"sqlite:countersign.db\"`, or `\"postgres://user@host/database\"`";
        reader.error(node.place, BadValue, "`store` names no kind of store", help);
    }
    Some(template)
}

pub(crate) fn intent(reader: &mut ConfigReader<'_>, root: &TomlTable) -> IntentSection {
    let table = table_of(reader, root, "intent", "{ strict_server_validation = true }");
    let mut section = SectionReader::open(reader, table, "`[intent]`", &["strict_server_validation"]);
    let strictness = match section.truth("strict_server_validation", "true") {
        Some(false) => IntentStrictness::Lenient,
        Some(true) | None => IntentStrictness::Strict,
    };
    IntentSection { strictness }
}

pub(crate) fn confirm(reader: &mut ConfigReader<'_>, root: &TomlTable) -> ConfirmSection {
    let table = table_of(reader, root, "confirm", "{ ttl = \"5m\" }");
    let mut section = SectionReader::open(
        reader,
        table,
        "`[confirm]`",
        &["ttl", "profile", "strength", "hold", "automatic_below"],
    );
    let ttl = section.span("ttl", "\"5m\"").unwrap_or(TTL);
    let profile = section.word("profile", "\"solo\"").unwrap_or(ConfirmProfile::Solo);
    let hold = table
        .get("hold")
        .map_or(HOLD, |node| span_or_none(reader, node, "hold", (HOLD, "50s"), (LONGEST_HOLD, "10m")));
    let automatic_below = table.get("automatic_below").map_or(AUTOMATIC_BELOW, |node| {
        span_or_none(reader, node, "automatic_below", (AUTOMATIC_BELOW, "400ms"), (LONGEST_AUTOMATIC, "5s"))
    });
    if let Some(node) = table.get("ttl")
        && !(SHORTEST_TTL..=LONGEST_TTL).contains(&ttl)
    {
        let help = "write `ttl = \"5m\"`, or anything from `1s` to `10m`";
        reader.error(node.place, BadValue, "a confirm token lives one second to ten minutes", help);
    }
    let example = "{ write = \"human\" }";
    let by_effect = table.get("strength").and_then(|node| reader.table(node, "strength", example));
    let mut by_effect = SectionReader::open(
        reader,
        by_effect.unwrap_or(&EMPTY),
        "`confirm.strength`",
        &["write", "destructive"],
    );
    let strengths = StrengthDefaults {
        profile,
        write: by_effect.word("write", "\"human\""),
        destructive: by_effect.word("destructive", "\"human\""),
    };
    ConfirmSection { ttl, strengths, hold, automatic_below }
}

/// A span for which none at all is a value, unlike for others.
fn span_or_none(
    reader: &mut ConfigReader<'_>,
    node: &TomlNode,
    name: &str,
    (usual, usual_text): (Duration, &str),
    (longest, longest_text): (Duration, &str),
) -> Duration {
    if node.as_text().and_then(|text| countersign_policy::duration::parse(text).ok()) == Some(Duration::ZERO)
    {
        return Duration::ZERO;
    }
    let Some(span) = reader.span(node, name, &format!("\"{usual_text}\"")) else { return usual };
    if span > longest {
        let help = format!("write `{name} = \"{usual_text}\"`, or anything from `0s` to `{longest_text}`");
        reader.error(node.place, BadValue, format!("`{name}` is at most {longest_text}"), help);
    }
    span
}

pub(crate) fn ledger(reader: &mut ConfigReader<'_>, root: &TomlTable) -> LedgerSection {
    let table = table_of(reader, root, "ledger", "{ reads = \"soon\" }");
    let mut section = SectionReader::open(reader, table, "`[ledger]`", &["reads", "checkpoints", "keep"]);
    let reads = section.word("reads", "\"soon\"");
    let place = section.text("checkpoints", "\"file:/mnt/elsewhere/checkpoints.jsonl\"").map(str::to_owned);
    let keep = section.span("keep", "\"365d\"");
    let checkpoints = place.as_deref().and_then(checkpoint_place);
    if let (Some(text), None, Some(node)) = (&place, &checkpoints, table.get("checkpoints")) {
        let message = format!("{} is no place for checkpoints", tick(text));
        let help =
            "write `\"file:PATH\"`, `\"syslog\"` or `\"https://…\"`; plain http is for this machine only";
        reader.error(node.place, BadValue, message, help);
    }
    if let (true, Some(node)) = (keep.is_some_and(|keep| keep < SHORTEST_KEEP), table.get("keep")) {
        let help = "write `keep = \"365d\"`, or leave it out to keep rows for ever";
        reader.error(node.place, BadValue, "`keep` is at least 1d".to_owned(), help.to_owned());
    }
    LedgerSection { reads: reads.unwrap_or(ReadDurability::Soon), checkpoints, keep }
}

fn checkpoint_place(text: &str) -> Option<CheckpointPlace> {
    // What follows the name must not make it another one.
    let is_local = ["http://127.0.0.1", "http://localhost", "http://[::1]"].iter().any(|local| {
        let rest = text.strip_prefix(local);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']) && !rest.contains('@'))
    });
    match text {
        "syslog" => Some(CheckpointPlace::Syslog),
        _ if text.starts_with("https://") || is_local => Some(CheckpointPlace::Webhook(text.to_owned())),
        _ => text
            .strip_prefix("file:")
            .filter(|path| !path.is_empty())
            .map(|path| CheckpointPlace::File(path.to_owned())),
    }
}

pub(crate) fn desk(reader: &mut ConfigReader<'_>, root: &TomlTable) -> DeskSection {
    let table = table_of(reader, root, "desk", "{ listen = \"127.0.0.1:7879\" }");
    let url = SectionReader::open(reader, table, "`[desk]`", &["listen", "url", "tls"])
        .text("url", "\"https://desk.example.com\"");
    let url = url.map(|text| text.trim_end_matches('/').to_owned());
    if let (Some(url), Some(node)) = (&url, table.get("url"))
        && !(url.starts_with("https://") || url.starts_with("http://"))
    {
        let message = format!("{} is not the address of a page", tick(url));
        let help = "write `url = \"https://desk.example.com\"`";
        reader.error(node.place, BadValue, message, help);
    }
    DeskSection {
        listen: table.get("listen").and_then(|node| address(reader, node)),
        url,
        tls: table.get("tls").and_then(|node| remote_access::tls(reader, node, "`[desk.tls]`")),
    }
}
