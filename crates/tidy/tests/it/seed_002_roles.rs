//! Seed 002 (role gate and audit of mind-palace), sentence by sentence.

use crate::seed_proof::{SeedSentence, check};

const SENTENCES: &[SeedSentence] = &[
    (
        "Mode is agent or human, set at start",
        &["test_mcp_mode_enum_validation", "test_mcp_server_mode_getter"],
    ),
    ("It cannot be changed after startup", &["behind_the_gateway_the_role_comes_from_the_line"]),
    ("It defaults to agent", &["an_agents_line_excludes_admin_tools", "an_empty_mode_is_the_agents"]),
    (
        "Admin-only: store_direct, approve, reject, recall_outcome, recall_link, recall_unlink",
        &["test_mcp_admin_only_tools_filtering"],
    ),
    (
        "The access matrix: explore, recall, brief, store, session, get_route for both",
        &["test_mcp_admin_only_tools_filtering", "test_mcp_tools_list_filtering_by_mode"],
    ),
    (
        "Agents do not find admin tools in their list; people find all",
        &["test_mcp_tools_list_filtering_by_mode"],
    ),
    (
        "An agent's call of one is -32602 Tool \"store_direct\" not available in agent mode",
        &["test_mcp_tool_call_mode_enforcement", "an_agents_line_excludes_admin_tools"],
    ),
    ("No silent fallback", &["test_mcp_tool_call_mode_enforcement"]),
    ("store_direct: content is required, as is decision or learning", &["test_mcp_store_direct_human_mode"]),
    (
        "store_direct: authority approved, no proposal, source human, always audited",
        &["test_mcp_store_direct_human_mode", "a_humans_line_includes_all_tools"],
    ),
    (
        "audit_log with its columns and its three indexes",
        &["the_audit_log_has_its_indexes_and_takes_no_rows_from_others"],
    ),
    ("AddAuditLog, GetAuditLogs, GetAuditLogsForEntity", &["test_add_audit_log_and_get_audit_logs"]),
    (
        "Events: direct_write, approve, reject",
        &["test_add_audit_log_and_get_audit_logs", "test_mcp_approve_reject_human_mode"],
    ),
    (
        "serve --mode: agent and empty are agent, human is human",
        &["an_empty_mode_is_the_agents", "a_humans_line_includes_all_tools"],
    ),
    (
        "Anything else: invalid mode: root (must be 'agent' or 'human')",
        &["a_bad_mode_fails_the_start_naming_both"],
    ),
    (
        "The banner on stderr, in both modes",
        &["an_agents_line_excludes_admin_tools", "a_humans_line_includes_all_tools"],
    ),
    ("palace serve, palace serve --mode human, palace store", &["the_program_answers_to_the_name_palace"]),
    (
        "approve: proposalId is required, promoted, audited with promoted_to",
        &["test_mcp_approve_reject_human_mode"],
    ),
    ("reject: proposalId is required, audited with its reason", &["test_mcp_approve_reject_human_mode"]),
    ("--direct writes create an audit entry", &["a_direct_write_needs_a_person_and_leaves_its_audit_row"]),
    ("A person on a human connection finds what waits", &["a_humans_line_lists_pending_proposals"]),
    (
        "Existing databases go on",
        &[
            "links_tags_and_outcomes_come_along_and_a_second_import_changes_nothing",
            "a_mind_palace_database_becomes_legacy_approved",
        ],
    ),
];

#[test]
fn every_sentence_of_seed_002_has_its_test() {
    check(SENTENCES);
}
