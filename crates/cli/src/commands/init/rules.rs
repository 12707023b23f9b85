//! The permission rules that go with a host being pointed at us: planned beside the other changes, on top of them where a file has
//! both. Writes nothing.

use countersign_config::Config;
use countersign_host_config::{
    Host, HostEnvironment, HostFile, HostFileError, HostFileScope, RuleFile, RuleFileEdit, WhoAsks,
    rule_files,
};
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::rules::Rule;

use super::backup::HostFileChange;
use super::import::HostFileContents;
use super::{LONGEST, real};
use crate::config_change::FileMode;
use crate::config_file;

/// Who asks before a change under a configuration: the host, where some change passes on the agent's word.
pub(crate) fn who_asks(config: &Config) -> WhoAsks {
    let defaults = config.confirm.strengths;
    let weak = [defaults.write, defaults.destructive].contains(&Some(ApprovalStrength::Caller));
    let loose =
        |rule: &Rule| rule.strength == Some(ApprovalStrength::Caller) || rule.confirm == Some(Kind::None);
    if weak || config.rules.rules().iter().any(loose) { WhoAsks::Host } else { WhoAsks::Gateway }
}

/// What could be written, if the person wants it.
#[derive(Default)]
pub(super) struct HostRuleOffer {
    changes: Vec<HostFileChange>,
    hosts: Vec<Host>,
    /// What can't be written, and why, a line each.
    notes: Vec<String>,
    broken: Vec<(HostFile, HostFileError)>,
}

impl HostRuleOffer {
    /// Looks at the rules of every host that leads to us once these changes are made.
    pub(super) fn plan(
        reads: &[HostFileContents],
        ground: &HostEnvironment,
        scope: HostFileScope,
        changes: &[HostFileChange],
        who: WhoAsks,
    ) -> Self {
        let mut offer = Self::default();
        for file in rule_files(reads.iter().map(|read| &read.place), ground, scope) {
            offer.add_file(&file, changes, who);
        }
        offer
    }

    fn add_file(&mut self, file: &RuleFile, changes: &[HostFileChange], who: WhoAsks) {
        let path = real(&file.path);
        let planned = changes.iter().find(|change| change.path == path);
        let (before, text) = match planned {
            Some(change) => (change.before.clone(), Some(change.after.clone())),
            None => match config_file::read_text(&path, LONGEST) {
                Ok(text) => (Some(text.clone()), Some(text)),
                Err(_) if !path.exists() => (None, None),
                Err(why) => return self.leave(file, HostFileError { line: 1, reason: why }),
            },
        };
        match file.add(text.as_deref(), who) {
            Ok(RuleFileEdit::Text(after)) if text.as_deref() == Some(after.as_str()) => {}
            Ok(RuleFileEdit::Text(after)) => {
                self.changes.push(HostFileChange {
                    path,
                    host: file.shared_with(),
                    before,
                    after,
                    mode: FileMode::Kept,
                });
                if !self.hosts.contains(&file.host) {
                    self.hosts.push(file.host);
                }
            }
            Ok(RuleFileEdit::Not(why)) => self.notes.push(format!("{}: {why}", file.host.title)),
            Err(why) => self.leave(file, why),
        }
    }

    fn leave(&mut self, file: &RuleFile, why: HostFileError) {
        self.broken.push((HostFile::new(file.host, file.scope, file.path.clone()), why));
    }

    /// The hosts it is about, for a question; empty where nothing is to be written.
    pub(super) fn titles(&self) -> String {
        self.hosts.iter().map(|host| host.title).collect::<Vec<_>>().join(", ")
    }

    /// Puts it to the other changes; what can't be written is handed back.
    pub(super) fn take(
        self,
        changes: &mut Vec<HostFileChange>,
        broken: &mut Vec<(HostFile, HostFileError)>,
    ) -> Vec<String> {
        for change in self.changes {
            match changes.iter_mut().find(|known| known.path == change.path) {
                Some(known) => known.after = change.after,
                None => changes.push(change),
            }
        }
        // A file may have servers as well, and be named already.
        let mut more = self.broken;
        more.retain(|(place, _)| broken.iter().all(|(known, _)| known.path != place.path));
        broken.append(&mut more);
        self.notes
    }
}

#[cfg(test)]
mod tests {
    use countersign_gateway::surfaces::definitions::{OWN, ROUTER};
    use countersign_host_config::{CHANGE_TOOLS, READ_TOOLS, STEER_TOOLS};
    use serde_json::Value;

    use super::*;

    /// Everything of ours that only reads is allowed, everything that changes something asks, and no name is made up.
    #[test]
    fn rules_are_about_the_tools_the_gateway_has() {
        let ruled = || READ_TOOLS.iter().chain(&STEER_TOOLS).chain(&CHANGE_TOOLS);
        let mut names = Vec::new();
        for definition in OWN.iter().chain(ROUTER.iter()) {
            let definition: Value = serde_json::from_str(definition.get()).unwrap();
            let name = definition["name"].as_str().unwrap().to_owned();
            let reads = definition["annotations"]["readOnlyHint"] == true;
            assert_eq!(READ_TOOLS.contains(&name.as_str()), reads, "{name}");
            assert!(ruled().any(|tool| *tool == name), "{name} has a rule");
            if definition["annotations"]["destructiveHint"] == true {
                assert!(CHANGE_TOOLS.contains(&name.as_str()), "{name}");
            }
            names.push(name);
        }
        assert!(ruled().all(|tool| names.iter().any(|name| name == tool)), "{names:?}");
    }

    #[test]
    fn the_host_asks_where_the_policy_is_weak() {
        let under = |text: &str| {
            let source = countersign_config::Source::new("c.toml", text);
            who_asks(&countersign_config::parse(&[source]).unwrap())
        };
        for asks in
            ["", "[confirm]\nprofile = \"team\"\n", "[[rules]]\nmatch = \"a:*\"\nstrength = \"human\"\n"]
        {
            assert_eq!(under(asks), WhoAsks::Gateway, "{asks}");
        }
        for weak in [
            "[confirm]\nstrength = { write = \"caller\" }\n",
            "[[rules]]\nmatch = \"a:*\"\nstrength = \"caller\"\n",
            "[[rules]]\nmatch = \"a:put\"\nconfirm = \"none\"\n",
        ] {
            assert_eq!(under(weak), WhoAsks::Host, "{weak}");
        }
    }
}
