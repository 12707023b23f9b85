//! Raw edits against a model: whatever the object, one member changes and every other byte stays.

use countersign_mcp::raw::{self, MemberEdit};
use proptest::prelude::*;

/// JSON text with odd spacing, escapes and long numbers.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("12345678901234567890123".to_owned()),
        Just("-1.50e+3".to_owned()),
        Just("true".to_owned()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        Just(r#""\u0061\\\"}]{[,:""#.to_owned()),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[ {} ]", items.join(" , "))),
            object(inner),
        ]
    })
}

fn object(values: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member = (key(), prop_oneof![Just(""), Just(" "), Just("\n\t")], values);
    prop::collection::vec(member, 0..5).prop_map(|members| {
        let members: Vec<String> = members
            .into_iter()
            .map(|(key, space, value)| format!("{space}{key}{space}:{space}{value}{space}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(r#""a""#.to_owned()),
        Just(r#""\u0061""#.to_owned()),
        Just(r#""_meta""#.to_owned()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ]
}

/// The members as most parsers see them: the last of equal keys wins; values as text.
fn members(text: &str) -> Vec<(String, String)> {
    let object = raw::from_text(text).unwrap();
    let mut all: Vec<(String, String)> = Vec::new();
    for (key, value) in raw::members(&object) {
        all.retain(|(known, _)| *known != *key);
        all.push((key.into_owned(), value.get().to_owned()));
    }
    all.sort();
    all
}

proptest! {
    #[test]
    fn setting_changes_one_member(text in object(json()), name in "[a-c]|_meta", value in json()) {
        let after = raw::edit_text(&text, &[MemberEdit::Set(&name, &value)]).unwrap();
        let mut expected = members(&text);
        expected.retain(|(key, _)| *key != name);
        expected.push((name.clone(), raw::from_text(value).unwrap().get().to_owned()));
        expected.sort();
        prop_assert_eq!(members(&after), expected);
    }

    #[test]
    fn removing_removes_one_member(text in object(json()), name in "[a-c]|_meta") {
        let after = raw::edit_text(&text, &[MemberEdit::Remove(&name)]).unwrap();
        let mut expected = members(&text);
        expected.retain(|(key, _)| *key != name);
        prop_assert_eq!(members(&after), expected);
        if raw::get_text(&text, &name).is_none() {
            prop_assert_eq!(after, text);
        }
    }

    #[test]
    fn setting_what_is_there_changes_no_byte(text in object(json()), name in "[a-c]|_meta") {
        let twins = raw::members(&raw::from_text(text.clone()).unwrap()).iter().filter(|(key, _)| *key == name).count();
        if let (1, Some(value)) = (twins, raw::get_text(&text, &name)) {
            prop_assert_eq!(raw::edit_text(&text, &[MemberEdit::Set(&name, value)]).unwrap(), text.clone());
        }
    }

    #[test]
    fn reading_agrees_with_serde(text in object(json())) {
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (name, value) in parsed.as_object().unwrap() {
            let found: serde_json::Value = serde_json::from_str(raw::get_text(&text, name).unwrap()).unwrap();
            prop_assert_eq!(&found, value);
        }
    }

    #[test]
    fn nothing_breaks_the_scanner(text in any::<String>(), name in any::<String>()) {
        let _ = raw::get_text(&text, &name);
        let _ = raw::edit_text(&text, &[MemberEdit::Remove(&name)]);
        let _ = raw::within_nesting(&text, 3);
        let _ = countersign_mcp::jsonrpc::parse(text.as_bytes(), countersign_mcp::jsonrpc::FrameLimits::default());
    }
}
