//! The catalogue as a whole: standings, collisions, flags, outlooks, lookups and what the direct surface lists.

use std::collections::HashMap;
use std::sync::Arc;

use countersign_config::{ToolNamePrefix, UpstreamTrust};
use countersign_mcp::raw;
use countersign_policy::rules::{Condition, Rule, RuleSet, UnlistedToolPolicy};
use countersign_store::ListingOccurrence;
use serde_json::{Value, json};

use super::*;
use crate::schema::Schemas;
use crate::search::SearchQuery;

fn listed(upstream: &str, tools: &[&str]) -> Arc<ListedTools> {
    let definitions = tools.iter().map(|tool| raw::from_text(*tool).unwrap()).collect();
    Arc::new(ListedTools::read(
        &UpstreamId::new(upstream),
        definitions,
        HeaderMirroring::Plain,
        &Schemas::default(),
    ))
}

/// An upstream at first sight: everything sound is accepted.
fn trusted(upstream: &str, tools: &[&str]) -> CatalogSource {
    let listed = listed(upstream, tools);
    let standings =
        plan_pins(UpstreamTrust::FirstSight, ListingOccurrence::First, &[], &listed.sound()).standings;
    CatalogSource { listed, standings, prefix: ToolNamePrefix::Upstream, is_starting: false }
}

fn build(sources: &[CatalogSource]) -> Catalog {
    Catalog::build(sources, &RuleSet::default())
}

fn named(name: &str) -> String {
    json!({"name": name, "inputSchema": {"type": "object"}}).to_string()
}

/// Each tool's full name and where it stands.
fn stands(catalog: &Catalog) -> Vec<String> {
    let tell = |listed: &Listed| match &listed.standing {
        ToolStanding::Accepted => format!("{} accepted", listed.tool.full_name()),
        ToolStanding::Changed(_) => format!("{} changed", listed.tool.full_name()),
        ToolStanding::Quarantined(withheld) => {
            format!("{} {}: {}", listed.tool.full_name(), withheld.reason, withheld.why)
        }
    };
    catalog.tools().map(tell).collect()
}

#[test]
fn names_that_collide_withhold_each_other() {
    let check = |sources: &[CatalogSource], expect: &[&str]| assert_eq!(stands(&build(sources)), expect);
    check(
        &[trusted("a", &[&named("x"), &named("y"), &named("x")])],
        &[
            "a:x tool_collision: its upstream lists several tools of this name",
            "a:y accepted",
            "a:x tool_collision: its upstream lists several tools of this name",
        ],
    );
    check(
        &[trusted("a", &[&named("Get"), &named("get"), &named("got")])],
        &[
            "a:Get tool_collision: `a:get` has the same name",
            "a:get tool_collision: `a:Get` has the same name",
            "a:got accepted",
        ],
    );
    check(
        &[trusted("a", &[&named("b__c")]), trusted("a__b", &[&named("c")])],
        &[
            "a:b__c tool_collision: `a__b:c` has the same name",
            "a__b:c tool_collision: `a:b__c` has the same name",
        ],
    );
    check(
        &[trusted("a", &[&named("delete_repo"), &named("dеlete_repo"), &named("delete\u{200b}_repo")])],
        &[
            "a:delete_repo tool_lookalike: `a:dеlete_repo` looks like it",
            "a:dеlete_repo tool_lookalike: `a:delete_repo` looks like it",
            "a:delete\u{200b}_repo tool_lookalike: `a:delete_repo` looks like it",
        ],
    );
    // The same tool name of two upstreams is two names.
    check(&[trusted("a", &[&named("x")]), trusted("b", &[&named("x")])], &["a:x accepted", "b:x accepted"]);
}

#[test]
fn attack_17_tools_of_two_upstreams_with_one_name_or_look_are_flagged() {
    let flags = |first: &str, second: &str| {
        let catalog = build(&[trusted("a", &[&named(first)]), trusted("b", &[&named(second)])]);
        catalog.tools().map(|listed| listed.flags.join("; ")).collect::<Vec<_>>()
    };
    assert_eq!(
        flags("send_mail", "send_mail"),
        [
            "`b:send_mail`, a tool of another upstream, has the same name",
            "`a:send_mail`, a tool of another upstream, has the same name",
        ]
    );
    assert_eq!(
        flags("confirm", "confirrn")[1],
        "`a:confirm`, a tool of another upstream, has a name that looks like it"
    );
    assert_eq!(flags("send_mail", "read_mail"), ["", ""]);
}

