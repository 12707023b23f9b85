//! The configuration's text as `init` writes it: an upstream more, a rule behind all others, a head for a new file.

use countersign_policy::mode::Mode;
use toml_edit::{DocumentMut, Item, Table as Toml, TableLike};

/// Sets the mode in which sessions begin.
pub(super) fn set_mode(document: &mut DocumentMut, mode: Mode) {
    let gateway = document.entry("gateway").or_insert_with(|| Item::Table(Toml::new()));
    if let Some(gateway) = gateway.as_table_like_mut() {
        gateway.insert("mode", toml_edit::value(mode.as_str()));
    }
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
        ["match", "when", "deny", "effect"]
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
pub(super) fn headed(before: Option<&str>, text: &str, mode: Mode) -> String {
    match before {
        Some(_) => text.to_owned(),
        None => format!(
            "# What agents may change, and who has to agree. Checked by `countersign policy check`.\n\n[gateway]\nmode = \"{mode}\"\n\n[confirm]\nprofile = \"solo\"                   # who agrees to a change: your host's dialog, the page or `countersign approve`\n\n{}",
            text.trim_start()
        ),
    }
}
