//! Permission rules in JSON settings: lists of tool names, and objects with a member for each tool.

use jsonc_parser::cst::{CstArray, CstObject, CstObjectProp};
use serde_json::Value;

use crate::host::HostFileError;
use crate::json_text::{self, descend, input, parse, parse_object, root_object, string, with_final_break};
use crate::permission_rules::{CHANGE_TOOLS, RuleFileEdit, WhoAsks, all_tools};

/// The names of tools as a host writes them.
pub(crate) fn tool_rules(tools: &[&str], start: &str, end: &str) -> Vec<String> {
    tools.iter().map(|tool| format!("{start}{tool}{end}")).collect()
}

/// The strings of a list.
pub(crate) fn strings(list: Option<&CstArray>) -> Vec<String> {
    let elements = list.map(CstArray::elements).unwrap_or_default();
    elements.iter().filter_map(|one| one.to_serde_value()?.as_str().map(str::to_owned)).collect()
}

/// Adds to `permissions.allow` and `permissions.ask`. A rule names a tool between `start` and `end`.
pub(crate) fn add_allow_and_ask(
    text: Option<&str>,
    start: &str,
    end: &str,
    who: WhoAsks,
) -> Result<RuleFileEdit, HostFileError> {
    let text = text.unwrap_or_default();
    let (root, object) = parse_object(text)?;
    let permissions = json_text::object(&object, "permissions")?;
    let have = |key: &str| match &permissions {
        Some(permissions) => json_text::list(permissions, key).map(|list| strings(list.as_ref())),
        None => Ok(Vec::new()),
    };
    let (deny, ask, allow) = (have("deny")?, have("ask")?, have("allow")?);
    let stricter = |rule: &String| deny.contains(rule) || ask.contains(rule);
    let mut allowed = tool_rules(&who.allowed(), start, end);
    allowed.retain(|rule| !stricter(rule) && !allow.contains(rule));
    let mut asked = tool_rules(&who.asked(), start, end);
    asked.retain(|rule| !stricter(rule));
    if allowed.is_empty() && asked.is_empty() {
        return Ok(RuleFileEdit::Text(text.to_owned()));
    }
    let permissions = json_text::object_or_new(&object, "permissions")?;
    extend(&permissions, "allow", &allowed)?;
    extend(&permissions, "ask", &asked)?;
    Ok(RuleFileEdit::Text(with_final_break(text, root.to_string())))
}

pub(crate) fn remove_allow_and_ask(
    now: &str,
    before: &str,
    start: &str,
    end: &str,
) -> Result<String, HostFileError> {
    let allowed = tool_rules(&WhoAsks::Gateway.allowed(), start, end);
    let asked = tool_rules(&CHANGE_TOOLS, start, end);
    remove_from_lists(now, before, &[(&["permissions", "allow"], allowed), (&["permissions", "ask"], asked)])
}

pub(crate) fn extend(holder: &CstObject, key: &str, rules: &[String]) -> Result<(), HostFileError> {
    if rules.is_empty() {
        return Ok(());
    }
    let list = match json_text::list(holder, key)? {
        Some(list) => list,
        None => holder.array_value_or_set(key),
    };
    for rule in rules {
        list.append(string(rule));
    }
    list.ensure_multiline();
    Ok(())
}

/// Removes rules from the lists at these paths, except those the text before had.
pub(crate) fn remove_from_lists(
    now: &str,
    before: &str,
    lists: &[(&[&str], Vec<String>)],
) -> Result<String, HostFileError> {
    let root = parse(now)?;
    let Some(object) = root_object(&root)? else { return Ok(now.to_owned()) };
    let old = parse(before)?.to_serde_value().unwrap_or_default();
    for (path, rules) in lists {
        let had = path.iter().try_fold(&old, |here, key| here.get(key)).and_then(Value::as_array);
        let had = |rule: &str| had.is_some_and(|had| had.iter().any(|one| one.as_str() == Some(rule)));
        let Some((key, up)) = path.split_last() else { continue };
        let elements =
            descend(&object, up).and_then(|holder| holder.array_value(key)).map(|list| list.elements());
        for element in elements.into_iter().flatten() {
            let rule = element.to_serde_value().and_then(|value| value.as_str().map(str::to_owned));
            if rule.is_some_and(|rule| rules.contains(&rule) && !had(&rule)) {
                element.remove();
            }
        }
        prune(&object, &old, path);
    }
    Ok(root.to_string())
}

/// Removes what is empty now and was not there before, from the inside out.
fn prune(object: &CstObject, old: &Value, path: &[&str]) {
    for depth in (1..=path.len()).rev() {
        let Some((key, up)) = path.get(..depth).and_then(<[&str]>::split_last) else { return };
        let was = up.iter().chain([key]).try_fold(old, |here, key| here.get(key)).is_some();
        let member = descend(object, up).and_then(|holder| holder.get(key));
        let Some(member) = member.filter(|_| !was) else { return };
        let empty = match (member.object_value(), member.array_value()) {
            (Some(inside), _) => inside.properties().is_empty(),
            (None, Some(list)) => list.elements().is_empty(),
            (None, None) => false,
        };
        if !empty {
            return;
        }
        member.remove();
    }
}

/// A rule for a tool as a member of an object: its name and value.
pub(crate) type MemberRule = fn(&str, WhoAsks) -> (String, Value);

/// Removes the members we write from an object, where they are unchanged and were not there before.
pub(crate) fn remove_members(
    now: &str,
    before: &str,
    path: &[&str],
    rule: MemberRule,
) -> Result<String, HostFileError> {
    let root = parse(now)?;
    let Some(object) = root_object(&root)? else { return Ok(now.to_owned()) };
    let old = parse(before)?.to_serde_value().unwrap_or_default();
    let had = path.iter().try_fold(&old, |here, key| here.get(key));
    if let Some(holder) = descend(&object, path) {
        for (tool, who) in all_tools().flat_map(|tool| [(tool, WhoAsks::Gateway), (tool, WhoAsks::Host)]) {
            let (name, value) = rule(tool, who);
            let is_ours = |member: &CstObjectProp| {
                member.value().and_then(|value| value.to_serde_value()) == Some(value.clone())
            };
            let member = holder.get(&name).filter(|_| had.and_then(|had| had.get(&name)).is_none());
            if let Some(member) = member.filter(is_ours) {
                member.remove();
            }
        }
    }
    prune(&object, &old, path);
    Ok(root.to_string())
}

/// Appends members to an object at a path, which is created where it is missing.
pub(crate) fn append_members(
    object: &CstObject,
    path: &[&str],
    members: Vec<(String, Value)>,
) -> Result<(), HostFileError> {
    let mut holder = object.clone();
    for key in path {
        holder = json_text::object_or_new(&holder, key)?;
    }
    for (name, value) in members {
        let Value::Object(more) = value else {
            holder.append(&name, input(&value));
            continue;
        };
        let inside = json_text::object_or_new(&holder, &name)?;
        for (name, value) in more {
            inside.append(&name, input(&value));
        }
    }
    Ok(())
}
