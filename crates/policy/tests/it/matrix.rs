//! One table of everything: role × mode × effect × variant × annotation × strict × confirm × strength.
//! A new word in any vocabulary shows up here or the test fails.

use std::collections::HashMap;
use std::fmt::Write as _;

use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::effect::Effect;
use countersign_policy::intent::{CallEntryPoint, CallToolVariant, IntentStrictness};
use countersign_policy::mode::Mode;
use countersign_policy::role::Role;
use countersign_policy::rules::{Rule, RuleSet, UnlistedToolPolicy};
use serde_json::{Value, json};

use crate::world::{World, at, call, short, tool};

/// Annotations and names that mean something: none, both hints, their opposites, a lie, a name that tells.
fn tools() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("none", "sync_notes", json!({})),
        ("readOnly", "get_notes", json!({"readOnlyHint": true})),
        ("destructive", "sync_notes", json!({"destructiveHint": true})),
        ("mild", "sync_notes", json!({"readOnlyHint": false, "destructiveHint": false})),
        ("lexicon", "wipe_notes", json!({})),
        ("lie", "wipe_notes", json!({"readOnlyHint": true})),
    ]
}

fn options<T: Copy>(all: &[T]) -> Vec<Option<T>> {
    std::iter::once(None).chain(all.iter().copied().map(Some)).collect()
}

fn name<T: std::fmt::Display>(option: Option<T>) -> String {
    option.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// One line per distinct answer over confirm × strength, the combinations that give it after it.
fn cells(world_for: impl Fn(Option<Kind>, Option<ApprovalStrength>) -> String) -> String {
    let mut answers: Vec<(String, Vec<String>)> = Vec::new();
    for kind in options(Kind::ALL) {
        for strength in options(ApprovalStrength::ALL) {
            let answer = world_for(kind, strength);
            let cell = format!("{}.{}", name(kind), name(strength));
            match answers.iter_mut().find(|(known, _)| *known == answer) {
                Some((_, cells)) => cells.push(cell),
                None => answers.push((answer, vec![cell])),
            }
        }
    }
    let only_one = answers.len() == 1;
    let parts: Vec<String> = answers
        .into_iter()
        .map(|(answer, cells)| if only_one { answer } else { format!("{answer} [{}]", cells.join(" ")) })
        .collect();
    parts.join("; ")
}

/// Every combination of the three fields, compiled once.
fn rule_sets() -> HashMap<(Option<Effect>, Option<Kind>, Option<ApprovalStrength>), RuleSet> {
    let mut sets = HashMap::new();
    for effect in options(Effect::ALL) {
        for kind in options(Kind::ALL) {
            for strength in options(ApprovalStrength::ALL) {
                let mut rule = Rule::named("r", &["*"]);
                (rule.effect, rule.confirm, rule.strength) = (effect, kind, strength);
                sets.insert(
                    (effect, kind, strength),
                    RuleSet::compile(vec![rule], UnlistedToolPolicy::Govern).unwrap(),
                );
            }
        }
    }
    sets
}

#[test]
fn everything_in_one_table() {
    let doors: Vec<CallEntryPoint> = CallToolVariant::ALL
        .iter()
        .copied()
        .map(CallEntryPoint::Router)
        .chain([CallEntryPoint::Direct])
        .collect();
    let rule_sets = rule_sets();
    let mut table = String::new();
    // Long answers are named once in a legend, so that a row fits a line.
    let mut legend: Vec<String> = Vec::new();
    for role in Role::ALL {
        for mode in Mode::ALL {
            for (annotation, tool_name, hints) in tools() {
                let listed = tool(tool_name, hints);
                for effect in options(Effect::ALL) {
                    for entry_point in &doors {
                        for strictness in [IntentStrictness::Strict, IntentStrictness::Lenient] {
                            let answer = cells(|kind, strength| {
                                let rules = &rule_sets[&(effect, kind, strength)];
                                let mut world = World::new();
                                world.rules = rules.clone();
                                world.session_mode = Some(*mode);
                                world.strictness = strictness;
                                let mut call = call(&listed, *entry_point, "{}");
                                call.caller.role = *role;
                                short(&world.judge(call, at(0)))
                            });
                            let answer = if answer.contains(';') {
                                let known =
                                    legend.iter().position(|long| *long == answer).unwrap_or_else(|| {
                                        legend.push(answer);
                                        legend.len() - 1
                                    });
                                format!("answer {known}")
                            } else {
                                answer
                            };
                            let entry_point = match entry_point {
                                CallEntryPoint::Router(variant) => variant.as_str(),
                                CallEntryPoint::Direct => "direct",
                            };
                            let strict = match strictness {
                                IntentStrictness::Strict => "strict",
                                IntentStrictness::Lenient => "lenient",
                            };
                            writeln!(
                                table,
                                "{role:5} {mode:7} {annotation:11} effect={:11} {entry_point:11} {strict:7} {answer}",
                                name(effect)
                            )
                            .unwrap();
                        }
                    }
                }
            }
        }
    }
    let mut page = String::from("answers by confirm.strength, - is the default:\n");
    for (number, long) in legend.iter().enumerate() {
        writeln!(page, "answer {number}:\n  {}", long.replace("; ", "\n  ")).unwrap();
    }
    writeln!(page, "\nrole  mode    annotation  rule's effect      variant     strict").unwrap();
    page.push_str(&table);
    insta::assert_snapshot!("matrix", page);
}

#[test]
fn human_only_tools_are_refused_on_agent_lines_in_every_mode() {
    for mode in Mode::ALL {
        let mut rule = Rule::named("r", &["github:*"]);
        rule.role = Some(Role::Human);
        let mut world = World::with_rules(vec![rule]);
        world.session_mode = Some(*mode);
        let tool = tool("get_notes", json!({"readOnlyHint": true}));
        let call = call(&tool, CallEntryPoint::Direct, "{}");
        assert_eq!(short(&world.judge(call.clone(), at(0))), "role_forbidden");
        let mut human = call;
        human.caller.role = Role::Human;
        assert_eq!(short(&world.judge(human, at(0))), "go");
    }
}