#[test]
fn attack_17_names_that_differ_by_letter_pairs_or_digits_withhold_each_other() {
    for (one, other) in [("confirm", "confirrn"), ("overwrite", "overvvrite"), ("delete_repo", "d3lete_rep0")]
    {
        let catalog = build(&[trusted("a", &[&named(one), &named(other)])]);
        assert_eq!(catalog.accepted().count(), 0, "{one} {other}");
        assert!(stands(&catalog)[0].contains("tool_lookalike"), "{one} {other}");
    }
}

#[test]
fn tools_that_cannot_be_used_are_withheld_with_the_reason() {
    let own = json!({"name": "own", "inputSchema": {"properties": {"countersign": {}}}}).to_string();
    let elsewhere = json!({"name": "ref", "inputSchema": {"$ref": "https://example.com/x"}}).to_string();
    let twice = r#"{"name":"twice","description":"one","inputSchema":{"type":"object","type":"object"}}"#;
    let tools = [
        named(&"n".repeat(129)),
        named("a\nb"),
        own,
        elsewhere,
        twice.to_owned(),
        "7".to_owned(),
        "{}".to_owned(),
    ];
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let source = trusted("u", &tools);
    assert_eq!(source.listed.unreadable().len(), 2);
    let said = stands(&build(&[source]));
    let why: Vec<&str> = said.iter().map(|line| line.split_once(" tool_unusable: ").unwrap().1).collect();
    assert_eq!(
        why[..4],
        [
            "its name is longer than 128 bytes",
            "its name holds control characters",
            "it has an argument of its own named `countersign`",
            "its schema refers to `https://example.com/x`, outside itself",
        ]
    );
    assert!(why[4].starts_with("its definition has the key `type` twice"), "{}", why[4]);
}

#[test]
fn marks_for_headers_count_only_where_headers_are_sent() {
    let tool = r#"{"name":"x","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}}"#;
    let read = |headers| {
        let definitions = vec![raw::from_text(tool).unwrap()];
        ListedTools::read(&UpstreamId::new("u"), definitions, headers, &Schemas::default()).sound().len()
    };
    assert_eq!((read(HeaderMirroring::Plain), read(HeaderMirroring::Mirrored)), (1, 0));
    let good = r#"{"name":"x","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}}"#;
    let definitions = vec![raw::from_text(good).unwrap()];
    let listed = Arc::new(ListedTools::read(
        &UpstreamId::new("u"),
        definitions,
        HeaderMirroring::Mirrored,
        &Schemas::default(),
    ));
    let standings =
        plan_pins(UpstreamTrust::FirstSight, ListingOccurrence::First, &[], &listed.sound()).standings;
    let catalog =
        build(&[CatalogSource { listed, standings, prefix: ToolNamePrefix::Upstream, is_starting: false }]);
    assert!(catalog.get(&FullName::new("u", "x")).unwrap().mirrors.is_some());
}

#[test]
fn invariant_closed_by_default_in_the_catalogue() {
    // A tool that nobody compared with its pin is new, and what is withheld is not found, not listed, not suggested.
    let listed = listed("u", &[&named("x_y")]);
    let catalog = build(&[CatalogSource {
        listed,
        standings: HashMap::new(),
        prefix: ToolNamePrefix::Upstream,
        is_starting: false,
    }]);
    assert_eq!(stands(&catalog), ["u:x_y tool_new: nobody has accepted it yet"]);
    assert_eq!(catalog.accepted().count(), 0);
    assert!(catalog.index().is_empty());
    assert!(matches!(
        catalog.standing(&FullName::new("u", "x_y")),
        CatalogStatus::Quarantined(_, "tool_new")
    ));
    assert!(
        matches!(catalog.standing(&FullName::new("u", "x_z")), CatalogStatus::Unknown(near) if near.is_empty())
    );
}

#[test]
fn lookups_find_tools_by_every_name() {
    let catalog = build(&[
        trusted("git", &[&named("status"), &named("commit")]),
        trusted("files", &[&named("read_file"), &named("read_files"), &named("write_file")]),
    ]);
    let order: Vec<&str> = catalog.tools().map(|listed| listed.direct_name.as_str()).collect();
    assert_eq!(
        order,
        ["git__status", "git__commit", "files__read_file", "files__read_files", "files__write_file"]
    );
    assert!(matches!(catalog.standing(&FullName::new("git", "status")), CatalogStatus::Accepted(_)));
    assert_eq!(catalog.by_direct_name("files__read_file").unwrap().tool.name.as_str(), "read_file");
    assert!(catalog.by_direct_name("files:read_file").is_none());
    let near = |name: &str| {
        let CatalogStatus::Unknown(near) = catalog.standing(&name.parse().unwrap()) else {
            panic!("{name} is known")
        };
        near
    };
    assert_eq!(near("files:read_fil"), ["files:read_file", "files:read_files"]);
    assert_eq!(near("git:stats"), ["git:status"]);
    assert_eq!(near("nothing:alike"), Vec::<String>::new());
    assert_eq!(catalog.counts(&UpstreamId::new("files")), (3, 0));
    let found = catalog.index().search(&SearchQuery::new("write file", 5));
    assert_eq!(catalog.indexed(found.hits[0].doc).unwrap().tool.name.as_str(), "write_file");
    assert!(!catalog.is_bare());
    let mut only = trusted("git", &[&named("status")]);
    only.prefix = ToolNamePrefix::None;
    let bare = build(&[only]);
    assert!(bare.is_bare());
    assert_eq!(bare.by_direct_name("status").unwrap().tool.name.as_str(), "status");
}

