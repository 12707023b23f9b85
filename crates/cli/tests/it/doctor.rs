//! `doctor` on a home with everything wrong, and on one where nothing is.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::world::{World, binary};

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A configuration that listens where nobody else does.
fn configure(world: &World, more: &str) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    world.write("countersign.toml", &format!("[gateway]\nlisten = \"{free}\"\n{more}"));
}

fn checks(world: &World, args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let args: Vec<&str> = ["doctor", "--json"].iter().chain(args).copied().collect();
    let transcript = world.run(&args);
    let envelope: Value =
        serde_json::from_str(&transcript.stdout).unwrap_or_else(|error| panic!("{error}: {transcript}"));
    (transcript.code, envelope["data"]["checks"].as_array().unwrap().clone())
}

/// The one finding whose message has this text.
#[track_caller]
fn find<'a>(checks: &'a [Value], text: &str) -> &'a Value {
    let found: Vec<&Value> =
        checks.iter().filter(|check| check["message"].as_str().unwrap().contains(text)).collect();
    assert_eq!(found.len(), 1, "{text}: {checks:#?}");
    found[0]
}

#[test]
fn a_home_in_which_nothing_is_wrong() {
    let world = World::new();
    configure(&world, "");
    put(
        &world.home().join(".cursor/mcp.json"),
        r#"{"mcpServers":{"countersign":{"command":"countersign"}}}"#,
    );
    // A file that is there for something else says nothing about servers.
    put(&world.home().join(".config/devin/config.json"), "{}");
    let (code, checks) = checks(&world, &[]);
    assert_eq!(code, Some(0), "{checks:#?}");
    assert!(!checks.iter().any(|check| check["message"].as_str().unwrap().contains("Devin")), "{checks:#?}");
    assert_eq!(find(&checks, "leads to countersign")["state"], "good");
    assert_eq!(find(&checks, "is free")["area"], "listening");
    let people = world.run(&["doctor"]);
    assert!(people.stdout.contains("✓ ") && people.stdout.contains("nothing is wrong"), "{people}");
}

