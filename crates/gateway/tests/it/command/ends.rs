//! How commands end: by themselves, well or badly, too late, cancelled, talking without end. Whatever happens nobody is left behind.

use std::time::Duration;

use countersign_gateway::upstreams::{Upstream, UpstreamCall, UpstreamFault};
use countersign_mcp::fault::DeliveryState;
use serde_json::{Value, json};

use super::bench::{Bench, texts};
use crate::upstreams::peer::{LONG, SHORT, is_alive, talk, until};

const ENDS: &str = r#"
[upstreams.u]
[[upstreams.u.tools]]
name = "exit"
effect = "read"
ok_exit = [0, 3]
input = { code = { type = "string" } }
run = ["sh", "-c", "echo out; echo err >&2; exit $1", "sh", "{code}"]

[[upstreams.u.tools]]
name = "signal"
effect = "read"
run = ["sh", "-c", "kill -9 $$"]

[[upstreams.u.tools]]
name = "missing"
effect = "read"
run = ["./no-such-program"]

[[upstreams.u.tools]]
name = "quiet"
effect = "read"
run = ["true"]

[[upstreams.u.tools]]
name = "lines"
effect = "read"
parse = "lines"
run = ["printf", "a\nb c\n\nd"]

[[upstreams.u.tools]]
name = "json"
effect = "read"
parse = "json"
input = { text = { type = "string" } }
run = ["printf", "%s", "{text}"]

[[upstreams.u.tools]]
name = "family"
effect = "read"
timeout = "1s"
run = ["sh", "-c", "sh -c 'sleep 300 & echo $! >> pids; wait' & sleep 300 & echo $! >> pids; echo $$ >> pids; echo begun >&2; wait"]

[[upstreams.u.tools]]
name = "stubborn"
effect = "read"
input = { seconds = { type = "integer" } }
run = ["sh", "-c", "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >> pids; sleep 300; sleep 300' & echo $$ >> pids; wait; sleep $1; sleep 300", "sh", "{seconds}"]

[[upstreams.u.tools]]
name = "leaves_one_behind"
effect = "read"
run = ["sh", "-c", "sleep 300 & echo $! >> pids; echo done"]

[[upstreams.u.tools]]
name = "flood"
effect = "read"
output = "1KiB"
input = { lines = { type = "integer" } }
run = ["sh", "-c", "i=0; while [ $i -lt $1 ]; do echo \"line $i ${env:SECRET}\"; i=$((i+1)); done; echo last words >&2", "sh", "{lines}"]

[[upstreams.u.tools]]
name = "torrent"
effect = "read"
output = "4KiB"
timeout = "1s"
run = ["yes", "over and over"]

[[upstreams.u.tools]]
name = "greedy"
effect = "read"
stdin = "{text}"
input = { text = { type = "string" } }
run = ["wc", "-c"]

[[upstreams.u.tools]]
name = "deaf"
effect = "read"
stdin = "{text}"
input = { text = { type = "string" } }
run = ["true"]

