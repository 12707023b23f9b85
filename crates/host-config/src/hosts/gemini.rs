//! Gemini CLI: settings in JSON, policies in TOML of which the rule with the highest priority counts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table};

use super::codex::{names, not_a_table, parse};
use crate::host::{HostFileError, HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::line_ends::with_line_ends;
use crate::permission_rules::{PermissionRules, RuleFileEdit, RuleLocation, WhoAsks, keep};
use crate::platform::HostEnvironment;
use crate::risky_settings::{
    DESTRUCTIVE_TOOLS, FileFindings, SettingFindings, SettingRisk, files_in, read_toml, strings_at,
};
use crate::server_entry::GATEWAY_NAME;

const SETTINGS: &str = ".gemini/settings.json";
const POLICY: &str = ".gemini/policies/countersign.toml";

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "gemini",
    title: "Gemini CLI",
    program: Some("gemini"),
    files: &[FileLocation::user(FilePath::Home(SETTINGS)), FileLocation::project(SETTINGS)],
    dialect: &JsonDialect { url_tag: Some(("type", "http")), ..JsonDialect::COMMON },
    accepts_url: true,
    passes_config_flag: true,
    // In a folder it does not trust it starts no server at all, not even the person's own.
    next_steps: NextSteps {
        user: "restart it in a folder it trusts; /mcp lists `countersign`",
        project: "start it in this folder and trust the folder: until then no server is started",
    },
    permissions: Some(PermissionRules {
        file: RuleLocation::OwnFile { user: FilePath::Home(POLICY), project: FilePath::Project(POLICY) },
        add: add_rules,
        remove: keep,
    }),
    check_settings,
};

fn add_rules(text: Option<&str>, who: WhoAsks) -> Result<RuleFileEdit, HostFileError> {
    let text = text.unwrap_or_default();
    let ruled = ruled_tools(&parse(text)?)?;
    let mut added = text.to_owned();
    if added.is_empty() {
        added.push_str("# Written by `countersign init --permissions`: what countersign asks about is not asked twice.\n");
    }
    for (tools, decision) in [(who.allowed(), "allow"), (who.asked(), "ask_user")] {
        let missing = tools.iter().filter(|tool| !ruled.contains(**tool)).map(|tool| format!("\"{tool}\""));
        let missing: Vec<String> = missing.collect();
        if missing.is_empty() {
            continue;
        }
        if !added.ends_with('\n') {
            added.push('\n');
        }
        added.push_str(&format!(
            "\n[[rule]]\nmcpName = \"{GATEWAY_NAME}\"\ntoolName = [{}]\ndecision = \"{decision}\"\npriority = 100\n",
            missing.join(", ")
        ));
    }
    Ok(RuleFileEdit::Text(if added == text { added } else { with_line_ends(text, &added) }))
}

/// Our tools that some rule of a file is about already.
fn ruled_tools(document: &DocumentMut) -> Result<BTreeSet<String>, HostFileError> {
    let Some(rules) = document.get("rule") else { return Ok(BTreeSet::new()) };
    let rules = rules.as_array_of_tables().ok_or_else(|| not_a_table("rule"))?;
    let ours = rules.iter().filter(|rule| rule.get("mcpName").and_then(Item::as_str) == Some(GATEWAY_NAME));
    Ok(ours.flat_map(|rule| names(rule.get("toolName"))).collect())
}

fn check_settings(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    // The person's files win over the project's.
    let folders = [&environment.project, &environment.home].map(|one| one.join(".gemini"));
    let mut rules = Vec::new();
    for (tier, folder) in folders.iter().enumerate() {
        findings.check_json([folder.join("settings.json")], check_file);
        for path in files_in(&folder.join("policies"), "toml") {
            rules.extend(read_policy(&path, tier));
        }
    }
    let switches = environment.at_home(".gemini/mcp-server-enablement.json");
    findings.check_json([switches], |value, file| {
        if value.pointer(&format!("/{GATEWAY_NAME}/enabled")) == Some(&Value::Bool(false)) {
            let setting = format!("{GATEWAY_NAME}.enabled is false");
            file.add(
                SettingRisk::DisablesGateway,
                setting,
                format!("gemini  # then /mcp enable {GATEWAY_NAME}"),
            );
        }
    });
    let mut reported: Vec<&Path> = Vec::new();
    for tool in DESTRUCTIVE_TOOLS {
        let about: Vec<&GeminiPolicyRule> = rules.iter().filter(|rule| rule.covers(tool)).collect();
        let highest = about.iter().map(|rule| rule.priority).max();
        let allows = about.iter().find(|rule| Some(rule.priority) == highest && rule.decision == "allow");
        if let Some(rule) = allows.filter(|rule| !reported.contains(&rule.path.as_path())) {
            reported.push(&rule.path);
            findings.file(&rule.path).add(
                SettingRisk::Approves,
                format!("a rule allows `{tool}` of `{GATEWAY_NAME}`"),
                "write `toolName = \"call_tool_read\"`, or `decision = \"ask_user\"`",
            );
        }
    }
}

