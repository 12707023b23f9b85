//! Moments as people type them: a span back from now, a day, or an exact moment. Brings no clock of its own.

use std::str::FromStr;
use std::time::Duration;

use countersign_policy::duration;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// A moment that may depend on now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TimeArgument {
    /// So long ago: `7d`.
    Ago(Duration),
    /// The start of a day where the reader lives: `2026-11-15`.
    Day(Date),
    /// Exactly then: `2026-11-15T09:00:00Z`.
    At(Timestamp),
}

impl TimeArgument {
    pub(crate) fn resolve(&self, now: Timestamp, zone: &TimeZone) -> Timestamp {
        match self {
            TimeArgument::Ago(span) => now.checked_sub(*span).unwrap_or(Timestamp::MIN),
            TimeArgument::Day(day) => {
                day.to_zoned(zone.clone()).map_or(Timestamp::MIN, |start| start.timestamp())
            }
            TimeArgument::At(moment) => *moment,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAMoment;

impl std::fmt::Display for NotAMoment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "write a span such as `2h` or `7d`, a day such as `2026-11-15`, or `2026-11-15T09:00:00Z`",
        )
    }
}

impl std::error::Error for NotAMoment {}

impl FromStr for TimeArgument {
    type Err = NotAMoment;

    fn from_str(text: &str) -> Result<Self, NotAMoment> {
        if let Ok(span) = duration::parse(text) {
            return Ok(Self::Ago(span));
        }
        if let Ok(moment) = text.parse() {
            return Ok(Self::At(moment));
        }
        // jiff would also take the day out of a longer text and forget the rest.
        let day = Date::strptime("%Y-%m-%d", text).map_err(|_| NotAMoment)?;
        Ok(Self::Day(day))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_say_when() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        let check = |text: &str, expect: &str| {
            let moment = text.parse::<TimeArgument>().unwrap().resolve(now, &TimeZone::UTC);
            assert_eq!(moment.to_string(), expect, "{text}");
        };
        check("2h", "2026-11-15T10:00:00Z");
        check("7d", "2026-11-08T12:00:00Z");
        check("2026-11-01", "2026-11-01T00:00:00Z");
        check("2026-11-01T05:06:07+01:00", "2026-11-01T04:06:07Z");
        for bad in ["", "yesterday", "7", "2026-13-01", "2026-11-15 09:00"] {
            assert!(bad.parse::<TimeArgument>().is_err(), "{bad}");
        }
    }
}
