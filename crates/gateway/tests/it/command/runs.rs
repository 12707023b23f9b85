//! Runs in the background: answered at once, queued behind their lock, stopped, timed out, lost with their gateway; their rows are
//! true at every moment and nobody is left behind.

use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::upstreams::Upstream;
use countersign_policy::ids::RunId;
use countersign_store::{LedgerFilter, RunState};
use serde_json::json;

use super::bench::Bench;
use crate::upstreams::peer::{is_alive, until};

const RUNS: &str = r#"
[upstreams.u]
[[upstreams.u.tools]]
name = "say"
effect = "read"
background = true
ok_exit = [0, 2]
input = { code = { type = "string", default = "0" } }
run = ["sh", "-c", "echo one ${env:SECRET}; echo two >&2; exit $1", "sh", "{code}"]
preview = ["echo", "would say {code}"]

[[upstreams.u.tools]]
name = "count"
effect = "read"
background = true
run = ["sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done"]

[[upstreams.u.tools]]
name = "wait"
effect = "read"
background = true
input = { file = { type = "string" } }
run = ["sh", "-c", "sleep 300 & echo $! >> pids; echo $$ >> pids; echo begun; while ! test -e $1; do sleep 0.02; done", "sh", "{file}"]

[[upstreams.u.tools]]
name = "slow"
effect = "read"
background = true
timeout = "1s"
run = ["sh", "-c", "sleep 300 & echo $! >> pids; echo $$ >> pids; wait"]

[[upstreams.u.tools]]
name = "missing"
effect = "read"
background = true
run = ["./no-such-program"]

[[upstreams.u.tools]]
name = "alone"
effect = "read"
background = true
lock = "only/one"
run = ["sh", "-c", "mkdir inside || { echo twice >> twice; exit 1; }; echo x >> count; rmdir inside"]

[[upstreams.u.tools]]
name = "together"
effect = "read"
background = true
run = ["sh", "-c", "echo x >> together"]

