//! The log settings of the command line: `--log`, `--log-format`, `--log-file` and `COUNTERSIGN_LOG`. Never stdout, which carries
//! protocol and envelopes.

mod rotating_file;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use countersign_telemetry::{LogFilter, LogSettings, Telemetry, start_log};
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};

use crate::cli::Cli;
use crate::command_result::CommandError;
use crate::{config_file, environment};
use rotating_file::RotatingFile;

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
        // Hosts rarely show what a server writes to stderr: `countersign logs` shows the file.
        None => match open_usual_file() {
            Some(file) => BoxMakeWriter::new(std::io::stderr.and(std::sync::Mutex::new(file))),
            None => BoxMakeWriter::new(std::io::stderr),
        },
        Some(path) => {
            let open = OpenOptions::new().create(true).append(true).open(path);
            let file = open.map_err(|error| {
                let message = format!("can't write `{}`: {}", path.display(), config_file::why(&error));
                CommandError::usage("invalid_value", message, "countersign serve --log-file PATH")
            })?;
            BoxMakeWriter::new(std::sync::Mutex::new(file))
        }
    };
    Ok(Telemetry::start(LogSettings { filter, is_json, writer }, environment::variable))
}

/// A log of this size is put aside.
const LONGEST_LOG: u64 = 4 << 20;

/// Where gateways of this machine keep their log, besides stderr.
pub(crate) fn usual_file() -> Option<PathBuf> {
    Some(environment::state_folder()?.join("countersign").join("gateway.log"))
}

/// The log, to be appended to; none where it can't be kept, which is no reason not to serve.
fn open_usual_file() -> Option<RotatingFile> {
    let path = usual_file()?;
    crate::private_file::make_folder(path.parent()?).ok()?;
    RotatingFile::open(path, LONGEST_LOG).ok()
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
