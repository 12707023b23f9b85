//! Which of the tools an upstream lists are the ones somebody accepted: a pure comparison of what is listed with what is pinned.
//! It stores nothing and forgives nothing: a tool that is not as it was pinned stays withheld until a person looks.

use std::collections::HashMap;
use std::sync::Arc;

use countersign_core::config::Trust;
use countersign_core::ids::ToolName;
use countersign_core::tool::Tool;
use countersign_store::{Definition, Pin, PinState, Sight};

/// How a listed tool compares with its pin.
#[derive(Clone, Debug, PartialEq)]
pub enum Pinned {
    /// It is what was accepted.
    Accepted,
    /// Nobody has accepted it yet.
    New,
    /// It is not what was accepted, which was this.
    Changed(Arc<Definition>),
}

/// What the store has to be told.
#[derive(Clone, Debug, PartialEq)]
pub enum PinChange {
    /// Seen for the first time: pin it, accepted or waiting for a person.
    First {
        /// The tool.
        tool: ToolName,
        /// As it is listed.
        seen: Definition,
        /// Accepted at first sight, or pending.
        state: PinState,
    },
    /// Not what is pinned: keep what it is now, for a person to compare.
    Propose {
        /// The tool.
        tool: ToolName,
        /// As it is listed.
        seen: Definition,
    },
}

/// Standings of listed tools, by name, and what to store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PinPlan {
    /// How each listed tool compares.
    pub standings: HashMap<ToolName, Pinned>,
    /// What is new, in the order of the list.
    pub changes: Vec<PinChange>,
}

impl PinPlan {
    /// Every listed tool is accepted as it is, and nothing has to be stored.
    pub fn all_accepted(listed: &[Arc<Tool>]) -> Self {
        let standings = listed.iter().map(|tool| (tool.name.clone(), Pinned::Accepted)).collect();
        Self { standings, changes: Vec::new() }
    }
}

