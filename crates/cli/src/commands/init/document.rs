//! The configuration's text as `init` writes it: an upstream more, the hosts it is for, a rule behind all others, a head for a new file.

use std::path::Path;

use countersign_policy::mode::Mode;
use countersign_policy::profile::ConfirmProfile;
use toml_edit::{Array, DocumentMut, Item, Table as Toml, TableLike, Value, value};

/// Sets one word of a section.
pub(super) fn set_word(document: &mut DocumentMut, section: &str, key: &str, word: &str) {
    let section = document.entry(section).or_insert_with(|| Item::Table(Toml::new()));
    if let Some(section) = section.as_table_like_mut() {
        section.insert(key, value(word));
    }
}

fn upstream<'d>(document: &'d mut DocumentMut, id: &str) -> Option<&'d mut dyn TableLike> {
    let all = document.get_mut("upstreams")?.as_table_like_mut()?;
    all.get_mut(id)?.as_table_like_mut()
}

/// Adds hosts, and the folder, to those an upstream is for. One that is for all stays so, unless it is new.
pub(super) fn admit_hosts(
    document: &mut DocumentMut,
    id: &str,
    hosts: &[&str],
    folder: Option<&Path>,
    is_new: bool,
) {
    let Some(table) = upstream(document, id) else { return };
    let folder = folder.map(|folder| folder.display().to_string());
    let folders: Vec<&str> = folder.as_deref().into_iter().collect();
    for (key, names) in [("hosts", hosts), ("folders", &folders)] {
        if names.is_empty() || (!is_new && !table.contains_key(key)) {
            continue;
        }
        let list = table.entry(key).or_insert_with(|| value(Array::new()));
        let Some(list) = list.as_array_mut() else { continue };
        for name in names {
            if !list.iter().any(|known| known.as_str() == Some(name)) {
                list.push(Value::from(*name));
            }
        }
    }
}

/// Lets every host in every folder use an upstream.
pub(super) fn open_to_all(document: &mut DocumentMut, id: &str) {
    let Some(table) = upstream(document, id) else { return };
    table.remove("hosts");
    table.remove("folders");
}

pub(super) fn insert(document: &mut DocumentMut, id: &str, table: Toml) {
    let all = document.entry("upstreams").or_insert_with(|| {
        let mut all = Toml::new();
        all.set_implicit(true);
        Item::Table(all)
    });
    if let Some(all) = all.as_table_like_mut() {
        all.insert(id, Item::Table(table));
    }
}

/// A rule after all others, unless it is there.
pub(super) fn append(document: &mut DocumentMut, rule: Toml) {
    let says = |table: &dyn TableLike| {
        ["match", "when", "deny", "effect", "preview"]
            .map(|key| table.get(key).map(|item| item.to_string().trim().to_owned()))
    };
    let rules =
        document.entry("rules").or_insert_with(|| Item::ArrayOfTables(toml_edit::ArrayOfTables::new()));
    if let Some(tables) = rules.as_array_of_tables_mut() {
        if !tables.iter().any(|known| says(known) == says(&rule)) {
            tables.push(rule);
        }
    } else if let Some(list) = rules.as_array_mut() {
        let there =
            |known: &toml_edit::Value| known.as_inline_table().is_some_and(|one| says(one) == says(&rule));
        if !list.iter().any(there) {
            list.push(rule.into_inline_table());
        }
    }
}

/// A new file says what it is.
pub(super) fn headed(text: &str, mode: Mode, profile: ConfirmProfile) -> String {
    let word = format!("profile = \"{profile}\"");
    format!(
        "# What agents may change, and who has to agree. Checked by `countersign policy check`.\n\n[gateway]\nmode = \"{mode}\"\n\n[confirm]\n{word:<35}# who agrees to a change: {}\n\n{}",
        who_agrees(profile),
        text.trim_start()
    )
}

/// Who agrees to a change under a profile, for a person.
pub(super) fn who_agrees(profile: ConfirmProfile) -> &'static str {
    match profile {
        ConfirmProfile::Solo => "your host's dialog, the page or `countersign approve`",
        ConfirmProfile::Team => "the page or `countersign approve`, not a host's dialog",
        ConfirmProfile::Regulated => "as for a team, by a passkey once there are such",
    }
}
