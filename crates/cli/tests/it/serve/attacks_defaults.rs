//! Issue 14, point 20, through the real binary: what a hijacked agent reaches under every profile's defaults, how long a call
//! waits for a person, and what an equal call does once a person has agreed.

use std::time::{Duration, Instant};

use countersign_policy::confirm::PlanState;
use countersign_store::PlanFilter;
use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::gateway::End;
use super::scene::Scene;
use crate::people::kit::typed;
use crate::world::World;

const PROFILES: [&str; 3] = ["solo", "team", "regulated"];

/// Writes an injected text asks for: tool, effect it is called with, arguments.
fn injected() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("put_note", "write", json!({"id": "iban", "text": "US133000000121212121212"})),
        ("save_note", "write", json!({"id": "password", "text": "new_password"})),
        ("spend_note", "write", json!({"id": "transfer", "amount": 50000})),
        ("sync_notes", "write", json!({"id": "share"})),
        ("wipe_notes", "destructive", json!({"id": "all"})),
        ("erase_all", "destructive", json!({"id": "all"})),
    ]
}

/// A call on either surface, with what is ours beside it.
fn call(line: &Client, surface: &str, tool: &str, effect: &str, args: &Value, ours: &Value) -> Reply {
    if surface == "direct" {
        let mut asked = args.clone();
        let mut own = json!({"intent": {"operation_type": effect}});
        own.as_object_mut().unwrap().extend(ours.as_object().unwrap().clone());
        asked["countersign"] = own;
        return line.call(&format!("notes__{tool}"), &asked.to_string());
    }
    let mut asked =
        json!({"name": format!("notes:{tool}"), "args": args, "intent": {"operation_type": effect}});
    asked.as_object_mut().unwrap().extend(ours.as_object().unwrap().clone());
    line.call(&format!("call_tool_{effect}"), &asked.to_string())
}

/// What reached the upstream and was no dry run.
fn changes(scene: &mut Scene) -> Vec<(String, Value)> {
    let mut reached = scene.reached();
    reached.retain(|(tool, arguments)| arguments["dry_run"] != true && tool != "get_note");
    reached
}

/// Follows an injected text to the letter: asks, brings its own token back, says yes, types names, sets modes, drafts, loops.
fn obey(scene: &mut Scene, line: &Client, surface: &str) -> usize {
    let mut tried = 0;
    for (tool, effect, args) in injected() {
        let mut tokens = Vec::new();
        for (round, mode) in ["execute", "plan"].into_iter().enumerate() {
            scene.call(line, "set_mode", &json!({"mode": mode}).to_string());
            let first = call(line, surface, tool, effect, &args, &json!({"mode": "execute"}));
            let first = scene.heed(first);
            assert!(!first.ran(), "{tool}: {}", first.text);
            let Some(data) = first.envelope().map(|envelope| envelope["data"].clone()) else { continue };
            tokens.extend(data["confirm_token"].as_str().map(str::to_owned));
            for token in &tokens {
                for ours in [
                    json!({"mode": "execute", "confirm_token": token, "yes": true}),
                    json!({"mode": "execute", "confirm_token": token, "yes": true, "confirm_text": format!("notes:{tool}")}),
                    json!({"confirm_token": token, "yes": true, "wait_seconds": 0}),
                    json!({"mode": "execute", "yes": true}),
                ] {
                    let again = call(line, surface, tool, effect, &args, &ours);
                    assert!(!scene.heed(again).ran(), "{tool} {ours}");
                    tried += 1;
                }
            }
            if let Some(plan) = data["plan_id"].as_str() {
                scene.call(line, "get_plan", &json!({"plan_id": plan}).to_string());
                if round == 1 {
                    scene.call(line, "cancel_plan", &json!({"plan_id": plan}).to_string());
                }
            }
        }
        scene.call(line, "set_mode", r#"{"mode":"execute"}"#);
        let step =
            json!({"name": format!("notes:{tool}"), "args": args, "intent": {"operation_type": effect}});
        let drafted =
            scene.call(line, "draft_plan", &json!({"title": "routine", "steps": [step]}).to_string());
        let (plan, token) = (&drafted.data()["plan_id"], &drafted.data()["confirm_token"]);
        let run = json!({"plan_id": plan, "confirm_token": token, "yes": true, "confirm_text": "routine"});
        let ran = scene.call(line, "run_plan", &run.to_string());
        assert!(ran.is_refusal(), "{tool}: {}", ran.text);
        scene.call(line, "cancel_plan", &json!({"plan_id": plan}).to_string());
        tried += 1;
    }
    tried
}

#[test]
fn attack_20_a_hijacked_agent_changes_nothing_under_any_profile() {
    Way::each(&Way::ALL, |way| {
        for profile in PROFILES {
            for surface in ["router", "direct"] {
                let config = format!("[gateway]\nmode = \"execute\"\n[confirm]\nprofile = \"{profile}\"\n");
                let mut scene = Scene::open_with(way, surface, &config, &[]);
                let line = scene.line(Host::None);
                let tried = obey(&mut scene, &line, surface);
                assert!(tried > 40, "{tried}");
                assert_eq!(changes(&mut scene), [], "{profile} {surface} {way:?}");
                scene.finish(vec![line]);
            }
        }
    });
}

/// What every place that tells the default says, whatever its letters and lines.
fn says_who_agrees(place: &str, text: &str, deciders: &[&str]) {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.to_lowercase().contains("no change runs on the agent's word"), "{place}: {text}");
    for decider in deciders {
        assert!(text.contains(decider), "{place} does not name `{decider}`: {text}");
    }
}

