//! Modes: what may happen now, and which of three places says so. Never shared between principals.

use crate::words::words;

words! {
    /// What may happen now, weakest first.
    pub enum Mode("mode") {
        /// Inspect: reads run, writes are explained.
        Ask = "ask",
        /// Preview: reads run, writes are dry-run.
        Plan = "plan",
        /// Change: writes go through the confirm protocol.
        Execute = "execute",
    }
}

/// The three places a mode may come from, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSources {
    /// The call's own `mode`.
    pub call: Option<Mode>,
    /// What `set_mode` left on the session.
    pub session: Option<Mode>,
    pub configured: Mode,
}

impl ModeSources {
    /// The mode in force: the call's, else the session's, else the configured one.
    pub fn resolve(self) -> Mode {
        self.call.or(self.session).unwrap_or(self.configured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_beats_the_session_beats_the_default() {
        let check = |call, session, expect| {
            assert_eq!(ModeSources { call, session, configured: Mode::Ask }.resolve(), expect);
        };
        check(None, None, Mode::Ask);
        check(None, Some(Mode::Execute), Mode::Execute);
        check(Some(Mode::Plan), Some(Mode::Execute), Mode::Plan);
        check(Some(Mode::Execute), Some(Mode::Ask), Mode::Execute);
    }
}
