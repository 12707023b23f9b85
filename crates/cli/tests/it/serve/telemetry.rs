//! OpenTelemetry as a collector meets it: spans and metrics over OTLP, decoded with the published schema; what is in them and what
//! never is; a collector that is gone or says nothing; one trace over two gateways.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;

use super::client::{Client, Host, Reply, Way};
use super::collector::Collector;
use super::scene::Scene;
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(30);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";
const EXECUTE: &str = "[gateway]\nmode = \"execute\"\n";

/// What a client in the middle of a trace says.
fn said() -> String {
    format!(r#""traceparent":"00-{TRACE}-{CLIENT}-01","tracestate":"vendor=1""#)
}

impl Collector {
    /// A world whose programs export here, soon.
    fn world(&self, more: &[(&'static str, &str)]) -> World {
        let mut world = World::new();
        world.set("OTEL_EXPORTER_OTLP_ENDPOINT", self.url.clone());
        world.set("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned());
        world.set("OTEL_METRIC_EXPORT_INTERVAL", "200".to_owned());
        more.iter().for_each(|(name, value)| world.set(name, (*value).to_owned()));
        world
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.exports("/v1/traces").into_iter();
        let requests = requests.map(|export| ExportTraceServiceRequest::decode(&*export.body).unwrap());
        requests
            .flat_map(|request| request.resource_spans)
            .flat_map(|resource| resource.scope_spans)
            .flat_map(|scope| scope.spans)
            .collect()
    }

    /// The spans, once there is one that is wanted.
    #[track_caller]
    fn spans_with(&self, wanted: impl Fn(&Span) -> bool) -> Vec<Span> {
        let start = Instant::now();
        loop {
            let spans = self.spans();
            if spans.iter().any(&wanted) {
                return spans;
            }
            let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
            assert!(start.elapsed() < PATIENCE, "only {names:?} came");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether a text is anywhere in what was sent.
    fn holds(&self, text: &str) -> bool {
        let holds = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        self.got.lock().unwrap().iter().any(|export| holds(&export.body))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(facts: &[KeyValue], key: &str) -> Option<String> {
    let found = facts.iter().find(|fact| fact.key == key)?;
    match &found.value {
        Some(AnyValue { value: Some(Any::StringValue(text)) }) => Some(text.clone()),
        other => panic!("{key}: {other:?}"),
    }
}

#[track_caller]
fn check(span: &Span, expect: &[(&str, &str)]) {
    for (key, value) in expect {
        assert_eq!(text(&span.attributes, key).as_deref(), Some(*value), "{key} of {span:#?}");
    }
}

fn children<'s>(spans: &'s [Span], of: &Span) -> Vec<&'s Span> {
    let mut all: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id == of.span_id).collect();
    all.sort_by_key(|span| span.start_time_unix_nano);
    all
}

fn names(spans: &[&Span]) -> Vec<String> {
    spans.iter().map(|span| span.name.clone()).collect()
}

/// `traceparent` and `tracestate` of a frame that reached the upstream.
fn place_in(line: &str) -> (String, Option<String>) {
    let frame: serde_json::Value = serde_json::from_str(line).unwrap();
    let meta = &frame["params"]["_meta"];
    let state = meta["tracestate"].as_str().map(str::to_owned);
    (meta["traceparent"].as_str().unwrap_or_default().to_owned(), state)
}

fn read(client: &Client, more: &str) -> Reply {
    let arguments = r#"{"name":"notes:get_note","args":{"id":"canary-argument"},"intent":{"operation_type":"read","reason":"canary-reason"}}"#;
    client.call_saying("call_tool_read", arguments, more)
}

#[test]
fn a_call_is_a_span_of_the_clients_trace_with_its_parts() {
    Way::each(&Way::ALL, |way| {
        let collector = Collector::open();
        let mut scene = Scene::open_in(collector.world(&[]), way, "router", EXECUTE, &[]);
        let client = scene.line(Host::Accepts);
        let arguments = r#"{"name":"notes:sync_notes","args":{"id":"canary-argument"},"intent":{"operation_type":"write","reason":"canary-reason"}}"#;
        let reply = client.call_saying("call_tool_write", arguments, &said());
        assert!(scene.heed(reply).ran());
        let reached = scene.reached_lines();
        assert_eq!(reached.len(), 3, "a preview, the preview again, the call: {reached:?}");
        let whole = "tools/call notes:sync_notes";
        let spans = collector.spans_with(|span| span.name == whole && hex(&span.parent_span_id) == CLIENT);
        let root = spans.iter().find(|span| span.name == whole).unwrap();
        assert!(spans.iter().filter(|span| hex(&span.trace_id) == TRACE).count() >= 8, "{spans:#?}");
        assert_eq!(root.kind(), SpanKind::Server);
        assert_eq!(root.trace_state, "vendor=1");
        check(
            root,
            &[
                ("mcp.method.name", "tools/call"),
                ("gen_ai.tool.name", "notes:sync_notes"),
                ("gen_ai.operation.name", "execute_tool"),
                ("network.transport", if way.is_http() { "tcp" } else { "pipe" }),
                ("countersign.role", "agent"),
                ("countersign.upstream", "notes"),
                ("countersign.effect", "write"),
                ("countersign.mode", "execute"),
                ("countersign.decision", "allowed"),
            ],
        );
        assert!(text(&root.attributes, "countersign.plan_id").is_some_and(|id| !id.is_empty()));
        let ledger = text(&root.attributes, "countersign.ledger_id").unwrap();
        assert!(scene.rows().iter().any(|row| row["id"] == ledger.as_str()), "the row is in the ledger");
        let parts = children(&spans, root);
        let expect =
            ["gate", "preview", "wait", "gate", "preview", "ledger", "tools/call sync_notes", "ledger"];
        assert_eq!(names(&parts), expect, "{way:?}");
        for part in &parts {
            assert!(part.end_time_unix_nano >= part.start_time_unix_nano, "{part:?}");
            assert!(part.end_time_unix_nano <= root.end_time_unix_nano, "{part:?}");
        }
        // What the upstream tells hangs below the span of the request it got.
        let sent: Vec<&Span> = spans.iter().filter(|span| span.name == "tools/call sync_notes").collect();
        assert_eq!(sent.len(), 3);
        for (_, _, line) in &reached {
            let (parent, state) = place_in(line);
            assert!(
                sent.iter().any(|span| parent == format!("00-{TRACE}-{}-01", hex(&span.span_id))),
                "{line}"
            );
            assert_eq!(state.as_deref(), Some("vendor=1"));
        }
        for span in sent {
            assert_eq!(span.kind(), SpanKind::Client);
            check(span, &[("countersign.upstream", "notes"), ("gen_ai.tool.name", "sync_notes")]);
        }
        scene.finish(vec![client]);
        for secret in ["canary-argument", "canary-reason", "2 notes would change"] {
            assert!(!collector.holds(secret), "{way:?}: `{secret}` was told");
        }
    });
}

#[test]
fn refusals_faults_and_tools_nobody_knows_are_told_by_code() {
    let collector = Collector::open();
    let config = "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"notes:forbidden_*\"\ndeny = \"canary-deny\"\n[[rules]]\nmatch = \"notes:fail_note\"\nconfirm = \"none\"\n";
    let mut scene = Scene::open_in(collector.world(&[]), Way::StdioLegacy, "router", config, &[]);
    let client = scene.line(Host::None);
    let write = |tool: &str| {
        format!(r#"{{"name":"{tool}","args":{{"id":"a"}},"intent":{{"operation_type":"write"}}}}"#)
    };
    scene.call(&client, "call_tool_write", &write("notes:forbidden_note"));
    scene.call(&client, "call_tool_write", &write("notes:canary_tool"));
    scene.call(&client, "call_tool_write", &write("notes:fail_note"));
    scene.call(&client, "call_tool_write", &write("notes:put_note"));
    scene.call(&client, "get_status", "{}");
    client.request("canary/method", None, "{}");
    let spans = collector.spans_with(|span| span.name == "request");
    let of = |name: &str| {
        spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name}: {spans:#?}"))
    };
    let denied = of("tools/call notes:forbidden_note");
    check(denied, &[("countersign.decision", "refused"), ("countersign.code", "E_RULE_DENIED")]);
    assert!(
        denied.status.as_ref().is_none_or(|status| status.code() == StatusCode::Unset),
        "a no is no fault"
    );
    assert_eq!(hex(&denied.parent_span_id), "", "a trace of its own");
    let unknown = of("tools/call");
    check(unknown, &[("countersign.decision", "refused"), ("countersign.code", "E_TOOL_NOT_FOUND")]);
    let failed = of("tools/call notes:fail_note");
    check(failed, &[("countersign.decision", "allowed"), ("error.type", "tool_error")]);
    assert_eq!(failed.status.as_ref().unwrap().code(), StatusCode::Error);
    check(of("tools/call fail_note"), &[("error.type", "tool_error")]);
    check(of("tools/call notes:put_note"), &[("countersign.decision", "held")]);
    let status = of("tools/call get_status");
    assert!(!status.attributes.iter().any(|fact| fact.key == "error.type"), "{status:?}");
    check(of("request"), &[("mcp.method.name", "request"), ("error.type", "-32601")]);
    scene.finish(vec![client]);
    for word in ["canary_tool", "canary/method", "canary-deny"] {
        assert!(!collector.holds(word), "`{word}` was told");
    }
}

#[test]
fn who_we_are_and_what_the_collector_wants_to_hear_come_from_the_usual_variables() {
    let service = |collector: &Collector| {
        let export = collector.exports("/v1/traces").remove(0);
        let request = ExportTraceServiceRequest::decode(&*export.body).unwrap();
        let resource = request.resource_spans[0].resource.clone().unwrap();
        (text(&resource.attributes, "service.name").unwrap(), resource.attributes, export.headers)
    };
    let collector = Collector::open();
    let mut scene = Scene::open_in(collector.world(&[]), Way::HttpModern, "router", "", &[]);
    let client = scene.line(Host::None);
    scene.heed(read(&client, r#""x":1"#));
    scene.finish(vec![client]);
    assert_eq!(service(&collector).0, "countersign");
    assert_eq!(text(&service(&collector).1, "service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
    let collector = Collector::open();
    let named = [
        ("OTEL_SERVICE_NAME", "gate-7"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret%20one,x-more=2"),
    ];
    let mut scene = Scene::open_in(collector.world(&named), Way::HttpModern, "router", "", &[]);
    let client = scene.line(Host::None);
    scene.heed(read(&client, r#""x":1"#));
    let told = scene.gateway().told().clone();
    scene.finish(vec![client]);
    let (name, resource, headers) = service(&collector);
    assert_eq!(name, "gate-7");
    assert_eq!(text(&resource, "deployment.environment.name").as_deref(), Some("test"));
    assert!(headers.contains(&("x-key".to_owned(), "secret one".to_owned())), "{headers:?}");
    assert!(
        headers.contains(&("content-type".to_owned(), "application/x-protobuf".to_owned())),
        "{headers:?}"
    );
    assert!(!told.text().contains("secret one"), "{}", told.text());
}

#[test]
fn what_is_not_sampled_is_not_sent_and_says_so_to_the_upstream() {
    let collector = Collector::open();
    let off = [("OTEL_TRACES_SAMPLER", "always_off")];
    let mut scene = Scene::open_in(collector.world(&off), Way::StdioModern, "router", "", &[]);
    let client = scene.line(Host::None);
    scene.heed(read(&client, &said()));
    let (_, _, line) = scene.reached_lines().pop().unwrap();
    let (parent, state) = place_in(&line);
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"), "{parent}");
    assert_eq!(state.as_deref(), Some("vendor=1"));
    scene.finish(vec![client]);
    assert_eq!(collector.spans().len(), 0);
    assert!(!collector.exports("/v1/metrics").is_empty(), "metrics count all the same");
}

#[test]
fn a_trace_that_makes_no_sense_is_begun_anew() {
    let collector = Collector::open();
    let mut scene = Scene::open_in(collector.world(&[]), Way::StdioLegacy, "router", "", &[]);
    let client = scene.line(Host::None);
    for bad in ["00-1-2-01", "canary", &"0".repeat(9000)] {
        let more = format!(r#""traceparent":"{bad}","tracestate":"vendor=1","kept" : 1.50"#);
        scene.heed(read(&client, &more));
        let (_, _, line) = scene.reached_lines().pop().unwrap();
        let (parent, state) = place_in(&line);
        assert_eq!(parent.len(), 55, "{line}");
        assert_eq!(state, None, "a state belongs to its trace: {line}");
        assert!(line.contains(r#""kept" : 1.50"#), "{line}");
    }
    scene.finish(vec![client]);
    assert!(!collector.holds("canary"));
}

#[test]
fn a_call_nobody_waits_for_any_more_is_told_as_cancelled() {
    let collector = Collector::open();
    let config =
        "[gateway]\nmode = \"execute\"\n[[rules]]\nmatch = \"notes:slow_note\"\nconfirm = \"none\"\n";
    let mut scene = Scene::open_in(collector.world(&[]), Way::StdioLegacy, "router", config, &[]);
    let client = scene.line(Host::None);
    let arguments = r#"{"name":"notes:slow_note","args":{"id":"a"},"intent":{"operation_type":"write"}}"#;
    client.start_call("call_tool_write", arguments);
    let start = Instant::now();
    while scene.reached().is_empty() {
        assert!(start.elapsed() < PATIENCE, "the call does not reach its upstream");
        std::thread::sleep(Duration::from_millis(10));
    }
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"alone"}}"#);
    let spans = collector.spans_with(|span| span.name == "tools/call notes:slow_note");
    let root = spans.iter().find(|span| span.name == "tools/call notes:slow_note").unwrap();
    let fault = text(&root.attributes, "error.type").unwrap();
    assert!(["cancelled", "E_UPSTREAM_UNAVAILABLE"].contains(&fault.as_str()), "{fault}");
    scene.state(r#"{"go":true}"#);
    scene.finish(vec![client]);
}

#[test]
fn metrics_count_calls_and_say_how_long_they_took() {
    let collector = Collector::open();
    let mut scene = Scene::open_in(collector.world(&[]), Way::HttpLegacy, "router", EXECUTE, &[]);
    let client = scene.line(Host::None);
    for _ in 0..3 {
        scene.heed(read(&client, r#""x":1"#));
    }
    let unknown = r#"{"name":"notes:nothing","args":{},"intent":{"operation_type":"read"}}"#;
    scene.call(&client, "call_tool_read", unknown);
    scene.finish(vec![client]);
    let last = collector.exports("/v1/metrics").pop().unwrap();
    let request = ExportMetricsServiceRequest::decode(&*last.body).unwrap();
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let of = |name: &str| {
        let found = metrics.iter().find(|metric| metric.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).data.clone().unwrap()
    };
    let Data::Sum(calls) = of("countersign.calls") else { panic!() };
    let count = |effect: &str, status: &str| {
        let is = |key: &str, facts: &[KeyValue], value: &str| text(facts, key).as_deref() == Some(value);
        let mut points = calls.data_points.iter();
        let point = points
            .find(|point| is("effect", &point.attributes, effect) && is("status", &point.attributes, status));
        format!("{:?}", point.and_then(|point| point.value.as_ref()))
    };
    assert_eq!(count("read", "success"), "Some(AsInt(3))");
    assert_eq!(count("unknown", "refused"), "Some(AsInt(1))");
    let Data::Histogram(sent) = of("mcp.client.operation.duration") else { panic!() };
    let point = &sent.data_points[0];
    assert_eq!((point.count, text(&point.attributes, "gen_ai.tool.name").as_deref()), (3, Some("get_note")));
    assert_eq!(text(&point.attributes, "countersign.upstream").as_deref(), Some("notes"));
    let Data::Histogram(served) = of("mcp.server.operation.duration") else { panic!() };
    assert!(served.data_points.iter().any(|point| point.count == 3));
    for name in ["countersign.tools", "countersign.ledger.ok", "countersign.upstream.up"] {
        assert!(matches!(of(name), Data::Gauge(gauge) if !gauge.data_points.is_empty()), "{name}");
    }
    assert!(!collector.holds("canary"), "metrics tell no more than spans do");
}

#[test]
fn a_collector_that_is_gone_or_silent_delays_nothing() {
    // One that refuses, one that takes the connection and never says a word.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [gone, silent.local_addr().unwrap()] {
        let mut world = World::new();
        world.set("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
        world.set("OTEL_BSP_SCHEDULE_DELAY", "10".to_owned());
        world.set("OTEL_BSP_MAX_QUEUE_SIZE", "16".to_owned());
        world.set("OTEL_METRIC_EXPORT_INTERVAL", "50".to_owned());
        let mut scene = Scene::open_in(world, Way::StdioLegacy, "router", "", &[]);
        let client = scene.line(Host::None);
        scene.heed(read(&client, &said()));
        let start = Instant::now();
        for _ in 0..100 {
            scene.heed(read(&client, &said()));
        }
        let taken = start.elapsed();
        assert!(taken < Duration::from_secs(8), "100 reads took {taken:?} with {address} as collector");
        if address == gone {
            let told = scene.gateway().told();
            told.wait_for(0, |line| line.contains("telemetry does not reach its collector"));
        }
        let start = Instant::now();
        scene.finish(vec![client]);
        let taken = start.elapsed();
        assert!(taken < Duration::from_secs(10), "leaving took {taken:?} with {address} as collector");
    }
}

#[test]
fn what_is_not_spoken_here_is_said_and_serves_all_the_same() {
    for (name, value, word) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "only http/protobuf is spoken here"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", "must begin with http:// or https://"),
    ] {
        let collector = Collector::open();
        let world = collector.world(&[(name, value)]);
        let mut scene = Scene::open_in(world, Way::StdioLegacy, "router", "", &[]);
        let client = scene.line(Host::None);
        scene.heed(read(&client, &said()));
        let (_, _, line) = scene.reached_lines().pop().unwrap();
        assert!(line.contains(&said()), "off means as it came: {line}");
        scene.gateway().told().wait_for(0, |line| line.contains("telemetry is off") && line.contains(word));
        scene.finish(vec![client]);
        assert!(collector.got.lock().unwrap().is_empty());
    }
}

/// A gateway before a gateway, over HTTP: every hop is below the one before it.
#[test]
fn one_trace_goes_through_two_gateways() {
    let collector = Collector::open();
    let inner_world = collector.world(&[("OTEL_SERVICE_NAME", "inner")]);
    let mut inner = Scene::open_in(inner_world, Way::HttpModern, "router", "", &[]);
    let address = inner.gateway().address();
    for way in [Way::StdioLegacy, Way::HttpModern] {
        let config = format!(
            "[upstreams.inner]\nurl = \"http://{address}/mcp/router\"\nheaders = {{ Authorization = \"Bearer {}\" }}\n[[rules]]\nmatch = \"inner:call_tool_read\"\neffect = \"read\"\n",
            inner.bearer()
        );
        let outer_world = collector.world(&[("OTEL_SERVICE_NAME", "outer")]);
        let mut outer = Scene::open_in(outer_world, way, "router", &config, &[]);
        let client = outer.line(Host::None);
        let within = r#"{"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#;
        let arguments = format!(
            r#"{{"name":"inner:call_tool_read","args":{within},"intent":{{"operation_type":"read"}}}}"#
        );
        let reply = client.call_saying("call_tool_read", &arguments, &said());
        assert!(reply.ran(), "{}", reply.text);
        let (_, _, line) = inner.reached_lines().pop().unwrap();
        let last = place_in(&line).0;
        assert!(last.starts_with(&format!("00-{TRACE}-")), "{line}");
        // Both gateways export when they like: all four are waited for.
        let start = Instant::now();
        let mut spans = Vec::new();
        while chain(&spans, &last).len() < 4 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
            spans = collector.spans();
        }
        assert_eq!(
            chain(&spans, &last),
            [
                "tools/call get_note",
                "tools/call notes:get_note",
                "tools/call call_tool_read",
                "tools/call inner:call_tool_read"
            ],
            "{way:?}"
        );
        drop(client);
        drop(outer);
    }
    inner.finish(Vec::new());
}

/// The names of the span a `traceparent` speaks of and of all above it.
fn chain<'s>(spans: &'s [Span], place: &str) -> Vec<&'s str> {
    let mut names = Vec::new();
    let mut here = spans.iter().find(|span| place.contains(&hex(&span.span_id)));
    while let Some(span) = here {
        names.push(span.name.as_str());
        here = spans.iter().find(|above| above.span_id == span.parent_span_id);
    }
    names
}
