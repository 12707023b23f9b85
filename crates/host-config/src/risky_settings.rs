//! Settings of hosts that weaken approval: they approve destructive calls without asking, disable the gateway's entry, or use servers
//! beside it. Each with its name and its fix. Reads only.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml_edit::DocumentMut;

use crate::host::{Host, split_mark};
use crate::hosts::HOSTS;
use crate::json_text;
use crate::platform::HostEnvironment;
use crate::server_entry::GATEWAY_NAME;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingRisk {
    /// It approves in the person's place.
    Approves,
    /// A model approves in the person's place where it sees no danger.
    ModelApproves,
    /// Our entry is not used.
    DisablesGateway,
    /// Our entry is not used until the person accepts it.
    AwaitsAcceptance,
    /// Servers are used that do not go through the gateway.
    BypassesGateway,
    /// Bypassing every permission can be switched on without a warning.
    HidesWarning,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RiskySetting {
    pub host: Host,
    /// Where it is written.
    pub path: PathBuf,
    /// Its name and value.
    pub setting: String,
    pub risk: SettingRisk,
    pub fix: String,
}

/// Our tools through which something can be destroyed.
pub const DESTRUCTIVE_TOOLS: [&str; 2] = ["call_tool_destructive", "run_plan"];

/// The fix for what only an administrator can change.
pub(crate) const ADMINISTRATOR: &str = "ask the administrator of this machine";

/// Every such setting of every host.
pub fn risky_settings(environment: &HostEnvironment) -> Vec<RiskySetting> {
    let mut found = Vec::new();
    for host in HOSTS {
        (host.check_settings)(environment, &mut SettingFindings { host: *host, found: &mut found });
    }
    // In the home folder a project's files are the person's own: report each setting once.
    let mut once: Vec<RiskySetting> = Vec::new();
    for one in found {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// For hosts without such settings.
pub(crate) fn no_settings(_: &HostEnvironment, _: &mut SettingFindings<'_>) {}

/// What is found in one host's files.
pub(crate) struct SettingFindings<'a> {
    host: Host,
    found: &'a mut Vec<RiskySetting>,
}

impl SettingFindings<'_> {
    pub(crate) fn file<'a>(&'a mut self, path: &'a Path) -> FileFindings<'a> {
        FileFindings { host: self.host, path, found: self.found }
    }

    /// Checks those of these JSON files that exist.
    pub(crate) fn check_json(
        &mut self,
        files: impl IntoIterator<Item = PathBuf>,
        check: impl Fn(&Value, &mut FileFindings<'_>),
    ) {
        for path in files {
            if let Some(value) = read_json(&path) {
                check(&value, &mut self.file(&path));
            }
        }
    }
}

pub(crate) struct FileFindings<'a> {
    host: Host,
    path: &'a Path,
    found: &'a mut Vec<RiskySetting>,
}

impl FileFindings<'_> {
    pub(crate) fn add(&mut self, risk: SettingRisk, setting: impl Into<String>, fix: impl Into<String>) {
        let (path, setting, fix) = (self.path.to_owned(), setting.into(), fix.into());
        self.found.push(RiskySetting { host: self.host, path, setting, risk, fix });
    }
}

/// A file as JSON with comments; none where it is missing or can't be parsed, which is reported elsewhere.
pub(crate) fn read_json(path: &Path) -> Option<Value> {
    let text = fs::read_to_string(path).ok()?;
    json_text::parse_loose(split_mark(&text).1)
}

pub(crate) fn read_toml(path: &Path) -> Option<DocumentMut> {
    split_mark(&fs::read_to_string(path).ok()?).1.parse().ok()
}

/// The files of a folder with an extension, sorted.
pub(crate) fn files_in(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|one| one == extension)).collect();
    paths.sort();
    paths
}

/// The strings of a list somewhere in a file.
pub(crate) fn strings_at<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a rule such as `mcp__countersign__run_plan` covers a tool of ours; a star at its end stands for anything.
pub(crate) fn covers(rule: &str, tool: &str) -> bool {
    let server = format!("mcp__{GATEWAY_NAME}");
    match rule.strip_prefix(&server) {
        Some("") => true,
        Some(rest) => rest.strip_prefix("__").is_some_and(|wanted| match wanted.strip_suffix('*') {
            Some(start) => tool.starts_with(start),
            None => tool == wanted,
        }),
        None => false,
    }
}

/// The rules that allow a destructive tool of ours which no stricter rule covers.
pub(crate) fn loose_rules<'a>(
    allowed: &[&'a str],
    stricter: &[&str],
    covers: fn(&str, &str) -> bool,
) -> Vec<&'a str> {
    let is_open = |tool: &&&str| !stricter.iter().any(|rule| covers(rule, tool));
    let open: Vec<&&str> = DESTRUCTIVE_TOOLS.iter().filter(is_open).collect();
    allowed.iter().copied().filter(|rule| open.iter().any(|tool| covers(rule, tool))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_cover_the_destructive_call() {
        for (rule, expect) in [
            ("mcp__countersign", true),
            ("mcp__countersign__*", true),
            ("mcp__countersign__call_tool_destructive", true),
            ("mcp__countersign__call_tool_*", true),
            ("mcp__countersign__call_tool_read", false),
            ("mcp__countersignatory", false),
            ("mcp__*", false),
            ("Bash(ls)", false),
        ] {
            assert_eq!(covers(rule, "call_tool_destructive"), expect, "{rule}");
        }
    }
}
