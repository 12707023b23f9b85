//! `countersign init --preset NAME`: a preset of ours, which this program carries, becomes part of the configuration. What is there
//! already stays and wins; an upstream of the same name is not replaced.

use clap::ValueEnum;
use countersign_host_config::with_line_ends;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::json;
use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::server_preset::ServerPreset;
use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::config_change::{checked, files, names};
use crate::environment;
use crate::output::{Column, DIM, NAME, OutputSettings, PLAIN, Table as OutputTable, paint};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Git in one repository
    Git,
    /// Terraform: plan freely, apply shown, destroy typed
    Terraform,
    /// Kubernetes through kubectl, dry-run on the server first
    Kubectl,
    /// GitHub through gh
    Gh,
    /// Docker and Compose
    Docker,
    /// Ecosystems of git repositories, under AMOF's names
    Amof,
}

impl Preset {
    fn text(self) -> &'static str {
        match self {
            Self::Git => include_str!("../../../../../presets/git.toml"),
            Self::Terraform => include_str!("../../../../../presets/terraform.toml"),
            Self::Kubectl => include_str!("../../../../../presets/kubectl.toml"),
            Self::Gh => include_str!("../../../../../presets/gh.toml"),
            Self::Docker => include_str!("../../../../../presets/docker.toml"),
            Self::Amof => include_str!("../../../../../presets/amof.toml"),
        }
    }

    /// What it is called, here and as an upstream.
    fn name(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Terraform => "terraform",
            Self::Kubectl => "kubectl",
            Self::Gh => "gh",
            Self::Docker => "docker",
            Self::Amof => "amof",
        }
    }

    /// What has to be there for its tools to work, and is not.
    fn missing(self) -> Option<String> {
        match self {
            Self::Amof if environment::variable("ECOSYSTEM_HOME").is_none() => {
                Some("ECOSYSTEM_HOME is not set: examples/ecosystem/setup makes a home to try".to_owned())
            }
            Self::Amof => None,
            Self::Git | Self::Terraform | Self::Kubectl | Self::Gh | Self::Docker => {
                let path = environment::variable("PATH").unwrap_or_default();
                let program = self.name();
                let there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
                (!there).then(|| format!("`{program}` is not on PATH: its tools fail until it is"))
            }
        }
    }
}

/// The presets there are: those of commands, and those of published servers.
pub(super) fn list(voice: OutputSettings) -> Answer {
    let mut table =
        OutputTable::new(&[Column::kept("PRESET"), Column::kept("KIND"), Column::spared("FOR", 1)]);
    let mut all = Vec::new();
    for preset in Preset::value_variants() {
        let value = preset.to_possible_value();
        let help = value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string);
        let help = help.unwrap_or_default();
        all.push(json!({"name": preset.name(), "kind": "commands", "for": help}));
        table.row(vec![(preset.name().to_owned(), NAME), ("commands".to_owned(), DIM), (help, PLAIN)]);
    }
    for preset in ServerPreset::all() {
        let packages = preset.packages();
        all.push(json!({"name": preset.name, "kind": "server", "packages": packages}));
        table.row(vec![(preset.name, NAME), ("server".to_owned(), DIM), (packages.join(", "), PLAIN)]);
    }
    let note = "commands: countersign init --preset NAME; servers: written by countersign init where it finds the package";
    let text = format!("{}{}\n", table.render(voice.width()), paint(DIM, note));
    Answer::text(text).with("presets", all)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApplyMode {
    Shown,
    Asked,
    Agreed,
}

