//! The pack as an upstream of the gateway: reads run freely, a change runs once, after its diff was shown and
//! approved, and has a row in the gateway's ledger.

use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::scene::Scene;

const CONFIG: &str = "[gateway]\nmode = \"execute\"\n[upstreams.pack]\nkind = \"pack\"\n[[rules]]\nmatch = \"pack:*\"\nstrength = \"caller\"\n";

const MANIFEST: &str = "version: 1
profiles: { default: { include_tags: [base] } }
targets:
  codex: { mode: files, scope: both }
  claude_code: { mode: files, scope: project }
modules:
  - { id: 'instructions:base', type: instructions, tags: [base], source: { local_path: { path: modules/base } } }
  - { id: 'command:go', type: command, tags: [base], source: { local_path: { path: modules/go.md } } }
";

/// A gateway with the pack in it, in a project, with a config repo in the home folder.
pub(super) fn scene(way: Way, surface: &'static str, config: &str) -> Scene {
    let scene = Scene::open_with(way, surface, config, &[]);
    std::fs::create_dir(scene.world.work().join(".git")).unwrap();
    let repo = scene.world.home().join(".agentpack/repo");
    std::fs::create_dir_all(repo.join("modules/base")).unwrap();
    std::fs::write(repo.join("agentpack.yaml"), MANIFEST).unwrap();
    std::fs::write(repo.join("modules/base/AGENTS.md"), "be kind\n").unwrap();
    std::fs::write(repo.join("modules/go.md"), "---\ndescription: goes\n---\ngo\n").unwrap();
    scene
}

fn ask(tool: &str, variant: &str, args: &Value, extra: Value) -> String {
    let mut whole =
        json!({"name": format!("pack:{tool}"), "args": args, "intent": {"operation_type": variant}});
    whole.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    whole.to_string()
}

fn read(scene: &mut Scene, line: &Client, tool: &str, args: Value) -> Value {
    let reply = scene.call(line, "call_tool_read", &ask(tool, "read", &args, json!({})));
    assert!(reply.ran(), "{}", reply.text);
    reply.result()["structuredContent"].clone()
}

/// Asks, and gives the question.
fn first(scene: &mut Scene, line: &Client, tool: &str, args: &Value) -> Reply {
    scene.call(line, "call_tool_destructive", &ask(tool, "destructive", args, json!({})))
}

/// Brings the token back.
fn second(scene: &mut Scene, line: &Client, tool: &str, args: &Value, asked: &Reply) -> Reply {
    let token = asked.data()["confirm_token"].clone();
    let extra = json!({"confirm_token": token, "yes": true});
    scene.call(line, "call_tool_destructive", &ask(tool, "destructive", args, extra))
}

/// What a person is shown, as one text.
fn shown(asked: &Reply) -> String {
    assert_eq!(asked.data()["status"], "confirmation_required", "{}", asked.text);
    let content = asked.data()["preview"]["shown"]["content"].as_array().unwrap();
    content.iter().map(|block| block["text"].as_str().unwrap()).collect()
}

