//! The permission rules that go with a host being pointed at us: planned beside the other changes, on top of them where a file has
//! both. Writes nothing.

use super::backup::Change;
use super::import::Read;
use super::{LONGEST, real};
use crate::config_file;
use crate::hosts::{Broken, Ground, Host, Offered, Place, RuleFile, Scope, rule_files};

/// What could be written, if the person wants it.
#[derive(Default)]
pub(super) struct Offer {
    /// The files with their rules.
    changes: Vec<Change>,
    /// Whose.
    hosts: Vec<Host>,
    /// What can't be written, and why, a line each.
    notes: Vec<String>,
    /// Files that can't be understood.
    broken: Vec<(Place, Broken)>,
}

impl Offer {
    /// Looks at the rules of every host that leads to us once these changes are made.
    pub(super) fn look(reads: &[Read], ground: &Ground, scope: Scope, changes: &[Change]) -> Self {
        let mut offer = Self::default();
        for file in rule_files(reads.iter().map(|read| &read.place), ground, scope) {
            offer.one(&file, changes);
        }
        offer
    }

    fn one(&mut self, file: &RuleFile, changes: &[Change]) {
        let path = real(&file.path);
        let planned = changes.iter().find(|change| change.path == path);
        let (before, text) = match planned {
            Some(change) => (change.before.clone(), Some(change.after.clone())),
            None => match config_file::read_text(&path, LONGEST) {
                Ok(text) => (Some(text.clone()), Some(text)),
                Err(_) if !path.exists() => (None, None),
                Err(why) => return self.leave(file, Broken { line: 1, why }),
            },
        };
        match file.add(text.as_deref()) {
            Ok(Offered::Text(after)) if text.as_deref() == Some(after.as_str()) => {}
            Ok(Offered::Text(after)) => {
                self.changes.push(Change { path, host: file.keeper(), before, after });
                if !self.hosts.contains(&file.host) {
                    self.hosts.push(file.host);
                }
            }
            Ok(Offered::Not(why)) => self.notes.push(format!("{}: {why}", file.host.title())),
            Err(why) => self.leave(file, why),
        }
    }

    fn leave(&mut self, file: &RuleFile, why: Broken) {
        self.broken.push((Place::new(file.host, file.scope, file.path.clone()), why));
    }

    /// The hosts it is about, for a question; empty where nothing is to be written.
    pub(super) fn titles(&self) -> String {
        self.hosts.iter().map(|host| host.title()).collect::<Vec<_>>().join(", ")
    }

    /// Puts it to the other changes; what can't be written is handed back.
    pub(super) fn take(self, changes: &mut Vec<Change>, broken: &mut Vec<(Place, Broken)>) -> Vec<String> {
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
