//! What is said about the tools of our own upstreams before anybody writes a rule: who may call them, what they do, which tool shows
//! what another would do. Rules like any other, so that `policy explain` names them; it says nothing about how they work.

use super::rule::{RuleAuthor, RuleOrigin};
use super::upstream::{NativeKind, Upstream, UpstreamKind};
use countersign_policy::confirm::Kind;
use countersign_policy::effect::Effect;
use countersign_policy::preview::PreviewStyle;
use countersign_policy::role::Role;
use countersign_policy::rules::Rule;

/// Something said of some tools of a kind.
struct NativeToolRule {
    tools: &'static [&'static str],
    role: Option<Role>,
    effect: Option<Effect>,
    confirm: Option<Kind>,
    preview: Option<NativePreview>,
}

/// How a tool's preview is made.
enum NativePreview {
    /// A companion tool that shows what would change, and the parts of its answer that must not differ.
    Companion { tool: &'static str, digest: &'static [&'static str] },
    /// A boolean that makes the tool only show it.
    Argument(&'static str),
}

const SILENT: NativeToolRule =
    NativeToolRule { tools: &[], role: None, effect: None, confirm: None, preview: None };

/// What no rule of a user can take back: who may call a tool.
fn firm(kind: NativeKind) -> &'static [NativeToolRule] {
    match kind {
        // An allow-list: what is not named first is for people only.
        NativeKind::Memory => {
            const {
                &[
                    NativeToolRule {
                        tools: &[
                            "store",
                            "recall",
                            "recall_decisions",
                            "recall_ideas",
                            "brief",
                            "brief_file",
                            "explore",
                            "explore_*",
                            "session_start",
                            "session_log",
                            "session_end",
                            "get_route",
                        ],
                        role: Some(Role::Agent),
                        ..SILENT
                    },
                    NativeToolRule { tools: &["*"], role: Some(Role::Human), ..SILENT },
                ]
            }
        }
        NativeKind::Pack | NativeKind::Demo => &[],
    }
}

/// What holds where no rule says otherwise.
fn usual(kind: NativeKind) -> &'static [NativeToolRule] {
    match kind {
        NativeKind::Pack => {
            const {
                &[
                    // It plans a deployment and changes nothing, whatever its name says.
                    NativeToolRule { tools: &["deploy"], effect: Some(Effect::Read), ..SILENT },
                    NativeToolRule {
                        tools: &["deploy_apply"],
                        preview: Some(NativePreview::Companion { tool: "deploy", digest: &["data.changes"] }),
                        ..SILENT
                    },
                    // Without a permit a tool that changes something only shows what it would change.
                    NativeToolRule {
                        tools: &["rollback"],
                        preview: Some(NativePreview::Companion {
                            tool: "rollback",
                            digest: &["data.rolled_back_to", "data.changes"],
                        }),
                        ..SILENT
                    },
                    NativeToolRule {
                        tools: &["evolve_propose"],
                        preview: Some(NativePreview::Companion {
                            tool: "evolve_propose",
                            digest: &["data.candidates"],
                        }),
                        ..SILENT
                    },
                    NativeToolRule {
                        tools: &["evolve_restore"],
                        preview: Some(NativePreview::Companion {
                            tool: "evolve_restore",
                            digest: &["data.missing"],
                        }),
                        ..SILENT
                    },
                    NativeToolRule {
                        tools: &["deploy_apply", "rollback", "evolve_propose", "evolve_restore"],
                        effect: Some(Effect::Destructive),
                        ..SILENT
                    },
                ]
            }
        }
        // A proposal is itself the question to a person, and a person's own call is the answer: no second step.
        NativeKind::Memory => {
            const {
                &[
                    NativeToolRule {
                        tools: &[
                            "recall",
                            "recall_decisions",
                            "recall_ideas",
                            "brief",
                            "brief_file",
                            "explore",
                            "explore_*",
                            "get_route",
                            "list_proposals",
                        ],
                        effect: Some(Effect::Read),
                        ..SILENT
                    },
                    NativeToolRule {
                        tools: &["*"],
                        effect: Some(Effect::Write),
                        confirm: Some(Kind::None),
                        ..SILENT
                    },
                ]
            }
        }
        NativeKind::Demo => {
            const {
                &[NativeToolRule {
                    tools: &[
                        "create_*",
                        "modify_*",
                        "delete_*",
                        "correct_*",
                        "fulfill_order",
                        "receive_purchase_order",
                        "update_stock_adjustment",
                        "rebuild_cache",
                    ],
                    preview: Some(NativePreview::Argument("preview")),
                    ..SILENT
                }]
            }
        }
    }
}

/// Rules in front of all written ones.
pub(crate) fn before(upstreams: &[Upstream]) -> Vec<(Rule, RuleOrigin)> {
    of_all(upstreams, firm)
}

/// Rules behind all written ones.
pub(crate) fn after(upstreams: &[Upstream]) -> Vec<(Rule, RuleOrigin)> {
    of_all(upstreams, usual)
}

fn of_all(
    upstreams: &[Upstream],
    said: fn(NativeKind) -> &'static [NativeToolRule],
) -> Vec<(Rule, RuleOrigin)> {
    let mut rules = Vec::new();
    for upstream in upstreams {
        let UpstreamKind::Native { kind, .. } = &upstream.kind else { continue };
        rules.extend(said(*kind).iter().map(|said| rule(upstream, *kind, said)));
    }
    rules
}

fn rule(upstream: &Upstream, kind: NativeKind, said: &NativeToolRule) -> (Rule, RuleOrigin) {
    let globs: Vec<String> = said.tools.iter().map(|tool| format!("{}:{tool}", upstream.id)).collect();
    let globs: Vec<&str> = globs.iter().map(String::as_str).collect();
    let mut rule = Rule::named(format!("built-in ({kind})"), &globs);
    rule.role = said.role;
    rule.effect = said.effect;
    rule.confirm = said.confirm;
    rule.preview = said.preview.as_ref().map(|shows| match shows {
        NativePreview::Companion { tool, digest } => PreviewStyle::Companion {
            tool: (*tool).to_owned(),
            digest: digest.iter().map(|path| (*path).to_owned()).collect(),
        },
        NativePreview::Argument(arg) => {
            PreviewStyle::Argument { arg: (*arg).to_owned(), preview: true.into(), apply: false.into() }
        }
    });
    let places = vec![upstream.place; globs.len()];
    let origin =
        RuleOrigin { place: upstream.place, globs: places, fields: Vec::new(), author: RuleAuthor::Native };
    (rule, origin)
}

#[cfg(test)]
mod tests {
    use super::super::{Source, parse};
    use countersign_policy::role::Role;

