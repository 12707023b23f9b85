//! Spreads JSON text over lines, with every string and number exactly as written. Parses no value, so it can round none.

/// A JSON text on one line, spread over many.
pub(super) fn spread(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    let (mut in_string, mut escaped) = (false, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if in_string {
            out.push(letter);
            in_string = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            continue;
        }
        match letter {
            '{' | '[' => {
                while letters.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                out.push(letter);
                // Nothing inside stays together.
                if let Some(close) = letters.next_if(|next| ['}', ']'].contains(next)) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(letter);
            }
            ',' => {
                out.push(',');
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => {
                in_string = true;
                out.push('"');
            }
            space if space.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn it_is_what_serde_writes_and_keeps_every_digit() {
        for value in [
            json!({"a": [1, {"b": "x\"{[,: \\"}], "c": {}, "d": [], "e": [[]], "f": null}),
            json!([]),
            json!("a: b"),
            json!(7),
        ] {
            let text = value.to_string();
            assert_eq!(spread(&text), format!("{value:#}"));
            assert_eq!(serde_json::from_str::<Value>(&spread(&text)).unwrap(), value);
        }
        let long = "{ \"n\" :123456789012345678901234567890 , \"e\": [ ] }";
        assert_eq!(spread(long), "{\n  \"n\": 123456789012345678901234567890,\n  \"e\": []\n}");
    }
}
