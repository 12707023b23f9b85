//! Seed 000 on real repositories: every row of its matrix in every mode, and its two intents told as it tells them, through the
//! real binary with `presets/amof.toml`. Asking and planning leave every byte as it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::gateway::{End, Gateway};
use super::http::PATIENCE;
use super::scene::agent_credential;
use crate::world::World;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A gateway over an ecosystem `demo`, and an agent on a line.
struct Stage {
    world: World,
    home: PathBuf,
    gateway: Gateway,
    client: Client,
}

impl Stage {
    fn open(way: Way, flags: &[&str]) -> Self {
        let mut world = World::new();
        let home = world.work().join("shop");
        let made = world.command(root().join("examples/ecosystem/setup")).arg(&home).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        world.set("ECOSYSTEM_HOME", home.to_str().unwrap().to_owned());
        world.write("countersign.toml", "[confirm]\nhold = \"0s\"\n");
        let preset = root().join("presets/amof.toml");
        let mut all = vec!["--config", "countersign.toml", "--config", preset.to_str().unwrap()];
        all.extend(flags);
        let (gateway, client) = if way.is_http() {
            all.extend(["--http", "127.0.0.1:0"]);
            let gateway = Gateway::start(&world, &all);
            let path = if flags.contains(&"direct") { "/mcp/direct" } else { "/mcp/router" };
            let client = Client::http_as(
                way,
                Host::None,
                &gateway.address(),
                path,
                "s",
                Some(agent_credential(&world)),
            );
            (gateway, client)
        } else {
            let mut gateway = Gateway::start(&world, &all);
            let (stdin, stdout) = gateway.pipes.take().unwrap();
            (gateway, Client::stdio(way, Host::None, stdin, stdout))
        };
        Self { world, home, gateway, client }
    }

    /// A governed call through the call tool of an effect.
    fn call(&self, effect: &str, tool: &str, args: &Value, more: Value) -> Reply {
        let mut asked =
            json!({"name": format!("amof:{tool}"), "args": args, "intent": {"operation_type": effect}});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.client.call(&format!("call_tool_{effect}"), &asked.to_string())
    }

    /// The same, to its end: asked for, agreed to by a person with this typed, and run.
    #[track_caller]
    fn carry_out(&self, effect: &str, tool: &str, args: &Value, typed: Option<&str>) -> Reply {
        let held = self.call(effect, tool, args, json!({"mode": "execute"}));
        assert_eq!(held.data()["status"], "confirmation_required", "{}", held.text);
        let plan = held.data()["plan_id"].as_str().unwrap();
        let mut approve = vec!["approve", plan, "--yes"];
        if let Some(typed) = typed {
            approve.extend(["--confirm-text", typed]);
        }
        let approved = self.world.run(&approve);
        assert_eq!(approved.code, Some(0), "{approved}");
        let token = held.data()["confirm_token"].clone();
        self.call(effect, tool, args, json!({"mode": "execute", "confirm_token": token, "yes": true}))
    }

    /// A run once it has ended.
    fn ended(&self, reply: &Reply) -> Value {
        let id = reply.data()["run_id"].as_str().unwrap_or_else(|| panic!("{}", reply.text));
        let start = Instant::now();
        loop {
            let run = self.client.call("get_run", &json!({"run_id": id}).to_string());
            let run = run.data()["run"].clone();
            if !["queued", "running"].contains(&run["state"].as_str().unwrap()) {
                return run;
            }
            assert!(start.elapsed() < PATIENCE, "{run}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn git(&self, folder: &str, args: &[&str]) -> String {
        let output = Command::new("git").arg("-C").arg(self.home.join(folder)).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Every file of the ecosystem's home, repositories and all.
    fn bytes(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        bytes(&self.home)
    }

    #[track_caller]
    fn close(self) {
        let way = self.client.way;
        assert_eq!(self.client.noise(), Vec::<String>::new(), "stdout carries protocol only");
        drop(self.client);
        self.gateway.end(if way.is_http() { End::Asked } else { End::Closed });
        let proven = self.world.run(&["activity", "verify"]);
        assert_eq!(proven.code, Some(0), "{proven}");
    }
}

fn bytes(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(here) = open.pop() {
        // An empty folder is something as well.
        all.insert(here.clone(), Vec::new());
        for entry in std::fs::read_dir(here).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                all.insert(entry.path(), std::fs::read(entry.path()).unwrap());
            }
        }
    }
    all
}

/// The text of a preview or an explanation's state.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value}"))
}

fn shown(reply: &Reply) -> &str {
    text(&reply.data()["preview"]["shown"]["content"][0]["text"])
}

