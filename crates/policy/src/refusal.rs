//! Refusals: the policy said no. A refusal is a value with a stable code, not an error; faults are separate types.
//! The registry below is the only list of codes; `docs/refusals.md` is written from it and checked against it.

use std::fmt;

use serde_json::{Map, Value};

mod from_envelope;
mod next_action;

pub use next_action::NextAction;

macro_rules! registry {
    ($($variant:ident = $code:literal {
        meaning: $meaning:literal, retry: $retry:ident, reasons: [$($reason:literal),+], next: [$($next:ident),+] $(,)?
    })+) => {
        /// The stable code of a refusal.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $meaning] $variant,)+ }

        impl Code {
            /// Every code, in the order of the registry.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }
            /// What it means, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }
            /// Whether the same call may pass later without being changed.
            pub const fn retry(self) -> Retry {
                match self { $(Self::$variant => Retry::$retry,)+ }
            }
            /// The reason codes it may carry; the first is the usual one.
            pub const fn reasons(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($reason),+],)+ }
            }
            /// What to do about it, usually.
            pub const fn next_actions(self) -> &'static [NextAction] {
                match self { $(Self::$variant => &[$(NextAction::$next),+],)+ }
            }
            pub const fn usual_reason(self) -> &'static str {
                match self.reasons() { [first, ..] => first, [] => "" }
            }
        }
    };
}

/// Whether the same call may pass later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Not unless something is changed.
    No,
    /// Yes, after a while or after a person acted.
    Later,
}

