//! Confirm profiles: how strong an agreement a call needs where no rule says so. No profile accepts `caller`; an operator
//! has to write that down.

use serde::Serialize;

use crate::confirm::{ApprovalStrength, Kind};
use crate::effect::Effect;
use crate::words::words;

words! {
    /// `[confirm] profile`: who has to agree to a change by default.
    pub enum ConfirmProfile("profile") {
        /// One person and their agents: the host's dialog is enough, a typed name needs a credential.
        Solo = "solo",
        /// Several people: a human credential decides every change.
        Team = "team",
        /// Like `team`. Asks for `gesture` where that exists; until then for `human`.
        Regulated = "regulated",
    }
}

impl ConfirmProfile {
    /// The strength this profile asks for.
    pub const fn strength(self, kind: Kind) -> ApprovalStrength {
        match (self, kind) {
            (Self::Solo | Self::Team | Self::Regulated, Kind::None) => ApprovalStrength::Caller,
            (Self::Solo, Kind::Simple | Kind::Preview) => ApprovalStrength::Host,
            (Self::Solo, Kind::Type)
            | (Self::Team | Self::Regulated, Kind::Simple | Kind::Preview | Kind::Type) => {
                ApprovalStrength::Human
            }
        }
    }

    /// Whether the strength of this profile will rise to `gesture` once passkeys exist.
    pub const fn awaits_gesture(self, kind: Kind) -> bool {
        match (self, kind) {
            (Self::Regulated, Kind::Preview | Kind::Type) => true,
            (Self::Regulated, Kind::None | Kind::Simple)
            | (Self::Solo | Self::Team, Kind::None | Kind::Simple | Kind::Preview | Kind::Type) => false,
        }
    }
}

/// What decides the strength of calls whose rules do not: a profile, and what overrides it per effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrengthDefaults {
    pub profile: ConfirmProfile,
    pub write: Option<ApprovalStrength>,
    pub destructive: Option<ApprovalStrength>,
}

impl Default for StrengthDefaults {
    fn default() -> Self {
        Self { profile: ConfirmProfile::Solo, write: None, destructive: None }
    }
}

/// Where a strength comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StrengthOrigin {
    Rule,
    Confirm,
    Profile,
}

impl StrengthDefaults {
    /// The strength a call needs where no rule decides it, and what says so.
    pub fn strength(self, effect: Effect, kind: Kind) -> (ApprovalStrength, StrengthOrigin) {
        let usual = self.profile.strength(kind);
        let written = match (effect, kind) {
            (_, Kind::None) | (Effect::Read, _) => None,
            (Effect::Write, Kind::Simple | Kind::Preview | Kind::Type) => self.write,
            (Effect::Destructive, Kind::Simple | Kind::Preview | Kind::Type) => self.destructive,
        };
        match (written, kind) {
            (None, _) => (usual, StrengthOrigin::Profile),
            // A rule asked for a typed name because the call deserves more care: only a rule may lower that.
            (Some(written), Kind::Type) if written < usual => (usual, StrengthOrigin::Profile),
            (Some(written), _) => (written, StrengthOrigin::Confirm),
        }
    }
}
