//! opencode.

use jsonc_parser::cst::CstObject;
use serde_json::Value;

use crate::host::{HostFileError, HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::{CommandShape, JsonDialect};
use crate::json_text::{self, parse_object, with_final_break};
use crate::permission_lists::{append_members, remove_members};
use crate::permission_rules::{PermissionRules, RuleFileEdit, RuleLocation, WhoAsks, all_tools};
use crate::risky_settings::no_settings;
use crate::server_entry::GATEWAY_NAME;

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "opencode",
    title: "opencode",
    program: Some("opencode"),
    files: &[
        FileLocation::user(FilePath::Computed(|environment| {
            environment.in_xdg_config("opencode/opencode.json")
        })),
        FileLocation::user(FilePath::Computed(|environment| {
            environment.in_xdg_config("opencode/opencode.jsonc")
        }))
        .secondary(),
        FileLocation::project("opencode.json"),
        FileLocation::project("opencode.jsonc").secondary(),
        FileLocation::project(".opencode/opencode.json").secondary(),
    ],
    dialect: &JsonDialect {
        key: "mcp",
        command: CommandShape::List,
        stdio_tag: Some(("type", "local")),
        url_tag: Some(("type", "remote")),
        ..JsonDialect::COMMON
    },
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps::same("start a new session; `opencode mcp list` lists `countersign`"),
    permissions: Some(PermissionRules {
        file: RuleLocation::WithServer,
        add: add_rules,
        remove: |now, before| remove_members(now, before, &["permission"], rule),
    }),
    check_settings: no_settings,
};

fn rule(tool: &str, who: WhoAsks) -> (String, Value) {
    (format!("{GATEWAY_NAME}_{tool}"), if who.asks(tool) { "ask" } else { "allow" }.into())
}

/// Adds a word for each tool under `permission`. The last rule that matches counts there, so a rule for everything stays the person's.
fn add_rules(text: Option<&str>, who: WhoAsks) -> Result<RuleFileEdit, HostFileError> {
    const NOT: RuleFileEdit =
        RuleFileEdit::Not("its `permission` says one word for everything, or for all of ours");
    let text = text.unwrap_or_default();
    let (root, object) = parse_object(text)?;
    let current = object.get("permission").and_then(|member| member.value());
    if current.is_some_and(|value| value.as_object().is_none()) {
        return Ok(NOT);
    }
    let permission = json_text::object(&object, "permission")?;
    let names = permission.iter().flat_map(CstObject::properties).filter_map(|member| member.decoded_name());
    let names: Vec<String> = names.collect();
    if names.iter().any(|name| name.starts_with(GATEWAY_NAME) && name.contains('*')) {
        return Ok(NOT);
    }
    let missing = all_tools().map(|tool| rule(tool, who)).filter(|(name, _)| !names.contains(name));
    let missing: Vec<(String, Value)> = missing.collect();
    if missing.is_empty() {
        return Ok(RuleFileEdit::Text(text.to_owned()));
    }
    append_members(&object, &["permission"], missing)?;
    Ok(RuleFileEdit::Text(with_final_break(text, root.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_entries, check_files_everywhere, check_rules, rule_file};

    #[test]
    fn files() {
        check_files_everywhere(
            &SPEC,
            &[
                "~/.config/opencode/opencode.json",
                "~/.config/opencode/opencode.jsonc",
                "PROJECT/opencode.json",
                "PROJECT/opencode.jsonc",
                "PROJECT/.opencode/opencode.json",
            ],
        );
    }

    #[test]
    fn entries() {
        let command = r#"{"type":"local","command":["countersign","serve"]}"#;
        check_entries(&SPEC, "mcp", command, r#"{"type":"remote","url":URL,AUTH}"#);
    }

    #[test]
    fn rules_are_words_for_each_tool() {
        check_rules(&SPEC, "{\r\n\t\"permission\": { \"bash\": \"ask\" }, // mine\r\n}\r\n");
        for text in ["{\"permission\": \"ask\"}", "{\"permission\": {\"countersign_*\": \"deny\"}}"] {
            let added = rule_file("opencode").add(Some(text), WhoAsks::Gateway);
            assert!(matches!(added, Ok(RuleFileEdit::Not(_))), "{text}");
        }
    }
}
