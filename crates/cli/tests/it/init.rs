//! `init` in a home as people have it: comments, odd layouts, secrets, the same server in three hosts. Imports, shows, applies, takes
//! back byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::{World, binary};

mod http;
mod rules;
mod servers;
mod service;

const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

/// A server under a name that is not ours.
fn server(world: &World) -> String {
    let path = world.home().join("bin").join("echo-server");
    if !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(binary(), &path).unwrap();
    }
    path.display().to_string()
}

fn put(world: &World, name: &str, text: &str) -> PathBuf {
    let path = world.home().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

/// A home with files of every host, and a project.
fn furnish(world: &World) -> Vec<PathBuf> {
    let server = server(world);
    let project = world.work().canonicalize().unwrap().display().to_string();
    let mut files = vec![
        put(
            world,
            ".claude.json",
            &format!(
                "{{\n  \"numStartups\": 41,\n  \"mcpServers\": {{\n    \"echo\": {{\"type\": \"stdio\", \"command\": \"{server}\", \"args\": [\"bench-echo\"], \"env\": {{}}}},\n    \"github\": {{\"type\":\"http\",\"url\":\"http://127.0.0.1:9/mcp\",\"headers\":{{\"Authorization\":\"Bearer {TOKEN}\"}}}}\n  }},\n  \"projects\": {{\"{project}\": {{\"allowedTools\": [], \"mcpServers\": {{\"local notes\": {{\"command\": \"{server}\", \"args\": [\"bench-echo\"]}}}}}}}},\n  \"big\": 12345678901234567890123\n}}\n"
            ),
        ),
        put(
            world,
            ".codex/config.toml",
            &format!(
                "# codex\nmodel = \"gpt-5\" # mine\n\n[mcp_servers.echo]\ncommand = \"{server}\"\nargs = [ \"bench-echo\" ]\n\n[profiles.fast]\nx = 1\n"
            ),
        ),
        put(
            world,
            ".cursor/mcp.json",
            &format!(
                "{{\"mcpServers\":{{\"echo\":{{\"command\":\"{server}\",\"args\":[\"bench-echo\",\"--api-key\",\"sesame-open-now\"]}}}}}}"
            ),
        ),
        put(
            world,
            ".config/Code/User/mcp.json",
            "// workspace servers\n{\n\t\"inputs\": [ {\"id\": \"tok\", \"type\": \"promptString\"}, ],\n\t\"servers\": {\n\t\t// asks for a token\n\t\t\"ask\": { \"type\": \"http\", \"url\": \"https://a.example/mcp\", \"headers\": {\"X\": \"${input:tok}\"} },\n\t},\n}\n",
        ),
        put(
            world,
            ".gemini/settings.json",
            "{\n  \"theme\": \"Dark\",\n  \"mcpServers\": { \"old\": { \"url\": \"https://b.example/sse\", \"type\": \"sse\" } }\n}\n",
        ),
        put(
            world,
            ".codeium/windsurf/mcp_config.json",
            "{ \"mcpServers\": { \"off\": { \"command\": \"npx\", \"disabled\": true } } }\n",
        ),
        put(
            world,
            ".config/zed/settings.json",
            "{\n  // editor\n  \"vim_mode\": true,\n  \"context_servers\": {},\n}\n",
        ),
        put(world, ".config/Claude/claude_desktop_config.json", "{}"),
    ];
    let shared = world.work().join(".mcp.json");
    fs::write(&shared, format!("{{\"mcpServers\":{{\"team\":{{\"command\":\"{server}\",\"args\":[\"bench-echo\"],\"env\":{{\"LOG\":\"${{LOG:-info}}\"}}}}}}}}\n")).unwrap();
    files.push(shared);
    files.extend([
        put(
            world,
            ".copilot/mcp-config.json",
            &format!(
                "{{\n    \"mcpServers\": {{\n        \"echo\": {{ \"type\": \"local\", \"command\": \"{server}\", \"args\": [\"bench-echo\"], \"tools\": [\"*\"] }}\n    }}\n}}\n"
            ),
        ),
        put(
            world,
            ".gemini/config/mcp_config.json",
            "{\"mcpServers\": {\"away\": {\"serverUrl\": \"http://127.0.0.1:9/away/mcp\"}}}",
        ),
        put(
            world,
            ".config/devin/mcp_config.json",
            "// Devin\n{\n  \"mcpServers\": {\n    \"linear\": { \"url\": \"http://127.0.0.1:9/linear/mcp\", \"transport\": \"http\" }, // mine\n  },\n}\n",
        ),
        put(
            world,
            ".config/opencode/opencode.json",
            &format!(
                "{{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"mcp\": {{ \"echo\": {{ \"type\": \"local\", \"command\": [\"{server}\", \"bench-echo\"], \"enabled\": true }} }}\n}}\n"
            ),
        ),
        put(
            world,
            ".qwen/settings.json",
            &format!("{{\"mcpServers\": {{\"echo\": {{\"command\": \"{server}\", \"args\": [\"bench-echo\"]}}}}}}"),
        ),
        put(
            world,
            ".continue/mcpServers/mcp.json",
            &format!("{{\"mcpServers\": {{\"echo\": {{\"command\": \"{server}\", \"args\": [\"bench-echo\"]}}}}}}"),
        ),
        put(
            world,
            ".cline/data/settings/cline_mcp_settings.json",
            &format!("{{\"mcpServers\": {{\"echo\": {{\"command\": \"{server}\", \"args\": [\"bench-echo\"], \"disabled\": false}}}}}}"),
        ),
    ]);
    files
}

fn texts(files: &[PathBuf]) -> BTreeMap<PathBuf, String> {
    files.iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn config(world: &World) -> String {
    fs::read_to_string(world.home().join(".config/countersign/countersign.toml")).unwrap()
}

fn everything_below(folder: &Path, into: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            everything_below(&path, into);
        } else {
            into.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    into.sort();
}

#[test]
fn a_dry_run_shows_everything_and_changes_nothing() {
    let world = World::new();
    furnish(&world);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    everything_below(&world.home(), &mut before);
    let shown = world.run(&["init", "--dry-run"]);
    everything_below(&world.home(), &mut after);
    assert_eq!(before, after, "a dry run writes nothing");
    assert_eq!(shown.code, Some(0), "{shown}");
    for part in [
        "echo",
        "Claude Code, Codex",
        "team",
        "does not answer",
        "+++ ",
        "ask",
        "only its host can ask for",
        "switched off",
        "old SSE",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {shown}");
    }
    assert!(!shown.stdout.contains(TOKEN) && !shown.stdout.contains("sesame"), "{shown}");
    let json = world.run(&["init", "--dry-run", "--json"]);
    assert!(!json.stdout.contains(TOKEN), "{json}");
    let data = &json.envelope()["data"];
    assert_eq!(data["changed"], false);
    let echo = data["upstreams"].as_array().unwrap().iter().find(|one| one["name"] == "echo").unwrap();
    let from: Vec<&Value> = echo["from"].as_array().unwrap().iter().map(|from| &from["host"]).collect();
    let hosts = ["claude-code", "codex", "copilot", "opencode", "qwen", "continue", "cline"];
    assert_eq!(from, hosts, "the same server of several hosts is one upstream");
    assert!(echo["tools"]["read"].as_u64().unwrap() + echo["tools"]["write"].as_u64().unwrap() > 0, "{echo}");
}

#[test]
fn off_a_terminal_it_needs_yes() {
    let world = World::new();
    furnish(&world);
    let refused = world.run(&["init", "--no-start"]);
    assert_eq!(refused.code, Some(4), "{refused}");
    assert!(!world.home().join(".config/countersign").exists());
}

#[test]
fn with_yes_every_host_has_one_server_and_undo_restores_every_byte() {
    let world = World::new();
    let files = furnish(&world);
    let before = texts(&files);
    let done = world.run(&["init", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    // Each host leads to us; what could not be taken over stays, everything else is kept.
    let claude = fs::read_to_string(&files[0]).unwrap();
    assert!(claude.contains("\"numStartups\": 41") && claude.contains("12345678901234567890123"), "{claude}");
    assert!(claude.contains("\"countersign\"") && !claude.contains("echo-server"), "{claude}");
    let codex = fs::read_to_string(&files[1]).unwrap();
    assert!(
        codex.starts_with("# codex\nmodel = \"gpt-5\" # mine\n")
            && codex.contains("[profiles.fast]\nx = 1\n"),
        "{codex}"
    );
    let code = fs::read_to_string(&files[3]).unwrap();
    assert!(
        code.starts_with("// workspace servers\n{\n\t\"inputs\": [ {") && code.contains("${input:tok}"),
        "{code}"
    );
    for path in &files {
        assert!(fs::read_to_string(path).unwrap().contains("countersign"), "{}", path.display());
    }
    // No secret in clear but in the keyring, which is ours alone.
    let written = config(&world);
    assert!(!written.contains(TOKEN) && !written.contains("sesame"), "{written}");
    assert!(written.contains("${keyring:github.Authorization}"), "{written}");
    let kept = world.home().join(".config/countersign/keyring/github.Authorization");
    assert_eq!(fs::read_to_string(&kept).unwrap(), format!("Bearer {TOKEN}"));
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    // The configuration is a good one.
    let path = world.home().join(".config/countersign/countersign.toml");
    let checked = world.run(&["policy", "check", "--config", path.to_str().unwrap()]);
    assert_eq!(checked.code, Some(0), "{checked}");
    // A second run has nothing to do.
    let after = texts(&files);
    let again = world.run(&["init", "--yes", "--no-start", "--json"]);
    assert_eq!(again.envelope()["data"]["changed"], false, "{again}");
    assert_eq!(texts(&files), after);
    assert_eq!(config(&world), written);
    // And back.
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert_eq!(texts(&files), before);
    assert!(!path.exists());
    assert!(!kept.exists(), "what the change put into the keyring goes with it: {undone}");
    assert_eq!(world.run(&["init", "--undo"]).code, Some(3));
}

/// Many clients list once, when they start: `init` stores what the servers listed, so that nothing is missing then.
#[test]
fn the_first_start_after_init_lists_the_tools_of_a_server_that_hangs() {
    let world = World::new();
    let hang = world.home().join("hang").display().to_string();
    let start = format!("[ ! -e {hang} ] || sleep 600; exec {} bench-echo", server(&world));
    let servers = json!({"mcpServers": {"echo": {"command": "/bin/sh", "args": ["-c", start]}}});
    put(&world, ".cursor/mcp.json", &servers.to_string());
    assert_eq!(world.run(&["init", "--yes"]).code, Some(0));
    fs::write(&hang, "").unwrap();
    let config = world.home().join(".config/countersign/countersign.toml");
    let args = ["serve", "--host", "cursor", "--surface", "direct", "--config", config.to_str().unwrap()];
    let mut gateway = world.countersign(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let frames = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"once","version":"1"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}"#,
        "\n",
    );
    let mut stdin = gateway.stdin.take().unwrap();
    stdin.write_all(frames.as_bytes()).unwrap();
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines().map(Result::unwrap);
    let list = lines.find(|line| line.contains(r#""id":2"#)).unwrap();
    drop(stdin);
    gateway.wait().unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    let tools = list["result"]["tools"].as_array().unwrap();
    let echo = tools.iter().find(|tool| tool["name"].as_str().unwrap().starts_with("echo__")).unwrap();
    assert_eq!(echo["_meta"]["countersign/starting"], true, "{echo}");
}

/// Most people are at home when they first try it: what a project there would have is what they have themselves.
#[test]
fn in_the_home_folder_every_file_is_one_file() {
    let world = World::new();
    let files: Vec<PathBuf> = [".codex/config.toml", ".cursor/mcp.json", ".gemini/settings.json"]
        .map(|name| world.home().join(name))
        .to_vec();
    let texts = [
        "[mcp_servers.mail]\ncommand = \"mail\"\n",
        r#"{"mcpServers": {"mail": {"command": "mail"}}}"#,
        r#"{"mcpServers": {"mail": {"command": "mail", "trust": true}, "countersign": {"command": "countersign", "trust": true}}}"#,
    ];
    for (path, text) in files.iter().zip(texts) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let at_home = |args: &[&str]| {
        let mut command = world.countersign(args);
        command.current_dir(world.home());
        world.transcript(&args.join(" "), command.output().unwrap())
    };
    let ailing = at_home(&["doctor", "--json"]);
    assert_eq!(ailing.stdout.matches("mcpServers.countersign.trust").count(), 1, "{ailing}");
    let done = at_home(&["init", "--yes", "--no-start", "--json"]);
    assert_eq!(done.code, Some(0), "{done}");
    let data = &done.envelope()["data"];
    assert_eq!(data["upstreams"].as_array().unwrap().len(), 1, "{done}");
    assert_eq!(data["files"].as_array().unwrap().len(), 4, "{done}");
    assert_eq!(at_home(&["init", "--undo"]).code, Some(0));
    for (path, text) in files.iter().zip(texts) {
        assert_eq!(fs::read_to_string(path).unwrap(), text);
    }
}

#[test]
fn another_secret_of_the_same_name_replaces_none() {
    let world = World::new();
    let cursor = world.home().join(".cursor/mcp.json");
    fs::create_dir_all(cursor.parent().unwrap()).unwrap();
    let with = |key: &str| {
        format!(r#"{{"mcpServers": {{"mail": {{"command": "mail", "env": {{"MAIL_KEY": "{key}"}}}}}}}}"#)
    };
    let keyring = world.home().join(".config/countersign/keyring");
    fs::write(&cursor, with("first-secret")).unwrap();
    assert_eq!(world.run(&["init", "--yes", "--no-start"]).code, Some(0));
    assert_eq!(fs::read_to_string(keyring.join("mail.MAIL_KEY")).unwrap(), "first-secret");
    // The host's file was written anew, with another key: both are kept, each with its upstream.
    fs::write(&cursor, with("second-secret")).unwrap();
    let second = world.run(&["init", "--yes", "--no-start"]);
    assert_eq!(second.code, Some(0), "{second}");
    let config = config(&world);
    assert!(config.contains("[upstreams.mail]") && config.contains("[upstreams.mail-2]"), "{config}");
    assert!(config.contains("${keyring:mail-2.MAIL_KEY}"), "{config}");
    assert_eq!(fs::read_to_string(keyring.join("mail.MAIL_KEY")).unwrap(), "first-secret");
    assert_eq!(fs::read_to_string(keyring.join("mail-2.MAIL_KEY")).unwrap(), "second-secret");
    // A project's configuration keeps its own beside the person's.
    world.write("shared/.cursor/mcp.json", &with("third-secret"));
    let third = world.run(&["init", "--yes", "--no-start", "--project", "shared"]);
    assert_eq!(third.code, Some(0), "{third}");
    let project = fs::read_to_string(world.work().join("shared/countersign.toml")).unwrap();
    assert!(project.contains("${keyring:mail.MAIL_KEY-2}"), "{project}");
    assert_eq!(fs::read_to_string(keyring.join("mail.MAIL_KEY")).unwrap(), "first-secret");
    assert_eq!(fs::read_to_string(keyring.join("mail.MAIL_KEY-2")).unwrap(), "third-secret");
    // What is taken back takes its own secret along, and no other; one that somebody changed is theirs.
    fs::write(keyring.join("mail-2.MAIL_KEY"), "mine").unwrap();
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));
    assert!(!keyring.join("mail.MAIL_KEY-2").exists() && keyring.join("mail.MAIL_KEY").exists());
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));
    assert_eq!(fs::read_to_string(keyring.join("mail-2.MAIL_KEY")).unwrap(), "mine");
}

/// Issue 15, point 3: whatever was added by hand, no host is left pointing at what is gone.
#[test]
fn undo_keeps_a_server_added_by_hand_and_says_so() {
    let world = World::new();
    let files = furnish(&world);
    let before = texts(&files);
    assert_eq!(world.run(&["init", "--yes", "--no-start"]).code, Some(0));
    // One beside what was there, one where nothing was, one in TOML.
    for (at, from, to) in [
        (3, "\"countersign\":", "\"new\": {\"command\": \"x\"},\n\t\t\"countersign\":"),
        (7, "\"countersign\":", "\"new\": {\"command\": \"x\"}, \"countersign\":"),
        (1, "[profiles.fast]", "[mcp_servers.new]\ncommand = \"x\"\n\n[profiles.fast]"),
    ] {
        let text = fs::read_to_string(&files[at]).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&files[at], text.replacen(from, to, 1)).unwrap();
    }
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert_eq!(undone.stdout.matches("`new` added since is kept").count(), 3, "{undone}");
    for path in &files {
        let text = fs::read_to_string(path).unwrap();
        assert!(!text.contains("countersign"), "{text}");
    }
    for at in [1, 3, 7] {
        let text = fs::read_to_string(&files[at]).unwrap();
        assert!(text.contains("new"), "{text}");
    }
    assert!(fs::read_to_string(&files[1]).unwrap().contains("[mcp_servers.echo]"));
    assert!(fs::read_to_string(&files[3]).unwrap().contains("${input:tok}"));
    for (path, text) in before.iter().filter(|(path, _)| ![&files[1], &files[3], &files[7]].contains(path)) {
        assert_eq!(&fs::read_to_string(path).unwrap(), text);
    }
    assert!(!world.home().join(".config/countersign/countersign.toml").exists());
}

/// A host whose file can't be read any more still leads to us: what it leads to stays.
#[test]
fn undo_keeps_the_configuration_a_host_still_leads_to() {
    let world = World::new();
    let files = furnish(&world);
    assert_eq!(world.run(&["init", "--yes", "--no-start"]).code, Some(0));
    let whole = fs::read_to_string(&files[2]).unwrap();
    let torn = format!("{whole} //");
    fs::write(&files[2], torn.replacen('{', "{{", 1)).unwrap();
    let written = config(&world);
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(5), "{undone}");
    assert!(undone.stdout.contains("a host still leads to it"), "{undone}");
    assert_eq!(config(&world), written);
    assert!(world.home().join(".config/countersign/keyring/github.Authorization").exists());
    // Once it is mended, the rest goes too.
    fs::write(&files[2], &whole).unwrap();
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert!(!world.home().join(".config/countersign/countersign.toml").exists(), "{undone}");
}

