//! Moments as people read them on a terminal, and as programs read them in a pipe.

use std::time::Duration;

use countersign_policy::words::plural;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::OutputSettings;
use crate::person::ask;

#[derive(Clone, Debug)]
pub enum TimeDisplay {
    /// To a person, in their own time zone, with what is obvious left out.
    Person { zone: TimeZone, now: Timestamp },
    /// To a program: always the same form.
    Program,
}

pub fn shown(moment: Timestamp, to: &TimeDisplay) -> String {
    match to {
        TimeDisplay::Program => exact(moment),
        TimeDisplay::Person { zone, now } => {
            let (then, today) = (moment.to_zoned(zone.clone()), now.to_zoned(zone.clone()));
            let form = if then.date() == today.date() {
                "%H:%M:%S"
            } else if then.year() == today.year() {
                "%d %b %H:%M"
            } else {
                "%Y-%m-%d"
            };
            then.strftime(form).to_string()
        }
    }
}

/// A moment to the millisecond, in UTC.
pub fn exact(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// How times are shown: to a person in their own time zone.
pub fn zone(voice: OutputSettings, now: Timestamp) -> TimeDisplay {
    if voice.is_watched() || ask::can_ask(voice) {
        TimeDisplay::Person { zone: TimeZone::system(), now }
    } else {
        TimeDisplay::Program
    }
}

/// How long is left, in two units at most.
pub fn left(until: Timestamp, now: Timestamp) -> String {
    let seconds = until.duration_since(now).as_secs().max(0);
    match seconds {
        0 => "no time".to_owned(),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => plural(seconds / 86_400, "day"),
    }
}

pub fn span(took: Duration) -> String {
    match took.as_micros() {
        micros @ 0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", took.as_secs_f64() * 1e3),
        1_000_000..60_000_000 => format!("{:.1} s", took.as_secs_f64()),
        _ => format!("{} min {} s", took.as_secs() / 60, took.as_secs() % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_told_no_more_than_needed() {
        let now: Timestamp = "2026-11-15T22:00:00Z".parse().unwrap();
        let to = TimeDisplay::Person { zone: TimeZone::UTC, now };
        let check = |moment: &str, expect: &str| assert_eq!(shown(moment.parse().unwrap(), &to), expect);
        check("2026-11-15T09:08:07Z", "09:08:07");
        check("2026-11-14T09:08:07Z", "14 Nov 09:08");
        check("2025-11-14T09:08:07Z", "2025-11-14");
        assert_eq!(shown(now, &TimeDisplay::Program), "2026-11-15T22:00:00.000Z");
    }

    #[test]
    fn spans_have_a_fitting_unit() {
        let check = |micros, expect: &str| assert_eq!(span(Duration::from_micros(micros)), expect);
        check(999, "999 µs");
        check(12_345, "12.3 ms");
        check(1_500_000, "1.5 s");
        check(125_000_000, "2 min 5 s");
    }

    #[test]
    fn what_is_left_is_said_in_two_units() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let check = |seconds: i64, expect: &str| {
            assert_eq!(left(Timestamp::from_second(1_000_000 + seconds).unwrap(), now), expect);
        };
        check(-5, "no time");
        check(59, "59 s");
        check(252, "4 min 12 s");
        check(7_260, "2 h 1 min");
        check(90_000, "1 day");
        check(200_000, "2 days");
    }
}
