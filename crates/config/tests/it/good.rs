//! What is read: the contract's own example to the value, defaults, every form of every field, several files, secrets.

use std::time::Duration;

use countersign_config::{
    self as config, self, AgentAuth, CommandOutputFormat, CommandRunMode, Config, InputPresence, InputShape,
    NativeKind, ReadDurability, RuleAuthor, Source, Template, ToolNamePrefix, ToolSurface, UpstreamKind,
    UpstreamStart, UpstreamTrust, Word,
};
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::effect::Effect;
use countersign_policy::ids::Secret;
use countersign_policy::intent::IntentStrictness;
use countersign_policy::mode::Mode;
use countersign_policy::preview::PreviewStyle;
use countersign_policy::role::Role;
use countersign_policy::rules::{Rule, UnlistedToolPolicy};
use serde_json::json;

use super::{good, show};

fn shown(templates: &[Template]) -> Vec<String> {
    templates.iter().map(Template::shown).collect()
}

#[test]
fn the_contracts_example() {
    let config = good(include_str!("../data/contract.toml"));
    assert_eq!((config.gateway.mode, config.gateway.surface), (Mode::Ask, ToolSurface::Router));
    assert_eq!(config.gateway.listen.to_string(), "127.0.0.1:7878");
    assert_eq!(config.gateway.store.shown(), "sqlite:countersign.db");
    assert_eq!(config.intent.strictness, IntentStrictness::Strict);
    assert_eq!(config.confirm.ttl, Duration::from_secs(300));
    let names: Vec<&str> = config.upstreams.iter().map(|upstream| upstream.id.as_str()).collect();
    assert_eq!(names, ["github", "docs", "infra"]);
    let [github, docs, infra] = config.upstreams.as_slice() else { panic!() };
    let UpstreamKind::Stdio { command, args, env, cwd } = &github.kind else { panic!() };
    assert_eq!((command.shown().as_str(), cwd), ("npx", &None));
    assert_eq!(shown(args), ["-y", "@modelcontextprotocol/server-github"]);
    assert_eq!((env[0].0.as_str(), env[0].1.shown().as_str()), ("GITHUB_TOKEN", "${env:GITHUB_TOKEN}"));
    assert!(
        matches!(&docs.kind, UpstreamKind::Http { url, .. } if url.shown() == "https://docs.example.com/mcp")
    );
    let UpstreamKind::Command { tools, .. } = &infra.kind else { panic!() };
    let apply = &tools[0];
    assert_eq!((apply.effect, apply.running), (Some(Effect::Destructive), CommandRunMode::Background));
    assert_eq!(
        serde_json::Value::Object(apply.definition()),
        json!({
            "name": "apply",
            "description": "Apply the Terraform plan of a workspace",
            "inputSchema": {
                "type": "object",
                "properties": {"workspace": {"type": "string", "pattern": "^[a-z-]+$"}},
                "required": ["workspace"],
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": false, "destructiveHint": true},
        })
    );
    let rules: Vec<&str> = config.rules.rules().iter().map(|rule| rule.name.0.as_str()).collect();
    assert_eq!(
        rules,
        ["countersign.toml:34", "countersign.toml:41", "countersign.toml:47", "countersign.toml:22"]
    );
    let [delete, create, shell, applies] = config.rules.rules() else { panic!() };
    assert_eq!(
        (delete.confirm, delete.strength, delete.type_field.as_deref()),
        (Some(Kind::Type), Some(ApprovalStrength::Human), Some("repo"))
    );
    assert_eq!(create.when.as_ref().unwrap().source(), "args.amount > 10000");
    assert_eq!(shell.deny.as_deref(), Some("no shell through this gateway"));
    assert_eq!(
        (applies.globs.as_slice(), applies.effect),
        (["infra:apply".to_owned()].as_slice(), Some(Effect::Destructive))
    );
    let preview = PreviewStyle::Companion { tool: "apply#preview".into(), digest: Vec::new() };
    assert_eq!((applies.preview.as_ref(), config.origins[3].author), (Some(&preview), RuleAuthor::Tool));
}

#[test]
fn what_holds_where_nothing_is_written() {
    for config in [good(""), config::parse(&[]).unwrap()] {
        let gateway = &config.gateway;
        assert_eq!(
            (gateway.mode, gateway.max_mode, gateway.surface),
            (Mode::Ask, Mode::Execute, ToolSurface::Router)
        );
        assert_eq!((gateway.unlisted, gateway.agent_auth), (UnlistedToolPolicy::Govern, AgentAuth::Required));
        assert_eq!(
            (gateway.listen.to_string().as_str(), gateway.store.shown().as_str()),
            ("127.0.0.1:7878", "sqlite:countersign.db")
        );
        assert_eq!(
            (config.intent.strictness, config.ledger.reads),
            (IntentStrictness::Strict, ReadDurability::Soon)
        );
        assert_eq!(config.ledger.keep, None, "rows are kept for ever");
        assert_eq!(
            (config.limits.frame, config.desk.listen, config.confirm.ttl),
            (16 << 20, None, Duration::from_secs(300))
        );
        assert_eq!((config.limits.arguments, config.limits.waits), (1 << 20, 32));
        assert!(config.upstreams.is_empty() && config.rules.rules().is_empty() && config.tests.is_empty());
    }
}

#[test]
fn every_section_and_upstream_key() {
    let config = good(
        r#"
        [gateway]
        mode = "plan"
        max_mode = "plan"
        surface = "direct"
        listen = "localhost:9000"
        store = "postgres://app:${env:PW}@db/countersign"
        unlisted = "deny"
        agent_auth = "required"
        [intent_declaration]
        strict_server_validation = false
        [confirm]
        ttl = "90s"
        [ledger]
        reads = "sync"
        keep = "365d"
        [limits]
        frame = "1MiB"
        arguments = "64KiB"
        header_timeout = "5s"
        idle_timeout = "30s"
        connections = 100
        connections_per_peer = 10
        sessions = 8
        waits = 4
        drafts = "10/min"
        [desk]
        listen = "[::1]:9001"
        [upstreams.one]
        url = "${env:URL}"
        headers = { X-Team = "infra", Empty = "" }
        bearer = "${keyring:docs token}"
        trust = "review"
        start = "eager"
        relist = "1m"
        timeout = "30s"
        prefix = false
        hosts = ["claude-code", "codex"]
        folders = ["/srv/app"]
        "#,
    );
    let gateway = &config.gateway;
    assert_eq!(
        (gateway.mode, gateway.max_mode, gateway.surface),
        (Mode::Plan, Mode::Plan, ToolSurface::Direct)
    );
    assert_eq!(
        (gateway.unlisted, config.rules.unlisted()),
        (UnlistedToolPolicy::Deny, UnlistedToolPolicy::Deny)
    );
    assert_eq!((gateway.agent_auth, config.ledger.reads), (AgentAuth::Required, ReadDurability::Sync));
    assert_eq!(config.ledger.keep, Some(Duration::from_secs(365 * 86_400)));
    assert_eq!((gateway.listen.to_string().as_str(), config.limits.frame), ("127.0.0.1:9000", 1 << 20));
    let limits = config.limits;
    assert_eq!((limits.arguments, limits.connections, limits.connections_per_peer), (64 << 10, 100, 10));
    assert_eq!(
        (limits.header_timeout, limits.idle_timeout),
        (Duration::from_secs(5), Duration::from_secs(30))
    );
    assert_eq!((limits.sessions, limits.waits, limits.drafts.count), (8, 4, 10));
    assert_eq!(config.desk.listen.unwrap().to_string(), "[::1]:9001");
    assert_eq!(config.intent.strictness, IntentStrictness::Lenient);
    let one = &config.upstreams[0];
    assert_eq!(
        (one.trust, one.start, one.prefix),
        (UpstreamTrust::Review, UpstreamStart::Eager, ToolNamePrefix::None)
    );
    assert_eq!((one.relist, one.timeout), (Duration::from_secs(60), Some(Duration::from_secs(30))));
    assert!(one.audience.admits(Some("codex"), Some("/srv/app/sub".as_ref())));
    assert!(!one.audience.admits(Some("cursor"), Some("/srv/app".as_ref())));
    let native = good("[upstreams.notes]\nkind = \"memory\"\n");
    assert_eq!(native.upstreams[0].kind, UpstreamKind::Native { kind: NativeKind::Memory, folder: None });
    assert_eq!(native.upstreams[0].relist, Duration::from_secs(600));
}

#[test]
fn every_form_of_a_rule() {
    let config = good(
        r#"
        [[rules]]
        match = ["a:*", "b:{x,y}"]
        when = "has(args.n) && args.n > 1"
        effect = "write"
        confirm = "simple"
        strength = "host"
        role = "human"
        allow = true
        limit = "20/min"
        redact = "password"
        timeout = "30s"
        preview = { arg = "dry_run" }
        [[rules]]
        match = "a:*"
        deny = true
        redact = ["a", "users.*.pin"]
        preview = { tool = "plan", digest = ["data.changes"] }
        [[rules]]
        match = "a:*"
        preview = false
        [[rules]]
        match = "a:*"
        preview = { arg = "mode", preview = "check", apply = "run" }
        [[rules]]
        match = "a:*"
        preview = ["git", "-C", "{path}", "diff", ["--stat={width}"], "{{path}}"]
        [[rules]]
        match = "a:*"
        preview = { run = ["plan"], ignore = ["took"], cwd = "/srv", env = { A = "${env:A}" }, ok_exit = [0, 2] }
        "#,
    );
    let [first, second, third, fourth, fifth, sixth] = config.rules.rules() else { panic!() };
    assert_eq!(first.globs, ["a:*", "b:{x,y}"]);
    assert_eq!(
        (first.effect, first.confirm, first.strength),
        (Some(Effect::Write), Some(Kind::Simple), Some(ApprovalStrength::Host))
    );
    assert_eq!(
        (first.role, first.allow, first.timeout),
        (Some(Role::Human), Some(true), Some(Duration::from_secs(30)))
    );
    assert_eq!(
        (first.limit.unwrap().to_string().as_str(), first.redact.as_slice()),
        ("20/min", ["password".to_owned()].as_slice())
    );
    let argument =
        |arg: &str, preview, apply| Some(PreviewStyle::Argument { arg: arg.into(), preview, apply });
    assert_eq!(first.preview, argument("dry_run", json!(true), json!(false)));
    assert_eq!((second.deny.as_deref(), second.redact.len()), (Some("a rule denies it"), 2));
    assert_eq!(
        second.preview,
        Some(PreviewStyle::Companion { tool: "plan".into(), digest: vec!["data.changes".into()] })
    );
    assert_eq!(third.preview, Some(PreviewStyle::Computed));
    assert_eq!(fourth.preview, argument("mode", json!("check"), json!("run")));
    let shown = |rule: &Rule| match &rule.preview {
        Some(PreviewStyle::Command(command)) => command.shown(),
        other => panic!("{other:?}"),
    };
    assert_eq!(shown(fifth), json!({"run": ["git", "-C", "{path}", "diff", ["--stat={width}"], "{path}"]}));
    let whole = json!({"run": ["plan"], "ignore": ["took"], "cwd": "/srv", "env": ["A"], "ok_exit": [0, 2]});
    assert_eq!(shown(sixth), whole);
    // What it names is looked up with everything else.
    let unfound = config.settle(&|_| Err("nothing".to_owned())).unwrap_err();
    assert!(unfound[0].message.contains("${env:A}"), "{unfound:?}");
}

#[test]
fn command_tools_in_full() {
    let config = good(
        r#"
        [upstreams.git]
        cwd = "${env:REPO}"
        env = { GIT_PAGER = "cat" }
        timeout = "10s"
        [[upstreams.git.tools]]
        name = "log"
        title = "History"
        description = "Shows commits"
        run = ["git", "log", ["--since", "{since}"], "--max-count={count}", "{{count}}", "{paths}", "${file:extra}", ""]
        explain = ["git", "status"]
        stdin = "{\"a\": {since}}"
        effect = "read"
        lock = "repo"
        ok_exit = [0, 1]
        parse = "lines"
        output = "1KiB"
        timeout = "5s"
        [upstreams.git.tools.input]
        since = { type = "string", optional = true, leading_dash = true }
        count = { type = "integer", minimum = 1, maximum = 100, default = 10 }
        paths = { type = "array", items = { type = "string" } }
        [[upstreams.git.tools]]
        name = "gc"
        run = ["git", "gc"]
        "#,
    );
    let UpstreamKind::Command { tools, env, cwd } = &config.upstreams[0].kind else { panic!() };
    assert_eq!((env[0].1.shown().as_str(), cwd.as_ref().unwrap().shown().as_str()), ("cat", "${env:REPO}"));
    let log = &tools[0];
    let words: Vec<String> = log
        .run
        .iter()
        .map(|word| match word {
            Word::One(word) => word.shown(),
            Word::Group(words) => format!("({})", shown(words).join(" ")),
        })
        .collect();
    assert_eq!(
        words,
        ["git", "log", "(--since {since})", "--max-count={count}", "{count}", "{paths}", "${file:extra}", ""]
    );
    let Word::One(escaped) = &log.run[4] else { panic!() };
    assert_eq!(escaped.inputs().count(), 0, "doubled braces are no input");
    let inputs: Vec<_> =
        log.inputs.iter().map(|input| (input.name.as_str(), input.presence, input.shape)).collect();
    let expect = [
        ("since", InputPresence::Optional, InputShape::Single),
        ("count", InputPresence::Defaulted, InputShape::Single),
        ("paths", InputPresence::Required, InputShape::List),
    ];
    assert_eq!(inputs, expect);
    assert_eq!(log.definition()["inputSchema"]["required"], json!(["paths"]));
    assert_eq!(log.definition()["inputSchema"]["properties"]["since"], json!({"type": "string"}));
    assert_eq!(
        (log.ok_exit.as_slice(), log.parse, log.output),
        ([0, 1].as_slice(), CommandOutputFormat::Lines, 1024)
    );
    assert_eq!(log.stdin.as_ref().unwrap().shown(), "{\"a\": {since}}");
    assert_eq!(
        (tools[1].ok_exit.as_slice(), tools[1].parse, tools[1].running),
        ([0].as_slice(), CommandOutputFormat::Text, CommandRunMode::Waits)
    );
    let timeouts: Vec<_> = config
        .rules
        .rules()
        .iter()
        .map(|rule| (rule.globs[0].as_str(), rule.timeout.unwrap().as_secs()))
        .collect();
    assert_eq!(timeouts, [("git:log", 5), ("git:gc", 10)]);
}

#[test]
fn later_files_win() {
    let base = Source::new(
        "base.toml",
        "[gateway]\nmode = \"ask\"\nsurface = \"direct\"\n[intent]\nstrict_server_validation = true\n[upstreams.a]\ncommand = \"old\"\nargs = [\"1\", \"2\"]\nenv = { A = \"1\", B = \"2\" }\n[[rules]]\nmatch = \"a:*\"\nconfirm = \"simple\"\n[[tests]]\ntool = \"a:x\"\nexpect = { verdict = \"explain\" }\n",
    );
    let mine = Source::new(
        "mine.toml",
        "[gateway]\nmode = \"plan\"\n[intent_declaration]\nstrict_server_validation = false\n[upstreams.a]\ncommand = \"new\"\nargs = [\"3\"]\nenv = { B = \"3\" }\n[upstreams.b]\nurl = \"http://127.0.0.1/\"\n[[rules]]\nmatch = \"a:*\"\nconfirm = \"type\"\n[[rules]]\nmatch = \"b:*\"\ndeny = true\n[[tests]]\ntool = \"b:x\"\nexpect = { verdict = \"refuse\" }\n",
    );
    let config = config::parse(&[base, mine]).unwrap_or_else(|found| panic!("{}", show(&found)));
    assert_eq!((config.gateway.mode, config.gateway.surface), (Mode::Plan, ToolSurface::Direct));
    assert_eq!(config.intent.strictness, IntentStrictness::Lenient);
    let UpstreamKind::Stdio { command, args, env, .. } = &config.upstreams[0].kind else { panic!() };
    assert_eq!((command.shown(), shown(args)), ("new".into(), vec!["3".to_owned()]));
    let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.shown())).collect();
    assert_eq!(env, [("A", "1".to_owned()), ("B", "3".to_owned())]);
    let rules: Vec<&str> = config.rules.rules().iter().map(|rule| rule.name.0.as_str()).collect();
    assert_eq!(rules, ["mine.toml:11", "mine.toml:14", "base.toml:10"], "rules of later files come first");
    let tests: Vec<&str> = config.tests.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(tests, ["a:x", "b:x"]);
    assert!(
        config
            .tests
            .iter()
            .all(|case| config::run_case(&config, case).differences.is_empty() || case.name == "a:x")
    );
}

