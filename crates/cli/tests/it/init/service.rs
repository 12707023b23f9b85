//! One gateway for all hosts as a service of the account. The service manager is a script that records its arguments.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::{config, everything_below, put, server};
use crate::world::World;

/// A home with two hosts, and a `systemctl` that answers.
fn furnish_service() -> World {
    let mut world = World::new();
    let bin = world.home().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let log = world.work().join("systemctl.log");
    fs::write(bin.join("systemctl"), format!("#!/bin/sh\necho \"$@\" >> {}\n", log.display())).unwrap();
    fs::set_permissions(bin.join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
    world.set("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    world.set("SSL_CERT_FILE", "/etc/pki/ca \"x\".pem".to_owned());
    let entry = json!({"command": server(&world), "args": ["bench-echo"]});
    put(&world, ".cursor/mcp.json", &json!({"mcpServers": {"echo": entry}}).to_string());
    put(&world, ".qwen/settings.json", &json!({"mcpServers": {"echo": entry}}).to_string());
    world
}

#[test]
#[cfg(target_os = "linux")]
fn hosts_share_one_service_that_undo_ends() {
    let world = furnish_service();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    everything_below(&world.home(), &mut before);
    let done = world.run(&["init", "--service", "--yes"]);
    assert_eq!(done.code, Some(0), "{done}");
    let unit = fs::read_to_string(world.home().join(".config/systemd/user/countersign.service")).unwrap();
    let path = world.home().join(".config/countersign/countersign.toml");
    assert!(unit.contains(&format!("serve --http --config \"{}\"\n", path.display())), "{unit}");
    let variables = world.home().join(".config/countersign/service.env");
    assert_eq!(fs::metadata(&variables).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&variables).unwrap();
    assert!(
        text.contains("SSL_CERT_FILE=\"/etc/pki/ca \\\"x\\\".pem\"\n") && text.contains("\nPATH=\""),
        "{text}"
    );
    for file in [".cursor/mcp.json", ".qwen/settings.json"] {
        let text = fs::read_to_string(world.home().join(file)).unwrap();
        assert!(text.contains("http://127.0.0.1:7878/mcp") && text.contains("Bearer "), "{text}");
    }
    assert!(config(&world).contains("hosts = [\"cursor\", \"qwen\"]"), "{}", config(&world));
    let told = || world.read("systemctl.log");
    assert!(
        told().ends_with("--user daemon-reload\n--user enable --now countersign.service\n"),
        "{}",
        told()
    );
    // And back, every byte; the service ends while its description is still there.
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert!(told().ends_with("--user disable --now countersign.service\n"), "{}", told());
    everything_below(&world.home(), &mut after);
    let kept = |path: &std::path::PathBuf| {
        let path = path.display().to_string();
        ["/backups/", "countersign.db", "human.credential", "ledger.key", "store.seal", "/.local/state/"]
            .iter()
            .any(|name| path.contains(name))
    };
    after.retain(|(path, _)| !kept(path));
    assert_eq!(after, before, "only our own records stay");
}

#[test]
fn without_a_service_manager_nothing_is_changed() {
    let mut world = World::new();
    world.set("PATH", world.home().display().to_string());
    put(&world, ".cursor/mcp.json", "{}");
    let refused = world.run(&["init", "--service", "--yes"]);
    assert_eq!(refused.code, Some(3), "{refused}");
    assert!(refused.stderr.contains("no service manager answers here"), "{refused}");
    assert!(!world.home().join(".config").exists());
}
