//! Numbers: the shortest decimal of a double, its text as RFC 8785 wants it, and the judgement whether a written number
//! survives a double. Never rounds: a number passes with its value intact or not at all.

use std::fmt::{self, Write as _};

use serde_json::Number;

use super::fault::StrictFault;

/// Up to here every integer is a double of its own.
const SAFE: u64 = 1 << 53;
/// No shortest decimal of a double has more digits.
const MOST_DIGITS: usize = 17;
/// Written exponents are read up to this; it lies far beyond what the length of any text can make up for.
const FAR: i64 = 1_000_000_000_000;

/// A number as it was written, grammar already checked, still in its pieces.
#[derive(Clone, Copy)]
pub(super) struct Literal<'t> {
    /// All of it.
    pub(super) text: &'t str,
    /// Whether it starts with a minus sign.
    pub(super) negative: bool,
    /// Digits before the point.
    pub(super) whole: &'t str,
    /// Digits after the point, if there is one.
    pub(super) fraction: Option<&'t str>,
    /// What follows the `e`, sign included, if there is one.
    pub(super) exponent: Option<&'t str>,
}

impl Literal<'_> {
    /// The number to keep, or why it cannot be kept unchanged.
    pub(super) fn number(self) -> Result<Number, StrictFault> {
        let is_integer = self.fraction.is_none() && self.exponent.is_none();
        if is_integer && self.whole.len() <= 15 {
            let size = self.whole.bytes().fold(0, |sum, digit| sum * 10 + u64::from(digit & 0x0F));
            return integer(self.negative, size).ok_or(StrictFault::NegativeZero);
        }
        let Some(written) = self.decimal() else {
            let double = self.text.parse::<f64>().unwrap_or(f64::INFINITY).abs();
            return Err(self.changes(double));
        };
        if written.mantissa == 0 {
            return integer(self.negative, 0).ok_or(StrictFault::NegativeZero);
        }
        let double = written.double();
        let shortest = Decimal::shortest(double);
        if shortest != written {
            return Err(self.changes(double));
        }
        match shortest.integer() {
            None if is_integer => Err(self.changes(double)),
            None => fraction(self.negative, double),
            Some(size) if double as u128 != size => Err(changes(self.text, self.negative, double as u128)),
            Some(size) => match u64::try_from(size).ok().and_then(|size| integer(self.negative, size)) {
                Some(number) => Ok(number),
                None => fraction(self.negative, double),
            },
        }
    }

    /// The exact value, or nothing if it has more digits than the shortest decimal of any double.
    fn decimal(self) -> Option<Decimal> {
        let (mut mantissa, mut length, mut zeros, mut last) = (0u64, 0usize, 0u32, 0i64);
        for (place, digit) in (0i64..).zip(self.whole.bytes().chain(self.fraction.unwrap_or("").bytes())) {
            if digit == b'0' {
                // Zeros count once a later digit makes them significant.
                zeros = if length == 0 { 0 } else { zeros.saturating_add(1) };
                continue;
            }
            length = length.saturating_add(zeros as usize + 1);
            if length > MOST_DIGITS {
                return None;
            }
            mantissa = mantissa * 10u64.pow(zeros + 1) + u64::from(digit & 0x0F);
            zeros = 0;
            last = place;
        }
        if mantissa == 0 {
            return Some(Decimal { mantissa: 0, exponent: 0 });
        }
        let point = i64::try_from(self.whole.len()).ok()?;
        Some(Decimal { mantissa, exponent: point - 1 - last + self.shift() })
    }

    /// The written exponent, cut where only its size matters.
    fn shift(self) -> i64 {
        let text = self.exponent.unwrap_or("");
        let digits = text.trim_start_matches(['+', '-']);
        let size = digits.bytes().fold(0, |sum: i64, digit| (sum * 10 + i64::from(digit & 0x0F)).min(FAR));
        if text.starts_with('-') { -size } else { size }
    }

    /// The refusal of a number whose double is this one.
    fn changes(self, double: f64) -> StrictFault {
        if double.is_infinite() {
            return StrictFault::NumberOverflow;
        }
        let mut becomes = String::new();
        if self.negative {
            becomes.push('-');
        }
        Decimal::shortest(double).write(&mut becomes);
        StrictFault::NumberChanges { text: self.text.to_owned(), becomes }
    }
}

