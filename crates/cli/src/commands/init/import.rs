//! Servers of hosts as upstreams of a configuration: one for servers that are the same, names apart where they are not, secrets as
//! references. Writes nothing; what belongs into the keyring is handed back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use countersign_core::ids::Secret;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

use super::secrets::{Found, Looker};
use crate::hosts::{Entry, Host, Kind, Offers, Place, Scope, Server};

/// A file of a host as it was read.
pub(crate) struct Read {
    /// Which.
    pub(crate) place: Place,
    /// Its text; none if there is no such file.
    pub(crate) text: Option<String>,
    /// Its servers.
    pub(crate) entries: Vec<Entry>,
}

/// A server that becomes an upstream.
pub(crate) struct Imported {
    /// Our name of it.
    pub(crate) id: String,
    /// The hosts that know it.
    pub(crate) from: Vec<(Host, Scope)>,
    /// What is written under `[upstreams.ID]`; none where the configuration has it already.
    pub(crate) table: Option<Table>,
}

/// A server that stays where it is, and why.
pub(crate) struct Left {
    /// Whose.
    pub(crate) host: Host,
    /// Its name there.
    pub(crate) name: String,
    /// Why.
    pub(crate) why: String,
}

/// An upstream of which a host offered some tools only: the others stay switched off, for everyone.
pub(crate) struct Limited {
    /// Our name of it.
    pub(crate) id: String,
    /// Whose limit it was.
    pub(crate) host: Host,
    /// What was offered.
    pub(crate) offers: Offers,
}

impl Limited {
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
            table.insert("deny", value(format!("it was switched off in {}", self.host.title())));
            table
        };
        only.into_iter().chain(without).map(rule).collect()
    }
}

/// Everything that is taken over.
#[derive(Default)]
pub(crate) struct Import {
    /// The upstreams, in the order found.
    pub(crate) upstreams: Vec<Imported>,
    /// What is not taken over.
    pub(crate) left: Vec<Left>,
    /// What is taken over in part.
    pub(crate) limited: Vec<Limited>,
    /// What goes into the keyring, by name.
    pub(crate) secrets: BTreeMap<String, Secret>,
    /// For each file read, in order, the entries that leave it.
    pub(crate) taken: Vec<Vec<Entry>>,
    /// What was seen of each upstream as its hosts wrote it.
    seen: Vec<(Server, Option<PathBuf>)>,
}

impl Import {
    /// Reads every entry of every file.
    pub(super) fn gather(reads: &[Read], existing: &DocumentMut, looker: &Looker<'_>) -> Self {
        let mut import = Self::default();
        for read in reads {
            let mut taken = Vec::new();
            for entry in &read.entries {
                match &entry.kind {
                    Kind::Server(server) => match import.take(read, entry, server, existing, looker) {
                        Ok(()) => taken.push(entry.clone()),
                        Err(why) => import.leave(read, entry, why),
                    },
                    Kind::Countersign => {}
                    Kind::Disabled => import.leave(read, entry, "it is switched off there".to_owned()),
                    Kind::Foreign(why) => import.leave(read, entry, why.clone()),
                }
            }
            import.taken.push(taken);
        }
        import
    }

    fn limit(&mut self, id: String, read: &Read, entry: &Entry) {
        if !entry.offers.all() {
            self.limited.push(Limited { id, host: read.place.host, offers: entry.offers.clone() });
        }
    }

    fn leave(&mut self, read: &Read, entry: &Entry, why: String) {
        self.left.push(Left { host: read.place.host, name: entry.name.clone(), why });
    }

    fn take(
        &mut self,
        read: &Read,
        entry: &Entry,
        server: &Server,
        existing: &DocumentMut,
        looker: &Looker<'_>,
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
        let looker = Looker { project: entry.folder.as_deref(), ..*looker };
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
            self.upstreams.push(Imported { id, from: vec![from], table });
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

/// A name as upstreams have them.
fn plain_name(name: &str) -> String {
    let plain: String =
        name.to_lowercase().chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect();
    let mut plain = plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    plain.truncate(48);
    if plain.is_empty() { "server".to_owned() } else { plain }
}

fn table(
    server: &Server,
    entry: &Entry,
    id: &str,
    looker: &Looker<'_>,
    secrets: &mut BTreeMap<String, Secret>,
) -> Result<Table, String> {
    let mut table = Table::new();
    let mut keep = |found: Found, name: &str| match found {
        Found::Text(text) => text,
        Found::Secret(secret) => {
            let name = looker.name_for(&secret, &format!("{id}.{}", keyring_name(name)));
            let text = format!("${{keyring:{name}}}");
            secrets.insert(name, secret);
            text
        }
    };
    match server {
        Server::Stdio { command, args, env, cwd } => {
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
        Server::Http { url, headers, bearer_env, env_headers } => {
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