/// Compares an upstream's list with its pins. Tools of the first list are accepted as they are where the configuration trusts
/// the upstream. Everything that comes later waits, also where the first list was empty. Pins of tools that vanished are kept.
pub fn plan_pins(trust: Trust, sight: Sight, pins: &[Pin], listed: &[Arc<Tool>]) -> PinPlan {
    let known: HashMap<&ToolName, &Pin> = pins.iter().map(|pin| (&pin.tool, pin)).collect();
    let at_first_sight = match (trust, sight) {
        (Trust::FirstSight, Sight::First) => PinState::Accepted,
        (Trust::FirstSight, Sight::Later) | (Trust::Review, Sight::First | Sight::Later) => PinState::Pending,
    };
    let mut plan = PinPlan::default();
    for tool in listed {
        let seen = || Definition { fingerprint: tool.fingerprint, definition: tool.definition.clone() };
        let standing = match known.get(&tool.name) {
            None => {
                let (name, state) = (tool.name.clone(), at_first_sight);
                plan.changes.push(PinChange::First { tool: name, seen: seen(), state });
                if state == PinState::Accepted { Pinned::Accepted } else { Pinned::New }
            }
            Some(pin) => {
                let same = |definition: &Definition| definition.fingerprint == tool.fingerprint;
                if !same(&pin.pinned) && !pin.candidate.as_ref().is_some_and(same) {
                    plan.changes.push(PinChange::Propose { tool: tool.name.clone(), seen: seen() });
                }
                match pin.state {
                    PinState::Pending => Pinned::New,
                    // A tool that went back to what was accepted is that tool again.
                    PinState::Accepted | PinState::Changed if same(&pin.pinned) => Pinned::Accepted,
                    PinState::Accepted | PinState::Changed => Pinned::Changed(Arc::new(pin.pinned.clone())),
                }
            }
        };
        plan.standings.insert(tool.name.clone(), standing);
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_core::ids::UpstreamId;
    use serde_json::json;

    fn tool(name: &str, says: &str) -> Arc<Tool> {
        let definition = json!({"name": name, "description": says});
        Arc::new(Tool::read(UpstreamId::new("u"), definition.as_object().unwrap().clone()).unwrap())
    }

    fn seen(name: &str, says: &str) -> Definition {
        let tool = tool(name, says);
        Definition { fingerprint: tool.fingerprint, definition: tool.definition.clone() }
    }

    fn pin(name: &str, state: PinState, says: &str, candidate: Option<&str>) -> Pin {
        Pin {
            upstream: UpstreamId::new("u"),
            tool: ToolName::new(name),
            state,
            pinned: seen(name, says),
            candidate: candidate.map(|says| seen(name, says)),
            first_seen: jiff::Timestamp::UNIX_EPOCH,
            changed: jiff::Timestamp::UNIX_EPOCH,
            decided: None,
            decided_by: None,
        }
    }

    /// One listed tool `t` saying `now`, against the pins: its standing and the changes, in words.
    fn check(trust: Trust, pins: &[Pin], now: &str, expect: &str) {
        let sight = if pins.is_empty() { Sight::First } else { Sight::Later };
        let plan = plan_pins(trust, sight, pins, &[tool("t", now)]);
        let standing = match &plan.standings[&ToolName::new("t")] {
            Pinned::Accepted => "accepted".to_owned(),
            Pinned::New => "new".to_owned(),
            Pinned::Changed(was) => {
                format!("changed from {}", was.definition["description"].as_str().unwrap())
            }
        };
        let changes: Vec<String> = plan
            .changes
            .iter()
            .map(|change| match change {
                PinChange::First { seen, state, .. } => {
                    format!("; first {} {}", state.as_str(), seen.definition["description"].as_str().unwrap())
                }
                PinChange::Propose { seen, .. } => {
                    format!("; propose {}", seen.definition["description"].as_str().unwrap())
                }
            })
            .collect();
        assert_eq!(format!("{standing}{}", changes.concat()), expect);
    }

    #[test]
    fn the_table_of_pins() {
        use PinState::{Accepted, Changed, Pending};
        use Trust::{FirstSight, Review};
        let other = pin("other", Accepted, "x", None);
        check(FirstSight, &[], "a", "accepted; first accepted a");
        check(Review, &[], "a", "new; first pending a");
        check(FirstSight, std::slice::from_ref(&other), "a", "new; first pending a");
        check(Review, &[other], "a", "new; first pending a");
        for trust in [FirstSight, Review] {
            check(trust, &[pin("t", Accepted, "a", None)], "a", "accepted");
            check(trust, &[pin("t", Accepted, "a", None)], "b", "changed from a; propose b");
            check(trust, &[pin("t", Changed, "a", Some("b"))], "b", "changed from a");
            check(trust, &[pin("t", Changed, "a", Some("b"))], "c", "changed from a; propose c");
            check(trust, &[pin("t", Changed, "a", Some("b"))], "a", "accepted");
            check(trust, &[pin("t", Pending, "a", None)], "a", "new");
            check(trust, &[pin("t", Pending, "a", None)], "b", "new; propose b");
            check(trust, &[pin("t", Pending, "a", Some("b"))], "b", "new");
            check(trust, &[pin("t", Pending, "a", Some("b"))], "a", "new");
        }
    }

    #[test]
    fn tools_that_vanish_change_nothing() {
        let pins = [pin("gone", PinState::Accepted, "a", None)];
        assert_eq!(plan_pins(Trust::FirstSight, Sight::Later, &pins, &[]), PinPlan::default());
    }

    #[test]
    fn attack_17_an_upstream_that_listed_nothing_at_first_is_not_trusted_later() {
        let listed = [tool("t", "a")];
        let standing =
            |sight| plan_pins(Trust::FirstSight, sight, &[], &listed).standings[&ToolName::new("t")].clone();
        assert_eq!(standing(Sight::First), Pinned::Accepted);
        assert_eq!(standing(Sight::Later), Pinned::New);
    }
}
