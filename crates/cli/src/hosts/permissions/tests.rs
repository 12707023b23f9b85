//! What whoever administers a machine has written can't be put where it belongs by a test: it is looked for elsewhere.

use super::*;
use crate::environment::Os;

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

/// What is said of a machine with these files; `~` is the home, `/` the machine's own folder.
#[track_caller]
fn check(files: &[(&str, &str)], expect: &[(Harm, &str)]) {
    let room = tempfile::tempdir().unwrap();
    let home = room.path().join("home");
    let look = |name: &str| (name == "HOME").then(|| home.clone());
    let project = room.path().join("project");
    let mut ground = Ground::of(Os::Linux, &look, project.clone()).unwrap();
    ground.claude_managed = room.path().join("etc/claude-code");
    ground.codex_managed = room.path().join("etc/codex");
    for (path, text) in files {
        let path = match path.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => room.path().join(path.trim_start_matches('/')),
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("PROJECT", &project.display().to_string())).unwrap();
    }
    let found = settings(&ground);
    let told: Vec<(Harm, String)> = found
        .iter()
        .map(|one| (one.harm, one.setting.replace(&project.display().to_string(), "PROJECT")))
        .collect();
    let expect: Vec<(Harm, String)> = expect.iter().map(|(harm, text)| (*harm, (*text).to_owned())).collect();
    assert_eq!(told, expect);
    assert!(found.iter().all(|one| !one.fix.is_empty() && one.path.is_file()), "{found:?}");
}

