//! A host with a dialog: its user's answer decides, silence decides nothing, and the first answer counts.

use serde_json::{Value, json};

use super::client::{Client, Host, Reply, Way};
use super::scene::Scene;
use crate::invisible;

const CONFIG: &str = "[gateway]\nmode = \"execute\"\n";
const ERASE: &str =
    r#"{"name":"notes:erase_all","args":{"id":"h"},"intent":{"operation_type":"destructive"}}"#;

fn with(extra: &str) -> String {
    format!("{},{extra}}}", ERASE.strip_suffix('}').unwrap())
}

fn question(line: &Client) -> String {
    let asked = line.asked.lock().unwrap();
    let question = asked.first().unwrap_or_else(|| panic!("the host was not asked"));
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["mode"], "form");
    question["params"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn an_accept_runs_what_was_shown() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::Accepts);
        let reply = scene.call(&line, "call_tool_destructive", ERASE);
        assert!(reply.ran(), "{way:?} {}", reply.text);
        assert_eq!(scene.reached().len(), 1);
        let shown = question(&line);
        for part in ["Execute?", "notes:erase_all", "destructive", "local-agent", "\"h\"", "pln_"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let plan = &reply.result()["_meta"]["countersign"]["plan_id"];
        let became = scene.call(&line, "get_plan", &format!(r#"{{"plan_id":{plan}}}"#));
        assert_eq!(became.data()["plan"]["state"], "done");
        assert_eq!(became.data()["plan"]["approval"]["rail"], "elicitation");
        assert_eq!(became.data()["plan"]["approval"]["strength"], "host");
        scene.finish(vec![line]);
    });
}

/// The dialog shows a dry run as it reads, and what somebody else wrote is marked: it can't pass for a line of ours.
#[test]
fn the_question_reads_like_the_plan_and_no_line_of_others_passes_for_ours() {
    let config = format!("{CONFIG}\n[[rules]]\nmatch = \"notes:sync_notes\"\nstrength = \"host\"\n");
    let mut scene = Scene::open(Way::StdioLegacy, &config);
    let line = scene.line(Host::Declines);
    scene.state(r#"{"preview":"2 notes would change\nplan pln_0 · approved\u202e"}"#);
    let asked = r#"{"name":"notes:sync_notes","args":{"id":"h"},"intent":{"operation_type":"write","reason":"tidy\nplan pln_1 · approved"}}"#;
    scene.call(&line, "call_tool_write", asked);
    let shown = question(&line);
    let text: Vec<&str> = shown.lines().collect();
    let begins = [
        "Sync notes h? “tidy”",
        "notes:sync_notes (write), asked by local-agent",
        "the agent says:",
        "│ tidy",
        "│ plan pln_1 · approved",
        "what would happen:",
        "│ 2 notes would change",
        "│ plan pln_0 · approved\\u{202e}",
        "arguments:",
    ];
    assert_eq!(text[..begins.len()], begins, "{shown}");
    assert_eq!(text.iter().filter(|line| line.starts_with("plan pln_")).count(), 1, "{shown}");
    assert_eq!(text.last(), Some(&"Proceed with notes:sync_notes? [Yes/No]"));
    assert!(shown.contains("│   \"id\": \"h\""), "{shown}");
    scene.reached();
    scene.finish(vec![line]);
}

#[test]
fn attack_11_every_invisible_character_is_an_escape_in_the_hosts_dialog() {
    let config = format!("{CONFIG}\n[[rules]]\nmatch = \"notes:sync_notes\"\nstrength = \"host\"\n");
    let mut scene = Scene::open(Way::StdioLegacy, &config);
    let line = scene.line(Host::Declines);
    let (text, reason) = (invisible::text(), invisible::short_text());
    scene.state(&json!({"preview": text}).to_string());
    let asked = json!({"name": "notes:sync_notes", "args": {"id": text}, "intent": {"operation_type": "write", "reason": reason}});
    let reply = scene.call(&line, "call_tool_write", &asked.to_string());
    assert_eq!(reply.code(), Some("E_APPROVAL_REJECTED"), "{}", reply.text);
    let shown = question(&line);
    let parts: Vec<&str> = shown.split("what would happen:").collect();
    let [said, rest] = parts[..] else { panic!("{shown}") };
    let (preview, arguments) = rest.split_once("arguments:").unwrap();
    invisible::check_escaped(said, &reason, "reason");
    invisible::check_escaped(preview, &text, "preview");
    invisible::check_escaped(arguments, &text, "arguments");
    scene.reached();
    scene.finish(vec![line]);
}

/// Hosts that show the end of a long dialog show what is to be done there as well.
#[test]
fn a_long_question_ends_with_its_headline() {
    let mut scene = Scene::open(Way::StdioLegacy, CONFIG);
    let line = scene.line(Host::Declines);
    let reason = "line\\n".repeat(20);
    let asked = ERASE.replace("\"destructive\"}", &format!("\"destructive\",\"reason\":\"{reason}\"}}"));
    scene.call(&line, "call_tool_destructive", &asked);
    let shown = question(&line);
    let text: Vec<&str> = shown.lines().collect();
    assert_eq!(text[text.len() - 2..], ["Erase all h? “line”", "Execute?"], "{shown}");
    assert_eq!(text[0], "Erase all h? “line”", "{shown}");
    scene.reached();
    scene.finish(vec![line]);
}

#[test]
fn a_decline_rejects_and_a_cancel_decides_nothing() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let declining = scene.line(Host::Declines);
        let reply = scene.call(&declining, "call_tool_destructive", ERASE);
        assert_eq!(reply.code(), Some("E_APPROVAL_REJECTED"), "{way:?} {}", reply.text);
        let cancelling = scene.line(Host::Cancels);
        let reply = scene.call(&cancelling, "call_tool_destructive", ERASE);
        assert_eq!(reply.data()["status"], "confirmation_required", "{way:?} {}", reply.text);
        assert_eq!(scene.reached(), []);
        let (plan, token) = plan_and_token(&reply);
        let early = scene.call(&cancelling, "call_tool_destructive", &with(&bring(&token)));
        assert_eq!(early.code(), Some("E_APPROVAL_PENDING"), "the other channels stay open");
        scene.approve(&plan);
        assert!(scene.call(&cancelling, "call_tool_destructive", &with(&bring(&token))).ran());
        assert_eq!(scene.reached().len(), 1);
        scene.finish(vec![declining, cancelling]);
    });
}

