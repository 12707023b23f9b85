//! Where a configuration is found, and what is said where there is none.

use crate::world::{World, all};

fn mode(mode: &str) -> String {
    format!("[gateway]\nmode = \"{mode}\"\n")
}

/// The mode a call would have: tells which file was read.
#[track_caller]
fn read(world: &World, variables: &[(&str, &str)], args: &[&str]) -> String {
    let args = [&["policy", "explain", "--tool", "a:b", "--json"], args].concat();
    world.run_with(variables, &args).envelope()["data"]["explained"]["mode"].as_str().unwrap().to_owned()
}

#[test]
fn the_nearest_configuration_wins() {
    let world = World::new();
    assert_eq!(read(&world, &[], &[]), "ask", "the default");
    world.write("../home/.config/countersign/countersign.toml", &mode("plan"));
    if cfg!(target_os = "linux") {
        assert_eq!(read(&world, &[], &[]), "plan", "the platform's folder");
        assert_eq!(read(&world, &[("XDG_CONFIG_HOME", "/nowhere")], &[]), "ask");
    }
    world.write("countersign.toml", &mode("execute"));
    assert_eq!(read(&world, &[], &[]), "execute", "this folder");
    world.write("named.toml", &mode("plan"));
    assert_eq!(read(&world, &[("COUNTERSIGN_CONFIG", "named.toml")], &[]), "plan", "the environment");
    world.write("given.toml", &mode("ask"));
    assert_eq!(
        read(&world, &[("COUNTERSIGN_CONFIG", "named.toml")], &["--config", "given.toml"]),
        "ask",
        "the flag"
    );
    let both = ["--config", "given.toml", "--config", "countersign.toml"];
    assert_eq!(read(&world, &[], &both), "execute", "of several the later wins");
}

#[test]
fn what_can_not_be_read_is_said() {
    let world = World::new();
    world.write("folder/x", "").write("latin.toml", "");
    std::fs::write(world.work().join("latin.toml"), b"# caf\xe9\n").unwrap();
    insta::assert_snapshot!(all([
        world.run(&["policy", "check"]),
        world.run(&["policy", "check", "--config", "absent.toml"]),
        world.run(&["policy", "check", "--config", "folder"]),
        world.run(&["policy", "check", "--config", "latin.toml"]),
        world.run_with(&[("COUNTERSIGN_CONFIG", "gone.toml")], &["activity", "list"]),
    ]));
    let envelope = world.run(&["policy", "check", "--json"]).envelope();
    assert_eq!(envelope["errors"][0]["details"]["reason_code"], "config_unreadable");
}

#[test]
fn the_gateway_starts_with_the_defaults_where_there_is_no_configuration() {
    let world = World::new();
    let served = world.run(&["serve", "--role", "human"]);
    assert_eq!((served.code, served.stdout.as_str()), (Some(0), ""), "{served}");
    assert!(served.stderr.contains("no configuration found"), "{served}");
    assert!(served.stderr.contains("MCP server starting in HUMAN mode (full access)"), "{served}");
    assert_eq!(
        world.run(&["serve", "--config", "absent.toml"]).code,
        Some(3),
        "one that is named has to be there"
    );
}

/// A preset is used where it lies, and is no home of records: they are beside the first other file, else where the command is typed.
#[test]
fn presets_are_no_home_of_records() {
    let world = World::new();
    let rule = "[[rules]]\nmatch = \"a:*\"\nallow = true\n";
    world.write("presets/a.toml", rule).write("elsewhere/countersign.toml", "").write("deep/b.toml", rule);
    let store = |text: &str, files: &[&str]| {
        let flags: Vec<&str> = files.iter().flat_map(|file| ["--config", *file]).collect();
        let stored = world.run(&[&["memory", "store", "--as", "idea", text], &*flags].concat());
        assert_eq!(stored.code, Some(0), "{stored}");
    };
    store("one", &["presets/a.toml"]);
    assert!(world.work().join("countersign.db").exists());
    store("two", &["presets/a.toml", "elsewhere/countersign.toml"]);
    assert!(world.work().join("elsewhere/countersign.db").exists());
    store("three", &["deep/b.toml", "presets/a.toml"]);
    assert!(world.work().join("deep/countersign.db").exists());
    assert!(!world.work().join("presets/countersign.db").exists());
}
