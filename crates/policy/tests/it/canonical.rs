//! The canonical form: the public vectors of RFC 8785, other printers of it (a crate, Python, Node), and the property
//! that equal bytes mean equal values, over generated texts in many spellings.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

use countersign_policy::canonical;
use countersign_policy::strict_json::{JsonLimits, KeysAlike, StrictFault, check, parse, parse_with};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::strict_json::hostile_number;

macro_rules! vectors {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_str!(concat!("../data/rfc8785/", $name, ".in.json")),
            include_str!(concat!("../data/rfc8785/", $name, ".out.json")),
        )),*]
    };
}

#[test]
fn the_public_vectors_come_out_to_the_byte() {
    for (name, input, output) in
        vectors!["arrays", "french", "structures", "unicode", "values", "weird", "sorting"]
    {
        let output = output.trim_end_matches('\n');
        let value: Value = serde_json::from_str(input).unwrap();
        assert_eq!(canonical::to_string(&value), output, "{name}");
        assert_eq!(canonical::to_vec(&value), output.as_bytes(), "{name}");
        // The canonical form is itself a text we read, as the same value.
        // Names that differ by case are one of the vectors; nobody may call a tool with them.
        let exact = JsonLimits { keys_alike: KeysAlike::Exact, ..JsonLimits::default() };
        assert_eq!(canonical::to_string(&parse_with(output.as_bytes(), &exact).unwrap()), output, "{name}");
        match parse_with(input.as_bytes(), &exact) {
            Ok(value) => assert_eq!(canonical::to_string(&value), output, "{name}"),
            // The one vector that counts on a number changing.
            Err(said) => {
                assert_eq!(name, "values");
                let changes = StrictFault::NumberChanges {
                    text: "333333333.33333329".into(),
                    becomes: "333333333.3333333".into(),
                };
                assert_eq!((said.what, said.line, said.column), (changes, 2, 15));
            }
        }
    }
}