registry! {
    IntentRequired = "E_INTENT_REQUIRED" {
        meaning: "a call tool was used without an intent", retry: No,
        reasons: ["intent_required"], next: [DeclareIntent]
    }
    IntentOperationRequired = "E_INTENT_OPERATION_REQUIRED" {
        meaning: "the intent has no operation_type", retry: No,
        reasons: ["intent_operation_required"], next: [DeclareIntent]
    }
    IntentOperationInvalid = "E_INTENT_OPERATION_INVALID" {
        meaning: "the intent's operation_type is none of read, write, destructive", retry: No,
        reasons: ["intent_operation_invalid"], next: [DeclareIntent]
    }
    IntentMismatch = "E_INTENT_MISMATCH" {
        meaning: "the call tool and the declared operation_type disagree", retry: No,
        reasons: ["intent_mismatch"], next: [UseMatchingCallTool, DeclareIntent]
    }
    IntentServerMismatch = "E_INTENT_SERVER_MISMATCH" {
        meaning: "the tool is marked destructive and was called as something milder", retry: No,
        reasons: ["intent_server_mismatch"], next: [UseMatchingCallTool, RetrieveTools]
    }
    ArgumentsInvalid = "E_ARGUMENTS_INVALID" {
        meaning: "the arguments are not what the tool's schema, the gateway or strict JSON accepts", retry: No,
        reasons: ["arguments_invalid", "arguments_not_strict", "arguments_too_large", "request_state_invalid", "resource_ambiguous", "resource_uri_not_normal", "schema_mismatch"], next: [FixArguments]
    }
    ModeAsk = "E_MODE_ASK" {
        meaning: "the mode is ask, in which nothing changes; data.explain says what would happen", retry: No,
        reasons: ["mode_ask"], next: [SwitchToPlan, SwitchToExecute]
    }
    ModeInvalid = "E_MODE_INVALID" {
        meaning: "the mode is none of ask, plan, execute", retry: No,
        reasons: ["mode_invalid"], next: [UseKnownMode]
    }
    ModeForbidden = "E_MODE_FORBIDDEN" {
        meaning: "the mode is above the highest this line may use", retry: No,
        reasons: ["mode_forbidden"], next: [UseAllowedMode, AskPerson]
    }
    RoleForbidden = "E_ROLE_FORBIDDEN" {
        meaning: "the tool or the act is for people only and the line is an agent's", retry: No,
        reasons: ["role_forbidden"], next: [AskPerson, Stop]
    }
    ScopeForbidden = "E_SCOPE_FORBIDDEN" {
        meaning: "the line's credential does not reach this upstream or effect", retry: No,
        reasons: ["scope_forbidden"], next: [AskPerson, Stop]
    }
    ToolNotFound = "E_TOOL_NOT_FOUND" {
        meaning: "no upstream has a tool of that name", retry: No,
        reasons: ["tool_not_found"], next: [RetrieveTools]
    }
    ToolChanged = "E_TOOL_CHANGED" {
        meaning: "the tool is not the one that was accepted: its definition differs", retry: Later,
        reasons: ["tool_changed"], next: [ReviewTool, AskPerson]
    }
    ToolQuarantined = "E_TOOL_QUARANTINED" {
        meaning: "the tool is withheld until a person accepts it", retry: Later,
        reasons: ["tool_new", "tool_collision", "tool_lookalike", "tool_unusable"], next: [ReviewTool, AskPerson]
    }
    RuleDenied = "E_RULE_DENIED" {
        meaning: "a rule of the configuration denies the call", retry: No,
        reasons: ["rule_denied", "not_allowed", "method_not_listed", "cannot_be_confirmed", "question_not_allowed", "question_asks_for_credential"], next: [ChangeRule, Stop]
    }
    RuleError = "E_RULE_ERROR" {
        meaning: "a rule that matches could not be evaluated, so the call is refused", retry: No,
        reasons: ["rule_error", "type_field_missing"], next: [ChangeRule, FixArguments]
    }
    LimitExceeded = "E_LIMIT_EXCEEDED" {
        meaning: "too many calls in a rule's window, too many new plans, or too many plans are pending", retry: Later,
        reasons: ["rate_limited", "too_many_pending"], next: [RetryLater, GetPlan]
    }
    PrincipalPaused = "E_PRINCIPAL_PAUSED" {
        meaning: "three rejections in ten minutes paused this principal's writes until a person resumes them", retry: Later,
        reasons: ["principal_paused"], next: [AskPerson, Stop]
    }
    UpstreamUnavailable = "E_UPSTREAM_UNAVAILABLE" {
        meaning: "the upstream does not run, can't be reached or died", retry: Later,
        reasons: ["upstream_unavailable", "outcome_unknown", "result_too_large"],
        next: [CheckUpstream, RetryLater, VerifyOutcome]
    }
    UpstreamTimeout = "E_UPSTREAM_TIMEOUT" {
        meaning: "the upstream did not answer in time", retry: Later,
        reasons: ["upstream_timeout", "outcome_unknown"], next: [CheckUpstream, RetryLater, VerifyOutcome]
    }
    PreviewFailed = "E_PREVIEW_FAILED" {
        meaning: "the preview failed, so there is nothing to confirm", retry: Later,
        reasons: ["preview_failed", "preview_blocked"], next: [FixArguments, CheckUpstream]
    }
    LedgerUnavailable = "E_LEDGER_UNAVAILABLE" {
        meaning: "the ledger can't be written, so nothing is changed", retry: Later,
        reasons: ["ledger_unavailable"], next: [CheckStore, RetryLater]
    }
    ClockUntrusted = "E_CLOCK_UNTRUSTED" {
        meaning: "the clock stands before a moment already recorded, so expiry can't be judged", retry: Later,
        reasons: ["clock_untrusted"], next: [CheckClock, RetryLater]
    }
    ConfirmRequired = "E_CONFIRM_REQUIRED" {
        meaning: "a confirm token was brought back without yes=true", retry: No,
        reasons: ["confirm_required"], next: [AskUser, ReissueWithToken]
    }
    ConfirmTokenRequired = "E_CONFIRM_TOKEN_REQUIRED" {
        meaning: "yes=true was given without the confirm token of a plan", retry: No,
        reasons: ["confirm_token_required"], next: [RequestNewPlan]
    }
    ConfirmTokenMismatch = "E_CONFIRM_TOKEN_MISMATCH" {
        meaning: "the token is not for this line, tool, arguments, or what was reviewed has changed", retry: No,
        reasons: ["confirm_token_mismatch", "policy_changed", "tool_changed", "plan_drifted"],
        next: [RequestNewPlan]
    }
    ConfirmTokenUsed = "E_CONFIRM_TOKEN_USED" {
        meaning: "the token's plan was run already", retry: No,
        reasons: ["confirm_token_used"], next: [GetPlan, RequestNewPlan]
    }
    ConfirmTokenExpired = "E_CONFIRM_TOKEN_EXPIRED" {
        meaning: "the token is older than its life", retry: No,
        reasons: ["confirm_token_expired"], next: [RequestNewPlan]
    }
    ConfirmTextMismatch = "E_CONFIRM_TEXT_MISMATCH" {
        meaning: "what was typed is not the name of the resource, to the letter", retry: No,
        reasons: ["confirm_text_mismatch", "confirm_text_required"], next: [AskPerson]
    }
    PlanCancelled = "E_PLAN_CANCELLED" {
        meaning: "the plan was cancelled, or the credential it was asked for with has ended", retry: No,
        reasons: ["plan_cancelled", "credential_revoked", "credential_expired"], next: [RequestNewPlan, Stop]
    }
    ApprovalRejected = "E_APPROVAL_REJECTED" {
        meaning: "a person rejected the plan", retry: No,
        reasons: ["approval_rejected"], next: [AskUser, Stop]
    }
    ApprovalPending = "E_APPROVAL_PENDING" {
        meaning: "someone with more say than the caller has to agree first", retry: Later,
        reasons: ["approval_pending", "approval_unproven"], next: [WaitForApproval, AskPerson]
    }
    PlanNotFound = "E_PLAN_NOT_FOUND" {
        meaning: "there is no such plan on this line", retry: No,
        reasons: ["plan_not_found"], next: [RequestNewPlan]
    }
    PlanDecided = "E_PLAN_DECIDED" {
        meaning: "the plan was decided, run, cancelled or expired before", retry: No,
        reasons: ["plan_decided", "plan_expired", "plan_changed", "tool_accepted", "run_over"], next: [GetPlan]
    }
    StepFailed = "E_STEP_FAILED" {
        meaning: "a step of a plan of several failed; those after it were not run", retry: No,
        reasons: ["step_failed"], next: [GetPlan, VerifyOutcome, RequestNewPlan]
    }
    GrantForbidden = "E_GRANT_FORBIDDEN" {
        meaning: "a grant can't be given for what must be typed to confirm, or in that form", retry: No,
        reasons: ["grant_forbidden"], next: [AskPerson]
    }
    CredentialRequired = "E_CREDENTIAL_REQUIRED" {
        meaning: "a credential or a fresh sign-in is needed, or the one given is unknown, expired or revoked", retry: No,
        reasons: ["credential_required", "credential_invalid", "sign_in_stale"], next: [UseHumanCredential]
    }
    OriginForbidden = "E_ORIGIN_FORBIDDEN" {
        meaning: "the request's host, origin or proof is not that of the desk's own page", retry: No,
        reasons: ["origin_forbidden", "host_forbidden", "site_forbidden", "page_required", "csrf_invalid", "header_invalid"],
        next: [UseHumanCredential, Stop]
    }
    ConfigInvalid = "E_CONFIG_INVALID" {
        meaning: "the configuration can't be used as it is", retry: No,
        reasons: ["config_invalid", "config_unreadable", "tests_failed"], next: [FixConfig, RetryCommand]
    }
    LedgerTampered = "E_LEDGER_TAMPERED" {
        meaning: "a row of the ledger was changed, removed, reordered or cut off", retry: No,
        reasons: ["row_changed", "row_missing", "row_reordered", "truncated", "bad_signature", "foreign_checkpoint", "archive_changed"],
        next: [AskPerson, CheckStore]
    }
    LedgerUnverified = "E_LEDGER_UNVERIFIED" {
        meaning: "the ledger is signed, and there is no key to check its signatures with", retry: No,
        reasons: ["no_trusted_key"], next: [AskPerson, CheckStore]
    }
    NotFound = "E_NOT_FOUND" {
        meaning: "there is no such record", retry: No,
        reasons: ["not_found"], next: [FixArguments]
    }
    StoreUnavailable = "E_STORE_UNAVAILABLE" {
        meaning: "the store can't be opened, read or written", retry: Later,
        reasons: ["store_unavailable"], next: [CheckStore, RetryLater]
    }
    // The governed memory.
    Duplicate = "E_DUPLICATE" {
        meaning: "the same text is already waiting for a person, or is already there", retry: No,
        reasons: ["duplicate"], next: [WaitForApproval, Stop]
    }
    ProposalDecided = "E_PROPOSAL_DECIDED" {
        meaning: "the proposal was approved, rejected or ran out of time before", retry: No,
        reasons: ["proposal_decided", "proposal_expired"], next: [Stop]
    }
    // Agent assets (`pack`).
    AdoptConfirmRequired = "E_ADOPT_CONFIRM_REQUIRED" {
        meaning: "existing files that are not managed would be overwritten, and nobody agreed to that", retry: No,
        reasons: ["adopt_confirm_required"], next: [RetryWithAdopt]
    }
    ApplyDrifted = "E_APPLY_DRIFTED" {
        meaning: "a file changed while the plan was being applied; the rest was left alone", retry: No,
        reasons: ["apply_drifted"], next: [RunPreview, CallDeploy]
    }
    SnapshotNotFound = "E_SNAPSHOT_NOT_FOUND" {
        meaning: "there is no such snapshot to go back to", retry: No,
        reasons: ["snapshot_not_found", "snapshot_not_a_deploy", "snapshot_damaged"], next: [ListSnapshots]
    }
    ConfigMissing = "E_CONFIG_MISSING" {
        meaning: "the config repo has no agentpack.yaml", retry: No,
        reasons: ["config_missing"], next: [RunInit, RetryWithRepo, RetryCommand]
    }
    ConfigUnsupportedVersion = "E_CONFIG_UNSUPPORTED_VERSION" {
        meaning: "the version of agentpack.yaml is not one this program reads", retry: No,
        reasons: ["config_unsupported_version"], next: [UpgradeAgentpack, FixConfigVersion, RetryCommand]
    }
    LockfileMissing = "E_LOCKFILE_MISSING" {
        meaning: "agentpack.lock.json is missing or does not pin a module that has to be fetched", retry: No,
        reasons: ["lockfile_missing", "lockfile_entry_missing"], next: [RunLock, RunUpdate, RetryCommand]
    }
    LockfileInvalid = "E_LOCKFILE_INVALID" {
        meaning: "agentpack.lock.json can't be read, or what was fetched is not what it pins", retry: No,
        reasons: ["lockfile_invalid_json", "lockfile_invalid", "content_mismatch"], next: [RegenerateLockfile, RetryCommand]
    }
    LockfileUnsupportedVersion = "E_LOCKFILE_UNSUPPORTED_VERSION" {
        meaning: "the version of agentpack.lock.json is not one this program reads", retry: No,
        reasons: ["lockfile_unsupported_version"], next: [UpgradeAgentpack, RegenerateLockfile, RetryCommand]
    }
    TargetUnsupported = "E_TARGET_UNSUPPORTED" {
        meaning: "the target is not one this program deploys to", retry: No,
        reasons: ["target_filter_unsupported", "target_not_compiled"], next: [InspectHelpJson, RetryWithSupportedTarget]
    }
    DesiredStateConflict = "E_DESIRED_STATE_CONFLICT" {
        meaning: "two modules want different content in one file", retry: No,
        reasons: ["desired_state_conflict"], next: [ResolveDesiredStateConflict, RetryCommand]
    }
    OverlayNotFound = "E_OVERLAY_NOT_FOUND" {
        meaning: "there is no overlay of that module in that scope", retry: No,
        reasons: ["overlay_not_found"], next: [RunOverlayEdit, RetryCommand]
    }
    OverlayBaselineMissing = "E_OVERLAY_BASELINE_MISSING" {
        meaning: "the overlay does not say what it was made from, so it can't be rebased", retry: No,
        reasons: ["overlay_baseline_missing"], next: [RunOverlayEdit, RetryCommand]
    }
    OverlayBaselineUnsupported = "E_OVERLAY_BASELINE_UNSUPPORTED" {
        meaning: "what the overlay was made from can't be found any more", retry: No,
        reasons: ["overlay_baseline_unsupported"], next: [InitGitRepo, CommitOrStash, RunOverlayEdit, RetryCommand]
    }
    OverlayRebaseConflict = "E_OVERLAY_REBASE_CONFLICT" {
        meaning: "overlay and module changed the same lines", retry: No,
        reasons: ["overlay_rebase_conflict"], next: [ResolveOverlayConflicts, RetryOverlayRebase]
    }
    OverlayPatchApplyFailed = "E_OVERLAY_PATCH_APPLY_FAILED" {
        meaning: "a patch of an overlay does not fit the module", retry: No,
        reasons: ["overlay_patch_apply_failed"], next: [RegeneratePatch, SwitchToDirOverlay, RetryCommand]
    }
    ImportConflict = "E_IMPORT_CONFLICT" {
        meaning: "an import would overwrite something in the config repo", retry: No,
        reasons: ["import_conflict"], next: [ResolveImportConflict, RetryImportApply]
    }
    PolicyViolations = "E_POLICY_VIOLATIONS" {
        meaning: "the config repo breaks the policy for agent assets", retry: No,
        reasons: ["policy_violations"], next: [FixPolicyViolations, RetryPolicyLint]
    }
    PolicyConfigMissing = "E_POLICY_CONFIG_MISSING" {
        meaning: "the config repo has no agentpack.org.yaml", retry: No,
        reasons: ["policy_config_missing"], next: [CreatePolicyConfig, RetryCommand]
    }
    PolicyConfigInvalid = "E_POLICY_CONFIG_INVALID" {
        meaning: "agentpack.org.yaml can't be used as it is", retry: No,
        reasons: ["policy_config_invalid"], next: [FixPolicyConfig, RetryCommand]
    }
    PolicyConfigUnsupportedVersion = "E_POLICY_CONFIG_UNSUPPORTED_VERSION" {
        meaning: "the version of agentpack.org.yaml is not one this program reads", retry: No,
        reasons: ["policy_config_unsupported_version"], next: [UpgradeAgentpack, FixPolicyConfigVersion, RetryCommand]
    }
    GitNotFound = "E_GIT_NOT_FOUND" {
        meaning: "the git program is not there", retry: No,
        reasons: ["git_not_found"], next: [InstallGit, RetryCommand]
    }
    GitRepoRequired = "E_GIT_REPO_REQUIRED" {
        meaning: "the config repo is not a git repository", retry: No,
        reasons: ["git_repo_required"], next: [InitGitRepo, RetryCommand]
    }
    GitWorktreeDirty = "E_GIT_WORKTREE_DIRTY" {
        meaning: "the config repo has changes that are not committed", retry: No,
        reasons: ["git_worktree_dirty"], next: [CommitOrStash, RetryCommand]
    }
    GitDetachedHead = "E_GIT_DETACHED_HEAD" {
        meaning: "the config repo is not on a branch", retry: No,
        reasons: ["git_detached_head"], next: [CheckoutBranch, RetryCommand]
    }
    GitRemoteMissing = "E_GIT_REMOTE_MISSING" {
        meaning: "the config repo has no such remote", retry: No,
        reasons: ["git_remote_missing"], next: [SetGitRemote, RetryCommand]
    }
    GitFailed = "E_GIT_FAILED" {
        meaning: "git said no", retry: Later,
        reasons: ["git_failed", "git_source_refused"], next: [FixConfig, RetryCommand]
    }
    IoPermissionDenied = "E_IO_PERMISSION_DENIED" {
        meaning: "a file or folder may not be read or written", retry: No,
        reasons: ["io_permission_denied"], next: [FixPermissions, RetryCommand]
    }
    IoInvalidPath = "E_IO_INVALID_PATH" {
        meaning: "a path leads outside its root, through a link, or is not one we write", retry: No,
        reasons: ["io_invalid_path", "path_escapes", "path_is_link", "path_has_control_characters"], next: [FixPath, RetryCommand]
    }
    IoPathTooLong = "E_IO_PATH_TOO_LONG" {
        meaning: "a path is longer than the platform allows", retry: No,
        reasons: ["io_path_too_long"], next: [ShortenPath, EnableLongPaths, RetryCommand]
    }
    TtyRequired = "E_TTY_REQUIRED" {
        meaning: "this asks questions and needs a terminal", retry: No,
        reasons: ["tty_required"], next: [RetryInTty, RetryWithoutGuided]
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A no, with everything a program or a person needs to go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub code: Code,
    pub reason_code: &'static str,
    pub message: String,
    pub next_actions: Vec<NextAction>,
    pub details: Map<String, Value>,
}

impl Refusal {
    /// A refusal with its code's usual reason and next actions.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            reason_code: code.usual_reason(),
            message: message.into(),
            next_actions: code.next_actions().to_vec(),
            details: Map::new(),
        }
    }

    /// The same refusal for another of its code's reasons.
    #[must_use]
    pub fn because(mut self, reason_code: &'static str) -> Self {
        debug_assert!(self.code.reasons().contains(&reason_code), "{reason_code} is not registered");
        self.reason_code = reason_code;
        self
    }

    /// The same refusal with one more fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// The same refusal with other next actions.
    #[must_use]
    pub fn next(mut self, next_actions: &[NextAction]) -> Self {
        self.next_actions = next_actions.to_vec();
        self
    }

    /// `details` as the envelope carries them: reason code, next actions, facts.
    pub fn details_value(&self) -> Value {
        let mut details = Map::new();
        details.insert("reason_code".into(), self.reason_code.into());
        let next: Vec<Value> = self.next_actions.iter().map(|next| next.as_str().into()).collect();
        details.insert("next_actions".into(), next.into());
        details.insert("retryable".into(), (self.code.retry() == Retry::Later).into());
        for (name, value) in &self.details {
            details.insert(name.clone(), value.clone());
        }
        Value::Object(details)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// The text of `docs/refusals.md`.
pub fn registry_markdown() -> String {
    let mut page = String::from(
        "# Refusals\n\nWritten from the registry in `crates/policy/src/refusal.rs`; a test keeps it true. \
         Every refusal carries its code, a `reason_code` and `next_actions`.\n\n\
         | code | meaning | retry | reason_code | next_actions |\n|---|---|---|---|---|\n",
    );
    for code in Code::ALL {
        let retry = match code.retry() {
            Retry::No => "no",
            Retry::Later => "later",
        };
        let reasons: Vec<String> = code.reasons().iter().map(|reason| format!("`{reason}`")).collect();
        let next: Vec<String> = code.next_actions().iter().map(|next| format!("`{next}`")).collect();
        page.push_str(&format!(
            "| `{code}` | {} | {retry} | {} | {} |\n",
            code.meaning(),
            reasons.join(", "),
            next.join(", ")
        ));
    }
    page
}

/// What somebody sent, short enough for a message: nobody needs a megabyte of it back.
pub(crate) fn brief(text: &str) -> std::borrow::Cow<'_, str> {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_complete() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{code} twice");
            assert!(code.as_str().starts_with("E_"));
            assert!(!code.reasons().is_empty() && !code.next_actions().is_empty());
            assert!(!code.meaning().ends_with('.'), "{code}");
        }
    }

    #[test]
    fn what_was_sent_comes_back_short() {
        assert_eq!(brief("sudo"), "sudo");
        let long = "é".repeat(1 << 20);
        assert_eq!(brief(&long).chars().count(), 81);
        assert!(crate::gate::parse_mode(&long).unwrap_err().message.len() < 300);
    }

    #[test]
    fn details_carry_reason_and_next_actions() {
        let refusal = Refusal::new(Code::ConfirmTokenMismatch, "the plan changed").because("plan_drifted");
        let details = refusal.details_value();
        assert_eq!(details["reason_code"], "plan_drifted");
        assert_eq!(details["next_actions"][0], "request_new_plan");
    }
}
