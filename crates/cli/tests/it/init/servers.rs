//! What becomes of servers: each starts once in its own time, keeps its environment, and stays with the host and folder it came from.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{config, put, server};
use crate::world::World;

/// A server that writes down each of its starts, and then does this.
fn counted(world: &World, name: &str, then: &str) -> Value {
    let starts = world.home().join(format!("{name}.starts"));
    json!({"command": "/bin/sh", "args": ["-c", format!("echo start >> {}; {then}", starts.display())]})
}

fn starts(world: &World, name: &str) -> usize {
    fs::read_to_string(world.home().join(format!("{name}.starts"))).unwrap_or_default().lines().count()
}

/// One that answers, one that hangs, one that ends at once with a long reason.
fn furnish_servers(world: &World) {
    let echo = format!("exec {} bench-echo", server(world));
    let servers = json!({"mcpServers": {
        "good": counted(world, "good", &echo),
        "hangs": counted(world, "hangs", "exec sleep 600"),
        "broken": counted(world, "broken", "echo 'no token, and this line is longer than any table has room for' >&2; exit 3"),
    }});
    put(world, ".cursor/mcp.json", &servers.to_string());
}

#[test]
fn a_server_that_hangs_holds_up_no_other_and_each_is_started_once() {
    let world = World::new();
    furnish_servers(&world);
    let shown = world.run(&["init", "--dry-run", "--wait", "8"]);
    assert_eq!(shown.code, Some(0), "{shown}");
    // One that ends at once may have been asked in a revision it does not know: the older one is tried once.
    assert_eq!(["good", "hangs"].map(|name| starts(&world, name)), [1, 1], "{shown}");
    assert!(starts(&world, "broken") <= 2, "{shown}");
    // Off a terminal a plain line each.
    for line in ["good: 1 tool\n", "hangs: did not answer\n", "broken: did not answer\n"] {
        assert!(shown.stderr.contains(line), "{line}: {shown}");
    }
    let (table, reasons) = shown.stdout.split_once("\n`broken` does not answer: ").unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["SERVER", "FROM", "READ", "WRITE", "DESTRUCTIVE", "CONFIRM"], "{shown}");
    assert!(rows.contains(&vec!["good", "Cursor", "1", "0", "0", "-"]), "{rows:?}");
    assert!(rows.contains(&vec!["hangs", "Cursor", "-", "-", "-", "no", "answer"]), "{rows:?}");
    assert!(reasons.contains("longer than any table has room for"), "{shown}");
    assert!(reasons.contains("`hangs` does not answer: it listed no tools in 8 s"), "{shown}");
}

#[test]
fn servers_that_do_not_answer_come_along_or_stay_as_said() {
    let world = World::new();
    furnish_servers(&world);
    let done = world.run(&["init", "--yes", "--wait", "8", "--skip-failing"]);
    assert_eq!(done.code, Some(0), "{done}");
    let cursor = fs::read_to_string(world.home().join(".cursor/mcp.json")).unwrap();
    assert!(
        cursor.contains("hangs") && cursor.contains("broken") && !cursor.contains("good.starts"),
        "{cursor}"
    );
    assert!(!config(&world).contains("hangs"), "{}", config(&world));
    let (_, last) = done.stdout.split_once("governed\n").unwrap();
    assert!(last.starts_with("  good (Cursor): 1 read free, no changes asked about\n"), "{done}");
    assert!(
        last.contains("not governed\n") && last.contains("Cursor: `hangs`: it did not answer\n"),
        "{done}"
    );
    assert!(last.contains("see it work\n  countersign plans watch\n"), "{done}");
    // Without a word they come along, and the last screen says how they are.
    let done = world.run(&["init", "--yes", "--wait", "8"]);
    assert!(done.stdout.contains("hangs (Cursor): did not answer; governed as soon as it does"), "{done}");
    assert!(config(&world).contains("[upstreams.hangs]"), "{}", config(&world));
}