/// Whether a number built in memory is one that [`Literal::number`] would keep unchanged.
pub(super) fn check(number: &Number) -> Result<(), StrictFault> {
    if let Some(size) = number.as_u64() {
        return check_integer(false, size);
    }
    if let Some(value) = number.as_i64() {
        return check_integer(value < 0, value.unsigned_abs());
    }
    let Some(double) = number.as_f64().filter(|double| double.is_finite()) else {
        return Err(StrictFault::NumberOverflow);
    };
    if double == 0.0 && double.is_sign_negative() {
        return Err(StrictFault::NegativeZero);
    }
    let (negative, double) = (double < 0.0, double.abs());
    match Decimal::shortest(double).integer() {
        Some(size) if double as u128 != size => {
            let sign = if negative { "-" } else { "" };
            Err(changes(&format!("{sign}{size}"), negative, double as u128))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_integer(negative: bool, size: u64) -> Result<(), StrictFault> {
    if size <= SAFE {
        return Ok(());
    }
    let double = size as f64;
    let printed = Decimal::shortest(double).integer().unwrap_or_default();
    let wide = u128::from(size);
    let becomes = if printed != wide { printed } else { double as u128 };
    if becomes == wide {
        return Ok(());
    }
    let sign = if negative { "-" } else { "" };
    Err(changes(&format!("{sign}{size}"), negative, becomes))
}

fn changes(text: &str, negative: bool, becomes: u128) -> StrictFault {
    let sign = if negative { "-" } else { "" };
    StrictFault::NumberChanges { text: text.to_owned(), becomes: format!("{sign}{becomes}") }
}

/// An integer as `serde_json` keeps it; nothing for negative zero and for what does not fit.
fn integer(negative: bool, size: u64) -> Option<Number> {
    match (negative, size) {
        (false, size) => Some(Number::from(size)),
        (true, 0) => None,
        (true, size) => 0i64.checked_sub_unsigned(size).map(Number::from),
    }
}

fn fraction(negative: bool, double: f64) -> Result<Number, StrictFault> {
    Number::from_f64(if negative { -double } else { double }).ok_or(StrictFault::NumberOverflow)
}

/// `mantissa` times ten to the `exponent`, without trailing zeros in the mantissa; zero is 0 times 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    mantissa: u64,
    exponent: i64,
}

impl Decimal {
    /// The shortest decimal that reads back as this double, the nearest one where several are as short.
    /// The sign is left aside; the double must be finite.
    pub(crate) fn shortest(double: f64) -> Self {
        let mut digits = Digits::default();
        // `{:e}` is the standard library's shortest form; `Digits` takes it apart without a buffer and cannot fail.
        let _ = write!(digits, "{:e}", double.abs());
        digits.decimal()
    }

    /// The nearest double; infinite beyond the range.
    fn double(self) -> f64 {
        // Seventeen digits cannot bring an exponent of this size back into range; short texts parse fast.
        match self.exponent {
            401.. => f64::INFINITY,
            ..=-401 => 0.0,
            exponent => format!("{}e{exponent}", self.mantissa).parse().unwrap_or(f64::INFINITY),
        }
    }

    /// Digits of the mantissa, and how many digits stand before the point.
    fn shape(self) -> (i64, i64) {
        let length = i64::from(self.mantissa.checked_ilog10().unwrap_or(0)) + 1;
        (length, length.saturating_add(self.exponent))
    }

    /// The value, if [`Decimal::write`] writes it as an integer.
    fn integer(self) -> Option<u128> {
        let (_, point) = self.shape();
        let zeros = u32::try_from(self.exponent).ok().filter(|_| point <= 21)?;
        Some(u128::from(self.mantissa) * 10u128.pow(zeros))
    }

    /// Writes it as ECMAScript's `Number::toString` does, which is what RFC 8785 asks for.
    pub(crate) fn write(self, out: &mut String) {
        let digits = self.mantissa.to_string();
        let (length, point) = self.shape();
        let zeros = |count: i64| std::iter::repeat_n('0', usize::try_from(count).unwrap_or(0));
        let split = |at: i64| usize::try_from(at).ok().and_then(|at| digits.split_at_checked(at));
        match point {
            1..=21 if length <= point => {
                out.push_str(&digits);
                out.extend(zeros(point - length));
            }
            1..=21 => {
                let (whole, fraction) = split(point).unwrap_or((&digits, ""));
                out.extend([whole, ".", fraction]);
            }
            -5..=0 => {
                out.push_str("0.");
                out.extend(zeros(-point));
                out.push_str(&digits);
            }
            _ => {
                let (first, rest) = split(1).unwrap_or((&digits, ""));
                out.extend([first, if rest.is_empty() { "" } else { "." }, rest]);
                out.push_str(if point > 0 { "e+" } else { "e-" });
                out.push_str(&(point - 1).unsigned_abs().to_string());
            }
        }
    }
}

/// Takes `1.234e-5` apart as it is written.
#[derive(Default)]
struct Digits {
    mantissa: u64,
    exponent: i64,
    after_point: i64,
    part: Part,
    exponent_negative: bool,
}

#[derive(Clone, Copy, Default)]
enum Part {
    #[default]
    Whole,
    Fraction,
    Exponent,
}

impl Digits {
    fn decimal(&self) -> Decimal {
        let exponent = if self.exponent_negative { -self.exponent } else { self.exponent };
        Decimal { mantissa: self.mantissa, exponent: exponent - self.after_point }
    }
}

impl fmt::Write for Digits {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            match (byte, self.part) {
                (b'.', _) => self.part = Part::Fraction,
                (b'e', _) => self.part = Part::Exponent,
                (b'-', _) => self.exponent_negative = true,
                (digit, Part::Exponent) => self.exponent = self.exponent * 10 + i64::from(digit & 0x0F),
                (digit, Part::Whole | Part::Fraction) => {
                    self.mantissa = self.mantissa * 10 + u64::from(digit & 0x0F);
                    self.after_point += i64::from(matches!(self.part, Part::Fraction));
                }
            }
        }
        Ok(())
    }
}
