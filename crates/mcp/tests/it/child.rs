//! The upstream face over real child processes: era probe, environment, faults, cancellation, no orphans.

use std::sync::Arc;
use std::time::Duration;

use countersign_mcp::client::{
    Deadline, EraChoice, RequestOptions, StdioSpec, Upstream, UpstreamAnomaly, UpstreamOptions, UpstreamSpec,
};
use countersign_mcp::era::Era;
use countersign_mcp::fault::{DeliveryState, FaultKind, RequestFailure};
use countersign_mcp::raw;

use super::kit::{Ears, call, connect, connect_as, peer, plan, soon};

fn quick() -> RequestOptions {
    RequestOptions { deadline: Deadline::Total(Duration::from_millis(200)), ..RequestOptions::default() }
}

async fn ask(upstream: &Upstream, name: &str, arguments: &str) -> Result<raw::RawJson, RequestFailure> {
    soon(upstream.request("tools/call", Some(&call(name, arguments)), RequestOptions::default())).await
}

fn is_alive(pid: i32) -> bool {
    // A zombie is dead; only the kernel still knows its name.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

async fn gone(pid: i32) {
    soon(async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_era_is_probed_and_can_be_given_back() {
    // `fussy` refuses the first version it is asked for and names the same one as its own: asked again, it agrees.
    let known =
        [("legacy", Era::Legacy), ("modern", Era::Modern), ("dual", Era::Modern), ("fussy", Era::Modern)];
    for (mode, era) in known {
        let (upstream, _) = connect(mode).await;
        assert_eq!(upstream.era(), era, "{mode}");
        assert!(upstream.server_info().unwrap().get().contains("peer"), "{mode}");
        let listed = soon(upstream.request("tools/list", None, RequestOptions::default())).await.unwrap();
        assert!(listed.get().contains(r#""inputSchema":{"z":1,"a":2}"#));
        upstream.close().await;
    }
    let (upstream, _) = connect_as("dual", EraChoice::Known(Era::Legacy)).await;
    assert_eq!(upstream.era(), Era::Legacy);
    upstream.close().await;
}

/// A child that takes longer to start than the probe waits is asked in the other era beside it, and still counts when it answers.
#[tokio::test]
async fn a_probe_that_is_answered_late_counts() {
    for (mode, era) in [("dual", Era::Modern), ("modern", Era::Modern), ("legacy", Era::Legacy)] {
        let spec = peer(mode);
        let mut words = vec![
            std::ffi::OsString::from("-c"),
            r#"/bin/sleep 1.5; exec "$0" "$@""#.into(),
            spec.program.clone(),
        ];
        words.extend(spec.args.clone());
        let slow = StdioSpec::new("/bin/sh", words);
        let mut plan = plan(&Arc::new(Ears::default()));
        plan.probe_timeout = Duration::from_millis(500);
        let upstream = soon(Upstream::connect(&UpstreamSpec::Stdio(slow), plan)).await.unwrap();
        assert_eq!(upstream.era(), era, "{mode}");
        upstream.close().await;
    }
}

#[tokio::test]
async fn nothing_of_our_environment_is_inherited() {
    let mut spec = peer("legacy");
    spec.env.push(("GIVEN".into(), "1".into()));
    let ears = Arc::new(Ears::default());
    let upstream = soon(Upstream::connect(&UpstreamSpec::Stdio(spec), plan(&ears))).await.unwrap();
    let names = ask(&upstream, "environment", "{}").await.unwrap();
    assert_eq!(names.get(), r#"{"names":["GIVEN"]}"#);
    upstream.close().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_said_so() {
    let ears = Arc::new(Ears::default());
    let spec = UpstreamSpec::Stdio(StdioSpec::new("/nonexistent/program", ["x"]));
    let failure = soon(Upstream::connect(&spec, plan(&ears))).await.unwrap_err();
    assert!(
        matches!(failure, RequestFailure::Wire(fault) if matches!(fault.kind, FaultKind::Spawn { .. }) && fault.sent == DeliveryState::No)
    );
}

#[tokio::test]
async fn news_reaches_the_observer_unmarked_in_both_eras() {
    for mode in ["legacy", "modern"] {
        let (upstream, ears) = connect(mode).await;
        ask(&upstream, "echo", "{}").await.unwrap();
        ask(&upstream, "news", "{}").await.unwrap();
        let heard = ears.heard.lock().unwrap().clone();
        let expected = if mode == "legacy" {
            "notifications/tools/list_changed {}"
        } else {
            "notifications/tools/list_changed"
        };
        assert_eq!(heard, [expected], "{mode}");
        upstream.close().await;
    }
}

#[tokio::test]
async fn a_timeout_cancels_and_its_late_reply_is_told() {
    for mode in ["legacy", "modern"] {
        let (upstream, ears) = connect(mode).await;
        let failure =
            soon(upstream.request("tools/call", Some(&call("hang", "{}")), quick())).await.unwrap_err();
        assert!(
            matches!(&failure, RequestFailure::Wire(fault) if matches!(fault.kind, FaultKind::Timeout(_)) && fault.sent == DeliveryState::Unknown),
            "{failure:?}"
        );
        ears.until(|ears| matches!(ears.anomaly.lock().unwrap()[..], [UpstreamAnomaly::LateReply(_)])).await;
        ask(&upstream, "echo", "{}").await.unwrap();
        upstream.close().await;
    }
}

#[tokio::test]
async fn a_dropped_request_is_cancelled_upstream() {
    let (upstream, ears) = connect("legacy").await;
    let params = call("hang", "{}");
    let request = upstream.request("tools/call", Some(&params), RequestOptions::default());
    assert!(tokio::time::timeout(Duration::from_millis(50), request).await.is_err());
    ears.until(|ears| matches!(ears.anomaly.lock().unwrap()[..], [UpstreamAnomaly::LateReply(_)])).await;
    upstream.close().await;
}

#[tokio::test]
async fn noise_duplicates_and_lies_disturb_nobody() {
    let (upstream, ears) = connect("legacy").await;
    ask(&upstream, "noise", "{}").await.unwrap();
    ask(&upstream, "twice", "{}").await.unwrap();
    ask(&upstream, "echo", "{}").await.unwrap();
    let anomaly = ears.anomaly.lock().unwrap().clone();
    assert!(
        matches!(
            &anomaly[..],
            [UpstreamAnomaly::Noise(_), UpstreamAnomaly::Noise(_), UpstreamAnomaly::UnknownReply(wrong), UpstreamAnomaly::UnknownReply(_)] if wrong == "987654"
        ),
        "{anomaly:?}"
    );
    let failure = ask(&upstream, "broken", "{}").await.unwrap_err();
    assert!(matches!(failure, RequestFailure::Wire(fault) if matches!(fault.kind, FaultKind::Protocol(_))));
    upstream.close().await;
}

#[tokio::test]
async fn a_reply_over_the_limit_fails_its_request_only() {
    let (upstream, ears) = connect("legacy").await;
    let failure = ask(&upstream, "big", r#"{"count":17825792}"#).await.unwrap_err();
    assert!(
        matches!(failure, RequestFailure::Wire(fault) if matches!(fault.kind, FaultKind::TooLarge(_)) && fault.sent == DeliveryState::Unknown)
    );
    assert!(
        matches!(ears.anomaly.lock().unwrap()[..], [UpstreamAnomaly::TooLong(length)] if length > 17_825_792)
    );
    ask(&upstream, "echo", "{}").await.unwrap();
    upstream.close().await;
}

#[tokio::test]
async fn a_child_that_dies_takes_its_requests_along_with_its_last_words() {
    let (upstream, ears) = connect("legacy").await;
    let hanging = call("hang", "{}");
    let other = upstream.request("tools/call", Some(&hanging), RequestOptions::default());
    drop(other);
    let failure = ask(&upstream, "die", "{}").await.unwrap_err();
    let RequestFailure::Wire(fault) = failure else { panic!("{failure:?}") };
    assert_eq!(fault.sent, DeliveryState::Unknown);
    assert!(
        fault.to_string().contains("exit status: 7") && fault.to_string().contains("dying as told"),
        "{fault}"
    );
    assert!(upstream.stderr_tail().contains("dying as told"));
    ears.until(|ears| ears.heard.lock().unwrap().iter().any(|line| line.starts_with("closed"))).await;
    // From now on nothing is sent.
    let failure = ask(&upstream, "echo", "{}").await.unwrap_err();
    assert!(matches!(failure, RequestFailure::Wire(fault) if fault.sent == DeliveryState::No));
}

#[tokio::test]
async fn closing_takes_the_whole_group() {
    let (upstream, _) = connect("legacy").await;
    let forked = ask(&upstream, "fork", "{}").await.unwrap();
    let grandchild: i32 = raw::get(&forked, "pid").unwrap().get().parse().unwrap();
    let child = upstream.process_id().unwrap();
    assert!(is_alive(child) && is_alive(grandchild));
    soon(upstream.close()).await;
    gone(child).await;
    gone(grandchild).await;
}

#[tokio::test]
async fn dropping_takes_the_whole_group_too() {
    for mode in ["legacy", "modern"] {
        let (upstream, _) = connect(mode).await;
        let child = upstream.process_id().unwrap();
        drop(upstream);
        gone(child).await;
    }
}

#[tokio::test]
async fn a_stopped_child_that_reads_nothing_holds_nobody() {
    let (upstream, _) = connect("legacy").await;
    let pid = upstream.process_id().unwrap();
    assert!(std::process::Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
    // More than pipe and queue can hold: the later ones never leave, and say so.
    let params = call("echo", &format!(r#"{{"x":"{}"}}"#, "x".repeat(16 << 10)));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..500 {
        let (upstream, params) = (upstream.clone(), params.clone());
        all.spawn(async move { upstream.request("tools/call", Some(&params), quick()).await.unwrap_err() });
    }
    let mut sent = [0, 0];
    for failure in soon(all.join_all()).await {
        let RequestFailure::Wire(fault) = failure else { panic!("{failure:?}") };
        assert!(matches!(fault.kind, FaultKind::Timeout(_)), "{fault:?}");
        sent[usize::from(fault.sent == DeliveryState::No)] += 1;
    }
    assert!(sent[0] >= 256 && sent[1] > 0, "{sent:?}");
    soon(upstream.close()).await;
    gone(pid).await;
}

#[tokio::test]
async fn a_stuck_child_is_not_waited_for() {
    let ears = Arc::new(Ears::default());
    let connect = UpstreamOptions {
        probe_timeout: Duration::from_millis(50),
        open_timeout: Duration::from_millis(200),
        ..plan(&ears)
    };
    let failure = soon(Upstream::connect(&UpstreamSpec::Stdio(peer("stuck")), connect)).await.unwrap_err();
    assert!(matches!(failure, RequestFailure::Wire(fault) if matches!(fault.kind, FaultKind::Timeout(_))));
}

#[tokio::test]
async fn no_child_outlives_a_killed_gateway() {
    use std::io::{BufRead, BufReader};
    let mut parent = std::process::Command::new(peer("x").program)
        .arg("parent")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pids: Vec<i32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| is_alive(*pid)), "{line}");
    parent.kill().unwrap();
    parent.wait().unwrap();
    for pid in pids {
        gone(pid).await;
    }
}

#[test]
fn the_keeper_kills_only_what_is_still_listed() {
    use std::os::unix::process::CommandExt;
    let start = || std::process::Command::new("/bin/sleep").arg("600").process_group(0).spawn().unwrap();
    let (mut listed, mut released) = (start(), start());
    let input = format!("+ {}\n+ {}\nnoise\n- {}\n", listed.id(), released.id(), released.id());
    countersign_mcp::client::keep_orphans(input.as_bytes());
    assert!(!listed.wait().unwrap().success());
    assert!(released.try_wait().unwrap().is_none());
    released.kill().unwrap();
    released.wait().unwrap();
}