/// At a terminal they are counted, and a person says.
#[test]
#[cfg(target_os = "linux")]
fn at_a_terminal_a_person_says_whether_silent_servers_come_along() {
    let world = World::new();
    furnish_servers(&world);
    let line = format!("'{}' init --wait 8", crate::world::binary().display());
    let mut command = world.command("script");
    command.env("TERM", "xterm").args(["-qefc", &line, "/dev/null"]);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        let _ = writeln!(std::io::stderr(), "left out: `script` is not here");
        return;
    };
    // No to the silent ones, the usual for both questions, yes to the change.
    child.stdin.take().unwrap().write_all(b"n\n\n\ny\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(shown.contains("2 of 3 did not answer; bring them anyway?"), "{shown}");
    assert!(shown.contains("✓ good") && shown.contains("✗ hangs"), "{shown}");
    assert!(
        shown.contains("Who must agree to a change?") && shown.contains("How shall sessions begin?"),
        "{shown}"
    );
    assert!(config(&world).contains("[upstreams.good]") && !config(&world).contains("hangs"), "{shown}");
}

/// The tools a host lists, by their names on the direct surface.
fn listed(world: &World, args: &[&str], folder: &Path) -> Vec<String> {
    let path = world.home().join(".config/countersign/countersign.toml");
    let all = [&["serve", "--surface", "direct", "--config", path.to_str().unwrap()], args].concat();
    let mut command = world.countersign(&all);
    command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut gateway = command.spawn().unwrap();
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
    let list: Value = serde_json::from_str(&lines.find(|line| line.contains(r#""id":2"#)).unwrap()).unwrap();
    drop(stdin);
    gateway.wait().unwrap();
    let tools = list["result"]["tools"].as_array().unwrap();
    let names = tools.iter().filter_map(|tool| tool["name"].as_str()?.strip_suffix("__echo"));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn attack_a_server_stays_with_the_hosts_and_the_folder_it_came_from() {
    let world = World::new();
    let server = server(&world);
    let entry = |log: &str| json!({"command": server, "args": ["bench-echo"], "env": {"LOG": log}});
    put(
        &world,
        ".cursor/mcp.json",
        &json!({"mcpServers": {"own": entry("a"), "both": entry("b")}}).to_string(),
    );
    put(&world, ".qwen/settings.json", &json!({"mcpServers": {"both": entry("b")}}).to_string());
    world.write(".mcp.json", &json!({"mcpServers": {"team": entry("c")}}).to_string());
    let done = world.run(&["init", "--yes"]);
    assert_eq!(done.code, Some(0), "{done}");
    let text = config(&world);
    for part in
        ["hosts = [\"cursor\"]", "hosts = [\"cursor\", \"qwen\"]", "hosts = [\"claude-code\"]\nfolders = ["]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (work, home) = (world.work(), world.home());
    for (args, folder, expect) in [
        (&["--host", "cursor"][..], &home, &["both", "own"][..]),
        (&["--host", "qwen"], &home, &["both"]),
        (&["--host", "claude-code"], &work, &["team"]),
        (&["--host", "claude-code"], &home, &[]),
        (
            &["--host", "claude-code", "--folder", work.canonicalize().unwrap().to_str().unwrap()],
            &home,
            &["team"],
        ),
        (&["--host", "codex"], &work, &[]),
        (&[], &work, &[]),
        // A person is no host.
        (&["--role", "human"], &home, &["both", "own", "team"]),
    ] {
        assert_eq!(listed(&world, args, folder), expect, "{args:?} in {}", folder.display());
    }
    // Another host brings the same server later: it is added to those that have it.
    put(&world, ".gemini/settings.json", &json!({"mcpServers": {"mine": entry("a")}}).to_string());
    assert_eq!(world.run(&["init", "--yes", "--no-start"]).code, Some(0));
    assert!(config(&world).contains("hosts = [\"cursor\", \"gemini\"]"), "{}", config(&world));
    // The person says so.
    put(&world, ".qwen/settings.json", &json!({"mcpServers": {"both": entry("b")}}).to_string());
    assert_eq!(world.run(&["init", "--yes", "--no-start", "--share"]).code, Some(0));
    assert_eq!(listed(&world, &["--host", "codex"], &work), ["both"]);
}

#[test]
fn servers_keep_the_common_variables_by_reference() {
    let world = World::new();
    let seen = world.home().join("seen");
    let start = format!("env > {}; exec {} bench-echo", seen.display(), server(&world));
    let servers = json!({"mcpServers": {"echo": {"command": "/bin/sh", "args": ["-c", start], "env": {"NO_PROXY": "own"}}}});
    let cursor = put(&world, ".cursor/mcp.json", &servers.to_string());
    let set = [
        ("SSL_CERT_FILE", "/etc/pki/ca.pem"),
        ("HTTPS_PROXY", "http://me:hunter2@proxy:3128"),
        ("NO_PROXY", "not this"),
        ("XDG_CACHE_HOME", "/var/cache/me"),
        ("PYTHONPATH", "/srv/python"),
        ("AWS_SECRET_ACCESS_KEY", "hunter3"),
    ];
    let done = world.run_with(&set, &["init", "--yes"]);
    assert_eq!(done.code, Some(0), "{done}");
    let text = config(&world);
    for name in ["SSL_CERT_FILE", "HTTPS_PROXY", "XDG_CACHE_HOME", "PYTHONPATH"] {
        assert!(text.contains(&format!("{name} = \"${{env:{name}:-}}\"")), "{name}: {text}");
    }
    assert!(
        text.contains("NO_PROXY = \"own\"") && !text.contains("hunter") && !text.contains("AWS_"),
        "{text}"
    );
    let has = |line: &str| fs::read_to_string(&seen).unwrap().lines().any(|one| one == line);
    assert!(has("SSL_CERT_FILE=/etc/pki/ca.pem") && has("NO_PROXY=own"), "{:?}", fs::read_to_string(&seen));
    // A host that has none of them gives none on, and nothing breaks.
    assert_eq!(listed(&world, &["--host", "cursor"], &world.home()), ["echo"]);
    let environment = fs::read_to_string(&seen).unwrap();
    assert!(!environment.contains("SSL_CERT_FILE") && !environment.contains("PROXY=http"), "{environment}");
    // Nor is it another server because they are not set now.
    fs::write(&cursor, servers.to_string()).unwrap();
    assert_eq!(world.run(&["init", "--yes", "--no-start"]).code, Some(0));
    assert_eq!(config(&world), text);
}

#[test]
fn a_recognised_server_gets_its_effects_and_previews() {
    let mut world = World::new();
    world.set("PATH", "/usr/bin:/bin".to_owned());
    let project = world.work().display().to_string();
    let servers = json!({"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", project]},
        "rooted": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem"]},
        "git": {"command": "uvx", "args": ["mcp-server-git", "--repository", project]},
    }});
    put(&world, ".cursor/mcp.json", &servers.to_string());
    let done = world.run(&["init", "--yes", "--no-start"]);
    assert_eq!(done.code, Some(0), "{done}");
    let text = config(&world);
    assert!(text.contains(&format!("\"preview-file\", \"--in\", \"{project}\"]")), "{text}");
    assert_eq!(
        text.matches("preview-file").count(),
        1,
        "only where it is known which files may be shown: {text}"
    );
    assert!(
        text.contains("match = [\"git:git_commit\"]") && text.contains("{ tool = \"git_diff_staged\" }"),
        "{text}"
    );
    let path = world.home().join(".config/countersign/countersign.toml");
    let explained = world.run(&[
        "policy",
        "explain",
        "--json",
        "--mode=execute",
        "--tool",
        "files:write_file",
        "--args",
        &json!({"path": format!("{project}/a.txt"), "content": "x"}).to_string(),
        "--config",
        path.to_str().unwrap(),
    ]);
    let explained = explained.envelope()["data"]["explained"].clone();
    assert_eq!(
        (&explained["verdict"], &explained["effect"]),
        (&json!("hold"), &json!("destructive")),
        "{explained}"
    );
    assert_eq!(world.run(&["policy", "check", "--config", path.to_str().unwrap()]).code, Some(0));
}
