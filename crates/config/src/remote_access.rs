//! What reaches beyond this machine: certificates and names of a listener that others can reach, and whom to tell of a plan
//! that waits. Says what would be unsafe; opens, sends and reads nothing.

use std::net::SocketAddr;

use super::config_reader::{ConfigReader, SectionReader};
use super::diagnostic::DiagnosticKind::{BadValue, Conflict, WrongType};
use super::diagnostic::tick;
use super::sections::AgentAuth;
use super::template::{self, AllowedPlaceholders};
use super::tree::{TomlNode, TomlTable, TomlValue};
use countersign_policy::command_template::{Template, TemplatePiece};
use countersign_policy::confirm::ApprovalStrength;

/// Certificate files of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: String,
    pub key: String,
}

/// Whether something in front of us ends TLS and lets only its own clients through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyPlacement {
    #[default]
    None,
    InFront,
}

/// Why a listener may not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeListener {
    /// Agents would need no credential.
    #[error("`{0}` is reachable by others, and agent lines need no credential")]
    Open(SocketAddr),
    /// Credentials would travel in the clear.
    #[error("`{0}` is reachable by others, and nothing encrypts what is sent there")]
    Plain(SocketAddr),
    /// No name it is called by would be accepted.
    #[error("`{0}` is every address of this machine, and no name it is called by is known")]
    Nameless(SocketAddr),
}

impl UnsafeListener {
    /// What to write instead.
    pub fn remedy(&self) -> &'static str {
        match self {
            UnsafeListener::Open(_) => {
                "write agent_auth = \"required\" under [gateway], or listen on 127.0.0.1"
            }
            UnsafeListener::Plain(_) => {
                "write [gateway.tls] with cert and key, or behind_proxy = true if a proxy in front of it ends TLS, or listen on 127.0.0.1"
            }
            UnsafeListener::Nameless(_) => "write hosts = [\"gateway.example.com\"] under [gateway]",
        }
    }
}

/// How a listener is guarded.
#[derive(Clone, Copy, Debug)]
pub struct ListenerGuards<'g> {
    pub agent_auth: AgentAuth,
    pub tls: Option<&'g TlsFiles>,
    pub proxy: ProxyPlacement,
    pub hosts: &'g [String],
}

/// Anything but loopback needs credentials on every line and TLS, or a proxy that is said to be there.
pub fn exposure(address: SocketAddr, guards: ListenerGuards<'_>) -> Result<(), UnsafeListener> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    if guards.agent_auth != AgentAuth::Required {
        return Err(UnsafeListener::Open(address));
    }
    if guards.tls.is_none() && guards.proxy == ProxyPlacement::None {
        return Err(UnsafeListener::Plain(address));
    }
    if address.ip().is_unspecified() && guards.hosts.is_empty() {
        return Err(UnsafeListener::Nameless(address));
    }
    Ok(())
}

/// `[notify]`: whom to tell of a plan that waits for a person.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NotifySection {
    /// A program and its arguments; it gets the event as JSON on its standard input.
    pub command: Vec<Template>,
    /// An address that gets the event as a signed POST.
    pub webhook: Option<WebhookTarget>,
    /// The least strength a plan has to need to be told of; the host's where none is written.
    pub strength: Option<ApprovalStrength>,
}

/// Where events are posted.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookTarget {
    pub url: Template,
    pub secret: Template,
}

impl NotifySection {
    pub fn is_empty(&self) -> bool {
        self.command.is_empty() && self.webhook.is_none()
    }

    /// Whether to notify about a plan that needs this strength.
    pub fn tells(&self, requirement: ApprovalStrength) -> bool {
        !self.is_empty() && requirement >= self.strength.unwrap_or(ApprovalStrength::Host)
    }

    pub(crate) fn templates(&mut self) -> Vec<&mut Template> {
        let mut all: Vec<&mut Template> = self.command.iter_mut().collect();
        if let Some(webhook) = &mut self.webhook {
            all.push(&mut webhook.url);
            all.push(&mut webhook.secret);
        }
        all
    }
}

const NOTIFY: &str = "{ command = [\"notify-send\", \"a plan waits\"] }";

