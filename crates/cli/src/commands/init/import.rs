//! Servers of hosts as upstreams of a configuration: one for servers that are the same, names apart where they are not, secrets as
//! references. A server stays with the hosts and the folder it came from. Writes nothing; what belongs into the keyring is handed back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use countersign_host_config::{
    Host, HostFile, HostFileScope, HostServerSpec, OfferedTools, ServerEntry, ServerEntryKind,
};
use countersign_policy::ids::Secret;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

use super::secrets::{ReferenceResolver, ResolvedText};
use super::server_environment;
use super::server_preset::ServerPreset;
use super::{document, own_program};

/// A file of a host as it was read.
pub(crate) struct HostFileContents {
    pub(crate) place: HostFile,
    /// Its text; none if there is no such file.
    pub(crate) text: Option<String>,
    pub(crate) entries: Vec<ServerEntry>,
}

pub(crate) struct ImportedServer {
    pub(crate) id: String,
    pub(crate) from: Vec<(Host, HostFileScope)>,
    /// What is written under `[upstreams.ID]`; none where the configuration has it already.
    pub(crate) table: Option<Table>,
    /// The folder it belongs to, if it belongs to one.
    folder: Option<PathBuf>,
    /// What it needs of the keyring, by name.
    secrets: BTreeMap<String, Secret>,
    /// The rules we have for it, where it is a published server.
    pub(super) preset: Option<ServerPreset>,
}

impl ImportedServer {
    /// The names of its hosts, each once.
    pub(crate) fn hosts(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for (host, _) in &self.from {
            if !names.contains(&host.name) {
                names.push(host.name);
            }
        }
        names
    }

    /// Writes it down, or widens what is written, for the hosts it came from.
    fn write(&self, document: &mut DocumentMut, sharing: ServerSharing) {
        if let Some(table) = &self.table {
            document::insert(document, &self.id, table.clone());
        }
        match sharing {
            ServerSharing::EveryHost => document::open_to_all(document, &self.id),
            ServerSharing::OwnHosts { folders } => {
                let folder = self.folder.as_deref().filter(|_| folders == FolderLimits::Written);
                let is_new = self.table.is_some();
                document::admit_hosts(document, &self.id, &self.hosts(), folder, is_new);
            }
        }
        let program = own_program().0;
        for rule in self.preset.iter().flat_map(|preset| preset.rules_for(&self.id, &program)) {
            document::append(document, rule);
        }
    }
}

/// Whose a server is once it is behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerSharing {
    /// Those that had it.
    OwnHosts {
        folders: FolderLimits,
    },
    EveryHost,
}

/// Whether a server that belongs to a folder is written down as such. A project's own configuration is about that folder anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderLimits {
    Written,
    Implied,
}

/// How the hosts will reach the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GatewayReach {
    Stdio,
    /// One gateway for all of them, which does not know their folders.
    Http,
}

/// What servers are brought with.
pub(super) struct ImportTerms<'a> {
    pub(super) looker: ReferenceResolver<'a>,
    /// Common variables that are set.
    pub(super) variables: &'a [String],
    pub(super) reach: GatewayReach,
}

/// A server that stays where it is, and why.
pub(crate) struct SkippedServer {
    pub(crate) host: Host,
    pub(crate) name: String,
    pub(crate) why: String,
}

/// An upstream of which a host offered some tools only: the others stay switched off, for everyone.
pub(crate) struct LimitedUpstream {
    pub(crate) id: String,
    pub(crate) host: Host,
    pub(crate) offers: OfferedTools,
}

impl LimitedUpstream {
    /// The rules that keep the others switched off.
    pub(crate) fn rules(&self) -> Vec<Table> {
        // A text of JSON is one of the condition's language too.
        let quoted = |name: &String| serde_json::to_string(name).unwrap_or_default();
        let names =
            |names: &[String]| format!("[{}]", names.iter().map(quoted).collect::<Vec<_>>().join(", "));
        let only = self.offers.only.as_deref().map(|only| format!("!(tool.name in {})", names(only)));
        let without = (!self.offers.without.is_empty())
            .then(|| format!("tool.name in {}", names(&self.offers.without)));
        let rule = |when: String| {
            let mut table = Table::new();
            table.insert("match", value(format!("{}:*", self.id)));
            table.insert("when", value(when));
            table.insert("deny", value(format!("it was switched off in {}", self.host.title)));
            table
        };
        only.into_iter().chain(without).map(rule).collect()
    }
}

#[derive(Default)]
pub(crate) struct HostImport {
    pub(crate) upstreams: Vec<ImportedServer>,
    pub(crate) left: Vec<SkippedServer>,
    pub(crate) limited: Vec<LimitedUpstream>,
    /// For each file read, in order, the entries that leave it, with the upstreams they became.
    taken: Vec<Vec<(ServerEntry, String)>>,
    /// What was seen of each upstream as its hosts wrote it.
    seen: Vec<(HostServerSpec, Option<PathBuf>)>,
}

