//! What can be done next, said with every answer of a mode gate: two to five steps, from the policy. A step that needs a higher mode
//! than the present one says so in its own words. Suggests only; permits nothing.

use serde::Serialize;

use crate::confirm::{ApprovalStrength, Kind};
use crate::effect::Effect;
use crate::ids::FullName;
use crate::mode::Mode;

/// How many steps are suggested at most.
pub const MOST: usize = 5;
/// How many reads are among them.
const READS: usize = 2;

/// A tool that could be called, with what its call comes to under the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateTool {
    pub name: FullName,
    pub effect: Effect,
    pub kind: Kind,
    pub strength: ApprovalStrength,
    pub takes: Vec<String>,
}

/// Which answer of the gate the steps go with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuggestionTrigger {
    /// The call was explained and not run.
    Explained,
    /// The call was previewed and not run.
    Previewed,
    /// The call waits for someone to agree.
    Held,
    ModeSet,
    /// The mode that was asked for is not to be had.
    ModeRefused,
}

/// Where the caller stands.
#[derive(Clone, Debug)]
pub struct SuggestionContext<'a> {
    pub moment: SuggestionTrigger,
    pub mode: Mode,
    pub max_mode: Mode,
    /// The tool that was called, if one was.
    pub tool: Option<&'a CandidateTool>,
    pub first: &'a [CandidateTool],
    pub reads: &'a [CandidateTool],
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    pub label: String,
    /// The tool to call: `upstream:tool`, or one of our own.
    pub tool: String,
    pub mode_required: Mode,
    /// Whether it can be done in the present mode.
    pub now: bool,
    /// Which second step it needs, where it is a governed tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<ApprovalStrength>,
}

impl SuggestionContext<'_> {
    /// The steps: two to five, what matters most first.
    pub fn suggest(&self) -> Vec<Suggestion> {
        let mut steps = match self.moment {
            SuggestionTrigger::Explained => self.after_explaining(),
            SuggestionTrigger::Previewed => self.after_previewing(),
            SuggestionTrigger::Held => self.while_held(),
            SuggestionTrigger::ModeSet | SuggestionTrigger::ModeRefused => self.about_modes(),
        };
        let called = self.tool.map(|tool| &tool.name);
        let reads =
            self.reads.iter().filter(|read| read.effect == Effect::Read && Some(&read.name) != called);
        let room = MOST.saturating_sub(steps.len()).min(READS);
        steps.extend(
            reads.take(room).map(|read| self.step(format!("look first: {}", read.name), read, Mode::Ask)),
        );
        if steps.len() < 2 {
            steps.push(self.own("find other tools: retrieve_tools", "retrieve_tools", Mode::Ask));
        }
        if steps.len() < 2 {
            steps.push(self.own("see where things stand: get_status", "get_status", Mode::Ask));
        }
        steps.truncate(MOST);
        steps
    }

    fn after_explaining(&self) -> Vec<Suggestion> {
        let Some(tool) = self.tool else { return Vec::new() };
        let mut steps = self.before();
        steps.push(self.step(
            format!("preview {}: the same call with mode=\"plan\"", tool.name),
            tool,
            Mode::Plan,
        ));
        steps.push(self.step(
            format!("run {}: the same call with mode=\"execute\"", tool.name),
            tool,
            Mode::Execute,
        ));
        steps
    }

    fn after_previewing(&self) -> Vec<Suggestion> {
        let Some(tool) = self.tool else { return Vec::new() };
        let mut steps = self.before();
        steps.push(self.step(
            format!("run {}: the same call with mode=\"execute\"", tool.name),
            tool,
            Mode::Execute,
        ));
        steps
    }

    /// What should be thought of first; never what was just called.
    fn before(&self) -> Vec<Suggestion> {
        let called = self.tool.map(|tool| &tool.name);
        let first = self.first.iter().filter(|one| Some(&one.name) != called).take(READS);
        first
            .map(|one| {
                let needs = if one.effect == Effect::Read { Mode::Ask } else { Mode::Execute };
                self.step(format!("think of {} first", one.name), one, needs)
            })
            .collect()
    }

    fn while_held(&self) -> Vec<Suggestion> {
        let Some(tool) = self.tool else { return Vec::new() };
        let agree = match tool.strength {
            ApprovalStrength::Caller => {
                "show the preview, end the turn; after a yes the same call with confirm_token and yes=true"
            }
            ApprovalStrength::Host | ApprovalStrength::Human => {
                "a person has to agree; then the same call with confirm_token and yes=true"
            }
        };
        let mut steps = vec![self.step(agree.to_owned(), tool, Mode::Execute)];
        if tool.strength > ApprovalStrength::Caller {
            steps.push(self.own("wait for the decision: get_plan", "get_plan", Mode::Ask));
        }
        steps.push(self.own("withdraw it: cancel_plan", "cancel_plan", Mode::Ask));
        steps
    }

    /// The modes other than the present one, with what they are for.
    fn about_modes(&self) -> Vec<Suggestion> {
        let mut steps = Vec::new();
        for mode in Mode::ALL.iter().copied().filter(|mode| *mode != self.mode && *mode <= self.max_mode) {
            let what = match mode {
                Mode::Ask => "set_mode ask: only inspect",
                Mode::Plan => "set_mode plan: preview changes, change nothing",
                Mode::Execute => "set_mode execute: change things, after confirmation",
            };
            // Setting a mode is possible in any; what it is for needs the mode itself.
            steps.push(self.own(what, "set_mode", Mode::Ask));
        }
        steps.push(self.own("find tools: retrieve_tools", "retrieve_tools", Mode::Ask));
        steps
    }

    fn step(&self, label: String, tool: &CandidateTool, needs: Mode) -> Suggestion {
        let governed = needs == Mode::Execute;
        Suggestion {
            label: self.said(label, needs),
            tool: tool.name.to_string(),
            mode_required: needs,
            now: needs <= self.mode,
            confirm: governed.then_some(tool.kind),
            strength: governed.then_some(tool.strength),
        }
    }

    fn own(&self, label: &str, tool: &str, needs: Mode) -> Suggestion {
        Suggestion {
            label: self.said(label.to_owned(), needs),
            tool: tool.to_owned(),
            mode_required: needs,
            now: needs <= self.mode,
            confirm: None,
            strength: None,
        }
    }

    /// The words of a step, with the mode it needs where that is not the present one.
    fn said(&self, label: String, needs: Mode) -> String {
        if needs <= self.mode {
            return label;
        }
        if needs > self.max_mode {
            return format!(
                "{label} (needs mode {needs}, and this line goes no higher than {}: ask a person)",
                self.max_mode
            );
        }
        format!("{label} (needs mode {needs})")
    }
}

