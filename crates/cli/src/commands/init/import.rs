//! Servers of hosts as upstreams of a configuration: one for servers that are the same, names apart where they are not, secrets as
//! references. Writes nothing; what belongs into the keyring is handed back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use countersign_host_config::{
    Host, HostFile, HostFileScope, HostServerSpec, OfferedTools, ServerEntry, ServerEntryKind,
};
use countersign_policy::ids::Secret;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

use super::secrets::{ReferenceResolver, ResolvedText};
use super::server_preset::ServerPreset;

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
    /// The rules we have for it, where it is a published server.
    pub(super) preset: Option<ServerPreset>,
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
    /// What goes into the keyring, by name.
    pub(crate) secrets: BTreeMap<String, Secret>,
    /// For each file read, in order, the entries that leave it.
    pub(crate) taken: Vec<Vec<ServerEntry>>,
    /// What was seen of each upstream as its hosts wrote it.
    seen: Vec<(HostServerSpec, Option<PathBuf>)>,
}

impl HostImport {
    pub(super) fn gather(
        reads: &[HostFileContents],
        existing: &DocumentMut,
        looker: &ReferenceResolver<'_>,
    ) -> Self {
        let mut import = Self::default();
        for read in reads {
            let mut taken = Vec::new();
            for entry in &read.entries {
                match &entry.kind {
                    ServerEntryKind::Server(server) => {
                        match import.take(read, entry, server, existing, looker) {
                            Ok(()) => taken.push(entry.clone()),
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
        looker: &ReferenceResolver<'_>,
    ) -> Result<(), String> {
        let from = (read.place.host, read.place.scope);
        let same = self.seen.iter().position(|(other, folder)| other == server && *folder == entry.folder);
        if let Some(known) = same.and_then(|at| self.upstreams.get_mut(at)) {
            if !known.from.contains(&from) {
                known.from.push(from);
            }
            let id = known.id.clone();
            self.limit(id, read, entry);
            return Ok(());
        }
        let base = plain_name(&entry.name);
        let looker = ReferenceResolver { project: entry.folder.as_deref(), ..*looker };
        let written = existing.get("upstreams").and_then(Item::as_table_like);
        // The same name may stand for another server: the first name that is free, or that says the same already, is taken.
        for count in 1_u32.. {
            let id = if count == 1 { base.clone() } else { format!("{base}-{count}") };
            if self.upstreams.iter().any(|one| one.id == id) {
                continue;
            }
            let mut secrets = BTreeMap::new();
            let table = table(server, entry, &id, &looker, &mut secrets)?;
            let table = match written.and_then(|written| written.get(&id)) {
                Some(there) if says(there) == says(&Item::Table(table.clone())) => None,
                Some(_) => continue,
                None => Some(table),
            };
            if table.is_some() {
                self.secrets.append(&mut secrets);
            }
            self.seen.push((server.clone(), entry.folder.clone()));
            self.limit(id.clone(), read, entry);
            // What is in the configuration already was somebody's decision.
            let preset = table.as_ref().and_then(|_| ServerPreset::of(server));
            self.upstreams.push(ImportedServer { id, from: vec![from], table, preset });
            return Ok(());
        }
        Err("no name is free".to_owned())
    }
}

/// What an upstream says, however it is laid out.
fn says(item: &Item) -> String {
    let mut lines: Vec<String> = item
        .as_table_like()
        .map(|table| table.iter().map(|(key, item)| format!("{key}={}", item.to_string().trim())).collect())
        .unwrap_or_default();
    lines.sort();
    lines.join("\n")
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
