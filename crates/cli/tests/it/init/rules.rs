//! `init --permissions`: the hosts' own rules, written with the servers, offered at a terminal, taken back byte for byte.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{config, everything_below, furnish, put, texts};
use crate::world::{World, binary};

/// What `init --permissions` may write beside the servers, and what is there before.
fn furnish_rules(world: &World) -> Vec<PathBuf> {
    vec![
        put(
            world,
            ".claude/settings.json",
            "{\r\n  // mine\r\n  \"permissions\": {\"allow\": [\"Bash(ls)\"], \"deny\": [\"mcp__countersign__run_plan\"]},\r\n  \"model\": \"x\",\r\n  \"env\": {\"API_KEY\": \"sesame-open-now\"},\r\n}\r\n",
        ),
        put(world, ".cursor/permissions.json", "\u{feff}{ \"mcpAllowlist\": [ \"gh:list\" ] /* two */ }"),
        put(world, ".config/devin/config.json", "{\"agent\": {\"model\": \"m\"}}"),
        put(
            world,
            ".gemini/antigravity-cli/settings.json",
            "{\n\t\"permissions\": {\n\t\t\"allow\": [\n\t\t\t\"command(ls)\"\n\t\t]\n\t}\n}\n",
        ),
    ]
}

fn doctor_about_rules(world: &World) -> Vec<String> {
    let config = world.home().join(".config/countersign/countersign.toml");
    let told = world.run(&["doctor", "--no-start", "--json", "--config", config.to_str().unwrap()]);
    let envelope: Value = serde_json::from_str(&told.stdout).unwrap();
    let checks = envelope["data"]["checks"].as_array().unwrap().clone();
    let asked = checks.iter().filter(|check| check["message"].as_str().unwrap().contains("nobody is asked"));
    asked.map(|check| check["message"].to_string()).collect()
}

#[test]
fn permissions_are_written_with_the_servers_and_taken_back_byte_for_byte() {
    let world = World::new();
    let files = [furnish(&world), furnish_rules(&world)].concat();
    let before = texts(&files);
    let args = ["init", "--permissions", "--no-start"];
    let shown = world.run(&[&args[..], &["--dry-run"]].concat());
    for part in [
        "mcp__countersign__call_tool_write",
        "mcp__countersign__set_mode",
        "+[mcp_servers.countersign.tools.call_tool_read]",
        "\"call_tool_write\", \"call_tool_destructive\", \"run_plan\"]",
        "\"countersign_call_tool_read\": \"allow\"",
        "\"autoApprove\": [",
        "\"mcp:countersign:call_tool_read\": {",
        "countersign:call_tool_read",
        "mcp(countersign/call_tool_read)",
    ] {
        assert!(shown.stdout.contains(part.trim_end_matches('\r')), "{part}: {shown}");
    }
    assert!(!shown.stdout.contains("sesame"), "what is secret in a host's settings is not shown: {shown}");
    assert_eq!(texts(&files), before, "a dry run writes nothing");
    let done = world.run(&[&args[..], &["--yes", "--json"]].concat());
    let data = &done.envelope()["data"];
    assert_eq!((done.code, &data["changed"]), (Some(0), &Value::Bool(true)), "{done}");
    let listed: Vec<&str> =
        data["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    for end in [
        ".claude/settings.json",
        "devin/config.json",
        "policies/countersign.toml",
        ".cursor/permissions.json",
    ] {
        assert!(listed.iter().any(|path| path.ends_with(end)), "{end}: {listed:?}");
    }
    let after = texts(&files);
    let of = |end: &str| after.iter().find(|(path, _)| path.ends_with(end)).unwrap().1;
    let claude = of(".claude/settings.json");
    assert!(
        claude.contains("// mine\r\n") && claude.contains("\"sesame-open-now\"},\r\n}\r\n"),
        "{claude:?}"
    );
    assert_eq!(claude.matches('\n').count(), claude.matches("\r\n").count(), "{claude:?}");
    assert!(claude.contains("\"mcp__countersign__call_tool_read\"") && !claude.contains('*'), "{claude}");
    assert_eq!(claude.matches("run_plan").count(), 1, "what is denied stays denied: {claude}");
    let codex: toml_edit::DocumentMut = of(".codex/config.toml").parse().unwrap();
    let modes = &codex["mcp_servers"]["countersign"]["tools"];
    assert_eq!(modes["call_tool_read"]["approval_mode"].as_str(), Some("approve"));
    assert_eq!(modes["call_tool_destructive"]["approval_mode"].as_str(), Some("approve"), "we ask");
    let cursor = of(".cursor/permissions.json");
    assert!(
        cursor.starts_with("\u{feff}{ \"mcpAllowlist\": [") && cursor.ends_with("/* two */ }"),
        "{cursor}"
    );
    assert!(
        cursor.contains("\"gh:list\",\n") && cursor.contains("\"countersign:call_tool_read\""),
        "{cursor}"
    );
    let zed = of("zed/settings.json");
    assert!(zed.contains("// editor\n") && !zed.contains("\"default\": \"confirm\""), "{zed}");
    assert_eq!(doctor_about_rules(&world), [""; 0], "doctor is content with it");
    // Nothing is left to do, with the flag or without.
    for args in [&["init", "--permissions", "--yes", "--no-start"][..], &["init", "--yes", "--no-start"]] {
        let again = world.run(args);
        assert!(again.stdout.contains("nothing to change"), "{again}");
    }
    assert_eq!(texts(&files), after);
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert_eq!(texts(&files), before, "byte for byte");
    assert!(!world.home().join(".gemini/policies").exists(), "nor is a folder left that was made for it");
}

