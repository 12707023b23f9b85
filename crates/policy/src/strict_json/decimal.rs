//! Numbers: how RFC 8785 prints a double, and the judgement whether a written number survives becoming one.
//! Never rounds: a number passes with its value intact or not at all.

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
pub(super) struct NumberLiteral<'t> {
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

impl<'t> NumberLiteral<'t> {
    /// The pieces of a printed double without its sign.
    fn split(text: &'t str) -> Self {
        let (mantissa, exponent) = text.split_once('e').map_or((text, None), |(m, e)| (m, Some(e)));
        let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
        Self { text, negative: false, whole, fraction, exponent }
    }

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
        let double = self.double(written);
        if double.is_infinite() || !written.prints_from(double) {
            return Err(self.changes(double));
        }
        match written.integer() {
            None if is_integer => Err(self.changes(double)),
            None => fraction(self.negative, double),
            Some(size) if double as u128 != size => Err(changes(self.text, self.negative, double as u128)),
            Some(size) => match u64::try_from(size).ok().and_then(|size| integer(self.negative, size)) {
                Some(number) => Ok(number),
                None => fraction(self.negative, double),
            },
        }
    }

    /// The nearest double without its sign; infinite beyond the range.
    fn double(self, written: Decimal) -> f64 {
        // The standard library cuts exponents that only a very long text can make up for; there the decimal speaks.
        let nearest = match (self.text.len(), written.exponent) {
            (..=64, _) => self.text.parse(),
            (_, 401..) => Ok(f64::INFINITY),
            (_, ..=-401) => Ok(0.0),
            (_, exponent) => format!("{}e{exponent}", written.mantissa).parse(),
        };
        nearest.map_or(f64::INFINITY, f64::abs)
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
        let sign = if self.negative { "-" } else { "" };
        StrictFault::NumberChanges { text: self.text.to_owned(), becomes: format!("{sign}{}", print(double)) }
    }
}

/// Whether a number built in memory is one that [`NumberLiteral::number`] would keep unchanged.
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
    match NumberLiteral::split(&print(double)).decimal().and_then(Decimal::integer) {
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
    let printed =
        NumberLiteral::split(&print(double)).decimal().and_then(Decimal::integer).unwrap_or_default();
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

/// A finite double as RFC 8785 prints it: ECMAScript's shortest decimal, the even one where two are as near.
/// The standard library's shortest form will not do, it breaks such ties the other way.
pub(crate) fn print(double: f64) -> String {
    // Only what is not finite has no text, and `serde_json` keeps no such number; its own word for them is `null`.
    serde_json_canonicalizer::to_string(&double).unwrap_or_else(|_| "null".to_owned())
}

/// `mantissa` times ten to the `exponent`, without trailing zeros in the mantissa; zero is 0 times 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decimal {
    mantissa: u64,
    exponent: i64,
}

impl Decimal {
    /// How many digits stand before the point when no exponent is written; less than one for small fractions.
    fn point(self) -> i64 {
        i64::from(self.mantissa.checked_ilog10().unwrap_or(0)) + 1 + self.exponent
    }

    /// The value, if RFC 8785 prints it as an integer.
    fn integer(self) -> Option<u128> {
        let zeros = u32::try_from(self.exponent).ok().filter(|_| self.point() <= 21)?;
        Some(u128::from(self.mantissa) * 10u128.pow(zeros))
    }

    /// Whether the nearest double of this, which is the one given, prints as this.
    fn prints_from(self, double: f64) -> bool {
        // Decimals of up to 15 digits meet no two in one double while doubles are normal. Then the shortest decimal of
        // the double, which has no more digits than this one, is this one: there is no need to print it.
        let always = self.mantissa < 1_000_000_000_000_000 && (-300..300).contains(&self.point());
        always || NumberLiteral::split(&print(double)).decimal() == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_its_value_whatever_the_spelling() {
        let check = |text, expect: Option<(u64, i64)>| {
            let decimal = NumberLiteral::split(text).decimal();
            assert_eq!(decimal.map(|d| (d.mantissa, d.exponent)), expect, "{text}");
        };
        check("0", Some((0, 0)));
        check("0.000e77", Some((0, 0)));
        check("1", Some((1, 0)));
        check("100", Some((1, 2)));
        check("100.0e-2", Some((1, 0)));
        check("0.00120", Some((12, -4)));
        check("1.7976931348623157e+308", Some((17976931348623157, 292)));
        check("100000000000000000000", Some((1, 20)));
        check("123456789012345678", None);
        check("1.00000000000000000", Some((1, 0)));
        check("1.00000000000000001", None);
        check("1e-99999999999999999999", Some((1, -FAR)));
    }

    #[test]
    fn ties_are_printed_even() {
        // 600000000000000.25 and .75, each half way between two decimals of its length.
        assert_eq!(print(2_400_000_000_000_001.0 / 4.0), "600000000000000.2");
        assert_eq!(print(2_400_000_000_000_003.0 / 4.0), "600000000000000.8");
    }
}
