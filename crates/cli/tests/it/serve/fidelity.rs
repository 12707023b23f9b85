//! Bytes: what an upstream says arrives as it said it, and what a caller sends reaches it as it was sent.

use super::client::{Host, Way};
use super::scene::Scene;

/// As the recorder sends it, up to its `_meta`, which gets one more member.
const EXACT: &str = concat!(
    r#""content":[{"type":"text","text":"exact","vendor":{"z":1,"a":2}}],"#,
    r#""structuredContent":{"big":12345678901234567890123,"small":0.10000000000000000555,"e":1E+2},"#,
    r#""vendorField":[1.50,{"k" : null}],"_meta":{"vendor/key":12345678901234567890123"#,
);

#[test]
fn results_keep_unknown_fields_order_and_numbers() {
    Way::each(&Way::ALL, |way| {
        for (surface, tool, arguments) in [
            (
                "router",
                "call_tool_read",
                r#"{"name":"notes:exact_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#,
            ),
            ("direct", "notes__exact_note", r#"{"id":"a"}"#),
        ] {
            let mut scene = Scene::open_with(way, surface, "", &[]);
            let line = scene.line(Host::None);
            let reply = scene.call(&line, tool, arguments);
            assert!(reply.text.contains(EXACT), "{way:?} {}", reply.text);
            assert!(reply.ran(), "{}", reply.text);
            let facts = reply.result()["_meta"]["countersign"].as_object().unwrap();
            let keys: Vec<&str> = facts.keys().map(String::as_str).collect();
            assert_eq!(
                keys,
                ["ledger_id", "effect", "mode", "request_id"],
                "nothing but what the contract names"
            );
            scene.finish(vec![line]);
        }
    });
}

/// Steps of a plan, and a plan that is asked for later, tell what came back as it came: in the structure, in the text, and at
/// the desk.
#[test]
fn results_inside_our_own_answers_keep_order_and_numbers() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, "[gateway]\nmode = \"execute\"\n");
        let line = scene.line(Host::None);
        let steps = concat!(
            r#"{"title":"two steps","steps":[{"name":"notes:exact_note","args":{"id":"a"},"intent":{"operation_type":"read"}},"#,
            r#"{"name":"notes:fail_note","args":{"id":"b"},"intent":{"operation_type":"write"}},"#,
            r#"{"name":"notes:put_note","args":{"id":"c"},"intent":{"operation_type":"write"}}]}"#
        );
        let asked = scene.call(&line, "draft_plan", steps);
        let told = |field: &str| asked.data()[field].as_str().unwrap().to_owned();
        let (plan, token) = (told("plan_id"), told("confirm_token"));
        let run = format!(r#"{{"plan_id":"{plan}","confirm_token":"{token}","yes":true}}"#);
        let ran = scene.call(&line, "run_plan", &run);
        let states: Vec<&str> = ran.data()["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["state"].as_str().unwrap())
            .collect();
        assert_eq!(states, ["done", "failed", "not_run"]);
        let look = scene.call(&line, "get_plan", &format!(r#"{{"plan_id":"{plan}"}}"#));
        for reply in [&ran, &look] {
            let text = reply.result()["content"][0]["text"].as_str().unwrap();
            assert!(reply.text.contains(EXACT) && text.contains(EXACT), "{way:?} {}", reply.text);
        }
        if way == Way::HttpModern {
            let secret = scene.credential("ada", countersign_policy::role::Role::Human, "{}");
            let headers = [("Authorization".to_owned(), format!("Bearer {secret}"))];
            let path = format!("/api/v1/plans/{plan}");
            let answer = super::http::send(&scene.gateway().address(), "GET", &path, &headers, "").unwrap();
            let text = answer.text().unwrap();
            assert!(text.contains(EXACT), "{text}");
        }
        scene.finish(vec![line]);
    });
}

/// What runs after a confirmation is what was frozen, to the byte of its canonical form; a read goes as it was written.
#[test]
fn arguments_reach_the_upstream_as_they_were_sent() {
    Way::each(&Way::ALL, |way| {
        let config = "[gateway]\nmode = \"execute\"\n";
        let mut scene = Scene::open_with(way, "direct", config, &[]);
        let line = scene.line(Host::None);
        let sent = r#"{"z":1.0,"id":"\u00e9\n","a":[1e2, 0.10],"countersign":{"mode":"execute"}}"#;
        assert!(scene.call(&line, "notes__get_note", sent).ran());
        let (_, _, frame) = scene.reached_lines().remove(0);
        assert!(
            frame.contains(r#""arguments":{"z":1.0,"id":"\u00e9\n","a":[1e2, 0.10]}"#),
            "{way:?} {frame}"
        );
        assert!(!frame.contains("countersign\":{\"mode"), "{frame}");

        let open = |extra: &str| format!(r#"{{"b":1.50,"a":"x"{extra}}}"#);
        let asked = scene.call(&line, "notes__open_note", &open(""));
        let token = asked.data()["confirm_token"].as_str().unwrap().to_owned();
        let extra = format!(r#","countersign":{{"confirm_token":"{token}","yes":true}}"#);
        assert!(scene.call(&line, "notes__open_note", &open(&extra)).ran());
        let (_, _, frame) = scene.reached_lines().remove(0);
        assert!(
            frame.contains(r#""arguments":{"a":"x","b":1.5}"#),
            "what was hashed is what is sent: {frame}"
        );
        scene.finish(vec![line]);
    });
}

#[test]
fn a_reason_has_at_most_a_thousand_characters() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, "");
        let line = scene.line(Host::None);
        let call = |length: usize| {
            let reason = "é".repeat(length);
            format!(
                r#"{{"name":"notes:get_note","args":{{"id":"a"}},"intent":{{"operation_type":"read","reason":"{reason}"}}}}"#
            )
        };
        assert!(scene.call(&line, "call_tool_read", &call(1000)).ran());
        let refused = scene.call(&line, "call_tool_read", &call(1001));
        assert_eq!(refused.code(), Some("E_ARGUMENTS_INVALID"));
        assert_eq!(refused.envelope().unwrap()["errors"][0]["details"]["field"], "intent.reason");
        let deep = format!(
            r#"{{"name":"notes:open_note","args":{{"a":{}1{}}},"intent":{{"operation_type":"write"}}}}"#,
            "[".repeat(65),
            "]".repeat(65)
        );
        let reply = line.call("call_tool_write", &deep);
        assert!(!reply.ran() && reply.is_refusal(), "{}", reply.text);
        assert_eq!(scene.reached().len(), 1);
        scene.finish(vec![line]);
    });
}