/// The reads nearest to a tool: those of its upstream that speak of the same things, as their arguments and names tell.
pub fn nearest_reads(tool: &CandidateTool, reads: Vec<CandidateTool>) -> Vec<CandidateTool> {
    let near = |read: &CandidateTool| {
        let arguments = read.takes.iter().filter(|name| tool.takes.contains(name)).count();
        let words = words(&read.name).filter(|word| words(&tool.name).any(|other| other == *word)).count();
        2 * arguments + words
    };
    let mut own: Vec<(usize, CandidateTool)> = reads
        .into_iter()
        .filter(|read| read.effect == Effect::Read && read.name.upstream == tool.name.upstream)
        .map(|read| (near(&read), read))
        .collect();
    // Stable: equals stay in the order they are listed.
    own.sort_by_key(|(near, _)| std::cmp::Reverse(*near));
    own.into_iter().take(READS).map(|(_, read)| read).collect()
}

fn words(name: &FullName) -> impl Iterator<Item = &str> {
    name.tool.as_str().split(['_', '-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(
        name: &str,
        effect: Effect,
        kind: Kind,
        strength: ApprovalStrength,
        takes: &[&str],
    ) -> CandidateTool {
        let takes = takes.iter().map(|one| (*one).to_owned()).collect();
        CandidateTool { name: name.parse().unwrap(), effect, kind, strength, takes }
    }

    fn read(name: &str, takes: &[&str]) -> CandidateTool {
        candidate(name, Effect::Read, Kind::None, ApprovalStrength::Caller, takes)
    }

    fn discard() -> CandidateTool {
        candidate("amof:discard", Effect::Destructive, Kind::Type, ApprovalStrength::Human, &["ecosystem"])
    }

    const MOMENTS: [SuggestionTrigger; 5] = [
        SuggestionTrigger::Explained,
        SuggestionTrigger::Previewed,
        SuggestionTrigger::Held,
        SuggestionTrigger::ModeSet,
        SuggestionTrigger::ModeRefused,
    ];

    /// Every moment, mode, highest mode and company: two to five, and nothing above the present mode goes unsaid.
    #[test]
    fn two_to_five_and_never_above_the_mode_unsaid() {
        let (tool, archive) = (
            discard(),
            candidate("amof:archive", Effect::Write, Kind::Simple, ApprovalStrength::Caller, &[]),
        );
        let reads = [read("amof:status", &[]), read("amof:list", &[]), read("amof:log", &[])];
        let mut seen = 0;
        for moment in MOMENTS {
            for mode in Mode::ALL {
                for max_mode in Mode::ALL {
                    for (first, reads, tool) in [
                        (&[][..], &[][..], None),
                        (&[][..], &[][..], Some(&tool)),
                        (std::slice::from_ref(&archive), &reads[..], Some(&tool)),
                        (std::slice::from_ref(&tool), &reads[..1], Some(&tool)),
                        (&[][..], &reads[..], None),
                    ] {
                        let at = SuggestionContext {
                            moment,
                            mode: *mode,
                            max_mode: *max_mode,
                            tool,
                            first,
                            reads,
                        };
                        let steps = at.suggest();
                        assert!((2..=MOST).contains(&steps.len()), "{at:?}: {steps:?}");
                        for step in &steps {
                            assert_eq!(step.now, step.mode_required <= *mode, "{step:?}");
                            let says = step.label.contains(&format!("needs mode {}", step.mode_required));
                            assert_eq!(says, !step.now, "{at:?}: {step:?}");
                            let out_of_reach = step.mode_required > *mode && step.mode_required > *max_mode;
                            assert_eq!(step.label.contains("ask a person"), out_of_reach, "{step:?}");
                        }
                        let mut labels: Vec<&String> = steps.iter().map(|step| &step.label).collect();
                        labels.dedup();
                        assert_eq!(labels.len(), steps.len(), "{steps:?}");
                        seen += 1;
                    }
                }
            }
        }
        assert_eq!(seen, 5 * 3 * 3 * 5);
    }

    #[test]
    fn what_is_suggested_when() {
        let tool = discard();
        let archive = candidate("amof:archive", Effect::Write, Kind::Simple, ApprovalStrength::Caller, &[]);
        let reads = [read("amof:status", &[])];
        let check = |moment, mode, max_mode, expect: &[&str]| {
            let at = SuggestionContext {
                moment,
                mode,
                max_mode,
                tool: Some(&tool),
                first: std::slice::from_ref(&archive),
                reads: &reads,
            };
            let labels: Vec<String> = at.suggest().into_iter().map(|step| step.label).collect();
            assert_eq!(labels, expect);
        };
        check(
            SuggestionTrigger::Explained,
            Mode::Ask,
            Mode::Execute,
            &[
                "think of amof:archive first (needs mode execute)",
                "preview amof:discard: the same call with mode=\"plan\" (needs mode plan)",
                "run amof:discard: the same call with mode=\"execute\" (needs mode execute)",
                "look first: amof:status",
            ],
        );
        check(
            SuggestionTrigger::Previewed,
            Mode::Plan,
            Mode::Plan,
            &[
                "think of amof:archive first (needs mode execute, and this line goes no higher than plan: ask a person)",
                "run amof:discard: the same call with mode=\"execute\" (needs mode execute, and this line goes no higher than plan: ask a person)",
                "look first: amof:status",
            ],
        );
        check(
            SuggestionTrigger::Held,
            Mode::Execute,
            Mode::Execute,
            &[
                "a person has to agree; then the same call with confirm_token and yes=true",
                "wait for the decision: get_plan",
                "withdraw it: cancel_plan",
                "look first: amof:status",
            ],
        );
        check(
            SuggestionTrigger::ModeSet,
            Mode::Ask,
            Mode::Plan,
            &[
                "set_mode plan: preview changes, change nothing",
                "find tools: retrieve_tools",
                "look first: amof:status",
            ],
        );
    }

    #[test]
    fn reads_that_speak_of_the_same_come_first() {
        let reads = vec![
            read("amof:amof_list", &[]),
            read("amof:amof_get_ecosystem_status", &["ecosystem"]),
            read("other:amof_discard_status", &["ecosystem"]),
            candidate("amof:push", Effect::Write, Kind::Simple, ApprovalStrength::Caller, &["ecosystem"]),
            read("amof:release_log", &["ecosystem", "limit"]),
        ];
        let tool = candidate(
            "amof:amof_discard_ecosystem",
            Effect::Destructive,
            Kind::Type,
            ApprovalStrength::Human,
            &["ecosystem"],
        );
        let near: Vec<String> =
            nearest_reads(&tool, reads).into_iter().map(|read| read.name.to_string()).collect();
        assert_eq!(near, ["amof:amof_get_ecosystem_status", "amof:release_log"]);
    }
}
