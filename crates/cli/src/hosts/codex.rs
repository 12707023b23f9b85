//! Codex keeps its servers in TOML. An edit keeps comments, order and everything it is not about.

use std::path::PathBuf;

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value, value};

use super::rules::tool_names;
use super::server::{NAME, is_our_address, is_ours};
use super::{Broken, Entry, Host, Kind, Offers, Ours, Server};
use crate::line_ends::with_line_ends;

/// A text as a document that keeps its comments and order.
pub(super) fn parse(text: &str) -> Result<DocumentMut, Broken> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        let start = error.span().map(|span| span.start).unwrap_or_default();
        let line = text.get(..start).unwrap_or_default().matches('\n').count().saturating_add(1);
        Broken { line, why: error.message().lines().next().unwrap_or_default().to_owned() }
    })
}

/// Every server of a file.
pub(super) fn read(text: &str, folder: Option<PathBuf>) -> Result<Vec<Entry>, Broken> {
    let document = parse(text)?;
    let key = Host::Codex.key();
    let Some(servers) = document.get(key) else { return Ok(Vec::new()) };
    let Some(servers) = servers.as_table_like() else {
        return Err(Broken { line: 1, why: format!("`{key}` is no table") });
    };
    let entries = servers.iter().map(|(name, item)| Entry {
        name: name.to_owned(),
        path: vec![key.to_owned(), name.to_owned()],
        folder: folder.clone(),
        kind: item
            .as_table_like()
            .map_or(Kind::Foreign("it is no table".to_owned()), |table| kind(name, table)),
        offers: Offers {
            only: item.get("enabled_tools").is_some().then(|| tool_names(item.get("enabled_tools"))),
            without: tool_names(item.get("disabled_tools")),
        },
    });
    Ok(entries.collect())
}

fn kind(name: &str, table: &dyn TableLike) -> Kind {
    let text = |key: &str| table.get(key).and_then(Item::as_str).map(str::to_owned);
    let args = || -> Vec<String> {
        table.get("args").and_then(Item::as_array).into_iter().flatten().map(plain).collect()
    };
    let program = text("command").is_some_and(|command| is_ours(name, &command, &args()));
    if program || text("url").is_some_and(|url| is_our_address(name, &url)) {
        return Kind::Countersign;
    }
    if table.get("enabled").and_then(Item::as_bool) == Some(false) {
        return Kind::Disabled;
    }
    if let Some(command) = text("command") {
        let mut env = pairs(table.get("env"));
        // Names alone: what Codex passes on from its own environment.
        let passed = table.get("env_vars").and_then(Item::as_array).into_iter().flatten();
        env.extend(passed.filter_map(Value::as_str).map(|name| (name.to_owned(), format!("${{{name}}}"))));
        return Kind::Server(Server::Stdio { command, args: args(), env, cwd: text("cwd") });
    }
    match text("url") {
        Some(url) => Kind::Server(Server::Http {
            url,
            headers: pairs(table.get("http_headers")),
            bearer_env: text("bearer_token_env_var"),
            env_headers: pairs(table.get("env_http_headers")),
        }),
        None => Kind::Foreign("it has neither `command` nor `url`".to_owned()),
    }
}

fn pairs(item: Option<&Item>) -> Vec<(String, String)> {
    let table = item.and_then(Item::as_table_like);
    let all = table.into_iter().flat_map(|table| table.iter());
    all.filter_map(|(name, item)| Some((name.to_owned(), plain(item.as_value()?)))).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string().trim().to_owned(), str::to_owned)
}

/// Removes what was taken over and adds our table.
pub(super) fn rewrite(text: &str, taken: &[Entry], ours: &Ours) -> Result<String, Broken> {
    let mut document = parse(text)?;
    let all = document.entry(Host::Codex.key()).or_insert_with(|| {
        let mut all = Table::new();
        all.set_implicit(true);
        Item::Table(all)
    });
    let Some(all) = all.as_table_like_mut() else {
        return Err(Broken { line: 1, why: format!("`{}` is no table", Host::Codex.key()) });
    };
    for entry in taken {
        all.remove(&entry.name);
    }
    if all.get(NAME).is_none() {
        let mut table = Table::new();
        table.insert("command", value(&ours.command));
        table.insert("args", value(ours.args.iter().collect::<Array>()));
        all.insert(NAME, Item::Table(table));
    }
    Ok(with_line_ends(text, &document.to_string()))
}

/// Takes our table out of a text that its host has changed since, and puts the servers of the old text back.
pub(super) fn give_back(now: &str, before: &str) -> Result<String, Broken> {
    let (mut document, old) = (parse(now)?, parse(before)?);
    let key = Host::Codex.key();
    let old = old.get(key).and_then(Item::as_table_like);
    if let Some(all) = document.get_mut(key).and_then(Item::as_table_like_mut) {
        if old.is_none_or(|old| old.get(NAME).is_none()) {
            all.remove(NAME);
        }
        for (name, item) in old.into_iter().flat_map(|old| old.iter()) {
            if all.get(name).is_none() {
                all.insert(name, item.clone());
            }
        }
    }
    Ok(with_line_ends(now, &document.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_keeps_what_it_is_not_about() {
        let text = "# mine\nmodel = \"o\"   # yes\n\n[mcp_servers.gh]\ncommand = \"npx\"\nargs = [\"-y\", \"gh\"]\nenv = { T = \"1\" }\n\n[profiles.x]\na = 1\n";
        let entries = read(text, None).unwrap();
        assert!(
            matches!(&entries[0].kind, Kind::Server(Server::Stdio { args, .. }) if args == &["-y", "gh"])
        );
        let ours = Ours { command: "countersign".to_owned(), args: vec!["serve".to_owned()] };
        let after = rewrite(text, &entries, &ours).unwrap();
        assert!(after.starts_with("# mine\nmodel = \"o\"   # yes\n"), "{after}");
        assert!(after.contains("[profiles.x]\na = 1\n") && !after.contains("npx"), "{after}");
        assert_eq!(read(&after, None).unwrap()[0].kind, Kind::Countersign);
        assert_eq!(rewrite(&after, &[], &ours).unwrap(), after);
    }

    #[test]
    fn tools_that_are_switched_off() {
        let text = "[mcp_servers.a]\ncommand = \"a\"\nenabled_tools = [\"x\"]\ndisabled_tools = [\"y\", \"z\"]\n[mcp_servers.b]\ncommand = \"b\"\n";
        let entries = read(text, None).unwrap();
        assert_eq!(entries[0].offers.only, Some(vec!["x".to_owned()]));
        assert_eq!(entries[0].offers.without, ["y", "z"]);
        assert!(entries[1].offers.all());
    }

    #[test]
    fn a_broken_file_is_named_with_its_line() {
        assert_eq!(read("a = 1\nb = \n", None).unwrap_err().line, 2);
    }
}
