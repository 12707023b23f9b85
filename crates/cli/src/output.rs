//! What goes to the terminal: one envelope for programs, or text with colours for people, plain in a pipe.
//! stdout carries the answer and nothing else; refusals, warnings and progress go to stderr.

mod diagnostic;
mod progress;
mod safe;
mod spread;
mod style;
mod table;
mod time;

use std::io::{self, IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use countersign_core::envelope::Envelope;
use serde_json::{Map, Value, json};

pub(crate) use countersign_core::words::plural;
pub(crate) use diagnostic::{counts, diagnostic};
pub(crate) use progress::Progress;
pub(crate) use safe::{shell_word, visible};
use spread::spread;
pub(crate) use style::{BAD, BOLD, DIM, GOOD, NAME, PLAIN, WARN, paint};
pub(crate) use table::{Column, Table};
pub(crate) use time::{Zone, exact, shown, span};

use crate::answer::{Failed, Outcome, Refused, Trouble, Usage};
use crate::cli::{Cli, Color};
use crate::exit::{self, Exit};

/// Who reads stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// People, or their pipes.
    Text,
    /// Programs.
    Json,
}

/// How much is told about faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// What may be shown to anyone.
    Outside,
    /// Everything we know.
    Inside,
}

/// How this process speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voice {
    /// Who reads stdout.
    pub(crate) format: Format,
    color: ColorChoice,
    verbosity: Verbosity,
}

impl Voice {
    /// As the command line asks.
    pub(crate) fn of(cli: &Cli) -> Self {
        let verbosity = if cli.verbose { Verbosity::Inside } else { Verbosity::Outside };
        Self::new(if cli.json { Format::Json } else { Format::Text }, cli.color, verbosity)
    }