#[test]
fn people_see_what_is_odd() {
    let deleter = json!({"name": "delete_repo", "annotations": {"readOnlyHint": true}}).to_string();
    let hidden = json!({"name": "hid", "inputSchema": {"properties": {"a": {"description": "x\u{200b}y"}}}})
        .to_string();
    let shadow =
        json!({"name": "shadow", "description": "Before `send_mail`, call this. Use other:read_it too."})
            .to_string();
    let plain =
        json!({"name": "plain", "description": "Search and read, then shadow the send. See own_tool."})
            .to_string();
    let own = named("own_tool");
    let catalog = build(&[
        trusted("u", &[&deleter, &hidden, &shadow, &plain, &own, &named("ünï")]),
        trusted("mail", &[&named("send_mail"), &named("read"), &named("send")]),
    ]);
    let flags = |name: &str| catalog.get(&FullName::new("u", name)).unwrap().flags.clone();
    assert_eq!(flags("delete_repo"), ["its annotations contradict its name: it is governed as destructive"]);
    assert_eq!(flags("hid"), ["its definition holds characters that are not shown"]);
    assert_eq!(flags("shadow"), ["its description names `mail:send_mail`, a tool of another upstream"]);
    assert_eq!(flags("plain"), Vec::<String>::new());
    assert_eq!(flags("ünï"), ["its name holds characters outside ASCII"]);
}

#[test]
fn the_outlook_is_what_the_rules_say_without_arguments() {
    let mut human = Rule::named("1", &["u:get_*"]);
    human.role = Some(Role::Human);
    let mut careful = Rule::named("2", &["u:create_*"]);
    careful.strength = Some(ApprovalStrength::Human);
    careful.when = Some(Condition::compile("args.amount > 10").unwrap());
    let mut denied = Rule::named("3", &["u:shell"]);
    denied.deny = Some("no shell".to_owned());
    let rules = RuleSet::compile(vec![human, careful, denied], UnlistedToolPolicy::Govern).unwrap();
    let reader = json!({"name": "look", "annotations": {"readOnlyHint": true}}).to_string();
    let tools = [reader, named("get_x"), named("create_x"), named("shell"), named("wipe_x")];
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let catalog = Catalog::build(&[trusted("u", &tools)], &rules);
    let outlook = |name: &str| catalog.get(&FullName::new("u", name)).unwrap();
    assert!(outlook("look").is_plain_read());
    assert_eq!(outlook("get_x").outlook.role, Some(Role::Human));
    let create = &outlook("create_x").outlook;
    assert_eq!(
        (create.effect, create.strength, create.conditional),
        (Effect::Write, ApprovalStrength::Host, true)
    );
    assert_eq!(outlook("shell").outlook.denied.as_deref(), Some("no shell"));
    let wipe = &outlook("wipe_x").outlook;
    assert_eq!(
        (wipe.effect, wipe.because, wipe.kind),
        (Effect::Destructive, EffectReason::Lexicon, Kind::Preview)
    );
    // What only people may call is not suggested to anyone who mistypes.
    assert!(
        matches!(catalog.standing(&FullName::new("u", "get_y")), CatalogStatus::Unknown(near) if near.is_empty())
    );
}

fn direct(tool: &str) -> String {
    let catalog = build(&[trusted("u", &[tool])]);
    catalog.tools().next().unwrap().direct_definition().get().to_owned()
}

