//! Seed 004 (intent declaration of mcpproxy), sentence by sentence.

use crate::seed_proof::{SeedSentence, check};

const SENTENCES: &[SeedSentence] = &[
    (
        "Three call tools, one a kind of operation",
        &["the_router_lists_its_call_tools_and_ours_with_explicit_annotations"],
    ),
    (
        "Two keys: operation_type must match the variant",
        &["tables::intent", "messages_are_the_contract_to_the_letter"],
    ),
    (
        "Validation against destructiveHint and readOnlyHint, row by row",
        &["tables::intent", "write_on_a_read_only_tool_warns"],
    ),
    ("A missing intent is rejected", &["tables::intent"]),
    ("Strict by default; strict_server_validation = false warns", &["tables::lenient"]),
    (
        "Intent and variant are in the activity's metadata",
        &[
            "attack_18_the_row_of_a_refused_intent_has_what_was_declared",
            "activity_filters_pages_and_exports",
        ],
    ),
    (
        "call tool-read, tool-write, tool-destructive with their flags",
        &[
            "a_read_runs_at_once",
            "a_write_with_yes_runs_in_the_default_configuration_and_says_its_mode",
            "what_the_law_refuses_is_refused_here",
        ],
    ),
    ("The command fills operation_type", &["a_read_runs_at_once"]),
    ("retrieve_tools: annotations, call_with, score, server", &["a_search_says_how_to_call_what_it_finds"]),
    ("usage_instructions, word for word", &["recorded_tools_carry_one_coaching"]),
    ("call_with: destructive, read, otherwise write", &["a_search_says_how_to_call_what_it_finds"]),
    ("The five error messages", &["messages_are_the_contract_to_the_letter"]),
    ("Plain call_tool is gone and says what to use", &["tables::intent"]),
    ("Validation reads nothing from disk or network", &["invariant_policy_is_pure"]),
    ("GET /api/v1/activity?intent_type=destructive, and with status", &["every_filter_filters"]),
    ("Tools are found among those of many servers", &["the_golden_set_of_real_servers_reaches_its_floors"]),
    ("Its configuration is imported", &["servers_of_its_list_are_read_and_its_file_stays"]),
];

#[test]
fn every_sentence_of_seed_004_has_its_test() {
    check(SENTENCES);
}
