//! JSON of others that is only looked at: a number that would lose a digit becomes its own text, so that a reader sees all of it,
//! and two that differ are seen to differ. Never for anything that is sent.

use std::borrow::Cow;

use serde_json::Value;

/// The value of a JSON text to be shown and compared; none where it is no JSON.
pub fn read_to_show(text: &str) -> Option<Value> {
    serde_json::from_str(&quoted(text)).ok()
}

/// The same text, with such numbers between quotation marks.
fn quoted(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let (mut written, mut kept, mut at) = (String::new(), 0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = behind_string(bytes, at + 1),
            b'-' | b'0'..=b'9' => {
                let rest = bytes.get(at..).unwrap_or_default();
                let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let end = at + rest.iter().take_while(|byte| is_part(byte)).count();
                if let Some(number) = text.get(at..end).filter(|number| !is_held(number)) {
                    written.push_str(text.get(kept..at).unwrap_or_default());
                    written.push_str(&format!("\"{number}\""));
                    kept = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    written.push_str(text.get(kept..).unwrap_or_default());
    Cow::Owned(written)
}

fn behind_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// Whether a value keeps the number as it is written, but for its spelling.
fn is_held(number: &str) -> bool {
    let is_integer = number.parse::<u64>().is_ok() || number.parse::<i64>().is_ok();
    is_integer
        || super::parse(number.as_bytes()).is_ok()
        || number.parse() == Ok(-0.0_f64) && !number.contains(['e', 'E'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_that_would_lose_a_digit_is_shown_as_text() {
        let check = |text: &str, expect: Value| assert_eq!(read_to_show(text), Some(expect), "{text}");
        check(
            r#"{"a":123456789012345678901234567890,"b":[18446744073709551615,-9223372036854775808,9007199254740993]}"#,
            json!({"a": "123456789012345678901234567890", "b": [18446744073709551615_u64, i64::MIN, 9007199254740993_u64]}),
        );
        check(
            "[0.30000000000000004,1.10,-2e3,0.0,-0.0]",
            json!([0.30000000000000004, 1.1, -2000.0, 0.0, -0.0]),
        );
        check("0.10000000000000001", json!("0.10000000000000001"));
        check("1e400", json!("1e400"));
        check(
            r#"{"1e400\"":"\\","b":"[12345678901234567890123]"}"#,
            json!({"1e400\"": "\\", "b": "[12345678901234567890123]"}),
        );
        assert_eq!(read_to_show("nothing"), None);
        assert_eq!(read_to_show("\"open"), None);
    }
}