#[test]
fn every_setting_that_answers_for_the_person_is_named_with_its_fix() {
    let world = World::new();
    // Where a change may pass on the agent's word, a host that allows it by name answers, too.
    configure(&world, "[confirm]\nstrength = { write = \"caller\" }\n");
    let home = world.home();
    put(
        &home.join(".claude/settings.json"),
        r#"{"permissions":{"allow":["Bash(ls)","mcp__countersign__*"],"defaultMode":"bypassPermissions"}}"#,
    );
    put(
        &home.join(".codex/config.toml"),
        "[mcp_servers.countersign]\ncommand = \"countersign\"\ndefault_tools_approval_mode = \"approve\"\n[mcp_servers.countersign.tools.call_tool_destructive]\napproval_mode = \"approve\"\n",
    );
    put(&home.join(".cursor/permissions.json"), r#"{"mcpAllowlist":["countersign:*"]}"#);
    put(
        &home.join(".config/Code/User/settings.json"),
        "{ // mine\n\"chat.tools.autoApprove\": true, \"chat.permissions.default\": \"Autopilot\", }",
    );
    put(
        &home.join(".gemini/settings.json"),
        r#"{"mcpServers":{"countersign":{"command":"countersign","trust":true}}}"#,
    );
    put(
        &home.join(".gemini/policies/a.toml"),
        "[[rule]]\nmcpName = \"countersign\"\ntoolName = \"call_tool_destructive\"\ndecision = \"allow\"\n",
    );
    put(
        &home.join(".config/zed/settings.json"),
        r#"{"agent":{"always_allow_tool_actions":true,"tool_permissions":{"tools":{"mcp:countersign:call_tool_destructive":{"default":"allow"}}}}}"#,
    );
    put(
        &home.join(".copilot/permissions-config.json"),
        r#"{"locations":{"/w":{"tool_approvals":[{"kind":"mcp","serverName":"countersign","toolName":"run_plan"}]}}}"#,
    );
    put(&home.join(".gemini/antigravity-cli/settings.json"), r#"{"toolPermission":"always-proceed"}"#);
    put(
        &home.join(".config/devin/config.json"),
        "{ // mine\n\"permissions\": {\"allow\": [\"mcp__countersign__*\"]},\n}",
    );
    put(
        &home.join(".claude/settings.local.json"),
        r#"{"deniedMcpServers":[{"serverName":"countersign"}],"enableAllProjectMcpServers":true,"skipDangerousModePermissionPrompt":true}"#,
    );
    let (code, checks) = checks(&world, &["--no-start"]);
    assert_eq!(code, Some(1));
    for (setting, state) in [
        ("deniedMcpServers has `countersign`", "bad"),
        ("enableAllProjectMcpServers is true", "look"),
        ("skipDangerousModePermissionPrompt is true", "look"),
    ] {
        let check = find(&checks, setting);
        assert_eq!(check["state"], state, "{setting}");
        assert!(check["message"].as_str().unwrap().contains(".claude/settings.local.json"), "{check}");
        assert!(check["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{setting}");
    }
    for setting in [
        "tool_approvals has run_plan of `countersign`",
        "toolPermission is `always-proceed`",
        "devin/config.json",
        "Claude Code: permissions.allow has `mcp__countersign__*`",
        "permissions.defaultMode is `bypassPermissions`",
        "default_tools_approval_mode is `approve`",
        "tools.call_tool_destructive.approval_mode is `approve`",
        "mcpAllowlist has `countersign:*`",
        "`chat.tools.autoApprove` is true",
        "`chat.permissions.default` is `Autopilot`",
        "mcpServers.countersign.trust is true",
        "a rule allows `call_tool_destructive`",
        "always_allow_tool_actions is true",
        "call_tool_destructive\".default is `allow`",
    ] {
        let check = find(&checks, setting);
        assert_eq!(check["state"], "bad", "{setting}");
        assert!(check["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{setting}");
    }
}

#[test]
fn what_goes_around_us_what_is_broken_and_what_can_be_mended() {
    let world = World::new();
    let echo = world.home().join("echo-server");
    std::os::unix::fs::symlink(binary(), &echo).unwrap();
    configure(
        &world,
        &format!(
            "[upstreams.echo]\ncommand = \"{}\"\nargs = [\"bench-echo\"]\n[upstreams.gone]\ncommand = \"/nowhere/at/all\"\n",
            echo.display()
        ),
    );
    put(
        &world.home().join(".cursor/mcp.json"),
        r#"{"mcpServers":{"files":{"command":"npx"},"countersign":{"command":"countersign"}}}"#,
    );
    put(&world.home().join(".gemini/settings.json"), "{\n oops");
    put(
        &world.home().join(".config/Code/User/mcp.json"),
        r#"{"servers":{"ask":{"url":"https://a.example/mcp","headers":{"X":"${input:tok}"}}}}"#,
    );
    let key = world.home().join(".config/countersign/keyring/a.TOKEN");
    put(&key, "s3cret");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, found) = checks(&world, &[]);
    assert_eq!(code, Some(1));
    assert_eq!(find(&found, "goes around countersign: files")["fix"], "countersign init --host cursor");
    // What `init` would leave where it is gets no fix that would not help.
    let asks = find(&found, "`ask` goes around countersign: it asks for `input:tok`");
    let fix = "${EDITOR:-vi} <room>/home/.config/Code/User/mcp.json  # change that, then: countersign init --host vscode";
    assert_eq!(asks["fix"], fix);
    assert_eq!(find(&found, "settings.json): line 2")["state"], "bad");
    assert_eq!(find(&found, "others may read")["state"], "bad");
    assert_eq!(find(&found, "`gone` does not answer")["fix"], "countersign upstreams test gone");
    assert_eq!(find(&found, "`echo` answers with")["state"], "good");
    let (_, fixed) = checks(&world, &["--fix", "--no-start"]);
    assert_eq!(find(&fixed, "others may read")["state"], "fixed");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn without_a_configuration_it_says_how_to_get_one() {
    let world = World::new();
    let (code, found) = checks(&world, &[]);
    assert_eq!(code, Some(1));
    assert_eq!(find(&found, "there is no configuration")["fix"], "countersign init");
}

#[test]
fn a_port_somebody_else_has_is_seen() {
    let world = World::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let answers = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = other.accept().unwrap();
        let _ = stream.read(&mut [0; 512]);
        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    });
    world.write("countersign.toml", &format!("[gateway]\nlisten = \"{address}\"\n"));
    let (code, found) = checks(&world, &["--no-start"]);
    answers.join().unwrap();
    assert_eq!(code, Some(1));
    assert_eq!(find(&found, "it may be another program")["state"], "bad");
}

/// Each fix can be pasted into a shell, from any folder.
#[test]
fn every_fix_is_a_complete_command() {
    let world = World::new();
    let config = world.home().join("my conf/countersign.toml");
    put(
        &config,
        "[gateway]\nagent_auth = \"loopback-open\"\n[confirm]\nstrength = { write = \"caller\" }\n[upstreams.gone]\ncommand = \"/nowhere/program\"\n",
    );
    put(
        &world.home().join(".cursor/mcp.json"),
        "{\"mcpServers\": {\"a\": {\"command\": \"x\"}, \"b\": {\"command\": \"x\", \"env\": {\"A\": \"${UNSET}\"}}}}",
    );
    put(&world.home().join(".qwen/settings.json"), "{ not json");
    put(
        &world.home().join(".claude/settings.json"),
        "{\"permissions\": {\"defaultMode\": \"bypassPermissions\"}}",
    );
    put(&world.home().join(".config/goose/config.yaml"), "extensions:\n  fs:\n    cmd: npx\n");
    let (_, found) = checks(&world, &["--config", config.to_str().unwrap()]);
    let fixes: Vec<&str> = found.iter().filter_map(|check| check["fix"].as_str()).collect();
    assert!(fixes.len() >= 8, "{fixes:#?}");
    for fix in &fixes {
        let program = fix.split_whitespace().next().unwrap();
        assert!(["countersign", "${EDITOR:-vi}", "chmod", "sudo"].contains(&program), "{fix}");
        assert!(!fix.contains('…') && !fix.contains(" NAME\n"), "{fix}");
        let read = world.command("sh").args(["-nc", fix]).output().unwrap();
        assert!(read.status.success(), "{fix}");
    }
    let test = fixes.iter().find(|fix| fix.contains("upstreams test")).unwrap();
    assert_eq!(*test, "countersign upstreams test gone --config '<room>/home/my conf/countersign.toml'");
    // A command of ours is one that this program takes.
    for fix in fixes.iter().filter(|fix| fix.starts_with("countersign ")) {
        let line = fix.replacen("countersign", &format!("'{}'", binary().display()), 1);
        let taken = world.command("sh").args(["-c", &format!("{line} --help")]).output().unwrap();
        assert!(taken.status.success(), "{fix}");
    }
}
