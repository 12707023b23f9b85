//! Where a configuration is found, and what is said where there is none.

use crate::ledger;
use crate::world::{World, all, binary};

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

/// With a broken configuration, commands that read records print the whole command that works without it.
#[test]
fn records_behind_a_broken_configuration_can_be_read_by_name() {
    let read: [&[&str]; 8] = [
        &["activity", "list"],
        &["activity", "show", "ID"],
        &["activity", "export", "--format", "csv"],
        &["activity", "verify"],
        &["plans", "list", "--all"],
        &["plans", "show", "nosuch"],
        &["grants", "list"],
        &["token", "list", "--json"],
    ];
    for (name, broken, store) in [
        ("countersign.toml", "[gateway]\nmode = \"exec\"\n", "countersign.db"),
        ("countersign.toml", "this is not TOML\n", "countersign.db"),
        ("deep/it's mine.toml", "[gateway]\nstore = \"sqlite:kept.db\"\nstoer = 1\n", "deep/kept.db"),
        (
            "deep/b.toml",
            "[gateway]\nstore = 'sqlite:kept.db'\nmode = \n[desk]\nstore = \"no\"",
            "deep/kept.db",
        ),
    ] {
        let world = World::new();
        world.write(name, broken);
        let ids = ledger::write(&world.work().join(store));
        for args in read {
            let args: Vec<&str> =
                args.iter().map(|word| if *word == "ID" { ids[0].as_str() } else { word }).collect();
            let args = [&*args, &["--config", name]].concat();
            let refused = world.run(&args);
            assert_eq!(refused.code, Some(3), "{refused}");
            let told = if args.contains(&"--json") {
                refused.envelope()["errors"][0]["details"]["hint"].as_str().unwrap().to_owned()
            } else {
                assert_eq!(refused.stdout, "", "{refused}");
                refused.stderr.clone()
            };
            let command = told.split("to read records anyway: ").nth(1).unwrap().trim();
            let mut shell = world.command("sh");
            let path = format!("{}:/usr/bin:/bin", binary().parent().unwrap().display());
            let output = shell.args(["-c", command]).env("PATH", path).output().unwrap();
            let ran = world.transcript(command, output);
            let expect = if args.contains(&"nosuch") { 3 } else { 0 };
            assert_eq!(ran.code, Some(expect), "{ran}");
            assert!(!ran.stderr.contains("E_CONFIG_INVALID"), "{ran}");
        }
    }
    // Where nothing can be made out, or it may hold a secret, nothing is guessed.
    for broken in [
        "[gateway]\nmode = 1\n",
        "[gateway]\nstore = \"postgres://u:hunter2@db/x\"\nmode = 1\n",
        "[gateway]\nstore = \"${env:WHERE}\"\n",
    ] {
        let world = World::new();
        world.write("countersign.toml", broken);
        let refused = world.run(&["activity", "verify"]);
        assert_eq!(refused.code, Some(3), "{refused}");
        assert!(refused.stderr.ends_with("countersign activity verify --store URL\n"), "{refused}");
        assert!(!refused.stderr.contains("hunter2"), "{refused}");
    }
}
