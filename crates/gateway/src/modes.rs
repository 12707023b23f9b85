//! A cache of sessions' modes, so that not every call reads the store. A mode that this process set stays cached. "No mode was
//! set" expires soon: another process on the same file may set one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use countersign_policy::ids::{PrincipalId, SessionId};
use countersign_policy::mode::Mode;

/// How long "no mode was set" is cached.
const UNSET_LIFE: Duration = Duration::from_millis(500);
/// How many sessions are cached. A client may name as many as it likes.
const MOST: usize = 4096;

type SessionModeKey = (PrincipalId, SessionId);

#[derive(Clone, Copy)]
enum CachedMode {
    Set(Mode),
    /// None was set when the store was read.
    Unset(Instant),
}

#[derive(Default)]
pub(crate) struct SessionModes {
    known: HashMap<SessionModeKey, CachedMode>,
    swept: Option<Instant>,
}

impl SessionModes {
    /// The cached mode, or that none was set; `None` where the store has to be read.
    pub(crate) fn find(&self, key: &SessionModeKey) -> Option<Option<Mode>> {
        match self.known.get(key)? {
            CachedMode::Set(mode) => Some(Some(*mode)),
            CachedMode::Unset(asked) => (asked.elapsed() < UNSET_LIFE).then_some(None),
        }
    }

    /// Caches what was read from the store at `asked`. A mode set here since is newer and stays.
    pub(crate) fn insert_read(&mut self, key: SessionModeKey, stored: Option<Mode>, asked: Instant) {
        if self.swept.is_some_and(|swept| swept >= asked)
            || matches!(self.known.get(&key), Some(CachedMode::Set(_)))
        {
            return;
        }
        self.make_room();
        self.known.insert(key, stored.map_or(CachedMode::Unset(asked), CachedMode::Set));
    }

    /// Caches a mode that was set here and is in the store.
    pub(crate) fn set(&mut self, key: SessionModeKey, mode: Mode) {
        self.make_room();
        self.known.insert(key, CachedMode::Set(mode));
    }

    fn make_room(&mut self) {
        if self.known.len() >= MOST {
            self.known.clear();
            self.swept = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(session: &str) -> SessionModeKey {
        (PrincipalId::new("p"), SessionId::new(session))
    }

    #[test]
    fn nothing_is_believed_for_a_moment_and_a_mode_for_good() {
        let mut modes = SessionModes::default();
        let now = Instant::now();
        assert_eq!(modes.find(&key("s")), None);
        modes.insert_read(key("s"), None, now);
        assert_eq!(modes.find(&key("s")), Some(None));
        let before = now.checked_sub(UNSET_LIFE).unwrap();
        modes.insert_read(key("s"), None, before);
        assert_eq!(modes.find(&key("s")), None, "the store is asked again");
        modes.set(key("s"), Mode::Plan);
        assert_eq!(modes.find(&key("s")), Some(Some(Mode::Plan)));
    }

    #[test]
    fn an_answer_of_the_store_never_undoes_what_was_set_meanwhile() {
        let mut modes = SessionModes::default();
        let asked = Instant::now();
        modes.set(key("s"), Mode::Ask);
        modes.insert_read(key("s"), None, asked);
        assert_eq!(modes.find(&key("s")), Some(Some(Mode::Ask)));
        // Not even where it was swept out in between.
        for number in 0..MOST {
            modes.set(key(&number.to_string()), Mode::Ask);
        }
        modes.insert_read(key("s"), None, asked);
        assert_eq!(modes.find(&key("s")), None);
    }

    #[test]
    fn a_client_that_names_sessions_without_end_fills_nothing() {
        let mut modes = SessionModes::default();
        for number in 0..3 * MOST {
            modes.insert_read(key(&number.to_string()), None, Instant::now());
        }
        assert!(modes.known.len() <= MOST);
    }
}