#[test]
fn a_deployment_is_shown_agreed_to_once_and_recorded() {
    Way::each(&Way::ALL, |way| {
        let mut scene = scene(way, "router", CONFIG);
        scene.world.write("AGENTS.md", "mine\n");
        let line = scene.line(Host::None);
        let plan = read(&mut scene, &line, "plan", json!({}));
        assert_eq!(
            (&plan["command"], &plan["data"]["summary"]["create"]),
            (&json!("plan"), &json!(2)),
            "{plan:#}"
        );
        // Somebody else's file: nobody is asked before that is agreed to by name.
        let unadopted = first(&mut scene, &line, "deploy_apply", &json!({}));
        assert_eq!(unadopted.code(), Some("E_ADOPT_CONFIRM_REQUIRED"), "{}", unadopted.text);
        let details = &unadopted.result()["structuredContent"]["errors"][0]["details"];
        assert_eq!(
            (&details["reason_code"], &details["next_actions"], &details["adopt_updates"]),
            (&json!("adopt_confirm_required"), &json!(["retry_with_adopt"]), &json!(1))
        );
        let args = json!({"adopt": true});
        let asked = first(&mut scene, &line, "deploy_apply", &args);
        let seen = shown(&asked);
        assert!(
            seen.contains("-mine\n+be kind\n") && seen.contains("Plan: 2 to create, 1 to update"),
            "{seen}"
        );
        assert_eq!(
            asked.data()["preview"]["shown"]["structuredContent"]["data"]["changes"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        assert_eq!(scene.world.read("AGENTS.md"), "mine\n", "nothing changed yet");
        let applied = second(&mut scene, &line, "deploy_apply", &args, &asked);
        let envelope = &applied.result()["structuredContent"];
        assert_eq!(
            (&envelope["command"], &envelope["data"]["applied"]),
            (&json!("deploy"), &json!(true)),
            "{}",
            applied.text
        );
        assert_eq!(scene.world.read("AGENTS.md"), "be kind\n");
        let again = second(&mut scene, &line, "deploy_apply", &args, &asked);
        assert_eq!(again.code(), Some("E_CONFIRM_TOKEN_USED"), "{}", again.text);

        scene.world.write("AGENTS.md", "edited since\n");
        let to = json!({"to": "initial"});
        let asked = first(&mut scene, &line, "rollback", &to);
        assert!(shown(&asked).contains("-edited since\n+mine\n"), "{}", asked.text);
        let back = second(&mut scene, &line, "rollback", &to, &asked);
        assert_eq!(back.result()["structuredContent"]["data"]["rolled_back_to"], "initial", "{}", back.text);
        assert_eq!(scene.world.read("AGENTS.md"), "mine\n");
        let unknown = first(&mut scene, &line, "rollback", &json!({"to": "42"}));
        assert_eq!(unknown.code(), Some("E_SNAPSHOT_NOT_FOUND"), "{}", unknown.text);

        let rows = scene.rows();
        for tool in ["deploy_apply", "rollback"] {
            let of = |kind: &str, status: &str| {
                let like =
                    |row: &&Value| row["kind"] == kind && row["tool"] == tool && row["status"] == status;
                rows.iter().filter(like).count()
            };
            let calls = (of("call", "pending"), of("call", "allowed"), of("call", "success"));
            assert_eq!(calls, (1, 1, 1), "{tool}: {rows:#?}");
            assert_eq!(of("pack", "success"), 1, "{tool}: {rows:#?}");
        }
        scene.finish(vec![line]);
    });
}

#[test]
fn the_token_of_deploy_names_the_plan_that_was_looked_at() {
    let mut scene = scene(Way::StdioLegacy, "router", CONFIG);
    let line = scene.line(Host::None);
    let planned = read(&mut scene, &line, "deploy", json!({"profile": "default"}));
    let token = planned["data"]["confirm_token"].clone();
    assert_eq!(token.as_str().unwrap().len(), 64, "{planned:#}");
    assert_eq!(planned["data"]["confirm_plan_hash"].as_str().unwrap().len(), 64);
    assert!(planned["data"]["confirm_token_expires_at"].is_string());
    // As published: with `yes` and the token. A made-up token is refused before anybody is asked.
    for made_up in ["made-up".to_owned(), "0".repeat(64), "é".repeat(40)] {
        let refused =
            first(&mut scene, &line, "deploy_apply", &json!({"yes": true, "confirm_token": made_up}));
        assert!(refused.text.contains("E_CONFIRM_TOKEN_MISMATCH"), "{}", refused.text);
    }
    let args = json!({"yes": true, "confirm_token": token});
    let asked = first(&mut scene, &line, "deploy_apply", &args);
    shown(&asked);
    let module = scene.world.home().join(".agentpack/repo/modules/base/AGENTS.md");
    std::fs::write(&module, "changed since\n").unwrap();
    let drifted = second(&mut scene, &line, "deploy_apply", &args, &asked);
    assert!(drifted.is_refusal() && drifted.text.contains("E_CONFIRM_TOKEN_MISMATCH"), "{}", drifted.text);
    assert!(!scene.world.work().join("AGENTS.md").exists());
    // Without the pack's token the gateway's own protocol is enough, and stops in the same way.
    let asked = first(&mut scene, &line, "deploy_apply", &json!({}));
    std::fs::write(&module, "changed again\n").unwrap();
    let drifted = second(&mut scene, &line, "deploy_apply", &json!({}), &asked);
    assert_eq!(drifted.code(), Some("E_CONFIRM_TOKEN_MISMATCH"), "{}", drifted.text);
    assert!(drifted.text.contains("plan_drifted"), "{}", drifted.text);
    let no = first(&mut scene, &line, "deploy_apply", &json!({"yes": false}));
    assert_eq!(no.code(), Some("E_ARGUMENTS_INVALID"), "{}", no.text);
    scene.finish(vec![line]);
}

#[test]
fn edits_are_proposed_and_missing_files_restored_after_their_diff_was_shown() {
    let mut scene = scene(Way::StdioLegacy, "router", CONFIG);
    let line = scene.line(Host::None);
    let asked = first(&mut scene, &line, "deploy_apply", &json!({}));
    second(&mut scene, &line, "deploy_apply", &json!({}), &asked);
    let repo = scene.world.home().join(".agentpack/repo");
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["config", "user.name", "t"],
        &["config", "user.email", "t@example.com"],
        &["add", "."],
        &["commit", "-qm", "one"],
    ] {
        assert!(scene.world.command("git").current_dir(&repo).args(args).status().unwrap().success());
    }
    scene.world.write("AGENTS.md", "be kinder\n");
    std::fs::remove_file(scene.world.work().join(".claude/commands/go.md")).unwrap();

    let asked = first(&mut scene, &line, "evolve_restore", &json!({}));
    assert!(shown(&asked).contains("+description: goes\n"), "{}", asked.text);
    let restored = second(&mut scene, &line, "evolve_restore", &json!({}), &asked);
    assert_eq!(restored.result()["structuredContent"]["data"]["summary"]["restored"], 1, "{}", restored.text);

    let asked = first(&mut scene, &line, "evolve_propose", &json!({"branch": "evolve/kinder"}));
    assert!(shown(&asked).contains("-be kind\n+be kinder\n"), "{}", asked.text);
    let proposed = second(&mut scene, &line, "evolve_propose", &json!({"branch": "evolve/kinder"}), &asked);
    let data = &proposed.result()["structuredContent"]["data"];
    assert_eq!(
        (&data["created"], &data["branch"]),
        (&json!(true), &json!("evolve/kinder")),
        "{}",
        proposed.text
    );
    scene.finish(vec![line]);
}

/// The host's word, or a person's, is asked for where no rule says otherwise.
#[test]
fn without_a_rule_a_person_has_to_agree() {
    let config = "[gateway]\nmode = \"execute\"\n[upstreams.pack]\nkind = \"pack\"\n";
    let mut scene = scene(Way::StdioLegacy, "router", config);
    let line = scene.line(Host::None);
    for (tool, args) in
        [("deploy_apply", json!({})), ("evolve_propose", json!({})), ("evolve_restore", json!({}))]
    {
        let asked = first(&mut scene, &line, tool, &args);
        assert_eq!(asked.data()["confirm"]["kind"], "preview", "{}", asked.text);
        let early = second(&mut scene, &line, tool, &args, &asked);
        assert_eq!(early.code(), Some("E_APPROVAL_PENDING"), "{tool}: {}", early.text);
    }
    let asked = first(&mut scene, &line, "deploy_apply", &json!({}));
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    let sheet = scene.world.run(&["plans", "show", &plan]);
    assert!(sheet.stdout.contains("+be kind") && sheet.stdout.contains("Plan: 3 to create"), "{sheet}");
    assert!(sheet.stdout.contains("│ diff <room>/work/AGENTS.md"), "which file it is: {sheet}");
    // The list and the difference are the readable form of the envelope: one of the two is shown, and the other named.
    assert!(!sheet.stdout.contains("schema_version") && !sheet.stdout.contains("annotations"), "{sheet}");
    assert!(
        sheet.stdout.contains("what it says to programs is not repeated here: --json shows it"),
        "{sheet}"
    );
    let whole = scene.world.run(&["plans", "show", &plan, "--json"]).envelope();
    let envelope = &whole["data"]["plan"]["preview"]["shown"]["structuredContent"];
    assert_eq!(envelope["data"]["summary"]["create"], 3, "{whole:#}");
    scene.approve(&plan);
    let applied = second(&mut scene, &line, "deploy_apply", &json!({}), &asked);
    assert_eq!(applied.result()["structuredContent"]["data"]["applied"], true, "{}", applied.text);
    scene.finish(vec![line]);
}

#[test]
fn in_ask_and_plan_mode_nothing_changes() {
    let mut scene = scene(Way::StdioLegacy, "router", CONFIG);
    let line = scene.line(Host::None);
    let ask_mode = ask("deploy_apply", "destructive", &json!({}), json!({"mode": "ask"}));
    assert_eq!(scene.call(&line, "call_tool_destructive", &ask_mode).code(), Some("E_MODE_ASK"));
    let plan_mode = ask("deploy_apply", "destructive", &json!({}), json!({"mode": "plan"}));
    let preview = scene.call(&line, "call_tool_destructive", &plan_mode);
    assert!(preview.text.contains("+be kind"), "{}", preview.text);
    assert!(!scene.world.work().join("AGENTS.md").exists());
    assert!(!scene.world.home().join(".agentpack/state/snapshots").exists());
    scene.finish(vec![line]);
}

#[test]
fn on_the_direct_surface_the_tools_are_those_of_the_seed() {
    let mut scene = scene(Way::StdioLegacy, "direct", CONFIG);
    let line = scene.line(Host::None);
    let tools = line.tools();
    let names = [
        "plan",
        "diff",
        "preview",
        "status",
        "doctor",
        "deploy",
        "deploy_apply",
        "rollback",
        "evolve_propose",
        "evolve_restore",
        "explain",
    ];
    for name in names {
        let tool = tools
            .iter()
            .find(|tool| tool["name"] == format!("pack__{name}"))
            .unwrap_or_else(|| panic!("{name}"));
        let mut schema = tool["inputSchema"].clone();
        let ours = schema["properties"].as_object_mut().unwrap().remove("countersign");
        assert_eq!(ours.is_none(), tool["annotations"]["readOnlyHint"] == true, "{tool:#}");
        let definitions = countersign_pack::tools::definitions();
        let published = definitions.iter().find(|definition| definition["name"] == name).unwrap();
        assert_eq!(schema, published["inputSchema"], "{name}");
    }
    let asked = scene.call(&line, "pack__deploy_apply", "{}");
    let token = asked.data()["confirm_token"].as_str().unwrap();
    let again = json!({"countersign": {"confirm_token": token, "yes": true}}).to_string();
    let applied = scene.call(&line, "pack__deploy_apply", &again);
    assert_eq!(applied.result()["structuredContent"]["data"]["applied"], true, "{}", applied.text);
    scene.finish(vec![line]);
}

/// A change of several steps, asked for once, with the diff of each.
#[test]
fn a_plan_of_several_steps_deploys_too() {
    let mut scene = scene(Way::StdioLegacy, "router", CONFIG);
    let line = scene.line(Host::None);
    let step = |tool: &str, args: Value| json!({"name": format!("pack:{tool}"), "args": args, "intent": {"operation_type": "destructive"}});
    let draft = json!({"title": "deploy", "steps": [step("deploy_apply", json!({})), step("evolve_restore", json!({}))]});
    let asked = scene.call(&line, "draft_plan", &draft.to_string());
    assert!(asked.text.contains("+be kind"), "{}", asked.text);
    let run = json!({"plan_id": asked.data()["plan_id"], "confirm_token": asked.data()["confirm_token"], "yes": true});
    let ran = scene.call(&line, "run_plan", &run.to_string());
    assert_eq!(scene.world.read("AGENTS.md"), "be kind\n", "{}", ran.text);
    scene.finish(vec![line]);
}