fn settled(text: &str) -> Result<Config, String> {
    let look_up = |reference: &config::Reference| match (reference.origin, reference.name.as_str()) {
        (config::Origin::Env, "TOKEN") => Ok(Secret::new("hunter2")),
        (config::Origin::File, "/run/key") => Ok(Secret::new("from a file")),
        _ => Err("there is no such thing".to_owned()),
    };
    good(text).settle(&look_up).map_err(|found| show(&found))
}

#[test]
fn secrets_are_looked_up_and_never_print() {
    let text = "[upstreams.a]\nurl = \"https://${env:TOKEN}.example.com/$${env:X}\"\nbearer = \"Bearer ${file:/run/key}\"\nheaders = { A = \"pasted-secret\" }\n";
    assert_eq!(good(text).gateway.store.text().unwrap().expose(), "sqlite:countersign.db");
    let config = settled(text).unwrap();
    let UpstreamKind::Http { url, bearer, headers, .. } = &config.upstreams[0].kind else { panic!() };
    assert_eq!(url.text().unwrap().expose(), "https://hunter2.example.com/${env:X}");
    assert_eq!(url.shown(), "https://***.example.com/${env:X}");
    assert_eq!(bearer.as_ref().unwrap().text().unwrap().expose(), "Bearer from a file");
    assert_eq!(headers[0].1.text().unwrap().expose(), "pasted-secret");
    let printed = format!("{:?} {:?}", config.upstreams, config.gateway);
    for secret in ["hunter2", "from a file", "pasted-secret"] {
        assert!(!printed.contains(secret), "{printed}");
    }
    let UpstreamKind::Http { url, .. } = &good(text).upstreams[0].kind else { panic!() };
    assert_eq!(url.text(), None, "not before it was looked up");
}

