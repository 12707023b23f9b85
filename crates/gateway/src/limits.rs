//! How often rules were used lately: one sliding window per rule and principal, in this process.
//! The gate looks (`Usage`); taking a place is one step under a lock, so that two calls can't share the last one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use countersign_core::duration::Rate;
use countersign_core::gate::Usage;
use countersign_core::ids::PrincipalId;
use countersign_core::rules::RuleName;
use jiff::Timestamp;

type Key = (RuleName, PrincipalId);

/// The windows of all rules.
#[derive(Debug, Default)]
pub struct Windows {
    taken: Mutex<HashMap<Key, VecDeque<Timestamp>>>,
}

impl Windows {
    /// Takes a place, or says how long to wait for one.
    pub fn take(
        &self,
        rule: &RuleName,
        principal: &PrincipalId,
        rate: Rate,
        now: Timestamp,
    ) -> Result<(), Duration> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let window = taken.entry((rule.clone(), principal.clone())).or_default();
        forget(window, rate, now);
        match wait(window, rate, now) {
            Some(wait) => Err(wait),
            None => {
                window.push_back(now);
                Ok(())
            }
        }
    }
}

impl Usage for Windows {
    fn wait(&self, rule: &RuleName, principal: &PrincipalId, rate: Rate, now: Timestamp) -> Option<Duration> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let window = taken.get_mut(&(rule.clone(), principal.clone()))?;
        forget(window, rate, now);
        wait(window, rate, now)
    }
}

/// What left the window no longer counts. A clock set back keeps its entries: closed by default.
fn forget(window: &mut VecDeque<Timestamp>, rate: Rate, now: Timestamp) {
    while window.front().is_some_and(|first| age(*first, now) >= rate.window) {
        window.pop_front();
    }
}

fn wait(window: &VecDeque<Timestamp>, rate: Rate, now: Timestamp) -> Option<Duration> {
    let full = u32::try_from(window.len()).unwrap_or(u32::MAX) >= rate.count;
    let first = window.front().filter(|_| full)?;
    Some(rate.window.saturating_sub(age(*first, now)))
}

fn age(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_slides() {
        let windows = Windows::default();
        let (rule, who) = (RuleName("r".into()), PrincipalId::new("a"));
        let rate: Rate = "2/s".parse().unwrap();
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        assert_eq!(windows.take(&rule, &who, rate, at(0)), Ok(()));
        assert_eq!(windows.take(&rule, &who, rate, at(400)), Ok(()));
        assert_eq!(windows.take(&rule, &who, rate, at(500)), Err(Duration::from_millis(500)));
        assert_eq!(windows.wait(&rule, &who, rate, at(900)), Some(Duration::from_millis(100)));
        assert_eq!(windows.wait(&rule, &who, rate, at(1000)), None);
        assert_eq!(windows.take(&rule, &who, rate, at(1000)), Ok(()));
        assert!(windows.take(&rule, &who, rate, at(10)).is_err(), "a clock set back opens nothing");
        assert_eq!(windows.take(&rule, &"b".into(), rate, at(1000)), Ok(()), "principals do not share");
    }
}
