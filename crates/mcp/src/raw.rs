//! Edits of raw JSON objects: reads, sets or removes one member and keeps every other byte. It never reorders keys, reformats numbers, or
//! looks inside other values.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;
use serde_json::value::RawValue;

/// A JSON value kept as the text it arrived in.
pub type RawJson = Box<RawValue>;

/// `None` when the text is no JSON.
pub fn from_text(text: impl Into<String>) -> Option<RawJson> {
    RawValue::from_string(text.into()).ok()
}

/// Serializes a value; one that cannot be serialized becomes `null`.
pub fn to_raw<T: serde::Serialize + ?Sized>(value: &T) -> RawJson {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

pub fn empty_object() -> RawJson {
    to_raw(&serde_json::Map::new())
}

/// One member of a raw object, with its key as written (without quotes).
#[derive(Debug, Clone)]
struct ObjectMember<'a> {
    key: &'a str,
    /// From the key's opening quote to the value's end.
    span: Range<usize>,
    value: Range<usize>,
}

impl ObjectMember<'_> {
    fn is(&self, name: &str) -> bool {
        if self.key.contains('\\') { decode(self.key) == name } else { self.key == name }
    }
}

/// Resolves the escapes of a JSON string body.
fn decode(body: &str) -> Cow<'_, str> {
    if !body.contains('\\') {
        return Cow::Borrowed(body);
    }
    match serde_json::from_str::<String>(&format!("\"{body}\"")) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(body),
    }
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// `at` is at an opening quote; returns the offset after the closing one.
fn skip_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        let found = at + memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(found) == Some(&b'"') {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// `at` is at the first byte of a value; returns the offset after its last one.
fn skip_value(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => skip_string(bytes, at),
        b'{' | b'[' => {
            let (mut at, mut depth) = (at, 0usize);
            loop {
                match bytes.get(at)? {
                    b'"' => at = skip_string(bytes, at)?,
                    b'{' | b'[' => {
                        depth += 1;
                        at += 1;
                    }
                    b'}' | b']' => {
                        depth -= 1;
                        at += 1;
                        if depth == 0 {
                            return Some(at);
                        }
                    }
                    _ => at += 1,
                }
            }
        }
        _ => {
            let mut at = at;
            while !matches!(bytes.get(at), None | Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')) {
                at += 1;
            }
            Some(at)
        }
    }
}

/// Iterates over the members of an object; empty when the text is not an object.
struct ObjectMembers<'a> {
    text: &'a str,
    at: Option<usize>,
}

impl<'a> ObjectMembers<'a> {
    fn of(text: &'a str) -> Self {
        let at = skip_space(text.as_bytes(), 0);
        Self { text, at: (text.as_bytes().get(at) == Some(&b'{')).then_some(at + 1) }
    }
}

impl<'a> Iterator for ObjectMembers<'a> {
    type Item = ObjectMember<'a>;

    fn next(&mut self) -> Option<ObjectMember<'a>> {
        let bytes = self.text.as_bytes();
        let mut start = skip_space(bytes, self.at.take()?);
        if bytes.get(start) == Some(&b',') {
            start = skip_space(bytes, start + 1);
        }
        if bytes.get(start) != Some(&b'"') {
            return None;
        }
        let key_end = skip_string(bytes, start)?;
        let colon = skip_space(bytes, key_end);
        let value_start = skip_space(bytes, colon + 1);
        let value_end = skip_value(bytes, value_start)?;
        self.at = Some(value_end);
        let key = self.text.get(start + 1..key_end - 1)?;
        Some(ObjectMember { key, span: start..value_end, value: value_start..value_end })
    }
}

/// Whether the text nests at most `limit` objects and arrays.
pub fn within_nesting(text: &str, limit: usize) -> bool {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0usize, 0usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => match skip_string(bytes, at) {
                Some(next) => {
                    at = next;
                    continue;
                }
                None => return true,
            },
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return false;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    true
}

