//! Moments as people read them on a terminal, and as programs read them in a pipe.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

#[derive(Clone, Debug)]
pub(crate) enum TimeDisplay {
    /// To a person, in their own time zone, with what is obvious left out.
    Person { zone: TimeZone, now: Timestamp },
    /// To a program: always the same form.
    Program,
}

pub(crate) fn shown(moment: Timestamp, to: &TimeDisplay) -> String {
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
pub(crate) fn exact(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

pub(crate) fn span(took: Duration) -> String {
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
}