fn check_file(value: &Value, file: &mut FileFindings<'_>) {
    if value.pointer(&format!("/mcpServers/{GATEWAY_NAME}/trust")) == Some(&Value::Bool(true)) {
        file.add(SettingRisk::Approves, format!("mcpServers.{GATEWAY_NAME}.trust is true"), "remove `trust`");
    }
    let only = value.pointer("/mcp/allowed").is_some_and(Value::is_array);
    if only && !strings_at(value, "/mcp/allowed").contains(&GATEWAY_NAME) {
        let setting = format!("mcp.allowed does not have `{GATEWAY_NAME}`");
        file.add(SettingRisk::DisablesGateway, setting, format!("add `{GATEWAY_NAME}` to it"));
    }
    if strings_at(value, "/mcp/excluded").contains(&GATEWAY_NAME) {
        file.add(
            SettingRisk::DisablesGateway,
            format!("mcp.excluded has `{GATEWAY_NAME}`"),
            "take it out of the list",
        );
    }
}

/// A policy rule about MCP tools that holds in the default mode, whatever the arguments.
struct GeminiPolicyRule {
    path: PathBuf,
    /// The tier of the file, then the priority of the rule.
    priority: (usize, i64),
    decision: String,
    server: Option<String>,
    /// None is every tool.
    tools: Option<Vec<String>>,
}

fn read_policy(path: &Path, tier: usize) -> Vec<GeminiPolicyRule> {
    let Some(policy) = read_toml(path) else { return Vec::new() };
    let rules = policy.get("rule").and_then(Item::as_array_of_tables);
    rules.into_iter().flatten().filter_map(|table| GeminiPolicyRule::parse(table, path, tier)).collect()
}

impl GeminiPolicyRule {
    fn parse(table: &Table, path: &Path, tier: usize) -> Option<Self> {
        let text = |key: &str| table.get(key).and_then(Item::as_str).map(str::to_owned);
        if ["argsPattern", "commandPrefix", "commandRegex", "toolAnnotations", "subagent"]
            .iter()
            .any(|key| table.contains_key(key))
        {
            return None;
        }
        let modes = names(table.get("modes"));
        if !modes.is_empty() && !modes.iter().any(|mode| mode == "default") {
            return None;
        }
        Some(Self {
            path: path.to_owned(),
            priority: (tier, table.get("priority").and_then(Item::as_integer).unwrap_or_default()),
            decision: text("decision")?,
            server: text("mcpName"),
            tools: table.contains_key("toolName").then(|| names(table.get("toolName"))),
        })
    }

    fn covers(&self, tool: &str) -> bool {
        let full = format!("mcp_{GATEWAY_NAME}_{tool}");
        let ours = |name: &str| match (name, &self.server) {
            ("*", _) => true,
            (name, Some(_)) if name == tool => true,
            (name, _) => matches_pattern(name, &full),
        };
        let server = self.server.as_ref().is_none_or(|server| server == GATEWAY_NAME || server == "*");
        server
            && match &self.tools {
                Some(tools) => tools.iter().any(|name| ours(name)),
                None => self.server.is_some(),
            }
    }
}