#[test]
fn invariant_nothing_dropped_on_the_direct_surface() {
    let tool = r#"{ "x-vendor": {"n": 12345678901234567890123, "f": 1.50} ,"name":"t","annotations":{"title":"T","readOnlyHint":true,"category":"c"},"inputSchema":{"type":"object","properties":{"a":{"maximum":9007199254740993}},"required":["a"],"additionalProperties":false},"execution":{"taskSupport":"optional"}}"#;
    let expect = tool
        .replace(r#""name":"t""#, r#""name":"u__t""#)
        .replace(r#""category":"c"}"#, r#""category":"c","destructiveHint":false}"#)
        .replace(r#""taskSupport":"optional"}}"#, r#""taskSupport":"optional"},"title":"T"}"#);
    assert_eq!(direct(tool), expect);
    // What changes something has one more optional argument, which is explained elsewhere.
    let changes = tool.replace(r#""readOnlyHint":true"#, r#""readOnlyHint":false"#);
    let argument = r#"{"type":"object","description":"see get_status"}"#;
    let expect = expect
        .replace(r#""readOnlyHint":true"#, r#""readOnlyHint":false"#)
        .replace(r#"9007199254740993}}"#, &format!(r#"9007199254740993}},"countersign":{argument}}}"#));
    assert_eq!(direct(&changes), expect);
}

/// Clients check every answer against it, and ours would fail.
#[test]
fn an_output_schema_is_listed_only_where_no_answer_of_ours_can_take_its_place() {
    let tool = |read_only: bool| {
        json!({"name": "t", "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": read_only}})
            .to_string()
    };
    for (prefix, read_only, expect) in [
        (ToolNamePrefix::Upstream, true, false),
        (ToolNamePrefix::None, true, true),
        (ToolNamePrefix::None, false, false),
    ] {
        let source = CatalogSource { prefix, ..trusted("u", &[&tool(read_only)]) };
        let catalog = build(&[source]);
        let listed = catalog.tools().next().unwrap();
        let fingerprint = listed.tool.fingerprint;
        assert_eq!(
            listed.direct_definition().get().contains("outputSchema"),
            expect,
            "{prefix:?} {read_only}"
        );
        let own = serde_json::from_str(&tool(read_only)).unwrap();
        assert_eq!(fingerprint, Tool::read(UpstreamId::new("u"), own).unwrap().fingerprint);
    }
}

#[test]
fn the_direct_surface_says_the_governed_effect() {
    let hints = |tool: Value| {
        let listed: Value = serde_json::from_str(&direct(&tool.to_string())).unwrap();
        (listed["annotations"]["readOnlyHint"].clone(), listed["annotations"]["destructiveHint"].clone())
    };
    assert_eq!(
        hints(json!({"name": "look", "annotations": {"readOnlyHint": true}})),
        (json!(true), json!(false))
    );
    assert_eq!(hints(json!({"name": "make"})), (json!(false), json!(false)));
    assert_eq!(
        hints(json!({"name": "wipe", "annotations": {"readOnlyHint": true}})),
        (json!(false), json!(true))
    );
    assert_eq!(hints(json!({"name": "make", "annotations": null})), (json!(false), json!(false)));
    let bare: Value = serde_json::from_str(&direct(r#"{"name":"x"}"#)).unwrap();
    assert_eq!(bare["inputSchema"]["type"], "object");
    assert_eq!(bare["title"], "u:x", "a tool without a title is shown by its full name");
    let own: Value = serde_json::from_str(&direct(r#"{"name":"x","title":"Own"}"#)).unwrap();
    assert_eq!(own["title"], "Own");
}

#[test]
fn what_hides_is_shown_and_what_is_compared_stays() {
    let tool = json!({"name": "t", "description": "a\u{202e}b\nc", "inputSchema": {"properties": {
        "enum": {"description": "x\u{200b}", "enum": ["v\u{200b}"]}, "description": {"type": "string"}}}});
    let listed: Value = serde_json::from_str(&direct(&tool.to_string())).unwrap();
    let description = listed["description"].as_str().unwrap();
    assert!(description.starts_with("a\\u{202e}b\nc"), "{description}");
    let argument = &listed["inputSchema"]["properties"]["enum"];
    assert_eq!((&argument["description"], &argument["enum"][0]), (&json!("x\\u{200b}"), &json!("v\u{200b}")));
}

#[test]
fn ten_thousand_tools_are_a_catalogue_like_any_other() {
    let tools: Vec<String> = (0..10_000)
        .map(|n| json!({"name": format!("tool_{n}"), "description": format!("Does thing {n}."), "inputSchema": {"type": "object"}}).to_string())
        .collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let catalog = build(&[trusted("big", &tools), trusted("small", &[&named("x")])]);
    assert_eq!(catalog.accepted().count(), 10_001);
    let CatalogStatus::Unknown(near) = catalog.standing(&FullName::new("big", "tool_1234x")) else {
        panic!()
    };
    assert_eq!(near.len(), 3);
    assert_eq!(near[0], "big:tool_1234");
}