#[test]
fn the_numbers_of_appendix_b_come_out_to_the_byte() {
    let mut rows = 0;
    for row in include_str!("../data/rfc8785/numbers.tsv").lines() {
        let [bits, text, _note, reading] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let double = f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        rows += 1;
        if text == "error" {
            // There is no such value to print, nor such a text to read.
            assert_eq!(serde_json::Number::from_f64(double), None, "{row}");
            assert!(parse(double.to_string().as_bytes()).is_err(), "{row}");
            continue;
        }
        assert_eq!(canonical::to_string(&json!(double)), text, "{row}");
        match reading {
            "kept" => assert_eq!(parse(text.as_bytes()).unwrap().as_f64(), Some(double), "{row}"),
            "refused" => {
                let becomes = format!("{double:.0}");
                let changes = StrictFault::NumberChanges { text: text.into(), becomes };
                assert_eq!(parse(text.as_bytes()).unwrap_err().what, changes, "{row}");
                assert_eq!(check(&json!(double)), Err(changes), "{row}");
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(rows, 26);
}

/// What a text means, before it is spelled.
#[derive(Clone, Debug)]
enum Tree {
    Word(&'static str),
    Number(String),
    Text(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

/// A die that falls the same way for the same seed.
struct Die(u64);

impl Die {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

impl Tree {
    /// One of the many texts with this meaning.
    fn spell(&self, die: &mut Die, out: &mut String) {
        out.push_str(["", "", " ", "\n\t"][die.roll(4) as usize]);
        match self {
            Tree::Word(word) => out.push_str(word),
            Tree::Number(literal) => {
                out.push_str(literal);
                let short = literal.len() < 15 && literal.bytes().all(|byte| byte.is_ascii_digit());
                if short {
                    out.push_str(["", ".0", "e0", ".00E-0", "e+00"][die.roll(5) as usize]);
                }
            }
            Tree::Text(text) => spell_text(text, die, out),
            Tree::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    item.spell(die, out);
                }
                out.push(']');
            }
            Tree::Object(members) => {
                out.push('{');
                let turn = die.roll(members.len().max(1) as u64) as usize;
                for (at, (key, member)) in members.iter().cycle().skip(turn).take(members.len()).enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    spell_text(key, die, out);
                    out.push_str([":", " :"][die.roll(2) as usize]);
                    member.spell(die, out);
                }
                out.push('}');
            }
        }
        out.push_str(["", "", " ", "\r\n"][die.roll(4) as usize]);
    }

    fn text(&self, seed: u64) -> String {
        let mut out = String::new();
        self.spell(&mut Die(seed), &mut out);
        out
    }
}

fn spell_text(text: &str, die: &mut Die, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '\n' if die.roll(2) == 0 => out.push_str("\\n"),
            '"' | '\\' | '/' if die.roll(2) == 0 => out.extend(['\\', c]),
            '"' | '\\' | ..='\u{1f}' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c if die.roll(3) == 0 => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Few characters, so that texts meet; all that order, escapes and normalisation can get wrong.
fn word() -> impl Strategy<Value = String> {
    let hard = "aAé\u{301}\u{0}\n\"\\/`\u{7f}\u{2028}\u{e000}\u{fb33}\u{ffff}😀\u{10ffff}"
        .chars()
        .collect::<Vec<_>>();
    let few = prop::collection::vec(prop::sample::select(hard), 0..3);
    prop_oneof![3 => few.prop_map(String::from_iter), 1 => any::<String>()]
}

fn tree(number: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "true", "false"]).prop_map(Tree::Word),
        number.prop_map(Tree::Number),
        word().prop_map(Tree::Text),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let members = prop::collection::vec((word(), inner.clone()), 0..4);
        prop_oneof![prop::collection::vec(inner, 0..4).prop_map(Tree::Array), members.prop_map(Tree::Object)]
    })
}

/// Numbers that are mostly taken and often meet in another spelling.
fn number() -> impl Strategy<Value = String> {
    let few = [
        "0",
        "1",
        "10",
        "1e1",
        "10.0",
        "0.5",
        "5e-1",
        "-1",
        "1e20",
        "100000000000000000000",
        "9007199254740992",
    ];
    prop_oneof![3 => prop::sample::select(few.to_vec()).prop_map(str::to_owned), 1 => hostile_number()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reading_the_canonical_form_gives_the_value_back(tree in tree(number()), seed in any::<u64>()) {
        if let Ok(value) = parse(tree.text(seed).as_bytes()) {
            let text = canonical::to_string(&value);
            let again = parse(text.as_bytes()).unwrap();
            prop_assert_eq!(&again, &value);
            prop_assert_eq!(canonical::to_string(&again), text);
            prop_assert_eq!(check(&value), Ok(()));
        }
    }

    #[test]
    fn every_spelling_ends_in_the_same_bytes(tree in tree(number()), one in any::<u64>(), two in any::<u64>()) {
        let read = |seed| parse(tree.text(seed).as_bytes()).map_err(|said| said.what);
        match (read(one), read(two)) {
            (Ok(one), Ok(two)) => {
                prop_assert_eq!(canonical::to_string(&one), canonical::to_string(&two));
                prop_assert_eq!(one, two);
            }
            (one, two) => prop_assert!(one.is_err() && two.is_err()),
        }
    }

    #[test]
    fn equal_bytes_mean_equal_values(one in tree(number()), two in tree(number()), seed in any::<u64>()) {
        if let (Ok(one), Ok(two)) = (parse(one.text(seed).as_bytes()), parse(two.text(!seed).as_bytes())) {
            prop_assert_eq!(canonical::to_vec(&one) == canonical::to_vec(&two), one == two);
        }
    }

    #[test]
    fn small_values_meet_only_when_equal(one in number(), two in number(), key in word(), other in word()) {
        let read = |key: &str, number: &str| {
            let tree = Tree::Object(vec![(key.to_owned(), Tree::Number(number.to_owned()))]);
            parse(tree.text(1).as_bytes())
        };
        if let (Ok(one), Ok(two)) = (read(&key, &one), read(&other, &two)) {
            prop_assert_eq!(canonical::to_vec(&one) == canonical::to_vec(&two), one == two);
        }
    }

    #[test]
    fn another_printer_prints_the_same(tree in tree(hostile_number()), bits in any::<u64>()) {
        if let Ok(value) = parse(tree.text(bits).as_bytes()) {
            prop_assert_eq!(canonical::to_string(&value), serde_json_canonicalizer::to_string(&value).unwrap());
        }
        let double = f64::from_bits(bits);
        if double.is_finite() {
            prop_assert_eq!(canonical::to_string(&json!(double)), serde_json_canonicalizer::to_string(&double).unwrap());
        }
    }
}

/// Texts we take, some of them with a byte that was meant otherwise.
fn taken_texts(count: usize) -> Vec<(String, Value)> {
    let mut runner = TestRunner::deterministic();
    let strategy = (tree(number()), any::<u64>());
    let mut taken = Vec::new();
    while taken.len() < count {
        let (tree, seed) = strategy.new_tree(&mut runner).unwrap().current();
        let mut bytes = tree.text(seed).into_bytes();
        let mut die = Die(seed ^ 1);
        if die.roll(2) == 0 {
            let at = die.roll(bytes.len() as u64) as usize;
            bytes[at] = b"0129.eE-+\"\\u{}[]:, a\x7f"[die.roll(21) as usize];
        }
        if let Ok(value) = parse(&bytes) {
            taken.push((String::from_utf8(bytes).unwrap(), value));
        }
    }
    taken
}

/// Runs another reader over the texts, one a line in hex, and returns its lines; nothing where it is not installed.
fn ask(program: &str, arguments: &[&str], texts: &[(String, Value)]) -> Option<Vec<String>> {
    let spawned = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match spawned {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        spawned => spawned.unwrap(),
    };
    let mut input = child.stdin.take().unwrap();
    let lines: String = texts
        .iter()
        .map(|(text, _)| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
        .collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{program} ended with {}", output.status);
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

const PYTHON: &str = r#"
import json, sys
def once(pairs):
    members = dict(pairs)
    assert len(members) == len(pairs), "duplicate key"
    return members
for line in sys.stdin:
    print(json.dumps(json.loads(bytes.fromhex(line), object_pairs_hook=once)))
"#;

const NODE: &str = r#"
const form = value => Array.isArray(value) ? `[${value.map(form).join()}]`
  : value === null || typeof value !== "object" ? JSON.stringify(value)
  : `{${Object.keys(value).sort().map(key => `${JSON.stringify(key)}:${form(value[key])}`).join()}}`;
const lines = require("fs").readFileSync(0, "utf8").trimEnd().split("\n");
console.log(lines.map(line => form(JSON.parse(Buffer.from(line, "hex").toString("utf8")))).join("\n"));
"#;

#[test]
fn python_reads_what_we_take_as_the_same_value() {
    let texts = taken_texts(3_000);
    let Some(answers) = ask("python3", &["-c", PYTHON], &texts) else { return };
    assert_eq!(answers.len(), texts.len());
    for ((text, ours), answer) in texts.iter().zip(answers) {
        let theirs: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(canonical::to_string(ours), canonical::to_string(&theirs), "{text}");
    }
}

#[test]
fn node_prints_what_we_take_to_the_same_bytes() {
    let texts = taken_texts(3_000);
    let Some(answers) = ask("node", &["-e", NODE], &texts) else { return };
    assert_eq!(answers.len(), texts.len());
    for ((text, ours), answer) in texts.iter().zip(answers) {
        assert_eq!(canonical::to_string(ours), answer, "{text}");
    }
}
