//! Settings of hosts that get between a person and us: what lets a destructive call through without anybody being asked, what shuts us
//! out, what lets servers in beside us. Each by its own name and with its fix. Reads only.

mod claude;
mod codex;
mod gemini;
mod others;

use std::fs;
use std::path::{Path, PathBuf};

use jsonc_parser::cst::CstRootNode;
use serde_json::Value;
use toml_edit::DocumentMut;

use super::server::NAME;
use super::{Ground, Host, marked};

/// What a setting does to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// It answers in the person's place.
    Answers,
    /// A program answers in the person's place where it sees no danger.
    Judges,
    /// Our entry is not used.
    ShutsOut,
    /// Our entry is not used until the person accepts it.
    Waits,
    /// Servers are used that do not go through us.
    LetsIn,
    /// What answers in the person's place can be switched on without a word of warning.
    Hushes,
}

/// A setting that does us harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Whose.
    pub(crate) host: Host,
    /// Where it is written.
    pub(crate) path: PathBuf,
    /// Its name and value.
    pub(crate) setting: String,
    /// What it does.
    pub(crate) harm: Harm,
    /// What to do about it.
    pub(crate) fix: String,
}

/// Our tools through which something can be destroyed.
const DESTRUCTIVE: [&str; 2] = ["call_tool_destructive", "run_plan"];

/// Only whoever administers the machine can mend what is written there.
const ADMINISTRATOR: &str = "ask whoever administers this machine";

/// Every such setting of every host.
pub(crate) fn settings(ground: &Ground) -> Vec<Setting> {
    let mut found = Vec::new();
    claude::look(ground, &mut found);
    codex::look(ground, &mut found);
    gemini::look(ground, &mut found);
    others::look(ground, &mut found);
    // In the home folder a project's files are the person's own: what they say is said once.
    let mut once: Vec<Setting> = Vec::new();
    for one in found {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// What is said of one file.
struct Page<'a> {
    host: Host,
    path: &'a Path,
    found: &'a mut Vec<Setting>,
}

impl Page<'_> {
    fn say(&mut self, harm: Harm, setting: impl Into<String>, fix: impl Into<String>) {
        let (path, setting, fix) = (self.path.to_owned(), setting.into(), fix.into());
        self.found.push(Setting { host: self.host, path, setting, harm, fix });
    }
}

/// A file as JSON with comments; none where it is not there or can't be read, which others report.
fn json(path: &Path) -> Option<Value> {
    let text = fs::read_to_string(path).ok()?;
    CstRootNode::parse(marked(&text).1, &jsonc_parser::ParseOptions::default()).ok()?.to_serde_value()
}

fn toml(path: &Path) -> Option<DocumentMut> {
    marked(&fs::read_to_string(path).ok()?).1.parse().ok()
}

/// The texts of a list somewhere in a file.
fn texts<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a rule covers a tool of ours: our server, all of it, or the tool; a star at its end stands for anything.
fn covers(rule: &str, tool: &str) -> bool {
    let server = format!("mcp__{NAME}");
    match rule.strip_prefix(&server) {
        Some("") => true,
        Some(rest) => rest.strip_prefix("__").is_some_and(|wanted| match wanted.strip_suffix('*') {
            Some(start) => tool.starts_with(start),
            None => tool == wanted,
        }),
        None => false,
    }
}

/// The first rule that covers something destructive of ours which none of the stricter ones does.
fn loose<'a>(allowed: &[&'a str], stricter: &[&str], covers: fn(&str, &str) -> bool) -> Vec<&'a str> {
    let open: Vec<&str> =
        DESTRUCTIVE.into_iter().filter(|tool| !stricter.iter().any(|rule| covers(rule, tool))).collect();
    allowed.iter().copied().filter(|rule| open.iter().any(|tool| covers(rule, tool))).collect()
}

#[cfg(test)]
mod tests;
