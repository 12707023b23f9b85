//! Tools of real servers with labels given by hand: what the decider makes of them, as a table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use countersign_policy::effect::{Effect, classify, propose};
use countersign_policy::tool::Tool;
use serde_json::{Value, json};

/// What a person says a tool does: R reads, E changes its own session, W adds, D overwrites, removes or runs anything.
const LABELS: [&str; 4] = ["R", "E", "W", "D"];

struct Labelled {
    tool: Tool,
    label: String,
}

fn read(text: &str) -> Vec<Vec<Labelled>> {
    let all: Value = serde_json::from_str(text).unwrap();
    all["servers"].as_object().unwrap().iter().map(|(server, tools)| tools_of(server, tools)).collect()
}

fn tools_of(server: &str, tools: &Value) -> Vec<Labelled> {
    let labelled = |entry: &Value| {
        let mut definition = entry.as_object().unwrap().clone();
        if !definition.contains_key("inputSchema") {
            let schema =
                json!({"type": "object", "properties": entry["properties"], "required": entry["required"]});
            definition.insert("inputSchema".to_owned(), schema);
        }
        let label = entry["label"].as_str().unwrap().to_owned();
        Labelled { tool: Tool::read(server.into(), definition).unwrap(), label }
    };
    tools.as_array().unwrap().iter().map(labelled).collect()
}

#[derive(Default)]
struct Measured {
    /// How many tools of a label count as an effect, with and without accepted proposals.
    table: BTreeMap<(String, &'static str), [usize; 2]>,
    wrong_reads: Vec<String>,
    asking: Vec<String>,
    missed: Vec<String>,
    raised: Vec<String>,
    reads: usize,
    asked_before: usize,
}

impl Measured {
    fn of(servers: &[Vec<Labelled>]) -> Self {
        let mut measured = Self::default();
        for server in servers {
            let siblings: Vec<&Tool> = server.iter().map(|one| &one.tool).collect();
            server.iter().for_each(|one| measured.add(one, &siblings));
        }
        measured
    }

    fn add(&mut self, one: &Labelled, siblings: &[&Tool]) {
        let alone = classify(None, &one.tool).effect;
        let accepted = propose(&one.tool, siblings).map_or(alone, |proposal| proposal.effect);
        for (column, effect) in [alone, accepted].into_iter().enumerate() {
            self.table.entry((one.label.clone(), effect.as_str())).or_default()[column] += 1;
        }
        let name = one.tool.full_name().to_string();
        match (one.label.as_str(), accepted) {
            ("R", Effect::Read) => self.reads += 1,
            ("R", Effect::Write | Effect::Destructive) => {
                self.reads += 1;
                self.asking.push(format!("{name} ({accepted})"));
            }
            ("W" | "D", Effect::Read) => self.wrong_reads.push(name),
            ("D", Effect::Write) => self.missed.push(name),
            ("W", Effect::Destructive) => self.raised.push(name),
            _ => {}
        }
        self.asked_before += usize::from(one.label == "R" && alone != Effect::Read);
    }

    fn share_asking(&self) -> f64 {
        self.asking.len() as f64 / self.reads as f64
    }

