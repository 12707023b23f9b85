//! Transcripts as text: `>` calls, `<` what must come back, `!` what happens besides. One file is played over every transport
//! and era it applies to. After every call the upstream must have received exactly what the transcript says: by default nothing.
//!
//! ```text
//! > TOOL JSON          a call; `$name` in it stands for what was kept under that name
//! < ok                 an answer of ours that is no refusal
//! < refused CODE REASON [MESSAGE]
//! < rpc NUMBER [MESSAGE]
//! < ran TOOL JSON      the upstream's own answer, and what it received
//! < sent TOOL JSON     one more call the upstream received
//! < PATH = JSON | PATH ~ TEXT | PATH exists | PATH absent
//! < $name = PATH       keeps a value
//! ! approve $plan | reject $plan | state JSON | pass $moment | restart | kill | fresh | config … end
//! ```

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::Value;

use super::client::{Client, Host, Reply, Way};
use super::gateway::End;
use super::scene::Scene;

/// Plays a transcript over every way it applies to, all at the same time.
#[track_caller]
pub(crate) fn play(name: &str, text: &str) {
    let ways: Vec<Way> = match setting(text, "@ways ") {
        None => Way::ALL.to_vec(),
        Some(words) => words.split_whitespace().map(way).collect(),
    };
    Way::each(&ways, |way| Stage::new(name, text, way).play(text));
}

fn setting<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

fn way(word: &str) -> Way {
    match word {
        "stdio-legacy" => Way::StdioLegacy,
        "stdio-modern" => Way::StdioModern,
        "http-legacy" => Way::HttpLegacy,
        "http-modern" => Way::HttpModern,
        other => panic!("no way `{other}`"),
    }
}

/// The lines from after `from` to a line `end`.
fn block<'t>(lines: &mut impl Iterator<Item = (usize, &'t str)>) -> String {
    lines
        .map(|(_, line)| line)
        .take_while(|line| *line != "end")
        .fold(String::new(), |all, line| all + line + "\n")
}

struct Stage<'t> {
    name: &'t str,
    way: Way,
    scene: Scene,
    /// Old lines stay open: their sessions go on beside the newest.
    clients: Vec<Client>,
    kept: HashMap<String, String>,
    case: String,
    at: usize,
    last: Option<Reply>,
    /// What the upstream must have received since the last call.
    due: Vec<(String, Value)>,
}

impl<'t> Stage<'t> {
    fn new(name: &'t str, text: &str, way: Way) -> Self {
        let mut lines = text.lines().enumerate().skip_while(|(_, line)| *line != "@config").skip(1);
        let surface = if setting(text, "@surface ") == Some("direct") { "direct" } else { "router" };
        let mut scene = Scene::open_with(way, surface, &block(&mut lines), &[]);
        let client = scene.line(Host::None);
        Self {
            name,
            way,
            scene,
            clients: vec![client],
            kept: HashMap::new(),
            case: String::new(),
            at: 0,
            last: None,
            due: Vec::new(),
        }
    }

