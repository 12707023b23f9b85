//! Seed 000 (modes and confirmations of AMOF), sentence by sentence.

use crate::seed_proof::{SeedSentence, check};

const SENTENCES: &[SeedSentence] = &[
    (
        "Ask: read-only inspection, explanation, comparison, suggestion",
        &["the_seeds_rows_in_every_mode", "tables::modes"],
    ),
    (
        "Ask: all write operations return an error with guidance to switch mode",
        &["ask_mode_explains_and_says_how_to_go_on", "deploy_this_ecosystem"],
    ),
    (
        "Ask: running status, release status, ticket list",
        &["the_seeds_rows_in_every_mode", "every_tool_of_the_server_has_its_class"],
    ),
    (
        "Plan: gather state, propose multi-step plans, preview impact, no actual mutations",
        &["tables::series", "in_plan_mode_the_mark_is_shown_and_nothing_is_kept"],
    ),
    (
        "Plan: all mutating tools run in preview mode",
        &["the_seeds_rows_in_every_mode", "attack_01_an_explicit_preview_is_a_preview_in_every_mode"],
    ),
    ("Plan: running commands with --dry-run", &["a_dry_run_is_plan_mode"]),
    (
        "Execute: mutations with confirmation gates",
        &["everything_else_really_happens_too", "tables::confirm"],
    ),
    ("Execute: confirmation required for dangerous-write tools", &["the_seeds_rows_in_every_mode"]),
    (
        "Execute: with -y or --force after the user confirms",
        &["a_write_with_yes_runs_in_the_default_configuration_and_says_its_mode"],
    ),
    (
        "Lifecycle: the call's parameter, the session's state, the default ask",
        &["modes_resolve_call_then_session_then_default_and_bad_ones_change_nothing"],
    ),
    ("Set by amof_set_mode", &["the_mode_has_its_old_name_too"]),
    ("Any direction is allowed", &["tables::modes"]),
    (
        "Confirm none: read-only and safe-write tools execute immediately",
        &["everything_else_really_happens_too", "every_tool_of_the_server_has_its_class"],
    ),
    (
        "Confirm simple: Proceed with X? [Yes/No], for push, archive, install",
        &["the_seeds_rows_in_every_mode", "at_a_terminal_the_person_decides_there_and_then"],
    ),
    (
        "Confirm preview: the preview, then Execute?, for release bump and promote",
        &["the_seeds_rows_in_every_mode", "tables::looks"],
    ),
    (
        "Confirm type: the user types the resource's name, for discard and spin destroy",
        &["discard_this_ecosystem", "a_typed_name_is_exact_and_never_echoed"],
    ),
    (
        "Phase 1 returns a request, phase 2 executes",
        &["tables::confirm", "the_happy_path_spends_the_plan_that_was_shown"],
    ),
    (
        "The token is a UUID, single-use, expires after 5 minutes, ties to the preview",
        &["tables::confirm", "tables::expiry", "tables::changes"],
    ),
    ("Matrix rows 1, 2, 8, 10, 11, 12, 20, 26, 27", &["the_seeds_rows_in_every_mode"]),
    ("Deploy this ecosystem, in three modes", &["deploy_this_ecosystem"]),
    ("Discard this ecosystem, in three modes", &["discard_this_ecosystem"]),
    (
        "AMOF's own server has the same classes",
        &[
            "every_tool_of_the_server_has_its_class",
            "a_person_types_the_ecosystems_name_before_the_servers_token_is_spent",
        ],
    ),
];

#[test]
fn every_sentence_of_seed_000_has_its_test() {
    check(SENTENCES);
}
