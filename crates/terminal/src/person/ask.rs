//! Asking the person at the terminal. Questions go to stderr, so that stdout stays the answer's; off a terminal, and
//! where a program reads the answer, nobody is asked.

use std::io::{self, BufRead as _, IsTerminal as _};

use crate::output::{BOLD, Format, OutputSettings, paint};

pub fn can_ask(voice: OutputSettings) -> bool {
    voice.format == Format::Text && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// What was typed, to the letter; none at the end of input.
pub fn line(voice: OutputSettings, question: &str) -> Option<String> {
    voice.tell(&format!("{} ", paint(BOLD, question)));
    let mut typed = String::new();
    match io::stdin().lock().read_line(&mut typed) {
        Ok(1..) => {
            let bare = typed.strip_suffix('\n').unwrap_or(&typed);
            Some(bare.strip_suffix('\r').unwrap_or(bare).to_owned())
        }
        Ok(0) | Err(_) => {
            voice.tell("\n");
            None
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptAnswer {
    Yes,
    No,
    /// Leave it, and tell the caller.
    Reject,
}

/// Which of these the person wants, by its number. Enter and the end of input take the usual one.
pub fn choice(voice: OutputSettings, question: &str, choices: &[&str], usual: usize) -> usize {
    voice.tell(&format!("{}\n", paint(BOLD, question)));
    for (index, text) in choices.iter().enumerate() {
        voice.tell(&format!("  {}  {text}\n", index + 1));
    }
    loop {
        let prompt = format!("1 to {} [{}]", choices.len(), usual + 1);
        let typed = line(voice, &prompt).unwrap_or_default();
        match typed.trim().parse::<usize>() {
            _ if typed.trim().is_empty() => return usual,
            Ok(number) if (1..=choices.len()).contains(&number) => return number - 1,
            Ok(_) | Err(_) => voice.tell("please type one of the numbers\n"),
        }
    }
}

/// Whether the person agrees to what would be done anyway: Enter is yes, the end of input is no.
pub fn agrees(voice: OutputSettings, question: &str) -> bool {
    loop {
        let Some(typed) = line(voice, &format!("{question} [Y/n]")) else { return false };
        match typed.trim().to_ascii_lowercase().as_str() {
            "" | "y" | "yes" => return true,
            "n" | "no" => return false,
            _ => voice.tell("please answer yes or no\n"),
        }
    }
}

/// Whether the person says yes; anything unclear is asked again, silence is no.
pub fn yes(voice: OutputSettings, question: &str) -> bool {
    decide(voice, &format!("{question} [y/N]"), &[PromptAnswer::Yes, PromptAnswer::No]) == PromptAnswer::Yes
}

/// One of these answers; anything unclear is asked again, silence is no.
pub fn decide(voice: OutputSettings, question: &str, choices: &[PromptAnswer]) -> PromptAnswer {
    loop {
        let Some(typed) = line(voice, question) else { return PromptAnswer::No };
        let said = match typed.trim().to_ascii_lowercase().as_str() {
            "" | "n" | "no" => PromptAnswer::No,
            "y" | "yes" => PromptAnswer::Yes,
            "r" | "reject" => PromptAnswer::Reject,
            _ => {
                voice.tell("please answer yes or no\n");
                continue;
            }
        };
        if choices.contains(&said) {
            return said;
        }
    }
}
