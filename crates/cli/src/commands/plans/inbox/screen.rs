//! The terminal while the inbox has it: raw mode, the alternate screen, one frame after the other. Gives the terminal back when dropped.

use std::io::{self, Write as _};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};

use super::state::FrameSize;
use crate::output::OutputSettings;

/// What is assumed of a terminal that does not say how large it is.
const USUAL_SIZE: (u16, u16) = (80, 24);

pub(super) struct Screen {
    has_colours: bool,
    /// The frame that is on the screen.
    drawn: Option<(FrameSize, Vec<String>)>,
}

impl Screen {
    pub(super) fn open(voice: OutputSettings) -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        // From here on dropping it gives the terminal back.
        let screen = Self { has_colours: voice.has_colours(), drawn: None };
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Draws a frame if it differs from the one on the screen.
    pub(super) fn draw(&mut self, frame: impl FnOnce(FrameSize) -> Vec<String>) -> io::Result<()> {
        let (width, height) = terminal::size().unwrap_or(USUAL_SIZE);
        let size = FrameSize { width: usize::from(width), height: usize::from(height) };
        let lines = frame(size);
        if self.drawn.as_ref().is_some_and(|(at, drawn)| *at == size && *drawn == lines) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for (row, line) in (0..height).zip(&lines) {
            queue!(bytes, MoveTo(0, row), Clear(ClearType::UntilNewLine))?;
            if self.has_colours {
                write!(bytes, "{line}\u{1b}[0m")?;
            } else {
                write!(bytes, "{}", anstream::adapter::strip_str(line))?;
            }
        }
        if let Ok(below) = u16::try_from(lines.len())
            && below < height
        {
            queue!(bytes, MoveTo(0, below), Clear(ClearType::FromCursorDown))?;
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&bytes)?;
        stdout.flush()?;
        self.drawn = Some((size, lines));
        Ok(())
    }

    /// The bell is how a terminal in the background says that it is needed.
    pub(super) fn ring(&self) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(b"\x07")?;
        stdout.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = terminal::disable_raw_mode();
    }
}
