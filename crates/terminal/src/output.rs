//! What goes to the terminal: one envelope for programs, or text with colours for people, plain in a pipe.
//! stdout carries the answer and nothing else; refusals, warnings and progress go to stderr.

mod diagnostic;
mod escaping;
mod pretty_json;
mod progress;
mod style;
mod table;
mod time;
mod wrap;

use std::io::{self, IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use countersign_policy::envelope::{Envelope, UNEXPECTED};
use serde_json::{Map, Value, json};

pub use countersign_policy::words::plural;
pub use diagnostic::{counts, diagnostic};
pub use escaping::{shell_word, visible};
use pretty_json::spread;
pub use progress::Progress;
pub use style::{BAD, BOLD, DIM, GOOD, NAME, PLAIN, WARN, paint};
pub use table::{Column, Table, cut};
pub use time::{TimeDisplay, exact, left, shown, span, zone};
pub use wrap::wrap;

use crate::command_result::{CommandError, CommandResult, FailedCall, Refused, Usage};
use crate::exit::{self, Exit};
use crate::global_args::{Color, GlobalArgs};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    Outside,
    Inside,
}

#[derive(Clone, Copy, Debug)]
pub struct OutputSettings {
    pub format: Format,
    color: ColorChoice,
    verbosity: Verbosity,
}

impl OutputSettings {
    pub fn from_cli(cli: &GlobalArgs) -> Self {
        let verbosity = if cli.verbose { Verbosity::Inside } else { Verbosity::Outside };
        Self::new(if cli.json { Format::Json } else { Format::Text }, cli.color, verbosity)
    }

