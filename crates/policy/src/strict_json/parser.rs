//! The reader itself: one pass over the text, open arrays and objects on a list of its own instead of the stack.
//! Stops at the leftmost fault and says its offset; never looks back and never guesses.

use serde_json::{Map, Value};

use super::decimal::NumberLiteral;
use super::fault::{StrictFault, shown};
use super::{JsonLimits, KeysAlike};
use crate::fold;

/// A fault and the offset it is at.
pub(super) struct LocatedFault {
    pub(super) what: StrictFault,
    pub(super) offset: usize,
}

type ParseResult<T> = Result<T, LocatedFault>;

/// Reads the whole text as one value.
pub(super) fn read(text: &str, limits: JsonLimits) -> ParseResult<Value> {
    let mut parser = Parser { text, at: 0, limits, keys: 0, open: Vec::new() };
    parser.skip_space();
    if parser.peek().is_none() {
        return parser.fail(StrictFault::Empty);
    }
    loop {
        let Some(value) = parser.begin()? else { continue };
        let Some(whole) = parser.settle(value)? else { continue };
        parser.skip_space();
        return if parser.peek().is_none() { Ok(whole) } else { parser.fail(StrictFault::TrailingData) };
    }
}

/// What is open: items so far, or members so far and the key whose value comes next.
enum PartialContainer {
    Array(Vec<Value>),
    Object(Map<String, Value>, String),
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    limits: JsonLimits,
    keys: usize,
    open: Vec<PartialContainer>,
}

