//! How the process ends: one mapping from what was said to a number, and the only one.

use std::process::ExitCode;

use countersign_policy::refusal::{Code, Refusal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok,
    Fault,
    Usage,
    Refused,
    NeedsConfirmation,
    /// What was reviewed is not what is there any more.
    Drift,
}

impl Exit {
    pub const fn number(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Fault => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::NeedsConfirmation => 4,
            Exit::Drift => 5,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.number())
    }
}

/// How a command that was refused ends.
pub fn exit_for(refusal: &Refusal) -> Exit {
    match refusal.code {
        Code::ConfirmRequired
        | Code::ConfirmTokenRequired
        | Code::ApprovalPending
        | Code::AdoptConfirmRequired => Exit::NeedsConfirmation,
        Code::ConfirmTokenMismatch if refusal.reason_code == "plan_drifted" => Exit::Drift,
        Code::ApplyDrifted => Exit::Drift,
        // Broken, not forbidden. After these two of an upstream the change may even have happened: "refused" would lie.
        Code::UpstreamUnavailable | Code::UpstreamTimeout | Code::StoreUnavailable => Exit::Fault,
        Code::IntentRequired
        | Code::IntentOperationRequired
        | Code::IntentOperationInvalid
        | Code::IntentMismatch
        | Code::IntentServerMismatch
        | Code::ArgumentsInvalid
        | Code::ModeAsk
        | Code::ModeInvalid
        | Code::ModeForbidden
        | Code::RoleForbidden
        | Code::ScopeForbidden
        | Code::ToolNotFound
        | Code::ToolChanged
        | Code::ToolQuarantined
        | Code::RuleDenied
        | Code::RuleError
        | Code::LimitExceeded
        | Code::PrincipalPaused
        | Code::PreviewFailed
        | Code::LedgerUnavailable
        | Code::ClockUntrusted
        | Code::ConfirmTokenMismatch
        | Code::ConfirmTokenUsed
        | Code::ConfirmTokenExpired
        | Code::ConfirmTextMismatch
        | Code::PlanCancelled
        | Code::ApprovalRejected
        | Code::PlanNotFound
        | Code::PlanDecided
        | Code::StepFailed
        | Code::GrantForbidden
        | Code::CredentialRequired
        | Code::OriginForbidden
        | Code::ConfigInvalid
        | Code::LedgerTampered
        | Code::LedgerUnverified
        | Code::NotFound
        | Code::Duplicate
        | Code::ProposalDecided
        | Code::SnapshotNotFound
        | Code::ConfigMissing
        | Code::ConfigUnsupportedVersion
        | Code::LockfileMissing
        | Code::LockfileInvalid
        | Code::LockfileUnsupportedVersion
        | Code::TargetUnsupported
        | Code::DesiredStateConflict
        | Code::OverlayNotFound
        | Code::OverlayBaselineMissing
        | Code::OverlayBaselineUnsupported
        | Code::OverlayRebaseConflict
        | Code::OverlayPatchApplyFailed
        | Code::ImportConflict
        | Code::PolicyViolations
        | Code::PolicyConfigMissing
        | Code::PolicyConfigInvalid
        | Code::PolicyConfigUnsupportedVersion
        | Code::GitNotFound
        | Code::GitRepoRequired
        | Code::GitWorktreeDirty
        | Code::GitDetachedHead
        | Code::GitRemoteMissing
        | Code::GitFailed
        | Code::IoPermissionDenied
        | Code::IoInvalidPath
        | Code::IoPathTooLong
        | Code::TtyRequired => Exit::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_ends_as_documented() {
        let check = |code, reason: Option<&'static str>, expect| {
            let refusal = Refusal::new(code, "m");
            let refusal = reason.map_or(refusal.clone(), |reason| refusal.because(reason));
            assert_eq!(exit_for(&refusal), expect, "{code}");
        };
        check(Code::ConfirmRequired, None, Exit::NeedsConfirmation);
        check(Code::ConfirmTokenMismatch, None, Exit::Refused);
        check(Code::ConfirmTokenMismatch, Some("plan_drifted"), Exit::Drift);
        check(Code::StoreUnavailable, None, Exit::Fault);
        check(Code::ConfigInvalid, None, Exit::Refused);
        // No refusal ever looks like a success or like a mistyped command.
        for code in Code::ALL {
            assert!(!matches!(exit_for(&Refusal::new(*code, "m")), Exit::Ok | Exit::Usage), "{code}");
        }
    }
}