    /// From its parts.
    pub(crate) fn new(format: Format, color: Color, verbosity: Verbosity) -> Self {
        let color = match color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::AlwaysAnsi,
            Color::Never => ColorChoice::Never,
        };
        Self { format, color, verbosity }
    }

    /// Whether a person watches stdout.
    pub(crate) fn is_watched(self) -> bool {
        self.format == Format::Text && io::stdout().is_terminal()
    }

    /// Whether a person watches stderr, where progress is shown.
    pub(crate) fn shows_progress(self) -> bool {
        self.format == Format::Text && io::stderr().is_terminal()
    }

    /// How many columns there are; none where nothing has to fit.
    pub(crate) fn width(self) -> Option<usize> {
        let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
        self.is_watched().then_some(usize::from(width.0))
    }

    /// stdout for data: byte by byte as given, but for escapes on a terminal, which would act there.
    pub(crate) fn data(self) -> AutoStream<io::StdoutLock<'static>> {
        let choice = if io::stdout().is_terminal() { ColorChoice::Never } else { ColorChoice::AlwaysAnsi };
        AutoStream::new(io::stdout().lock(), choice)
    }

    /// Text to stdout, all of it or an error.
    pub(crate) fn say(self, text: &str) -> io::Result<()> {
        let mut stdout = AutoStream::new(io::stdout().lock(), self.color);
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    /// Data to stdout, all of it or an error.
    pub(crate) fn give(self, data: &str) -> io::Result<()> {
        let mut stdout = self.data();
        stdout.write_all(data.as_bytes())?;
        stdout.flush()
    }

    /// Text to stderr. Whoever closed it does not want to know.
    pub(crate) fn tell(self, text: &str) {
        let mut stderr = AutoStream::new(io::stderr().lock(), self.color);
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

/// Prints what a command gave back and says how the process ends.
pub(crate) fn finish(voice: Voice, path: &str, outcome: Outcome) -> Exit {
    let exit = exit_of(&outcome);
    let printed = match voice.format {
        Format::Json => {
            if let Err(Trouble::Refused(refused)) = &outcome {
                tell_inside(voice, refused.inside.as_deref());
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

fn exit_of(outcome: &Outcome) -> Exit {
    match outcome {
        Ok(_) => Exit::Ok,
        Err(Trouble::Refused(refused)) => exit::of(&refused.refusal),
        Err(Trouble::Usage(_)) => Exit::Usage,
        Err(Trouble::Output(_) | Trouble::Failed(_)) => Exit::Fault,
    }
}

/// The one envelope of a command.
pub(crate) fn envelope(path: &str, outcome: Outcome) -> Envelope {
    match outcome {
        Ok(answer) => with_texts(Envelope::ok(path, answer.data).warn(answer.warnings), answer.verbatim),
        Err(Trouble::Refused(refused)) => {
            let Refused { mut refusal, data, warnings, next, .. } = *refused;
            if let Some(next) = next {
                refusal = refusal.with("hint", next);
            }
            let mut envelope = Envelope::refused(path, &refusal).warn(warnings);
            envelope.data = data;
            envelope
        }
        Err(Trouble::Usage(Usage { message, reason_code, next })) => {
            let details = details(reason_code, "read_help", Some(next));
            Envelope::fault(path, "E_USAGE", message, Some(details))
        }
        Err(Trouble::Output(message)) => {
            Envelope::fault(path, "E_OUTPUT", message, Some(details("output_failed", "retry_later", None)))
        }
        Err(Trouble::Failed(failed)) => {
            let Failed { answer, message } = *failed;
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

fn print_envelope(voice: Voice, envelope: &Envelope) -> io::Result<()> {
    // Readable on a terminal, one line in a pipe.
    let text = envelope.to_text();
    let text = if io::stdout().is_terminal() { spread(&text) } else { text };
    voice.give(&format!("{text}\n"))
}

fn print_text(voice: Voice, outcome: Outcome) -> io::Result<()> {
    match outcome {
        Ok(answer) => {
            voice.say(&answer.text)?;
            tell_warnings(voice, &answer.warnings);
        }
        Err(Trouble::Refused(refused)) => {
            let said = voice.say(&refused.findings);
            voice.tell(&refused.reasons);
            tell_warnings(voice, &refused.warnings);
            let word = if exit::of(&refused.refusal) == Exit::Fault { "fault" } else { "refused" };
            let code = paint(BAD, format_args!("{word} {}:", refused.refusal.code));
            voice.tell(&format!("{code} {}\n", visible(&refused.refusal.message)));
            tell_inside(voice, refused.inside.as_deref());
            tell_next(voice, refused.next.as_deref());
            said?;
        }
        Err(Trouble::Usage(usage)) => {
            voice.tell(&format!("{} {}\n", paint(BAD, "refused E_USAGE:"), usage.message));
            tell_next(voice, Some(&usage.next));
        }
        Err(Trouble::Output(message)) => tell_output(voice, &message),
        Err(Trouble::Failed(failed)) => {
            voice.say(&failed.answer.text)?;
            tell_warnings(voice, &failed.answer.warnings);
            voice.tell(&format!("{} {}\n", paint(BAD, "fault E_TOOL_FAILED:"), visible(&failed.message)));
        }
    }
    Ok(())
}

fn tell_warnings(voice: Voice, warnings: &[String]) {
    for warning in warnings {
        voice.tell(&format!("{} {}\n", paint(WARN, "warning:"), visible(warning)));
    }
}

fn tell_next(voice: Voice, next: Option<&str>) {
    if let Some(next) = next {
        voice.tell(&format!("{} {next}\n", paint(BOLD, "next:")));
    }
}

fn tell_output(voice: Voice, message: &str) {
    voice.tell(&format!("{} {}\n", paint(BAD, "fault E_OUTPUT:"), visible(message)));
}

fn tell_inside(voice: Voice, inside: Option<&str>) {
    if let (Some(inside), Verbosity::Inside) = (inside, voice.verbosity) {
        voice.tell(&format!("{} {}\n", paint(DIM, "inside:"), visible(inside)));
    }
}
