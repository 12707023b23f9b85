//! Adds a module to the manifest's text or removes one. Keeps comments and order; refuses what can't be edited this way instead of
//! rewriting it. Checks the result by reading it.

use std::path::Path;

use countersign_policy::refusal::{Code, Refusal};

use super::{Manifest, Module};
use crate::error::{PackError, PackResult};
use crate::place::MANIFEST;

/// The manifest's text with a module added at the end of its list.
pub fn add(text: &str, module: &Module, path: &Path) -> PackResult<String> {
    let (before, _) = Manifest::parse(text, path)?;
    if before.modules.iter().any(|known| known.id == module.id) {
        let message = format!("there is a module `{}` already", module.id);
        return Err(Refusal::new(Code::ConfigInvalid, message).with("module_id", module.id.as_str()).into());
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (at, indent) = match ModuleBlock::find(&lines) {
        Some(block) => {
            if let Some(head) = lines.get_mut(block.head) {
                *head = "modules:".to_owned();
            }
            (block.end, block.indent)
        }
        None => {
            lines.push("modules:".to_owned());
            (lines.len(), 2)
        }
    };
    lines.splice(at..at, written(module, indent));
    let edited = joined(&lines);
    let (after, _) = Manifest::parse(&edited, path).map_err(|_| by_hand())?;
    let ids =
        |manifest: &Manifest| manifest.modules.iter().map(|module| module.id.clone()).collect::<Vec<_>>();
    let mut expect = ids(&before);
    expect.push(module.id.clone());
    if ids(&after) == expect { Ok(edited) } else { Err(by_hand()) }
}

/// The manifest's text without a module.
pub fn remove(text: &str, id: &str, path: &Path) -> PackResult<String> {
    let (before, _) = Manifest::parse(text, path)?;
    before.module(id)?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let block = ModuleBlock::find(&lines).ok_or_else(by_hand)?;
    let starts = block.items(&lines);
    let index = before.modules.iter().position(|module| module.id == id).ok_or_else(by_hand)?;
    if starts.len() != before.modules.len() {
        return Err(by_hand());
    }
    let from = starts.get(index).copied().ok_or_else(by_hand)?;
    let to = starts.get(index + 1).copied().unwrap_or(block.end);
    lines.drain(from..to);
    if before.modules.len() == 1
        && let Some(head) = lines.get_mut(block.head)
    {
        *head = "modules: []".to_owned();
    }
    let edited = joined(&lines);
    let (after, _) = Manifest::parse(&edited, path).map_err(|_| by_hand())?;
    let same = after.modules.iter().map(|module| &module.id);
    let expect = before.modules.iter().map(|module| &module.id).filter(|known| *known != id);
    if same.eq(expect) { Ok(edited) } else { Err(by_hand()) }
}

/// The manifest's text with one more profile.
pub(crate) fn add_profile(text: &str, name: &str, tags: &[String], path: &Path) -> PackResult<String> {
    let (before, _) = Manifest::parse(text, path)?;
    if before.profiles.contains_key(name) {
        return Ok(text.to_owned());
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let head = lines.iter().position(|line| line.trim_end() == "profiles:").ok_or_else(by_hand)?;
    let inside = |line: &str| line.is_empty() || line.starts_with([' ', '\t', '#']);
    let after = lines.iter().skip(head + 1).position(|line| !inside(line));
    let body = lines.get(head + 1..after.map_or(lines.len(), |after| head + 1 + after)).unwrap_or_default();
    let filled = |line: &&String| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let indent = body.iter().find(filled).map_or(2, |line| line.len() - line.trim_start().len());
    let end = head + 1 + body.iter().rposition(|line| filled(&line)).map_or(0, |last| last + 1);
    let (pad, json) = (" ".repeat(indent), |text: &str| serde_json::Value::from(text).to_string());
    let tags: Vec<String> = tags.iter().map(|tag| json(tag)).collect();
    let profile = [format!("{pad}{}:", json(name)), format!("{pad}{pad}include_tags: [{}]", tags.join(", "))];
    lines.splice(end..end, profile);
    let edited = joined(&lines);
    let (after, _) = Manifest::parse(&edited, path).map_err(|_| by_hand())?;
    let whole = after.profiles.contains_key(name) && after.profiles.len() == before.profiles.len() + 1;
    if whole && after.modules.len() == before.modules.len() { Ok(edited) } else { Err(by_hand()) }
}

/// The lines of the list of modules.
struct ModuleBlock {
    head: usize,
    end: usize,
    indent: usize,
}

impl ModuleBlock {
    fn find(lines: &[String]) -> Option<Self> {
        let head = lines.iter().position(|line| line.starts_with("modules:"))?;
        let body = lines.iter().enumerate().skip(head + 1);
        let inside = |line: &str| line.is_empty() || line.starts_with([' ', '\t', '#', '-']);
        let after = body.clone().find(|(_, line)| !inside(line)).map_or(lines.len(), |(index, _)| index);
        // Blank lines and comments before the next key belong to that key.
        let last = body.take_while(|(index, _)| *index < after).filter(|(_, line)| {
            let text = line.trim();
            !text.is_empty() && !text.starts_with('#')
        });
        let end = last.clone().last().map_or(head + 1, |(index, _)| index + 1);
        let first = last.map(|(_, line)| line).find(|line| line.trim_start().starts_with('-'));
        Some(Self { head, end, indent: first.map_or(2, |line| line.len() - line.trim_start().len()) })
    }

    /// The first line of each item.
    fn items(&self, lines: &[String]) -> Vec<usize> {
        let is_item = |line: &str| {
            line.len() - line.trim_start().len() == self.indent && line.trim_start().starts_with("- ")
        };
        let body = lines.iter().enumerate().take(self.end).skip(self.head + 1);
        body.filter(|(_, line)| is_item(line)).map(|(index, _)| index).collect()
    }
}

fn written(module: &Module, indent: usize) -> Vec<String> {
    let pad = " ".repeat(indent);
    // A JSON string is a YAML string.
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let list = |items: &[String]| items.iter().map(|item| text(item)).collect::<Vec<_>>().join(", ");
    let mut lines = vec![format!("{pad}- id: {}", text(&module.id)), format!("{pad}  type: {}", module.kind)];
    if !module.tags.is_empty() {
        lines.push(format!("{pad}  tags: [{}]", list(&module.tags)));
    }
    if !module.targets.is_empty() {
        lines.push(format!("{pad}  targets: [{}]", list(&module.targets)));
    }
    lines.push(format!("{pad}  source:"));
    if let Some(local) = &module.source.local_path {
        lines.push(format!("{pad}    local_path: {{ path: {} }}", text(&local.path)));
    }
    if let Some(git) = &module.source.git {
        lines.push(format!("{pad}    git:"));
        lines.push(format!("{pad}      url: {}", text(&git.url)));
        lines.push(format!("{pad}      ref: {}", text(&git.reference)));
        if !git.subdir.is_empty() {
            lines.push(format!("{pad}      subdir: {}", text(&git.subdir)));
        }
        if !git.shallow {
            lines.push(format!("{pad}      shallow: false"));
        }
    }
    lines
}

fn joined(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn by_hand() -> PackError {
    let message = format!(
        "the modules in `{MANIFEST}` are written in a way this program does not edit; change it by hand"
    );
    PackError::refused(Code::ConfigInvalid, message)
}
