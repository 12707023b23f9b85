//! Whatever the text: an answer, never a panic, and every finding lies inside its file.

use countersign_config::{self as config, Source};
use proptest::prelude::*;

const SEEDS: [&str; 3] = [
    include_str!("../data/contract.toml"),
    include_str!("../data/everything.toml"),
    "[[rules]]\nmatch = '''a:*'''\nwhen = \"\"\"\nargs.x == \\\n  \"\\u00e9\" \"\"\"\n",
];

fn check(text: &str) {
    match config::parse(&[Source::new("a.toml", text)]) {
        Ok(config) => {
            let found = config::lint(&config);
            found.iter().for_each(|finding| inside(text, finding));
            config.tests.iter().for_each(|case| drop(config::run_case(&config, case)));
            let settled = config.settle(&|_| Err("nothing is there".to_owned()));
            settled.err().unwrap_or_default().iter().for_each(|finding| inside(text, finding));
        }
        Err(found) => {
            assert!(!found.is_empty(), "a refusal says why");
            found.iter().for_each(|finding| inside(text, finding));
        }
    }
}

fn inside(text: &str, finding: &config::Diagnostic) {
    let line = text.split('\n').nth(finding.line - 1).unwrap_or_else(|| panic!("no such line: {finding}"));
    assert!(finding.column >= 1 && finding.column <= line.chars().count() + 1, "{finding}\n{text}");
    assert!(!finding.message.is_empty() && !finding.message.contains('\n'), "{finding}");
    assert!(finding.to_string().lines().count() <= 6, "{finding}");
}

#[test]
fn every_prefix_of_a_configuration_is_answered() {
    for seed in SEEDS {
        check(seed);
        for (cut, _) in seed.char_indices() {
            check(&seed[..cut]);
        }
    }
}

#[test]
fn what_is_no_configuration_at_all_is_answered_soon() {
    let started = std::time::Instant::now();
    check(&"\u{0}\u{1}garbage [[ \" \n".repeat(20_000));
    check(&(0..3_000).map(|number| format!("key{number} = {number}\n")).collect::<String>());
    check(&"[[rules]]\n".repeat(2_000));
    check(&format!("[gateway]\nmode = \"{}\"\n", "x".repeat(1_000_000)));
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_configurations_are_answered(
        seed in 0..SEEDS.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8, snippet()), 1..6),
    ) {
        let mut text: Vec<char> = SEEDS[seed].chars().collect();
        for (at, kind, snippet) in edits {
            let at = at.index(text.len());
            let end = (at + 1 + usize::from(kind) * 3).min(text.len());
            match kind {
                0 => drop(text.splice(at..at, snippet.chars())),
                1 => drop(text.drain(at..end)),
                _ => drop(text.splice(at..end, snippet.chars())),
            }
            if text.is_empty() {
                break;
            }
        }
        check(&text.into_iter().collect::<String>());
    }

    #[test]
    fn arbitrary_text_is_answered(text in "\\PC{0,200}", two in "[\\[\\]{}=\"'\\\\\n a-z.0-9$:*]{0,200}") {
        check(&text);
        check(&two);
    }

    #[test]
    fn arbitrary_conditions_are_answered(condition in "[a-z()\\[\\]{}.,:?!&|=<>+*' 0-9-]{0,80}") {
        check(&format!("[[rules]]\nmatch = \"a:*\"\nwhen = \"{condition}\"\n"));
    }
}

fn snippet() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,6}",
        prop::sample::select(vec![
            "\n",
            "\"",
            "'",
            "'''",
            "\"\"\"",
            "[",
            "]",
            "[[",
            "=",
            "{",
            "}",
            ",",
            "#",
            "\\",
            "\u{0}",
            "\u{feff}",
            "é",
            "${",
            "${env:",
            "\r\n",
            "= 1\n",
            "= true\n",
            "= []\n",
            "= {}\n",
            "99999999999999999999",
            "nan",
            "1e999",
            "1979-05-27",
            "args.",
            "((((((((",
            "match",
            "when",
        ])
        .prop_map(str::to_owned),
    ]
}