    fn play(mut self, text: &str) {
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            self.at = number + 1;
            match line.split_at(line.len().min(2)) {
                ("> ", call) => self.call(call),
                ("< ", expect) => self.expect(expect),
                ("! ", "config") => {
                    let config = block(&mut lines);
                    self.settle();
                    let told = self.scene.reconfigure(&config);
                    self.kept.insert("told".to_owned(), told);
                }
                ("! ", act) => self.act(act),
                ("==", case) => case.trim().clone_into(&mut self.case),
                ("@c", _) => drop(block(&mut lines)),
                ("# " | "#" | "" | "@w" | "@s", _) => {}
                _ => self.fail("this line means nothing"),
            }
        }
        self.settle();
        self.scene.finish(self.clients);
    }

    fn fail(&self, why: &str) -> ! {
        let last = self.last.as_ref().map_or("", |reply| &reply.text);
        panic!("{}:{} over {:?}, case `{}`: {why}\n{last}", self.name, self.at, self.way, self.case)
    }

    fn filled(&self, text: &str) -> String {
        // Longer names first: `$token` must not eat the start of `$token2`.
        let mut names: Vec<_> = self.kept.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        names
            .into_iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${name}"), value))
    }

    /// The upstream received what the transcript said, and nothing else.
    fn settle(&mut self) {
        let reached = self.scene.reached();
        let due = std::mem::take(&mut self.due);
        if reached != due {
            self.fail(&format!("the upstream received {reached:?} instead of {due:?}"));
        }
    }

    fn call(&mut self, call: &str) {
        self.settle();
        let call = self.filled(call);
        let (tool, arguments) = call.split_once(' ').unwrap_or((&call, "{}"));
        let reply = self.clients.last().unwrap().call(tool, arguments);
        self.last = Some(self.scene.heed(reply));
    }

    fn expect(&mut self, expect: &str) {
        let expect = if expect.starts_with('$') { expect.to_owned() } else { self.filled(expect) };
        let words: Vec<&str> = expect.splitn(4, ' ').collect();
        let reply = self.last.clone().unwrap_or_else(|| self.fail("nothing was called yet"));
        match words.as_slice() {
            ["ok"] if reply.envelope().is_some_and(|envelope| envelope["ok"] == true) => {}
            ["refused", code, reason, message @ ..] => self.refused(&reply, code, reason, message.first()),
            ["rpc", code, ..] => {
                let message = expect.splitn(3, ' ').nth(2);
                let error = &reply.frame["error"];
                let same = message.is_none_or(|message| error["message"] == message);
                if error["code"].as_i64() != code.parse().ok() || !same {
                    self.fail("another error was expected");
                }
            }
            ["ran", tool, ..] => {
                if !reply.ran() {
                    self.fail("it did not run");
                }
                self.due.push(((*tool).to_owned(), self.json(expect.splitn(3, ' ').nth(2))));
            }
            ["sent", tool, ..] => {
                self.due.push(((*tool).to_owned(), self.json(expect.splitn(3, ' ').nth(2))));
            }
            [name, "=", path] if name.starts_with('$') => {
                let value = self.find(&reply, path).unwrap_or_else(|| self.fail("there is nothing to keep"));
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.kept.insert(name.trim_start_matches('$').to_owned(), text);
            }
            [path, "=", ..] => {
                let wanted = self.json(expect.splitn(3, ' ').nth(2));
                if self.find(&reply, path) != Some(&wanted) {
                    self.fail(&format!("`{path}` is {:?}", self.find(&reply, path)));
                }
            }
            [path, "~", ..] => {
                let wanted = expect.splitn(3, ' ').nth(2).unwrap_or_default();
                let found = self.find(&reply, path).map(ToString::to_string).unwrap_or_default();
                if !found.contains(wanted) {
                    self.fail(&format!("`{path}` is {found}"));
                }
            }
            [path, "exists"] if self.find(&reply, path).is_some_and(|value| !value.is_null()) => {}
            [path, "absent"] if self.find(&reply, path).is_none() => {}
            _ => self.fail(&format!("expected: {expect}")),
        }
    }

    fn refused(&self, reply: &Reply, code: &str, reason: &str, message: Option<&&str>) {
        let Some(envelope) = reply.envelope() else { self.fail("no answer of ours") };
        let error = &envelope["errors"][0];
        if (error["code"] != code) || (error["details"]["reason_code"] != reason) {
            self.fail(&format!("expected {code} {reason}"));
        }
        if message.is_some_and(|message| error["message"] != **message) {
            self.fail("the message is another");
        }
    }

    fn json(&self, text: Option<&str>) -> Value {
        let text = text.unwrap_or("{}");
        serde_json::from_str(text).unwrap_or_else(|error| self.fail(&format!("{error}: {text}")))
    }

    /// A value of the answer: of our envelope, or of the upstream's result. `details` are those of the first refusal.
    fn find<'r>(&self, reply: &'r Reply, path: &str) -> Option<&'r Value> {
        let root = reply.envelope().unwrap_or_else(|| reply.result());
        let (root, path) = match path.strip_prefix("details.") {
            Some(rest) => (&root["errors"][0]["details"], rest),
            None => (root, path),
        };
        path.split('.').try_fold(root, |here, part| match part.parse::<usize>() {
            Ok(index) => here.get(index),
            Err(_) => here.get(part),
        })
    }

    fn act(&mut self, act: &str) {
        self.settle();
        let act = self.filled(act);
        match act.split_once(' ').unwrap_or((&act, "")) {
            ("approve", plan) => self.scene.approve(plan),
            ("reject", plan) => self.scene.reject(plan),
            ("state", state) => self.scene.state(state),
            ("pass", moment) => pass(moment.parse().unwrap()),
            ("restart", _) => self.restart(if self.way.is_http() { End::Asked } else { End::Closed }),
            ("kill", _) => self.restart(End::Killed),
            ("fresh", _) => {
                let client = self.scene.line(Host::None);
                self.clients.push(client);
            }
            _ => self.fail("nobody knows how to do this"),
        }
    }

    fn restart(&mut self, how: End) {
        let client = self.clients.pop().unwrap();
        let client = self.scene.restart(client, Host::None, how);
        self.clients.push(client);
    }
}

/// Waits until a moment is over; a token's life ends at a time it told.
fn pass(moment: Timestamp) {
    while Timestamp::now() <= moment {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A transcript that says something false must fail: otherwise all the others prove nothing.
#[test]
fn what_does_not_hold_is_found() {
    let read =
        r#"> call_tool_read {"name":"notes:get_note","args":{"id":"a"},"intent":{"operation_type":"read"}}"#;
    for wrong in [
        format!("{read}\n"),
        format!("{read}\n< ran get_note {{\"id\":\"b\"}}\n"),
        format!("{read}\n< ran get_note {{\"id\":\"a\"}}\n< sent get_note {{\"id\":\"a\"}}\n"),
        "> get_status\n< data.mode = \"plan\"\n".to_owned(),
        "> set_mode {\"mode\":\"x\"}\n< refused E_MODE_INVALID mode_invalid another message\n".to_owned(),
        "> set_mode {\"mode\":\"x\"}\n< refused E_MODE_INVALID another_reason\n".to_owned(),
        "> set_mode {\"mode\":\"x\"}\n< ok\n".to_owned(),
    ] {
        let text = format!("@ways stdio-legacy\n@config\nend\n{wrong}");
        let played = std::panic::catch_unwind(|| play("wrong", &text));
        assert!(played.is_err(), "{text}");
    }
}