fn plan_and_token(reply: &Reply) -> (String, String) {
    let text = |field: &str| reply.data()[field].as_str().unwrap().to_owned();
    (text("plan_id"), text("confirm_token"))
}

fn bring(token: &str) -> String {
    format!(r#""confirm_token":"{token}","yes":true"#)
}

/// A host's word is worth `host`: what needs a person is not asked there, and what must be typed is not either.
#[test]
fn a_host_is_not_asked_for_what_its_word_is_not_worth() {
    Way::each(&Way::ALL, |way| {
        let config = format!("{CONFIG}[[rules]]\nmatch = \"notes:erase_all\"\nstrength = \"human\"\n");
        let mut scene = Scene::open(way, &config);
        let line = scene.line(Host::Accepts);
        let reply = scene.call(&line, "call_tool_destructive", ERASE);
        assert_eq!(reply.data()["status"], "confirmation_required");
        assert_eq!(*line.asked.lock().unwrap(), Vec::<Value>::new());
        assert_eq!(scene.reached(), []);
        scene.finish(vec![line]);
    });
}

/// A client that claims to ask and never does: nothing runs, and after the time it is held the agent has the token.
#[test]
fn silence_decides_nothing() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::Silent);
        let reply = scene.call(&line, "call_tool_destructive", &with(r#""wait_seconds":1"#));
        assert_eq!(scene.reached(), [], "{way:?}");
        if way.is_modern() {
            assert_eq!(reply.result()["resultType"], "input_required", "{}", reply.text);
        } else {
            assert_eq!(reply.data()["status"], "confirmation_required", "{}", reply.text);
            let (_, token) = plan_and_token(&reply);
            let early = scene.call(&line, "call_tool_destructive", &with(&bring(&token)));
            assert_eq!(early.code(), Some("E_APPROVAL_PENDING"));
        }
        let status = scene.call(&line, "get_status", "{}");
        let pending = status.data()["pending_plans"].as_array().unwrap();
        assert_eq!(pending.len(), 1, "{}", status.text);
        assert_eq!(pending[0]["state"], "pending");
        // A person elsewhere still decides, and then the same call is not asked about again: it runs.
        scene.approve(pending[0]["plan_id"].as_str().unwrap());
        let again = scene.call(&line, "call_tool_destructive", ERASE);
        assert!(again.ran(), "{way:?} {}", again.text);
        assert_eq!(scene.reached().len(), 1);
        scene.finish(vec![line]);
    });
}

/// A host that answers its dialog by itself, as some do when no person is there: that approves nothing, rejects nothing and pauses
/// nobody; it is recorded, and the plan waits for a person elsewhere.
#[test]
fn an_answer_faster_than_a_person_decides_nothing() {
    Way::each(&Way::ALL, |way| {
        for (host, answer) in [(Host::AcceptsAtOnce, "accept"), (Host::DeclinesAtOnce, "decline")] {
            let mut scene = Scene::open(way, CONFIG);
            let line = scene.line(host);
            let mut plan = String::new();
            // Three declines of a person would pause the principal.
            for _ in 0..4 {
                let reply = scene.call(&line, "call_tool_destructive", ERASE);
                assert_eq!(reply.data()["status"], "confirmation_required", "{way:?} {}", reply.text);
                let said = reply.envelope().unwrap()["warnings"].to_string();
                assert!(said.contains("answered its dialog by itself"), "{way:?} {said}");
                plan = plan_and_token(&reply).0;
            }
            let rows: Vec<Value> = scene.rows().into_iter().filter(|row| row["kind"] == "approval").collect();
            assert_eq!(rows.len(), 4, "{way:?} {rows:?}");
            for row in rows {
                assert_eq!(
                    (&row["detail"]["action"], &row["detail"]["answer"]),
                    (&"automatic".into(), &answer.into())
                );
                assert_eq!((&row["role"], &row["status"]), (&"host".into(), &"refused".into()), "{row}");
                assert!(row["detail"]["took_ms"].as_u64().unwrap() < 400, "{row}");
            }
            assert_eq!(scene.reached(), [], "{way:?}");
            scene.approve(&plan);
            assert!(scene.call(&line, "call_tool_destructive", ERASE).ran(), "{way:?}");
            assert_eq!(scene.reached().len(), 1);
            scene.finish(vec![line]);
        }
    });
}

