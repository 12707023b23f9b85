//! Plans whose steps depend on each other: a step that can't be previewed before an earlier one has run is drafted with a mark, judged
//! and previewed when it is reached, and asked for again where a person has to see its preview.

use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::desk::person;
use super::scene::Scene;

const EXECUTE: &str = "[gateway]\nmode = \"execute\"\n";
/// The dry run of `sync_notes` works once `put_note` was called.
const DEPENDS: &str = r#"{"after":"put_note"}"#;

fn seen(strength: &str) -> String {
    format!(
        "{EXECUTE}[[rules]]\nmatch = \"notes:sync_notes\"\nconfirm = \"preview\"\nstrength = \"{strength}\"\n"
    )
}

fn step(tool: &str, id: &str) -> Value {
    let operation = if tool == "get_note" { "read" } else { "write" };
    json!({"name": format!("notes:{tool}"), "args": {"id": id}, "intent": {"operation_type": operation}})
}

fn draft(steps: &[Value]) -> String {
    json!({"title": "make, then edit", "steps": steps}).to_string()
}

fn made_then_edited() -> String {
    draft(&[step("put_note", "a"), step("sync_notes", "a"), step("save_note", "b")])
}

fn run_of(asked: &Reply) -> String {
    let field = |name: &str| asked.data()[name].clone();
    json!({"plan_id": field("plan_id"), "confirm_token": field("confirm_token"), "yes": true}).to_string()
}

fn states(steps: &Value) -> Vec<&str> {
    steps.as_array().unwrap().iter().map(|step| step["state"].as_str().unwrap()).collect()
}

/// Calls of the upstream that changed something.
fn changes(scene: &mut Scene) -> Vec<String> {
    let reached = scene.reached().into_iter();
    reached.filter(|(_, arguments)| arguments["dry_run"] != true).map(|(tool, _)| tool).collect()
}

fn open(way: Way, config: &str) -> (Scene, Client) {
    let mut scene = Scene::open(way, config);
    scene.state(DEPENDS);
    let line = scene.line(Host::None);
    (scene, line)
}

