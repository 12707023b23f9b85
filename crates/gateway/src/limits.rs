//! Rate limits of rules: one sliding window per rule and principal, in this process. The policy only looks at a window. Taking
//! a place is one step under a lock, so that two calls can't share the last one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use countersign_policy::duration::RateLimit;
use countersign_policy::gate::RuleUsage;
use countersign_policy::ids::PrincipalId;
use countersign_policy::rules::RuleName;
use jiff::Timestamp;

type RateLimitKey = (RuleName, PrincipalId);

#[derive(Debug, Default)]
pub(crate) struct RateLimitWindows {
    taken: Mutex<HashMap<RateLimitKey, VecDeque<Timestamp>>>,
}

impl RateLimitWindows {
    /// Takes a place, or returns how long to wait for one.
    pub(crate) fn take(
        &self,
        rule: &RuleName,
        principal: &PrincipalId,
        rate: RateLimit,
        now: Timestamp,
    ) -> Result<(), Duration> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let window = taken.entry((rule.clone(), principal.clone())).or_default();
        drop_expired(window, rate, now);
        match time_to_wait(window, rate, now) {
            Some(wait) => Err(wait),
            None => {
                window.push_back(now);
                Ok(())
            }
        }
    }
}

impl RuleUsage for RateLimitWindows {
    fn wait(
        &self,
        rule: &RuleName,
        principal: &PrincipalId,
        rate: RateLimit,
        now: Timestamp,
    ) -> Option<Duration> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let window = taken.get_mut(&(rule.clone(), principal.clone()))?;
        drop_expired(window, rate, now);
        time_to_wait(window, rate, now)
    }
}

/// A clock that was set back drops nothing: closed by default.
fn drop_expired(window: &mut VecDeque<Timestamp>, rate: RateLimit, now: Timestamp) {
    while window.front().is_some_and(|first| age(*first, now) >= rate.window) {
        window.pop_front();
    }
}

fn time_to_wait(window: &VecDeque<Timestamp>, rate: RateLimit, now: Timestamp) -> Option<Duration> {
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
        let windows = RateLimitWindows::default();
        let (rule, who) = (RuleName("r".into()), PrincipalId::new("a"));
        let rate: RateLimit = "2/s".parse().unwrap();
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