impl HostImport {
    pub(super) fn gather(
        reads: &[HostFileContents],
        existing: &DocumentMut,
        terms: &ImportTerms<'_>,
    ) -> Self {
        let mut import = Self::default();
        for read in reads {
            let mut taken = Vec::new();
            for entry in &read.entries {
                match &entry.kind {
                    ServerEntryKind::Server(server) => {
                        match import.take(read, entry, server, existing, terms) {
                            Ok(id) => taken.push((entry.clone(), id)),
                            Err(why) => import.leave(read, entry, why),
                        }
                    }
                    ServerEntryKind::Countersign => {}
                    ServerEntryKind::Disabled => {
                        import.leave(read, entry, "it is switched off there".to_owned())
                    }
                    ServerEntryKind::Foreign(why) => import.leave(read, entry, why.clone()),
                }
            }
            import.taken.push(taken);
        }
        import
    }

    /// The entries that leave each file, in the order of the files.
    pub(super) fn taken(&self) -> impl Iterator<Item = Vec<ServerEntry>> {
        self.taken.iter().map(|taken| taken.iter().map(|(entry, _)| entry.clone()).collect())
    }

    /// What goes into the keyring, by name.
    pub(super) fn secrets(&self) -> impl Iterator<Item = (&String, &Secret)> {
        self.upstreams.iter().flat_map(|one| &one.secrets)
    }

    pub(super) fn secret(&self, name: &str) -> Option<&Secret> {
        self.upstreams.iter().find_map(|one| one.secrets.get(name))
    }

    /// Leaves servers in their hosts after all.
    pub(super) fn leave_out(&mut self, reads: &[HostFileContents], ids: &[&str], why: &str) {
        let goes = |id: &str| ids.contains(&id);
        self.upstreams.retain(|one| !goes(&one.id));
        self.limited.retain(|one| !goes(&one.id));
        for (read, taken) in reads.iter().zip(&mut self.taken) {
            let stays = taken.extract_if(.., |(_, id)| goes(id));
            let host = read.place.host;
            self.left.extend(stays.map(|(entry, _)| SkippedServer {
                host,
                name: entry.name,
                why: why.to_owned(),
            }));
        }
    }

    /// The configuration with everything that is brought.
    pub(super) fn write(&self, document: &mut DocumentMut, sharing: ServerSharing) {
        for upstream in &self.upstreams {
            upstream.write(document, sharing);
        }
        for rule in self.limited.iter().flat_map(LimitedUpstream::rules) {
            document::append(document, rule);
        }
    }

    fn limit(&mut self, id: String, read: &HostFileContents, entry: &ServerEntry) {
        if !entry.offers.all() {
            self.limited.push(LimitedUpstream { id, host: read.place.host, offers: entry.offers.clone() });
        }
    }

    fn leave(&mut self, read: &HostFileContents, entry: &ServerEntry, why: String) {
        self.left.push(SkippedServer { host: read.place.host, name: entry.name.clone(), why });
    }

    fn take(
        &mut self,
        read: &HostFileContents,
        entry: &ServerEntry,
        server: &HostServerSpec,
        existing: &DocumentMut,
        terms: &ImportTerms<'_>,
    ) -> Result<String, String> {
        let from = (read.place.host, read.place.scope);
        let folder =
            entry.folder.as_ref().map(|folder| std::fs::canonicalize(folder).unwrap_or(folder.clone()));
        // A project's file starts a gateway in its folder. A file of the person would lead to the shared one.
        if let (Some(folder), HostFileScope::User, GatewayReach::Http) = (&folder, from.1, terms.reach) {
            let folder = folder.display();
            return Err(format!(
                "it belongs to {folder}, and a shared gateway does not know a host's folder"
            ));
        }
        let same = self.seen.iter().position(|(other, folder)| other == server && *folder == entry.folder);
        if let Some(known) = same.and_then(|at| self.upstreams.get_mut(at)) {
            if !known.from.contains(&from) {
                known.from.push(from);
            }
            let id = known.id.clone();
            self.limit(id.clone(), read, entry);
            return Ok(id);
        }
        let base = plain_name(&entry.name);
        let looker = ReferenceResolver { project: entry.folder.as_deref(), ..terms.looker };
        let written = existing.get("upstreams").and_then(Item::as_table_like);
        // What the configuration has already is found under any name, its own first; else the first name that is free is taken.
        let mut known: Vec<&str> = written.into_iter().flat_map(|all| all.iter()).map(|(id, _)| id).collect();
        known.sort_by_key(|id| *id != base);
        let other = |count: u32| if count == 1 { base.clone() } else { format!("{base}-{count}") };
        let free = (1..).map(other).filter(|id| written.is_none_or(|written| !written.contains_key(id)));
        for id in known.into_iter().map(str::to_owned).chain(free) {
            if self.upstreams.iter().any(|one| one.id == id) {
                continue;
            }
            let mut secrets = BTreeMap::new();
            let mut table = table(server, entry, &id, &looker, &mut secrets)?;
            add_variables(&mut table, terms.variables);
            let table = match written.and_then(|written| written.get(&id)) {
                Some(there) if is_same_server(there, &table, folder.as_deref()) => None,
                Some(_) => continue,
                None => Some(table),
            };
            if table.is_none() {
                secrets.clear();
            }
            self.seen.push((server.clone(), entry.folder.clone()));
            self.limit(id.clone(), read, entry);
            // What is in the configuration already was somebody's decision.
            let preset = table.as_ref().and_then(|_| ServerPreset::of(server));
            let from = vec![from];
            self.upstreams.push(ImportedServer { id: id.clone(), from, table, folder, secrets, preset });
            return Ok(id);
        }
        Err("no name is free".to_owned())
    }
}