/// Two to five steps, and none above the mode without saying so.
#[track_caller]
fn check_suggestions(reply: &Reply, mode: &str) {
    let rank = |mode: &str| ["ask", "plan", "execute"].iter().position(|one| *one == mode).unwrap();
    let steps = reply.data()["suggestions"].as_array().unwrap_or_else(|| panic!("{}", reply.text));
    assert!((2..=5).contains(&steps.len()), "{steps:?}");
    for step in steps {
        let needs = step["mode_required"].as_str().unwrap();
        let now = rank(needs) <= rank(mode);
        assert_eq!(step["now"], now, "{step}");
        assert_eq!(text(&step["label"]).contains(&format!("needs mode {needs}")), !now, "{step}");
    }
}

/// The seed's rows: number, tool, safety, the confirm in execute, and arguments.
const ROWS: [(u8, &str, &str, &str, &str); 9] = [
    (1, "amof_list_ecosystems", "read", "none", "{}"),
    (2, "amof_get_server_status", "read", "none", "{}"),
    (8, "amof_install_ecosystem", "write", "simple", r#"{"ecosystem":"demo"}"#),
    (10, "amof_push_ecosystem", "write", "simple", r#"{"ecosystem":"demo"}"#),
    (11, "amof_spin_deploy", "write", "preview", r#"{"ecosystem":"demo"}"#),
    (12, "amof_spin_destroy", "destructive", "type", r#"{"ecosystem":"demo"}"#),
    (20, "amof_discard_ecosystem", "destructive", "type", r#"{"ecosystem":"demo"}"#),
    (26, "amof_release_bump", "write", "preview", r#"{"ecosystem":"demo","bump_type":"minor"}"#),
    (27, "amof_release_promote", "write", "preview", r#"{"ecosystem":"demo"}"#),
];

#[test]
fn the_seeds_rows_in_every_mode() {
    Way::each(&[Way::StdioLegacy, Way::HttpModern], |way| {
        let stage = Stage::open(way, &[]);
        let before = stage.bytes();
        for mode in ["ask", "plan", "execute"] {
            let set = stage.client.call("amof_set_mode", &json!({"mode": mode}).to_string());
            assert_eq!(
                (&set.data()["mode"], &set.data()["message"]),
                (&json!(mode), &json!(format!("Mode set to: {mode}")))
            );
            check_suggestions(&set, mode);
            for (number, tool, effect, confirm, args) in ROWS {
                let args: Value = serde_json::from_str(args).unwrap();
                let reply = stage.call(effect, tool, &args, json!({}));
                let row = format!("{way:?} row {number} {tool} in {mode}: {}", reply.text);
                match (effect, mode) {
                    ("read", _) => assert!(reply.ran() && reply.result()["isError"] == false, "{row}"),
                    (_, "ask") => {
                        assert_eq!(reply.code(), Some("E_MODE_ASK"), "{row}");
                        let explain = &reply.data()["explain"];
                        assert_eq!(explain["confirm"], confirm, "{row}");
                        assert!(text(&explain["state"]).ends_with("No changes made\n"), "{row}");
                        assert!(
                            reply.envelope().unwrap()["warnings"].as_array().unwrap().is_empty(),
                            "{row}"
                        );
                        check_suggestions(&reply, mode);
                    }
                    (_, "plan") => {
                        assert_eq!(reply.data()["status"], "preview", "{row}");
                        assert!(shown(&reply).ends_with("No changes made\n"), "{row}");
                        assert!(text(&reply.data()["execute_hint"]).contains("execute"), "{row}");
                        check_suggestions(&reply, mode);
                    }
                    _ => {
                        assert_eq!(reply.data()["status"], "confirmation_required", "{row}");
                        assert_eq!(reply.data()["confirm"]["kind"], confirm, "{row}");
                        assert!(shown(&reply).ends_with("No changes made\n"), "{row}");
                        check_suggestions(&reply, mode);
                    }
                }
            }
        }
        assert!(stage.bytes() == before, "asking, planning and asking for confirmation changed something");
        stage.close();
    });
}

#[test]
fn deploy_this_ecosystem() {
    Way::each(&[Way::StdioModern, Way::HttpLegacy], |way| {
        let stage = Stage::open(way, &[]);
        let demo = json!({"ecosystem": "demo"});
        let before = stage.bytes();
        // Ask: what would happen, the current state, and how to go on.
        let asked = stage.call("write", "amof_spin_deploy", &demo, json!({}));
        assert_eq!(asked.code(), Some("E_MODE_ASK"));
        let explain = &asked.data()["explain"];
        let state = text(&explain["state"]);
        for part in [
            "Deploying `demo` runs its provisioner's script",
            "Now deployed: nothing",
            "app: workspace/demo at ",
        ] {
            assert!(state.contains(part), "{part}: {state}");
        }
        let on = explain["how_to_go_on"].to_string();
        assert!(on.contains("mode=\\\"plan\\\"") && on.contains("execute"), "{on}");
        // Plan: provisioner, script, estimated duration, execute hint.
        let planned = stage.call("write", "amof_spin_deploy", &demo, json!({"mode": "plan"}));
        let preview = shown(&planned);
        for part in [
            "provisioner: local",
            "script: provisioners/local/spin.sh deploy demo",
            "estimated duration: ",
            ", from 1 past run",
            "would put what is committed in app into environments/demo/app",
        ] {
            assert!(preview.contains(part), "{part}: {preview}");
        }
        assert!(text(&planned.data()["execute_hint"]).contains("confirm `preview`"));
        assert!(stage.bytes() == before, "asking and planning changed something");
        // Execute: the preview is shown, someone agrees, the deployment is queued and can be followed.
        let begun = stage.carry_out("write", "amof_spin_deploy", &demo, None);
        let run = stage.ended(&begun);
        assert_eq!((&run["state"], &run["exit_code"]), (&json!("success"), &json!(0)), "{run}");
        assert_eq!(run["log_tail"].as_array().unwrap().last().unwrap(), "demo is deployed");
        let deployed =
            std::fs::read_to_string(stage.home.join("environments/demo/app/src/main.txt")).unwrap();
        assert_eq!(deployed, "hello, world\n");
        // What is known now is said the next time: the state, and a duration from two runs.
        let asked = stage.call("write", "amof_spin_deploy", &demo, json!({}));
        let state = text(&asked.data()["explain"]["state"]);
        assert!(state.contains("Now deployed:\n  app ") && state.contains("from 2 past runs"), "{state}");
        // Destroying what was deployed is typed.
        let destroyed = stage.carry_out("destructive", "amof_spin_destroy", &demo, Some("demo"));
        assert_eq!(stage.ended(&destroyed)["state"], "success");
        assert!(!stage.home.join("environments/demo").exists());
        stage.close();
    });
}

#[test]
fn discard_this_ecosystem() {
    Way::each(&[Way::StdioLegacy, Way::HttpModern], |way| {
        let stage = Stage::open(way, &[]);
        let demo = json!({"ecosystem": "demo"});
        let before = stage.bytes();
        // Ask: irreversible, what would go, archive first.
        let asked = stage.call("destructive", "amof_discard_ecosystem", &demo, json!({}));
        assert_eq!(asked.code(), Some("E_MODE_ASK"));
        let state = text(&asked.data()["explain"]["state"]);
        for part in [
            "can't be undone",
            "would delete the directory workspaces/demo/app",
            "would delete the branch ticket/demo/SHOP-1 of app",
            "would delete the branch workspace/demo of infra",
            "3 commits would be lost for good",
            "Archive it first (amof_archive_ecosystem)",
        ] {
            assert!(state.contains(part), "{part}: {state}");
        }
        let first = &asked.data()["suggestions"][0];
        assert_eq!((&first["tool"], &first["now"]), (&json!("amof:amof_archive_ecosystem"), &json!(false)));
        // Plan: branches and directories.
        let planned = stage.call("destructive", "amof_discard_ecosystem", &demo, json!({"mode": "plan"}));
        let preview = shown(&planned);
        assert_eq!(preview.matches("would delete the directory").count(), 3, "{preview}");
        assert_eq!(preview.matches("would delete the branch").count(), 5, "{preview}");
        assert!(stage.bytes() == before, "asking and planning changed something");
        // Execute: the name is typed, to the letter, by a person; the agent can't.
        let held = stage.call("destructive", "amof_discard_ecosystem", &demo, json!({"mode": "execute"}));
        let (plan, token) = (text(&held.data()["plan_id"]), &held.data()["confirm_token"]);
        let mine = json!({"mode": "execute", "confirm_token": token, "yes": true, "confirm_text": "demo"});
        let refused = stage.call("destructive", "amof_discard_ecosystem", &demo, mine);
        assert_eq!(refused.code(), Some("E_APPROVAL_PENDING"), "{}", refused.text);
        let wrong = stage.world.run(&["approve", plan, "--yes", "--confirm-text", "Demo"]);
        assert_ne!(wrong.code, Some(0), "{wrong}");
        assert!(stage.bytes() == before, "nothing happens before a person has typed the name");
        let begun = stage.carry_out("destructive", "amof_discard_ecosystem", &demo, Some("demo"));
        let run = stage.ended(&begun);
        assert_eq!(run["state"], "success", "{run}");
        assert!(!stage.home.join("workspaces/demo").exists());
        assert_eq!(stage.git("repos/app", &["branch", "--format=%(refname:short)"]), "main\n");
        stage.close();
    });
}

#[test]
fn everything_else_really_happens_too() {
    let stage = Stage::open(Way::StdioLegacy, &[]);
    let demo = json!({"ecosystem": "demo"});
    let done = |tool: &str, args: &Value| {
        let reply = stage.carry_out("write", tool, args, None);
        assert!(reply.ran() && reply.result()["isError"] == false, "{tool}: {}", reply.text);
        text(&reply.result()["content"][0]["text"]).to_owned()
    };
    assert!(done("amof_push_ecosystem", &demo).ends_with("demo is pushed\n"));
    assert!(stage.git("remotes/infra.git", &["branch", "--list"]).contains("workspace/demo"));
    let bump = json!({"ecosystem": "demo", "bump_type": "patch", "pre_release": "alpha"});
    assert!(done("amof_release_bump", &bump).ends_with("v0.2.0-alpha.2 is released\n"));
    assert!(done("amof_release_promote", &demo).ends_with("v0.2.0-beta.1 is released\n"));
    assert!(stage.git("remotes/app.git", &["tag", "--list"]).contains("v0.2.0-beta.1"));
    assert_eq!(stage.git("workspaces/demo/app", &["show", "HEAD:VERSION"]), "0.2.0-beta.1\n");
    // Never back, and never to alpha: the dry run refuses as the release would.
    let back = stage.call(
        "write",
        "amof_release_promote",
        &json!({"ecosystem": "demo", "target": "alpha"}),
        json!({"mode": "plan"}),
    );
    assert_eq!(back.code(), Some("E_ARGUMENTS_INVALID"), "{}", back.text);
    assert!(
        done("amof_release_promote", &json!({"ecosystem": "demo", "target": "rc"})).contains("v0.2.0-rc.1")
    );
    let back = stage.call(
        "write",
        "amof_release_promote",
        &json!({"ecosystem": "demo", "target": "beta"}),
        json!({"mode": "plan"}),
    );
    assert_eq!(back.code(), Some("E_PREVIEW_FAILED"), "{}", back.text);
    assert!(back.text.contains("promoting goes forward only"), "{}", back.text);
    let ticket = json!({"ecosystem": "demo", "ticket_id": "SHOP-2"});
    // Safe writes do not ask.
    let at_once = |tool: &str, args: &Value| {
        let ran = stage.call("write", tool, args, json!({"mode": "execute"}));
        assert_eq!(ran.result()["isError"], false, "{}", ran.text);
    };
    at_once("amof_sync_ecosystem", &demo);
    at_once("amof_ticket_start", &ticket);
    at_once("amof_ticket_switch", &ticket);
    let status = stage.call("read", "amof_get_ecosystem_status", &demo, json!({}));
    assert_eq!(
        status.result()["structuredContent"]["workspace"]["active_ticket"],
        "SHOP-2",
        "{}",
        status.text
    );
    at_once("amof_ticket_end", &ticket);
    done("amof_archive_ecosystem", &demo);
    assert!(!stage.home.join("workspaces/demo").exists());
    assert!(stage.home.join("ecosystems/demo/archives/demo.json").exists());
    assert!(done("amof_install_ecosystem", &demo).ends_with("demo is installed\n"));
    let status = stage.call("read", "amof_get_ecosystem_status", &demo, json!({}));
    let repos = status.result()["structuredContent"]["repos"].as_array().unwrap().clone();
    assert!(repos.iter().all(|repo| repo["status"] == "OK"), "{repos:?}");
    stage.close();
}

/// The other name of `set_mode` is listed and works on both surfaces; a bad mode changes nothing.
#[test]
fn the_mode_has_its_old_name_too() {
    for flags in [&[][..], &["--surface", "direct"][..]] {
        let stage = Stage::open(Way::StdioLegacy, flags);
        let tools = stage.client.tools();
        let named = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(named("amof_set_mode")["inputSchema"], named("set_mode")["inputSchema"]);
        let set = stage.client.call("amof_set_mode", r#"{"mode":"plan"}"#);
        assert_eq!((&set.data()["mode"], &set.data()["previous"]), (&json!("plan"), &json!("ask")));
        let bad = stage.client.call("amof_set_mode", r#"{"mode":"yolo"}"#);
        assert_eq!(bad.code(), Some("E_MODE_INVALID"));
        check_suggestions(&bad, "plan");
        let status = stage.client.call("get_status", "{}");
        assert_eq!(status.data()["mode"], "plan");
        stage.close();
    }
}