pub(crate) fn notify(reader: &mut ConfigReader<'_>, root: &TomlTable) -> NotifySection {
    let Some(table) = root.get("notify").and_then(|node| reader.table(node, "notify", NOTIFY)) else {
        return NotifySection::default();
    };
    let mut section =
        SectionReader::open(reader, table, "`[notify]`", &["command", "webhook", "secret", "strength"]);
    let strength = section.word("strength", "\"human\"");
    let command = table.get("command").map(|node| command(reader, node)).unwrap_or_default();
    let url = table.get("webhook").and_then(|node| webhook(reader, node));
    let secret = table.get("secret").and_then(|node| secret(reader, node));
    let webhook = match (table.get("webhook"), url, secret) {
        (_, Some(url), Some(secret)) => Some(WebhookTarget { url, secret }),
        (Some(node), _, None) if table.get("secret").is_none() => {
            let message = "a webhook is signed, and there is no `secret` to sign with";
            let help = "write `secret = \"${env:COUNTERSIGN_NOTIFY_SECRET}\"`";
            reader.error(node.place, Conflict, message, help);
            None
        }
        (Some(_) | None, _, _) => None,
    };
    NotifySection { command, webhook, strength }
}

fn command(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Vec<Template> {
    let example = "[\"/usr/local/bin/tell\", \"--urgent\"]";
    let items = match &node.value {
        TomlValue::Array(items) if !items.is_empty() => items,
        TomlValue::Array(_)
        | TomlValue::String(_)
        | TomlValue::Integer(_)
        | TomlValue::Float(_)
        | TomlValue::Boolean(_)
        | TomlValue::Datetime(_)
        | TomlValue::Table(_) => {
            let message = "`command` is a list: the program, then its arguments; no shell is used";
            reader.error(node.place, WrongType, message, format!("write `command = {example}`"));
            return Vec::new();
        }
    };
    items
        .iter()
        .filter_map(|item| template::read_item(reader, item, "command", AllowedPlaceholders::References))
        .collect()
}

fn webhook(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<Template> {
    let example = "\"https://ntfy.example.com/plans\"";
    let url = template::read(reader, node, "webhook", example, AllowedPlaceholders::References)?;
    let Some(TemplatePiece::Literal(text)) = url.pieces().first() else { return Some(url) };
    let lower = text.to_ascii_lowercase();
    let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    if lower.starts_with("https://") || local.iter().any(|local| lower.starts_with(local)) {
        return Some(url);
    }
    let message = format!("{} would send pending plans in the clear, or is no address", tick(text));
    let help = format!("write `webhook = {example}`; plain http is for this machine only");
    reader.error(node.place, BadValue, message, help);
    None
}

fn secret(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<Template> {
    let example = "\"${env:COUNTERSIGN_NOTIFY_SECRET}\"";
    let secret = template::read(reader, node, "secret", example, AllowedPlaceholders::References)?;
    let short = secret.text().is_some_and(|text| text.expose().len() < 16);
    if short {
        let message = "a secret of less than 16 characters can be guessed";
        reader.error(node.place, BadValue, message, format!("write `secret = {example}`"));
    }
    Some(secret)
}

pub(crate) fn tls(reader: &mut ConfigReader<'_>, node: &TomlNode, where_: &str) -> Option<TlsFiles> {
    let example = "{ cert = \"cert.pem\", key = \"key.pem\" }";
    let table = reader.table(node, "tls", example)?;
    let mut section = SectionReader::open(reader, table, where_, &["cert", "key"]);
    let (cert, key) = (section.text("cert", "\"cert.pem\""), section.text("key", "\"key.pem\""));
    let (cert, key) = (cert.map(str::to_owned), key.map(str::to_owned));
    for missing in ["cert", "key"].into_iter().filter(|name| table.get(name).is_none()) {
        let message = format!("{where_} needs `{missing}`");
        reader.error(node.place, Conflict, message, format!("write `tls = {example}`"));
    }
    Some(TlsFiles { cert: cert?, key: key? })
}

/// Names without scheme, port and path.
pub(crate) fn hosts(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Vec<String> {
    let example = "[\"gateway.example.com\"]";
    let mut named = Vec::new();
    for (text, place) in reader.texts(node, "hosts", example) {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || ".-:[]".contains(letter);
        if text == "*" || !text.chars().all(plain) {
            let message = format!("{} is not the name of a host", tick(text));
            reader.error(place, BadValue, message, format!("write `hosts = {example}`, names only"));
            continue;
        }
        named.push(text.to_owned());
    }
    named
}
