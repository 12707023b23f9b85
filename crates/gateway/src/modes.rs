//! What is known of sessions' modes without asking the store, which every call would have to. What this process has set it
//! knows for good; that nothing was set it believes for a moment, since another process on the same file may set it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use countersign_core::ids::{PrincipalId, SessionId};
use countersign_core::mode::Mode;

/// How long "nothing was set" is believed.
const BELIEVED: Duration = Duration::from_millis(500);
/// How many sessions are known at once: a client may name as many as it likes.
const MOST: usize = 4096;

/// Whose session.
type Key = (PrincipalId, SessionId);

#[derive(Clone, Copy)]
enum Known {
    Set(Mode),
    /// Nothing was, when the store was asked.
    Nothing(Instant),
}

/// The modes of sessions, as far as they are known here.
#[derive(Default)]
pub(crate) struct Modes {
    known: HashMap<Key, Known>,
    swept: Option<Instant>,
}

impl Modes {
    /// What is known: a mode, or that there is none; nothing where the store has to be asked.
    pub(crate) fn find(&self, key: &Key) -> Option<Option<Mode>> {
        match self.known.get(key)? {
            Known::Set(mode) => Some(Some(*mode)),
            Known::Nothing(asked) => (asked.elapsed() < BELIEVED).then_some(None),
        }
    }

    /// What the store said when it was asked. Whatever was set here meanwhile is newer.
    pub(crate) fn found(&mut self, key: Key, stored: Option<Mode>, asked: Instant) {
        if self.swept.is_some_and(|swept| swept >= asked)
            || matches!(self.known.get(&key), Some(Known::Set(_)))
        {
            return;
        }
        self.make_room();
        self.known.insert(key, stored.map_or(Known::Nothing(asked), Known::Set));
    }

    /// What was set here, and is in the store.
    pub(crate) fn set(&mut self, key: Key, mode: Mode) {
        self.make_room();
        self.known.insert(key, Known::Set(mode));
    }

    /// Everything can be read from the store again.
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

    fn key(session: &str) -> Key {
        (PrincipalId::new("p"), SessionId::new(session))
    }

    #[test]
    fn nothing_is_believed_for_a_moment_and_a_mode_for_good() {
        let mut modes = Modes::default();
        let now = Instant::now();
        assert_eq!(modes.find(&key("s")), None);
        modes.found(key("s"), None, now);
        assert_eq!(modes.find(&key("s")), Some(None));
        let before = now.checked_sub(BELIEVED).unwrap();
        modes.found(key("s"), None, before);
        assert_eq!(modes.find(&key("s")), None, "the store is asked again");
        modes.set(key("s"), Mode::Plan);
        assert_eq!(modes.find(&key("s")), Some(Some(Mode::Plan)));
    }

    #[test]
    fn an_answer_of_the_store_never_undoes_what_was_set_meanwhile() {
        let mut modes = Modes::default();
        let asked = Instant::now();
        modes.set(key("s"), Mode::Ask);
        modes.found(key("s"), None, asked);
        assert_eq!(modes.find(&key("s")), Some(Some(Mode::Ask)));
        // Not even where it was swept out in between.
        for number in 0..MOST {
            modes.set(key(&number.to_string()), Mode::Ask);
        }
        modes.found(key("s"), None, asked);
        assert_eq!(modes.find(&key("s")), None);
    }

    #[test]
    fn a_client_that_names_sessions_without_end_fills_nothing() {
        let mut modes = Modes::default();
        for number in 0..3 * MOST {
            modes.found(key(&number.to_string()), None, Instant::now());
        }
        assert!(modes.known.len() <= MOST);
    }
}
