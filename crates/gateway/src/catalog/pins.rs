//! Compares listed tools with the pins: a pure function. A tool that differs from its pin stays withheld until a person decides.

use std::collections::HashMap;
use std::sync::Arc;

use countersign_config::UpstreamTrust;
use countersign_policy::digest::Digest;
use countersign_policy::ids::ToolName;
use countersign_policy::tool::Tool;
use countersign_store::{ListingOccurrence, PinState, ToolDefinition, ToolPin};
use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq)]
pub enum PinComparison {
    Accepted,
    /// Accepted, but listed in another order; with the accepted fingerprint.
    Reordered(Digest),
    /// One of the definitions that were accepted as a set.
    InSet {
        accepted: Digest,
        of: usize,
    },
    New,
    /// It changed; this fingerprint was accepted.
    Changed(Arc<ToolDefinition>),
    /// It was accepted before, but not last: the tool flips between known definitions.
    Flipped {
        was: Arc<ToolDefinition>,
        known: usize,
    },
}

/// What the store has to record.
#[derive(Clone, Debug, PartialEq)]
pub enum PinChange {
    /// First sight: pin it, accepted or waiting for a person.
    First { tool: ToolName, seen: ToolDefinition, state: PinState },
    /// It changed: keep the new definition for a person to compare.
    Propose { tool: ToolName, seen: ToolDefinition },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PinPlan {
    pub standings: HashMap<ToolName, PinComparison>,
    /// In the order of the list.
    pub changes: Vec<PinChange>,
}

impl PinPlan {
    /// Accepts every listed tool; nothing has to be stored.
    pub(crate) fn all_accepted(listed: &[Arc<Tool>]) -> Self {
        let standings = listed.iter().map(|tool| (tool.name.clone(), PinComparison::Accepted)).collect();
        Self { standings, changes: Vec::new() }
    }
}

/// Compares an upstream's list with its pins. Tools of the first list are accepted if the configuration trusts the upstream. Everything
/// later waits, also if the first list was empty. Pins of tools that vanished are kept.
pub fn plan_pins(
    trust: UpstreamTrust,
    sight: ListingOccurrence,
    pins: &[ToolPin],
    listed: &[Arc<Tool>],
) -> PinPlan {
    let known: HashMap<&ToolName, &ToolPin> = pins.iter().map(|pin| (&pin.tool, pin)).collect();
    let at_first_sight = match (trust, sight) {
        (UpstreamTrust::FirstSight, ListingOccurrence::First) => PinState::Accepted,
        (UpstreamTrust::FirstSight, ListingOccurrence::Later)
        | (UpstreamTrust::Review, ListingOccurrence::First | ListingOccurrence::Later) => PinState::Pending,
    };
    let mut plan = PinPlan::default();
    for tool in listed {
        let seen = || ToolDefinition { fingerprint: tool.fingerprint, definition: tool.definition.clone() };
        let standing = match known.get(&tool.name) {
            None => {
                let (name, state) = (tool.name.clone(), at_first_sight);
                plan.changes.push(PinChange::First { tool: name, seen: seen(), state });
                if state == PinState::Accepted { PinComparison::Accepted } else { PinComparison::New }
            }
            Some(pin) => {
                let is_listed = |known: &ToolDefinition| known.is_same(tool.fingerprint, &tool.definition);
                let mut noted = std::iter::once(&pin.pinned).chain(&pin.candidate).chain(pin.accepted_set());
                if !noted.any(is_listed) {
                    plan.changes.push(PinChange::Propose { tool: tool.name.clone(), seen: seen() });
                }
                compare(pin, tool.fingerprint, &tool.definition)
            }
        };
        plan.standings.insert(tool.name.clone(), standing);
    }
    plan
}

pub(super) fn compare(pin: &ToolPin, fingerprint: Digest, definition: &Map<String, Value>) -> PinComparison {
    if pin.state == PinState::Pending {
        return PinComparison::New;
    }
    let in_set = |known: &ToolDefinition| PinComparison::InSet {
        accepted: known.fingerprint,
        of: pin.accepted_set().count(),
    };
    // The exact one first: two accepted definitions may differ in order only, and plans are bound to one of them.
    if let Some(known) = pin.accepted_set().find(|known| known.fingerprint == fingerprint) {
        return in_set(known);
    }
    // A tool that changed back to its accepted definition is accepted again.
    if pin.pinned.fingerprint == fingerprint {
        return PinComparison::Accepted;
    }
    let is_listed = |known: &ToolDefinition| known.is_same(fingerprint, definition);
    if let Some(known) = pin.accepted_set().find(|known| is_listed(known)) {
        return in_set(known);
    }
    if is_listed(&pin.pinned) {
        return PinComparison::Reordered(pin.pinned.fingerprint);
    }
    let was = Arc::new(pin.pinned.clone());
    match pin.known.iter().any(|known| is_listed(&known.definition)) {
        true => PinComparison::Flipped { was, known: pin.known.len() },
        false => PinComparison::Changed(was),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_policy::ids::UpstreamId;
    use countersign_store::KnownDefinition;
    use serde_json::json;

    fn tool(name: &str, says: &str) -> Arc<Tool> {
        let definition = json!({"name": name, "description": says});
        Arc::new(Tool::read(UpstreamId::new("u"), definition.as_object().unwrap().clone()).unwrap())
    }

    fn seen(name: &str, says: &str) -> ToolDefinition {
        let tool = tool(name, says);
        ToolDefinition { fingerprint: tool.fingerprint, definition: tool.definition.clone() }
    }

    fn pin(name: &str, state: PinState, says: &str, candidate: Option<&str>) -> ToolPin {
        ToolPin {
            upstream: UpstreamId::new("u"),
            tool: ToolName::new(name),
            state,
            pinned: seen(name, says),
            candidate: candidate.map(|says| seen(name, says)),
            first_seen: jiff::Timestamp::UNIX_EPOCH,
            changed: jiff::Timestamp::UNIX_EPOCH,
            decided: None,
            decided_by: None,
            known: Vec::new(),
        }
    }

    /// One listed tool `t` with description `now`, against the pins: its comparison and the changes, as text.
    fn check(trust: UpstreamTrust, pins: &[ToolPin], now: &str, expect: &str) {
        let sight = if pins.is_empty() { ListingOccurrence::First } else { ListingOccurrence::Later };
        let plan = plan_pins(trust, sight, pins, &[tool("t", now)]);
        let standing = match &plan.standings[&ToolName::new("t")] {
            PinComparison::Accepted => "accepted".to_owned(),
            PinComparison::Reordered(_) => "reordered".to_owned(),
            PinComparison::InSet { accepted, of } => {
                assert_eq!(*accepted, seen("t", now).fingerprint);
                format!("one of {of}")
            }
            PinComparison::New => "new".to_owned(),
            PinComparison::Changed(was) => {
                format!("changed from {}", was.definition["description"].as_str().unwrap())
            }
            PinComparison::Flipped { was, known } => {
                let was = was.definition["description"].as_str().unwrap();
                format!("one of {known} known, not {was}")
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
        use UpstreamTrust::{FirstSight, Review};
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

    fn knowing(mut pin: ToolPin, known: &[(&str, bool)]) -> ToolPin {
        let of = |(says, in_set): &(&str, bool)| KnownDefinition {
            definition: seen("t", says),
            accepted: jiff::Timestamp::UNIX_EPOCH,
            accepted_by: None,
            in_set: *in_set,
        };
        pin.known = known.iter().map(of).collect();
        pin
    }

    #[test]
    fn the_table_of_known_definitions() {
        use PinState::{Accepted, Changed, Pending};
        let known = [("b", false), ("a", false)];
        let set = [("c", false), ("b", true), ("a", true)];
        for trust in [UpstreamTrust::FirstSight, UpstreamTrust::Review] {
            let check = |state, candidate, known: &[(&str, bool)], now, expect| {
                check(trust, &[knowing(pin("t", state, "b", candidate), known)], now, expect);
            };
            // Accepted before is not accepted now: it is offered.
            check(Accepted, None, &known, "b", "accepted");
            check(Accepted, None, &known, "a", "one of 2 known, not b; propose a");
            check(Changed, Some("a"), &known, "a", "one of 2 known, not b");
            check(Accepted, None, &known, "x", "changed from b; propose x");
            // Every member of a set is accepted, and nothing else is.
            check(Accepted, None, &set, "a", "one of 2");
            check(Accepted, None, &set, "b", "one of 2");
            check(Accepted, None, &set, "c", "one of 3 known, not b; propose c");
            check(Accepted, None, &set, "x", "changed from b; propose x");
            check(Changed, Some("x"), &set, "x", "changed from b");
            check(Changed, Some("x"), &set, "a", "one of 2");
            check(Pending, None, &set, "a", "new");
        }
        let beside = knowing(pin("t", Accepted, "c", None), &set);
        check(UpstreamTrust::FirstSight, std::slice::from_ref(&beside), "c", "accepted");
        check(UpstreamTrust::FirstSight, &[beside], "a", "one of 2");
    }

    #[test]
    fn attack_the_set_of_one_tool_counts_for_no_other() {
        let set = [("a", true), ("b", true)];
        let mut other = knowing(pin("other", PinState::Accepted, "b", None), &set);
        // The definition of `t`, kept under another tool's name.
        other.known.iter_mut().for_each(|known| known.definition = seen("t", "a"));
        let pins = [other, pin("t", PinState::Accepted, "b", None)];
        check(UpstreamTrust::FirstSight, &pins, "a", "changed from b; propose a");
    }

    #[test]
    fn a_member_of_the_set_in_another_order_keeps_the_members_fingerprint() {
        let listed = |order: [&str; 2]| {
            let definition = json!({"name": "t", "inputSchema": {"properties": {"p": {"enum": order}}}});
            Arc::new(Tool::read(UpstreamId::new("u"), definition.as_object().unwrap().clone()).unwrap())
        };
        let (member, now) = (listed(["a", "b"]), listed(["b", "a"]));
        let mut known = knowing(pin("t", PinState::Accepted, "b", None), &[("b", true), ("a", true)]);
        known.known[1].definition =
            ToolDefinition { fingerprint: member.fingerprint, definition: member.definition.clone() };
        let plan = plan_pins(UpstreamTrust::FirstSight, ListingOccurrence::Later, &[known], &[now]);
        let expect = PinComparison::InSet { accepted: member.fingerprint, of: 2 };
        assert_eq!((&plan.standings[&ToolName::new("t")], plan.changes.len()), (&expect, 0));
    }

    #[test]
    fn a_list_in_another_order_is_what_was_accepted_and_keeps_its_fingerprint() {
        let listed = |order: [&str; 2]| {
            let definition = json!({"name": "t", "inputSchema": {"properties": {"p": {"enum": order}}}});
            Arc::new(Tool::read(UpstreamId::new("u"), definition.as_object().unwrap().clone()).unwrap())
        };
        let (was, now) = (listed(["a", "b"]), listed(["b", "a"]));
        let mut known = pin("t", PinState::Accepted, "", None);
        known.pinned = ToolDefinition { fingerprint: was.fingerprint, definition: was.definition.clone() };
        let plan = plan_pins(UpstreamTrust::FirstSight, ListingOccurrence::Later, &[known], &[now]);
        assert_eq!(plan.standings[&ToolName::new("t")], PinComparison::Reordered(was.fingerprint));
        assert_eq!(plan.changes, []);
    }

    #[test]
    fn tools_that_vanish_change_nothing() {
        let pins = [pin("gone", PinState::Accepted, "a", None)];
        assert_eq!(
            plan_pins(UpstreamTrust::FirstSight, ListingOccurrence::Later, &pins, &[]),
            PinPlan::default()
        );
    }

    #[test]
    fn attack_17_an_upstream_that_listed_nothing_at_first_is_not_trusted_later() {
        let listed = [tool("t", "a")];
        let standing = |sight| {
            plan_pins(UpstreamTrust::FirstSight, sight, &[], &listed).standings[&ToolName::new("t")].clone()
        };
        assert_eq!(standing(ListingOccurrence::First), PinComparison::Accepted);
        assert_eq!(standing(ListingOccurrence::Later), PinComparison::New);
    }
}
