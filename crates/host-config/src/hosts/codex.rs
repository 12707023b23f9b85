//! Codex: servers and permission rules in TOML. An edit keeps comments, order and everything it is not about.

use std::path::{Path, PathBuf};

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

use crate::host::{HostFileError, HostSpec, NextSteps, ServerDialect};
use crate::host_files::{FileLocation, FilePath};
use crate::line_ends::with_line_ends;
use crate::permission_rules::{PermissionRules, RuleFileEdit, RuleLocation, WhoAsks, all_tools, keep};
use crate::platform::{HostEnvironment, Os};
use crate::risky_settings::{
    ADMINISTRATOR, DESTRUCTIVE_TOOLS, FileFindings, SettingFindings, SettingRisk, read_toml,
};
use crate::server_entry::{
    GATEWAY_NAME, GatewayEntry, HostServerSpec, OfferedTools, ServerEntry, ServerEntryKind,
    is_gateway_command, is_gateway_url,
};

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "codex",
    title: "Codex",
    program: Some("codex"),
    files: &[
        FileLocation::user(FilePath::Computed(|environment| folder(environment).join("config.toml"))),
        FileLocation::project(".codex/config.toml"),
    ],
    dialect: &CodexToml,
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps {
        user: "start a new session; /mcp lists `countersign`",
        project: "start it in this folder and trust the folder: until then the file is not read",
    },
    permissions: Some(PermissionRules { file: RuleLocation::WithServer, add: add_rules, remove: keep }),
    check_settings,
};

const KEY: &str = "mcp_servers";

fn folder(environment: &HostEnvironment) -> PathBuf {
    environment.variable_or_home("CODEX_HOME", ".codex")
}

/// Where administrators write.
fn managed_folder(environment: &HostEnvironment) -> PathBuf {
    match environment.os {
        Os::Linux | Os::Mac => environment.root.join("etc").join("codex"),
        Os::Windows => {
            let data = environment.variable("ProgramData");
            data.unwrap_or_else(|| PathBuf::from(r"C:\ProgramData")).join("OpenAI").join("Codex")
        }
    }
}

/// Parses into a document that keeps comments and order.
pub(super) fn parse(text: &str) -> Result<DocumentMut, HostFileError> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        let start = error.span().map(|span| span.start).unwrap_or_default();
        let line = text.get(..start).unwrap_or_default().matches('\n').count().saturating_add(1);
        HostFileError { line, reason: error.message().lines().next().unwrap_or_default().to_owned() }
    })
}

pub(super) fn not_a_table(what: &str) -> HostFileError {
    HostFileError { line: 1, reason: format!("`{what}` is no table") }
}

/// A name, or a list of names.
pub(super) fn names(item: Option<&Item>) -> Vec<String> {
    let Some(value) = item.and_then(Item::as_value) else { return Vec::new() };
    match (value.as_str(), value.as_array()) {
        (Some(name), _) => vec![name.to_owned()],
        (None, Some(names)) => names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        (None, None) => Vec::new(),
    }
}

struct CodexToml;

impl ServerDialect for CodexToml {
    fn read(&self, text: &str, folder: Option<PathBuf>) -> Result<Vec<ServerEntry>, HostFileError> {
        let document = parse(text)?;
        let Some(servers) = document.get(KEY) else { return Ok(Vec::new()) };
        let servers = servers.as_table_like().ok_or_else(|| not_a_table(KEY))?;
        let entries = servers.iter().map(|(name, item)| ServerEntry {
            name: name.to_owned(),
            path: vec![KEY.to_owned(), name.to_owned()],
            folder: folder.clone(),
            kind: item
                .as_table_like()
                .map_or(ServerEntryKind::Foreign("it is no table".to_owned()), |table| kind(name, table)),
            offers: OfferedTools {
                only: item.get("enabled_tools").is_some().then(|| names(item.get("enabled_tools"))),
                without: names(item.get("disabled_tools")),
            },
        });
        Ok(entries.collect())
    }

