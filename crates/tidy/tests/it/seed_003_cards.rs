//! Seed 003 (preview and apply of Katana's write tools), sentence by sentence.

use crate::seed_proof::{SeedSentence, check};

const SENTENCES: &[SeedSentence] = &[
    (
        "Annotations are hints, not guarantees",
        &["tables::intent", "attack_20_a_hijacked_agent_changes_nothing_under_any_profile"],
    ),
    (
        "Elicitation is sparse: it is one channel among others",
        &["plans_are_decided_alike_over_every_channel", "silence_decides_nothing"],
    ),
    ("Keep preview and apply", &["one_tool_called_twice_is_one_plan_previewed_and_applied_as_reviewed"]),
    (
        "#491: values are in the action's payload",
        &["cards: #491: no argument is lost between preview, Apply text and upstream"],
    ),
    ("#495: a click is seen", &["cards: #495: a click is seen at once"]),
    (
        "Confirm sets pending and disables the buttons",
        &["cards: 4: two clicks are one action, and terminal states are locked"],
    ),
    (
        "Confirm sends Apply: call <tool>(<args>, preview=False) with all arguments inlined",
        &[
            "cards: direct surface: the tool’s own name, every argument, countersign and preview last",
            "python_reads_every_literal_as_the_value_it_was",
        ],
    ),
    (
        "Cancel sets cancelled and sends Cancel: do not apply <description>.",
        &["a_cancelled_thing_has_its_own_determiner"],
    ),
    (
        "Descriptions of preview tools carry the coaching, once",
        &[
            "recorded_tools_carry_one_coaching",
            "cards: coaching leads with the host that shows no card, and read tools carry none",
        ],
    ),
    (
        "The button is shorthand for a yes; the apply goes through the agent's calls",
        &[
            "cards: message alone, strength host: the click is no person, a person agrees, the agent goes on to the end",
        ],
    ),
    ("destructiveHint by tool family", &["effects_and_previews_follow_the_policy_by_family"]),
    (
        "The agent sees the full structured apply response and real errors",
        &["recorded_changes_are_read_from_the_text", "tests/katana/drive.py"],
    ),
    ("One canonical confirmation", &["recorded_card_is_kept_and_our_confirmation_is_beside_it"]),
    ("No template binding", &["python_reads_every_literal_as_the_value_it_was"]),
    ("Works on every host", &["plans_are_decided_alike_over_every_channel"]),
    (
        "Auditable history",
        &[
            "attack_18_the_row_of_a_refused_intent_has_what_was_declared",
            "a_decision_is_in_the_log_of_the_channel_that_made_it",
        ],
    ),
    (
        "Per-entity cards keep their affordances and are not replaced",
        &[
            "recorded_card_is_kept_and_our_confirmation_is_beside_it",
            "calls_of_the_tool_itself_become_the_message_and_others_stay",
        ],
    ),
    (
        "Generic result cards for tools without one",
        &["cards: attack_11: every invisible character is an escape on the card, in plans and in results"],
    ),
    (
        "A warning BLOCK: takes the confirmation away",
        &["recorded_block_gets_no_token", "a_block_counts_in_either_place_and_is_said_once"],
    ),
    ("The real server: every write previewed, applied once, its errors told", &["tests/katana/drive.py"]),
];

#[test]
fn every_sentence_of_seed_003_has_its_test() {
    check(SENTENCES);
}
