//! `countersign init --preset NAME`: a preset of ours, which this program carries, becomes part of the configuration. What stands there
//! already stays and wins; an upstream of the same name is not replaced.

use clap::ValueEnum;
use countersign_core::refusal::{Code, Refusal};
use toml_edit::{DocumentMut, Item, Table, TableLike};

use crate::answer::{Answer, Outcome, Trouble};
use crate::cli::Cli;
use crate::config_change::{checked, files, names};
use crate::environment;
use crate::line_ends::with_line_ends;
use crate::output::{DIM, Voice, paint};

/// The presets there are.
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

/// How it is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Only shown.
    Shown,
    /// Asked first.
    Asked,
    /// Without being asked.
    Agreed,
}

/// Adds presets to the configuration.
pub(super) fn add(presets: &[Preset], how: How, cli: &Cli, voice: Voice) -> Outcome {
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
    if how == How::Shown {
        let note = paint(DIM, "nothing was changed: this was a dry run");
        let mut answer = Answer::text(format!("{}\n{note}\n", change.shown())).with("changed", false);
        answer.warnings = warnings;
        return Ok(answer);
    }
    let mut answer = change.settle(&files, how == How::Agreed, voice, "added", &added.join(", "))?;
    answer.warnings.extend(warnings);
    Ok(answer.with("changed", true).with("presets", added))
}

/// The configuration's text with the preset's behind it; keys of `[gateway]` go where they belong.
fn merged(text: &str, preset: &str) -> Result<String, Trouble> {
    let broken = |error: toml_edit::TomlError| {
        let refusal = Refusal::new(Code::ConfigInvalid, error.message().to_owned());
        Trouble::refused(refusal, "countersign policy check")
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
    use countersign_core::config::{self, Source};

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