/// Variables that only a program on this machine has.
fn add_variables(table: &mut Table, names: &[String]) {
    if names.is_empty() || !table.contains_key("command") {
        return;
    }
    let env = table.entry("env").or_insert_with(|| value(InlineTable::new()));
    if let Some(env) = env.as_inline_table_mut() {
        server_environment::add_references(env, names);
    }
}

/// Whether an upstream of the configuration is this server: the same words, and for this folder too.
fn is_same_server(there: &Item, server: &Table, folder: Option<&Path>) -> bool {
    let folders = there.get("folders").and_then(Item::as_array);
    let in_folder = folders.is_none_or(|folders| {
        folder.is_some_and(|folder| folders.iter().any(|one| one.as_str().map(Path::new) == Some(folder)))
    });
    in_folder && says(there) == says(&Item::Table(server.clone()))
}

/// What an upstream says of its server, however it is laid out: not whose it is, nor which common variables were set when it was brought.
fn says(item: &Item) -> Vec<String> {
    let pair = |key: &str, text: &str| format!("{key}={}", text.trim());
    let mut lines = Vec::new();
    for (key, item) in item.as_table_like().into_iter().flat_map(|table| table.iter()) {
        match (key, item.as_inline_table()) {
            ("hosts" | "folders", _) => {}
            ("env", Some(env)) => {
                let own = env.iter().filter(|(name, _)| !server_environment::is_reference(env, name));
                lines.extend(own.map(|(name, value)| pair(&format!("env.{name}"), &value.to_string())));
            }
            _ => lines.push(pair(key, &item.to_string())),
        }
    }
    lines.sort();
    lines
}

fn plain_name(name: &str) -> String {
    let plain: String =
        name.to_lowercase().chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect();
    let mut plain = plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    plain.truncate(48);
    if plain.is_empty() { "server".to_owned() } else { plain }
}

fn table(
    server: &HostServerSpec,
    entry: &ServerEntry,
    id: &str,
    looker: &ReferenceResolver<'_>,
    secrets: &mut BTreeMap<String, Secret>,
) -> Result<Table, String> {
    let mut table = Table::new();
    let mut keep = |found: ResolvedText, name: &str| match found {
        ResolvedText::Text(text) => text,
        ResolvedText::Secret(secret) => {
            let name = looker.name_for(&secret, &format!("{id}.{}", keyring_name(name)));
            let text = format!("${{keyring:{name}}}");
            secrets.insert(name, secret);
            text
        }
    };
    match server {
        HostServerSpec::Stdio { command, args, env, cwd } => {
            table.insert("command", value(looker.path(command)?));
            if !args.is_empty() {
                let mut array = Array::new();
                for (index, arg) in args.iter().enumerate() {
                    let before = index.checked_sub(1).and_then(|before| args.get(before));
                    array.push(keep(
                        looker.argument(before.map(String::as_str), arg)?,
                        &format!("arg{index}"),
                    ));
                }
                table.insert("args", value(array));
            }
            if !env.is_empty() {
                let mut pairs = InlineTable::new();
                for (name, text) in env {
                    pairs.insert(name, keep(looker.named(name, text)?, name).into());
                }
                table.insert("env", value(pairs));
            }
            let folder = entry.folder.as_ref().map(|folder| folder.display().to_string());
            let cwd = match cwd {
                Some(cwd) => Some(looker.path(cwd)?),
                None => folder,
            };
            if let Some(cwd) = cwd {
                table.insert("cwd", value(cwd));
            }
        }
        HostServerSpec::Http { url, headers, bearer_env, env_headers } => {
            table.insert("url", value(keep(looker.url(url)?, "url")));
            let mut pairs = InlineTable::new();
            for (name, text) in headers {
                pairs.insert(name, keep(looker.named(name, text)?, name).into());
            }
            for (name, text) in env_headers {
                pairs.insert(name, looker.variable_reference(text)?.into());
            }
            if !pairs.is_empty() {
                table.insert("headers", value(pairs));
            }
            if let Some(name) = bearer_env {
                table.insert("bearer", value(looker.variable_reference(name)?));
            }
        }
    }
    Ok(table)
}

fn keyring_name(name: &str) -> String {
    name.chars()
        .map(|one| if one.is_ascii_alphanumeric() || "_-".contains(one) { one } else { '-' })
        .collect()
}
