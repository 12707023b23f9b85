//! The log settings of the command line: `--log`, `--log-format`, `--log-file` and `COUNTERSIGN_LOG`. Never stdout, which carries
//! protocol and envelopes.

use std::path::Path;

use clap::ValueEnum;
use countersign_telemetry::{LogFilter, LogSettings, Telemetry, start_log};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::cli::Cli;
use crate::command_result::CommandError;
use crate::{config_file, environment};

/// The filter where `--log` is not given.
const VARIABLE: &str = "COUNTERSIGN_LOG";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Starts the log where `--log` or the variable asks for one.
pub(crate) fn start(cli: &Cli) -> Result<(), CommandError> {
    if let Some(filter) = requested_filter(cli)? {
        let is_json = cli.log_format == Some(LogFormat::Json);
        start_log(LogSettings { filter, is_json, writer: BoxMakeWriter::new(std::io::stderr) });
    }
    Ok(())
}

/// Starts the log and the telemetry of a gateway: at `warn` unless something else is asked for.
pub(crate) fn start_serving(cli: &Cli, file: Option<&Path>, json: bool) -> Result<Telemetry, CommandError> {
    let filter = requested_filter(cli)?.unwrap_or_else(LogFilter::warnings);
    let is_json = cli.log_format.map_or(json, |format| format == LogFormat::Json);
    let writer = match file {
        None => BoxMakeWriter::new(std::io::stderr),
        Some(path) => {
            let open = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let file = open.map_err(|error| {
                let message = format!("can't write `{}`: {}", path.display(), config_file::why(&error));
                CommandError::usage("invalid_value", message, "countersign serve --log-file PATH")
            })?;
            BoxMakeWriter::new(std::sync::Mutex::new(file))
        }
    };
    Ok(Telemetry::start(LogSettings { filter, is_json, writer }, environment::variable))
}

fn requested_filter(cli: &Cli) -> Result<Option<LogFilter>, CommandError> {
    if let Some(filter) = &cli.log {
        return Ok(Some(filter.clone()));
    }
    let Some(text) = environment::variable(VARIABLE) else { return Ok(None) };
    text.parse().map(Some).map_err(|why: String| {
        let message = format!("{VARIABLE} can't be read: {}", crate::output::visible(&why));
        CommandError::usage("invalid_value", message, "countersign --help")
    })
}
