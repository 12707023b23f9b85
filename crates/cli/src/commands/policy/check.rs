//! `countersign policy check`: everything that is wrong with a configuration, the way a compiler says it.

use countersign_config::{self as config, Config, Diagnostic, DiagnosticSeverity};
use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Map, Value, json};

use crate::cli::Cli;
use crate::command_result::{Answer, CommandResult, Refused};
use crate::config_file::{self, ConfigFiles};
use crate::output::{GOOD, counts, diagnostic, paint, plural};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign policy check
  countersign policy check --config countersign.toml --json";

pub(crate) fn run(cli: &Cli) -> CommandResult {
    let files = config_file::require(&cli.config)?;
    let (config, found) = examine(&files);
    let errors = found.iter().filter(|one| one.is_error()).count();
    let findings: String = found.iter().map(diagnostic).collect();
    let data = data(&files, config.as_ref(), &found, errors);
    let names = files.names().join(", ");
    if errors > 0 {
        let message = format!("{names}: {}", counts(&found));
        let mut refused = Refused::from(Refusal::new(Code::ConfigInvalid, message));
        refused.findings = findings;
        refused.data = data;
        refused.next = Some("mend what is marked, then check again".to_owned());
        return Err(refused.into());
    }
    let facts = config.map(|config| facts(&config)).unwrap_or_default();
    let warned = if found.is_empty() { String::new() } else { format!("; {}", counts(&found)) };
    let text = format!("{findings}{} {names}: {facts}{warned}\n", paint(GOOD, "✓"));
    Ok(Answer { text, data, ..Answer::default() })
}

/// Everything there is to say about the files, in the order of the files.
fn examine(files: &ConfigFiles) -> (Option<Config>, Vec<Diagnostic>) {
    let config = match config::parse(&files.sources) {
        Ok(config) => config,
        Err(found) => return (None, found),
    };
    let mut found = config::lint(&config);
    // The policy may be checked on another machine than it is served on: a missing secret is a warning, not an error.
    let unresolved = config.clone().settle(&|reference| files.look_up(reference)).err().unwrap_or_default();
    found.extend(
        unresolved.into_iter().map(|one| Diagnostic { severity: DiagnosticSeverity::Warning, ..one }),
    );
    let file = |one: &Diagnostic| files.sources.iter().position(|source| source.name == one.file);
    found.sort_by_key(|one| (file(one), one.line, one.column));
    (Some(config), found)
}

fn facts(config: &Config) -> String {
    let written = config.origins.iter().filter(|origin| origin.author == config::RuleAuthor::Rules).count();
    [plural(config.upstreams.len(), "upstream"), plural(written, "rule"), plural(config.tests.len(), "test")]
        .join(", ")
}

fn data(
    files: &ConfigFiles,
    config: Option<&Config>,
    found: &[Diagnostic],
    errors: usize,
) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("files".into(), json!(files.names()));
    if let Some(config) = config {
        data.insert("upstreams".into(), config.upstreams.len().into());
        data.insert("rules".into(), config.rules.rules().len().into());
        data.insert("tests".into(), config.tests.len().into());
    }
    data.insert("errors".into(), errors.into());
    data.insert("warnings".into(), (found.len() - errors).into());
    data.insert("diagnostics".into(), json!(found));
    data
}
