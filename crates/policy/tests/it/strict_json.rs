//! The strict reader: what it refuses and where, what it takes, its limits, and hostile texts. Numbers are judged a second
//! time by an oracle of their own.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use countersign_policy::canonical;
use countersign_policy::strict_json::{JsonLimits, KeysAlike, StrictFault, check, parse, parse_with};
use proptest::prelude::*;
use serde_json::{Value, json};

#[track_caller]
fn refused(text: impl AsRef<[u8]>, what: StrictFault, line: u32, column: u32) {
    let text = text.as_ref();
    let said = parse(text).unwrap_err();
    let shown = String::from_utf8_lossy(text.get(..60).unwrap_or(text)).into_owned();
    assert_eq!((said.what, said.line, said.column), (what, line, column), "{shown}");
}

#[track_caller]
fn taken(text: &str, canonical_form: &str) {
    let value = parse(text.as_bytes()).unwrap_or_else(|said| panic!("{text}: {said}"));
    assert_eq!(canonical::to_string(&value), canonical_form, "{text}");
    assert_eq!(check(&value), Ok(()), "{text}");
}

fn changes(text: &str, becomes: &str) -> StrictFault {
    StrictFault::NumberChanges { text: text.into(), becomes: becomes.into() }
}

fn syntax(what: &str) -> StrictFault {
    StrictFault::Syntax(what.into())
}