/// `mcp_*`, `mcp_server_*`, `mcp_*_tool`: one star stands for anything.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            name.len() >= start.len().saturating_add(end.len())
                && name.starts_with(start)
                && name.ends_with(end)
        }
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        added_rules, check_entries, check_files_everywhere, check_rules, check_settings, rule_file,
    };

    #[test]
    fn files() {
        check_files_everywhere(&SPEC, &["~/.gemini/settings.json", "PROJECT/.gemini/settings.json"]);
    }

    #[test]
    fn entries() {
        let command = r#"{"command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "mcpServers", command, r#"{"type":"http","url":URL,AUTH}"#);
    }

    #[test]
    fn rules_have_a_policy_file_of_their_own() {
        check_rules(&SPEC, "\u{feff}# mine\r\n");
        let made = added_rules("gemini", None, WhoAsks::Host);
        let document: DocumentMut = made.parse().unwrap();
        let rules = document["rule"].as_array_of_tables().unwrap();
        let decisions: Vec<_> = rules.iter().map(|rule| rule["decision"].as_str().unwrap()).collect();
        assert_eq!(decisions, ["allow", "ask_user"]);
        // Only what no rule is about is added.
        let mine = "[[rule]]\r\nmcpName = \"countersign\"\r\ntoolName = \"call_tool_read\"\r\ndecision = \"deny\"\r\npriority = 1";
        let after = added_rules("gemini", Some(mine), WhoAsks::Host);
        assert!(after.starts_with(mine) && after.matches("call_tool_read").count() == 1, "{after}");
        assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after:?}");
        for (broken, line) in [("a = 1\nrule = \n", 2), ("rule = 1\n", 1)] {
            assert_eq!(rule_file("gemini").add(Some(broken), WhoAsks::Host).unwrap_err().line, line);
        }
    }

    #[test]
    fn gemini_policies_by_their_priority() {
        check_settings(
            &[
                ("~/.gemini/settings.json", r#"{"mcp":{"allowed":["github"],"excluded":["countersign"]}}"#),
                ("~/.gemini/mcp-server-enablement.json", r#"{"countersign":{"enabled":false}}"#),
            ],
            &[
                (SettingRisk::DisablesGateway, "mcp.allowed does not have `countersign`"),
                (SettingRisk::DisablesGateway, "mcp.excluded has `countersign`"),
                (SettingRisk::DisablesGateway, "countersign.enabled is false"),
            ],
        );
        let destructive = "a rule allows `call_tool_destructive` of `countersign`";
        let plan = "a rule allows `run_plan` of `countersign`";
        let ask = "[[rule]]\nmcpName = \"countersign\"\ntoolName = [\"call_tool_destructive\", \"run_plan\"]\ndecision = \"ask_user\"\npriority = 100\n";
        for (rule, expect) in [
            ("mcpName = \"countersign\"\ntoolName = [\"get_run\", \"run_plan\"]", Some(plan)),
            ("mcpName = \"countersign\"\ntoolName = [\"get_run\"]", None),
            ("mcpName = \"countersign\"", Some(destructive)),
            ("mcpName = \"*\"\ntoolName = \"run_plan\"", Some(plan)),
            ("mcpName = \"github\"", None),
            ("toolName = \"mcp_*\"", Some(destructive)),
            ("toolName = \"mcp_countersign_*\"", Some(destructive)),
            ("toolName = \"mcp_*_run_plan\"", Some(plan)),
            ("toolName = \"mcp_github_*\"", None),
            ("toolName = \"run_shell_command\"\ncommandPrefix = \"git\"", None),
            ("toolName = \"*\"\nmodes = [\"yolo\"]", None),
            ("toolName = \"*\"\nmodes = [\"default\"]", Some(destructive)),
        ] {
            let mine = format!("[[rule]]\n{rule}\ndecision = \"allow\"\npriority = 50\n");
            let expect: Vec<(SettingRisk, &str)> =
                expect.into_iter().map(|text| (SettingRisk::Approves, text)).collect();
            check_settings(&[("~/.gemini/policies/mine.toml", &mine)], &expect);
            // A stricter rule of higher priority holds; one of lower priority, or of a project, does not.
            check_settings(
                &[("~/.gemini/policies/mine.toml", &mine), ("~/.gemini/policies/ask.toml", ask)],
                &[],
            );
            check_settings(
                &[("~/.gemini/policies/mine.toml", &mine), ("project/.gemini/policies/ask.toml", ask)],
                &expect,
            );
            let low = ask.replace("100", "10");
            check_settings(
                &[("~/.gemini/policies/mine.toml", &mine), ("~/.gemini/policies/ask.toml", &low)],
                &expect,
            );
        }
    }
}
