//! Spans of time and rates as people write them: `5m`, `90s`, `20/min`. No clock here.

use std::time::Duration;

/// The text is no span or rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not {expected}")]
pub struct NotASpan {
    given: String,
    expected: &'static str,
}

/// Reads `250ms`, `90s`, `5m`, `2h`, `7d`.
pub fn parse(text: &str) -> Result<Duration, NotASpan> {
    let refuse = || NotASpan { given: text.to_owned(), expected: "a span such as `30s`, `5m`, `2h` or `7d`" };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(refuse)?;
    let number: u64 = number.parse().map_err(|_| refuse())?;
    let unit_millis = match unit {
        "ms" => 1,
        "s" | "sec" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(refuse()),
    };
    number
        .checked_mul(unit_millis)
        .filter(|millis| *millis <= 3_155_760_000_000)
        .map(Duration::from_millis)
        .ok_or_else(refuse)
}

/// At most so many calls in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    pub count: u32,
    pub window: Duration,
}

impl std::str::FromStr for RateLimit {
    type Err = NotASpan;

    /// Reads `20/min`, `5/s`, `100/h`, `3/day`.
    fn from_str(text: &str) -> Result<Self, NotASpan> {
        let refuse = || NotASpan { given: text.to_owned(), expected: "a rate such as `20/min`" };
        let (count, unit) = text.split_once('/').ok_or_else(refuse)?;
        let count: u32 = count.trim().parse().map_err(|_| refuse())?;
        let seconds = match unit.trim() {
            "s" | "sec" | "second" => 1,
            "m" | "min" | "minute" => 60,
            "h" | "hour" => 3_600,
            "d" | "day" => 86_400,
            _ => return Err(refuse()),
        };
        if count == 0 {
            return Err(refuse());
        }
        Ok(Self { count, window: Duration::from_secs(seconds) })
    }
}

impl std::fmt::Display for RateLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = match self.window.as_secs() {
            1 => "s",
            60 => "min",
            3_600 => "h",
            _ => "day",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_rates() {
        for (text, millis) in
            [("250ms", 250), ("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000), ("7d", 604_800_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "5", "m", "-1s", "1.5h", "5 m", "99999999999999999999d", "9000000000000000d", "é"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!("20/min".parse(), Ok(RateLimit { count: 20, window: Duration::from_secs(60) }));
        for bad in ["", "20", "0/min", "20/fortnight", "x/min", "-1/s"] {
            assert!(bad.parse::<RateLimit>().is_err(), "{bad}");
        }
        for text in ["20/min", "5/s", "100/h", "3/day"] {
            assert_eq!(text.parse::<RateLimit>().unwrap().to_string(), text);
        }
    }
}