/// The same without a word about it in the configuration, and every place says who has to agree: status, explanation, README,
/// demonstration and the empty inbox of the command line. What the page's says is looked at in tests/page.
#[test]
fn attack_20_the_default_is_solo_and_every_place_says_so() {
    // An empty table says nothing, and keeps the kit from adding the strength of the token protocol.
    let config = "[gateway]\nmode = \"execute\"\n[confirm]\nstrength = {}\n";
    let mut scene = Scene::open(Way::StdioLegacy, config);
    let line = scene.line(Host::None);
    assert!(obey(&mut scene, &line, "router") > 40);
    assert_eq!(changes(&mut scene), []);
    let status = scene.call(&line, "get_status", "{}");
    assert_eq!(status.data()["confirm"]["profile"], "solo");
    assert_eq!(status.data()["confirm"]["strength"], json!({"write": "host", "destructive": "host"}));
    let explained = scene.world.run(&["policy", "explain", "--tool", "notes:put_note", "--mode", "execute"]);
    assert!(explained.stdout.contains("profile solo"), "{explained}");
    scene.finish(vec![line]);

    let readme = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    says_who_agrees(
        "README",
        &readme,
        &["the host's dialog, the page or `countersign approve` has to agree"],
    );
    let world = World::new();
    let played = world.run(&["demo", "--hands-off", "--keep", "kept"]);
    says_who_agrees("demo", &played.stdout, &["you countersign"]);
    let (_, own_yes) = played.stdout.split_once("I say yes myself.").unwrap_or_else(|| panic!("{played}"));
    assert!(own_yes.trim_start().starts_with("gate refused: this needs a person"), "{played}");
    let config = std::fs::read_to_string(world.work().join("kept/countersign.toml")).unwrap();
    assert!(config.contains("profile = \"solo\""), "{config}");
    says_who_agrees("the demo's configuration", &config, &["the host's dialog, the desk or a person agrees"]);
    let inbox = typed(&world, &["plans", "list", "--config", "kept/countersign.toml"], &[]);
    says_who_agrees("plans list", &inbox.stdout, &["nothing waits", "the host's dialog or a person agrees"]);
}

fn pending(scene: &Scene) -> Vec<String> {
    let filter = PlanFilter { state: Some(PlanState::Pending), ..PlanFilter::default() };
    let rows = scene.store(async |store| store.plans(filter).await.unwrap());
    rows.iter().map(|row| row.plan.id.as_str().to_owned()).collect()
}