/// A configuration that was worked on is nobody's to remove, nor are the secrets it refers to.
#[test]
fn undo_keeps_a_configuration_that_was_worked_on() {
    let world = World::new();
    let files = furnish(&world);
    let before = texts(&files);
    assert_eq!(world.run(&["init", "--yes", "--no-start"]).code, Some(0));
    let mine = format!("{}\n[upstreams.mine]\ncommand = \"x\"\n", config(&world));
    fs::write(world.home().join(".config/countersign/countersign.toml"), &mine).unwrap();
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert!(undone.stdout.contains("changed since, kept"), "{undone}");
    assert_eq!((texts(&files), config(&world)), (before, mine));
    assert!(world.home().join(".config/countersign/keyring/github.Authorization").exists());
}

#[test]
fn a_host_that_went_on_writing_gets_its_servers_back_and_keeps_the_rest() {
    let world = World::new();
    let files = furnish(&world);
    let before = texts(&files);
    assert_eq!(world.run(&["init", "--yes", "--no-start"]).code, Some(0));
    for path in &files[..2] {
        let text = fs::read_to_string(path).unwrap();
        let grown = text.replace("\"numStartups\": 41", "\"numStartups\": 42").replace("gpt-5", "gpt-6");
        assert_ne!(text, grown);
        fs::write(path, grown).unwrap();
    }
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert!(undone.stdout.contains("servers put back"), "{undone}");
    let claude: Value = serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap();
    let old: Value = serde_json::from_str(&before[&files[0]]).unwrap();
    assert_eq!((&claude["mcpServers"], &claude["projects"]), (&old["mcpServers"], &old["projects"]));
    assert_eq!(claude["numStartups"], 42);
    let codex = fs::read_to_string(&files[1]).unwrap();
    assert!(
        codex.contains("gpt-6") && codex.contains("[mcp_servers.echo]") && !codex.contains("countersign"),
        "{codex}"
    );
}