/// Replaces line ends between tokens by spaces; strings stay as they are.
pub(crate) fn without_line_ends(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    if memchr2(b'\n', b'\r', bytes).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let quote =
            memchr::memchr(b'"', bytes.get(at..).unwrap_or_default()).map_or(bytes.len(), |found| at + found);
        out.push_str(&text.get(at..quote).unwrap_or_default().replace(['\n', '\r'], " "));
        let end = skip_string(bytes, quote).unwrap_or(bytes.len());
        out.push_str(text.get(quote..end).unwrap_or_default());
        at = end;
    }
    Cow::Owned(out)
}

/// The position of a member: how many objects are open around it, and the number of its own, in the order they opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberPosition {
    /// Nested objects, from 1.
    pub depth: usize,
    /// From 0.
    pub object: usize,
}

/// Calls `visit` with the decoded name of every member at any depth, in order. Stops at the first for which it returns false, and
/// returns its name. The text must be JSON.
pub fn find_name<'a>(
    text: &'a str,
    mut visit: impl FnMut(MemberPosition, &Cow<'a, str>) -> bool,
) -> Option<Cow<'a, str>> {
    let bytes = text.as_bytes();
    let (mut at, mut opened) = (0usize, 0usize);
    let mut open: Vec<usize> = Vec::new();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let end = skip_string(bytes, at)?;
                let after = skip_space(bytes, end);
                if bytes.get(after) == Some(&b':') {
                    let name = decode(text.get(at + 1..end - 1)?);
                    if !visit(MemberPosition { depth: open.len(), object: *open.last()? }, &name) {
                        return Some(name);
                    }
                }
                at = end;
                continue;
            }
            b'{' => {
                open.push(opened);
                opened += 1;
            }
            b'}' => drop(open.pop()),
            _ => {}
        }
        at += 1;
    }
    None
}

pub fn is_object(value: &RawValue) -> bool {
    value.get().as_bytes().first() == Some(&b'{')
}

/// The text of a member's value; the last one of a repeated key, as most parsers read it.
pub fn get_text<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let found = ObjectMembers::of(object).filter(|member| member.is(name)).last()?;
    object.get(found.value)
}

pub fn get<'a>(object: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    serde_json::from_str(get_text(object.get(), name)?).ok()
}

/// The value at a path of members, such as `["_meta", "progressToken"]`.
pub fn get_in<'a>(object: &'a RawValue, path: &[&str]) -> Option<&'a RawValue> {
    let mut text = object.get();
    for name in path {
        text = get_text(text, name)?;
    }
    serde_json::from_str(text).ok()
}

/// A member that is a JSON string, decoded.
pub fn get_str<'a>(object: &'a RawValue, name: &str) -> Option<Cow<'a, str>> {
    text_of_string(get_text(object.get(), name)?)
}

/// The decoded string at a path of members.
pub fn get_str_in<'a>(object: &'a RawValue, path: &[&str]) -> Option<Cow<'a, str>> {
    let mut text = object.get();
    for name in path {
        text = get_text(text, name)?;
    }
    text_of_string(text)
}

/// Decodes a JSON string literal; `None` for any other value.
pub fn text_of_string(literal: &str) -> Option<Cow<'_, str>> {
    literal.strip_prefix('"')?.strip_suffix('"').map(decode)
}

/// The decoded names of an object's members, in order.
pub fn names(object: &RawValue) -> impl Iterator<Item = Cow<'_, str>> {
    ObjectMembers::of(object.get()).map(|member| decode(member.key))
}

/// All members of an object with decoded keys, in order.
pub fn members(object: &RawValue) -> Vec<(Cow<'_, str>, &RawValue)> {
    let text = object.get();
    ObjectMembers::of(text)
        .filter_map(|member| {
            Some((decode(member.key), serde_json::from_str(text.get(member.value.clone())?).ok()?))
        })
        .collect()
}

#[derive(Debug, Clone, Copy)]
pub enum MemberEdit<'a> {
    /// Replaces the member's value, or appends the member.
    Set(&'a str, &'a str),
    Remove(&'a str),
}

impl MemberEdit<'_> {
    fn name(&self) -> &str {
        match self {
            MemberEdit::Set(name, _) | MemberEdit::Remove(name) => name,
        }
    }
}

