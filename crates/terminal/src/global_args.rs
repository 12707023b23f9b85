//! The options every command takes: which configuration, and how to print.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Args, Debug)]
pub struct GlobalArgs {
    /// Read this configuration; several are merged, later ones win
    ///
    /// Without it: $COUNTERSIGN_CONFIG, then ./countersign.toml, then countersign/countersign.toml in the platform's
    /// folder for configuration.
    #[arg(long, global = true, value_name = "PATH", help_heading = "Global options")]
    pub config: Vec<PathBuf>,

    /// Print exactly one JSON envelope on stdout
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,

    /// When to use colours; NO_COLOR is respected
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN", help_heading = "Global options")]
    pub color: Color,

    /// Print the cause of a fault on stderr
    #[arg(long, short, global = true, help_heading = "Global options")]
    pub verbose: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// Where a terminal shows them
    #[default]
    Auto,
    /// Also in a pipe
    Always,
    /// Not at all
    Never,
}