[[upstreams.u.tools]]
name = "held"
effect = "read"
lock = "one"
input = { file = { type = "string" } }
run = ["sh", "-c", "touch $1.began; while ! test -e $1; do sleep 0.02; done", "sh", "{file}"]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_and_what_was_written() {
    let bench = Bench::new(ENDS).await;
    let good = bench.call("exit", json!({"code": "0"})).await.unwrap();
    assert_eq!(
        good,
        json!({
            "content": [{"type": "text", "text": "out\n"}, {"type": "text", "text": "err\n"}],
            "isError": false,
            "_meta": {"countersign/command": {"exit_code": 0}},
        })
    );
    let fine = bench.call("exit", json!({"code": "3"})).await.unwrap();
    assert_eq!(
        (&fine["isError"], &fine["_meta"]["countersign/command"]["exit_code"]),
        (&json!(false), &json!(3))
    );
    let bad = bench.call("exit", json!({"code": "7"})).await.unwrap();
    assert_eq!(
        (&bad["isError"], texts(&bad)),
        (&json!(true), vec!["`u:exit` failed with exit code 7", "err\n", "out\n"])
    );
    let killed = bench.call("signal", json!({})).await.unwrap();
    assert_eq!(
        (&killed["isError"], texts(&killed)),
        (&json!(true), vec!["`u:signal` was ended by signal 9"])
    );
    let quiet = bench.call("quiet", json!({})).await.unwrap();
    assert_eq!(texts(&quiet), ["`u:quiet` ended with exit code 0 and wrote nothing"]);
    match bench.call("missing", json!({})).await {
        Err(UpstreamFault::Unavailable { why, sent: DeliveryState::No }) => {
            assert!(why.starts_with("`./no-such-program` could not be started"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_parsed_where_it_can_be() {
    let bench = Bench::new(ENDS).await;
    let bench = &bench;
    let lines = bench.call("lines", json!({})).await.unwrap();
    assert_eq!(lines["structuredContent"], json!({"lines": ["a", "b c", "", "d"]}));
    let parsed = async |text: &str| bench.call("json", json!({"text": text})).await.unwrap();
    assert_eq!(parsed(r#" {"a": [1]} "#).await["structuredContent"], json!({"a": [1]}));
    assert_eq!(parsed("[1, 2]").await["structuredContent"], json!({"value": [1, 2]}));
    for odd in ["not json", "", "{\"a\": 1} {}", &"[".repeat(100)] {
        let result = parsed(odd).await;
        assert_eq!((result.get("structuredContent"), &result["isError"]), (None, &json!(false)), "{odd}");
        assert!(
            texts(&result).last().unwrap().starts_with("the output is not what was expected"),
            "{result}"
        );
    }
    // Numbers keep their text.
    let opened = bench.open("json", &json!({"text": "{\"n\": 12345678901234567890123.50}"})).await.unwrap();
    let raw = bench.upstream.call(UpstreamCall::opened(&opened, None), talk(LONG)).await.unwrap();
    assert!(raw.get().contains(r#""structuredContent":{"n": 12345678901234567890123.50}"#), "{}", raw.get());
}

fn pids(bench: &Bench) -> Vec<String> {
    bench.read("pids").lines().map(str::to_owned).collect()
}

async fn all_gone(bench: &Bench, count: usize) {
    let pids = pids(bench);
    assert_eq!(pids.len(), count, "{pids:?}");
    until("everyone is gone", || pids.iter().all(|pid| !is_alive(pid))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_too_long_is_killed_with_its_children_and_theirs() {
    let bench = Bench::new(ENDS).await;
    match bench.call("family", json!({})).await {
        Err(UpstreamFault::Timeout { why, sent: DeliveryState::Unknown }) => {
            assert_eq!(why, "`u:family` took longer than 1s and was killed; its last words: begun");
        }
        other => panic!("{other:?}"),
    }
    all_gone(&bench, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_takes_everyone_along() {
    let bench = Bench::new(ENDS).await;
    let opened = bench.open("stubborn", &json!({"seconds": 300})).await.unwrap();
    {
        let call = bench.upstream.call(UpstreamCall::opened(&opened, None), talk(LONG));
        tokio::select! {
            _ = call => panic!("it does not end by itself"),
            () = until("it began", || pids(&bench).len() == 2) => {}
        }
    }
    // They do not listen to a polite word, and are killed after the grace.
    all_gone(&bench, 2).await;
    bench.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_what_runs_and_starts_nothing_more() {
    let bench = Bench::new(ENDS).await;
    let opened = bench.open("stubborn", &json!({"seconds": 300})).await.unwrap();
    let call = bench.upstream.call(UpstreamCall::opened(&opened, None), talk(LONG));
    let close = async {
        until("it began", || pids(&bench).len() == 2).await;
        bench.upstream.close().await;
        all_gone(&bench, 2).await;
    };
    let (ended, ()) = tokio::join!(call, close);
    assert!(
        matches!(ended, Err(UpstreamFault::Unavailable { sent: DeliveryState::Unknown, .. })),
        "{ended:?}"
    );
    let after = bench.call("quiet", json!({})).await;
    assert!(matches!(after, Err(UpstreamFault::Unavailable { sent: DeliveryState::No, .. })), "{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_stays_behind_a_command_that_ended() {
    let bench = Bench::new(ENDS).await;
    let result = bench.call("leaves_one_behind", json!({})).await.unwrap();
    assert_eq!(texts(&result), ["done\n"]);
    all_gone(&bench, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_cut_in_the_middle_and_whole_in_its_log() {
    let bench = Bench::new(ENDS).await;
    let short = bench.call("flood", json!({"lines": 10})).await.unwrap();
    assert_eq!(texts(&short)[0].lines().count(), 10);
    assert!(!bench.folder.path().join("runs").exists(), "what fits leaves no log");

    let result = bench.call("flood", json!({"lines": 2000})).await.unwrap();
    let out = texts(&result)[0];
    assert!(out.starts_with("line 0 ***\n") && out.ends_with("line 1999 ***\n"), "{out}");
    assert!(out.len() < 1200, "{}", out.len());
    let log = out.split("the whole output is in ").nth(1).unwrap().split(']').next().unwrap();
    let log = bench.read(log);
    assert_eq!(log.lines().filter(|line| line.ends_with(" ***")).count(), 2000);
    assert!(log.ends_with("last words\n") && !log.contains("correct-horse"));

    // More than anyone reads, until its time is up.
    match bench.call("torrent", json!({})).await {
        Err(UpstreamFault::Timeout { sent: DeliveryState::Unknown, .. }) => {}
        other => panic!("{other:?}"),
    }
    for entry in std::fs::read_dir(bench.folder.path().join("runs")).unwrap() {
        let entry = entry.unwrap().metadata().unwrap();
        assert!(entry.len() < 65 << 20);
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&entry.permissions()) & 0o777, 0o600);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_is_read_and_not_reading_is_no_fault() {
    let bench = Bench::new(ENDS).await;
    let text = "x".repeat(3 << 20);
    let read = bench.call("greedy", json!({"text": text})).await.unwrap();
    assert_eq!(texts(&read)[0].trim(), (3 << 20).to_string());
    let deaf = bench.call("deaf", json!({"text": text})).await.unwrap();
    assert_eq!(deaf["isError"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_lock_waits_with_the_clock_running() {
    let bench = Bench::new(ENDS).await;
    let first = async {
        let result: Value = bench.call("held", json!({"file": "go"})).await.unwrap();
        assert_eq!(result["isError"], false);
    };
    let others = async {
        until("the first has it", || bench.folder.path().join("go.began").exists()).await;
        match bench.call_within("held", json!({"file": "late"}), SHORT).await {
            Err(UpstreamFault::Timeout { sent: DeliveryState::No, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert!(!bench.folder.path().join("late.began").exists(), "it never began");
        std::fs::write(bench.folder.path().join("go"), "").unwrap();
    };
    tokio::join!(first, others);
    std::fs::write(bench.folder.path().join("next"), "").unwrap();
    bench.call_within("held", json!({"file": "next"}), Duration::from_secs(30)).await.unwrap();
}