#[test]
fn what_cannot_be_looked_up_is_said_all_at_once() {
    let text = "[gateway]\nstore = \"postgres://u:${env:PW}@db/x\"\n[upstreams.a]\ncommand = \"a\"\nenv = { A = \"${env:TOKEN}\", B = \"\\t${keyring:b}\" }\ncwd = \"${file:/nowhere}\"\n[[upstreams.c.tools]]\nname = \"x\"\nrun = [\"x\", \"${env:ARG}\"]\n";
    insta::assert_snapshot!(settled(text).unwrap_err());
}

#[test]
fn a_rule_about_one_definition_ends_when_the_tool_changes() {
    use countersign_policy::call::{Caller, CallerScopes};
    use countersign_policy::effect::Effect;
    use countersign_policy::tool::Tool;

    let tool = |description: &str| {
        let definition = serde_json::json!({"name": "get_user", "description": description});
        Tool::read("slack".into(), definition.as_object().unwrap().clone()).unwrap()
    };
    let (accepted, changed) = (tool("Get a user"), tool("Get a user, and tell everybody"));
    let text = format!(
        "[[rules]]\nmatch = \"slack:get_user\"\nfingerprint = \"{}\"\neffect = \"read\"\n",
        accepted.fingerprint.hex()
    );
    let config = super::good(&text);
    let caller = Caller {
        principal: "p".into(),
        credential: None,
        role: countersign_policy::role::Role::Agent,
        session: "s".into(),
        request_id: None,
        source: countersign_policy::record::Source::Mcp,
        host: None,
        scopes: CallerScopes::all(),
    };
    let none = serde_json::Map::new();
    let name = accepted.full_name();
    let effect = |tool: Option<&Tool>| {
        let facts = countersign_policy::rules::ConditionFacts {
            name: &name,
            tool,
            arguments: &none,
            caller: &caller,
            intent: None,
            mode: countersign_policy::mode::Mode::Ask,
            now: jiff::Timestamp::UNIX_EPOCH,
        };
        config.rules.resolve(&facts).effect
    };
    assert_eq!(effect(Some(&accepted)), Some(Effect::Read));
    assert_eq!(effect(Some(&changed)), None);
    assert_eq!(effect(None), None, "a tool that is not known");
    let bad =
        super::read("[[rules]]\nmatch = \"a:b\"\nfingerprint = \"abc\"\neffect = \"read\"\n").unwrap_err();
    assert!(super::show(&bad).contains("`abc` is not a fingerprint"), "{}", super::show(&bad));
}
