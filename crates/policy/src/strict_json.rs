//! Strict JSON: the one reader for everything that is hashed, so that what is hashed, shown and sent cannot differ.
//! It refuses, with a position, whatever two readers could take differently; it never repairs, rounds or normalises.
//! What it decides where the standards leave room is written on [`parse`].

mod decimal;
mod digits;
mod fault;
mod parser;

use serde_json::Value;

pub(crate) use decimal::print as print_double;
pub use digits::read_to_show;
pub use fault::{StrictError, StrictFault};

/// Deeper limits than this are read as this: a value that deep is freed by recursion, which needs stack.
const DEEPEST: usize = 512;

/// How much a text may hold before it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonLimits {
    /// Arrays and objects inside each other; exactly this many pass. More than 512 is read as 512.
    pub depth: usize,
    pub keys: usize,
    pub bytes: usize,
    /// Which keys of one object count as equal.
    pub keys_alike: KeysAlike,
}

/// Which keys of one object count as equal, and refuse the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysAlike {
    /// Keys that fold to one text (see [`crate::fold`]): other readers may take them for one.
    Folded,
    /// Keys of the same code points: for texts that were stored before folding counted.
    Exact,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self { depth: 64, keys: 10_000, bytes: 16 << 20, keys_alike: KeysAlike::Folded }
    }
}

/// Reads one JSON value under the default limits.
///
/// Beyond the grammar of RFC 8259, these are the decisions:
///
/// - **Keys** are compared after unescaping; two in one object that are equal, or equal under case folding (U+017F and U+212A
///   included, up to a NUL), refuse the text: readers that ignore case would take one for the other.
/// - **Strings** keep their characters as they are: no normalisation, noncharacters and escaped U+0000 pass (RFC 8785
///   writes it back as `\u0000`, so nothing is lost). Unescaped control characters and lone surrogates are refused.
/// - **Numbers** must come out of a double unchanged. The shortest decimal of the double (what RFC 8785 prints) must have
///   exactly the value that was written: `0.1`, `1.10` and `1e23` pass, `0.10000000000000001` is refused.
///   Spelling may change (`1e3` is `1000`, `1.0` is `1`), value may not; a value that underflows or overflows is refused.
/// - **Integers**: a number that RFC 8785 prints as an integer must also *be* that integer as a double, or a reader of doubles
///   and a reader of big integers would disagree. Beyond 2^53 this leaves `9007199254740994` and `1e20`, and refuses
///   `9007199254740993`, `18446744073709552000` (prints alike, but is …551616) and `18446744073709551616` (prints
///   otherwise). An integer that would be printed with an exponent (from 10^21 on) is refused: it would stop being an integer literal.
/// - **Negative zero** is refused in every spelling (`-0`, `-0.0`, `-0e5`): RFC 8785 prints `0`, so hashed would not be
///   sent. `0`, `0.0` and `0e-5` are plain zero.
/// - Equal numbers become equal `serde_json` numbers: integers that fit are stored as integers, whatever their spelling.
pub fn parse(bytes: &[u8]) -> Result<Value, StrictError> {
    parse_with(bytes, &JsonLimits::default())
}

/// Reads one JSON value under the limits given; see [`parse`].
pub fn parse_with(bytes: &[u8], limits: &JsonLimits) -> Result<Value, StrictError> {
    let fail = |what, offset| Err(StrictError::locate(bytes, what, offset));
    if bytes.len() > limits.bytes {
        return fail(StrictFault::TooLarge, limits.bytes);
    }
    if bytes.starts_with(b"\xEF\xBB\xBF") {
        return fail(StrictFault::ByteOrderMark, 0);
    }
    // Whether it is text at all comes first; after that the leftmost fault is the one reported.
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(bad) => return fail(StrictFault::InvalidUtf8, bad.valid_up_to()),
    };
    let limits = JsonLimits { depth: limits.depth.min(DEEPEST), ..*limits };
    parser::read(text, limits).or_else(|spot| fail(spot.what, spot.offset))
}

/// Checks a value that was built in memory: what passes is read back from its canonical form, with keys compared exactly.
pub fn check(value: &Value) -> Result<(), StrictFault> {
    let limits = JsonLimits::default();
    let mut keys = limits.keys;
    inspect(value, limits.depth, &mut keys)
}

/// Recursion ends with `depth`, so a hostile value cannot take the stack.
fn inspect(value: &Value, depth: usize, keys: &mut usize) -> Result<(), StrictFault> {
    let inner = || depth.checked_sub(1).ok_or(StrictFault::TooDeep);
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
        Value::Number(number) => decimal::check(number),
        Value::Array(items) => {
            let depth = inner()?;
            items.iter().try_for_each(|item| inspect(item, depth, keys))
        }
        Value::Object(members) => {
            let depth = inner()?;
            *keys = keys.checked_sub(members.len()).ok_or(StrictFault::TooManyKeys)?;
            members.values().try_for_each(|member| inspect(member, depth, keys))
        }
    }
}
