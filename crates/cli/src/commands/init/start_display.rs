//! Shows how servers start: on a terminal a line for each, with a spinner, elsewhere a plain line when one is done. Starts nothing.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::output::{Format, OutputSettings, plural, visible};

const TICK: Duration = Duration::from_millis(120);

pub(super) struct StartDisplay {
    voice: OutputSettings,
    lines: Option<MultiProgress>,
    /// How wide the names are.
    width: usize,
}

impl StartDisplay {
    pub(super) fn new<'n>(voice: OutputSettings, names: impl Iterator<Item = &'n str>) -> Self {
        let lines = voice.shows_progress().then(MultiProgress::new);
        Self { voice, lines, width: names.map(|name| name.chars().count()).max().unwrap_or_default() }
    }

    /// Leaves a line free below the lines that stay.
    pub(super) fn end(&self) {
        if self.lines.is_some() {
            self.voice.tell("\n");
        }
    }

    /// The line of a server that starts now.
    pub(super) fn begin(&self, name: &str) -> StartLine {
        let bar = self.lines.as_ref().map(|lines| {
            let bar = lines
                .add(ProgressBar::new_spinner().with_style(style("{spinner} {prefix}  {msg} · {elapsed}")));
            bar.set_prefix(format!("{name:width$}", width = self.width));
            bar.set_message("starting");
            bar.enable_steady_tick(TICK);
            bar
        });
        StartLine { bar, name: name.to_owned(), voice: self.voice, began: Instant::now() }
    }
}

fn style(template: &str) -> ProgressStyle {
    // A template that can't be read costs the looks only.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

pub(super) struct StartLine {
    bar: Option<ProgressBar>,
    name: String,
    voice: OutputSettings,
    began: Instant,
}

impl StartLine {
    /// Says how it ended: how many tools there are, or that there was no answer. The reason has its place below the table.
    pub(super) fn end(self, tools: Option<usize>) {
        let seconds = self.began.elapsed().as_secs();
        let (sign, said) = match tools {
            Some(count) => ("✓", plural(count, "tool")),
            None => ("✗", "did not answer".to_owned()),
        };
        match self.bar {
            Some(bar) => {
                bar.set_style(style(&format!("{sign} {{prefix}}  {{msg}}")));
                bar.finish_with_message(format!("{said} · {seconds}s"));
            }
            None if self.voice.format == Format::Text => {
                self.voice.tell(&format!("{}: {said}\n", visible(&self.name)));
            }
            None => {}
        }
    }
}
