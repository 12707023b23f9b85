//! What `init` asks a person about a new set-up, and what it takes where nobody is asked: how hosts reach the gateway, who has to agree
//! to changes, and whether sessions begin working or looking only. Says what was taken, and writes nothing.

use countersign_policy::mode::Mode;
use countersign_policy::profile::ConfirmProfile;

use super::InitArgs;
use super::document::who_agrees;
use super::service::ServiceRunner;
use crate::output::OutputSettings;
use crate::person::ask;

/// How a set-up shall be.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetupChoices {
    pub(super) profile: ConfirmProfile,
    pub(super) mode: Mode,
    /// What keeps the one gateway of all hosts running; none where each host starts its own.
    pub(super) service: Option<ServiceRunner>,
}

/// With approvals in front of every change, agents that may ask for one cost less than agents that are refused first.
const USUAL_MODE: Mode = Mode::Execute;

impl SetupChoices {
    pub(super) fn of(args: &InitArgs, service: Option<ServiceRunner>) -> Self {
        let profile = args.profile.unwrap_or(ConfirmProfile::Solo);
        Self { profile, mode: args.mode.unwrap_or(USUAL_MODE), service }
    }

    /// One gateway for all hosts is offered first, where something here can keep it running.
    pub(super) fn ask_service(&mut self, voice: OutputSettings) {
        let Some(manager) = ServiceRunner::here() else { return };
        let shared = format!(
            "one for all of them, as a service of your account ({}): servers run once, changes are decided on the page",
            manager.name()
        );
        let own = "each host starts its own: servers run once per host session";
        if ask::choice(voice, "How shall hosts reach countersign?", &[&shared, own], 1) == 0 {
            self.service = Some(manager);
        }
    }

    /// What a new configuration says and the command line does not.
    pub(super) fn ask(&mut self, args: &InitArgs, voice: OutputSettings) {
        if args.profile.is_none() {
            let profiles = [ConfirmProfile::Solo, ConfirmProfile::Team, ConfirmProfile::Regulated];
            let texts = profiles.map(|profile| format!("{} ({profile})", who_agrees(profile)));
            let chosen =
                ask::choice(voice, "Who must agree to a change?", &texts.each_ref().map(String::as_str), 0);
            self.profile = profiles.get(chosen).copied().unwrap_or(self.profile);
        }
        if args.mode.is_none() {
            let modes = [Mode::Execute, Mode::Ask];
            let texts = modes.map(mode_words);
            let chosen = ask::choice(voice, "How shall sessions begin?", &texts, 0);
            self.mode = modes.get(chosen).copied().unwrap_or(self.mode);
        }
    }

    /// What was taken, a line each with the option that says otherwise.
    pub(super) fn lines(&self) -> [String; 2] {
        [
            format!("who agrees to changes: {} (--profile {})", who_agrees(self.profile), self.profile),
            format!("sessions begin {} (--mode {})", mode_words(self.mode), self.mode),
        ]
    }
}

fn mode_words(mode: Mode) -> &'static str {
    match mode {
        Mode::Execute => "working: each change is asked about",
        Mode::Plan => "planning: changes are only previewed",
        Mode::Ask => "looking only: a change is refused until the agent switches the mode",
    }
}