#[test]
fn a_step_that_needs_an_earlier_one_is_marked_and_runs_when_reached() {
    Way::each(&Way::ALL, |way| {
        let (mut scene, line) = open(way, EXECUTE);
        let asked = scene.call(&line, "draft_plan", &made_then_edited());
        let shown = &asked.data()["preview"]["shown"]["steps"];
        assert_eq!(shown[0]["previewed"], "computed", "{}", asked.text);
        assert_eq!(shown[1]["previewed"], "when_reached", "{}", asked.text);
        assert_eq!(shown[1]["arguments"], json!({"id": "a", "dry_run": false}), "{}", asked.text);
        let text = asked.result()["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("step 2 is previewed when reached"), "{text}");
        let plan = asked.data()["plan_id"].as_str().unwrap();
        let sheet = scene.world.run(&["plans", "show", plan]);
        assert!(sheet.stdout.contains("previewed when reached"), "{sheet}");
        let steps = &scene.world.run(&["plans", "show", plan, "--json"]).envelope()["data"]["plan"]["steps"];
        assert_eq!(steps[1]["preview"]["source"], "when_reached", "{steps}");
        assert_eq!(changes(&mut scene), Vec::<String>::new());
        let ran = scene.call(&line, "run_plan", &run_of(&asked));
        assert_eq!(states(&ran.data()["steps"]), ["done", "done", "done"], "{}", ran.text);
        let reached = scene.reached();
        let dry: Vec<(&str, bool)> =
            reached.iter().map(|(tool, given)| (tool.as_str(), given["dry_run"] == true)).collect();
        let expect = [("put_note", false), ("sync_notes", true), ("sync_notes", false), ("save_note", false)];
        assert_eq!(dry, expect);
        scene.finish(vec![line]);
    });
}

#[test]
fn a_failed_preview_without_a_write_before_it_refuses_the_plan() {
    let (mut scene, line) = open(Way::StdioLegacy, EXECUTE);
    for steps in [vec![step("sync_notes", "a")], vec![step("get_note", "a"), step("sync_notes", "a")]] {
        let last = steps.len();
        let refused = scene.call(&line, "draft_plan", &draft(&steps));
        assert_eq!(refused.code(), Some("E_PREVIEW_FAILED"), "{}", refused.text);
        let envelope = refused.envelope().unwrap();
        assert_eq!(envelope["errors"][0]["details"]["step"], last, "{envelope}");
        assert!(!refused.text.contains("confirm_token"), "{}", refused.text);
    }
    let status = scene.call(&line, "get_status", "{}");
    assert_eq!(status.data()["pending_plans"], json!([]), "{}", status.text);
    scene.finish(vec![line]);
}

#[test]
fn a_preview_that_nobody_made_is_no_reason_to_wait_for_an_earlier_step() {
    let config = format!(
        "{EXECUTE}[[rules]]\nmatch = \"notes:sync_notes\"\npreview = {{ run = [\"/no/such/program\"] }}\n"
    );
    let (mut scene, line) = open(Way::StdioLegacy, &config);
    let refused = scene.call(&line, "draft_plan", &made_then_edited());
    assert_eq!(refused.code(), Some("E_PREVIEW_FAILED"), "{}", refused.text);
    scene.finish(vec![line]);
}

#[test]
fn attack_a_preview_that_fails_on_purpose_lets_nothing_run_that_has_to_be_seen() {
    Way::each(&Way::ALL, |way| {
        let (mut scene, line) = open(way, &seen("caller"));
        let asked = scene.call(&line, "draft_plan", &made_then_edited());
        assert_eq!(asked.data()["confirm"]["kind"], "preview", "{}", asked.text);
        // What it shows once it is reached is more than anyone has agreed to.
        scene.state(r#"{"after":"put_note","preview":"9000 notes would be erased"}"#);
        let stopped = scene.call(&line, "run_plan", &run_of(&asked));
        assert_eq!(changes(&mut scene), ["put_note"], "{}", stopped.text);
        assert_eq!(stopped.data()["status"], "confirmation_required", "{}", stopped.text);
        assert_eq!(stopped.data()["continues"], asked.data()["plan_id"]);
        assert_ne!(stopped.data()["plan_id"], asked.data()["plan_id"]);
        assert_eq!(states(&stopped.data()["ran_steps"]), ["done", "not_run", "not_run"]);
        let text = stopped.result()["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("9000 notes would be erased") && text.contains("Ran before it: ["), "{text}");
        let old = asked.data()["plan_id"].as_str().unwrap();
        let old = scene.world.run(&["plans", "show", old, "--json"]).envelope()["data"]["plan"].take();
        assert_eq!((&old["state"], &old["code"]), (&json!("failed"), &json!("E_CONFIRM_REQUIRED")), "{old}");
        assert_eq!(old["result"]["next_plan_id"], stopped.data()["plan_id"]);
        // The token of the first is spent, and that of the second fits nothing but what is shown.
        let again = scene.call(&line, "run_plan", &run_of(&asked));
        assert_eq!(again.code(), Some("E_CONFIRM_TOKEN_USED"), "{}", again.text);
        scene.state(r#"{"preview":"all notes would be erased"}"#);
        let drifted = scene.call(&line, "run_plan", &run_of(&stopped));
        assert_eq!(drifted.code(), Some("E_CONFIRM_TOKEN_MISMATCH"), "{}", drifted.text);
        assert_eq!(changes(&mut scene), Vec::<String>::new());
        scene.state(r#"{"preview":"9000 notes would be erased"}"#);
        let ran = scene.call(&line, "run_plan", &run_of(&stopped));
        assert_eq!(states(&ran.data()["steps"]), ["done", "done"], "{}", ran.text);
        assert_eq!(changes(&mut scene), ["sync_notes", "save_note"]);
        scene.finish(vec![line]);
    });
}

#[test]
fn attack_a_marked_step_escapes_no_rule_that_holds_when_it_is_reached() {
    let rules = [
        ("deny = \"no\"", "E_RULE_DENIED"),
        ("role = \"human\"", "E_ROLE_FORBIDDEN"),
        ("confirm = \"preview\"", "E_CONFIRM_TOKEN_MISMATCH"),
        ("effect = \"destructive\"", "E_INTENT_SERVER_MISMATCH"),
    ];
    for (rule, code) in rules {
        let mut scene = Scene::open(Way::StdioLegacy, EXECUTE);
        scene.state(r#"{"after":"slow_note"}"#);
        let line = scene.line(Host::None);
        let steps = [step("slow_note", "a"), step("sync_notes", "a"), step("save_note", "b")];
        let asked = scene.call(&line, "draft_plan", &draft(&steps));
        let run = run_of(&asked);
        // The rule comes while the first step runs.
        let ran = std::thread::scope(|scope| {
            let running = scope.spawn(|| line.call("run_plan", &run));
            while scene.reached().iter().all(|(tool, _)| tool != "slow_note") {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            scene.reconfigure(&format!("{EXECUTE}[[rules]]\nmatch = \"notes:sync_notes\"\n{rule}\n"));
            scene.state(r#"{"go":true}"#);
            running.join().unwrap()
        });
        let ran = scene.heed(ran);
        assert_eq!(states(&ran.data()["steps"]), ["done", "failed", "not_run"], "{rule}: {}", ran.text);
        assert!(
            ran.data()["steps"][1]["result"].to_string().contains(code) || code == "E_ROLE_FORBIDDEN",
            "{}",
            ran.text
        );
        assert!(scene.rows().iter().any(|row| row["code"] == code && row["tool"] == "sync_notes"), "{rule}");
        assert!(scene.reached().is_empty(), "{rule}: not even a dry run");
        scene.finish(vec![line]);
    }
}

#[test]
fn attack_a_preview_that_forbids_a_step_stops_it_though_a_yes_was_enough() {
    let (mut scene, line) = open(Way::StdioLegacy, EXECUTE);
    let asked = scene.call(&line, "draft_plan", &made_then_edited());
    scene.state(r#"{"preview":"BLOCK: the notebook is closed"}"#);
    let ran = scene.call(&line, "run_plan", &run_of(&asked));
    assert_eq!(states(&ran.data()["steps"]), ["done", "failed", "not_run"], "{}", ran.text);
    assert_eq!(changes(&mut scene), ["put_note"]);
    scene.finish(vec![line]);
}

#[test]
fn a_preview_that_still_fails_when_reached_fails_the_step() {
    let (mut scene, line) = open(Way::StdioLegacy, EXECUTE);
    let asked = scene.call(&line, "draft_plan", &made_then_edited());
    scene.state(r#"{"preview":"fail"}"#);
    let ran = scene.call(&line, "run_plan", &run_of(&asked));
    assert_eq!(states(&ran.data()["steps"]), ["done", "failed", "not_run"], "{}", ran.text);
    assert_eq!(changes(&mut scene), ["put_note"]);
    assert!(scene.rows().iter().any(|row| row["code"] == "E_PREVIEW_FAILED"));
    scene.finish(vec![line]);
}

#[test]
fn attack_what_must_not_be_shown_of_a_marked_step_is_shown_nowhere() {
    let config = format!("{}redact = [\"id\"]\n", seen("human"));
    let (mut scene, line) = open(Way::HttpLegacy, &config);
    let secret = "hunter2-of-the-marked-step";
    let steps = draft(&[step("put_note", "a"), step("sync_notes", secret)]);
    let asked = scene.call(&line, "draft_plan", &steps);
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    assert!(!asked.text.contains(secret), "{}", asked.text);
    scene.approve(&plan);
    let stopped = scene.call(&line, "run_plan", &run_of(&asked));
    assert!(!stopped.text.contains(secret), "{}", stopped.text);
    let next = stopped.data()["plan_id"].as_str().unwrap();
    for shown in [
        scene.world.run(&["plans", "show", &plan]).stdout,
        scene.world.run(&["plans", "show", next, "--json"]).stdout,
        json!(scene.rows()).to_string(),
    ] {
        assert!(!shown.contains(secret), "{shown}");
    }
    scene.finish(vec![line]);
}

#[test]
fn a_plan_run_from_the_desk_stops_there_too_and_gives_no_token_away() {
    let (mut scene, line) = open(Way::HttpLegacy, &seen("human"));
    let ada = person(&scene);
    let asked = scene.call(&line, "draft_plan", &made_then_edited());
    let plan = asked.data()["plan_id"].as_str().unwrap().to_owned();
    let done = ada.data("POST", &format!("/plans/{plan}/approve"), json!({"run": true}));
    assert!(!done.to_string().contains("confirm_token"), "{done}");
    assert_eq!(changes(&mut scene), ["put_note"], "{done}");
    let next = done["plan"]["result"]["next_plan_id"].as_str().unwrap().to_owned();
    let shown = ada.data("GET", &format!("/plans/{next}"), Value::Null)["plan"].take();
    assert_eq!(
        (&shown["state"], shown["steps"].as_array().unwrap().len()),
        (&json!("pending"), 2),
        "{shown}"
    );
    assert_eq!(shown["preview"]["shown"]["continues"], plan.as_str());
    assert_eq!(shown["steps"][0]["preview"]["source"], "argument", "{shown}");
    // The agent gets a token of its own for it by drafting what is left.
    let rest = draft(&[step("sync_notes", "a"), step("save_note", "b")]);
    let joined = scene.call(&line, "draft_plan", &rest);
    assert_eq!(joined.data()["plan_id"], next.as_str(), "{}", joined.text);
    ada.data("POST", &format!("/plans/{next}/approve"), json!({}));
    let ran = scene.call(&line, "run_plan", &run_of(&joined));
    assert_eq!(states(&ran.data()["steps"]), ["done", "done"], "{}", ran.text);
    scene.finish(vec![line]);
}

#[test]
fn a_host_that_asks_in_a_dialog_is_asked_again_with_the_preview() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, &seen("host"));
        scene.state(DEPENDS);
        let line = scene.line(Host::Accepts);
        let ran = scene.call(&line, "draft_plan", &made_then_edited());
        let questions: Vec<String> =
            line.asked.lock().unwrap().iter().map(|one| one["params"]["message"].to_string()).collect();
        assert_eq!(questions.len(), 2, "{way:?} {questions:?}");
        assert!(questions[0].contains("previewed when reached"), "{}", questions[0]);
        assert!(questions[1].contains("2 notes would change"), "{}", questions[1]);
        assert_eq!(states(&ran.data()["ran_steps"]), ["done", "not_run", "not_run"], "{}", ran.text);
        assert_eq!(states(&ran.data()["steps"]), ["done", "done"], "{}", ran.text);
        assert_eq!(changes(&mut scene), ["put_note", "sync_notes", "save_note"]);
        scene.finish(vec![line]);
    });
}

#[test]
fn a_marked_step_whose_earlier_step_was_taken_out_does_not_run() {
    let (mut scene, line) = open(Way::HttpLegacy, EXECUTE);
    let ada = person(&scene);
    let asked = scene.call(&line, "draft_plan", &made_then_edited());
    let plan = asked.data()["plan_id"].as_str().unwrap();
    ada.data("POST", &format!("/plans/{plan}/steps"), json!({"remove": [1]}));
    let ran = scene.call(&line, "run_plan", &run_of(&asked));
    assert_eq!(states(&ran.data()["steps"]), ["failed", "not_run"], "{}", ran.text);
    assert_eq!(changes(&mut scene), Vec::<String>::new());
    scene.finish(vec![line]);
}

#[test]
fn in_plan_mode_the_mark_is_shown_and_nothing_is_kept() {
    let (mut scene, line) = open(Way::StdioLegacy, "[gateway]\nmode = \"plan\"\n");
    let shown = scene.call(&line, "draft_plan", &made_then_edited());
    assert_eq!(shown.data()["preview"]["steps"][1]["previewed"], "when_reached", "{}", shown.text);
    let text = shown.result()["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("step 2 is previewed when reached"), "{text}");
    assert!(!shown.text.contains("confirm_token"), "{}", shown.text);
    scene.finish(vec![line]);
}

/// Command tools that make a file and look into it. The look knows of a file that an earlier step would make, and of nothing else.
fn files(confirm: &str) -> String {
    format!(
        r#"{EXECUTE}[confirm]
strength = {{ write = "caller", destructive = "caller" }}
[upstreams.files]
[[upstreams.files.tools]]
name = "make"
description = "Make a file"
effect = "write"
run = ["touch", "{{name}}"]
input = {{ name = {{ type = "string" }} }}
[[upstreams.files.tools]]
name = "seal"
description = "Seal a file"
effect = "write"
confirm = "{confirm}"
run = ["chmod", "400", "{{name}}"]
preview = ["sh", "./look", "{{name}}"]
input = {{ name = {{ type = "string" }} }}
"#
    )
}

const LOOK: &str = r#"case "$COUNTERSIGN_EARLIER_STEPS" in *'"name":"'"$1"'"'*) echo "seals $1, 0 bytes"; exit 0;; esac
[ -f "$1" ] || { echo "no file $1" >&2; exit 1; }
echo "seals $1, $(wc -c < "$1" | tr -d ' ') bytes"
"#;

fn file_steps(made: &str, sealed: &str) -> String {
    let step = |tool: &str, name: &str| json!({"name": format!("files:{tool}"), "args": {"name": name}, "intent": {"operation_type": "write"}});
    draft(&[step("make", made), step("seal", sealed)])
}

#[test]
fn a_command_that_knows_of_earlier_steps_previews_at_once_and_runs_unasked_if_it_was_right() {
    for (confirm, grows) in [("preview", false), ("preview", true), ("simple", true)] {
        let mut scene = Scene::open(Way::StdioLegacy, &files(confirm));
        scene.world.write("look", LOOK);
        let line = scene.line(Host::None);
        let asked = scene.call(&line, "draft_plan", &file_steps("a.txt", "a.txt"));
        let shown = &asked.data()["preview"]["shown"]["steps"][1];
        assert_eq!(shown["previewed"], "chained", "{}", asked.text);
        let text = asked.result()["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("step 2: seals a.txt, 0 bytes"), "{text}");
        let plan = asked.data()["plan_id"].as_str().unwrap();
        let sheet = scene.world.run(&["plans", "show", plan]);
        assert!(sheet.stdout.contains("knows of the steps above"), "{sheet}");
        // A file that is there already and longer is not what was shown.
        if grows {
            scene.world.write("a.txt", "not empty");
        }
        let ran = scene.call(&line, "run_plan", &run_of(&asked));
        if grows {
            assert_eq!(states(&ran.data()["ran_steps"]), ["done", "not_run"], "{confirm}: {}", ran.text);
            assert_eq!(ran.data()["status"], "confirmation_required", "{confirm}: {}", ran.text);
            assert!(ran.text.contains("seals a.txt, 9 bytes"), "{}", ran.text);
        } else {
            assert_eq!(states(&ran.data()["steps"]), ["done", "done"], "{}", ran.text);
        }
        scene.finish(vec![line]);
    }
}

#[test]
fn a_command_that_earlier_steps_do_not_help_leaves_the_step_for_when_it_is_reached() {
    let mut scene = Scene::open(Way::StdioLegacy, &files("simple"));
    scene.world.write("look", LOOK);
    let line = scene.line(Host::None);
    let asked = scene.call(&line, "draft_plan", &file_steps("a.txt", "b.txt"));
    assert_eq!(asked.data()["preview"]["shown"]["steps"][1]["previewed"], "when_reached", "{}", asked.text);
    let ran = scene.call(&line, "run_plan", &run_of(&asked));
    assert_eq!(states(&ran.data()["steps"]), ["done", "failed"], "{}", ran.text);
    scene.finish(vec![line]);
}