    fn rewrite(
        &self,
        text: &str,
        imported: &[ServerEntry],
        ours: &GatewayEntry,
    ) -> Result<String, HostFileError> {
        let mut document = parse(text)?;
        let all = document.entry(KEY).or_insert_with(|| Item::Table(implicit_table()));
        let all = all.as_table_like_mut().ok_or_else(|| not_a_table(KEY))?;
        for entry in imported {
            all.remove(&entry.name);
        }
        let there =
            all.get(GATEWAY_NAME).map(|known| known.get("url").and_then(Item::as_str).map(str::to_owned));
        let mut table = Table::new();
        match (there, ours) {
            (None, GatewayEntry::Command { command, args, env }) => {
                table.insert("command", value(command));
                table.insert("args", value(args.iter().collect::<Array>()));
                if !env.is_empty() {
                    let env = env.iter().map(|(name, text)| (name, text)).collect::<InlineTable>();
                    table.insert("env", value(env));
                }
                all.insert(GATEWAY_NAME, Item::Table(table));
            }
            (there, GatewayEntry::Address { url, secret }) if there.as_ref() != Some(&Some(url.clone())) => {
                table.insert("url", value(url));
                let mut headers = InlineTable::new();
                headers.insert("Authorization", GatewayEntry::authorization(secret).into());
                table.insert("http_headers", value(headers));
                // The person's decisions about our tools are beside the entry: keep them.
                if let Some(tools) = all.get(GATEWAY_NAME).and_then(|known| known.get("tools")) {
                    table.insert("tools", tools.clone());
                }
                all.insert(GATEWAY_NAME, Item::Table(table));
            }
            (Some(_), GatewayEntry::Command { .. }) | (_, GatewayEntry::Address { .. }) => {}
        }
        Ok(with_line_ends(text, &document.to_string()))
    }

    fn gateway_url(&self, text: &str) -> Option<String> {
        parse(text).ok()?.get(KEY)?.get(GATEWAY_NAME)?.get("url")?.as_str().map(str::to_owned)
    }

    fn restore(&self, now: &str, before: &str) -> Result<String, HostFileError> {
        let (mut document, old) = (parse(now)?, parse(before)?);
        let old = old.get(KEY).and_then(Item::as_table_like);
        if let Some(all) = document.get_mut(KEY).and_then(Item::as_table_like_mut) {
            all.remove(GATEWAY_NAME);
            for (name, item) in old.into_iter().flat_map(|old| old.iter()) {
                if all.get(name).is_none() {
                    all.insert(name, item.clone());
                }
            }
        }
        Ok(with_line_ends(now, &document.to_string()))
    }
}

fn implicit_table() -> Table {
    let mut table = Table::new();
    table.set_implicit(true);
    table
}

fn kind(name: &str, table: &dyn TableLike) -> ServerEntryKind {
    let text = |key: &str| table.get(key).and_then(Item::as_str).map(str::to_owned);
    let args = || -> Vec<String> {
        table.get("args").and_then(Item::as_array).into_iter().flatten().map(to_text).collect()
    };
    let program = text("command").is_some_and(|command| is_gateway_command(name, &command, &args()));
    if program || text("url").is_some_and(|url| is_gateway_url(name, &url)) {
        return ServerEntryKind::Countersign;
    }
    if table.get("enabled").and_then(Item::as_bool) == Some(false) {
        return ServerEntryKind::Disabled;
    }
    if let Some(command) = text("command") {
        let mut env = pairs(table.get("env"));
        // Names of variables that Codex passes on from its own environment.
        let passed = table.get("env_vars").and_then(Item::as_array).into_iter().flatten();
        env.extend(passed.filter_map(Value::as_str).map(|name| (name.to_owned(), format!("${{{name}}}"))));
        return ServerEntryKind::Server(HostServerSpec::Stdio {
            command,
            args: args(),
            env,
            cwd: text("cwd"),
        });
    }
    match text("url") {
        Some(url) => ServerEntryKind::Server(HostServerSpec::Http {
            url,
            headers: pairs(table.get("http_headers")),
            bearer_env: text("bearer_token_env_var"),
            env_headers: pairs(table.get("env_http_headers")),
        }),
        None => ServerEntryKind::Foreign("it has neither `command` nor `url`".to_owned()),
    }
}

fn pairs(item: Option<&Item>) -> Vec<(String, String)> {
    let table = item.and_then(Item::as_table_like);
    let all = table.into_iter().flat_map(|table| table.iter());
    all.filter_map(|(name, item)| Some((name.to_owned(), to_text(item.as_value()?)))).collect()
}

fn to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string().trim().to_owned(), str::to_owned)
}