    pub fn new(format: Format, color: Color, verbosity: Verbosity) -> Self {
        let color = match color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::AlwaysAnsi,
            Color::Never => ColorChoice::Never,
        };
        Self { format, color, verbosity }
    }

    pub fn is_watched(self) -> bool {
        self.format == Format::Text && io::stdout().is_terminal()
    }

    /// Whether stdout shows colours.
    pub fn has_colours(self) -> bool {
        let choice = match self.color {
            ColorChoice::Auto => AutoStream::choice(&io::stdout()),
            given @ (ColorChoice::AlwaysAnsi | ColorChoice::Always | ColorChoice::Never) => given,
        };
        choice != ColorChoice::Never
    }

    /// Whether a person watches stderr, where progress is shown.
    pub fn shows_progress(self) -> bool {
        self.format == Format::Text && io::stderr().is_terminal()
    }

    /// How many columns there are; none where nothing has to fit.
    pub fn width(self) -> Option<usize> {
        let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
        self.is_watched().then_some(usize::from(width.0))
    }

    /// stdout for data: byte by byte as given, but for escapes on a terminal, which would act there.
    pub fn data(self) -> AutoStream<io::StdoutLock<'static>> {
        let choice = if io::stdout().is_terminal() { ColorChoice::Never } else { ColorChoice::AlwaysAnsi };
        AutoStream::new(io::stdout().lock(), choice)
    }

    /// Text to stdout, all of it or an error.
    pub fn say(self, text: &str) -> io::Result<()> {
        let mut stdout = AutoStream::new(io::stdout().lock(), self.color);
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    /// Data to stdout, all of it or an error.
    pub fn give(self, data: &str) -> io::Result<()> {
        let mut stdout = self.data();
        stdout.write_all(data.as_bytes())?;
        stdout.flush()
    }

    /// Text to stderr. A closed stderr is no error: nobody wants to read it.
    pub fn tell(self, text: &str) {
        let mut stderr = AutoStream::new(io::stderr().lock(), self.color);
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

/// A line for people, on stderr, from a server. One that can't be read by anyone is no reason to stop.
pub fn banner(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints what a command gave back and says how the process ends.
pub fn finish(voice: OutputSettings, path: &str, outcome: CommandResult) -> Exit {
    let exit = exit_of(&outcome);
    let printed = match voice.format {
        Format::Json => {
            match &outcome {
                Err(CommandError::Refused(refused)) => tell_inside(voice, refused.inside.as_deref()),
                Err(CommandError::Fault(fault)) => tell_inside(voice, Some(&fault.inside)),
                Ok(_) | Err(CommandError::Usage(_) | CommandError::Output(_) | CommandError::Failed(_)) => {}
            }
            print_envelope(voice, &envelope(path, outcome))
        }
        Format::Text => print_text(voice, outcome),
    };
    match printed {
        Ok(()) => exit,
        // `| head` has seen enough: that is no trouble of ours.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
        Err(error) => {
            tell_output(voice, &format!("can't write the answer: {error}"));
            Exit::Fault
        }
    }
}

fn exit_of(outcome: &CommandResult) -> Exit {
    match outcome {
        Ok(_) => Exit::Ok,
        Err(CommandError::Refused(refused)) => exit::exit_for(&refused.refusal),
        Err(CommandError::Usage(_)) => Exit::Usage,
        Err(CommandError::Output(_) | CommandError::Fault(_) | CommandError::Failed(_)) => Exit::Fault,
    }
}

pub fn envelope(path: &str, outcome: CommandResult) -> Envelope {
    match outcome {
        Ok(answer) => with_texts(Envelope::ok(path, answer.data).warn(answer.warnings), answer.verbatim),
        Err(CommandError::Refused(refused)) => {
            let Refused { mut refusal, data, warnings, next, .. } = *refused;
            if let Some(next) = next {
                refusal = refusal.with("hint", next);
            }
            let mut envelope = Envelope::refused(path, &refusal).warn(warnings);
            envelope.data = data;
            envelope
        }
        Err(CommandError::Usage(Usage { message, reason_code, next })) => {
            let details = details(reason_code, "read_help", Some(next));
            Envelope::fault(path, "E_USAGE", message, Some(details))
        }
        Err(CommandError::Output(message)) => {
            Envelope::fault(path, "E_OUTPUT", message, Some(details("output_failed", "retry_later", None)))
        }
        Err(CommandError::Fault(fault)) => {
            let details = details("unexpected", "retry_later", fault.next);
            Envelope::fault(path, UNEXPECTED, fault.message, Some(details))
        }
        Err(CommandError::Failed(failed)) => {
            let FailedCall { answer, message } = *failed;
            let details = details("tool_failed", "verify_outcome", None);
            let envelope = Envelope::fault(path, "E_TOOL_FAILED", message, Some(details));
            let mut envelope = envelope.warn(answer.warnings);
            envelope.data = answer.data;
            with_texts(envelope, answer.verbatim)
        }
    }
}

fn with_texts(envelope: Envelope, texts: Vec<(String, String)>) -> Envelope {
    texts.into_iter().fold(envelope, |envelope, (name, text)| envelope.with_text(&name, text))
}

fn details(reason_code: &str, next_action: &str, hint: Option<String>) -> Value {
    let mut details = Map::new();
    details.insert("reason_code".into(), reason_code.into());
    details.insert("next_actions".into(), json!([next_action]));
    if let Some(hint) = hint {
        details.insert("hint".into(), hint.into());
    }
    details.into()
}

fn print_envelope(voice: OutputSettings, envelope: &Envelope) -> io::Result<()> {
    // Readable on a terminal, one line in a pipe.
    let text = envelope.to_text();
    let text = if io::stdout().is_terminal() { spread(&text) } else { text };
    voice.give(&format!("{text}\n"))
}

fn print_text(voice: OutputSettings, outcome: CommandResult) -> io::Result<()> {
    match outcome {
        Ok(answer) => {
            voice.say(&answer.text)?;
            tell_warnings(voice, &answer.warnings);
        }
        Err(CommandError::Refused(refused)) => {
            let said = voice.say(&refused.findings);
            voice.tell(&refused.reasons);
            tell_warnings(voice, &refused.warnings);
            let word = if exit::exit_for(&refused.refusal) == Exit::Fault { "fault" } else { "refused" };
            let code = paint(BAD, format_args!("{word} {}:", refused.refusal.code));
            voice.tell(&format!("{code} {}\n", visible(&refused.refusal.message)));
            tell_inside(voice, refused.inside.as_deref());
            tell_next(voice, refused.next.as_deref());
            said?;
        }
        Err(CommandError::Usage(usage)) => {
            voice.tell(&format!("{} {}\n", paint(BAD, "refused E_USAGE:"), usage.message));
            tell_next(voice, Some(&usage.next));
        }
        Err(CommandError::Output(message)) => tell_output(voice, &message),
        Err(CommandError::Fault(fault)) => {
            let code = paint(BAD, format_args!("fault {UNEXPECTED}:"));
            voice.tell(&format!("{code} {}\n", visible(&fault.message)));
            tell_inside(voice, Some(&fault.inside));
            tell_next(voice, fault.next.as_deref());
        }
        Err(CommandError::Failed(failed)) => {
            voice.say(&failed.answer.text)?;
            tell_warnings(voice, &failed.answer.warnings);
            voice.tell(&format!("{} {}\n", paint(BAD, "fault E_TOOL_FAILED:"), visible(&failed.message)));
        }
    }
    Ok(())
}

fn tell_warnings(voice: OutputSettings, warnings: &[String]) {
    for warning in warnings {
        voice.tell(&format!("{} {}\n", paint(WARN, "warning:"), visible(warning)));
    }
}

fn tell_next(voice: OutputSettings, next: Option<&str>) {
    if let Some(next) = next {
        voice.tell(&format!("{} {next}\n", paint(BOLD, "next:")));
    }
}

fn tell_output(voice: OutputSettings, message: &str) {
    voice.tell(&format!("{} {}\n", paint(BAD, "fault E_OUTPUT:"), visible(message)));
}

fn tell_inside(voice: OutputSettings, inside: Option<&str>) {
    if let (Some(inside), Verbosity::Inside) = (inside, voice.verbosity) {
        voice.tell(&format!("{} {}\n", paint(DIM, "inside:"), visible(inside)));
    }
}