#[test]
fn what_administrators_write_for_claude_code() {
    let settings = "/etc/claude-code/managed-settings.json";
    check(
        &[(
            settings,
            r#"{"permissions":{"allow":["mcp__countersign__*"],"defaultMode":"bypassPermissions"}}"#,
        )],
        &[
            (Harm::Answers, "permissions.allow has `mcp__countersign__*`"),
            (Harm::Answers, "permissions.defaultMode is `bypassPermissions`"),
        ],
    );
    let denied = r#"{"deniedMcpServers":[{"serverName":"countersign"}]}"#;
    check(&[(settings, denied)], &[(Harm::ShutsOut, "deniedMcpServers has `countersign`")]);
    let drop_in = "/etc/claude-code/managed-settings.d/10-mcp.json";
    let lists = "allowedMcpServers does not have `countersign`";
    for (text, shut) in [
        (r#"{"allowedMcpServers":[]}"#, true),
        (r#"{"allowedMcpServers":[{"serverName":"github"}]}"#, true),
        (r#"{"allowedMcpServers":[{"serverName":"countersign"}]}"#, false),
        (r#"{"allowedMcpServers":[{"serverName":"countersign"},{"serverCommand":["npx","-y","x"]}]}"#, true),
        (r#"{"allowedMcpServers":[{"serverCommand":["/usr/bin/countersign","serve"]}]}"#, false),
    ] {
        let expect = [(Harm::ShutsOut, lists)];
        check(&[(drop_in, text)], if shut { &expect } else { &[] });
    }
    let alone = "/etc/claude-code/managed-mcp.json";
    check(
        &[(alone, r#"{"mcpServers":{"docs":{"command":"docs"}}}"#)],
        &[(Harm::ShutsOut, "only the servers of this file are used"), (Harm::LetsIn, "mcpServers has docs")],
    );
    check(&[(alone, r#"{"mcpServers":{"countersign":{"command":"countersign","args":["serve"]}}}"#)], &[]);
}

#[test]
fn what_administrators_write_for_codex() {
    let requirements = "/etc/codex/requirements.toml";
    check(
        &[(requirements, "[mcp_servers.docs.identity]\ncommand = \"docs\"\n")],
        &[(Harm::ShutsOut, "mcp_servers does not have `countersign`")],
    );
    check(&[(requirements, "[mcp_servers.countersign.identity]\ncommand = \"countersign\"\n")], &[]);
    check(&[(requirements, "allowed_sandbox_modes = [\"read-only\"]\n")], &[]);
    check(
        &[("/etc/codex/config.toml", "[mcp_servers.docs]\ncommand = \"docs\"\n")],
        &[(Harm::LetsIn, "mcp_servers has docs")],
    );
    check(
        &[(
            "/etc/codex/managed_config.toml",
            "approval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n",
        )],
        &[(Harm::Answers, "approval_policy is `never` with sandbox_mode `danger-full-access`")],
    );
}

#[test]
fn what_a_person_may_have_written() {
    check(
        &[(
            "~/.claude/settings.json",
            r#"{"skipDangerousModePermissionPrompt":true,"permissions":{"defaultMode":"auto"},"enableAllProjectMcpServers":true,"disabledMcpjsonServers":["countersign"]}"#,
        )],
        &[
            (Harm::Judges, "permissions.defaultMode is `auto`"),
            (Harm::Hushes, "skipDangerousModePermissionPrompt is true"),
            (Harm::LetsIn, "enableAllProjectMcpServers is true"),
            (Harm::ShutsOut, "disabledMcpjsonServers has `countersign`"),
        ],
    );
    // A stricter rule anywhere wins.
    check(
        &[
            (
                "~/.claude/settings.json",
                r#"{"permissions":{"allow":["mcp__countersign"],"defaultMode":"auto"}}"#,
            ),
            (
                "project/.claude/settings.json",
                r#"{"permissions":{"ask":["mcp__countersign__call_tool_destructive"],"deny":["mcp__countersign__run_plan"]}}"#,
            ),
        ],
        &[],
    );
    check(
        &[("~/.claude.json", r#"{"projects":{"PROJECT":{"disabledMcpServers":["countersign"]}}}"#)],
        &[(Harm::ShutsOut, "projects.\"PROJECT\".disabledMcpServers has `countersign`")],
    );
    check(
        &[(
            "~/.codex/config.toml",
            "approval_policy = \"never\"\n[profiles.yolo]\napproval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n[profiles.review]\napprovals_reviewer = \"auto_review\"\n[mcp_servers.countersign]\ncommand = \"countersign\"\nenabled = false\n[mcp_servers.countersign.tools.run_plan]\napproval_mode = \"approve\"\n",
        )],
        &[
            (Harm::ShutsOut, "mcp_servers.countersign.enabled is false"),
            (Harm::Answers, "mcp_servers.countersign.tools.run_plan.approval_mode is `approve`"),
            (
                Harm::Answers,
                "profiles.yolo.approval_policy is `never` with sandbox_mode `danger-full-access`",
            ),
            (Harm::Judges, "profiles.review.approvals_reviewer is `auto_review`"),
        ],
    );
    check(
        &[(
            "project/.cursor/permissions.json",
            "{\"mcpAllowlist\":[\"countersign:run_plan\",\"countersign:get_run\"]}",
        )],
        &[(Harm::Answers, "mcpAllowlist has `countersign:run_plan`")],
    );
    for (value, bad) in [("autoApprove", true), ("autopilot", true), ("default", false)] {
        let setting = format!("`chat.permissions.default` is `{value}`");
        let expect = [(Harm::Answers, setting.as_str())];
        let text = format!("{{\"chat.permissions.default\": \"{value}\"}}");
        check(&[("~/.config/Code/User/settings.json", &text)], if bad { &expect } else { &[] });
    }
    for (text, harm, setting) in [
        (r#"{"defaultPermissionMode":"allow-all"}"#, Harm::Answers, "defaultPermissionMode is `allow-all`"),
        (r#"{"defaultPermissionMode":"assisted"}"#, Harm::Judges, "defaultPermissionMode is `assisted`"),
        (r#"{"disabledMcpServers":["countersign"]}"#, Harm::ShutsOut, "disabledMcpServers has `countersign`"),
    ] {
        check(&[("~/.copilot/settings.json", text)], &[(harm, setting)]);
        check(&[("project/.github/copilot/settings.local.json", text)], &[(harm, setting)]);
    }
    check(
        &[(
            "~/.copilot/permissions-config.json",
            r#"{"locations":{"/w":{"tool_approvals":[{"kind":"mcp","serverName":"countersign","toolName":null},{"kind":"mcp","serverName":"countersign","toolName":"call_tool_read"},{"kind":"mcp","serverName":"gh","toolName":null}]}}}"#,
        )],
        &[(Harm::Answers, "locations.\"/w\".tool_approvals has every tool of `countersign`")],
    );
    check(
        &[(
            "~/.gemini/antigravity-cli/settings.json",
            r#"{"toolPermission":"always-proceed","permissions":{"allow":["mcp(countersign/*)","mcp(countersign/get_run)","command(ls)"]}}"#,
        )],
        &[
            (Harm::Answers, "toolPermission is `always-proceed`"),
            (Harm::Answers, "permissions.allow has `mcp(countersign/*)`"),
        ],
    );
    check(
        &[("project/.devin/config.local.json", r#"{"permissions":{"allow":["mcp__*","Exec(git)"]}}"#)],
        &[(Harm::Answers, "permissions.allow has `mcp__*`")],
    );
    check(
        &[("~/.config/zed/settings.json", r#"{"agent":{"tool_permissions":{"default":"allow"}}}"#)],
        &[(Harm::Answers, "agent.tool_permissions.default is `allow`")],
    );
}

#[test]
fn gemini_policies_by_their_priority() {
    check(
        &[
            ("~/.gemini/settings.json", r#"{"mcp":{"allowed":["github"],"excluded":["countersign"]}}"#),
            ("~/.gemini/mcp-server-enablement.json", r#"{"countersign":{"enabled":false}}"#),
        ],
        &[
            (Harm::ShutsOut, "mcp.allowed does not have `countersign`"),
            (Harm::ShutsOut, "mcp.excluded has `countersign`"),
            (Harm::ShutsOut, "countersign.enabled is false"),
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
        let expect: Vec<(Harm, &str)> = expect.into_iter().map(|text| (Harm::Answers, text)).collect();
        check(&[("~/.gemini/policies/mine.toml", &mine)], &expect);
        // A stricter rule of higher priority holds; one of lower priority, or of a project, does not.
        check(&[("~/.gemini/policies/mine.toml", &mine), ("~/.gemini/policies/ask.toml", ask)], &[]);
        check(
            &[("~/.gemini/policies/mine.toml", &mine), ("project/.gemini/policies/ask.toml", ask)],
            &expect,
        );
        let low = ask.replace("100", "10");
        check(&[("~/.gemini/policies/mine.toml", &mine), ("~/.gemini/policies/ask.toml", &low)], &expect);
    }
}

#[test]
fn a_server_of_a_project_waits_to_be_accepted() {
    let ours = r#"{"mcpServers":{"countersign":{"command":"countersign","args":["serve"]}}}"#;
    let shared = ("project/.mcp.json", ours);
    check(&[shared], &[(Harm::Waits, "`countersign` waits to be accepted")]);
    for accepted in [
        ("project/.claude/settings.local.json", r#"{"enabledMcpjsonServers":["countersign"]}"#),
        ("~/.claude.json", r#"{"projects":{"PROJECT":{"enabledMcpjsonServers":["countersign"]}}}"#),
        // The person has it everywhere.
        ("~/.claude.json", ours),
    ] {
        check(&[shared, accepted], &[]);
    }
    check(&[("project/.mcp.json", r#"{"mcpServers":{"docs":{"command":"docs"}}}"#)], &[]);
}
