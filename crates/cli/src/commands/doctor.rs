//! `countersign doctor`: looks at everything a governed call depends on and says what is wrong, each with its fix. `--fix` does what is
//! safe: it takes away rights, never gives any.

mod check;
mod home;
mod hosts;
mod house;

use clap::Args;
use serde_json::Value;

use self::check::{Check, State};
use crate::answer::{Answer, Failed, Outcome, Trouble};
use crate::cli::Cli;
use crate::config_file;
use crate::output::{BAD, BOLD, DIM, GOOD, Voice, WARN, paint, plural, visible};

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign doctor
  countersign doctor --fix
  countersign doctor --no-start --json

Exit code 0: nothing is wrong, though something may be worth a look; 1: something is.";

/// What `doctor` takes.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Mend what can be mended safely: rights of key files
    #[arg(long)]
    fix: bool,

    /// Do not start upstreams or hosts
    #[arg(long)]
    no_start: bool,
}

/// Looks at everything.
pub(crate) fn run(args: &Doctor, cli: &Cli, voice: Voice) -> Outcome {
    let mut checks = Vec::new();
    hosts::look(args, &mut checks);
    home::look(args, &mut checks);
    match config_file::find(&cli.config) {
        Ok(Some(_)) => house::look(args, cli, voice, &mut checks),
        Ok(None) => checks.push(
            Check::new("configuration", State::Bad, "there is no configuration").fix("countersign init"),
        ),
        Err(trouble) => checks.push(Check::new("configuration", State::Bad, check::told(&trouble))),
    }
    answer(&checks)
}

fn answer(checks: &[Check]) -> Outcome {
    let mut text = String::new();
    let mut area = "";
    for check in checks {
        if check.area != area {
            text.push_str(&format!(
                "{}{}\n",
                if area.is_empty() { "" } else { "\n" },
                paint(BOLD, check.area)
            ));
            area = check.area;
        }
        let sign = match check.state {
            State::Good => paint(GOOD, "✓"),
            State::Look => paint(WARN, "!"),
            State::Bad => paint(BAD, "✗"),
            State::Fixed => paint(GOOD, "✓ fixed"),
        };
        text.push_str(&format!("  {sign} {}\n", visible(&check.message)));
        if let Some(fix) = &check.fix {
            text.push_str(&format!("    {} {}\n", paint(DIM, "fix:"), visible(fix)));
        }
    }
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    let (bad, look) = (count(State::Bad), count(State::Look));
    let all: Vec<Value> = checks.iter().map(Check::value).collect();
    let summary = match (bad, look) {
        (0, 0) => paint(GOOD, "everything is well"),
        (0, look) => paint(WARN, format!("nothing is wrong; {} worth a look", plural(look, "thing"))),
        (bad, _) => paint(BAD, format!("{} wrong", plural(bad, "thing"))),
    };
    let answer =
        Answer::text(format!("{text}\n{summary}\n")).with("checks", all).with("bad", bad).with("look", look);
    if bad == 0 {
        return Ok(answer);
    }
    let message = format!("{} wrong", plural(bad, "thing"));
    Err(Trouble::Failed(Box::new(Failed { answer, message })))
}
