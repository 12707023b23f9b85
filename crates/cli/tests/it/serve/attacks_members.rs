//! Smuggling: member names, arguments and previews that would make the upstream run another call than the one that was judged.
//! The upstream reads names without regard to case, as Go's and .NET's readers do, and records what it ran; at the end its record
//! is compared with the ledger.

use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::scene::Scene;

const CONFIG: &str = r#"[gateway]
mode = "ask"

[[rules]]
match = "notes:*"
when = "has(args.id) && args.id == 'smuggled'"
deny = "not this one"

[[rules]]
match = "notes:erase_all"
deny = "never"
"#;

/// A gateway before the folding upstream.
fn scene(way: Way, surface: &'static str, config: &str) -> Scene {
    let scene = Scene::open_with(way, surface, config, &[]);
    scene.state(r#"{"fold": true}"#);
    scene
}

/// `params` of a call, with more members before and behind the honest ones; all as text.
fn call(line: &Client, tool: &str, arguments: &str, before: &str, behind: &str) -> Reply {
    let meta = line.meta().map(|meta| format!(r#","_meta":{meta}"#)).unwrap_or_default();
    let params = format!(r#"{{{before}"name":"{tool}","arguments":{arguments}{meta}{behind}}}"#);
    line.request("tools/call", Some(tool), &params)
}

/// Everything the upstream ran is what the ledger says was let out, and nothing of it is what the attack wanted.
#[track_caller]
fn check_record(scene: &mut Scene, what: &str) {
    let ran = scene.reached();
    for (name, arguments) in &ran {
        assert_eq!(name, "get_note", "{what}: {arguments}");
        assert_ne!(arguments["id"], "smuggled", "{what}");
    }
    let recorded = |row: &Value| -> (String, Value) {
        (row["tool"].as_str().unwrap_or_default().to_owned(), row["arguments"].clone())
    };
    let order = |one: &(String, Value), other: &(String, Value)| one.1.to_string().cmp(&other.1.to_string());
    let mut ran: Vec<(String, Value)> = ran;
    ran.sort_by(order);
    let let_out = || {
        let rows = scene.rows();
        let mut rows: Vec<_> = rows.iter().filter(|row| row["status"] == "allowed").map(recorded).collect();
        rows.sort_by(order);
        rows
    };
    // Rows of reads may follow their call within 100 ms.
    let start = std::time::Instant::now();
    while let_out().len() < ran.len() && start.elapsed() < std::time::Duration::from_secs(30) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(ran, let_out(), "{what}: what ran and what the ledger says ran");
}

fn refused(reply: &Reply) -> bool {
    reply.code() == Some("E_ARGUMENTS_INVALID")
}

#[test]
fn attack_02_the_assessments_call_executes_nothing_but_the_read() {
    Way::each(&Way::ALL, |way| {
        let mut scene = scene(way, "direct", CONFIG);
        let line = scene.line(Host::None);
        let twins = [
            r#","Name":"erase_all","Arguments":{"id":"smuggled"}"#,
            r#","NAME":"erase_all""#,
            r#","\u004eame":"erase_all""#,
            r#","name\u0000":"erase_all""#,
            ",\"argument\u{17f}\":{\"id\":\"smuggled\"}",
            r#","name":"erase_all""#,
            r#","_Meta":{}"#,
            ",\"ta\u{17f}\u{212a}\":{}",
            r#","RequestState":"x""#,
            r#","inputresponses":{}"#,
        ];
        for twin in twins {
            let reply = call(&line, "notes__get_note", r#"{"id":"fine"}"#, "", twin);
            // The headers of the stateless era name the other tool before anybody looks at names.
            let other_name = way == Way::HttpModern && reply.frame["error"]["code"] == -32020;
            assert!(other_name || refused(&scene.heed(reply)), "{way:?} {twin}");
        }
        // What is called something else is not judged, and not sent.
        let reply =
            call(&line, "notes__get_note", r#"{"id":"fine"}"#, "", r#","tool":"erase_all","x":{"a":1}"#);
        assert!(scene.heed(reply).ran());
        let text = std::fs::read_to_string(scene.world.work().join("record.jsonl")).unwrap();
        assert!(!text.contains("erase_all"), "{text}");
        check_record(&mut scene, "the assessment's call");
        scene.finish(vec![line]);
    });
}

#[test]
fn attack_02_router_fields_gateway_tools_and_our_own_property_do_not_fold() {
    Way::each(&Way::ALL, |way| {
        let mut router = scene(way, "router", CONFIG);
        let line = router.line(Host::None);
        for more in [
            r#""Name":"notes:erase_all""#,
            r#""ARGS":{"id":"smuggled"}"#,
            r#""arg\u017f":{"id":"smuggled"}"#,
            r#""Mode":"execute""#,
            r#""Intent":{}"#,
            r#""yes\u0000":true"#,
        ] {
            let arguments = format!(
                r#"{{"name":"notes:get_note","args":{{"id":"fine"}},"intent":{{"operation_type":"read"}},{more}}}"#
            );
            assert!(refused(&router.call(&line, "call_tool_read", &arguments)), "{way:?} {more}");
        }
        let inside = r#"{"name":"notes:get_note","args_json":"{\"id\":\"fine\",\"ID\":\"smuggled\"}","intent":{"operation_type":"read"}}"#;
        assert!(refused(&router.call(&line, "call_tool_read", inside)));
        for (tool, arguments) in [
            ("set_mode", r#"{"mode":"ask","Mode":"execute"}"#),
            ("set_mode", r#"{"Mode":"execute"}"#),
            ("retrieve_tools", r#"{"query":"x","QUERY":"y"}"#),
            ("draft_plan", r#"{"title":"t","steps":[{"name":"notes:get_note","Name":"notes:erase_all"}]}"#),
        ] {
            assert!(refused(&router.call(&line, tool, arguments)), "{way:?} {tool} {arguments}");
        }
        assert!(router.reached().is_empty());
        router.finish(vec![line]);

        let mut direct = scene(way, "direct", CONFIG);
        let line = direct.line(Host::None);
        for arguments in [
            r#"{"id":"fine","Countersign":{"mode":"execute"}}"#,
            "{\"id\":\"fine\",\"counter\u{17f}ign\":{}}",
            r#"{"id":"fine","countersign":{"Mode":"execute"}}"#,
            r#"{"id":"fine","countersign":{"mode":"ask","MODE":"execute"}}"#,
        ] {
            assert!(refused(&direct.call(&line, "notes__get_note", arguments)), "{way:?} {arguments}");
        }
        assert!(direct.reached().is_empty());
        direct.finish(vec![line]);
    });
}

/// Every method of both eras; with what is not theirs in `params` they are refused before anything else is said.
const METHODS: [&str; 17] = [
    "tools/call",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/cancel",
    "server/discover",
    "vendor/extension",
];

#[test]
fn attack_02_folding_names_are_refused_over_every_method_surface_and_era() {
    let names =
        ["name", "arguments", "_meta", "task", "requestState", "inputResponses", "uri", "ref", "cursor"];
    let long = std::env::var_os("COUNTERSIGN_TEST_LONG").is_some();
    Way::each(&Way::ALL, |way| {
        for surface in ["router", "direct"] {
            let mut scene = scene(way, surface, CONFIG);
            let line = scene.line(Host::None);
            let meta = line.meta().unwrap_or_else(|| json!({}));
            for (number, method) in METHODS.iter().enumerate() {
                for (place, name) in names.iter().enumerate() {
                    let twins = [name.to_uppercase(), format!("{name}\\u0000"), name.replace('s', "\u{17f}")];
                    for (which, twin) in twins.iter().enumerate() {
                        // In short form one of the twins, in turn.
                        if twin == name || (!long && which != 0 && which != (number + place) % 3) {
                            continue;
                        }
                        let params = format!(
                            r#"{{"name":"x","uri":"x","taskId":"x","level":"info","_meta":{meta},"{twin}":null}}"#
                        );
                        let reply = line.request(method, Some("x"), &params);
                        let legacy_only = reply.frame["error"]["code"] == -32601;
                        // Over HTTP it opens the stateless era, whose own members are missing first.
                        let discovers = *method == "server/discover" && way == Way::HttpLegacy;
                        assert!(
                            refused(&reply)
                                || (way.is_modern() && legacy_only)
                                || (discovers && reply.is_refusal()),
                            "{way:?} {surface} {method} {twin}: {}",
                            reply.text
                        );
                    }
                }
            }
            assert!(scene.reached().is_empty());
            scene.finish(vec![line]);
        }
    });
}

#[test]
fn attack_02_the_hosts_dialog_shows_what_is_sent_along() {
    let mut scene = Scene::open_with(Way::StdioLegacy, "direct", "[gateway]\nmode = \"execute\"\n", &[]);
    let line = scene.line(Host::Accepts);
    let reply = line.call_saying("notes__put_note", r#"{"id":"a"}"#, r#""tenant":"shown""#);
    assert!(scene.heed(reply).ran());
    let asked = line.asked.lock().unwrap().clone();
    let message = asked[0]["params"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("sent along in _meta:\n│ {\n│   \"tenant\": \"shown\""), "{message}");
    scene.finish(vec![line]);
}

#[test]
fn attack_02_meta_of_a_confirmed_call_is_the_plans() {
    let config = "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"*\"\nstrength = \"caller\"\n";
    Way::each(&Way::ALL, |way| {
        for surface in ["router", "direct"] {
            let mut scene = Scene::open_with(way, surface, config, &[]);
            let line = scene.line(Host::None);
            let direct = surface == "direct";
            let ask = |token: Option<&str>, meta: &str| {
                let brought = token.map(|token| format!(r#""confirm_token":"{token}","yes":true"#));
                let (tool, arguments) = if direct {
                    let brought = brought.map(|brought| format!(r#","countersign":{{{brought}}}"#));
                    ("notes__put_note", format!(r#"{{"id":"a"{}}}"#, brought.unwrap_or_default()))
                } else {
                    let brought = brought.map(|brought| format!(",{brought}"));
                    let call =
                        r#""name":"notes:put_note","args":{"id":"a"},"intent":{"operation_type":"write"}"#;
                    ("call_tool_write", format!("{{{call}{}}}", brought.unwrap_or_default()))
                };
                line.call_saying(tool, &arguments, meta)
            };
            let first = ask(None, r#""tenant":"shown","countersign/x":1,"progressToken":"p1""#);
            let (plan, hash) = (
                first.data()["plan_id"].clone(),
                first.data()["confirm_plan_hash"].as_str().unwrap().to_owned(),
            );
            let token = first.data()["confirm_token"].as_str().unwrap().to_owned();
            // An equal call joins, whatever its host writes into `_meta`; the plan keeps its own.
            let joined = ask(None, r#""tenant":"other""#);
            assert_eq!(joined.data()["plan_id"], plan, "{}", joined.text);
            assert_eq!(joined.data()["confirm_plan_hash"], hash.as_str());
            let shown = scene.world.run(&["plans", "show", plan.as_str().unwrap(), "--json"]);
            assert_eq!(shown.envelope()["data"]["plan"]["meta"], json!({"tenant": "shown"}), "{shown}");
            assert_eq!(shown.envelope()["data"]["plan"]["plan_hash"], hash.as_str());
            assert!(
                scene.heed(ask(Some(&token), r#""tenant":"smuggled","more":1,"progressToken":"p2""#)).ran()
            );
            let (_, _, frame) = scene.reached_lines().remove(0);
            let frame: Value = serde_json::from_str(&frame).unwrap();
            let meta = &frame["params"]["_meta"];
            assert_eq!(meta["tenant"], "shown", "{frame}");
            assert!(meta.get("more").is_none() && meta.get("countersign/x").is_none(), "{frame}");
            let mut members: Vec<&String> = frame["params"].as_object().unwrap().keys().collect();
            members.sort();
            assert_eq!(members, ["_meta", "arguments", "name"]);
            scene.finish(vec![line]);
        }
    });
}

#[test]
fn attack_02_what_is_ours_in_meta_is_not_forwarded() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open_with(way, "direct", "", &[]);
        let line = scene.line(Host::None);
        let meta = r#""countersign/view":{"x":1},"Countersign":{},"countersigned":1,"vendor/kept":12345678901234567890123"#;
        assert!(scene.heed(line.call_saying("notes__get_note", r#"{"id":"a"}"#, meta)).ran());
        let (_, _, frame) = scene.reached_lines().remove(0);
        assert!(frame.contains(r#""vendor/kept":12345678901234567890123"#), "{frame}");
        assert!(!frame.to_lowercase().contains("countersign"), "{frame}");
        scene.finish(vec![line]);
    });
}

#[test]
fn attack_03_arguments_that_fold_are_refused_on_every_surface_and_era() {
    Way::each(&Way::ALL, |way| {
        for surface in ["router", "direct"] {
            let mut scene = scene(way, surface, CONFIG);
            let line = scene.line(Host::None);
            for arguments in [
                r#"{"id":"fine","ID":"smuggled"}"#,
                r#"{"Id":"smuggled"}"#,
                r#"{"id":"fine","id\u0000":"smuggled"}"#,
                "{\"id\":\"fine\",\"\u{131}d\":\"smuggled\"}",
                r#"{"id":"fine","more":{"scope":1,"\u017fcope":2}}"#,
                r#"{"id":"fine","more":[{"key":1},{"key":1,"\u212aey":2}]}"#,
                r#"{"id":"fine","env":{"path":"a","PATH":"b"}}"#,
            ] {
                let reply = match surface {
                    "direct" => scene.call(&line, "notes__get_note", arguments),
                    _ => {
                        let whole = format!(
                            r#"{{"name":"notes:get_note","args":{arguments},"intent":{{"operation_type":"read"}}}}"#
                        );
                        scene.call(&line, "call_tool_read", &whole)
                    }
                };
                assert!(refused(&reply), "{way:?} {surface} {arguments}: {}", reply.text);
                let details = &reply.envelope().unwrap()["errors"][0]["details"];
                assert_eq!(details["reason_code"], "arguments_not_strict", "{}", reply.text);
            }
            check_record(&mut scene, "arguments that fold");
            scene.finish(vec![line]);
        }
    });
}

#[test]
fn attack_01_what_is_judged_recorded_and_sent_is_one_call() {
    let config = r#"[gateway]
mode = "execute"

[[rules]]
match = "notes:sync_notes"
when = "args.dry_run == false && args.id == 'guarded'"
deny = "not for real"

[[rules]]
match = "*"
strength = "caller"
"#;
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open_with(way, "direct", config, &[]);
        let line = scene.line(Host::None);
        let denied = scene.call(&line, "notes__sync_notes", r#"{"id":"guarded"}"#);
        assert_eq!(denied.code(), Some("E_RULE_DENIED"), "{}", denied.text);
        assert!(scene.reached().is_empty());
        // A call that says it is a preview is one, whatever comes with it.
        let held = scene.call(&line, "notes__sync_notes", r#"{"id":"open"}"#);
        let token = held.data()["confirm_token"].as_str().unwrap().to_owned();
        scene.reached();
        for arguments in [
            r#"{"id":"guarded","dry_run":true}"#.to_owned(),
            format!(
                r#"{{"id":"open","dry_run":true,"countersign":{{"confirm_token":"{token}","yes":true}}}}"#
            ),
            r#"{"id":"open","dry_run":true,"countersign":{"mode":"ask"}}"#.to_owned(),
            r#"{"id":"open","dry_run":true,"countersign":{"mode":"plan"}}"#.to_owned(),
        ] {
            let reply = scene.call(&line, "notes__sync_notes", &arguments);
            assert_eq!(reply.data()["status"], "preview", "{}", reply.text);
            let reached = scene.reached();
            assert_eq!(reached.len(), 1);
            assert_eq!(reached[0].1["dry_run"], true);
        }
        // The token is still good for the real call, and the row says what was sent.
        let real = format!(r#"{{"id":"open","countersign":{{"confirm_token":"{token}","yes":true}}}}"#);
        assert!(scene.call(&line, "notes__sync_notes", &real).ran());
        let sent = scene.reached().pop().unwrap().1;
        assert_eq!(sent, json!({"id": "open", "dry_run": false}));
        let rows = scene.rows();
        let allowed = rows.iter().rfind(|row| row["status"] == "allowed").unwrap();
        assert_eq!(allowed["arguments"], sent, "{allowed}");
        let steps = r#"{"title":"t","steps":[{"name":"notes:sync_notes","args":{"id":"s","dry_run":true},"intent":{"operation_type":"write"}}]}"#;
        let drafted = scene.call(&line, "draft_plan", steps);
        let field = |name: &str| drafted.data()[name].as_str().unwrap().to_owned();
        let run = format!(
            r#"{{"plan_id":"{}","confirm_token":"{}","yes":true}}"#,
            field("plan_id"),
            field("confirm_token")
        );
        scene.call(&line, "run_plan", &run);
        assert!(scene.reached().iter().all(|(_, arguments)| arguments["dry_run"] == true));
        scene.finish(vec![line]);
    });
}

/// A small generator: the same shapes in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len())]
    }

    /// A name that a folding reader may take for `name`, as JSON text without quotes.
    fn twin(&mut self, name: &str) -> String {
        let mut twin = String::new();
        for c in name.chars() {
            match (self.roll(5), c) {
                (0, _) => twin.extend(c.to_uppercase()),
                (1, _) => twin.push_str(&format!("\\u{:04x}", u32::from(c))),
                (2, 's') => twin.push('\u{17f}'),
                (2, 'k') => twin.push_str("\\u212A"),
                (2, 'i') => twin.push(*self.pick(&['\u{130}', '\u{131}'])),
                (_, _) => twin.push(c),
            }
        }
        match self.roll(6) {
            0 => twin.push_str("\\u0000"),
            1 => twin.push_str("\\u0000\\u0000"),
            2 => twin.push_str("\\u0000x"),
            _ => {}
        }
        twin
    }

    /// One attempt: what precedes and follows the honest members, and the arguments.
    fn shape(&mut self) -> (String, String, String) {
        let evil_name = r#""erase_all""#;
        let evil_arguments = r#"{"id":"smuggled"}"#;
        let mut members = Vec::new();
        for _ in 0..=self.roll(2) {
            let (name, value) = *self.pick(&[
                ("name", evil_name),
                ("arguments", evil_arguments),
                ("_meta", r#"{"name":"erase_all"}"#),
                ("task", r#"{"name":"erase_all"}"#),
                ("params", r#"{"name":"erase_all","arguments":{"id":"smuggled"}}"#),
                ("method", evil_name),
                ("tool", evil_name),
                ("toolName", evil_name),
            ]);
            members.push(format!(r#""{}":{value}"#, self.twin(name)));
        }
        let arguments = match self.roll(5) {
            0 => format!(r#"{{"id":"fine","{}":"smuggled"}}"#, self.twin("id")),
            1 => format!(r#"{{"{}":"smuggled","id":"fine"}}"#, self.twin("id")),
            2 => format!(r#"{{"{}":"smuggled"}}"#, self.twin("id")),
            3 => format!(r#"{{"id":"fine","deep":{{"a":[{{"{}":1,"key":2}}]}}}}"#, self.twin("key")),
            _ => r#"{"id":"fine"}"#.to_owned(),
        };
        let text = members.join(",");
        match self.roll(3) {
            0 => (format!("{text},"), String::new(), arguments),
            1 => (String::new(), format!(",{text}"), arguments),
            _ => (String::new(), String::new(), arguments),
        }
    }
}

#[test]
fn attack_02_generated_smuggling_shapes_run_nothing_that_was_not_judged() {
    let long = std::env::var_os("COUNTERSIGN_TEST_LONG").is_some();
    // Over four ways and two surfaces.
    let shapes = if long { 10_000 / 8 } else { 40 };
    Way::each(&Way::ALL, |way| {
        for surface in ["direct", "router"] {
            let mut scene = scene(way, surface, CONFIG);
            let line = scene.line(Host::None);
            let mut dice = Dice(way as u64 * 2 + u64::from(surface == "router"));
            let (mut refusals, mut runs) = (0, 0);
            for _ in 0..shapes {
                let (before, behind, arguments) = dice.shape();
                let reply = if surface == "direct" {
                    call(&line, "notes__get_note", &arguments, &before, &behind)
                } else {
                    // The same members around the router's own fields.
                    let whole = format!(
                        r#"{{{before}"name":"notes:get_note","args":{arguments},"intent":{{"operation_type":"read"}}{behind}}}"#
                    );
                    call(&line, "call_tool_read", &whole, &before, &behind)
                };
                let shape = format!("{way:?} {surface} {before} {behind} {arguments}");
                assert!(reply.is_refusal() || reply.ran(), "{shape}: {}", reply.text);
                refusals += usize::from(reply.is_refusal());
                runs += usize::from(reply.ran());
                for (name, arguments) in scene.reached() {
                    assert_eq!(name, "get_note", "{shape}");
                    assert_ne!(arguments["id"], "smuggled", "{shape}");
                }
            }
            assert!(refusals > 0 && runs > 0, "{refusals} refused, {runs} ran");
            // Rows of reads may follow their call within 100 ms.
            let is_recorded = || {
                let rows = scene.store(async |store| {
                    let filter = countersign_store::LedgerFilter {
                        status: Some(countersign_policy::record::RowStatus::Allowed),
                        limit: Some(1000),
                        ..countersign_store::LedgerFilter::default()
                    };
                    store.activity(filter).await.unwrap().rows.len()
                });
                rows == runs.min(1000)
            };
            let start = std::time::Instant::now();
            while !is_recorded() {
                assert!(start.elapsed() < std::time::Duration::from_secs(30), "every run is a row");
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            scene.finish(vec![line]);
        }
    });
}

#[test]
fn attack_15_a_raw_line_end_in_an_argument_is_refused_and_not_changed() {
    for way in [Way::HttpLegacy, Way::HttpModern] {
        let mut scene = Scene::open_with(way, "direct", "", &[]);
        let line = scene.line(Host::None);
        for raw in ["\n", "\r", "\t"] {
            let reply = call(&line, "notes__get_note", &format!(r#"{{"id":"a{raw}b"}}"#), "", "");
            assert_eq!(reply.frame["error"]["code"], -32700, "{}", reply.text);
        }
        assert!(scene.reached().is_empty());
        let reply = call(&line, "notes__get_note", "{\n  \"id\": \"a\\nb\"\n}", "\n", "\n");
        assert!(scene.heed(reply).ran());
        assert_eq!(scene.reached()[0].1["id"], "a\nb");
        scene.finish(vec![line]);
    }
}
