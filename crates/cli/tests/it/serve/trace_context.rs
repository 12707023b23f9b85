//! What a client says of its trace reaches the upstream: `traceparent`, `tracestate` and `baggage` in `_meta`, byte for byte, over
//! every transport, era and surface, while nobody asked for telemetry of ours.

use super::client::{Host, Way};
use super::scene::Scene;

/// As no library would write it: order and spaces are the client's.
const SAID: &str = concat!(
    r#""tracestate" : "vendor=t61rcWkgMzE,other=1","baggage":"user=ada,n=%201", "#,
    r#""traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","vendor/x":1.50"#
);

#[test]
fn trace_context_passes_through_meta_as_it_came() {
    Way::each(&Way::ALL, |way| {
        for (surface, tool, arguments) in [
            (
                "router",
                "call_tool_read",
                r#"{"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#,
            ),
            ("direct", "notes__get_note", r#"{"id":"a"}"#),
        ] {
            let mut scene = Scene::open_with(way, surface, "", &[]);
            let client = scene.line(Host::None);
            let reply = client.call_saying(tool, arguments, SAID);
            assert!(scene.heed(reply).ran());
            let (_, _, line) = scene.reached_lines().pop().unwrap();
            assert!(line.contains(SAID), "{way:?} {surface}: {line}");
            scene.finish(vec![client]);
        }
    });
}