fn add_rules(text: Option<&str>, who: WhoAsks) -> Result<RuleFileEdit, HostFileError> {
    let text = text.unwrap_or_default();
    let mut document = parse(text)?;
    let server = document.get_mut(KEY).and_then(|all| all.get_mut(GATEWAY_NAME));
    let Some(server) = server.and_then(Item::as_table_like_mut) else {
        return Ok(RuleFileEdit::Text(text.to_owned()));
    };
    let tools = server.entry("tools").or_insert_with(|| Item::Table(implicit_table()));
    let broken = || not_a_table(&format!("mcp_servers.{GATEWAY_NAME}.tools"));
    let tools = tools.as_table_like_mut().ok_or_else(broken)?;
    for tool in all_tools() {
        let mode = if who.asks(tool) { "prompt" } else { "approve" };
        let table = tools.entry(tool).or_insert_with(|| Item::Table(Table::new()));
        let broken = || not_a_table(&format!("mcp_servers.{GATEWAY_NAME}.tools.{tool}"));
        let table = table.as_table_like_mut().ok_or_else(broken)?;
        if table.get("approval_mode").is_none() {
            table.insert("approval_mode", value(mode));
        }
    }
    Ok(RuleFileEdit::Text(with_line_ends(text, &document.to_string())))
}

fn check_settings(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    let machine = managed_folder(environment);
    for (path, own) in [
        (folder(environment).join("config.toml"), true),
        (environment.in_project(".codex/config.toml"), true),
        (machine.join("config.toml"), false),
        (machine.join("managed_config.toml"), false),
    ] {
        let Some(config) = read_toml(&path) else { continue };
        let mut file = findings.file(&path);
        let fix = |fix: &str| if own { fix.to_owned() } else { ADMINISTRATOR.to_owned() };
        let servers = config.get(KEY).and_then(Item::as_table_like);
        if let Some(ours) = servers.and_then(|servers| servers.get(GATEWAY_NAME)) {
            check_entry(ours, &fix, &mut file);
        }
        if !own && let Some(servers) = servers {
            check_other_servers(servers, &mut file);
        }
        check_approvals("", config.as_table(), &fix, &mut file);
        let profiles = config.get("profiles").and_then(Item::as_table_like);
        for (name, profile) in profiles.into_iter().flat_map(TableLike::iter) {
            if let Some(profile) = profile.as_table_like() {
                check_approvals(&format!("profiles.{name}."), profile, &fix, &mut file);
            }
        }
    }
    check_requirements(&machine.join("requirements.toml"), findings);
}

fn text<'a>(table: &'a dyn TableLike, key: &str) -> Option<&'a str> {
    table.get(key).and_then(Item::as_str)
}

fn check_entry(ours: &Item, fix: &dyn Fn(&str) -> String, file: &mut FileFindings<'_>) {
    if ours.get("default_tools_approval_mode").and_then(Item::as_str) == Some("approve") {
        file.add(
            SettingRisk::Approves,
            format!("mcp_servers.{GATEWAY_NAME}.default_tools_approval_mode is `approve`"),
            fix("remove it, or write `writes`"),
        );
    }
    if ours.get("enabled").and_then(Item::as_bool) == Some(false) {
        file.add(
            SettingRisk::DisablesGateway,
            format!("mcp_servers.{GATEWAY_NAME}.enabled is false"),
            fix("remove it, or write true"),
        );
    }
    for tool in DESTRUCTIVE_TOOLS {
        let table = ours.get("tools").and_then(|tools| tools.get(tool));
        if table.and_then(|table| table.get("approval_mode")).and_then(Item::as_str) == Some("approve") {
            file.add(
                SettingRisk::Approves,
                format!("mcp_servers.{GATEWAY_NAME}.tools.{tool}.approval_mode is `approve`"),
                fix("write `prompt`"),
            );
        }
    }
}

/// With full access and no approvals, calls of ours are not asked about either.
fn check_approvals(
    prefix: &str,
    table: &dyn TableLike,
    fix: &dyn Fn(&str) -> String,
    file: &mut FileFindings<'_>,
) {
    let free = text(table, "sandbox_mode") == Some("danger-full-access");
    if free && text(table, "approval_policy") == Some("never") {
        file.add(
            SettingRisk::Approves,
            format!("{prefix}approval_policy is `never` with sandbox_mode `danger-full-access`"),
            fix("set approval_policy to `on-request`"),
        );
    }
    if let Some(reviewer @ ("auto_review" | "guardian_subagent")) = text(table, "approvals_reviewer") {
        file.add(
            SettingRisk::ModelApproves,
            format!("{prefix}approvals_reviewer is `{reviewer}`"),
            fix("set it to `user`"),
        );
    }
}