#[test]
fn ambiguous_texts_are_refused_where_they_are() {
    use StrictFault::*;
    refused(r#"{"a":1,"a":2}"#, DuplicateKey("a".into()), 1, 8);
    refused("{\"a\":1,\n \"\\u0061\":2}", DuplicateKey("a".into()), 2, 2);
    refused(r#"{"\ud83d\ude00":1,"😀":-0}"#, DuplicateKey("😀".into()), 1, 19);
    refused(r#"{"x":{"/":1,"b":0,"\/":1}}"#, DuplicateKey("/".into()), 1, 19);
    refused(r#"{"a":1,"A":2}"#, FoldedKey("A".into()), 1, 14);
    refused(b"\xEF\xBB\xBF{}", ByteOrderMark, 1, 1);
    refused(b"\xFE\xFF\x00[", InvalidUtf8, 1, 1);
    refused(b"[\"\xC3\xA9\xC0\x80\"]", InvalidUtf8, 1, 4); // an overlong zero
    refused(b"[\"\xED\xA0\x80\"]", InvalidUtf8, 1, 3); // a surrogate in UTF-8
    refused(b"[\"\xF4\x90\x80\x80\"]", InvalidUtf8, 1, 3); // beyond U+10FFFF
    refused(r#"["é\ud800"]"#, LoneSurrogate, 1, 4);
    refused(r#"["\ud800x"]"#, LoneSurrogate, 1, 3);
    refused(r#"["\udc00"]"#, LoneSurrogate, 1, 3);
    refused(r#"["\ud800\ud800\udc00"]"#, LoneSurrogate, 1, 3);
    refused(r#"["\ud83d\n"]"#, LoneSurrogate, 1, 3);
    refused(r#"{"\uDFFF":1}"#, LoneSurrogate, 1, 3);
    refused("", Empty, 1, 1);
    refused(" \n\t ", Empty, 2, 3);
    refused("{} {}", TrailingData, 1, 4);
    refused("1 x", TrailingData, 1, 3);
    refused("nullx", TrailingData, 1, 5);
    refused("1\u{feff}", TrailingData, 1, 2);
}

#[test]
fn what_is_not_json_is_refused_where_it_is() {
    for (text, what, column) in [
        ("\u{a0}1", r"expected a value, found `\u{a0}`", 1),
        ("[1,]", "expected a value, found `]`", 4),
        ("[,1]", "expected a value, found `,`", 2),
        ("[1 2]", "expected `,` or `]`, found `2`", 4),
        ("[1", "expected `,` or `]`, found the end of the text", 3),
        ("[1}", "expected `,` or `]`, found `}`", 3),
        ("{,}", "expected a key in double quotes, found `,`", 2),
        (r#"{"a":1,}"#, "expected a key in double quotes, found `}`", 8),
        (r#"{"a" 1}"#, "expected `:` after the key, found `1`", 6),
        (r#"{"a":1 "b":2}"#, "expected `,` or `}`, found `\"`", 8),
        ("{a:1}", "expected a key in double quotes, found `a`", 2),
        ("{'a':1}", "expected a key in double quotes, found `'`", 2),
        ("nul", "expected a value, found `n`", 1),
        ("True", "expected a value, found `T`", 1),
        ("NaN", "expected a value, found `N`", 1),
        ("-Infinity", "expected a digit, found `I`", 2),
        ("+1", "expected a value, found `+`", 1),
        (".5", "expected a value, found `.`", 1),
        ("5.", "expected a digit, found the end of the text", 3),
        ("5.e1", "expected a digit, found `e`", 3),
        ("5e", "expected a digit, found the end of the text", 3),
        ("5e+-1", "expected a digit, found `-`", 4),
        ("-", "expected a digit, found the end of the text", 2),
        ("[-01]", "a number has no leading zeros", 2),
        ("00", "a number has no leading zeros", 1),
        ("\"a", "the text ends inside a string", 3),
        ("\"a\\", "the text ends inside a string", 4),
        ("\"a\tb\"", "a control character in a string must be escaped", 3),
        ("\"\u{0}\"", "a control character in a string must be escaped", 2),
        (r#""\x41""#, "unknown escape in a string", 2),
        (r#""\U0041""#, "unknown escape in a string", 2),
        (r#""\u00g0""#, r"expected four hex digits after `\u`, found `g`", 6),
        (r#""\u+041""#, r"expected four hex digits after `\u`, found `+`", 4),
        (r#""\u00""#, "expected four hex digits after `\\u`, found `\"`", 6),
        ("// hi\n1", "expected a value, found `/`", 1),
    ] {
        refused(text, syntax(what), 1, column);
    }
}

#[test]
fn numbers_that_a_double_does_not_carry_are_refused() {
    use StrictFault::*;
    for (text, becomes) in [
        ("9007199254740993", "9007199254740992"),
        ("-9007199254740993", "-9007199254740992"),
        ("10000000000000000999", "10000000000000000000"),
        ("123456789012345678901", "123456789012345680000"),
        ("9223372036854775807", "9223372036854776000"),
        ("-9223372036854775808", "-9223372036854776000"),
        ("18446744073709551615", "18446744073709552000"),
        ("18446744073709551616", "18446744073709552000"),
        ("18446744073709552000", "18446744073709551616"),
        ("-1.8446744073709552e19", "-18446744073709551616"),
        ("9007199254740993.0", "9007199254740992"),
        ("9007199254740992.5", "9007199254740992"),
        ("1000000000000000000000", "1e+21"),
        ("0.1000000000000000055511151231257827", "0.1"),
        ("0.10000000000000001", "0.1"),
        ("333333333.33333329", "333333333.3333333"),
        ("1.00000000000000000001", "1"),
        ("1e-400", "0"),
        ("-1e-400", "-0"),
        ("3e-324", "5e-324"),
        ("1e-99999999999999999999999", "0"),
    ] {
        refused(format!("[\n {text}]"), changes(text, becomes), 2, 2);
    }
    for text in ["1e400", "-1e400", "1.8e308", "1e99999999999999999999999", &"9".repeat(400)] {
        refused(text, NumberOverflow, 1, 1);
    }
    for text in ["-0", "-0.0", "-0e0", "-0E-7", "-0.000e+99999999999999999999"] {
        refused(format!("{{\"n\":{text}}}"), NegativeZero, 1, 6);
    }
}

#[test]
fn what_keeps_its_value_is_taken() {
    for (text, canonical_form) in [
        ("0", "0"),
        ("0e-0", "0"),
        ("0.000E+99999999999999999999", "0"),
        ("-1", "-1"),
        ("1.0", "1"),
        ("1.10", "1.1"),
        ("1e3", "1000"),
        ("10E-1", "1"),
        ("0.1", "0.1"),
        ("1e23", "1e+23"),
        ("1E+1", "10"),
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("9007199254740991", "9007199254740991"),
        ("-9007199254740992", "-9007199254740992"),
        ("9007199254740994", "9007199254740994"),
        ("1e19", "10000000000000000000"),
        ("-1e19", "-10000000000000000000"),
        ("1e20", "100000000000000000000"),
        ("100000000000000000000", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("1000000000000000000000.0", "1e+21"),
        (" \t\r\n[ ] ", "[]"),
        (r#"{"b":[{}],"a":"A"}"#, r#"{"a":"A","b":[{}]}"#),
        (r#""\u0000\u001F\b\f\n\r\t\/\"\\""#, r#""\u0000\u001f\b\f\n\r\t/\"\\""#),
        ("\"\u{7f}\u{feff}\u{fffe}\u{10ffff}\"", "\"\u{7f}\u{feff}\u{fffe}\u{10ffff}\""),
        (r#"{"":1,"a\u0000":2,"é":3,"e\u0301":4}"#, "{\"\":1,\"a\\u0000\":2,\"e\u{301}\":4,\"é\":3}"),
        ("true", "true"),
    ] {
        taken(text, canonical_form);
    }
}

#[test]
fn the_limits_are_exact() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(nested(64).as_bytes()).is_ok());
    refused(nested(65), StrictFault::TooDeep, 1, 65);
    let mixed = format!("{}[]{}", r#"{"k":["#.repeat(32), "]}".repeat(32));
    refused(&mixed, StrictFault::TooDeep, 1, 32 * 6 + 1);

    let object = |keys: std::ops::Range<usize>| {
        format!("{{{}}}", keys.map(|key| format!("\"{key}\":0")).collect::<Vec<_>>().join(","))
    };
    assert!(parse(object(0..10_000).as_bytes()).is_ok());
    let said = parse(object(0..10_001).as_bytes()).unwrap_err();
    assert_eq!((said.what, said.offset), (StrictFault::TooManyKeys, object(0..10_000).len()));
    let two = format!("[{},\n{}]", object(0..9_999), object(0..2));
    refused(two, StrictFault::TooManyKeys, 2, 8);

    let limits = JsonLimits { bytes: 4, ..JsonLimits::default() };
    assert!(parse_with(b"[10]", &limits).is_ok());
    assert_eq!(parse_with(b"[10] ", &limits).unwrap_err().what, StrictFault::TooLarge);
    assert_eq!(
        JsonLimits::default(),
        JsonLimits { depth: 64, keys: 10_000, bytes: 16 * 1024 * 1024, keys_alike: KeysAlike::Folded }
    );
    let unbounded =
        JsonLimits { depth: usize::MAX, keys: usize::MAX, bytes: usize::MAX, keys_alike: KeysAlike::Folded };
    let said = parse_with("[".repeat(100_000).as_bytes(), &unbounded).unwrap_err();
    assert_eq!((said.what, said.offset), (StrictFault::TooDeep, 512));
}

#[test]
fn values_built_in_memory_are_checked_alike() {
    let nested = |depth| (0..depth).fold(json!(0), |inner, _| json!([inner]));
    assert_eq!(check(&nested(64)), Ok(()));
    assert_eq!(check(&nested(65)), Err(StrictFault::TooDeep));
    let object = |keys: usize| Value::Object((0..keys).map(|key| (key.to_string(), json!(0))).collect());
    assert_eq!(check(&object(10_000)), Ok(()));
    assert_eq!(check(&json!([object(9_999), object(2)])), Err(StrictFault::TooManyKeys));
    assert_eq!(check(&json!(-0.0)), Err(StrictFault::NegativeZero));
    assert_eq!(check(&json!([1.0, 0.1, 1e21, u32::MAX, 1u64 << 53, (1u64 << 53) + 2, -1e19])), Ok(()));
    for (number, text, becomes) in [
        (json!((1u64 << 53) + 1), "9007199254740993", "9007199254740992"),
        (json!(-(1i64 << 53) - 1), "-9007199254740993", "-9007199254740992"),
        (json!(i64::MIN), "-9223372036854775808", "-9223372036854776000"),
        (json!(u64::MAX), "18446744073709551615", "18446744073709552000"),
        (json!(-18446744073709551616.0), "-18446744073709552000", "-18446744073709551616"),
    ] {
        assert_eq!(check(&json!({ "n": [number] })), Err(changes(text, becomes)));
    }
}

#[test]
fn messages_are_one_line_and_say_where() {
    let said = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(said(r#"{"a":1,"a":2}"#), "duplicate key `a` at line 1 column 8");
    assert_eq!(
        said("[\n9007199254740993]"),
        "the number `9007199254740993` would become `9007199254740992` at line 2 column 1"
    );
    assert_eq!(said(r#"{"\n`":1,"\n`":2}"#), r"duplicate key `\n\u{60}` at line 1 column 10");
    let long = said(&format!("0.1{}1", "0".repeat(500)));
    assert_eq!(long, format!("the number `0.1{}…` would become `0.1` at line 1 column 1", "0".repeat(57)));
    assert_eq!(said("[1,"), "expected a value, found the end of the text at line 1 column 4");
}

/// A bit of everything.
const SAMPLE: &str = r#"{"a":[1,-2.5,1e-7,true,null],"é😀":{"k\u00e9\ud83d\ude00\n":"✓ \"x\""},"":[[],{}],"n":9007199254740994}"#;

#[test]
fn hostile_texts_end_in_a_refusal() {
    refused("[".repeat(1 << 20), StrictFault::TooDeep, 1, 65);
    refused(r#"{"a":"#.repeat(200_000), StrictFault::TooDeep, 1, 64 * 5 + 1);
    let long = format!("\"{}\"", "x\\u00e9".repeat(150_000));
    assert_eq!(parse(long.as_bytes()).unwrap().as_str().unwrap().chars().count(), 300_000);
    let keys: String = (0..200_000).map(|key| format!("\"{key}\":0,")).collect();
    assert_eq!(parse(format!("{{{keys}").as_bytes()).unwrap_err().what, StrictFault::TooManyKeys);
    let digits = "1".repeat(1 << 20);
    refused(&digits, StrictFault::NumberOverflow, 1, 1);
    assert!(matches!(
        parse(format!("0.{digits}").as_bytes()).unwrap_err().what,
        StrictFault::NumberChanges { .. }
    ));
    // The zeros and the exponent take each other back: this is 1.
    let zeros = "0".repeat(100_000);
    assert_eq!(parse(format!("0.{zeros}1e100001").as_bytes()).unwrap(), json!(1));
    assert_eq!(parse(format!("1{zeros}.{zeros}e-100000").as_bytes()).unwrap(), json!(1));
    assert_eq!(
        parse_with(&vec![b' '; (16 << 20) + 1], &JsonLimits::default()).unwrap_err().what,
        StrictFault::TooLarge
    );
}

#[test]
fn every_broken_byte_is_found_and_every_other_byte_read_as_others_read_it() {
    assert!(parse(SAMPLE.as_bytes()).is_ok());
    for at in 0..SAMPLE.len() {
        let cut = parse(&SAMPLE.as_bytes()[..at]).expect_err("cut short");
        assert!(cut.offset <= at);
        for byte in 0..=u8::MAX {
            let mut bytes = SAMPLE.as_bytes().to_vec();
            bytes[at] = byte;
            match parse(&bytes) {
                // What we take, an ordinary reader takes for the same.
                Ok(value) => {
                    let theirs: Value = serde_json::from_slice(&bytes).unwrap();
                    assert_eq!(canonical::to_string(&value), canonical::to_string(&theirs));
                }
                Err(said) if std::str::from_utf8(&bytes).is_err() => {
                    assert_eq!(said.what, StrictFault::InvalidUtf8, "byte {byte} at {at}");
                }
                Err(said) => assert_ne!(said.what, StrictFault::InvalidUtf8),
            }
        }
    }
}

/// Numbers as they are written by those who look for a gap.
pub(crate) fn hostile_number() -> impl Strategy<Value = String> {
    let power = (0..70u32, -3..=3i128, any::<bool>()).prop_map(|(power, off, negative)| {
        let size = (1i128 << power) + off;
        if negative { -size } else { size }.to_string()
    });
    let double = (any::<u64>(), 0..4u8).prop_filter_map("finite", |(bits, form)| {
        let double = Some(f64::from_bits(bits)).filter(|double| double.is_finite())?;
        Some(match form {
            0 => format!("{double}"),
            1 => format!("{double:e}"),
            2 => format!("{double:.16e}"),
            _ => format!("{double:.20e}"),
        })
    });
    prop_oneof![
        power,
        double,
        "-?(0|[1-9][0-9]{0,24})",
        "-?(0|[1-9][0-9]{0,3}0{0,19})(\\.0{0,3}[0-9]{0,3}0)?([eE][+-]?[0-9]{1,2})?",
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?",
        "-?[1-9][0-9]{0,16}e-?[0-9]{1,2}",
    ]
}

/// Digits without zeros around them, and the power of ten of the last: the value of a decimal, whatever its spelling.
fn value_of(text: &str) -> (bool, String, i64) {
    let lower = text.to_ascii_lowercase();
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{}{fraction}", whole.trim_start_matches('-'));
    let trimmed = digits.trim_end_matches('0');
    let zeros = (digits.len() - trimmed.len()) as i64;
    let power = exponent.parse::<i64>().unwrap() - fraction.len() as i64 + zeros;
    (text.starts_with('-'), trimmed.trim_start_matches('0').to_owned(), power)
}

/// The rule for numbers once more, with strings, a second printer of shortest decimals and the exact digits of the double.
fn survives(literal: &str) -> Option<String> {
    let is_integer = |text: &str| !text.contains(['.', 'e', 'E']);
    let double: f64 = literal.parse().unwrap();
    let (negative, digits, _) = value_of(literal);
    if digits.is_empty() {
        return (!negative).then(|| "0".to_owned());
    }
    let printed = serde_json_canonicalizer::to_string(&double).ok()?;
    let same_value = value_of(&serde_json::to_string(&double).unwrap()) == value_of(literal);
    let same_integer = !is_integer(&printed) || format!("{double:.0}") == printed;
    let same_kind = !is_integer(literal) || is_integer(&printed);
    (same_value && same_integer && same_kind).then_some(printed)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_are_taken_exactly_when_they_survive(literal in hostile_number()) {
        let ours = parse(literal.as_bytes()).ok().map(|value| canonical::to_string(&value));
        prop_assert_eq!(ours, survives(&literal));
    }

    #[test]
    fn checked_numbers_are_read_back(bits in any::<u64>(), whole in any::<bool>(), cut in 0..64u32) {
        // Cutting bits makes small and round numbers as likely as others.
        let bits = bits >> cut << (cut / 2);
        let value = if whole { json!(bits) } else { json!(f64::from_bits(bits)) };
        let back = parse(canonical::to_vec(&value).as_slice());
        let negative_zero = !whole && bits == 1 << 63;
        prop_assert_eq!(check(&value).is_ok(), back.is_ok() && !negative_zero);
        if check(&value).is_ok() {
            prop_assert_eq!(back.unwrap().as_f64(), value.as_f64());
        }
    }
}
