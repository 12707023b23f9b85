//! The lines of the demo: who speaks, at a pace people can read, wrapped to the terminal. Keeps the same facts for `--json`.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::{Value, json};

use super::agent::AgentCallResult;
use crate::output::{BAD, DIM, Format, GOOD, NAME, OutputSettings, WARN, paint, visible, wrap};

/// Where the words begin, behind the name of who speaks.
const INDENT: usize = 8;
/// In a pipe lines are as wide as the guide shows them.
const PIPE_WIDTH: usize = 80;

/// Who a line is of.
#[derive(Clone, Copy)]
pub(super) enum Speaker {
    Agent,
    Gate,
    You,
    Log,
}

pub(super) struct Narrator {
    output: OutputSettings,
    said: RefCell<Vec<Value>>,
}

impl Narrator {
    pub(super) fn new(output: OutputSettings) -> Self {
        Self { output, said: RefCell::default() }
    }

    /// Everything that was said, for programs.
    pub(super) fn transcript(&self) -> Vec<Value> {
        self.said.take()
    }

    pub(super) async fn agent(&self, words: &str) {
        self.line(Speaker::Agent, words, json!({"says": words})).await;
    }

    pub(super) async fn you(&self, words: &str, fact: Value) {
        self.line(Speaker::You, words, fact).await;
    }

    pub(super) async fn gate(&self, words: &str, fact: Value) {
        self.line(Speaker::Gate, words, fact).await;
    }

    pub(super) async fn log(&self, words: &str, fact: Value) {
        self.line(Speaker::Log, words, fact).await;
    }

    /// A refusal in the words of the demo. Its code is for `--json`: a newcomer does not know it yet.
    pub(super) async fn refused(&self, answer: &AgentCallResult) {
        let (code, message) = answer.refusal().unwrap_or(("", "it was let through"));
        let plain = match code {
            "E_APPROVAL_PENDING" => "this needs a person; the agent's own yes is not enough",
            "E_APPROVAL_REJECTED" => "you rejected it",
            "E_CONFIRM_TOKEN_USED" => "it ran already; an approval works once",
            _ => message,
        };
        let words = format!("{} {}", paint(BAD, "refused:"), visible(plain));
        self.gate(&words, json!({"refused": code, "message": message})).await;
    }

    /// A line below the last one.
    pub(super) fn detail(&self, words: &str) {
        self.print(&format!("{}{}\n", " ".repeat(INDENT), wrap(words, self.width(), INDENT)));
    }

    /// A line of nobody's.
    pub(super) fn aside(&self, words: &str) {
        self.print(&format!("{}\n", self.wrapped(words)));
    }

    /// A text as it fits here.
    pub(super) fn wrapped(&self, words: &str) -> String {
        wrap(words, self.width(), 0)
    }

    fn width(&self) -> usize {
        self.output.width().unwrap_or(PIPE_WIDTH)
    }

    async fn line(&self, speaker: Speaker, words: &str, mut fact: Value) {
        let (name, style, pause, before) = match speaker {
            Speaker::Agent => ("agent", NAME.bold(), 700, "\n"),
            Speaker::Gate => ("gate", DIM, 450, ""),
            Speaker::You => ("you", WARN.bold(), 700, "\n"),
            Speaker::Log => ("log", GOOD.bold(), 700, "\n"),
        };
        // A breath where somebody watches.
        if self.output.is_watched() {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        if let Some(members) = fact.as_object_mut() {
            members.insert("who".to_owned(), name.into());
        }
        self.said.borrow_mut().push(fact);
        let words = wrap(words, self.width(), INDENT);
        self.print(&format!("{before}{} {words}\n", paint(style, format_args!("{name:>7}"))));
    }

    fn print(&self, text: &str) {
        if self.output.format == Format::Text {
            // A reader that closed stdout does not want the rest.
            let _ = self.output.say(text);
        }
    }
}
