//! `countersign doctor`: looks at everything a governed call depends on and says what is wrong, each with its fix. `--fix` does what is
//! safe: it takes away rights, never gives any.

mod check;
mod credential_files;
mod gateway_checks;
mod hosts;

use clap::Args;
use serde_json::Value;

use self::check::{Check, State};
use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult, FailedCall};
use crate::config_file;
use crate::output::{BAD, BOLD, DIM, GOOD, OutputSettings, WARN, paint, plural, visible};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign doctor
  countersign doctor --fix
  countersign doctor --no-start --json

Exit code 0: nothing is wrong, though something may be worth a look; 1: something is.";

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Fix what can be fixed safely: permissions of key files
    #[arg(long)]
    fix: bool,

    /// Do not start upstreams or hosts
    #[arg(long)]
    no_start: bool,
}

pub(crate) fn run(args: &DoctorArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let mut checks = Vec::new();
    let config = config_file::find(&cli.config).ok().flatten().and_then(|files| files.parse().ok());
    hosts::check_hosts(args, config.as_ref(), &mut checks);
    credential_files::check_credential_files(args, &mut checks);
    match config_file::find(&cli.config) {
        Ok(Some(_)) => gateway_checks::check_gateway(args, cli, voice, &mut checks),
        Ok(None) => checks.push(
            Check::new("configuration", State::Bad, "there is no configuration").fix("countersign init"),
        ),
        Err(trouble) => checks.push(
            Check::new("configuration", State::Bad, check::one_line(&trouble))
                .fix(check::own_command(cli, "policy check")),
        ),
    }
    answer(&checks)
}

fn answer(checks: &[Check]) -> CommandResult {
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
    Err(CommandError::Failed(Box::new(FailedCall { answer, message })))
}