fn check_other_servers(servers: &dyn TableLike, file: &mut FileFindings<'_>) {
    let names: Vec<&str> =
        servers.iter().map(|(name, _)| name).filter(|name| *name != GATEWAY_NAME).collect();
    if !names.is_empty() {
        file.add(
            SettingRisk::BypassesGateway,
            format!("mcp_servers has {}", names.join(", ")),
            ADMINISTRATOR,
        );
    }
}

/// Where an administrator lists the servers that may be used, others are disabled.
fn check_requirements(path: &Path, findings: &mut SettingFindings<'_>) {
    let Some(servers) = read_toml(path) else { return };
    let Some(servers) = servers.get(KEY).and_then(Item::as_table_like) else { return };
    if servers.get(GATEWAY_NAME).is_none() {
        findings.file(path).add(
            SettingRisk::DisablesGateway,
            format!("mcp_servers does not have `{GATEWAY_NAME}`"),
            format!("{ADMINISTRATOR} to add `[mcp_servers.{GATEWAY_NAME}.identity]` with our `command`"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        added_rules, check_files_everywhere, check_files_on, check_rules, check_settings, command_entry,
        environment, rule_file, shown, url_entry,
    };

    #[test]
    fn files() {
        check_files_everywhere(&SPEC, &["~/.codex/config.toml", "PROJECT/.codex/config.toml"]);
        let moved = ["/x/config.toml", "PROJECT/.codex/config.toml"];
        check_files_on(&SPEC, Os::Linux, &[("CODEX_HOME", "/x")], &moved);
        for (os, expect) in
            [(Os::Linux, "/etc/codex"), (Os::Mac, "/etc/codex"), (Os::Windows, "C:/ProgramData/OpenAI/Codex")]
        {
            let environment = environment(os, &[]);
            assert_eq!(shown(&environment, &managed_folder(&environment)), expect);
        }
    }

    #[test]
    fn an_edit_keeps_what_it_is_not_about() {
        let text = "# mine\nmodel = \"o\"   # yes\n\n[mcp_servers.gh]\ncommand = \"npx\"\nargs = [\"-y\", \"gh\"]\nenv = { T = \"1\" }\n\n[profiles.x]\na = 1\n";
        let entries = CodexToml.read(text, None).unwrap();
        assert!(
            matches!(&entries[0].kind, ServerEntryKind::Server(HostServerSpec::Stdio { args, .. }) if args == &["-y", "gh"])
        );
        let ours = command_entry();
        let after = CodexToml.rewrite(text, &entries, &ours).unwrap();
        assert!(after.starts_with("# mine\nmodel = \"o\"   # yes\n"), "{after}");
        assert!(after.contains("[profiles.x]\na = 1\n") && !after.contains("npx"), "{after}");
        assert_eq!(CodexToml.read(&after, None).unwrap()[0].kind, ServerEntryKind::Countersign);
        assert_eq!(CodexToml.rewrite(&after, &[], &ours).unwrap(), after);
    }

    #[test]
    fn tools_that_are_switched_off() {
        let text = "[mcp_servers.a]\ncommand = \"a\"\nenabled_tools = [\"x\"]\ndisabled_tools = [\"y\", \"z\"]\n[mcp_servers.b]\ncommand = \"b\"\n";
        let entries = CodexToml.read(text, None).unwrap();
        assert_eq!(entries[0].offers.only, Some(vec!["x".to_owned()]));
        assert_eq!(entries[0].offers.without, ["y", "z"]);
        assert!(entries[1].offers.all());
    }

    #[test]
    fn a_broken_file_is_named_with_its_line() {
        assert_eq!(CodexToml.read("a = 1\nb = \n", None).unwrap_err().line, 2);
    }

    #[test]
    fn an_address_replaces_a_command_and_keeps_what_was_decided_about_tools() {
        let text = "[mcp_servers.countersign]\ncommand = \"countersign\"\nargs = [\"serve\"]\n\n[mcp_servers.countersign.tools.run_plan]\napproval_mode = \"prompt\"\n";
        let url = "http://127.0.0.1:7878/mcp";
        let ours = url_entry(url);
        let after = CodexToml.rewrite(text, &[], &ours).unwrap();
        assert!(after.contains("http_headers = { Authorization = \"Bearer csg_x\" }"), "{after}");
        assert!(after.contains("[mcp_servers.countersign.tools.run_plan]\napproval_mode"), "{after}");
        assert!(!after.contains("command"), "{after}");
        assert_eq!(CodexToml.gateway_url(&after).as_deref(), Some(url));
        assert_eq!(CodexToml.read(&after, None).unwrap()[0].kind, ServerEntryKind::Countersign);
        assert_eq!(CodexToml.rewrite(&after, &[], &ours).unwrap(), after);
    }

    #[test]
    fn rules_are_tables_beside_the_server() {
        check_rules(&SPEC, "\u{feff}[mcp_servers.countersign]\r\ncommand = \"countersign\"\r\n");
        let text = "# mine\n[mcp_servers.countersign]\ncommand = \"countersign\"\n\n[mcp_servers.countersign.tools.call_tool_write]\napproval_mode = \"approve\" # I know\n\n[tui]\na = 1\n";
        let after = added_rules("codex", Some(text), WhoAsks::Host);
        let document: DocumentMut = after.parse().unwrap();
        let mode = |tool: &str| {
            document["mcp_servers"]["countersign"]["tools"][tool]["approval_mode"].as_str().unwrap()
        };
        assert_eq!((mode("call_tool_read"), mode("call_tool_destructive")), ("approve", "prompt"));
        assert_eq!(mode("call_tool_write"), "approve", "what was decided stays");
        assert!(after.contains("# I know") && after.contains("[tui]\na = 1\n"), "{after}");
        let inline = "mcp_servers = { countersign = { command = \"countersign\" } }\n";
        let after: DocumentMut = added_rules("codex", Some(inline), WhoAsks::Host).parse().unwrap();
        let tools = &after["mcp_servers"]["countersign"]["tools"];
        assert_eq!(tools["get_plan"]["approval_mode"].as_str(), Some("approve"));
        assert_eq!(added_rules("codex", Some("a = 1\n"), WhoAsks::Host), "a = 1\n", "no server, no rules");
        let broken = "[mcp_servers.countersign]\ntools = 3\n";
        assert_eq!(rule_file("codex").add(Some(broken), WhoAsks::Host).unwrap_err().line, 1);
    }

    #[test]
    fn settings_of_administrators() {
        let requirements = "/etc/codex/requirements.toml";
        check_settings(
            &[(requirements, "[mcp_servers.docs.identity]\ncommand = \"docs\"\n")],
            &[(SettingRisk::DisablesGateway, "mcp_servers does not have `countersign`")],
        );
        check_settings(
            &[(requirements, "[mcp_servers.countersign.identity]\ncommand = \"countersign\"\n")],
            &[],
        );
        check_settings(&[(requirements, "allowed_sandbox_modes = [\"read-only\"]\n")], &[]);
        check_settings(
            &[("/etc/codex/config.toml", "[mcp_servers.docs]\ncommand = \"docs\"\n")],
            &[(SettingRisk::BypassesGateway, "mcp_servers has docs")],
        );
        check_settings(
            &[(
                "/etc/codex/managed_config.toml",
                "approval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n",
            )],
            &[(SettingRisk::Approves, "approval_policy is `never` with sandbox_mode `danger-full-access`")],
        );
    }

    #[test]
    fn settings_that_approve_or_disable() {
        check_settings(
            &[(
                "~/.codex/config.toml",
                "approval_policy = \"never\"\n[profiles.yolo]\napproval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n[profiles.review]\napprovals_reviewer = \"auto_review\"\n[mcp_servers.countersign]\ncommand = \"countersign\"\nenabled = false\n[mcp_servers.countersign.tools.run_plan]\napproval_mode = \"approve\"\n",
            )],
            &[
                (SettingRisk::DisablesGateway, "mcp_servers.countersign.enabled is false"),
                (SettingRisk::Approves, "mcp_servers.countersign.tools.run_plan.approval_mode is `approve`"),
                (
                    SettingRisk::Approves,
                    "profiles.yolo.approval_policy is `never` with sandbox_mode `danger-full-access`",
                ),
                (SettingRisk::ModelApproves, "profiles.review.approvals_reviewer is `auto_review`"),
            ],
        );
    }
}