[[upstreams.u.tools]]
name = "held"
effect = "read"
background = true
lock = "held"
input = { file = { type = "string" } }
run = ["sh", "-c", "while ! test -e $1; do sleep 0.02; done", "sh", "{file}"]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_as_it_ended() {
    let bench = Bench::new(RUNS).await;
    for (code, state) in [("0", RunState::Success), ("2", RunState::Success), ("1", RunState::Failed)] {
        let id = bench.begin("say", json!({"code": code})).await;
        let run = bench.ended(&id).await;
        assert_eq!((run.state, run.exit_code), (state, Some(code.parse().unwrap())));
        assert!(run.ended.unwrap() >= run.started);
        assert_eq!(
            (run.principal.as_str(), run.session.as_str(), run.tool.as_str()),
            ("agent", "s", "u:say")
        );
        let mut lines = run.log_tail.clone();
        lines.sort();
        assert_eq!(lines, ["one ***", "two"]);
        let log = bench.read(&format!("runs/{id}.log"));
        assert!(log.contains("one ***\n") && !log.contains("correct-horse"), "{log}");
    }
    let id = bench.begin("missing", json!({})).await;
    let run = bench.ended(&id).await;
    assert_eq!((run.state, run.exit_code), (RunState::Failed, None));
    assert!(run.log_tail[0].starts_with("not started: `./no-such-program`"), "{run:?}");
    // The end is in the ledger too, with the row that let it out.
    let rows = bench.store.activity(LedgerFilter::default()).await.unwrap();
    let told = format!("{rows:?}");
    assert!(told.contains("run_ended") && told.contains(run.ledger_id.unwrap().as_str()), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_waits_for_the_preview_and_begins_nothing() {
    let bench = Bench::new(RUNS).await;
    let preview = bench.dry_run("say#preview", json!({"code": "4"})).await.unwrap();
    assert_eq!(preview["content"][0]["text"], "would say 4\n");
    assert!(bench.dry_run("count#preview", json!({})).await.is_err());
    assert!(bench.store.runs(None, 10).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_lines_are_kept_and_the_log_is_whole() {
    let bench = Bench::new(RUNS).await;
    let id = bench.begin("count", json!({})).await;
    let run = bench.ended(&id).await;
    assert_eq!((run.log_tail.len(), run.log_tail.last().unwrap().as_str()), (1000, "2999"));
    assert_eq!(bench.read(&format!("runs/{id}.log")).lines().count(), 3000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_is_seen_running_and_can_be_stopped() {
    let bench = Bench::new(RUNS).await;
    let id = bench.begin("wait", json!({"file": "never"})).await;
    let run = bench.until(&id, &[RunState::Running]).await;
    assert_eq!((run.ended, run.exit_code), (None, None));
    until("it began", || bench.read("pids").lines().count() == 2).await;
    assert!(bench.runs.stop(&id));
    let run = bench.ended(&id).await;
    assert_eq!((run.state, run.log_tail.last().unwrap().as_str()), (RunState::Cancelled, "stopped"));
    all_gone(&bench, 2).await;
    until("it is forgotten", || !bench.runs.stop(&id)).await;
    assert!(!bench.runs.stop(&RunId::new("run_0")));

    let id = bench.begin("slow", json!({})).await;
    let run = bench.ended(&id).await;
    assert_eq!(
        (run.state, run.log_tail.last().unwrap().as_str()),
        (RunState::Failed, "killed: it took longer than 1s")
    );
    all_gone(&bench, 4).await;
}

async fn all_gone(bench: &Bench, count: usize) {
    let pids: Vec<String> = bench.read("pids").lines().map(str::to_owned).collect();
    assert_eq!(pids.len(), count, "{pids:?}");
    until("everyone is gone", || pids.iter().all(|pid| !is_alive(pid))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time_behind_a_lock_and_the_queue_is_shown() {
    let bench = Bench::new(RUNS).await;
    let first = bench.begin("held", json!({"file": "go"})).await;
    bench.until(&first, &[RunState::Running]).await;
    let second = bench.begin("held", json!({"file": "go"})).await;
    let third = bench.begin("held", json!({"file": "go"})).await;
    assert_eq!(bench.run(&second).await.state, RunState::Queued);
    // One that is queued can be stopped, and never begins.
    assert!(bench.runs.stop(&third));
    assert_eq!(bench.ended(&third).await.state, RunState::Cancelled);
    assert_eq!(bench.run(&second).await.state, RunState::Queued);
    std::fs::write(bench.folder.path().join("go"), "").unwrap();
    for id in [&first, &second] {
        assert_eq!(bench.ended(id).await.state, RunState::Success);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_at_once_with_a_lock_and_without() {
    let bench = Arc::new(Bench::new(RUNS).await);
    let mut begun = tokio::task::JoinSet::new();
    for number in 0..400 {
        let bench = Arc::clone(&bench);
        let tool = if number % 2 == 0 { "alone" } else { "together" };
        begun.spawn(async move { bench.begin(tool, json!({})).await });
    }
    let ids = begun.join_all().await;
    for id in &ids {
        assert_eq!(bench.ended(id).await.state, RunState::Success);
    }
    assert_eq!(bench.read("count").lines().count(), 200);
    assert_eq!(bench.read("together").lines().count(), 200);
    assert_eq!(bench.read("twice"), "", "two were inside at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_stops_runs_and_says_so() {
    let bench = Bench::new(RUNS).await;
    let mut ids = vec![bench.begin("wait", json!({"file": "never"})).await];
    ids.push(bench.begin("held", json!({"file": "never"})).await);
    ids.push(bench.begin("held", json!({"file": "never"})).await);
    until("it began", || bench.read("pids").lines().count() == 2).await;
    bench.upstream.retire().await;
    assert_eq!(bench.run(&ids[0]).await.state, RunState::Running, "a changed configuration kills nothing");
    bench.upstream.close().await;
    for id in &ids {
        assert_eq!(bench.run(id).await.state, RunState::Cancelled, "its row is written when close returns");
    }
    all_gone(&bench, 2).await;
}

/// A runtime that is dropped is as near as a test comes to a gateway that dies.
#[test]
fn a_run_lost_with_its_gateway_is_of_unknown_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let first = runtime();
    let (bench, ids) = first.block_on(async {
        let bench = Bench::with(RUNS, folder).await;
        let running = bench.begin("wait", json!({"file": "never"})).await;
        until("it began", || bench.read("pids").lines().count() == 2).await;
        let holds = bench.begin("held", json!({"file": "never"})).await;
        bench.until(&holds, &[RunState::Running]).await;
        // One in the queue, as its row says. A real one would get the lock while the runtime shuts down, which cannot
        // happen when a gateway is killed.
        let mut queued = bench.run(&holds).await;
        (queued.id, queued.state) = (RunId::new("run_queued"), RunState::Queued);
        bench.store.begin_run(&queued).await.unwrap();
        (bench, [running, holds, queued.id])
    });
    first.shutdown_timeout(Duration::from_secs(10));
    let pids: Vec<String> = bench.read("pids").lines().map(str::to_owned).collect();
    let Bench { folder, store, runs, upstream, .. } = bench;
    drop((runs, upstream, store));
    runtime().block_on(async {
        until("everyone is gone", || pids.iter().all(|pid| !is_alive(pid))).await;
        let store = super::bench::store_in(&path).await;
        let recovered = store.recover(jiff::Timestamp::now()).await.unwrap();
        assert_eq!((recovered.runs.len(), recovered.never_begun.len()), (2, 1));
        let [running, holds, queued] = &ids;
        for id in [running, holds] {
            assert_eq!(store.run(id).await.unwrap().unwrap().state, RunState::OutcomeUnknown);
        }
        // One that waited for its turn has certainly done nothing.
        let queued = store.run(queued).await.unwrap().unwrap();
        assert_eq!(queued.state, RunState::Cancelled);
        assert_eq!(queued.log_tail, ["never started: the gateway ended first"]);
    });
    drop(folder);
}
