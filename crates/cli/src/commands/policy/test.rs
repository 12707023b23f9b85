//! `countersign policy test`: runs the `[[tests]]` of a configuration against the real gate. Calls nothing.

use std::path::PathBuf;

use clap::Args;
use countersign_config::{self as config, CaseOutcome, Outcome as CaseResult, PolicyTestCase};
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use serde_json::{Map, json};
use unicode_width::UnicodeWidthStr as _;

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult, Refused};
use crate::config_file::{self, ConfigFiles};
use crate::output::{BAD, DIM, GOOD, paint, plural, shell_word, visible};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign policy test
  countersign policy test policy-tests.toml

A test is a call and what is expected of it:
  [[tests]]
  name = \"deleting a repository takes a person\"
  tool = \"github:delete_repo\"
  args = { repo = \"acme/site\" }
  mode = \"execute\"
  expect = { verdict = \"hold\", confirm = \"type\", strength = \"human\" }";

#[derive(Args, Debug)]
pub(crate) struct PolicyTestArgs {
    /// Further files with `[[tests]]`, read after the configuration
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &PolicyTestArgs, cli: &Cli) -> CommandResult {
    let files = files(args, cli)?;
    let config = files.parse()?;
    let names = files.names().join(", ");
    if config.tests.is_empty() {
        let message = format!("there are no tests in {names}");
        let refusal = Refusal::new(Code::ConfigInvalid, message).because("tests_failed");
        return Err(CommandError::refused(
            refusal,
            "write [[tests]]; countersign policy test --help shows one",
        ));
    }
    let outcomes: Vec<CaseOutcome> =
        config.tests.iter().map(|case| config::run_case(&config, case)).collect();
    let failed = outcomes.iter().filter(|case| case.outcome == CaseResult::Failed).count();
    let passed = outcomes.len() - failed;
    let lines = lines(&outcomes);
    let data = Map::from_iter([
        ("files".to_owned(), json!(files.names())),
        ("passed".to_owned(), passed.into()),
        ("failed".to_owned(), failed.into()),
        ("tests".to_owned(), json!(outcomes)),
    ]);
    if failed == 0 {
        let text = format!("{lines}\n{} passed\n", plural(passed, "test"));
        return Ok(Answer { text, data, ..Answer::default() });
    }
    let message = format!("{failed} of {} failed", plural(outcomes.len(), "test"));
    let mut refused = Refused::from(Refusal::new(Code::ConfigInvalid, message).because("tests_failed"));
    refused.findings = format!("{lines}\n");
    refused.data = data;
    let first = config.tests.iter().zip(&outcomes).find(|(_, outcome)| outcome.outcome == CaseResult::Failed);
    refused.next = first.map(|(case, _)| explain_line(case, cli));
    Err(refused.into())
}

/// The configuration, and the files named behind it. A file that is both is read once.
fn files(args: &PolicyTestArgs, cli: &Cli) -> Result<ConfigFiles, CommandError> {
    if args.files.is_empty() {
        return config_file::require(&cli.config);
    }
    let further = config_file::read(&args.files)?;
    let Some(mut files) = config_file::find(&cli.config)? else { return Ok(further) };
    let real = |name: &str| std::fs::canonicalize(name).ok();
    let known: Vec<Option<PathBuf>> = files.sources.iter().map(|source| real(&source.name)).collect();
    files.sources.extend(further.sources.into_iter().filter(|source| !known.contains(&real(&source.name))));
    Ok(files)
}

/// The command that tells how a case comes out as it does.
fn explain_line(case: &PolicyTestCase, cli: &Cli) -> String {
    let input = &case.input;
    let mut line = "countersign policy explain".to_owned();
    let mut add = |option: &str, value: &str| line.push_str(&format!(" {option} {}", shell_word(value)));
    for path in &cli.config {
        add("--config", &path.display().to_string());
    }
    add("--tool", &input.tool.to_string());
    if !input.arguments.value().is_empty() {
        add("--args", input.arguments.canonical());
    }
    if let Some(mode) = input.mode {
        add("--mode", mode.as_str());
    }
    if input.role != Role::Agent {
        add("--role", input.role.as_str());
    }
    if let Some(way) = input.way {
        add("--variant", way.as_str());
    }
    if let Some(annotations) = &input.annotations {
        add("--annotations", &serde_json::Value::from(annotations.clone()).to_string());
    }
    line
}

fn lines(outcomes: &[CaseOutcome]) -> String {
    let widest = outcomes.iter().map(|case| visible(&case.name).width()).max().unwrap_or(0).min(60);
    let mut text = String::new();
    for case in outcomes {
        let name = visible(&case.name);
        let blanks = " ".repeat(widest.saturating_sub(name.width()));
        let mark = match case.outcome {
            CaseResult::Passed => paint(GOOD, "✓"),
            CaseResult::Failed => paint(BAD, "✗"),
        };
        text.push_str(&format!("{mark} {name}{blanks}  {}\n", paint(DIM, visible(&case.at))));
        for one in &case.differences {
            let or_nothing = |word: &str| {
                if word.is_empty() { "nothing".to_owned() } else { format!("`{}`", visible(word)) }
            };
            let (expected, got) = (or_nothing(&one.expected), or_nothing(&one.got));
            text.push_str(&format!("    {}: expected {expected}, got {}\n", one.field, paint(BAD, got)));
        }
    }
    text
}