/// Applies edits to an object's text; `None` when the text is not an object. Values given to `Set` must be JSON.
pub fn edit_text(object: &str, edits: &[MemberEdit<'_>]) -> Option<String> {
    let bytes = object.as_bytes();
    let open = skip_space(bytes, 0);
    if bytes.get(open) != Some(&b'{') {
        return None;
    }
    let all: Vec<ObjectMember<'_>> = ObjectMembers::of(object).collect();
    let extra: usize = edits
        .iter()
        .map(|edit| if let MemberEdit::Set(k, v) = edit { k.len() + v.len() + 8 } else { 0 })
        .sum();
    let mut out = String::with_capacity(object.len() + extra);
    // The text before the first member, the kept members with the separators before them, then the new ones.
    let mut kept_any = false;
    let mut cursor = open + 1;
    out.push_str(object.get(..cursor)?);
    for (index, member) in all.iter().enumerate() {
        let hit = edits.iter().find(|edit| member.is(edit.name()));
        let later_twin =
            || all.iter().skip(index + 1).any(|other| hit.is_some_and(|edit| other.is(edit.name())));
        let lead = object.get(cursor..member.span.start)?;
        cursor = member.span.end;
        let replacement = match hit {
            None => object.get(member.value.clone())?,
            Some(MemberEdit::Set(_, value)) if !later_twin() => value,
            Some(MemberEdit::Set(..) | MemberEdit::Remove(_)) => continue,
        };
        // The separator before the first kept member may be the comma of a removed one.
        out.push_str(if kept_any || index == 0 { lead } else { lead.trim_start().trim_start_matches(',') });
        out.push_str(object.get(member.span.start..member.value.start)?);
        out.push_str(replacement);
        kept_any = true;
    }
    for edit in edits {
        if let MemberEdit::Set(name, value) = edit
            && !all.iter().any(|member| member.is(name))
        {
            if kept_any {
                out.push(',');
            }
            out.push_str(&serde_json::to_string(name).ok()?);
            out.push(':');
            out.push_str(value);
            kept_any = true;
        }
    }
    out.push_str(object.get(cursor..)?);
    Some(out)
}

/// Sets one member; `None` when `object` is not an object.
pub fn set(object: &RawValue, name: &str, value: &RawValue) -> Option<RawJson> {
    from_text(edit_text(object.get(), &[MemberEdit::Set(name, value.get())])?)
}

/// Removes one member; `None` when `object` is not an object.
pub fn remove(object: &RawValue, name: &str) -> Option<RawJson> {
    from_text(edit_text(object.get(), &[MemberEdit::Remove(name)])?)
}

/// Applies several edits at once; `None` when `object` is not an object.
pub fn edit(object: &RawValue, edits: &[MemberEdit<'_>]) -> Option<RawJson> {
    from_text(edit_text(object.get(), edits)?)
}

/// Applies edits to the object at `outer`, which is created when absent. A new object that ends up empty is not added.
pub fn edit_inside(object: &str, outer: &str, edits: &[MemberEdit<'_>]) -> Option<String> {
    let current = get_text(object, outer);
    let inner = edit_text(current.unwrap_or("{}"), edits).or_else(|| edit_text("{}", edits))?;
    if inner == "{}" && current.is_none() {
        return Some(object.to_owned());
    }
    edit_text(object, &[MemberEdit::Set(outer, &inner)])
}

pub fn set_in(object: &RawValue, outer: &str, name: &str, value: &RawValue) -> Option<RawJson> {
    from_text(edit_inside(object.get(), outer, &[MemberEdit::Set(name, value.get())])?)
}

pub fn remove_in(object: &RawValue, outer: &str, name: &str) -> Option<RawJson> {
    from_text(edit_inside(object.get(), outer, &[MemberEdit::Remove(name)])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> RawJson {
        from_text(text).unwrap()
    }

    fn check_set(before: &str, name: &str, value: &str, after: &str) {
        assert_eq!(set(&raw(before), name, &raw(value)).unwrap().get(), after);
    }

    #[test]
    fn set_touches_one_member() {
        check_set("{}", "a", "1", r#"{"a":1}"#);
        check_set(r#"{ "a" : 1 , "b":2}"#, "b", "3", r#"{ "a" : 1 , "b":3}"#);
        check_set(r#"{ "a" : 1 , "b":2}"#, "a", "[ ]", r#"{ "a" : [ ] , "b":2}"#);
        check_set(
            r#"{"x":12345678901234567890123}"#,
            "y",
            r#""z""#,
            r#"{"x":12345678901234567890123,"y":"z"}"#,
        );
        check_set(r#"{"\u0061":1}"#, "a", "2", r#"{"\u0061":2}"#);
        check_set(r#"{"a":1,"a":2}"#, "a", "3", r#"{"a":3}"#);
        check_set("{\n}", "a", "1", "{\"a\":1\n}");
    }

    #[test]
    fn remove_keeps_the_rest() {
        let check = |before: &str, name: &str, after: &str| {
            assert_eq!(remove(&raw(before), name).unwrap().get(), after);
        };
        check(r#"{"a":1,"b":2,"c":3}"#, "a", r#"{"b":2,"c":3}"#);
        check(r#"{"a":1,"b":2,"c":3}"#, "b", r#"{"a":1,"c":3}"#);
        check(r#"{"a":1,"b":2,"c":3}"#, "c", r#"{"a":1,"b":2}"#);
        check(r#"{"a":{"b":"}\""}}"#, "b", r#"{"a":{"b":"}\""}}"#);
        check(r#"{"a":1}"#, "a", "{}");
        assert!(remove(&raw("[1]"), "a").is_none());
    }

    #[test]
    fn nested_edits_create_and_keep() {
        let check = |before: &str, after: &str| {
            assert_eq!(set_in(&raw(before), "_meta", "progressToken", &raw("7")).unwrap().get(), after);
        };
        check(r#"{"name":"x"}"#, r#"{"name":"x","_meta":{"progressToken":7}}"#);
        check(
            r#"{"_meta":{"v/x": 1.50,"progressToken":"a"},"n":1}"#,
            r#"{"_meta":{"v/x": 1.50,"progressToken":7},"n":1}"#,
        );
        assert_eq!(remove_in(&raw(r#"{"n":1}"#), "_meta", "x").unwrap().get(), r#"{"n":1}"#);
    }

    #[test]
    fn reading_finds_the_last_and_decodes() {
        let object = raw(r#"{"a":1,"s":"x\"y","a":{"b":[1,{"c":2}]}}"#);
        assert_eq!(get(&object, "a").unwrap().get(), r#"{"b":[1,{"c":2}]}"#);
        assert_eq!(get_in(&object, &["a", "b"]).unwrap().get(), r#"[1,{"c":2}]"#);
        assert_eq!(get_str(&object, "s").unwrap(), "x\"y");
        assert!(get_str(&object, "a").is_none());
        assert_eq!(members(&object).len(), 3);
    }

    #[test]
    fn names_are_found_at_any_depth_with_their_object() {
        let text = r#"{"a":[{"b":"c:d"},{"b\u0063": {"e":1}}],"f" : "\"x\":"}"#;
        let mut names = Vec::new();
        let visit = |place: MemberPosition, name: &Cow<'_, str>| {
            names.push((place.depth, place.object, name.to_string()));
            true
        };
        assert!(find_name(text, visit).is_none());
        let expect = [(1, 0, "a"), (2, 1, "b"), (2, 2, "bc"), (3, 3, "e"), (1, 0, "f")];
        assert_eq!(names, expect.map(|(depth, object, name)| (depth, object, name.to_owned())));
        assert_eq!(find_name(text, |_, name| name != "e").as_deref(), Some("e"));
    }

    #[test]
    fn nesting_counts_outside_strings() {
        assert!(within_nesting(r#"{"a":"[[[[["}"#, 1));
        assert!(!within_nesting("[[1]]", 1));
        assert!(within_nesting(&format!("{}{}", "[".repeat(64), "]".repeat(64)), 64));
        assert!(!within_nesting(&format!("{}{}", "[".repeat(65), "]".repeat(65)), 64));
    }
}