#[test]
fn automatic_answers_count_where_that_is_configured() {
    let mut scene = Scene::open(Way::StdioLegacy, &format!("{CONFIG}[confirm]\nautomatic_below = \"0ms\"\n"));
    let line = scene.line(Host::AcceptsAtOnce);
    assert!(scene.call(&line, "call_tool_destructive", ERASE).ran());
    assert_eq!(scene.reached().len(), 1);
    scene.finish(vec![line]);
}

/// A dialog that the host still shows after its call was answered still decides, and the equal call then runs.
#[test]
fn a_late_answer_in_a_dialog_still_decides() {
    Way::each(&[Way::StdioLegacy, Way::HttpLegacy], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::Silent);
        let held = scene.call(&line, "call_tool_destructive", &with(r#""wait_seconds":1"#));
        assert_eq!(held.data()["status"], "confirmation_required", "{way:?} {}", held.text);
        let withdrawn = line.notes().iter().any(|note| note["method"] == "notifications/cancelled");
        assert!(!withdrawn, "{way:?}: the dialog was taken away");
        let id = line.asked.lock().unwrap()[0]["id"].clone();
        line.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{}}}}}}"#));
        let plan = plan_and_token(&held).0;
        let asked = format!(r#"{{"plan_id":"{plan}","wait_seconds":10}}"#);
        let became = scene.call(&line, "get_plan", &asked);
        assert_eq!(became.data()["plan"]["state"], "approved", "{way:?} {}", became.text);
        assert_eq!(became.data()["plan"]["approval"]["rail"], "elicitation");
        assert!(scene.call(&line, "call_tool_destructive", ERASE).ran(), "{way:?}");
        assert_eq!(scene.reached().len(), 1);
        scene.finish(vec![line]);
    });
}

/// While the host shows a form to nobody, a person decides elsewhere: the call goes on at once.
#[test]
fn whoever_answers_first_decides() {
    Way::each(&[Way::StdioLegacy, Way::HttpLegacy], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::Silent);
        let start = std::time::Instant::now();
        let reply = std::thread::scope(|scope| {
            let call = scope.spawn(|| line.call("call_tool_destructive", ERASE));
            while line.asked.lock().unwrap().is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let shown = question(&line);
            let at = shown.find("pln_").unwrap();
            scene.approve(shown[at..].split_whitespace().next().unwrap());
            call.join().unwrap()
        });
        let reply = scene.heed(reply);
        assert!(reply.ran(), "{way:?} {}", reply.text);
        assert!(start.elapsed().as_secs() < 25, "nobody waits for the silent host");
        scene.finish(vec![line]);
    });
}

/// The state a stateless client carries is good once, and only for the request it was given for.
#[test]
fn a_request_state_is_bound_and_single_use() {
    Way::each(&[Way::StdioModern, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::Silent);
        let asked = line.call("call_tool_destructive", ERASE);
        let state = asked.result()["requestState"].clone();
        let questions = asked.result()["inputRequests"].as_object().unwrap();
        let name = questions.keys().next().unwrap();
        let answers = format!(r#"{{"{name}":{{"action":"accept","content":{{}}}}}}"#);
        let other = ERASE.replace("\"h\"", "\"other\"");
        let foreign = line.retry("call_tool_destructive", &other, &answers, &state);
        assert_eq!(foreign.frame["error"]["code"], -32602, "{}", foreign.text);
        let forged = Value::from(format!("{}x", state.as_str().unwrap()));
        let forged = line.retry("call_tool_destructive", ERASE, &answers, &forged);
        assert_eq!(forged.frame["error"]["code"], -32602, "{}", forged.text);
        assert_eq!(scene.reached(), []);
        let reply = line.retry("call_tool_destructive", ERASE, &answers, &state);
        assert!(scene.heed(reply).ran());
        let again = line.retry("call_tool_destructive", ERASE, &answers, &state);
        assert_eq!(again.frame["error"]["code"], -32602, "{}", again.text);
        assert_eq!(scene.reached().len(), 1);
        scene.finish(vec![line]);
    });
}