#[test]
fn a_broken_file_is_named_with_its_line_and_left_alone() {
    let world = World::new();
    let files = furnish(&world);
    fs::write(&files[2], "{\n  \"mcpServers\": {\n    \"x\": nope\n  }\n}\n").unwrap();
    let done = world.run(&["init", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("mcp.json` line 3"), "{done}");
    assert_eq!(fs::read_to_string(&files[2]).unwrap(), "{\n  \"mcpServers\": {\n    \"x\": nope\n  }\n}\n");
}

#[test]
fn one_host_or_one_project_alone() {
    let world = World::new();
    let files = furnish(&world);
    let before = texts(&files);
    assert_eq!(world.run(&["init", "--host", "cursor", "--yes", "--no-start"]).code, Some(0));
    let changed: Vec<&PathBuf> =
        files.iter().filter(|path| before[*path] != fs::read_to_string(path).unwrap()).collect();
    assert_eq!(changed, [&files[2]]);
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));
    assert_eq!(world.run(&["init", "--project", ".", "--yes", "--no-start"]).code, Some(0));
    let changed: Vec<&PathBuf> =
        files.iter().filter(|path| before[*path] != fs::read_to_string(path).unwrap()).collect();
    assert_eq!(changed, [&files[8]]);
    let written = world.read("countersign.toml");
    assert!(written.contains("[upstreams.team]") && written.contains("LOG = \"info\""), "{written}");
    // A host without a file gets one when it is named.
    let bare = World::new();
    assert_eq!(bare.run(&["init", "--host", "claude-code", "--yes"]).code, Some(0));
    let made: Value =
        serde_json::from_str(&fs::read_to_string(bare.home().join(".claude.json")).unwrap()).unwrap();
    assert_eq!(made["mcpServers"]["countersign"]["args"][0], "serve");
}

