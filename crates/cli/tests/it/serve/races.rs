//! One token, many hands at once: one effect.

use super::client::{Client, Host, Reply, Way};
use super::scene::Scene;

const CONFIG: &str = "[gateway]\nmode = \"execute\"\n";
const CALL: &str = r#"{"name":"notes:put_note","args":{"id":"r"},"intent":{"operation_type":"write"}}"#;
const HANDS: usize = 32;

/// The same phase 2 from every hand at once, spread over these lines.
fn rush(lines: &[&Client], token: &str) -> Vec<Reply> {
    let call = format!(r#"{},"confirm_token":"{token}","yes":true}}"#, CALL.strip_suffix('}').unwrap());
    let start = std::sync::Barrier::new(HANDS);
    std::thread::scope(|scope| {
        let hands: Vec<_> = (0..HANDS)
            .map(|hand| {
                let (line, start, call) = (lines[hand % lines.len()], &start, &call);
                scope.spawn(move || {
                    start.wait();
                    line.call("call_tool_write", call)
                })
            })
            .collect();
        hands.into_iter().map(|hand| hand.join().unwrap()).collect()
    })
}

/// One ran, all others were told that the token is used, and the upstream saw one call.
fn one_effect(scene: &mut Scene, replies: Vec<Reply>) {
    let replies: Vec<Reply> = replies.into_iter().map(|reply| scene.heed(reply)).collect();
    let ran = replies.iter().filter(|reply| reply.ran()).count();
    let used = replies.iter().filter(|reply| reply.code() == Some("E_CONFIRM_TOKEN_USED")).count();
    assert_eq!((ran, used), (1, HANDS - 1), "{:?}", replies.iter().map(Reply::code).collect::<Vec<_>>());
    assert_eq!(scene.reached().len(), 1, "one effect");
}

fn token(scene: &mut Scene, line: &Client) -> String {
    let asked = scene.call(line, "call_tool_write", CALL);
    asked.data()["confirm_token"].as_str().unwrap().to_owned()
}

#[test]
fn thirty_two_at_once_over_one_line() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let token = token(&mut scene, &line);
        let replies = rush(&[&line], &token);
        one_effect(&mut scene, replies);
        scene.finish(vec![line]);
    });
}

/// Several connections of one session over HTTP; several processes of one named session on stdio, all on one store.
#[test]
fn thirty_two_at_once_over_several_lines() {
    Way::each(&[Way::StdioLegacy, Way::StdioModern, Way::HttpModern], |way| {
        let mut scene = Scene::open(way, CONFIG);
        let lines: Vec<Client> = (0..4).map(|_| scene.line_named(Host::None, "shared")).collect();
        let token = token(&mut scene, &lines[0]);
        let replies = rush(&lines.iter().collect::<Vec<_>>(), &token);
        one_effect(&mut scene, replies);
        scene.finish(lines);
    });
}

/// Equal calls at once are one plan with as many tokens; all of them brought back at once are one effect.
#[test]
fn equal_plans_join_and_their_tokens_spend_once() {
    Way::each(&Way::ALL, |way| {
        let mut scene = Scene::open(way, CONFIG);
        let line = scene.line(Host::None);
        let start = std::sync::Barrier::new(HANDS);
        let both: Vec<(Reply, Reply)> = std::thread::scope(|scope| {
            let hands: Vec<_> = (0..HANDS)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        let asked = line.call("call_tool_write", CALL);
                        let token = asked.data()["confirm_token"].as_str().unwrap().to_owned();
                        start.wait();
                        let bring =
                            format!(r#"{},"confirm_token":"{token}","yes":true}}"#, &CALL[..CALL.len() - 1]);
                        (asked, line.call("call_tool_write", &bring))
                    })
                })
                .collect();
            hands.into_iter().map(|hand| hand.join().unwrap()).collect()
        });
        let plans: std::collections::BTreeSet<&str> =
            both.iter().map(|(asked, _)| asked.data()["plan_id"].as_str().unwrap()).collect();
        assert_eq!(plans.len(), 1, "{way:?}");
        one_effect(&mut scene, both.into_iter().map(|(_, brought)| brought).collect());
        scene.finish(vec![line]);
    });
}

/// A tool with its own dry run: a late caller gets another preview, because the call has run, and a refusal that says
/// so.
#[test]
fn a_preview_that_the_winner_changed_is_no_drift() {
    Way::each(&[Way::StdioLegacy, Way::HttpModern], |way| {
        let config = format!(
            r#"{CONFIG}
[upstreams.u]
[[upstreams.u.tools]]
name = "append"
effect = "write"
confirm = "simple"
run = ["sh", "-c", "echo line >> log"]
preview = ["sh", "-c", "cat log; echo one more"]
"#
        );
        let mut scene = Scene::open(way, &config);
        scene.world.write("log", "");
        let line = scene.line(Host::None);
        let call = r#"{"name":"u:append","args":{},"intent":{"operation_type":"write"}"#;
        let asked = scene.call(&line, "call_tool_write", &format!("{call}}}"));
        let token = asked.data()["confirm_token"].as_str().unwrap().to_owned();
        let again = format!(r#"{call},"confirm_token":"{token}","yes":true}}"#);
        let start = std::sync::Barrier::new(8);
        let replies: Vec<Reply> = std::thread::scope(|scope| {
            let hand = || {
                start.wait();
                line.call("call_tool_write", &again)
            };
            let hands: Vec<_> = (0..8).map(|_| scope.spawn(hand)).collect();
            hands.into_iter().map(|hand| hand.join().unwrap()).collect()
        });
        let replies: Vec<Reply> = replies.into_iter().map(|reply| scene.heed(reply)).collect();
        let used = replies.iter().filter(|reply| reply.code() == Some("E_CONFIRM_TOKEN_USED")).count();
        assert_eq!(used, 7, "{way:?} {:?}", replies.iter().map(Reply::code).collect::<Vec<_>>());
        assert_eq!(scene.world.read("log"), "line\n");
        scene.finish(vec![line]);
    });
}