pub(super) fn add(presets: &[Preset], how: ApplyMode, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let files = files(&cli.config)?;
    let there = names(&files)?;
    let before = files.sources.first().map(|source| source.text.to_string()).unwrap_or_default();
    let (mut after, mut added) = (before, Vec::new());
    let mut warnings = Vec::new();
    for preset in presets.iter().copied() {
        if there.iter().any(|name| name == preset.name()) {
            warnings.push(format!("there is an upstream `{}` already; it stays as it is", preset.name()));
        } else if !added.contains(&preset.name()) {
            after = merged(&after, preset.text())?;
            added.push(preset.name());
            warnings.extend(preset.missing());
        }
    }
    if added.is_empty() {
        let mut answer =
            Answer::text(format!("{}\n", paint(DIM, "nothing to change"))).with("changed", false);
        answer.warnings = warnings;
        return Ok(answer);
    }
    let change = checked(&files, 0, after)?;
    if how == ApplyMode::Shown {
        let note = paint(DIM, "nothing was changed: this was a dry run");
        let mut answer = Answer::text(format!("{}\n{note}\n", change.shown())).with("changed", false);
        answer.warnings = warnings;
        return Ok(answer);
    }
    let mut answer = change.settle(&files, how == ApplyMode::Agreed, voice, "added", &added.join(", "))?;
    answer.warnings.extend(warnings);
    Ok(answer.with("changed", true).with("presets", added))
}

/// The configuration's text with the preset's behind it; keys of `[gateway]` go where they belong.
fn merged(text: &str, preset: &str) -> Result<String, CommandError> {
    let broken = |error: toml_edit::TomlError| {
        let refusal = Refusal::new(Code::ConfigInvalid, error.message().to_owned());
        CommandError::refused(refusal, "countersign policy check")
    };
    let mut document: DocumentMut = text.parse().map_err(broken)?;
    let mut ours: DocumentMut = preset.parse().map_err(broken)?;
    let head = match ours.remove("gateway") {
        Some(gateway) => {
            if let Some(gateway) = gateway.as_table_like() {
                fill(document.as_table_mut(), "gateway", gateway);
            }
            // The comment at the top stood before the table that went elsewhere.
            let head: Vec<&str> = preset.lines().take_while(|line| line.starts_with('#')).collect();
            format!("{}\n\n", head.join("\n"))
        }
        None => String::new(),
    };
    let mut whole = document.to_string();
    if !whole.is_empty() {
        whole.truncate(whole.trim_end().len());
        whole.push_str("\n\n");
    }
    whole.push_str(&head);
    whole.push_str(ours.to_string().trim_start());
    Ok(with_line_ends(text, &whole))
}

/// Sets what is not set yet, table by table.
fn fill(into: &mut dyn TableLike, name: &str, from: &dyn TableLike) {
    if into.get(name).is_none() {
        into.insert(name, Item::Table(Table::new()));
    }
    let Some(into) = into.get_mut(name).and_then(Item::as_table_like_mut) else { return };
    for (key, item) in from.iter() {
        match item.as_table_like() {
            Some(inner) if into.get(key).is_some() => fill(into, key, inner),
            Some(_) | None if into.get(key).is_none() => drop(into.insert(key, item.clone())),
            Some(_) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_config::{self as config, Source};

    /// Each preset alone, behind a configuration that says much already, and all of them together.
    #[test]
    fn every_preset_fits_into_a_configuration() {
        let mine = "# mine\n[gateway]\nmode = \"plan\"   # stays\naliases = { my_mode = \"set_mode\" }\n\n[[rules]]\nmatch = \"*:push\"\nstrength = \"human\"\n";
        let mut all = mine.to_owned();
        for preset in Preset::value_variants() {
            for text in ["", mine, all.clone().as_str()] {
                let whole = merged(text, preset.text()).unwrap();
                let config = config::parse(&[Source::new("countersign.toml", whole.as_str())])
                    .unwrap_or_else(|found| panic!("{preset:?}: {found:#?}"));
                assert!(config.upstreams.iter().any(|one| one.id.as_str() == preset.name()));
                assert!(config::lint(&config).is_empty(), "{preset:?}: {:#?}", config::lint(&config));
                assert!(whole.starts_with(text.trim_end().get(..6).unwrap_or_default()), "{whole}");
            }
            all = merged(&all, preset.text()).unwrap();
        }
        let config = config::parse(&[Source::new("countersign.toml", all.as_str())]).unwrap();
        assert_eq!(config.upstreams.len(), Preset::value_variants().len());
        assert_eq!(config.gateway.mode.as_str(), "plan");
        assert_eq!(config.gateway.aliases.len(), 2);
        assert!(all.contains("mode = \"plan\"   # stays"), "{all}");
    }
}