#[test]
fn permissions_alone_are_one_change_and_without_the_flag_none() {
    let world = World::new();
    let files = furnish(&world);
    let done = world.run(&["init", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stdout.contains("countersign init --permissions"), "it is offered: {done}");
    assert!(!world.home().join(".claude/settings.json").exists(), "and not done");
    let before = texts(&files);
    let done = world.run(&["init", "--permissions", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("Cursor: it has no `mcpAllowlist` in a file"), "{done}");
    assert!(!world.home().join(".cursor/permissions.json").exists(), "a list of its own is not replaced");
    assert!(world.home().join(".claude/settings.json").exists());
    // Claude Code goes on writing into its settings: what it wrote stays, ours goes.
    let path = world.home().join(".claude/settings.json");
    let mut grown: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    grown["permissions"]["allow"].as_array_mut().unwrap().push("WebSearch".into());
    fs::write(&path, serde_json::to_string(&grown).unwrap()).unwrap();
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert_eq!(texts(&files), before, "the servers stay");
    let left: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(left, serde_json::json!({"permissions": {"allow": ["WebSearch"]}}));
}

#[test]
fn links_lead_to_the_file_that_is_changed_and_a_moved_home_is_followed() {
    let mut world = World::new();
    let moved = world.home().join("moved");
    world.set("CLAUDE_CONFIG_DIR", moved.display().to_string());
    put(&world, "moved/.claude.json", "{}");
    // Somebody keeps their settings elsewhere, and has none yet.
    let link = moved.join("settings.json");
    std::os::unix::fs::symlink("../dotfiles/claude.json", &link).unwrap();
    let done = world.run(&["init", "--permissions", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    let kept = world.home().join("dotfiles/claude.json");
    assert!(fs::read_to_string(&kept).unwrap().contains("mcp__countersign__call_tool_read"));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "a link stays one");
    let again = world.run(&["init", "--permissions", "--yes", "--no-start"]);
    assert!(again.stdout.contains("nothing to change"), "{again}");
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));
    assert!(!world.home().join("dotfiles").exists() && fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn what_is_no_text_is_left_alone() {
    let world = World::new();
    furnish(&world);
    let settings = put(&world, ".claude/settings.json", "");
    fs::write(&settings, b"{\"a\": \"\xff\"}").unwrap();
    fs::create_dir_all(world.home().join(".config/devin/config.json")).unwrap();
    let twice = "{\n\"permissions\": {},\n\"permissions\": {\"allow\": []}\n}";
    put(&world, ".gemini/antigravity-cli/settings.json", twice);
    let done = world.run(&["init", "--permissions", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    for part in [
        ".claude/settings.json` line 1: it is not UTF-8 text",
        "devin/config.json` line 1: it is a folder",
        "antigravity-cli/settings.json` line 3: `permissions` is there twice",
    ] {
        assert_eq!(done.stderr.matches(part).count(), 1, "{part}: {done}");
    }
    assert_eq!(fs::read(&settings).unwrap(), b"{\"a\": \"\xff\"}");
}

#[test]
fn permissions_of_a_project_are_the_projects() {
    let world = World::new();
    furnish(&world);
    world.write(".codex/config.toml", "# team\n[mcp_servers.x]\ncommand = \"true\"\n");
    world.write(".gemini/settings.json", "{}");
    world.write(".zed/settings.json", "{}");
    let home = |world: &World| {
        let mut all = Vec::new();
        everything_below(&world.home(), &mut all);
        all.retain(|(path, _)| !path.display().to_string().contains("/.config/countersign/"));
        all
    };
    let before = home(&world);
    let done = world.run(&["init", "--project", "--permissions", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(home(&world), before, "no file of the person's");
    assert!(world.read(".claude/settings.json").contains("mcp__countersign__call_tool_read"));
    assert!(world.read(".codex/config.toml").contains("[mcp_servers.countersign.tools.get_plan]"));
    assert!(world.read(".gemini/policies/countersign.toml").contains("\"call_tool_write\""));
    assert!(!world.read(".zed/settings.json").contains("tool_permissions"), "that is a person's to say");
    // What is left to do in each host is said.
    for part in [
        "Claude Code: start it in this folder and accept `countersign` when it asks, or in /mcp",
        "Codex: start it in this folder and trust the folder",
    ] {
        assert!(done.stdout.contains(part), "{part}: {done}");
    }
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));
    assert!(!world.work().join(".claude/settings.json").exists());
}

#[test]
fn a_broken_file_of_rules_is_named_with_its_line_and_left_alone() {
    let world = World::new();
    let files = furnish(&world);
    let broken =
        put(&world, ".claude/settings.json", "{\n  \"permissions\": {\n    \"allow\": nope\n  }\n}\n");
    let odd = put(&world, ".config/zed/settings.json", "{\n  \"agent\": []\n}\n");
    let before = texts(std::slice::from_ref(&broken));
    let done = world.run(&["init", "--permissions", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("settings.json` line 3"), "{done}");
    assert!(done.stderr.contains("zed/settings.json` line 2: `agent` is not an object"), "{done}");
    assert_eq!(texts(&[broken]), before);
    let zed = fs::read_to_string(odd).unwrap();
    assert!(
        zed.contains("\"agent\": []") && zed.contains("countersign"),
        "its server is ours all the same: {zed}"
    );
    assert!(fs::read_to_string(&files[1]).unwrap().contains("approval_mode"), "the others have theirs");
}

/// A terminal asks who agrees, how sessions begin and, without the flag, about rules. Enter takes what is usual.
#[test]
#[cfg(target_os = "linux")]
fn at_a_terminal_permissions_are_offered() {
    use std::io::Write as _;
    use std::process::Stdio;
    for (answers, rules, profile, mode) in [
        ("2\n2\nn\ny\n", false, "team", "ask"),
        ("9\n1\n1\ny\ny\n", true, "solo", "execute"),
        ("\n\n\ny\n", false, "solo", "execute"),
    ] {
        let world = World::new();
        furnish(&world);
        let line = format!("'{}' init --no-start", binary().display());
        let mut command = world.command("script");
        command.env("TERM", "xterm").args(["-qefc", &line, "/dev/null"]);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut child) = spawned else {
            let _ = writeln!(std::io::stderr(), "left out: `script` is not here");
            return;
        };
        child.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        let (table, rest) =
            shown.split_once("Write the rules of Claude Code, Codex").unwrap_or_else(|| panic!("{shown}"));
        assert!(table.contains("echo") && !table.contains("+++"), "the table comes first: {shown}");
        assert!(rest.contains("+++") && rest.contains("Change "), "{shown}");
        assert_eq!(rest.contains("call_tool_read"), rules, "{shown}");
        assert_eq!(world.home().join(".claude/settings.json").exists(), rules, "{shown}");
        assert!(config(&world).contains("[upstreams.echo]"), "{shown}");
        assert!(config(&world).contains(&format!("mode = \"{mode}\"")), "{shown}");
        assert!(config(&world).contains(&format!("profile = \"{profile}\"")), "{shown}");
    }
}

/// Where a change may pass on the agent's word, the host's prompt is the person's only say: it stays.
#[test]
fn hosts_go_on_asking_where_the_gateway_does_not() {
    let world = World::new();
    furnish(&world);
    super::put(
        &world,
        ".config/countersign/countersign.toml",
        "[confirm]\nstrength = { write = \"caller\" }\n",
    );
    assert_eq!(world.run(&["init", "--permissions", "--yes", "--no-start"]).code, Some(0));
    let claude = fs::read_to_string(world.home().join(".claude/settings.json")).unwrap();
    let value: Value = serde_json::from_str(&claude).unwrap();
    assert_eq!(value["permissions"]["ask"].as_array().unwrap().len(), 3, "{claude}");
    let codex = fs::read_to_string(world.home().join(".codex/config.toml")).unwrap();
    assert!(codex.contains("approval_mode = \"prompt\""), "{codex}");
}
