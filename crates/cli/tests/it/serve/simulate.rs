//! `policy simulate` over a ledger that a real gateway wrote: what would change, what can't be told, what is left out.

use serde_json::{Value, json};

use super::client::{Client, Host, Way};
use super::scene::Scene;

const CONFIG: &str = r#"[gateway]
mode = "execute"

[[rules]]
match = "notes:forbidden_note"
deny = "never"

[[rules]]
match = "notes:spend_note"
redact = ["amount"]
"#;

fn call(line: &Client, scene: &mut Scene, tool: &str, kind: &str, args: &str, extra: &str) {
    let arguments =
        format!(r#"{{"name":"notes:{tool}","args":{args},"intent":{{"operation_type":"{kind}"}}{extra}}}"#);
    scene.call(line, &format!("call_tool_{kind}"), &arguments);
}

/// A week in short: a read, a write that is held and run, one in ask mode, one in plan mode, one denied, one with a secret,
/// one that names no tool, and a plan of two steps.
fn week(scene: &mut Scene) -> Client {
    let line = scene.line(Host::None);
    call(&line, scene, "get_note", "read", r#"{"id":"a"}"#, "");
    let put = r#"{"name":"notes:put_note","args":{"id":"a","size":3},"intent":{"operation_type":"write"}"#;
    let asked = scene.call(&line, "call_tool_write", &format!("{put}}}"));
    let token = asked.data()["confirm_token"].as_str().unwrap();
    assert!(
        scene
            .call(&line, "call_tool_write", &format!(r#"{put},"confirm_token":"{token}","yes":true}}"#))
            .ran()
    );
    call(&line, scene, "save_note", "write", r#"{"id":"b"}"#, r#","mode":"ask""#);
    call(&line, scene, "save_note", "write", r#"{"id":"c"}"#, r#","mode":"plan""#);
    call(&line, scene, "forbidden_note", "write", r#"{"id":"d"}"#, "");
    call(&line, scene, "spend_note", "write", r#"{"id":"e","amount":12}"#, "");
    call(&line, scene, "no_such", "write", r#"{"id":"f"}"#, "");
    let step = |id: &str| {
        format!(
            r#"{{"name":"notes:sync_notes","args":{{"id":"{id}"}},"intent":{{"operation_type":"write"}}}}"#
        )
    };
    let draft = format!(r#"{{"title":"two","steps":[{},{}]}}"#, step("g"), step("h"));
    let asked = scene.call(&line, "draft_plan", &draft);
    let (plan, token) = (&asked.data()["plan_id"], &asked.data()["confirm_token"]);
    let run = json!({"plan_id": plan, "confirm_token": token, "yes": true}).to_string();
    assert_eq!(scene.call(&line, "run_plan", &run).data()["status"], "done");
    line
}

fn simulate(scene: &Scene, rules: &str) -> Value {
    scene.world.write("new.toml", rules);
    let said = scene.world.run(&["policy", "simulate", "--rules", "new.toml", "--since", "7d", "--json"]);
    assert_eq!(said.code, Some(0), "{said}");
    said.envelope()["data"].clone()
}

/// Tool, verdict and code before, verdict and code after.
fn changes(data: &Value) -> Vec<String> {
    let say = |decision: &Value| {
        let code = decision["code"].as_str().map(|code| format!(" {code}")).unwrap_or_default();
        format!("{}{code}", decision["verdict"].as_str().unwrap())
    };
    let mut all: Vec<String> = data["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            format!("{} {} > {}", one["tool"].as_str().unwrap(), say(&one["before"]), say(&one["after"]))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn simulating_says_every_decision_that_would_change() {
    let mut scene = Scene::open(Way::StdioLegacy, CONFIG);
    let line = week(&mut scene);
    let same = simulate(
        &scene,
        CONFIG.split_once("[[rules]]").map(|(_, rules)| format!("[[rules]]{rules}")).unwrap().as_str(),
    );
    assert_eq!(changes(&same), Vec::<String>::new());
    assert_eq!((&same["replayed"], &same["left_out"]), (&json!(8), &json!(1)), "{same}");

    // Nothing is denied any more, reads need a person, writes by size, syncing is over, and what is spent matters.
    let data = simulate(
        &scene,
        r#"
[[rules]]
match = "notes:get_*"
confirm = "preview"
strength = "human"
[[rules]]
match = "notes:put_note"
when = "args.size > 2"
strength = "human"
[[rules]]
match = "notes:sync_notes"
deny = "no more"
[[rules]]
match = "notes:save_note"
effect = "read"
[[rules]]
match = "notes:spend_note"
when = "args.amount > 10"
deny = "too dear"
"#,
    );
    assert_eq!(
        changes(&data),
        [
            "notes:forbidden_note refuse E_RULE_DENIED > hold",
            "notes:get_note go > hold",
            "notes:put_note hold > hold",
            "notes:save_note explain E_MODE_ASK > go",
            "notes:save_note preview > go",
            "notes:sync_notes hold > refuse E_RULE_DENIED",
            "notes:sync_notes hold > refuse E_RULE_DENIED",
        ]
    );
    let put = data["changes"].as_array().unwrap().iter().find(|one| one["tool"] == "notes:put_note").unwrap();
    assert_eq!((&put["before"]["strength"], &put["after"]["strength"]), (&json!("caller"), &json!("human")));
    assert_eq!(put["after"]["rule"], "new.toml:6");
    let blind = &data["undecidable"].as_array().unwrap()[..];
    assert_eq!(
        (blind.len(), &blind[0]["tool"], &blind[0]["redacted"]),
        (1, &json!("notes:spend_note"), &json!(["amount"]))
    );
    assert_eq!(blind[0]["rule"], "new.toml:16");
    let told = scene.world.run(&["policy", "simulate", "--rules", "new.toml"]).stdout;
    assert!(told.contains("notes:spend_note  can't be told"), "{told}");
    assert!(
        told.contains(
            "notes:sync_notes  waits for confirm simple, strength caller → is refused (E_RULE_DENIED)"
        ),
        "{told}"
    );
    assert!(told.ends_with("8 calls replayed: 7 decisions would change, 1 can't be told; 1 left out, which something else than rules decided\n"), "{told}");

    // A rule that looks elsewhere is no reason not to tell; nothing older than asked for is replayed.
    let elsewhere = simulate(
        &scene,
        "[[rules]]\nmatch = \"notes:spend_note\"\nwhen = \"args.id == 'e'\"\ndeny = \"no\"\n",
    );
    assert!(
        changes(&elsewhere).contains(&"notes:spend_note hold > refuse E_RULE_DENIED".to_owned()),
        "{elsewhere}"
    );
    // Paths are judged by their text: this one leads nowhere without a folder to begin in, and the notes have one.
    let paths = simulate(
        &scene,
        "[[rules]]\nmatch = \"notes:spend_note\"\nwhen = \"under(args.id, '.') && !args.id.under('/etc')\"\ndeny = \"no\"\n",
    );
    assert!(changes(&paths).contains(&"notes:spend_note hold > refuse E_RULE_DENIED".to_owned()), "{paths}");
    let none =
        scene.world.run(&["policy", "simulate", "--rules", "new.toml", "--since", "2030-01-01", "--json"]);
    assert_eq!(none.envelope()["data"]["replayed"], 0);

    // Mistakes in the new rules are said where they stand.
    scene.world.write("new.toml", "[[rules]]\nmatch = \"notes:*\"\nconfrim = \"type\"\n");
    let wrong = scene.world.run(&["policy", "simulate", "--rules", "new.toml"]);
    assert_eq!(wrong.code, Some(3), "{wrong}");
    assert!(wrong.stderr.contains("new.toml:3:1") && wrong.stderr.contains("confirm"), "{wrong}");
    scene.finish(vec![line]);
}
