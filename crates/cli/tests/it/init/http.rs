//! `init --http`: hosts call a running gateway, each with a credential of its own, which nobody else can read and `--undo` revokes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use super::{furnish, put, texts};
use crate::serve::gateway::{End, Gateway};
use crate::serve::http::send;
use crate::world::{Transcript, World};

const URL: &str = "https://gate.example.com/mcp";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The credentials of the configuration's store: name and state.
fn credentials(world: &World) -> Vec<(String, String)> {
    let config = world.home().join(".config/countersign/countersign.toml");
    let store = config.with_file_name("countersign.db");
    let listed = world.run(&["token", "list", "--json", "--store", &format!("sqlite:{}", store.display())]);
    let mut all: Vec<(String, String)> = listed.envelope()["data"]["credentials"]
        .as_array()
        .unwrap_or_else(|| panic!("{listed}"))
        .iter()
        .filter(|one| one["role"] == "agent")
        .map(|one| (one["name"].as_str().unwrap().to_owned(), one["state"].as_str().unwrap().to_owned()))
        .collect();
    all.sort();
    all
}

fn secret_of(text: &str) -> String {
    let (_, rest) = text.split_once("Bearer ").unwrap_or_else(|| panic!("{text}"));
    rest.split('"').next().unwrap().to_owned()
}

fn init(world: &World, more: &[&str]) -> Transcript {
    world.run(&[&["init", "--no-start"], more].concat())
}

#[test]
fn each_host_gets_a_credential_of_its_own_that_undo_revokes() {
    let world = World::new();
    let files = furnish(&world);
    let before = texts(&files);
    let modes: Vec<u32> = files.iter().map(|path| mode(path)).collect();
    // Nothing is made by looking, and no secret is shown.
    let shown = init(&world, &["--http", URL, "--dry-run", "--json"]);
    assert!(!shown.stdout.contains("csg_agent_") && shown.stdout.contains(r#"\"Authorization\": \"***\""#));
    assert!(!world.home().join(".config/countersign").exists());
    let done = init(&world, &["--http", URL, "--yes"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(!format!("{done}").contains("csg_agent_"), "{done}");
    let mut secrets = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path).unwrap();
        if path.ends_with("claude_desktop_config.json") {
            // It can't be pointed at an address: it starts the program.
            assert!(text.contains("\"serve\"") && !text.contains("Bearer"), "{text}");
            continue;
        }
        if path.ends_with(".mcp.json") {
            continue;
        }
        assert!(text.contains(URL), "{text}");
        secrets.push(secret_of(&text));
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    let count = secrets.len();
    secrets.sort();
    secrets.dedup();
    assert_eq!(secrets.len(), count, "no two hosts share one");
    let made = credentials(&world);
    assert_eq!(made.len(), count, "{made:?}");
    assert!(made.iter().all(|(_, state)| state == "live"), "{made:?}");
    assert!(made.iter().any(|(name, _)| name.starts_with("claude-code@")), "{made:?}");
    // A second run has nothing to do, and makes nothing.
    let again = init(&world, &["--http", URL, "--yes", "--json"]);
    assert_eq!(again.envelope()["data"]["changed"], false, "{again}");
    assert_eq!(credentials(&world), made);
    let undone = world.run(&["init", "--undo", "--json"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert_eq!(texts(&files), before);
    assert_eq!(files.iter().map(|path| mode(path)).collect::<Vec<_>>(), modes);
    assert_eq!(undone.envelope()["data"]["revoked"].as_array().unwrap().len(), count, "{undone}");
    assert!(credentials(&world).iter().all(|(_, state)| state == "revoked"));
}

#[test]
fn the_credential_opens_the_gateway_and_nothing_else_does() {
    let world = World::new();
    let path = put(&world, ".claude.json", "{}");
    let config = world.home().join(".config/countersign/countersign.toml");
    let done = init(&world, &["--http", "--host", "claude-code", "--yes"]);
    assert_eq!(done.code, Some(0), "{done}");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("http://127.0.0.1:7878/mcp"), "{text}");
    let secret = secret_of(&text);
    let flags = ["--http", "127.0.0.1:0", "--config", config.to_str().unwrap()];
    let gateway = Gateway::start(&world, &flags);
    let initialize = |secret: Option<&str>| {
        let mut headers = vec![
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("Accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ];
        headers.extend(secret.map(|secret| ("Authorization".to_owned(), format!("Bearer {secret}"))));
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        send(&gateway.address(), "POST", "/mcp", &headers, body).unwrap().status
    };
    assert_eq!((initialize(Some(&secret)), initialize(None)), (200, 401));
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));
    assert_eq!(initialize(Some(&secret)), 401, "revoked with the change");
    gateway.end(End::Asked);
}

#[test]
fn a_host_that_started_the_program_is_pointed_at_the_address_and_back() {
    let world = World::new();
    let path = put(&world, ".cursor/mcp.json", "{\"mcpServers\": {}}");
    assert_eq!(init(&world, &["--yes"]).code, Some(0));
    let started = fs::read_to_string(&path).unwrap();
    assert_eq!(init(&world, &["--http", URL, "--yes"]).code, Some(0));
    let value: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(value["mcpServers"]["countersign"]["url"], URL);
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));
    assert_eq!(fs::read_to_string(&path).unwrap(), started);
}

/// A credential must not travel in the clear, nor into a file that others share.
#[test]
fn addresses_that_would_give_the_credential_away_are_refused() {
    let world = World::new();
    let path = put(&world, ".claude.json", "{}");
    for url in
        ["http://gate.example.com/mcp", "https://ada:pw@gate.example.com/mcp", "https://gate.example.com/x"]
    {
        let refused = init(&world, &["--http", url, "--yes"]);
        assert_eq!(refused.code, Some(2), "{refused}");
    }
    let shared = init(&world, &["--http", URL, "--project", ".", "--yes"]);
    assert_eq!(shared.code, Some(2), "{shared}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
    assert!(!world.home().join(".config/countersign").exists());
}

/// Issue 14, point 16: under the widest mask, while `init` runs, nothing it makes can be opened by others.
#[test]
fn attack_16_no_file_of_init_is_ever_wider_than_it_should_be() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let world = World::new();
    let files = furnish(&world);
    for path in &files {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let had: Vec<std::path::PathBuf> = below(&world.home());
    let stop = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (home, had, stop) = (world.home(), had.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut wide = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                for path in below(&home) {
                    let Ok(meta) = fs::symlink_metadata(&path) else { continue };
                    if !had.contains(&path) && meta.is_file() && meta.permissions().mode() & 0o077 != 0 {
                        wide.push(path);
                    }
                }
            }
            wide
        })
    };
    for args in
        ["init --no-start --yes --permissions", "init --no-start --yes --http https://gate.example.com/mcp"]
    {
        let mut command = world.command("/bin/sh");
        command.args([
            "-c",
            &format!("umask 000; exec \"$0\" {args}"),
            crate::world::binary().to_str().unwrap(),
        ]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    }
    stop.store(true, Ordering::Relaxed);
    assert_eq!(watcher.join().unwrap(), Vec::<std::path::PathBuf>::new());
    for path in below(&world.home()) {
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_file() {
            assert_eq!(meta.permissions().mode() & 0o077, 0, "{}", path.display());
        }
    }
    let ours = world.home().join(".config/countersign");
    for folder in [ours.clone(), ours.join("backups"), ours.join("keyring")] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
}

/// Every file below a folder; what vanishes meanwhile is left out.
fn below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => all.extend(below(&path)),
            Ok(_) => all.push(path),
            Err(_) => {}
        }
    }
    all
}