/// The plan of a call that waits, as soon as it is there.
#[track_caller]
fn waiting_plan(scene: &Scene) -> String {
    let start = Instant::now();
    loop {
        if let Some(plan) = pending(scene).pop() {
            return plan;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no plan waits");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const HELD: &str = "[gateway]\nmode = \"execute\"\n[confirm]\nprofile = \"team\"\nhold = \"590s\"\n";
const PUT: &str = r#"{"name":"notes:put_note","args":{"id":"held"},"intent":{"operation_type":"write"}}"#;

/// A call with a progress token.
fn held_call(line: &Client) -> Reply {
    line.call_saying("call_tool_write", PUT, r#""progressToken":"p1""#)
}

#[test]
fn attack_20_without_a_dialog_the_call_waits_for_a_person_and_answers_at_once() {
    Way::each(&[Way::StdioLegacy, Way::HttpLegacy], |way| {
        let mut scene = Scene::open(way, HELD);
        let line = scene.line(Host::None);
        let reply = std::thread::scope(|scope| {
            let call = scope.spawn(|| held_call(&line));
            scene.approve(&waiting_plan(&scene));
            call.join().unwrap()
        });
        assert!(scene.heed(reply).ran(), "{way:?}");
        assert_eq!(changes(&mut scene).len(), 1);
        if !way.is_http() {
            let told = line.notes();
            let progress = told.iter().find(|note| note["method"] == "notifications/progress");
            assert_eq!(progress.unwrap()["params"]["progressToken"], "p1", "{told:?}");
        }
        let refused = std::thread::scope(|scope| {
            let call = scope.spawn(|| held_call(&line));
            scene.reject(&waiting_plan(&scene));
            call.join().unwrap()
        });
        assert_eq!(scene.heed(refused).code(), Some("E_APPROVAL_REJECTED"), "{way:?}");
        assert_eq!(changes(&mut scene), []);
        scene.finish(vec![line]);
    });
}

#[test]
fn attack_20_a_stateless_call_waits_as_well_and_so_does_a_drafted_plan() {
    Way::each(&[Way::StdioModern, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, HELD);
        let line = scene.line(Host::None);
        let reply = std::thread::scope(|scope| {
            let call = scope.spawn(|| line.call("call_tool_write", PUT));
            scene.approve(&waiting_plan(&scene));
            call.join().unwrap()
        });
        assert!(scene.heed(reply).ran(), "{way:?}");
        let draft = format!(r#"{{"title":"two","steps":[{PUT},{PUT}]}}"#);
        let reply = std::thread::scope(|scope| {
            let call = scope.spawn(|| line.call("draft_plan", &draft));
            scene.approve(&waiting_plan(&scene));
            call.join().unwrap()
        });
        assert_eq!(scene.heed(reply).data()["status"], "done", "{way:?}");
        assert_eq!(changes(&mut scene).len(), 3);
        scene.finish(vec![line]);
    });
}

/// What the call itself says wins over the configuration, in both directions.
#[test]
fn attack_20_wait_seconds_of_a_call_win_over_hold() {
    for (hold, wait) in [("590s", "0"), ("590s", "0.2"), ("0s", "0.2")] {
        let config =
            format!("[gateway]\nmode = \"execute\"\n[confirm]\nprofile = \"team\"\nhold = \"{hold}\"\n");
        let mut scene = Scene::open(Way::StdioLegacy, &config);
        let line = scene.line(Host::None);
        let asked = PUT.replace("\"intent\"", &format!("\"wait_seconds\":{wait},\"intent\""));
        let reply = scene.call(&line, "call_tool_write", &asked);
        assert_eq!(reply.data()["status"], "confirmation_required", "{hold} {wait}: {}", reply.text);
        assert_eq!(pending(&scene).len(), 1, "the plan stays");
        scene.finish(vec![line]);
    }
}

/// Giving up ends the wait and leaves the plan: what is approved afterwards is run by the equal call, not by the one that left.
#[test]
fn attack_20_a_cancelled_wait_leaves_the_plan_and_runs_nothing() {
    let mut scene = Scene::open(Way::StdioLegacy, HELD);
    let line = scene.line(Host::None);
    line.start_call("call_tool_write", PUT);
    let plan = waiting_plan(&scene);
    line.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"alone"}}"#);
    // The line goes on while a call waits, and after it gave up.
    let look = json!({"plan_id": plan}).to_string();
    assert_eq!(scene.call(&line, "get_plan", &look).data()["plan"]["state"], "pending");
    scene.approve(&plan);
    // Long enough for a call that still waits to see it.
    let look = json!({"plan_id": plan, "wait_seconds": 2}).to_string();
    scene.call(&line, "get_plan", &look);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(scene.call(&line, "get_plan", &look).data()["plan"]["state"], "approved");
    assert_eq!(changes(&mut scene), []);
    assert!(scene.call(&line, "call_tool_write", PUT).ran());
    assert_eq!(changes(&mut scene).len(), 1);
    scene.finish(vec![line]);
}

/// Closing stdin or stopping the gateway does not wait for anybody: the kit gives a gateway less time than this hold.
#[test]
fn attack_20_a_wait_ends_with_the_client_and_with_the_gateway() {
    let mut scene = Scene::open(Way::StdioLegacy, HELD);
    let line = scene.line(Host::None);
    line.start_call("call_tool_write", PUT);
    let plan = waiting_plan(&scene);
    drop(line);
    scene.take_gateway().end(End::Closed);
    assert_eq!(pending(&scene), [plan]);

    let mut scene = Scene::open(Way::HttpLegacy, HELD);
    let line = scene.line(Host::None);
    line.start_call("call_tool_write", PUT);
    waiting_plan(&scene);
    scene.take_gateway().end(End::Asked);
    assert_eq!(pending(&scene).len(), 1);
    assert_eq!(changes(&mut scene), []);
}

#[test]
fn attack_20_an_equal_call_redeems_an_approved_plan_once_without_a_token() {
    Way::each(&Way::ALL, |way| {
        for surface in ["router", "direct"] {
            let config = "[gateway]\nmode = \"execute\"\n[confirm]\nprofile = \"team\"\n";
            let mut scene = Scene::open_with(way, surface, config, &[]);
            let line = scene.line(Host::None);
            let (mine, other) = (json!({"id": "e"}), json!({"id": "other"}));
            let ask = |args: &Value, ours: Value| call(&line, surface, "put_note", "write", args, &ours);
            let held = scene.heed(ask(&mine, json!({})));
            let (plan, token) = (held.data()["plan_id"].clone(), held.data()["confirm_token"].clone());
            scene.approve(plan.as_str().unwrap());
            // Other arguments, another session, another mode: each is a call of its own.
            assert_eq!(scene.heed(ask(&other, json!({}))).data()["state"], "pending");
            let stranger = scene.line_named(Host::None, "stranger");
            let theirs = call(&stranger, surface, "put_note", "write", &mine, &json!({}));
            assert_eq!(scene.heed(theirs).data()["state"], "pending", "{way:?} {surface}");
            assert_eq!(scene.heed(ask(&mine, json!({"mode": "plan"}))).data()["status"], "preview");
            assert_eq!(changes(&mut scene), []);
            let ran = scene.heed(ask(&mine, json!({})));
            assert!(ran.ran(), "{way:?} {surface}: {}", ran.text);
            assert_eq!(ran.result()["_meta"]["countersign"]["plan_id"], plan);
            assert_eq!(changes(&mut scene), [("put_note".to_owned(), mine.clone())]);
            // Spent: its token is worth nothing, and the same call once more is a new plan.
            let late = scene.heed(ask(&mine, json!({"confirm_token": token, "yes": true})));
            assert_eq!(late.code(), Some("E_CONFIRM_TOKEN_USED"));
            let next = scene.heed(ask(&mine, json!({})));
            assert_eq!(next.data()["state"], "pending");
            assert_ne!(next.data()["plan_id"], plan);
            assert_eq!(changes(&mut scene), []);
            scene.finish(vec![line, stranger]);
        }
    });
}

/// However many equal calls race for one approval, the upstream sees one.
#[test]
fn attack_20_racing_equal_calls_are_one_effect() {
    Way::each(&[Way::StdioLegacy, Way::HttpModern], |way| {
        let config = "[gateway]\nmode = \"execute\"\n[confirm]\nprofile = \"team\"\n";
        let mut scene = Scene::open(way, config);
        let line = scene.line(Host::None);
        for _ in 0..5 {
            let held = scene.call(&line, "call_tool_write", PUT);
            scene.approve(held.data()["plan_id"].as_str().unwrap());
            let replies: Vec<Reply> = std::thread::scope(|scope| {
                let racing: Vec<_> =
                    (0..12).map(|_| scope.spawn(|| line.call("call_tool_write", PUT))).collect();
                racing.into_iter().map(|call| call.join().unwrap()).collect()
            });
            let ran = replies.iter().filter(|reply| reply.ran()).count();
            assert_eq!((ran, changes(&mut scene).len()), (1, 1), "{way:?}");
            for plan in pending(&scene) {
                scene.reject(&plan);
            }
            scene.resume("local-agent");
        }
        scene.finish(vec![line]);
    });
}

/// An approval by the caller's own strength is no reason to run an equal call: only a token is.
#[test]
fn attack_20_what_nobody_approved_is_not_redeemed_by_repeating() {
    let mut scene = Scene::open(Way::StdioLegacy, "[gateway]\nmode = \"execute\"\n");
    let line = scene.line(Host::None);
    for _ in 0..10 {
        let held = scene.call(&line, "call_tool_write", PUT);
        assert_eq!(held.data()["status"], "confirmation_required", "{}", held.text);
    }
    assert_eq!(changes(&mut scene), []);
    scene.finish(vec![line]);
}

/// Seed 001: the tools of `pack` run with the token of their plan, over whichever channel it was approved.
#[test]
fn attack_20_packs_tools_are_not_redeemed_without_their_token() {
    let config =
        "[gateway]\nmode = \"execute\"\n[confirm]\nprofile = \"team\"\n[upstreams.pack]\nkind = \"pack\"\n";
    let mut scene = super::pack::scene(Way::StdioLegacy, "router", config);
    let line = scene.line(Host::None);
    let apply = r#"{"name":"pack:deploy_apply","args":{},"intent":{"operation_type":"destructive"}}"#;
    let held = scene.call(&line, "call_tool_destructive", apply);
    scene.approve(held.data()["plan_id"].as_str().unwrap());
    let again = scene.call(&line, "call_tool_destructive", apply);
    assert_eq!(again.data()["state"], "approved", "{}", again.text);
    let token = again.data()["confirm_token"].as_str().unwrap();
    let with = apply.replace("\"intent\"", &format!("\"confirm_token\":\"{token}\",\"yes\":true,\"intent\""));
    assert!(scene.call(&line, "call_tool_destructive", &with).ran());
    scene.finish(vec![line]);
}