    /// The role a tool ends up with, first match first.
    fn role(text: &str, tool: &str) -> Option<Role> {
        let config = parse(&[Source::new("t.toml", text)]).unwrap();
        let matching = config.rules.matching(&tool.parse().unwrap());
        matching.into_iter().find_map(|index| config.rules.rules()[index].role)
    }

    #[test]
    fn a_memory_tool_nobody_classified_is_for_people_only() {
        let text = "[upstreams.notes]\nkind = \"memory\"\n[[rules]]\nmatch = \"*\"\nrole = \"agent\"\n";
        assert_eq!(role(text, "notes:recall"), Some(Role::Agent));
        assert_eq!(role(text, "notes:explore_rooms"), Some(Role::Agent));
        for tool in ["notes:approve", "notes:store_direct", "notes:something_new"] {
            assert_eq!(role(text, tool), Some(Role::Human), "{tool}");
        }
        assert_eq!(role(text, "other:approve"), Some(Role::Agent));
    }

    #[test]
    fn deploying_is_previewed_by_its_companion_unless_a_rule_says_otherwise() {
        let text = "[upstreams.pack]\nkind = \"pack\"\nfolder = \"assets\"\n";
        let config = parse(&[Source::new("t.toml", text)]).unwrap();
        let name = "pack:deploy_apply".parse().unwrap();
        let matching = config.rules.matching(&name);
        let rules: Vec<_> = matching.into_iter().map(|index| &config.rules.rules()[index]).collect();
        assert!(rules.iter().any(|rule| rule.preview.is_some()), "{rules:?}");
        assert!(rules.iter().all(|rule| rule.name.0 == "built-in (pack)"), "{rules:?}");
    }
}