impl<'t> Parser<'t> {
    /// Reads a value as far as it goes without another value inside; nothing if it opened an array or object.
    fn begin(&mut self) -> ParseResult<Option<Value>> {
        self.skip_space();
        let value = match self.peek() {
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'{') => {
                self.nest()?;
                if self.take_close(b'}') {
                    return Ok(Some(Value::Object(Map::new())));
                }
                let members = Map::new();
                let key = self.key(&members)?;
                self.open.push(PartialContainer::Object(members, key));
                return Ok(None);
            }
            Some(b'[') => {
                self.nest()?;
                if self.take_close(b']') {
                    return Ok(Some(Value::Array(Vec::new())));
                }
                self.open.push(PartialContainer::Array(Vec::new()));
                return Ok(None);
            }
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            Some(_) | None => return self.expected("a value"),
        };
        Ok(Some(value))
    }

    /// Puts a value where it belongs and closes what ends there; the whole value once nothing is open.
    fn settle(&mut self, mut value: Value) -> ParseResult<Option<Value>> {
        while let Some(top) = self.open.pop() {
            value = match top {
                PartialContainer::Array(mut items) => {
                    items.push(value);
                    if self.more(b']', "`,` or `]`")? {
                        self.open.push(PartialContainer::Array(items));
                        return Ok(None);
                    }
                    Value::Array(items)
                }
                PartialContainer::Object(mut members, key) => {
                    members.insert(key, value);
                    if self.more(b'}', "`,` or `}`")? {
                        let key = self.key(&members)?;
                        self.open.push(PartialContainer::Object(members, key));
                        return Ok(None);
                    }
                    if self.limits.keys_alike == KeysAlike::Folded
                        && let Some(name) = fold::colliding(&members)
                    {
                        return self.fail(StrictFault::FoldedKey(name.to_owned()));
                    }
                    Value::Object(members)
                }
            };
        }
        Ok(Some(value))
    }

    /// Steps into an array or object.
    fn nest(&mut self) -> ParseResult<()> {
        if self.open.len() >= self.limits.depth {
            return self.fail(StrictFault::TooDeep);
        }
        self.at += 1;
        Ok(())
    }

    /// Whether the array or object ends before its first item.
    fn take_close(&mut self, close: u8) -> bool {
        self.skip_space();
        self.take(close)
    }

    /// Whether another item follows this one.
    fn more(&mut self, close: u8, what: &str) -> ParseResult<bool> {
        self.skip_space();
        if self.take(b',') {
            Ok(true)
        } else if self.take(close) {
            Ok(false)
        } else {
            self.expected(what)
        }
    }

    /// Reads a key that the object does not have yet, and the colon.
    fn key(&mut self, members: &Map<String, Value>) -> ParseResult<String> {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return self.expected("a key in double quotes");
        }
        let start = self.at;
        if self.keys >= self.limits.keys {
            return self.fail(StrictFault::TooManyKeys);
        }
        self.keys += 1;
        let key = self.string()?;
        // In a small object looking is faster than hashing.
        let known = if members.len() <= 8 {
            members.keys().any(|known| *known == key)
        } else {
            members.contains_key(&key)
        };
        if known {
            return fail_at(start, StrictFault::DuplicateKey(key));
        }
        self.skip_space();
        if self.take(b':') { Ok(key) } else { self.expected("`:` after the key") }
    }

    fn word(&mut self, word: &str, value: Value) -> ParseResult<Value> {
        if !self.rest().starts_with(word.as_bytes()) {
            return self.expected("a value");
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> ParseResult<Value> {
        let start = self.at;
        let negative = self.take(b'-');
        let whole = self.digits()?;
        if whole.len() > 1 && whole.starts_with('0') {
            return fail_at(start, StrictFault::Syntax("a number has no leading zeros".to_owned()));
        }
        let fraction = if self.take(b'.') { Some(self.digits()?) } else { None };
        let mut exponent = None;
        if self.take(b'e') || self.take(b'E') {
            let from = self.at;
            let _sign = self.take(b'-') || self.take(b'+');
            self.digits()?;
            exponent = Some(self.since(from));
        }
        let literal = NumberLiteral { text: self.since(start), negative, whole, fraction, exponent };
        match literal.number() {
            Ok(number) => Ok(Value::Number(number)),
            Err(what) => fail_at(start, what),
        }
    }

    fn digits(&mut self) -> ParseResult<&'t str> {
        let from = self.at;
        self.at += self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        if self.at == from { self.expected("a digit") } else { Ok(self.since(from)) }
    }

    fn string(&mut self) -> ParseResult<String> {
        self.at += 1;
        let mut out = self.plain_run().to_owned();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => return self.syntax("a control character in a string must be escaped"),
                None => return self.syntax("the text ends inside a string"),
            }
            out.push_str(self.plain_run());
        }
    }

    /// The part of a string up to the next quote, backslash or control character.
    fn plain_run(&mut self) -> &'t str {
        let from = self.at;
        self.at += self.rest().iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | ..=0x1F)).count();
        self.since(from)
    }

    /// Reads one escape, both halves of a surrogate pair included.
    fn escape(&mut self) -> ParseResult<char> {
        let start = self.at;
        self.at += 1;
        let plain = match self.peek() {
            Some(b'u') => return self.unicode(start),
            Some(same @ (b'"' | b'\\' | b'/')) => char::from(same),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(_) => return fail_at(start, StrictFault::Syntax("unknown escape in a string".to_owned())),
            None => return self.syntax("the text ends inside a string"),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode(&mut self, start: usize) -> ParseResult<char> {
        let first = self.unit()?;
        let code = match first {
            0xD800..=0xDBFF if self.rest().starts_with(b"\\u") => {
                self.at += 1;
                match self.unit()? {
                    second @ 0xDC00..=0xDFFF => 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00),
                    _ => first,
                }
            }
            _ => first,
        };
        // Only a surrogate that found no partner is no character.
        char::from_u32(code).map_or_else(|| fail_at(start, StrictFault::LoneSurrogate), Ok)
    }

    /// Reads `uXXXX`.
    fn unit(&mut self) -> ParseResult<u32> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return self.expected("four hex digits after `\\u`");
            };
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn rest(&self) -> &'t [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn since(&self, from: usize) -> &'t str {
        // Both ends stand next to an ASCII byte or an end of the text, so they never split a character.
        self.text.get(from..self.at).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn fail<T>(&self, what: StrictFault) -> ParseResult<T> {
        fail_at(self.at, what)
    }

    fn syntax<T>(&self, what: &str) -> ParseResult<T> {
        self.fail(StrictFault::Syntax(what.to_owned()))
    }

    fn expected<T>(&self, what: &str) -> ParseResult<T> {
        let found = match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(found) => format!("`{}`", shown(found.encode_utf8(&mut [0; 4]))),
            None => "the end of the text".to_owned(),
        };
        self.syntax(&format!("expected {what}, found {found}"))
    }
}

fn fail_at<T>(offset: usize, what: StrictFault) -> ParseResult<T> {
    Err(LocatedFault { what, offset })
}
