//! `countersign version`: which program this is.

use serde_json::json;

use crate::command_result::{Answer, CommandResult};
use crate::usage::PROGRAM;

pub(crate) fn run() -> CommandResult {
    let version = env!("CARGO_PKG_VERSION");
    let platform = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    Ok(Answer::text(format!("{PROGRAM} {version} ({platform})\n"))
        .with("name", PROGRAM)
        .with("version", version)
        .with("platform", platform)
        .with("envelope_schema_version", json!(countersign_policy::envelope::SCHEMA_VERSION)))
}
