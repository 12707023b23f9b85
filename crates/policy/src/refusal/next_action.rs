//! What can be done about a refusal. Identifiers are stable; who is meant by one is said in its line.

use crate::words::words;

words! {
    /// What can be done next, as stable identifiers a program may act on.
    pub enum NextAction("next action") {
        /// Correct the named field and call again.
        FixArguments = "fix_arguments",
        /// Declare the intent and call again.
        DeclareIntent = "declare_intent",
        /// Use the call tool that fits the tool's effect.
        UseMatchingCallTool = "use_matching_call_tool",
        RetrieveTools = "retrieve_tools",
        SwitchToPlan = "switch_to_plan",
        /// Change things in execute mode.
        SwitchToExecute = "switch_to_execute",
        /// Use one of the three modes.
        UseKnownMode = "use_known_mode",
        /// Stay at or below the line's highest mode.
        UseAllowedMode = "use_allowed_mode",
        /// Show the preview to the user and ask.
        AskUser = "ask_user",
        /// Call again with `yes=true` and the token.
        ReissueWithToken = "reissue_with_token",
        /// Call again without a token to get a new plan.
        RequestNewPlan = "request_new_plan",
        /// Wait for a person; `get_plan` tells when.
        WaitForApproval = "wait_for_approval",
        /// Ask what became of the plan.
        GetPlan = "get_plan",
        /// A person has to look: on the desk or with the command line.
        AskPerson = "ask_person",
        /// A person accepts or refuses the tool's definition.
        ReviewTool = "review_tool",
        /// The operator changes a rule.
        ChangeRule = "change_rule",
        /// The operator mends the configuration.
        FixConfig = "fix_config",
        RetryLater = "retry_later",
        /// Look at the upstream's health.
        CheckUpstream = "check_upstream",
        /// Look at the store: space, permissions, reachability.
        CheckStore = "check_store",
        /// Set the machine's clock right.
        CheckClock = "check_clock",
        /// Find out by hand whether the change happened.
        VerifyOutcome = "verify_outcome",
        /// Use a credential of the other kind.
        UseHumanCredential = "use_human_credential",
        /// Call again with `yes=true` (`--yes`).
        RetryWithYes = "retry_with_yes",
        /// Call again with `adopt=true` (`--adopt`): unmanaged files are overwritten, after a backup.
        RetryWithAdopt = "retry_with_adopt",
        /// Call `deploy` for a new plan and token.
        CallDeploy = "call_deploy",
        /// Call `deploy_apply` with what `deploy` returned.
        RetryDeployApply = "retry_deploy_apply",
        RunInit = "run_init",
        RetryWithRepo = "retry_with_repo",
        RunLock = "run_lock",
        RegenerateLockfile = "regenerate_lockfile",
        /// Fetch what the lockfile pins.
        RunFetch = "run_fetch",
        /// Lock and fetch.
        RunUpdate = "run_update",
        /// Look up the targets this program knows in `help --json`.
        InspectHelpJson = "inspect_help_json",
        RetryWithSupportedTarget = "retry_with_supported_target",
        /// Take the target out of the manifest.
        EditManifestTargets = "edit_manifest_targets",
        /// Use a program that was built with the target.
        RebuildWithTargetFeature = "rebuild_with_target_feature",
        /// Use a newer version of this program.
        UpgradeAgentpack = "upgrade_agentpack",
        /// Write a version into the manifest that this program reads.
        FixConfigVersion = "fix_config_version",
        /// Let only one module write the file.
        ResolveDesiredStateConflict = "resolve_desired_state_conflict",
        /// Make the overlay with `overlay edit`.
        RunOverlayEdit = "run_overlay_edit",
        ResolveOverlayConflicts = "resolve_overlay_conflicts",
        RetryOverlayRebase = "retry_overlay_rebase",
        /// Write the patch against the module as it is now.
        RegeneratePatch = "regenerate_patch",
        /// Keep whole files in the overlay in place of patches.
        SwitchToDirOverlay = "switch_to_dir_overlay",
        /// Make the config repo a git repository.
        InitGitRepo = "init_git_repo",
        /// Commit or stash what is changed.
        CommitOrStash = "commit_or_stash",
        CheckoutBranch = "checkout_branch",
        SetGitRemote = "set_git_remote",
        InstallGit = "install_git",
        FixPermissions = "fix_permissions",
        FixPath = "fix_path",
        ShortenPath = "shorten_path",
        /// Let the platform take longer paths.
        EnableLongPaths = "enable_long_paths",
        /// Move or rename what is in the way of the import.
        ResolveImportConflict = "resolve_import_conflict",
        RetryImportApply = "retry_import_apply",
        /// Mend what the policy objects to.
        FixPolicyViolations = "fix_policy_violations",
        RetryPolicyLint = "retry_policy_lint",
        /// Write the organisation's policy file.
        CreatePolicyConfig = "create_policy_config",
        /// Write or mend the organisation's policy file.
        FixPolicyConfig = "fix_policy_config",
        /// Write a version into the policy file that this program reads.
        FixPolicyConfigVersion = "fix_policy_config_version",
        RetryInTty = "retry_in_tty",
        /// Leave `--guided` out.
        RetryWithoutGuided = "retry_without_guided",
        /// Look up the snapshots there are.
        ListSnapshots = "list_snapshots",
        /// Look at what would change now.
        RunPreview = "run_preview",
        RetryCommand = "retry_command",
        /// Do not go on with this call.
        Stop = "stop",
    }
}