#[test]
fn a_file_that_cannot_be_written_leaves_every_other_as_it_was() {
    let world = World::new();
    let cursor = put(&world, ".cursor/mcp.json", "{\"mcpServers\":{}}");
    // Where a folder would have to be, there is a file.
    put(&world, ".codeium", "");
    let refused = world.run(&["init", "--yes", "--no-start", "--host", "cursor", "--host", "windsurf"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("mcp_config.json`"), "{refused}");
    assert!(refused.stderr.contains("nothing was changed"), "{refused}");
    assert_eq!(fs::read_to_string(cursor).unwrap(), "{\"mcpServers\":{}}");
    assert!(!world.home().join(".config/countersign/countersign.toml").exists());
    let undo = world.run(&["init", "--undo"]);
    assert!(undo.stderr.contains("there is no change of `init` to take back"), "{undo}");
}

#[test]
fn a_file_its_host_changed_while_it_was_looked_at_is_not_overwritten() {
    let world = World::new();
    let codex = put(&world, ".codex/config.toml", "model = \"o\"\n");
    // The server itself writes into the file it was read from, when it is started to list its tools.
    let text =
        "{\"mcpServers\":{\"x\":{\"command\":\"sh\",\"args\":[\"-c\",\"echo >> ~/.cursor/mcp.json\"]}}}";
    let cursor = put(&world, ".cursor/mcp.json", text);
    let refused = world.run(&["init", "--yes", "--host", "cursor", "--host", "codex"]);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(refused.stderr.contains("mcp.json` was changed since it was read"), "{refused}");
    assert!(fs::read_to_string(cursor).unwrap().starts_with(text));
    assert_eq!(fs::read_to_string(codex).unwrap(), "model = \"o\"\n");
    assert!(!world.home().join(".config/countersign/countersign.toml").exists());
}

#[test]
fn marks_line_ends_links_and_empty_files_stay_what_they_are() {
    let world = World::new();
    let server = server(&world);
    let cursor = put(
        &world,
        ".cursor/mcp.json",
        &format!(
            "\u{feff}{{\r\n  // mine\r\n  \"mcpServers\": {{\r\n    \"echo\": {{\"command\": \"{server}\", \"args\": [\"bench-echo\"],}},\r\n  }},\r\n}}\r\n"
        ),
    );
    let codex = put(
        &world,
        ".codex/config.toml",
        &format!(
            "# mine\r\nmodel = \"o\"\r\n\r\n[mcp_servers.echo]\r\ncommand = \"{server}\"\r\nargs = [\"bench-echo\"]\r\n"
        ),
    );
    let empty = put(&world, ".gemini/settings.json", "");
    let real = put(&world, "elsewhere/windsurf.json", "{ \"mcpServers\": {} }");
    let link = world.home().join(".codeium/windsurf/mcp_config.json");
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let files = [cursor.clone(), codex.clone(), empty.clone(), real];
    let before = texts(&files);
    let done = world.run(&["init", "--yes"]);
    assert_eq!(done.code, Some(0), "{done}");
    let after = texts(&files);
    for path in [&cursor, &codex] {
        let text = &after[path];
        assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{text:?}");
        assert!(
            text.contains("mine\r\n") && text.contains("countersign") && !text.contains("bench-echo"),
            "{text:?}"
        );
    }
    assert!(after[&cursor].starts_with('\u{feff}'));
    assert!(after.values().all(|text| text.contains("countersign")), "{after:#?}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "a link stays one");
    let again = world.run(&["init", "--yes"]);
    assert!(again.stdout.contains("nothing to change"), "{again}");
    assert_eq!(texts(&files), after, "a second run changes nothing");
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert_eq!(texts(&files), before, "byte for byte");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn every_host_that_was_changed_has_a_next_step() {
    let world = World::new();
    furnish(&world);
    let done = world.run(&["init", "--yes", "--no-start", "--json"]);
    let data = done.envelope()["data"].clone();
    let steps = data["next_steps"].as_array().unwrap();
    let hosts: Vec<&str> = steps.iter().map(|step| step["host"].as_str().unwrap()).collect();
    assert_eq!(
        hosts,
        [
            "claude-code",
            "claude-desktop",
            "codex",
            "cursor",
            "vscode",
            "copilot",
            "gemini",
            "antigravity",
            "windsurf",
            "devin",
            "zed",
            "opencode",
            "qwen",
            "continue",
            "cline",
            "claude-code"
        ]
    );
    assert!(steps.iter().all(|step| !step["do"].as_str().unwrap().is_empty()), "{steps:#?}");
}

#[test]
fn tools_that_were_switched_off_in_a_host_stay_so() {
    let world = World::new();
    let server = server(&world);
    let entry = format!("command = \"{server}\"\nargs = [\"bench-echo\"]");
    put(
        &world,
        ".codex/config.toml",
        &format!("[mcp_servers.echo]\n{entry}\nenabled_tools = [\"other\", \"a\\\"b\"]\n"),
    );
    let shared = format!("{{\"command\":\"{server}\",\"args\":[\"bench-echo\"]");
    put(
        &world,
        ".gemini/settings.json",
        &format!(
            "{{\"mcpServers\":{{\"echo\":{shared},\"excludeTools\":[\"rm\"]}},\"more\":{{\"command\":\"true\"}}}}}}"
        ),
    );
    let shown = world.run(&["init", "--dry-run", "--no-start", "--json"]).envelope();
    assert_eq!(shown["data"]["limited"][1]["without"][0], "rm", "{shown}");
    let done = world.run(&["init", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    for part in ["Codex: offers only other, a\"b of `echo`", "Gemini CLI: offers all of `echo` but rm"] {
        assert!(done.stderr.contains(part), "{part}: {done}");
    }
    let path = world.home().join(".config/countersign/countersign.toml");
    for (tool, verdict) in
        [("echo:echo", "refuse"), ("echo:other", "go"), ("echo:rm", "refuse"), ("more:echo", "go")]
    {
        let told = world.run(&[
            "policy",
            "explain",
            "--json",
            "--mode=ask",
            "--annotations={\"readOnlyHint\":true}",
            "--tool",
            tool,
            "--config",
            path.to_str().unwrap(),
        ]);
        assert_eq!(told.envelope()["data"]["explained"]["verdict"], verdict, "{tool}: {told}");
    }
    assert_eq!(world.run(&["policy", "check", "--config", path.to_str().unwrap()]).code, Some(0));
}

#[test]
fn a_host_that_does_not_use_what_is_written_is_named() {
    let world = World::new();
    put(&world, ".gemini/settings.json", "{\"mcp\": {\"allowed\": [\"github\"]}}");
    let done = world.run(&["init", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    let line = "Gemini CLI does not use countersign: mcp.allowed does not have `countersign`";
    assert!(done.stderr.contains(line) && done.stderr.contains("add `countersign` to it"), "{done}");
}

#[test]
fn files_that_some_versions_keep_their_servers_in() {
    let world = World::new();
    let server = server(&world);
    let entry = format!("{{\"command\":\"{server}\",\"args\":[\"bench-echo\"]}}");
    let devin = put(
        &world,
        ".config/devin/config.json",
        &format!("{{\"theme\":1,\"mcpServers\":{{\"a\":{entry}}}}}"),
    );
    let bare = put(&world, ".gemini/antigravity/mcp_config.json", "{\"mcpServers\":{}}");
    let files = [devin.clone(), bare.clone()];
    let before = texts(&files);
    let done = world.run(&["init", "--permissions", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    // Servers and rules in one file.
    let after: Value = serde_json::from_str(&fs::read_to_string(&devin).unwrap()).unwrap();
    assert_eq!(after["mcpServers"].as_object().unwrap().keys().collect::<Vec<_>>(), ["countersign"]);
    assert_eq!(after["permissions"]["allow"][0], "mcp__countersign__call_tool_read");
    assert_eq!(texts(std::slice::from_ref(&bare))[&bare], before[&bare], "one that has none is none of ours");
    assert!(!world.home().join(".config/devin/mcp_config.json").exists());
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));
    assert_eq!(texts(&files), before);
    // Named, a host gets its file where it looks today.
    let world = World::new();
    for (host, path) in [
        ("copilot", ".copilot/mcp-config.json"),
        ("devin", ".config/devin/mcp_config.json"),
        ("antigravity", ".gemini/config/mcp_config.json"),
    ] {
        let done = world.run(&["init", "--host", host, "--yes"]);
        assert_eq!(done.code, Some(0), "{done}");
        let made: Value =
            serde_json::from_str(&fs::read_to_string(world.home().join(path)).unwrap()).unwrap();
        assert_eq!(made["mcpServers"]["countersign"]["args"][0], "serve", "{host}");
    }
    assert!(
        !world.home().join(".gemini/antigravity").exists()
            && !world.home().join(".config/devin/config.json").exists()
    );
}

/// Each host entry has its host's name, so that it has its own principal. Cline interprets `--config` itself and gets
/// a variable.
#[test]
fn every_host_is_told_its_own_name_and_the_configuration() {
    let world = World::new();
    let files = furnish(&world);
    assert_eq!(world.run(&["init", "--yes", "--no-start"]).code, Some(0));
    let name = |end: &str| {
        let text = fs::read_to_string(files.iter().find(|path| path.ends_with(end)).unwrap()).unwrap();
        let (_, rest) = text.split_once("\"--host\"").unwrap_or_else(|| panic!("{text}"));
        (rest.split('"').nth(1).unwrap().to_owned(), text)
    };
    for (end, host) in [
        (".claude.json", "claude-code"),
        (".codex/config.toml", "codex"),
        (".cursor/mcp.json", "cursor"),
        ("opencode/opencode.json", "opencode"),
        (".qwen/settings.json", "qwen"),
        ("mcpServers/mcp.json", "continue"),
    ] {
        let (named, text) = name(end);
        assert_eq!(named, host);
        assert!(text.contains("\"--config\""), "{text}");
    }
    let (named, text) = name("cline_mcp_settings.json");
    assert_eq!(named, "cline");
    let value: Value = serde_json::from_str(&text).unwrap();
    let ours = &value["mcpServers"]["countersign"];
    assert!(!text.contains("--config"), "{text}");
    assert!(ours["env"]["COUNTERSIGN_CONFIG"].as_str().unwrap().ends_with("countersign.toml"), "{text}");
}

/// The mode is said once, when the configuration is made; nobody's silence changes it.
#[test]
fn the_mode_sessions_begin_in_is_written_once() {
    let world = World::new();
    put(&world, ".claude.json", "{}");
    assert_eq!(world.run(&["init", "--yes", "--no-start", "--mode", "execute"]).code, Some(0));
    assert!(config(&world).contains("[gateway]\nmode = \"execute\""), "{}", config(&world));
    // Without a word it stays.
    world.run(&["init", "--yes", "--no-start"]);
    assert!(config(&world).contains("mode = \"execute\""));
    assert_eq!(world.run(&["init", "--yes", "--no-start", "--mode", "plan"]).code, Some(0));
    assert!(config(&world).contains("[gateway]\nmode = \"plan\""), "{}", config(&world));
    assert_eq!(world.run(&["init", "--yes", "--mode", "all"]).code, Some(2));
    let other = World::new();
    put(&other, ".claude.json", "{}");
    let done = other.run(&["init", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(config(&other).contains("mode = \"execute\"") && config(&other).contains("profile = \"solo\""));
    // Nobody was asked: what was taken is said, with the option that says otherwise.
    for part in [
        "who agrees to changes: your host's dialog",
        "(--profile solo)",
        "sessions begin working",
        "(--mode execute)",
    ] {
        assert!(done.stderr.contains(part), "{part}: {done}");
    }
    let team = other.run(&["init", "--yes", "--no-start", "--profile", "team"]);
    assert_eq!(team.code, Some(0), "{team}");
    assert!(config(&other).contains("profile = \"team\""), "{}", config(&other));
}

/// What `init` does not know is not passed over in silence.
#[test]
fn doctor_names_hosts_it_does_not_know() {
    let world = World::new();
    put(&world, ".config/goose/config.yaml", "extensions:\n  fs:\n    cmd: npx\n");
    put(&world, ".kiro/settings/mcp.json", "{\"mcpServers\": {\"a\": {\"command\": \"countersign\"}}}");
    let told = world.run(&["doctor", "--no-start", "--json"]);
    let checks = told.envelope()["data"]["checks"].clone();
    let text = checks.to_string();
    assert!(text.contains("Goose") && text.contains("does not know this host"), "{text}");
    assert!(!text.contains("Kiro"), "one that leads to us is content: {text}");
    // And those it knows are looked at like any other.
    furnish(&world);
    let text = world.run(&["doctor", "--no-start", "--json"]).envelope()["data"]["checks"].to_string();
    for title in ["opencode (", "Qwen Code (", "Continue (", "Cline ("] {
        assert!(text.contains(title), "{title}: {text}");
    }
}