    fn shown(&self, title: &str) -> String {
        let mut text = format!(
            "{title}\n  label   read      write     destructive   (by annotations, name and schema; with accepted proposals)\n"
        );
        for label in LABELS {
            let cell = |effect: Effect| {
                let [alone, accepted] =
                    self.table.get(&(label.to_owned(), effect.as_str())).copied().unwrap_or_default();
                format!("{alone:>3} {accepted:>3}")
            };
            let cells = [Effect::Read, Effect::Write, Effect::Destructive].map(cell);
            writeln!(text, "  {label}       {}   {}   {}", cells[0], cells[1], cells[2]).unwrap();
        }
        let share = |count: usize| 100.0 * count as f64 / self.reads as f64;
        writeln!(
            text,
            "  true reads that ask: {:.1} %, with accepted proposals {:.1} %",
            share(self.asked_before),
            share(self.asking.len())
        )
        .unwrap();
        writeln!(text, "  asking: {}", self.asking.join(", ")).unwrap();
        writeln!(text, "  counted as write though D: {}", self.missed.join(", ")).unwrap();
        writeln!(text, "  counted as destructive though W: {}", self.raised.join(", ")).unwrap();
        text
    }
}

/// How many tools may be on the wrong side of destructive: a cue that catches one more D must not take W along.
struct ErrorBounds {
    /// Labelled D, counted as write.
    missed: usize,
    /// Labelled W, counted as destructive; most of them because their servers say so.
    raised: usize,
}

#[expect(clippy::print_stdout, reason = "the table is what the test is for")]
fn check(title: &str, text: &str, servers: usize, most_asking: f64, bounds: ErrorBounds) {
    let read = read(text);
    assert!(read.len() >= servers, "{} servers", read.len());
    let measured = Measured::of(&read);
    println!("{}", measured.shown(title));
    assert_eq!(measured.wrong_reads, Vec::<String>::new(), "these change something and count as reads");
    assert!(measured.share_asking() < most_asking, "{:.3} of the true reads ask", measured.share_asking());
    let (missed, raised) = (measured.missed.len(), measured.raised.len());
    assert!(missed <= bounds.missed, "{missed} tools overwrite and count as writes: {:?}", measured.missed);
    assert!(raised <= bounds.raised, "{raised} tools add and count as destructive: {:?}", measured.raised);
}

#[test]
fn no_labelled_change_counts_as_a_read_and_few_true_reads_ask() {
    // Three say `destructiveHint: false`, and one locks everybody out by a password: the presets settle them.
    let bounds = ErrorBounds { missed: 4, raised: 7 };
    check(
        "the list of 23 servers",
        include_str!("../../../../tests/servers/tool-labels.json"),
        23,
        0.06,
        bounds,
    );
}

/// Measured once before any word was chosen by them, they asked on 14 % of the true reads. What is left are names that are nouns
/// and tools whose servers say that they change something.
#[test]
fn further_servers_that_were_labelled_first_come_out_alike() {
    let bounds = ErrorBounds { missed: 1, raised: 34 };
    check("further servers", include_str!("../../../../tests/servers/further-labels.json"), 15, 0.11, bounds);
}

/// The preset settles what names and schemas can't: nothing that changes becomes a read by it, and what it names is settled.
#[test]
fn the_preset_for_servers_settles_what_is_left() {
    use countersign_config::{self as config, Source};
    use countersign_policy::rules::RuleSet;

    let presets: toml::Table = include_str!("../../../../presets/servers.toml").parse().unwrap();
    let servers = presets["servers"].as_array().unwrap();
    let names: BTreeSet<&str> = servers.iter().map(|server| server["name"].as_str().unwrap()).collect();
    let mut rules = Vec::new();
    for server in servers {
        for rule in server["rules"].as_array().unwrap() {
            let mut rule = rule.as_table().unwrap().clone();
            let tools = rule.remove("tools").unwrap();
            let name = server["name"].as_str().unwrap();
            let globs = tools.as_array().unwrap().iter();
            let globs: Vec<String> = globs.map(|tool| format!("{name}:{}", tool.as_str().unwrap())).collect();
            rule.insert("match".to_owned(), globs.into());
            rules.push(rule);
        }
    }
    let text = toml::to_string(&toml::Table::from_iter([("rules".to_owned(), rules.into())])).unwrap();
    let config = config::parse(&[Source::new("servers.toml", text.as_str())]).unwrap();
    let lint = config::lint(&config);
    assert!(lint.is_empty(), "{lint:#?}");
    // Rules with a condition depend on arguments: they are tried by their own cases.
    let plain = config.rules.rules().iter().filter(|rule| rule.when.is_none()).cloned().collect();
    let rules = RuleSet::compile(plain, config.rules.unlisted()).unwrap();
    let effect = |tool: &Tool| {
        let found = rules.matching(&tool.full_name());
        let ruled = found.iter().find_map(|at| rules.rules().get(*at).and_then(|rule| rule.effect));
        classify(ruled, tool).effect
    };
    let listed = include_str!("../../../../tests/servers/tool-labels.json");
    for server in read(listed) {
        let name = server[0].tool.upstream.as_str();
        assert!(names.contains(name), "no preset for {name}");
    }
    for text in [listed, include_str!("../../../../tests/servers/further-labels.json")] {
        for server in read(text) {
            for one in &server {
                let (name, effect) = (one.tool.full_name(), effect(&one.tool));
                let changes = matches!(one.label.as_str(), "W" | "D");
                assert!(!(changes && effect == Effect::Read), "{name} is labelled {}", one.label);
                let named = !rules.matching(&name).is_empty();
                assert!(!named || (one.label == "R") == (effect == Effect::Read), "{name}");
                let known = names.contains(one.tool.upstream.as_str());
                assert!(!(known && one.label == "D" && effect == Effect::Write), "{name} overwrites");
            }
        }
    }
    let explain = |tool: &str, arguments: &str| {
        let mut input = config::ExplainInput::of(tool.parse().unwrap(), jiff::Timestamp::UNIX_EPOCH);
        input.arguments = countersign_policy::call::Arguments::parse(arguments.as_bytes()).unwrap();
        config::explain(&config, &input).effect
    };
    assert_eq!(explain("postgres:query", r#"{"sql": "SELECT 1"}"#), Effect::Read);
    assert_ne!(explain("postgres:query", r#"{"sql": "COMMIT; DROP TABLE t"}"#), Effect::Read);
    assert_eq!(explain("mongodb:aggregate", r#"{"pipeline": [{"$match": {}}]}"#), Effect::Read);
    assert_ne!(
        explain("mongodb:aggregate", r#"{"pipeline": [{"$match": {}}, {"$out": "x"}]}"#),
        Effect::Read
    );
    assert_eq!(explain("playwright:browser_snapshot", "{}"), Effect::Read);
    assert_ne!(explain("playwright:browser_snapshot", r#"{"filename": "x"}"#), Effect::Read);
}
