//! What imported servers can do: each is started once, its tools are counted by what they need, and it is ended again.

use std::collections::BTreeMap;
use std::path::Path;

use countersign_core::config::{Origin, Source};
use countersign_core::effect::Effect;
use countersign_core::ids::Secret;
use countersign_gateway::upstreams::Condition;
use countersign_store::StoreUrl;
use serde_json::{Value, json};

use super::import::Imported;
use crate::answer::Trouble;
use crate::config_file::ConfigFiles;
use crate::house::Blueprint;
use crate::output::{BAD, Column, DIM, NAME, PLAIN, Table, Voice, visible};

/// What an upstream's tools need.
#[derive(Clone, Debug, Default)]
pub(super) struct Needs {
    counts: BTreeMap<Effect, usize>,
    confirms: BTreeMap<String, usize>,
    unannotated: usize,
    down: Option<String>,
}

impl Needs {
    /// For programs.
    pub(super) fn value(&self) -> Value {
        let count = |effect| self.counts.get(&effect).copied().unwrap_or_default();
        json!({
            "read": count(Effect::Read), "write": count(Effect::Write),
            "destructive": count(Effect::Destructive), "confirm": self.confirms,
            "unannotated": self.unannotated, "down": self.down,
        })
    }
}

/// Starts every upstream of a configuration that is not written yet, on records that nobody keeps.
pub(super) fn look(
    path: &Path,
    text: &str,
    secrets: &BTreeMap<String, Secret>,
    voice: Voice,
) -> Result<BTreeMap<String, Needs>, Trouble> {
    // Children start in the configuration's folder, which may not be there yet.
    let there = path.ancestors().skip(1).find(|folder| folder.is_dir());
    let folder = there.map(Path::to_path_buf).unwrap_or_default();
    let files = ConfigFiles { sources: vec![Source::new(path.display().to_string(), text)], folder };
    let settled =
        files.parse()?.settle(&|reference| match (reference.origin, secrets.get(&reference.name)) {
            (Origin::Keyring, Some(secret)) => Ok(secret.clone()),
            (Origin::Keyring | Origin::Env | Origin::File, _) => files.look_up(reference),
        });
    let config = settled.map_err(|found| files.invalid(&found))?;
    let blueprint = Blueprint::of(config, StoreUrl::Memory, files);
    blueprint.inhabit(voice, async |house| {
        let mut all: BTreeMap<String, Needs> = BTreeMap::new();
        for (id, upstream) in house.upstreams.load().iter() {
            let down = match upstream.health().condition {
                Condition::Down(why) => Some(why),
                Condition::Starting => Some("it has not answered in time".to_owned()),
                Condition::Idle | Condition::Up => None,
            };
            all.insert(id.to_string(), Needs { down, ..Needs::default() });
        }
        for listed in house.catalog.load().tools() {
            let needs = all.entry(listed.tool.upstream.to_string()).or_default();
            *needs.counts.entry(listed.outlook.effect).or_default() += 1;
            *needs.confirms.entry(listed.outlook.kind.to_string()).or_default() += 1;
            let hints = listed.tool.definition.get("annotations");
            let hinted = |name: &str| hints.is_some_and(|hints| hints.get(name).is_some());
            needs.unannotated += usize::from(!hinted("readOnlyHint") && !hinted("destructiveHint"));
        }
        Ok(all)
    })
}

/// One row for each upstream.
pub(super) fn table(upstreams: &[Imported], needs: &BTreeMap<String, Needs>, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        Column::kept("UPSTREAM"),
        Column::spared("FROM", 1),
        Column::kept("READ"),
        Column::kept("WRITE"),
        Column::kept("DESTRUCTIVE"),
        Column::spared("CONFIRM", 2),
    ]);
    for one in upstreams {
        let from: Vec<&str> = one.from.iter().map(|(host, _)| host.title()).collect();
        let mut row = vec![(one.id.clone(), NAME), (from.join(", "), DIM)];
        match needs.get(&one.id) {
            Some(Needs { down: Some(why), .. }) => {
                row.extend([("-".to_owned(), DIM), ("-".to_owned(), DIM), ("-".to_owned(), DIM)]);
                row.push((format!("does not answer: {}", visible(first_line(why))), BAD));
            }
            Some(needs) => {
                for effect in [Effect::Read, Effect::Write, Effect::Destructive] {
                    let count = needs.counts.get(&effect).copied().unwrap_or_default();
                    row.push((count.to_string(), PLAIN));
                }
                let kinds: Vec<String> =
                    needs.confirms.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
                row.push((kinds.join(", "), DIM));
            }
            None => row.extend(std::iter::repeat_n(("?".to_owned(), DIM), 4)),
        }
        table.row(row);
    }
    table.render(width)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
