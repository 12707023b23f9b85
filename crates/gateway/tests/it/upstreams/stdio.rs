//! The fault matrix on stdio.

use std::time::{Duration, Instant};

use countersign_gateway::upstreams::environment::PASSED;
use countersign_gateway::upstreams::{Condition, Upstream, UpstreamFault};
use countersign_mcp::client::UpstreamAnomaly;
use serde_json::{Value, json};

use super::peer::{LONG, Peer, SHORT, call, is_alive, talk, text_of, told, until, why};

/// One row of the matrix: the tool, the timeout, the reported fault, how often it acted, and whether the connection
/// serves the next call.
struct Row {
    fault: &'static str,
    limit: Duration,
    told: &'static str,
    acted: usize,
    next: Next,
}

enum Next {
    /// Answered on the same connection.
    Same,
    /// Answered on a new one.
    New,
    /// Not answered: it hangs.
    Never,
}

const fn row(fault: &'static str, limit: Duration, told: &'static str, acted: usize, next: Next) -> Row {
    Row { fault, limit, told, acted, next }
}

const MATRIX: &[Row] = &[
    row("exit_before", LONG, "unavailable unknown", 0, Next::New),
    row("exit_after", LONG, "unavailable unknown", 1, Next::New),
    row("stop", SHORT, "timeout unknown", 1, Next::Never),
    row("no_newline", SHORT, "timeout unknown", 1, Next::Same),
    row("drip", SHORT, "timeout unknown", 1, Next::Never),
    row("long_line", LONG, "too large", 1, Next::Same),
    row("bad_utf8", LONG, "unavailable unknown", 1, Next::Same),
    row("noise", LONG, "ok", 1, Next::Same),
    row("wrong_id", SHORT, "timeout unknown", 1, Next::Same),
    row("duplicate", LONG, "ok", 1, Next::Same),
    row("silent", SHORT, "timeout unknown", 1, Next::Same),
    row("stderr_flood", LONG, "ok", 1, Next::Same),
    row("storm", LONG, "ok", 1, Next::Same),
    row("fork", LONG, "ok", 1, Next::Same),
    row("closes_stdout", LONG, "unavailable unknown", 1, Next::New),
    row("error", LONG, "rpc -32050", 1, Next::Same),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_is_told_as_it_was_and_harms_nobody_else() {
    let good = Peer::new("good");
    good.text("echo").await;
    for row in MATRIX {
        check_row(row, &good).await;
    }
    assert_eq!(good.count("opened"), 1, "the other upstream was disturbed");
    good.upstream.close().await;
}

async fn check_row(row: &Row, good: &Peer) {
    let name = row.fault;
    let bad = Peer::new("bad");
    let pid = bad.text("pid").await;
    let started = Instant::now();
    let (result, other) = tokio::join!(bad.call(name, row.limit), good.text("echo"));
    assert_eq!(told(&result), row.told, "{name}: {}", why(&result));
    assert!(started.elapsed() < LONG, "{name} held up the others");
    assert!(!other.is_empty());
    assert_eq!(bad.count(name), row.acted, "{name}");
    let (next, opened) = match row.next {
        Next::Same => ("ok", 1),
        Next::New => ("ok", 2),
        Next::Never => ("timeout unknown", 1),
    };
    let limit = if next == "ok" { LONG } else { SHORT };
    // What is left of a reply without its end makes the next line unreadable: one call pays for it.
    let again = match name {
        "no_newline" => {
            let _ = bad.call("echo", SHORT).await;
            bad.call("echo", limit).await
        }
        _ => bad.call("echo", limit).await,
    };
    assert_eq!(told(&again), next, "after {name}: {}", why(&again));
    assert_eq!((bad.count("opened"), bad.count(name)), (opened, row.acted), "{name} was sent again");
    bad.upstream.close().await;
    assert!(!is_alive(&pid), "{name} left its child behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dying_child_is_quoted_and_its_end_is_told_once() {
    let peer = Peer::new("files");
    let result = peer.call("exit_before", LONG).await;
    assert_eq!(why(&result), "`files`: connection closed: exit status: 3; last words: cannot go on");
    until("it is opened again", || peer.ear.events.lock().unwrap().len() >= 3).await;
    assert_eq!(peer.ear.events.lock().unwrap()[..3], ["connected", "closed", "connected"]);
    assert_eq!(peer.upstream.health().restarts, 1);
    peer.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_die_together_and_none_is_repeated() {
    let peer = Peer::new("u");
    peer.text("pid").await;
    let silent: Vec<_> = (0..10)
        .map(|_| {
            let upstream = peer.upstream.clone();
            tokio::spawn(async move { told(&call(&*upstream, "silent", json!({}), LONG).await) })
        })
        .collect();
    until("all are in flight", || peer.count("silent") == 10).await;
    assert_eq!(told(&peer.call("exit_after", LONG).await), "unavailable unknown");
    for task in silent {
        assert_eq!(task.await.unwrap(), "unavailable unknown");
    }
    assert_eq!(told(&peer.call("echo", LONG).await), "ok");
    assert_eq!((peer.count("silent"), peer.count("exit_after"), peer.count("opened")), (10, 1, 2));
    peer.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_and_doubled_replies_are_noticed_and_reach_nobody() {
    let peer = Peer::new("u");
    peer.text("pid").await;
    let late = call(&*peer.upstream, "late", json!({"seconds": 0.5}), Duration::from_millis(100)).await;
    assert_eq!(told(&late), "timeout unknown");
    assert_eq!(why(&late), "`u` did not answer within 100ms");
    assert_eq!(text_of(&peer.call("duplicate", LONG).await.unwrap()), "first");
    assert!(peer.text("echo").await.contains("\"echo\""));
    until("both were noticed", || peer.ear.anomaly.lock().unwrap().len() >= 2).await;
    let anomaly = peer.ear.anomaly.lock().unwrap().clone();
    assert!(
        matches!(anomaly[..], [UpstreamAnomaly::LateReply(_), UpstreamAnomaly::UnknownReply(_)]),
        "{anomaly:?}"
    );
    peer.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_news_arrives_whole_and_in_order() {
    let peer = Peer::new("u");
    peer.text("storm").await;
    let notes = std::mem::take(&mut *peer.ear.notes.lock().unwrap());
    let numbers: Vec<u64> = notes
        .iter()
        .map(|note| {
            serde_json::from_str::<Value>(note.params.as_ref().unwrap().get()).unwrap()["n"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(numbers, (0..10_000).collect::<Vec<u64>>());
    peer.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stderr_is_kept_within_bounds_and_shown_safely() {
    let peer = Peer::new("u");
    peer.text("stderr_flood").await;
    until("the end is there", || peer.upstream.health().stderr_tail.contains("the last line")).await;
    assert!(peer.upstream.health().stderr_tail.len() <= 64 << 10);
    let silent = peer.call("silent", Duration::from_millis(50)).await;
    assert_eq!(why(&silent), "`u` did not answer within 50ms; last words: the last line");
    peer.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_child_forks_goes_with_it() {
    let peer = Peer::new("u");
    let (child, grandchild) = (peer.text("pid").await, peer.text("fork").await);
    assert!(is_alive(&child) && is_alive(&grandchild));
    peer.upstream.close().await;
    // Reaping what lost its parent is init's work and may take a moment.
    until("both are gone", || !is_alive(&child) && !is_alive(&grandchild)).await;
    let closed = peer.call("echo", LONG).await;
    assert_eq!((told(&closed).as_str(), why(&closed).as_str()), ("unavailable no", "`u`: it was closed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_upstream_takes_its_child_along() {
    let peer = Peer::new("u");
    let (child, grandchild) = (peer.text("pid").await, peer.text("fork").await);
    drop(peer);
    until("both are gone", || !is_alive(&child) && !is_alive(&grandchild)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_are_read_and_endless_ones_are_not() {
    let many = Peer::with("many", &[("LISTS", "many")], |_| {});
    assert_eq!(many.upstream.tools().await.unwrap().len(), 10_000);
    many.upstream.close().await;
    let circle = Peer::with("circle", &[("LISTS", "circle")], |_| {});
    let Err(UpstreamFault::Unavailable { why, .. }) = circle.upstream.tools().await else { panic!() };
    assert_eq!(why, "`circle`: its pages go round in a circle: cursor `again` came twice");
    assert_eq!(told(&circle.call("echo", LONG).await), "ok");
    circle.upstream.close().await;
    let none = Peer::with("none", &[("LISTS", "none")], |_| {});
    assert_eq!(none.upstream.tools().await.unwrap().len(), 0);
    none.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_starts_before_it_is_needed() {
    let peer = Peer::new("u");
    assert_eq!(peer.upstream.health().condition, Condition::Idle);
    peer.upstream.notify("notifications/roots/list_changed", None).await;
    assert_eq!(peer.effects(), Vec::<String>::new());
    peer.text("echo").await;
    let health = peer.upstream.health();
    assert_eq!((health.condition, health.era, health.restarts), (Condition::Up, Some("legacy"), 0));
    assert_eq!(health.version.as_deref(), Some("2025-11-25"));
    assert_eq!(health.server_info.unwrap()["name"], "fault");
    assert_eq!(health.recent_us.len(), 1);
    assert!(peer.upstream.capabilities().unwrap().get().contains("listChanged"));
    peer.upstream.close().await;
    let eager = Peer::new("eager");
    eager.upstream.start();
    until("it is up", || eager.upstream.health().condition == Condition::Up).await;
    eager.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_era_is_found_out_once() {
    let peer = Peer::with("u", &[], |settings| settings.era = None);
    peer.text("echo").await;
    assert_eq!(peer.count("opened"), 1);
    assert_eq!(told(&peer.call("exit_before", LONG).await), "unavailable unknown");
    peer.text("echo").await;
    assert_eq!((peer.count("opened"), peer.upstream.health().restarts), (2, 1));
    peer.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_at_a_time_and_the_rest_wait_with_their_time_running() {
    let peer = Peer::with("u", &[], |settings| settings.in_flight = 2);
    peer.text("pid").await;
    let upstream = peer.upstream.clone();
    let holding: Vec<_> = (0..2)
        .map(|_| {
            let upstream = upstream.clone();
            tokio::spawn(async move { call(&*upstream, "silent", json!({}), SHORT).await })
        })
        .collect();
    until("both are in flight", || peer.count("silent") == 2).await;
    let waiting = peer.call("echo", Duration::from_millis(50)).await;
    assert_eq!(told(&waiting), "timeout no");
    assert_eq!(why(&waiting), "`u` had no place free within 50ms");
    let patient = peer.call("echo", LONG).await;
    assert_eq!(told(&patient), "ok");
    for task in holding {
        assert_eq!(told(&task.await.unwrap()), "timeout unknown");
    }
    peer.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_reads_nothing_holds_nobody_beyond_their_time() {
    let peer = Peer::with("u", &[], |settings| settings.in_flight = 1_000);
    peer.text("pid").await;
    assert_eq!(told(&peer.call("stop", SHORT).await), "timeout unknown");
    // More than any pipe and queue on the way hold.
    let big = json!({"x": "x".repeat(64 << 10)});
    let calls: Vec<_> = (0..400)
        .map(|_| {
            let (upstream, big) = (peer.upstream.clone(), big.clone());
            tokio::spawn(async move { told(&call(&*upstream, "echo", big, SHORT).await) })
        })
        .collect();
    let mut unsent = 0;
    for task in calls {
        match task.await.unwrap().as_str() {
            "timeout unknown" => {}
            "timeout no" => unsent += 1,
            other => panic!("{other}"),
        }
    }
    assert!(unsent > 0, "what never left the queue was not told as such");
    peer.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_start_is_told_at_once_and_tried_with_pauses() {
    let peer = Peer::with("u", &[], |settings| {
        let countersign_mcp::client::UpstreamSpec::Stdio(spec) = &mut settings.spec else { return };
        spec.program = "/nonexistent/program".into();
        settings.backoff.first = LONG;
    });
    let first = peer.call("echo", LONG).await;
    assert_eq!(told(&first), "unavailable no");
    assert!(why(&first).starts_with("`u`: could not start `/nonexistent/program`: "), "{}", why(&first));
    let second = peer.call("echo", LONG).await;
    assert_eq!(told(&second), "unavailable no");
    assert!(why(&second).contains("; it is tried again in "), "{}", why(&second));
    assert!(matches!(peer.upstream.health().condition, Condition::Down(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_environment_is_clean() {
    let peer = Peer::with("u", &[("TOKEN", "x")], |_| {});
    let names: Vec<String> = serde_json::from_str(&peer.text("environment").await).unwrap();
    // What a shell or an interpreter sets by itself is not ours, even where we have it as well.
    let own =
        |name: &str| name.contains("PYENV") || ["LC_CTYPE", "PWD", "SHLVL", "OLDPWD", "_"].contains(&name);
    let ours =
        std::env::vars().map(|(name, _)| name).filter(|name| !PASSED.contains(&name.as_str()) && !own(name));
    let leaked: Vec<String> = ours.filter(|name| names.contains(name)).collect();
    assert_eq!(leaked, Vec::<String>::new());
    assert!(names.contains(&"TOKEN".to_owned()) && names.contains(&"PATH".to_owned()));
    peer.upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn giving_up_a_call_cancels_it_and_nothing_else() {
    let peer = Peer::new("u");
    peer.text("pid").await;
    let upstream = peer.upstream.clone();
    let task = tokio::spawn(async move { call(&*upstream, "silent", json!({}), LONG).await });
    until("it is in flight", || peer.count("silent") == 1).await;
    task.abort();
    assert!(peer.text("echo").await.contains("echo"));
    let other = peer.upstream.request("ping", None, talk(LONG)).await;
    assert_eq!(told(&other), "rpc -32601");
    assert_eq!(peer.count("opened"), 1);
    peer.upstream.close().await;
}
