//! Events: a plan arrives without polling, and a client that reconnects gets the events it missed.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderValue, Request};
use countersign_policy::confirm::Kind;
use countersign_policy::role::Role;
use futures_util::StreamExt as _;
use serde_json::json;

use crate::kit::{HOST, Scene, plan};

async fn listen(scene: &Scene, last: Option<&str>) -> BodyDataStream {
    let mut request = Request::builder()
        .uri("/api/v1/events")
        .header("host", HOST)
        .header("authorization", format!("Bearer {}", scene.ada));
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = scene.raw(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response.into_body().into_data_stream()
}

async fn until(stream: &mut BodyDataStream, wanted: &str) -> String {
    let mut seen = String::new();
    let found = tokio::time::timeout(Duration::from_secs(20), async {
        while !seen.contains(wanted) {
            let chunk = stream.next().await.unwrap().unwrap();
            seen.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    });
    assert!(found.await.is_ok(), "`{wanted}` was not heard: {seen}");
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_are_heard_of_and_missed_rows_are_told() {
    let scene = Scene::open().await;
    let mut page = listen(&scene, None).await;
    until(&mut page, ": listening").await;
    scene.hold(&plan("E", Kind::Preview, json!({"workspace": "e"}))).await;
    let seen = until(&mut page, "plan.pending").await;
    assert!(seen.contains("\"plan_id\":\"pln_E\""), "{seen}");
    let last = seen.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    drop(page);
    scene.ask("post", "/plans/pln_E/approve", None).await.data();
    let mut again = listen(&scene, Some(&last)).await;
    let seen = until(&mut again, "plan.decided").await;
    assert!(!seen.contains("plan.pending"), "what was heard is not told again: {seen}");
    scene.desk.close();
    let end = tokio::time::timeout(Duration::from_secs(5), async { while again.next().await.is_some() {} });
    assert!(end.await.is_ok(), "a desk that closes ends its streams");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_06_streams_of_events_are_bounded_for_each_and_for_all() {
    let scene = Scene::open().await;
    let open = async |secret: &str| {
        let request = Request::builder()
            .uri("/api/v1/events")
            .header("host", HOST)
            .header("authorization", format!("Bearer {secret}"));
        scene.raw(request.body(Body::empty()).unwrap()).await
    };
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(open(&scene.ada).await.into_body().into_data_stream());
    }
    let fifth = open(&scene.ada).await;
    assert_eq!(
        (fifth.status().as_u16(), &fifth.headers()["retry-after"]),
        (429, &HeaderValue::from_static("5"))
    );
    // 128 in all, however many people there are.
    for number in 1..32 {
        let secret = format!("csg_human_{number}");
        scene.enrol(&format!("person-{number}"), Role::Human, &secret).await;
        for _ in 0..4 {
            let stream = open(&secret).await;
            assert_eq!(stream.status(), 200, "{} are open", streams.len());
            streams.push(stream.into_body().into_data_stream());
        }
    }
    scene.enrol("late", Role::Human, "csg_human_late").await;
    assert_eq!((streams.len(), open("csg_human_late").await.status().as_u16()), (128, 429));
    // Closing one makes room for another.
    streams.pop();
    assert_eq!(open("csg_human_late").await.status(), 200);
}
